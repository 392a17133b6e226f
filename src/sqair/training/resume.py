"""Train states as folders: a run's checkpoints/<step> holds a loadable model and all else that the next step needs.

config.json, model.safetensors     the model, as in checkpoint.py; of a population, its best member's
state.safetensors, state.json      optimiser, step, NVIL's parts, running sums, of a population all models too;
                                   the preset, the best bound, and how each member fares
"""

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from sqair.config import FORMAT_VERSION, Preset, UserError
from sqair.files import folder_written_atomically
from sqair.settings import differences, from_dict, to_dict
from sqair.training.checkpoint import WEIGHTS, load_tensors, save_model, save_tensors
from sqair.training.files import write_json
from sqair.training.members import Member, leader
from sqair.training.population import Population
from sqair.training.step import TrainState

STATE, NOTES = "state.safetensors", "state.json"
FREE = {f"train.{name}" for name in ("steps", "evaluate_every", "keep", "patience", "restart_collapsed")}
"""What may change when a run is resumed: these touch how long it runs and how it is watched."""


class Notes(NamedTuple):
    """What a checkpoint says besides its tensors."""

    preset: Preset
    step: int
    best: float | None
    """The best validation bound so far, in nats per frame."""
    seconds: float
    """What the run has taken so far."""
    stale: int = 0
    """Evaluations since the best bound."""
    members: tuple[dict[str, Any], ...] = ()
    """How each member fares, as `Member.notes` tells it."""
    events: tuple[dict[str, Any], ...] = ()
    """The collapses so far."""


def checkpoints(run: Path) -> list[Path]:
    """The complete checkpoints of a run, oldest first."""
    return sorted(folder for folder in (run / "checkpoints").glob("[0-9]*") if (folder / NOTES).is_file())


def save_state(run: Path, population: Population, state: TrainState, notes: Notes) -> Path:
    """Write checkpoints/<step>, all of it or nothing, and delete all but the newest `keep`.

    A complete one is left as it is: a run comes to a step in one way only.
    """
    folder = run / "checkpoints" / f"{notes.step:08d}"
    if (folder / NOTES).is_file():
        return folder
    best = leader(population.members)
    extra = model_extra(population.members[best], None if population.is_alone else best, notes.step, None)
    with folder_written_atomically(folder) as part:
        save_model(part, population.take(state.model, best), extra)
        save_tensors(part / STATE, state._replace(model=None) if population.is_alone else state)
        write_json(
            part / NOTES, {"format_version": FORMAT_VERSION} | notes._asdict() | {"preset": to_dict(notes.preset)}
        )
    for old in checkpoints(run)[: -max(notes.preset.train.keep, 1)]:
        shutil.rmtree(old)
    return folder


def model_extra(member: Member, number: int | None, step: int, bound: float | None) -> dict[str, Any]:
    """What a saved model tells about its training; `bound` is on validation data, in nats per frame.

    The settings are the member's own; `number` is its place in a population, if there is one.
    """
    values = to_dict(member.trained)
    extra = {"step": step, "validation_bound": bound, "data": values["data"], "train": values["train"]}
    return extra if number is None else extra | {"member": number}


def read_notes(run: Path) -> Notes:
    """The notes of the newest checkpoint of a run."""
    found = checkpoints(run)
    if not found:
        raise UserError(f"{run} has no checkpoint to resume from; start it without --resume")
    path = found[-1] / NOTES
    try:
        values = json.loads(path.read_text())
        version, step, best, preset = (values[key] for key in ("format_version", "step", "best", "preset"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged; delete {found[-1]} to resume from the checkpoint before it") from error
    if version != FORMAT_VERSION:
        raise UserError(f"{path} has format_version {version}, this program reads {FORMAT_VERSION}; update sqair")
    members, events = (tuple(values.get(key) or ()) for key in ("members", "events"))
    given = from_dict(Preset, preset)
    return Notes(given, step, best, values.get("seconds", 0.0), values.get("stale", 0), members, events)


def check_resumable(run: Path, preset: Preset) -> Notes:
    """Refuse to go on with a run under other settings than its own, by their names."""
    notes = read_notes(run)
    changed = differences(notes.preset, preset)
    held = [name for name in changed if name not in FREE]
    if held:
        differ = "differs" if len(held) == 1 else "differ"
        raise UserError(f"cannot resume {run}: {', '.join(held)} {differ} from the run's; leave it, or start a new run")
    if "train.steps" in changed and preset.train.final_decay > 0:
        raise UserError(
            f"cannot resume {run} with other steps than its {notes.preset.train.steps}, by which its learning rate "
            "falls to 0; start a new run, with --train.final-decay 0 if its steps are to be changed"
        )
    return notes


def load_state(run: Path, population: Population, like: TrainState) -> tuple[TrainState, Notes]:
    """The newest state of a run; `like` gives its structure. A run of another model or recipe is refused.

    The members are told how they fare.
    """
    notes = check_resumable(run, population.preset)
    folder = checkpoints(run)[-1]
    for member, values in zip(population.members, notes.members, strict=False):  # none in files of older programs
        for name, value in values.items():
            setattr(member, name, value)
    if not population.is_alone:
        return load_tensors(folder / STATE, like), notes
    model = load_tensors(folder / WEIGHTS, like.model)
    rest = load_tensors(folder / STATE, like._replace(model=None))
    return rest._replace(model=model), notes

"""Train states as folders: a run's checkpoints/<step> holds a loadable model and all else that the next step needs.

config.json, model.safetensors     the model, as in checkpoint.py
state.safetensors, state.json      optimiser, step, NVIL's parts, running sums; the preset and the best bound
"""

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from sqair.config import FORMAT_VERSION, Preset, UserError
from sqair.settings import differences, from_dict, to_dict
from sqair.training.checkpoint import WEIGHTS, load_tensors, save_model, save_tensors
from sqair.training.files import folder_written_atomically, write_json
from sqair.training.step import TrainState

STATE, NOTES = "state.safetensors", "state.json"
FREE = {f"train.{name}" for name in ("steps", "evaluate_every", "keep")}
"""What may change when a run is resumed: these touch how long it runs and how it is watched."""


class Notes(NamedTuple):
    """What a checkpoint says besides its tensors."""

    preset: Preset
    step: int
    best: float | None
    """The best validation bound so far, in nats per frame."""
    seconds: float
    """What the run has taken so far."""


def checkpoints(run: Path) -> list[Path]:
    """The complete checkpoints of a run, oldest first."""
    return sorted(folder for folder in (run / "checkpoints").glob("[0-9]*") if (folder / NOTES).is_file())


def save_state(run: Path, state: TrainState, preset: Preset, best: float | None, seconds: float) -> Path:
    """Write checkpoints/<step>, all of it or nothing, and delete all but the newest `keep`.

    A complete one is left as it is: a run comes to a step in one way only.
    """
    step = int(state.step)
    folder = run / "checkpoints" / f"{step:08d}"
    if (folder / NOTES).is_file():
        return folder
    notes = {"format_version": FORMAT_VERSION, "step": step, "best": best, "seconds": seconds}
    with folder_written_atomically(folder) as part:
        save_model(part, state.model, model_extra(preset, step, None))
        save_tensors(part / STATE, state._replace(model=None))
        write_json(part / NOTES, notes | {"preset": to_dict(preset)})
    for old in checkpoints(run)[: -max(preset.train.keep, 1)]:
        shutil.rmtree(old)
    return folder


def model_extra(preset: Preset, step: int, bound: float | None) -> dict[str, Any]:
    """What a saved model tells about its training; `bound` is on validation data, in nats per frame."""
    values = to_dict(preset)
    return {"step": step, "validation_bound": bound, "data": values["data"], "train": values["train"]}


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
    return Notes(from_dict(Preset, preset), step, best, values.get("seconds", 0.0))


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


def load_state(run: Path, preset: Preset, like: TrainState) -> tuple[TrainState, Notes]:
    """The newest state of a run; `like` gives its structure. A run of another model or recipe is refused."""
    notes = check_resumable(run, preset)
    folder = checkpoints(run)[-1]
    model = load_tensors(folder / WEIGHTS, like.model)
    rest = load_tensors(folder / STATE, like._replace(model=None))
    return rest._replace(model=model), notes

"""Train states as folders: a run's checkpoints/<step> holds a loadable model and all else that the next step needs.

config.json, model.safetensors     the model, as in checkpoint.py; of a population, its best member's
state.safetensors, state.json      optimiser, step, NVIL's parts, running sums, of a population all models too;
                                   the preset, the best bound, and how each member fares
metrics.jsonl                      the run's, up to this step
manifest.json                      the checksums of all these

Random keys, data and curriculum are functions of the seed and the step. The first checkpoint is that of step 0.
"""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from sqair.config import Preset, TrainConfig, UserError
from sqair.files import folder_written_atomically
from sqair.model import SequenceModel
from sqair.settings import differences, from_dict, to_dict
from sqair.training.checkpoint import WEIGHTS, load_model, load_tensors, read_card, save_model, save_tensors
from sqair.training.files import write_bytes, write_json
from sqair.training.manifest import MANIFEST, Damaged, check_manifest, write_manifest
from sqair.training.members import Member, leader
from sqair.training.population import Population
from sqair.training.runs import BEST, MEMBERS, METRICS, cut_metrics, tidy
from sqair.training.step import TrainState

STATE, NOTES, CHECKPOINTS = "state.safetensors", "state.json", "checkpoints"
STATE_VERSION = 2
"""Of checkpoints. Version 1, without manifest, metrics and the following tensors, is read too."""
ADDED = tuple(f"{owner}optimiser.{name}" for owner in ("", "nvil.") for name in ("norm", "rate"))
"""Tensors that a run of version 1 goes on with as a new run has them."""
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
    rollbacks: tuple[dict[str, Any], ...] = ()
    """When training went back (faults.py)."""
    version: int = STATE_VERSION
    """The format of the checkpoint."""


class Checkpoint(NamedTuple):
    """An intact checkpoint."""

    folder: Path
    notes: Notes
    damaged: tuple[Path, ...] = ()
    """Newer ones that are not intact ..."""
    faults: tuple[str, ...] = ()
    """... and what is wrong with each."""


# --- writing


def checkpoints(run: Path) -> list[Path]:
    """The complete checkpoints of a run, oldest first."""
    return sorted(folder for folder in (run / CHECKPOINTS).glob("[0-9]*") if (folder / NOTES).is_file())


def save_state(run: Path, population: Population, state: TrainState, notes: Notes) -> Path:
    """Write checkpoints/<step>, all of it or nothing, and delete old ones.

    A complete one is left as it is: a run comes to a step in one way only. But a run that was begun afresh has another
    step 0, with a name of its own.
    """
    again = sum(member.restarts for member in population.members) if notes.step == 0 else 0
    folder = run / CHECKPOINTS / (f"{notes.step:08d}-{again}" if again else f"{notes.step:08d}")
    if (folder / NOTES).is_file():
        return folder
    best = leader(population.members)
    extra = model_extra(population.members[best], None if population.is_alone else best, notes.step, None)
    with folder_written_atomically(folder) as part:
        save_model(part, population.take(state.model, best), extra)
        save_tensors(part / STATE, state._replace(model=None) if population.is_alone else state)
        values = notes._asdict() | {"preset": to_dict(notes.preset)}
        write_json(part / NOTES, {"format_version": values.pop("version")} | values)
        if (run / METRICS).is_file():
            write_bytes(part / METRICS, (run / METRICS).read_bytes())
        write_manifest(part)
    prune(run, notes.preset.train)
    return folder


def prune(run: Path, config: TrainConfig) -> None:
    """Delete all checkpoints but the newest `keep`, and the newest of an evaluation: training may go back to it."""
    found = checkpoints(run)
    regular = [folder for folder in found if is_regular(int(folder.name[:8]), config)]
    for old in found[: -max(config.keep, 1)]:
        if old not in regular[-1:]:
            shutil.rmtree(old)


def forget_others(run: Path, kept: Path) -> None:
    """Delete all checkpoints but one: the run was begun afresh."""
    for old in checkpoints(run):
        if old != kept:
            shutil.rmtree(old)


def is_regular(step: int, config: TrainConfig) -> bool:
    """Whether every run has a checkpoint of this step, be it stopped on the way or not."""
    return step % config.evaluate_every == 0


def model_extra(member: Member, number: int | None, step: int, bound: float | None) -> dict[str, Any]:
    """What a saved model tells about its training; `bound` is on validation data, in nats per frame.

    The settings are the member's own; `number` is its place in a population, if there is one.
    """
    values = to_dict(member.trained)
    extra = {"step": step, "validation_bound": bound, "data": values["data"], "train": values["train"]}
    return extra if number is None else extra | {"member": number}


# --- reading


def newest(run: Path) -> Checkpoint:
    """The newest intact checkpoint of a run, and the damaged ones that were passed over. Nothing is written."""
    damaged, faults = [], []
    for folder in reversed(checkpoints(run)):
        try:
            return Checkpoint(folder, read_notes(folder), tuple(damaged), tuple(faults))
        except Damaged as error:
            damaged.append(folder)
            faults.append(str(error))
    if faults:
        raise UserError(f"cannot resume {run}: none of its checkpoints is intact ({faults[0]}); start a new run")
    raise UserError(f"{run} has no checkpoint to resume from; start it anew with --overwrite instead of --resume")


def read_notes(folder: Path) -> Notes:
    """The notes of a checkpoint, all of whose files are checked."""
    path = folder / NOTES
    if (folder / MANIFEST).exists():
        check_manifest(folder)
    try:
        values = json.loads(path.read_bytes())
        version, step, best, preset = (values[key] for key in ("format_version", "step", "best", "preset"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{path} is damaged") from error
    if not (isinstance(version, int) and 1 <= version <= STATE_VERSION):
        raise UserError(f"{path} has format_version {version}, this program reads {STATE_VERSION}; update sqair")
    if version > 1 and not (folder / MANIFEST).exists():
        raise Damaged(f"{folder / MANIFEST} is missing")
    members, events, rollbacks = (tuple(values.get(key) or ()) for key in ("members", "events", "rollbacks"))
    given = from_dict(Preset, preset)
    seconds, stale = values.get("seconds", 0.0), values.get("stale", 0)
    return Notes(given, step, best, seconds, stale, members, events, rollbacks, version)


def check_resumable(run: Path, preset: Preset) -> Checkpoint:
    """The checkpoint to go on from; other settings than the run's own are refused by their names."""
    found = newest(run)
    changed = differences(found.notes.preset, preset)
    held = [name for name in changed if name not in FREE]
    if held:
        differ = "differs" if len(held) == 1 else "differ"
        raise UserError(f"cannot resume {run}: {', '.join(held)} {differ} from the run's; leave it, or start a new run")
    if "train.steps" in changed and preset.train.final_decay > 0:
        raise UserError(
            f"cannot resume {run} with other steps than its {found.notes.preset.train.steps}, by which its learning "
            "rate falls to 0; start a new run, with --train.final-decay 0 if its steps are to be changed"
        )
    return found


def load_state(found: Checkpoint, population: Population, like: TrainState) -> TrainState:
    """The state of a checkpoint; `like` gives its structure. The members are told how they fare."""
    for member, values in zip(population.members, found.notes.members, strict=False):  # none in files of older programs
        for name, value in values.items():
            setattr(member, name, value)
    added = ADDED if found.notes.version == 1 else ()
    if not population.is_alone:
        return load_tensors(found.folder / STATE, like, added)
    model = load_tensors(found.folder / WEIGHTS, like.model)
    return load_tensors(found.folder / STATE, like._replace(model=None), added)._replace(model=model)


def restore(run: Path, found: Checkpoint) -> None:
    """Take a run back to a checkpoint: its metrics are those of that step, and what is damaged is put aside."""
    tidy(run)
    for folder in found.damaged:
        aside = folder.with_name(f"damaged-{folder.name}")
        shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)
    if (found.folder / METRICS).is_file():
        write_bytes(run / METRICS, (found.folder / METRICS).read_bytes())
    else:  # it came before the first line, or is of version 1
        cut_metrics(run, found.notes.step)


# --- best models


def save_whole(folder: Path, model: SequenceModel, extra: dict[str, Any]) -> None:
    """Write a model into a folder of its own, all of it or nothing."""
    with folder_written_atomically(folder) as part:
        save_model(part, model, extra)


def forget_damaged(run: Path, members: list[Member]) -> dict[Path, str]:
    """Have the next evaluation make anew the best models that cannot be loaded; returns what is wrong with each."""
    faults = {}
    for i, member in enumerate(members):
        folder = run / BEST if len(members) == 1 else run / MEMBERS / str(i)
        if member.best is not None and (fault := _fault(folder)) is not None:
            member.best = None
            faults[folder] = f"{fault}; the best model is sought anew from here"
    return faults


def mend_best(run: Path, members: list[Member], damaged: Iterable[Path]) -> None:
    """Delete damaged best models, and have the best of all be that of the best member."""
    for folder in damaged:
        shutil.rmtree(folder, ignore_errors=True)
    chosen = leader(members)
    if len(members) > 1 and members[chosen].best is not None and _fault(run / BEST) is not None:
        folder = run / MEMBERS / str(chosen)
        save_whole(run / BEST, load_model(folder), read_card(folder)["training"])


def _fault(folder: Path) -> str | None:
    """Why a model cannot be loaded, if so."""
    try:
        load_model(folder)
    except UserError as error:
        return str(error)
    return None

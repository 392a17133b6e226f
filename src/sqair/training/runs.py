"""Run folders: their names, the files in them, and what may be written over.

run.json         version, command, device, seed, start, end, alarms   preset.json       all settings
metrics.jsonl    one line of numbers per evaluation and member        checkpoints/      to resume from
best/            the model with the best validation bound             config.json, model.safetensors: the same model
members/<i>/     the best model of each member of a population        reconstructions/, curves.png, tensorboard/
"""

import contextlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax

import sqair
from sqair.config import Preset, UsageError, UserError
from sqair.settings import to_dict
from sqair.training.checkpoint import CONFIG, WEIGHTS
from sqair.training.files import finite, write_json, write_text
from sqair.training.lock import LOCK

RUN, PRESET, METRICS = "run.json", "preset.json", "metrics.jsonl"
BEST, MEMBERS = "best", "members"
PICTURES, CURVES, TENSORBOARD = "reconstructions", "curves.png", "tensorboard"
SHOWN = (METRICS, CONFIG, WEIGHTS, BEST, MEMBERS, PICTURES, CURVES, TENSORBOARD, "index.html")
"""What a run that is begun afresh leaves behind, besides its checkpoints."""
OURS = (RUN, PRESET, "checkpoints", *SHOWN)
"""What a train run writes, and so what `--overwrite` may delete."""


# --- folders


def choose_folder(
    command: str, name: str, out: Path | None = None, *, resume: bool = False, overwrite: bool = False
) -> Path:
    """`out` if given, else runs/<command>/<name>, with -2, -3, ... if that is taken. Nothing is written.

    A non-empty `out` is a UsageError unless `resume` or `overwrite`; with `resume` and no `out`, the newest run.
    """
    if out is not None:
        check_folder(out, resume=resume, overwrite=overwrite)
        return out
    first = Path("runs") / command / name
    check_writable(first)
    if overwrite:
        return first
    number, folder, before = 1, first, None
    while is_taken(folder):
        number, before = number + 1, folder
        folder = first.with_name(f"{name}-{number}")
    if not resume:
        return folder
    if before is None:
        raise UserError(f"there is no run {first} to resume; start it without --resume")
    return before


def is_taken(folder: Path) -> bool:
    """Whether something is there; folders without files are not, nor the lock of a run that wrote nothing."""
    if not folder.is_dir():
        return folder.exists()
    return any(path.name != LOCK and not path.is_dir() for path in folder.rglob("*"))


def check_folder(folder: Path, *, resume: bool = False, overwrite: bool = False) -> None:
    """Refuse a folder that a run must not, or cannot, write into."""
    if os.path.isfile(folder):  # unlike Path's, it bears names that are none
        raise UsageError(f"{folder} is a file; give a folder with --out")
    check_writable(folder)
    if resume and not is_taken(folder):
        raise UserError(f"there is no run in {folder} to resume; start it without --resume")
    if is_taken(folder) and not (resume or overwrite):
        raise UsageError(f"{folder} is not empty; continue it with --resume or replace it with --overwrite")


def check_writable(folder: Path) -> None:
    """Refuse a folder in which nothing could be made, before work is done for it; leaves no trace."""
    try:
        present = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        with tempfile.TemporaryFile(dir=present):
            pass
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror or error}; choose another --out") from error


def clear_folder(folder: Path, names: Sequence[str] = OURS) -> None:
    """Delete what an earlier run wrote there, and nothing else."""
    for name in names:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


# --- run.json and preset.json


def begin_run(folder: Path, preset: Preset, command: str, *, resume: bool) -> None:
    """Write preset.json and run.json, in which a resumed run keeps what it told before."""
    write_json(folder / PRESET, to_dict(preset))
    told = describe_run(preset, command)
    if resume:
        past = read_run(folder)
        told |= past | {"resumed": [*past.get("resumed", []), now()], "ended": None, "outcome": None}
    write_json(folder / RUN, told)


def tidy(folder: Path) -> None:
    """Delete what was being written, or put aside, when a process was killed."""
    for path in sorted(folder.rglob(".*.part*"), reverse=True):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def end_run(folder: Path, outcome: str) -> None:
    """Add the end and how it came to run.json."""
    write_json(folder / RUN, read_run(folder) | {"ended": now(), "outcome": outcome})


def note_events(folder: Path, alarms: Sequence[dict[str, Any]], rollbacks: Sequence[dict[str, Any]]) -> None:
    """Write all collapses so far, and how often training went back, into run.json."""
    write_json(folder / RUN, read_run(folder) | {"alarms": list(alarms), "rollbacks": list(rollbacks)})


def read_run(folder: Path) -> dict[str, Any]:
    """run.json; empty when it is missing or damaged, since nothing depends on it."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        values = json.loads((folder / RUN).read_bytes())
        return values if isinstance(values, dict) else {}
    return {}


def describe_run(preset: Preset, command: str) -> dict[str, Any]:
    """Where a number comes from: code, machine, seed, time."""
    device = jax.devices()[0]
    return {
        "version": sqair.__version__,
        "commit": git_commit(),
        "command": command,
        "device": device.platform if device.platform == "cpu" else device.device_kind,
        "devices": jax.device_count(),
        "jax": jax.__version__,
        "python": platform.python_version(),
        "seed": preset.train.seed,
        "alarms": [],
        "rollbacks": [],
        "started": now(),
        "ended": None,
        "outcome": None,
    }


def now() -> str:
    """The time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def git_commit() -> str | None:
    """The commit of the package's own checkout; None when it is installed, or git is not."""
    package = Path(sqair.__file__).parent
    command = ["git", "-C", str(package), "rev-parse", "--show-toplevel", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.split("\n")
    except (OSError, subprocess.SubprocessError):
        return None
    return answer[1] if Path(answer[0]) / "src" / "sqair" == package else None


# --- metrics.jsonl


def append_metrics(folder: Path, values: dict[str, Any]) -> None:
    """Add one line."""
    with (folder / METRICS).open("a") as file:
        file.write(json.dumps(finite(values), allow_nan=False) + "\n")


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """All whole lines; one that a crash cut short is left out."""
    path = folder / METRICS
    lines = path.read_bytes().splitlines() if path.exists() else []
    values = []
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            values.append(json.loads(line))
    return [value for value in values if isinstance(value, dict) and isinstance(value.get("step"), int)]


def cut_metrics(folder: Path, step: int) -> None:
    """Drop the lines after `step`, so that a resumed run writes none twice."""
    kept = [value for value in read_metrics(folder) if value["step"] <= step]
    write_text(folder / METRICS, "".join(json.dumps(value) + "\n" for value in kept))

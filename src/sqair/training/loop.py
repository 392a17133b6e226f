"""The train loop."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sqair.config import Preset
from sqair.model import SequenceModel


class Stopped(Exception):
    """Training ended by a signal, after saving; `code` is the exit code, 130 or 143."""

    def __init__(self, code: int, folder: Path) -> None:
        super().__init__(f"stopped; continue with --resume --out {folder}")
        self.code = code
        self.folder = folder


class Progress(NamedTuple):
    """What a callback is told."""

    step: int
    model: SequenceModel
    metrics: dict[str, Any] | None
    """The line just written to metrics.jsonl; None between evaluations."""
    out: Path


Callback = Callable[[Progress], None]


def check_preset(preset: Preset) -> None:
    """Refuse, before anything is compiled or written, what cannot be trained."""
    raise NotImplementedError


def train(
    preset: Preset,
    out: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
    command: str = "",
    callbacks: Sequence[Callback] = (),
) -> Path:
    """Train and return `out`. A new run needs `out` absent or empty, unless `overwrite`; `resume` needs a run there."""
    raise NotImplementedError

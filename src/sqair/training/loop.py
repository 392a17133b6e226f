"""The train loop (App. D.1): steps on the device, validation, checkpoints, signals.

A run is exact: stopped anywhere and resumed, it ends with the same weights on a CPU, and with the same metrics but for
what a clock tells.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sqair.config import Preset, TrainConfig, UserError
from sqair.data import Source, open_data
from sqair.model import SequenceModel
from sqair.objective import check_objective
from sqair.settings import check
from sqair.training import runs
from sqair.training.checkpoint import CONFIG, load_model, read_card, save_model
from sqair.training.console import Display
from sqair.training.pace import Pace, catch_signals
from sqair.training.resume import check_resumable, load_state, model_extra, save_state
from sqair.training.step import Keys, TrainState, first_state, seed_keys, train_steps, without_totals
from sqair.training.validation import Validation

BEST = "best"
"""Folder of the model with the best validation bound."""
MOST_SKIPPED = 20
"""Steps in a row with non-finite gradients before training gives up."""


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
    check(preset)
    check_objective(preset.train)
    if preset.model.image != preset.data.size:
        model, data = ("x".join(map(str, size)) for size in (preset.model.image, preset.data.size))
        raise UserError(f"the model sees frames of {model}, the data has {data}; set model.image and data.size alike")


def train(
    preset: Preset,
    out: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
    command: str = "",
    callbacks: Sequence[Callback] = (),
    started: float | None = None,
) -> Path:
    """Train and return `out`. A new run needs `out` absent or empty, unless `overwrite`; `resume` needs a run there.

    The run's clock begins at `started`, a reading of time.perf_counter, now by default.
    """
    started = time.perf_counter() if started is None else started
    check_preset(preset)
    runs.check_folder(out, resume=resume, overwrite=overwrite)
    if resume:
        started -= check_resumable(out, preset).seconds
    source = open_data(preset.data, "train")
    validation = Validation(open_data(preset.data, "validation"), preset)
    keys = seed_keys(preset.train.seed)
    state, best = first_state(preset, keys.weights), None
    if resume:
        state, notes = load_state(out, preset, state)
        best = notes.best
        runs.cut_metrics(out, notes.step)
    elif overwrite:
        runs.clear_folder(out)
    runs.begin_run(out, preset, command, resume=resume)
    display = Display(preset.train.steps, int(state.step), batch=preset.train.batch, quiet=quiet)
    try:
        Run(preset, out, source, validation, keys, callbacks, state, best, display, Pace(started)).finish()
    except BaseException as error:
        runs.end_run(out, "stopped" if isinstance(error, Stopped | KeyboardInterrupt) else "failed")
        raise
    runs.end_run(out, "finished")
    return out


@dataclass
class Run:
    """One run of `train`: what it needs, and what changes while it goes on."""

    preset: Preset
    out: Path
    source: Source
    validation: Validation
    keys: Keys
    callbacks: Sequence[Callback]
    state: TrainState
    best: float | None
    """The best validation bound so far."""
    display: Display
    pace: Pace

    @property
    def config(self) -> TrainConfig:
        """How it is trained."""
        return self.preset.train

    @property
    def step(self) -> int:
        """Steps made so far."""
        return int(self.state.step)

    def finish(self) -> None:
        """Train to the last step, and leave the best model in the run's folder too."""
        with catch_signals() as caught, self.display:
            while self.step < self.config.steps:
                self.advance()
                self.display.update(self.step, self.means(), self.rate())
                self.notify(self.evaluate() if self.is_due() else None)
                if caught:
                    self.save()
                    raise Stopped(128 + caught[0], self.out)
        if not (self.out / BEST / CONFIG).is_file():  # no validation bound was finite, or someone deleted it
            save_model(self.out / BEST, self.state.model, model_extra(self.preset, self.step, None))
        save_model(self.out, load_model(self.out / BEST), read_card(self.out / BEST)["training"])

    def advance(self) -> None:
        """As many steps as one call should make, up to the next evaluation."""
        every = self.config.evaluate_every
        count = self.pace.steps(min(self.config.steps, (self.step // every + 1) * every) - self.step)
        with self.pace.timed(count):
            self.state = train_steps(self.state, self.source, self.keys.steps, self.config, jnp.array(count))
            jax.block_until_ready(self.state.step)
        skipped = int(self.state.optimiser.notfinite_count)
        if skipped > MOST_SKIPPED:
            clip = "or --train.clip" if self.config.clip > 0 else "or set --train.clip to 10"
            raise UserError(
                f"training diverged: the last {skipped} steps up to {self.step} had gradients that are not finite; "
                f"lower --train.learning-rate {clip}, and start again"
            )

    def is_due(self) -> bool:
        """Whether this step ends with an evaluation."""
        return self.step % self.config.evaluate_every == 0 or self.step == self.config.steps

    def means(self) -> dict[str, float]:
        """Diagnostics of the steps since the last evaluation."""
        count = max(int(self.state.counted), 1)
        return {name: float(value) / count for name, value in self.state.totals._asdict().items()}

    def rate(self) -> float:
        """Sequences per second, compilation and validation not counted."""
        return self.pace.steps_per_second() * self.config.batch

    def evaluate(self) -> dict[str, Any]:
        """Validate, keep the best, write a line and a checkpoint."""
        metrics: dict[str, Any] = {"step": self.step, **{f"train_{k}": v for k, v in self.means().items()}}
        metrics |= self.validation(self.state.model, self.keys.validation)
        metrics |= {"skipped_steps": int(self.state.optimiser.total_notfinite)}
        metrics |= {"sequences_per_second": self.rate(), "seconds": self.pace.elapsed()}
        bound = metrics["validation_bound"]
        is_best = math.isfinite(bound) and (self.best is None or bound > self.best)
        if is_best:
            self.best = bound
            save_model(self.out / BEST, self.state.model, model_extra(self.preset, self.step, bound))
        runs.append_metrics(self.out, metrics)
        self.state = without_totals(self.state)
        self.save()
        self.display.evaluated(self.step, bound, is_best)
        return metrics

    def save(self) -> None:
        """Write a checkpoint."""
        save_state(self.out, self.state, self.preset, self.best, self.pace.elapsed())

    def notify(self, metrics: dict[str, Any] | None) -> None:
        """Tell the callbacks."""
        progress = Progress(self.step, self.state.model, metrics, self.out)
        for callback in self.callbacks:
            callback(progress)

"""The train loop (App. D.1): steps on the device, validation, checkpoints, signals.

A run is exact: stopped anywhere and resumed, it ends with the same weights and the same metrics on a CPU.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sqair.config import Preset, TrainConfig, UserError
from sqair.data import Source, open_data
from sqair.model import SequenceModel
from sqair.objective import check_objective
from sqair.training import runs
from sqair.training.checkpoint import load_model, save_model
from sqair.training.console import Display
from sqair.training.resume import load_state, model_extra, read_notes, save_state
from sqair.training.step import Keys, TrainState, first_state, no_totals, seed_keys, train_steps
from sqair.training.validation import Validation

LONGEST_CALL = 1.0
"""Seconds that one call of the device should last at most, so that signals are answered."""
MOST_STEPS = 100
"""Steps in one call at most."""
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
    check_objective(preset.train)
    for name in ("steps", "batch", "first_length", "stage", "evaluate_every", "validation_sequences"):
        if getattr(preset.train, name) < 1:
            raise UserError(f"train.{name} must be at least 1, not {getattr(preset.train, name)}")
    if not 0 <= preset.train.final_decay <= 1:
        raise UserError(f"train.final_decay must lie between 0 and 1, not {preset.train.final_decay}")
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
) -> Path:
    """Train and return `out`. A new run needs `out` absent or empty, unless `overwrite`; `resume` needs a run there."""
    check_preset(preset)
    runs.check_folder(out, resume=resume, overwrite=overwrite)
    source = open_data(preset.data, "train")
    validation = Validation(open_data(preset.data, "validation"), preset)
    keys = seed_keys(preset.train.seed)
    state, best = first_state(preset, keys.weights), None
    if resume:
        state, (_, step, best) = load_state(out, preset, state)
        runs.cut_metrics(out, step)
    elif overwrite:
        runs.clear_folder(out)
    runs.begin_run(out, preset, command, resume=resume)
    run = Run(preset, out, source, validation, keys, state, best, callbacks, quiet)
    try:
        run.finish()
    except BaseException as error:
        runs.end_run(out, "stopped" if isinstance(error, Stopped | KeyboardInterrupt) else "failed")
        raise
    runs.end_run(out, "finished")
    return out


class Run:
    """One run of `train`: what changes while it goes on."""

    def __init__(
        self,
        preset: Preset,
        out: Path,
        source: Source,
        validation: Validation,
        keys: Keys,
        state: TrainState,
        best: float | None,
        callbacks: Sequence[Callback],
        quiet: bool,
    ) -> None:
        self.preset, self.out, self.source, self.validation = preset, out, source, validation
        self.keys, self.state, self.best, self.callbacks, self.quiet = keys, state, best, callbacks, quiet
        self.started = time.perf_counter()

    @property
    def config(self) -> TrainConfig:
        """How it is trained."""
        return self.preset.train

    def finish(self) -> None:
        """Train to the last step, and leave the best model in the run's folder."""
        done = int(self.state.step)
        with (
            catch_signals() as caught,
            Display(self.config.steps, done, batch=self.config.batch, quiet=self.quiet) as display,
        ):
            pace = Pace()
            while (step := int(self.state.step)) < self.config.steps:
                self.advance(pace, step)
                if pace.calls == 1:
                    display.compiled(int(self.state.step))
                display.update(int(self.state.step), self.means())
                self.notify(self.evaluate_if_due(display))
                if caught:
                    self.save()
                    raise Stopped(128 + caught[0], self.out)
        best = load_model(self.out)
        save_model(self.out, best, model_extra(self.preset, self.config.steps, self.best))

    def advance(self, pace: "Pace", step: int) -> None:
        """As many steps as one call should make, up to the next evaluation."""
        ahead = min(self.config.steps, (step // self.config.evaluate_every + 1) * self.config.evaluate_every) - step
        count = pace.steps(ahead)
        with pace.timed(count):
            self.state = train_steps(self.state, self.source, self.keys.steps, self.config, jnp.array(count))
            jax.block_until_ready(self.state.step)
        skipped = int(self.state.optimiser.notfinite_count)
        if skipped > MOST_SKIPPED:
            raise UserError(
                f"training diverged: the last {skipped} steps up to {int(self.state.step)} had gradients that are not "
                "finite; lower --train.learning-rate or --train.clip and start again"
            )

    def means(self) -> dict[str, float]:
        """Diagnostics of the steps since the last evaluation."""
        count = max(int(self.state.counted), 1)
        return {name: float(value) / count for name, value in self.state.totals._asdict().items()}

    def evaluate_if_due(self, display: Display) -> dict[str, Any] | None:
        """At the end of a stretch: validate, keep the best, write a line and a checkpoint."""
        step = int(self.state.step)
        if step % self.config.evaluate_every and step != self.config.steps:
            return None
        metrics = {"step": step, **{f"train_{name}": value for name, value in self.means().items()}}
        metrics |= self.validation(self.state.model, self.keys.validation)
        metrics |= {"skipped_steps": int(self.state.optimiser.total_notfinite)}
        metrics |= {"sequences_per_second": display.rate(step), "seconds": time.perf_counter() - self.started}
        bound = metrics["validation_bound"]
        is_best = self.best is None or bound > self.best
        if is_best:
            self.best = bound
            save_model(self.out / "best", self.state.model, model_extra(self.preset, step, bound))
        runs.append_metrics(self.out, metrics)
        self.state = self.state._replace(totals=no_totals(), counted=jnp.array(0))
        self.save()
        display.evaluated(metrics, is_best)
        return metrics

    def save(self) -> None:
        """Write a checkpoint."""
        save_state(self.out, self.state, self.preset, self.best)

    def notify(self, metrics: dict[str, Any] | None) -> None:
        """Tell the callbacks."""
        progress = Progress(int(self.state.step), self.state.model, metrics, self.out)
        for callback in self.callbacks:
            callback(progress)


class Pace:
    """Chooses how many steps a call makes from how long the last ones took; results do not depend on it."""

    def __init__(self) -> None:
        self.calls, self.seconds_per_step = 0, float("inf")

    def steps(self, ahead: int) -> int:
        """Steps of the next call; one while the speed is unknown."""
        wanted = int(LONGEST_CALL / self.seconds_per_step) if self.seconds_per_step > 0 else MOST_STEPS
        return max(1, min(ahead, MOST_STEPS, wanted))

    @contextmanager
    def timed(self, count: int) -> Iterator[None]:
        """Measure a call of `count` steps. The first one compiles, so it tells nothing."""
        start = time.perf_counter()
        yield
        self.calls += 1
        if self.calls > 1:
            self.seconds_per_step = (time.perf_counter() - start) / count


@contextmanager
def catch_signals() -> Iterator[list[int]]:
    """The list of signals caught since: Ctrl-C and SIGTERM wait for the present call; a second one ends at once."""
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    watched = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in watched}

    def note(number: int, _: object) -> None:
        caught.append(number)
        for watched_number in watched:
            signal.signal(watched_number, before[watched_number])

    for number in watched:
        signal.signal(number, note)
    try:
        yield caught
    finally:
        for number in watched:
            signal.signal(number, before[number])

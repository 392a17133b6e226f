"""The train loop (App. D.1): steps on the device, validation, alarms, checkpoints, signals.

A run is exact: stopped anywhere and resumed, it ends with the same weights on a CPU, and with the same metrics but for
what a clock tells.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from sqair.config import Preset, TrainConfig, UserError
from sqair.data import Source
from sqair.model import SequenceModel
from sqair.objective import check_objective
from sqair.settings import check
from sqair.training import runs
from sqair.training.archive import Archive
from sqair.training.console import Display
from sqair.training.faults import MOST_ROLLBACKS, can_roll_back, explained, roll_back
from sqair.training.health import (
    Event,
    Watch,
    can_begin_afresh,
    check_every,
    count_healthy,
    is_check,
    replace_member,
)
from sqair.training.hosts import agreed, is_writer
from sqair.training.lock import locked
from sqair.training.members import leader, member_configs
from sqair.training.optimiser import MOST_SKIPPED
from sqair.training.pace import Pace, catch_signals
from sqair.training.phases import Phases, open_phases
from sqair.training.population import Population, catch_up, known_scene
from sqair.training.resume import Checkpoint, Notes, check_resumable, forget_damaged, load_state
from sqair.training.step import TrainState, seed_keys
from sqair.training.validation import Validation


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
    """The best member's."""
    metrics: dict[str, Any] | None
    """The best member's line just written to metrics.jsonl; None between evaluations."""
    lines: list[dict[str, Any]]
    """The lines of all members; none between evaluations."""
    out: Path


Callback = Callable[[Progress], None]


def check_preset(preset: Preset) -> None:
    """Refuse, before anything is compiled or written, what cannot be trained."""
    check(preset)
    if preset.train.estimator == "nvil" and preset.model.background != "none":
        raise UserError("the estimator 'nvil' has no baseline for frames before a background; use 'vimco'")
    for config in member_configs(preset.train):
        check_objective(config)
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
    mesh: Mesh | None = None,
) -> Path:
    """Train and return `out`. A new run needs `out` absent or empty, unless `overwrite`; `resume` needs a run there.

    The run's clock begins at `started`, a reading of time.perf_counter, now by default. With a mesh, many devices
    share the work; where they are on many hosts, all processes call this, and process 0 writes.
    """
    started = time.perf_counter() if started is None else started
    check_preset(preset)
    runs.check_folder(out, resume=resume, overwrite=overwrite)
    with explained(preset.train, out), contextlib.ExitStack() as held:
        if resume and is_writer():
            held.enter_context(locked(out))
        found = check_resumable(out, preset) if resume else None
        run = prepare(preset, out, found, callbacks, started, mesh, quiet=quiet or not is_writer())
        agreed(0)  # all have read before one writes
        if not resume and is_writer():
            held.enter_context(locked(out))
            runs.check_folder(out, overwrite=overwrite)  # another process may have come first
        run.begin(found, command)
        try:
            outcome = run.finish()
        except BaseException as error:
            with contextlib.suppress(OSError):  # of a full disk, say: the error itself matters more
                run.archive.end("stopped" if isinstance(error, Stopped | KeyboardInterrupt) else "failed")
            raise
        run.archive.end(outcome)
    return out


def prepare(
    preset: Preset,
    out: Path,
    found: Checkpoint | None,
    callbacks: Sequence[Callback],
    started: float,
    mesh: Mesh | None,
    *,
    quiet: bool,
) -> "Run":
    """A new run, or one that goes on from a checkpoint. Nothing is written."""
    sources = open_phases(preset, "train")
    validations = open_phases(preset, "validation").map(lambda source: Validation(source, preset))
    population = Population(preset, mesh, known_scene(sources.later, preset.model))
    if found is None:
        state, notes = population.first(), Notes(preset, 0, None, 0.0)
    else:
        state, notes = load_state(found, population, population.blank()), found.notes
    display = Display(preset.train.steps, notes.step, batch=preset.train.batch * population.size, quiet=quiet)
    callbacks, pace = callbacks if is_writer() else (), Pace(started - notes.seconds)
    past = (notes.stale, [*notes.events], [*notes.rollbacks])
    return Run(Archive(out, population), sources, validations, callbacks, state, *past, display, pace)


@dataclass
class Run:
    """One run of `train`: what it needs, and what changes while it goes on."""

    archive: Archive
    sources: Phases[Source]
    validations: Phases[Validation]
    callbacks: Sequence[Callback]
    state: TrainState
    stale: int
    """Evaluations since the best bound."""
    events: list[dict[str, Any]]
    """The collapses so far, as run.json tells them ..."""
    rollbacks: list[dict[str, Any]]
    """... and when training went back."""
    display: Display
    pace: Pace
    watch: Watch = field(init=False)
    best_is: int = field(init=False)
    """The member whose model lies in the folder `best`, if any does."""

    def __post_init__(self) -> None:
        # All members are validated with the noise of the run's own seed, so that their bounds can be compared.
        self.key = seed_keys(self.config.seed).validation
        self.watch = Watch(self.population, self.validations, self.key)
        self.best_is = leader(self.population.members)

    @property
    def population(self) -> Population:
        """Who is trained."""
        return self.archive.population

    @property
    def out(self) -> Path:
        """The run's folder."""
        return self.archive.out

    @property
    def config(self) -> TrainConfig:
        """How it is trained."""
        return self.population.preset.train

    @property
    def step(self) -> int:
        """Steps made so far."""
        return int(self.state.step)

    @property
    def switch(self) -> int:
        """The step at which the first phase has ended; 0 where there is none."""
        return self.sources.switch

    @property
    def has_converged(self) -> bool:
        """Whether it is time to stop early."""
        return 0 < self.config.patience <= self.stale

    def begin(self, found: Checkpoint | None, command: str) -> None:
        """Write what a run has from its first moment, or take it back to the checkpoint it goes on from."""
        if found is None:
            return self.archive.begin(self.state, self.notes(), command)
        damaged = forget_damaged(self.out, self.population.members)
        agreed(0)
        self.archive.go_on(found, list(damaged), command)
        for line in (*(f"{fault}; resuming from step {self.step}" for fault in found.faults), *damaged.values()):
            self.display.say(line)

    def finish(self) -> str:
        """Train to the last step, and leave the best model in the run's folder too; returns how it ended."""
        with catch_signals() as caught, self.display:
            while self.step < self.config.steps and not self.has_converged:
                self.advance()
                self.display.update(self.step, self.means(), self.rate(), count_healthy(self.population.members))
                if is_check(self.step, self.config):
                    self.check()
                self.notify(self.evaluate() if self.is_due() else [])
                if number := agreed(caught[0] if caught else 0):
                    self.archive.save(self.state, self.notes())
                    raise Stopped(128 + number, self.out)
            if is_early_end := self.step < self.config.steps:
                self.display.say(f"step {self.step}: no new best in {self.stale} evaluations; stopped early")
        self.archive.finish(self.state, self.best_is)
        return "stopped early" if is_early_end else "finished"

    # --- steps

    def advance(self) -> None:
        """As many steps as one call should make, up to the next evaluation, check or phase."""
        step, config = self.step, self.config
        stops = [(step // every + 1) * every for every in (config.evaluate_every, check_every(config))]
        if step < self.switch:
            stops.append(self.switch)
        elif step == self.switch:
            self.watch.forget_bounds()
        count = agreed(self.pace.steps(min(config.steps, *stops) - step))
        with self.pace.timed(count):
            self.state = self.population.advance(self.state, self.sources.at(step), count)
            jax.block_until_ready(self.state.step)
        skipped = int(np.min(self.state.optimiser.notfinite_count))
        if skipped > MOST_SKIPPED:
            self.diverge(skipped)

    def is_due(self) -> bool:
        """Whether this step ends with an evaluation."""
        return self.step > 0 and (self.step % self.config.evaluate_every == 0 or self.step == self.config.steps)

    def means(self) -> list[dict[str, float]]:
        """Diagnostics of every member over the steps since the last evaluation."""
        counts = np.maximum(np.atleast_1d(np.asarray(self.state.counted)), 1)
        sums = {name: np.atleast_1d(np.asarray(value)) for name, value in self.state.totals._asdict().items()}
        return [{name: float(sums[name][i]) / int(count) for name in sums} for i, count in enumerate(counts)]

    def rate(self) -> float:
        """Sequences per second of all members together, compilation and validation not counted."""
        return self.pace.steps_per_second() * self.config.batch * self.population.size

    # --- collapse

    def check(self) -> None:
        """Look for members that have collapsed."""
        self.respond(self.watch.check(self.state))

    def diverge(self, skipped: int) -> None:
        """No member has learnt anything for so many steps: a collapse of all, a reason to go back, or the end."""
        members = self.population.members
        if not can_begin_afresh(members, self.step, self.config):
            if can_roll_back(self.state):
                return self.roll_back(skipped)
            clip = "or --train.clip" if self.config.clip > 0 else "or set --train.clip to 10"
            raise UserError(
                f"training diverged: the last {skipped} steps up to {self.step} had gradients that are not finite or "
                f"far too large, though the learning rate was lowered {MOST_ROLLBACKS} times; "
                f"lower --train.learning-rate {clip}, and start again"
            )
        for member in members:
            member.collapsed = member.alarm = "divergence"
        self.respond(range(len(members)))

    def roll_back(self, skipped: int) -> None:
        """Go back to the last evaluation, with a lower learning rate."""
        self.state, found, event = roll_back(self.out, self.population, self.state)
        self.stale = found.notes.stale
        self.rollbacks.append(event._asdict())
        self.archive.note(self.events, self.rollbacks)
        self.display.say(event.line(skipped))

    def respond(self, collapsed: Iterable[int]) -> None:
        """Replace collapsed members where that is wanted and possible, else say so once."""
        members = self.population.members
        for i in collapsed:
            event = Event(self.step, i, str(members[i].collapsed), "warned", members[i].seed)
            if self.config.restart_collapsed:
                self.state, event = replace_member(self.population, self.state, event)
            if not any(event.repeats(past) for past in self.events):
                self.events.append(event._asdict())
                self.archive.note(self.events, self.rollbacks)
                self.display.say(event.line(self.population.size))
        if self.step == 0:  # begun afresh, alone
            self.stale = 0
            self.archive.begin_afresh(self.state, self.notes())
        elif any(member.restarts for member in members):
            self.state = catch_up(self.state, self.config.warm_up)

    # --- evaluation

    def evaluate(self) -> list[dict[str, Any]]:
        """Validate, keep the best, write a line for every member, and a checkpoint."""
        members = self.population.members
        lines = self.lines()
        improved = set()
        for i, (member, line) in enumerate(zip(members, lines, strict=True)):
            bound = line["validation_bound"]
            if math.isfinite(bound) and (member.best is None or bound > member.best):
                member.best = bound
                improved.add(i)
                self.archive.keep(self.state, i, bound)
            self.archive.write(line)
        chosen = leader(members)
        is_new = chosen in improved or (chosen != self.best_is and members[chosen].best is not None)
        if is_new:
            self.archive.lead(chosen)
        is_fresh = chosen in improved or self.step <= self.switch  # before that, no digits of this size were trained
        self.best_is, self.stale = chosen, 0 if is_fresh else self.stale + 1
        self.state = self.population.without_totals(self.state)
        self.archive.save(self.state, self.notes())
        bounds = [line["validation_bound"] for line in lines]
        self.display.evaluated(self.step, bounds, chosen in improved, count_healthy(members))
        return lines

    def lines(self) -> list[dict[str, Any]]:
        """What metrics.jsonl is told about every member."""
        found = self.validations.later(self.population, self.state.model, self.key)
        skipped = np.atleast_1d(np.asarray(self.state.optimiser.total_notfinite))
        clock = {"sequences_per_second": self.rate(), "seconds": self.pace.elapsed()}
        lines = []
        for i, (member, means) in enumerate(zip(self.population.members, self.means(), strict=True)):
            who = {} if self.population.is_alone else {"member": i}
            line = {"step": self.step} | who | {f"train_{name}": value for name, value in means.items()} | found[i]
            lines.append(line | {"skipped_steps": int(skipped[i]), "alarm": member.alarm} | clock)
            member.alarm = member.collapsed
        return lines

    def notes(self) -> Notes:
        """What a checkpoint tells of the run at this step."""
        members = self.population.members
        best, told = members[leader(members)].best, tuple(member.notes() for member in members)
        past = (self.pace.elapsed(), self.stale, told, tuple(self.events), tuple(self.rollbacks))
        return Notes(self.population.preset, self.step, best, *past)

    def notify(self, lines: list[dict[str, Any]]) -> None:
        """Tell the callbacks."""
        if not self.callbacks:
            return
        metrics = lines[self.best_is] if lines else None
        model = self.population.take(self.state.model, self.best_is)
        for callback in self.callbacks:
            callback(Progress(self.step, model, metrics, lines, self.out))

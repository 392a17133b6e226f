"""What can go wrong while a run goes on, and what is done about it: memory, disk, and gradients that are no use.

Gradients: a step with a bad one is skipped (optimiser.py). After several in a row training goes back to the checkpoint
of the last evaluation and on from there with half the learning rate, a few times at most. All of this depends on the
steps alone, so that a run that was stopped on the way does the same again.
"""

import contextlib
import dataclasses
import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from sqair.config import Preset, TrainConfig, UserError
from sqair.data import open_data
from sqair.training.manifest import Damaged
from sqair.training.population import Population
from sqair.training.resume import Checkpoint, checkpoints, is_regular, load_state, read_notes
from sqair.training.step import TrainState

LOWER = 0.5
"""What the learning rate is multiplied by each time that training goes back ..."""
MOST_ROLLBACKS = 3
"""... and how often it does."""


BROKEN = ("Gloo", "NCCL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "Connection", "heartbeat")
"""How errors of jax read that come from another process."""


class OutOfMemory(UserError):
    """The device has too little memory for a step."""


class LostContact(UserError):
    """Another process of the job is gone."""


@contextlib.contextmanager
def explained(config: TrainConfig, out: Path) -> Iterator[None]:
    """Turn a full disk, too little memory and a job that fell apart into one line that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UserError(
            f"the disk of {out} is full; what was saved before is intact: make room and continue with --resume"
        ) from error
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        if "RESOURCE_EXHAUSTED" in str(error):
            raise OutOfMemory(
                f"the device has too little memory for a step with {config.batch} sequences; "
                f"try --train.batch {max(config.batch // 2, 1)}, or have --fit-memory choose"
            ) from error
        if jax.process_count() > 1 and any(word in str(error) for word in BROKEN):
            raise LostContact(
                f"another process of the job is gone; start all of them again with --resume --out {out}"
            ) from error
        raise


def fitting(preset: Preset, mesh_of: Callable[[Preset], Mesh | None]) -> Preset:
    """The preset with its batch halved as often as one step needs to fit into memory; its program stays compiled."""
    while True:
        population = Population(preset, mesh_of(preset))
        try:
            with explained(preset.train, Path()):
                source = open_data(preset.data, "train")
                jax.block_until_ready(population.advance(population.first(), source, 1).step)
            return preset
        except OutOfMemory:
            if preset.train.batch == 1:
                raise
            smaller = dataclasses.replace(preset.train, batch=preset.train.batch // 2)
            preset = dataclasses.replace(preset, train=smaller)


class Rollback(NamedTuple):
    """Training went back, as run.json tells it."""

    step: int
    """At which too many steps in a row had been skipped."""
    to: int
    """The step that it went back to."""
    rate: float
    """What the learning rate is multiplied by from there on."""

    def line(self, skipped: int) -> str:
        """The same in one line."""
        return (
            f"step {self.step}: {skipped} steps in a row had gradients that are not finite or far too large; "
            f"back to step {self.to}, with {self.rate:g} times the learning rate"
        )


def can_roll_back(state: TrainState) -> bool:
    """Whether the learning rate may be lowered once more."""
    return float(np.max(state.optimiser.rate)) > LOWER**MOST_ROLLBACKS


def roll_back(run: Path, population: Population, state: TrainState) -> tuple[TrainState, Checkpoint, Rollback]:
    """The state of the last evaluation's checkpoint, with a lower learning rate for all members."""
    found = last_regular(run, population.preset.train)
    rate = LOWER * state.optimiser.rate
    before = load_state(found, population, state)
    before = before._replace(optimiser=before.optimiser._replace(rate=rate))
    return before, found, Rollback(int(state.step), found.notes.step, float(np.max(rate)))


def last_regular(run: Path, config: TrainConfig) -> Checkpoint:
    """The newest intact checkpoint that an evaluation made, not a signal: those every run has."""
    for folder in reversed(checkpoints(run)):
        with contextlib.suppress(Damaged):
            notes = read_notes(folder)
            if is_regular(notes.step, config):
                return Checkpoint(folder, notes)
    raise UserError(f"{run} has no checkpoint to go back to; lower --train.learning-rate and start a new run")

"""``sqair train --minutes``: how many steps fit into a time, found by a few steps that are thrown away.

A step takes longer when the curriculum has reached longer sequences, so it is timed at the first length and at the
last, and in between the time is taken to grow evenly.
"""

import time
from typing import NamedTuple

import jax
import jax.numpy as jnp

from sqair.config import Preset, TrainConfig, UserError
from sqair.data import open_data
from sqair.training.curriculum import length_at
from sqair.training.step import first_state, seed_keys, train_steps

TIMED = 3
"""Steps that are timed."""
RESERVE = 0.1
"""Share of the time kept for validation and saving."""
LATE = 2**30
"""A step at which every curriculum has ended."""


class Speed(NamedTuple):
    """Seconds that things take."""

    compiling: float
    first: float
    """A step at the curriculum's first length."""
    last: float
    """A step at its last."""


def steps_within(preset: Preset, seconds: float) -> int:
    """The number of steps that `preset` can train in this time, what has to be compiled and measured included."""
    started = time.monotonic()
    speed = measure(preset)
    left = (1 - RESERVE) * seconds - (time.monotonic() - started) - speed.compiling
    steps = count_steps(speed, preset.train, preset.data.length, left)
    if steps < 1:
        raise UserError(f"{seconds / 60:g} minutes are too few: compiling alone takes {speed.compiling:.0f} s twice")
    return steps


def measure(preset: Preset) -> Speed:
    """Time the compiled step that training uses. Training compiles it once more, since its schedule knows the steps."""
    keys = seed_keys(preset.train.seed)
    source, state = open_data(preset.data, "train"), first_state(preset, keys.weights)

    def timed(step: int, count: int) -> float:
        started = time.monotonic()
        begun = state._replace(step=jnp.full_like(state.step, step))
        jax.block_until_ready(train_steps(begun, source, keys.steps, preset.train, jnp.array(count)).step)
        return time.monotonic() - started

    compiling = timed(0, 0)
    return Speed(compiling, timed(0, TIMED) / TIMED, timed(LATE, TIMED) / TIMED)


def count_steps(speed: Speed, config: TrainConfig, length: int, seconds: float) -> int:
    """Steps until `seconds` are used up, going through the stages of the curriculum."""
    steps = 0
    first = int(length_at(0, config, length))
    for frames in range(first, length):
        each = speed.first + (speed.last - speed.first) * (frames - first) / (length - first)
        if seconds < config.stage * each:
            return steps + max(0, int(seconds / each))
        steps, seconds = steps + config.stage, seconds - config.stage * each
    return steps + max(0, int(seconds / speed.last))

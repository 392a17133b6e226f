"""``sqair train --minutes``: how many steps fit into a time, found by a few steps that are thrown away.

A step takes longer when the curriculum has reached longer sequences, so it is timed at the first length and at the
last, and in between the time is taken to grow evenly.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from sqair.config import Preset, TrainConfig, UserError
from sqair.data import open_data
from sqair.training.curriculum import length_at
from sqair.training.population import Population

TIMED = 3
"""Steps that are timed."""
RESERVE = 0.1
"""Share of the time kept for validation and saving."""
LATE = 2**30
"""A step at which every curriculum has ended."""

Recipe = Callable[[int], TrainConfig]
"""How to train for a number of steps."""


class Speed(NamedTuple):
    """Seconds that things take."""

    compiling: float
    first: float
    """A step at the curriculum's first length."""
    last: float
    """A step at its last."""


def steps_within(preset: Preset, recipe: Recipe, seconds: float, mesh: Mesh | None = None) -> int:
    """The number of steps that `preset` can train in this time, what has to be compiled and measured included."""
    started = time.monotonic()
    speed = measure(preset, mesh)
    left = (1 - RESERVE) * seconds - (time.monotonic() - started) - speed.compiling
    steps = count_steps(speed, recipe, preset.data.length, left)
    if steps < 1:
        raise UserError(f"{seconds / 60:g} minutes are too few: compiling alone takes {speed.compiling:.0f} s twice")
    return steps


def measure(preset: Preset, mesh: Mesh | None = None) -> Speed:
    """Time the compiled step that training uses. Training compiles it once more, since its schedule knows the steps."""
    population = Population(preset, mesh)
    source, state = open_data(preset.data, "train"), population.first()

    def timed(step: int, count: int) -> float:
        started = time.monotonic()
        begun = state._replace(step=jnp.full_like(state.step, step))
        jax.block_until_ready(population.advance(begun, source, count).step)
        return time.monotonic() - started

    compiling = timed(0, 0)
    return Speed(compiling, timed(0, TIMED) / TIMED, timed(LATE, TIMED) / TIMED)


def count_steps(speed: Speed, recipe: Recipe, length: int, seconds: float) -> int:
    """The most steps that take no more than `seconds`; each number of steps has a curriculum of its own."""
    least, most = 0, 1
    while seconds_of(speed, recipe(most), length) <= seconds and most < LATE:
        least, most = most, 2 * most
    while most - least > 1:
        middle = (least + most) // 2
        if seconds_of(speed, recipe(middle), length) <= seconds:
            least = middle
        else:
            most = middle
    return least


def seconds_of(speed: Speed, config: TrainConfig, length: int) -> float:
    """How long the steps of `config` take, through all stages of its curriculum."""
    seconds, left = 0.0, config.steps
    first = int(length_at(0, config, length))
    for frames in range(first, length):
        each = speed.first + (speed.last - speed.first) * (frames - first) / (length - first)
        now = min(left, config.stage)
        seconds, left = seconds + now * each, left - now
    return seconds + left * speed.last

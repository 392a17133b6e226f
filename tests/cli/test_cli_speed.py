"""How --minutes becomes a number of steps."""

import dataclasses

import pytest

from sqair.commands.speed import Speed, count_steps
from sqair.config import TrainConfig

CONFIG = TrainConfig(first_length=3, stage=10)
SPEED = Speed(compiling=0.0, first=1.0, last=3.0)


def needed(steps: int) -> float:
    """Seconds of `steps` steps on sequences of five frames: 1, 2 and 3 seconds each at lengths 3, 4 and 5."""
    return float(sum(min(step // 10, 2) + 1 for step in range(steps)))


def fixed(steps: int) -> TrainConfig:
    """The same curriculum for every number of steps."""
    return dataclasses.replace(CONFIG, steps=steps)


@pytest.mark.parametrize("steps", [0, 1, 9, 10, 11, 20, 21, 100])
def test_steps_fill_the_time(steps: int) -> None:
    assert count_steps(SPEED, fixed, 5, needed(steps)) == steps
    assert count_steps(SPEED, fixed, 5, needed(steps) + 0.9) == steps
    assert count_steps(SPEED, fixed, 5, needed(steps + 1) - 0.1) == steps


def test_no_curriculum_and_no_time() -> None:
    assert count_steps(SPEED, fixed, 3, 10.0) == 3
    assert count_steps(SPEED, fixed, 2, 10.0) == 3
    assert count_steps(SPEED, fixed, 5, -1.0) == 0


def test_the_curriculum_may_follow_the_steps() -> None:
    def stretched(steps: int) -> TrainConfig:
        return dataclasses.replace(CONFIG, steps=steps, stage=max(1, steps // 4))

    # A quarter each at 1 and 2 seconds, the rest at 3: 9 seconds for 4 steps.
    assert count_steps(SPEED, stretched, 5, 9.0 * 25) == 100
    assert count_steps(SPEED, stretched, 5, 9.0 * 25 - 0.1) < 100

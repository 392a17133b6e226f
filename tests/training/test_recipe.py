"""Our recipe for other numbers of steps: in proportion, within limits."""

import dataclasses

import pytest

from sqair.config import PRESETS, TrainConfig
from sqair.training.recipe import SCALED, scaled

OWN = TrainConfig(steps=20_000, warm_up=500, stage=700, discovery_cost_steps=4_000, evaluate_every=1_000)


@pytest.mark.parametrize("name", PRESETS)
def test_a_presets_own_steps_change_nothing(name: str) -> None:
    assert scaled(PRESETS[name].train, PRESETS[name].train.steps) == PRESETS[name].train


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (10_000, (250, 350, 2_000, 500)),
        (30_000, (500, 1_050, 6_000, 1_500)),
        (1_000_000, (500, 1_400, 8_000, 2_000)),
        (1_000, (100, 100, 500, 50)),
        (2, (100, 100, 500, 50)),
    ],
)
def test_numbers_of_steps_follow_the_steps(steps: int, expected: tuple[int, ...]) -> None:
    found = scaled(OWN, steps)
    assert tuple(getattr(found, name) for name in ("warm_up", "stage", "discovery_cost_steps", "evaluate_every")) == (
        expected
    )
    assert dataclasses.replace(found, steps=OWN.steps, **{name: getattr(OWN, name) for name in SCALED}) == OWN


def test_what_is_small_already_is_not_raised() -> None:
    small = TrainConfig(steps=100, warm_up=0, stage=5, discovery_cost_steps=10, evaluate_every=20)
    assert scaled(small, 50) == dataclasses.replace(small, steps=50)

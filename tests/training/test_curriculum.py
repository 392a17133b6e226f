"""Schedules against their closed forms."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sqair.config import TrainConfig
from sqair.training.curriculum import learning_rate, length_at, restraint_at
from sqair.training.recipe import PAPER_RECIPE


@pytest.mark.parametrize(
    ("step", "length"), [(0, 3), (99_999, 3), (100_000, 4), (699_999, 9), (700_000, 10), (1_999_999, 10)]
)
def test_length_of_the_paper(step: int, length: int) -> None:
    assert int(length_at(step, PAPER_RECIPE, 10)) == length
    assert int(jax.jit(lambda s: length_at(s, PAPER_RECIPE, 10))(step)) == length


def test_length_never_passes_the_data() -> None:
    assert int(length_at(0, TrainConfig(first_length=7), 4)) == 4


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        (0, 1e-5),
        (399_999, 1e-5),
        (400_000, 1e-5 / 3),
        (999_999, 1e-5 / 3),
        (1_000_000, 1e-5 / 9),
        (1_999_999, 1e-5 / 9),
    ],
)
def test_rate_of_the_paper(step: int, rate: float) -> None:
    assert np.asarray(learning_rate(PAPER_RECIPE)(step)) == pytest.approx(rate, rel=1e-6)


def test_rate_with_warm_up_and_cosine() -> None:
    config = TrainConfig(steps=1000, learning_rate=2.0, warm_up=100, final_decay=0.25)
    schedule = jax.jit(learning_rate(config))
    rates = np.array([float(schedule(jnp.array(step))) for step in (0, 49, 99, 100, 749, 750, 875, 937, 1000, 2000)])
    ending = [1 + math.cos(math.pi * 0.5), 1 + math.cos(math.pi * 187 / 250), 0.0, 0.0]
    assert rates == pytest.approx([0.02, 1.0, 2.0, 2.0, 2.0, 2.0, *ending], abs=1e-6)


def test_restraint() -> None:
    config = TrainConfig(discovery_dropout=0.3, discovery_cost=50.0, discovery_cost_steps=200, rediscovery_cost=4.0)
    config = dataclasses.replace(config, presence_cost=0.25, presence_delay=60)
    make = jax.jit(lambda step: restraint_at(step, config, 6))
    restraint = make(50)
    assert restraint.discover.shape == restraint.cost.shape == (6,)
    assert np.allclose(restraint.cost, [50 * 0.75] + [50 * 0.75 + 4] * 5)
    assert make(1000).cost.tolist() == [0, 4, 4, 4, 4, 4], "what is annealed is gone, what lasts stays"
    assert restraint.learned.tolist() == [0] * 6
    assert make(60).learned.tolist() == [1] * 6
    assert restraint.rent.tolist() == make(1000).rent.tolist() == [0.25] * 6


def test_discovery_dropout() -> None:
    config = TrainConfig(discovery_dropout=0.3)
    discover = jax.jit(jax.vmap(lambda step: restraint_at(step, config, 6).discover))(jnp.arange(2000))
    assert set(np.unique(discover)) == {0.0, 1.0}
    assert (discover[:, 0] == 1).all(), "the first frame can always discover"
    np.testing.assert_allclose(discover[:, 1:].mean(0), 0.7, atol=0.04)  # four standard errors
    assert abs(np.corrcoef(discover[:, 1:].T) - np.eye(5)).max() < 0.1, "frames are dropped independently"


def test_the_paper_has_no_restraint() -> None:
    restraint = restraint_at(0, PAPER_RECIPE, 4)
    assert (restraint.discover == 1).all()
    assert (restraint.cost == 0).all()
    assert (restraint.rent == 0).all()
    assert (restraint.learned == 1).all()

"""RMSprop by hand, clipping, and steps that are skipped."""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sqair.config import TrainConfig
from sqair.training.optimiser import BASELINE_RATE, baseline_optimiser, model_optimiser, rmsprop

PLAIN = TrainConfig(optimiser="adam", learning_rate=0.1, warm_up=0, final_decay=0.0, clip=0.0)


def walk(rule: optax.GradientTransformation, gradients: list) -> tuple[list, Any]:
    """The parameters, from 0, after each gradient."""
    parameters = jnp.zeros_like(jnp.asarray(gradients[0]))
    state, path = rule.init(parameters), []
    for gradient in gradients:
        updates, state = rule.update(jnp.asarray(gradient), state, parameters)
        parameters = jnp.asarray(optax.apply_updates(parameters, updates))
        path.append(np.asarray(parameters))
    return path, state


def test_rmsprop_is_that_of_tensorflow() -> None:
    gradients = [np.array([3.0, -0.01, 0.0]), np.array([-1.0, 0.02, 0.5]), np.array([2.0, 0.0, -4.0])]
    square, momentum, parameter, expected = np.ones(3), np.zeros(3), np.zeros(3), []
    for g in gradients:
        square = 0.9 * square + 0.1 * g**2
        momentum = 0.9 * momentum + 0.1 * g / np.sqrt(square + 1e-10)
        parameter = parameter - momentum
        expected.append(parameter)
    path, _ = walk(rmsprop(0.1), [g.astype(np.float32) for g in gradients])
    assert np.allclose(path, expected, rtol=1e-5)


def test_rmsprop_takes_the_rate_of_its_own_step_into_the_momentum() -> None:
    path, _ = walk(rmsprop(lambda step: jnp.where(step == 0, 1.0, 0.0)), [1.0, 1.0])
    assert path[0] == pytest.approx(-1.0)
    assert path[1] == pytest.approx(-1.9), "the first rate lives on in the buffer"


@pytest.mark.parametrize(("clip", "norm"), [(0.0, 50.0), (5.0, 5.0), (1000.0, 50.0)])
def test_clipping_by_the_global_norm(clip: float, norm: float) -> None:
    config = dataclasses.replace(PLAIN, optimiser="rmsprop", clip=clip, learning_rate=1.0)
    rule = model_optimiser(config)
    state = rule.init({"a": jnp.zeros(1), "b": jnp.zeros(1)})
    _, state = rule.update({"a": jnp.array([30.0]), "b": jnp.array([40.0])}, state)
    squares = optax.tree.get(state, "nu")
    seen = [math.sqrt((float(square) - 0.9) / 0.1) for square in squares]
    assert math.hypot(*seen) == pytest.approx(norm, rel=1e-4)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_step_with_a_gradient_that_is_not_finite_is_skipped_and_counted(bad: float) -> None:
    good = np.array([1.0, 2.0], np.float32)
    broken = np.array([1.0, bad], np.float32)
    path, state = walk(model_optimiser(PLAIN), [good, broken, broken, good])
    clean, _ = walk(model_optimiser(PLAIN), [good, good])
    assert (path[1] == path[0]).all()
    assert (path[2] == path[0]).all()
    assert (path[3] == clean[1]).all(), "a skipped step leaves no trace in the moments either"
    assert (int(state.total_notfinite), int(state.notfinite_count)) == (2, 0)


def test_bad_steps_are_skipped_for_ever() -> None:
    path, state = walk(model_optimiser(PLAIN), [np.array([np.nan], np.float32)] * 30)
    assert (np.asarray(path) == 0).all()
    assert int(state.notfinite_count) == 30


def test_baseline_learns_faster_with_its_own_norm() -> None:
    config = dataclasses.replace(PLAIN, clip=1.0)
    path, _ = walk(baseline_optimiser(config), [np.array([1e6], np.float32)])
    assert path[0] == pytest.approx(-BASELINE_RATE * 0.1, rel=1e-4)

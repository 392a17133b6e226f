"""Muon: what its steps are, which parameters take them, and that training with it goes on exactly."""

import dataclasses
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sqair.config import Preset, TrainConfig
from sqair.training.loop import Progress, train
from sqair.training.muon import USUAL, orthogonal, scale_by_muon, steps_along
from sqair.training.optimiser import model_optimiser

SIZES = [(8, 8), (16, 40), (40, 16), (9, 200)]


def matrix(rows: int, columns: int, seed: int = 0, condition: float = 30.0) -> np.ndarray:
    """A matrix whose singular values fall from `condition` to 1."""
    rng = np.random.default_rng(seed)
    u, _, v = np.linalg.svd(rng.normal(size=(rows, columns)), full_matrices=False)
    return (u * np.geomspace(condition, 1.0, min(rows, columns)) @ v).astype(np.float32)


def nearest_orthogonal(m: np.ndarray) -> np.ndarray:
    u, _, v = np.linalg.svd(m, full_matrices=False)
    return u @ v


@pytest.mark.parametrize(("rows", "columns"), SIZES)
def test_a_step_is_nearly_the_nearest_orthogonal_matrix(rows: int, columns: int) -> None:
    m = matrix(rows, columns)
    step = np.asarray(steps_along({"w": jnp.asarray(m)})["w"])
    values = np.linalg.svd(step, compute_uv=False) / (USUAL * math.sqrt(max(rows, columns)))
    assert values.min() > 0.65
    assert values.max() < 1.25
    wanted = nearest_orthogonal(m)
    cosine = (step * wanted).sum() / np.linalg.norm(step) / np.linalg.norm(wanted)
    assert cosine > 0.97
    plain = (m * wanted).sum() / np.linalg.norm(m) / np.linalg.norm(wanted)
    assert cosine > plain + 0.05, "the gradient itself is farther from it"


def test_a_step_is_as_long_as_one_of_adam_and_does_not_know_the_scale() -> None:
    m = jnp.asarray(matrix(32, 64))
    step = orthogonal(m[None])[0]
    assert float(jnp.sqrt(jnp.square(step).mean())) == pytest.approx(USUAL, rel=0.2)
    np.testing.assert_allclose(orthogonal(1e-3 * m[None])[0], step, rtol=1e-3, atol=1e-5)


def test_matrices_that_are_stacked_do_not_know_of_each_other() -> None:
    """Those of one shape, and those whose transpose has it, go together."""
    tree = {"a": matrix(16, 40, 1), "b": matrix(40, 16, 2), "c": matrix(16, 40, 3), "d": matrix(12, 12, 4)}
    together = steps_along(jax.tree.map(jnp.asarray, tree))
    for name, each in tree.items():
        alone = steps_along({name: jnp.asarray(each)})[name]
        assert alone.shape == each.shape
        np.testing.assert_allclose(together[name], alone, rtol=1e-4, atol=1e-6)


def test_filters_are_matrices_with_a_row_for_each_map() -> None:
    filters = matrix(12, 45).reshape(12, 5, 3, 3)
    step = steps_along({"w": jnp.asarray(filters)})["w"]
    flat = steps_along({"w": jnp.asarray(filters.reshape(12, 45))})["w"]
    np.testing.assert_array_equal(np.asarray(step).reshape(12, 45), flat)


def test_what_is_no_matrix_goes_by_adam() -> None:
    """Biases, numbers, narrow weights, and pictures, which are no weights however large they are."""
    rng = np.random.default_rng(0)
    shapes = {
        "a": {"weight": (16, 16), "bias": (20,)},
        "b": {"weight": (20, 7), "number": ()},
        "c": {"weight": (1, 32, 3, 3), "weight_hh": (24, 8)},
        "d": {"picture": (50, 50, 1), "mix": (9, 9)},
    }
    taken = {("a", "weight"), ("c", "weight_hh")}
    params = {name: {part: jnp.zeros(shape) for part, shape in each.items()} for name, each in shapes.items()}
    muon, adam = scale_by_muon(), optax.scale_by_adam()
    ours, theirs = muon.init(params), adam.init(params)
    for _ in range(3):
        slopes = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), jnp.float32), params)
        found, ours = muon.update(slopes, ours)
        wanted, theirs = adam.update(slopes, theirs)
        for name, each in shapes.items():
            for part in each:
                pair = np.asarray(found[name][part]), np.asarray(wanted[name][part])  # type: ignore[index]
                if (name, part) in taken:
                    assert not np.allclose(*pair, atol=0.05)
                else:
                    np.testing.assert_allclose(*pair, rtol=1e-5)


def test_the_momentum_is_nesterovs() -> None:
    """After gradients A and B the step is along .95 m + .05 B, m being .95 (.05 A) + .05 B."""
    a, b = matrix(8, 8, 5), matrix(8, 8, 6)
    rule = scale_by_muon()
    state = rule.init({"weight": jnp.zeros((8, 8))})
    _, state = rule.update({"weight": jnp.asarray(a)}, state)
    step, _ = rule.update({"weight": jnp.asarray(b)}, state)
    mean = 0.95 * 0.05 * a + 0.05 * b
    wanted = steps_along({"w": jnp.asarray(0.95 * mean + 0.05 * b)})
    np.testing.assert_allclose(step["weight"], wanted["w"], rtol=1e-3, atol=1e-5)  # type: ignore[index]


def test_bad_gradients_are_left_out_and_counted() -> None:
    """The momentum does not hear of them, and the next step is as if they had not been."""
    rule = model_optimiser(TrainConfig(optimiser="muon", warm_up=0))
    params = {"weight": jnp.ones((8, 8)), "bias": jnp.ones(8)}
    good = {"weight": jnp.asarray(matrix(8, 8)), "bias": jnp.ones(8)}
    _, before = rule.update(good, rule.init(params))
    updates, after = rule.update({"weight": jnp.full((8, 8), jnp.nan), "bias": jnp.ones(8)}, before)
    assert float(jnp.abs(updates["weight"]).max()) == float(jnp.abs(updates["bias"]).max()) == 0.0  # type: ignore[index]
    assert int(after.total_notfinite) == 1  # type: ignore[union-attr]
    jax.tree.map(np.testing.assert_array_equal, before.inner_state, after.inner_state)  # type: ignore[union-attr]
    wanted, _ = rule.update(good, before)
    updates, state = rule.update(good, after)
    jax.tree.map(np.testing.assert_array_equal, updates, wanted)
    assert float(jnp.abs(updates["weight"]).max()) > 0  # type: ignore[index]
    assert int(state.notfinite_count) == 0  # type: ignore[union-attr]


class Enough(Exception):
    """Ends a run."""


def end_at_20(progress: Progress) -> None:
    if progress.step >= 20:
        raise Enough


def test_a_population_that_was_stopped_goes_on_exactly(small: Preset, tmp_path: Path) -> None:
    """What Muon remembers of each member is in the checkpoints."""
    model = dataclasses.replace(small.model, max_objects=1)
    config = dataclasses.replace(small.train, optimiser="muon", steps=30, evaluate_every=10, batch=4, members=2)
    preset = dataclasses.replace(small, model=model, train=config)
    whole = train(preset, tmp_path / "whole", quiet=True)
    with pytest.raises(Enough):
        train(preset, tmp_path / "half", quiet=True, callbacks=[end_at_20])
    train(preset, tmp_path / "half", quiet=True, resume=True)
    last = [
        (each / "checkpoints" / "00000030" / "model.safetensors").read_bytes() for each in (whole, tmp_path / "half")
    ]
    assert last[0] == last[1]

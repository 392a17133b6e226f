"""What one compiled step does, on AIR with NVIL: frames are single images, and the baseline learns apart."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sqair.config import Preset
from sqair.data import Sequences, Source, open_data
from sqair.training.checkpoint import build, named_arrays
from sqair.training.step import TrainState, first_state, model_frames, priced_surplus, seed_keys, train_steps


@pytest.fixture(scope="module")
def air(small: Preset) -> Preset:
    train = dataclasses.replace(small.train, bound="elbo", estimator="nvil", batch=3, warm_up=0)
    return dataclasses.replace(small, model=dataclasses.replace(small.model, kind="air"), train=train)


@pytest.fixture(scope="module")
def start(air: Preset) -> TrainState:
    return first_state(air, seed_keys(0).weights)


@pytest.fixture(scope="module")
def source(air: Preset) -> Source:
    return open_data(air.data, "train")


def go(state: TrainState, source: Source, air: Preset, count: int) -> TrainState:
    return train_steps(state, source, seed_keys(0).steps, air.train, jnp.array(count))


def test_frames_of_air_are_single_images(start: TrainState, small: Preset) -> None:
    frames = jnp.arange(2 * 3 * 4 * 5, dtype=jnp.float32).reshape(2, 3, 4, 5)
    single = model_frames(frames, start.model)
    assert single.shape == (6, 1, 4, 5, 1)
    assert (single[4, 0, :, :, 0] == frames[1, 1]).all()
    colour = model_frames(jnp.zeros((2, 3, 4, 5, 3)), start.model)
    assert colour.shape == (6, 1, 4, 5, 3)
    sequential = first_state(small, seed_keys(0).weights).model
    assert model_frames(frames, sequential).shape == (2, 3, 4, 5, 1)


@pytest.mark.parametrize(("kind", "shape"), [("sqair", (3, 4)), ("air", (12, 1)), ("vrnn", None)])
def test_how_many_there_are_is_told_as_frames_are(small: Preset, kind: str, shape: tuple[int, int] | None) -> None:
    model = build(dataclasses.replace(small.model, kind=kind, networks="mlp"), jax.random.key(0))
    most = np.arange(12, dtype=np.int32).reshape(3, 4)
    batch = Sequences(np.zeros((3, 4, 12, 12), np.uint8), most_objects=most)
    surplus = priced_surplus(batch, model, small.train)
    assert (surplus is None) == (shape is None)
    if surplus is not None and shape is not None:
        np.testing.assert_array_equal(surplus.most_objects, most.reshape(*shape))
    assert priced_surplus(Sequences(batch.frames), model, small.train) is None


def test_a_step_moves_model_baseline_and_moments(start: TrainState, source: Source, air: Preset) -> None:
    state = go(start, source, air, 1)
    assert start.nvil is not None
    assert state.nvil is not None
    for before, after in ((start.model, state.model), (start.nvil.baseline, state.nvil.baseline)):
        pairs = zip(named_arrays(before).values(), named_arrays(after).values(), strict=True)
        assert any((a != b).any() for a, b in pairs)
    assert state.nvil.moments.mean != start.nvil.moments.mean
    assert state.nvil.moments.variance != start.nvil.moments.variance


def test_the_number_of_steps_in_a_call_does_not_matter(start: TrainState, source: Source, air: Preset) -> None:
    together = go(start, source, air, 3)
    apart = go(go(start, source, air, 1), source, air, 2)
    assert int(together.step) == 3
    assert all((a == b).all() for a, b in zip(*(named_arrays(s).values() for s in (together, apart)), strict=True))


def test_steps_see_different_batches(start: TrainState, source: Source, air: Preset) -> None:
    later = start._replace(step=jnp.array(1, jnp.int32))
    assert go(start, source, air, 1).totals.bound != go(later, source, air, 1).totals.bound


def test_a_bad_step_changes_nothing_but_the_counters(start: TrainState, source: Source, air: Preset) -> None:
    """A weight that is not a number spoils every gradient: moments, means and optimiser must stay clean."""
    poisoned = start._replace(model=jax.tree.map(lambda leaf: leaf * jnp.nan, start.model))
    state = go(poisoned, source, air, 2)
    assert start.nvil is not None
    assert state.nvil is not None
    assert (int(state.step), int(state.optimiser.total_notfinite), int(state.counted)) == (2, 2, 0)
    assert state.totals == start.totals
    assert state.nvil.moments == start.nvil.moments
    for after, before in ((state.optimiser, start.optimiser), (state.nvil.optimiser, start.nvil.optimiser)):
        kept, old = named_arrays(after.inner_state), named_arrays(before.inner_state)
        assert all((kept[name] == old[name]).all() for name in kept)

"""Futures and dreams: they depend on the observed frames alone, are drawn by weight, and agree with their tracks."""

import dataclasses
from typing import Any

import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sqair
from sqair import generation
from sqair.baselines.air import AIR
from sqair.baselines.vrnn import VRNN
from sqair.config import UserError, VRNNConfig
from sqair.data import Sequences, save_sequences
from sqair.model import SQAIR

CLIP = np.round(np.asarray(helpers.film(4))[..., 0] * 255).astype(np.uint8)
NUMBERS: dict[str, Any] = {"observe": 2, "frames": 3, "futures": 5, "seed": 1}


@pytest.fixture(scope="module")
def model() -> SQAIR:
    """Scattered so little that the weights of its inferences are of one order."""
    return helpers.build(SQAIR, helpers.TINY, 0.1)


@pytest.fixture(scope="module")
def prediction(model: SQAIR) -> sqair.Prediction:
    return sqair.predict(model, CLIP, **NUMBERS)


def changed(**numbers: Any) -> dict[str, Any]:
    return NUMBERS | numbers


def same(one: sqair.Scene, other: sqair.Scene) -> bool:
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one[:6], other[:6], strict=True))


def test_what_comes_later_is_not_seen(model: SQAIR, prediction: sqair.Prediction) -> None:
    other = np.concatenate([CLIP[:2], 255 - CLIP[2:]])
    again = sqair.predict(model, other, **NUMBERS)
    assert all(map(same, again.futures, prediction.futures))
    assert not np.array_equal(again.clip, prediction.clip)
    swapped = sqair.predict(model, np.concatenate([CLIP[2:], CLIP[:2]]), **NUMBERS)
    assert not all(map(same, swapped.futures, prediction.futures))


def test_futures_differ_by_number_and_seed(model: SQAIR, prediction: sqair.Prediction) -> None:
    assert len({future.frames[2:].tobytes() for future in prediction.futures}) > 2  # empty ones are alike
    again = sqair.predict(model, CLIP, **changed(seed=2))
    assert not all(map(same, again.futures, prediction.futures))


def test_inferences_are_drawn_by_their_weight(model: SQAIR) -> None:
    frames = jnp.asarray(CLIP[:2, ..., None], jnp.float32) / 255
    infer = jax.jit(jax.vmap(lambda key: model.observe(key, frames)[1].log_weight.sum()))
    excess, variance, plain = 0.0, 0.0, 0.0
    for seed in range(60):
        key = jax.random.key(seed)
        known = np.asarray(infer(jax.random.split(jax.random.split(key, 3)[0], generation.PARTICLES)), np.float64)
        share = np.exp(known - known.max()) / np.exp(known - known.max()).sum()
        drawn = np.asarray(generation._continue(model, key, frames, 3, 5).log_weight[:, :2].sum(1))
        assert (np.abs(drawn[:, None] - known).min(1) < 1e-3).all(), "each future goes on from an inference"
        excess += (drawn - share @ known).sum()
        variance += 5 * (share @ np.square(known - share @ known))
        plain += 5 * (known.mean() - share @ known)
    assert abs(excess) < 4 * np.sqrt(variance)
    assert abs(plain) > 20 * np.sqrt(variance), "without weights it would be this"


def test_pixel_error(model: SQAIR, prediction: sqair.Prediction) -> None:
    wanted = [
        [np.square(future.frames[t] - CLIP[t, ..., None] / 255).mean() for t in (2, 3)] for future in prediction.futures
    ]
    np.testing.assert_allclose(prediction.pixel_error, wanted, rtol=1e-6)
    assert dataclasses.replace(prediction, clip=prediction.clip[:2]).pixel_error.shape == (5, 0)


def test_tracks_are_in_pixels_of_the_clip(model: SQAIR, prediction: sqair.Prediction) -> None:
    """A clip of twice the size, and wider than high: it is set on black at top and bottom."""
    wide = np.zeros((2, 8, 16), np.uint8)
    wide[:, 2:6, 3:9] = 200
    found = sqair.predict(model, wide, **NUMBERS)
    assert found.fit.content == (0, 2, 8, 4)
    rows = 0
    for future in found.futures:
        tracks = future.tracks
        assert (tracks.size, tracks.frames, tracks.source) == ((8, 16), 5, "array")
        assert np.array_equal(tracks.counts, future.counts)
        for frame, identity, box in zip(tracks.frame, tracks.id, tracks.box, strict=True):
            (slot,) = np.flatnonzero(future.ids[frame] == identity)
            left, top, width, height = future.boxes[frame, slot]
            top, bottom = np.clip([top - 2, top + height - 2], 0, 4) * 2
            if bottom > top:
                np.testing.assert_allclose(box, [2 * left, top, 2 * width, bottom - top])
                rows += 1
            else:
                assert np.isnan(box).all()
    assert rows


def test_samples_are_the_priors(model: SQAIR) -> None:
    first, second = sqair.sample(model, count=2, frames=6, seed=4)
    assert same(first, sqair.sample(model, count=2, frames=6, seed=4)[0])
    assert not same(first, second)
    keys = jax.random.split(jax.random.key(4), 2)
    _, info = model.imagine(keys[1], 6)
    np.testing.assert_allclose(second.frames, np.clip(info.canvas, 0, 1), atol=1e-5)
    assert np.array_equal(second.ids, info.objects.identity)
    assert np.array_equal(second.counts, info.objects.pres.sum(1))
    assert np.array_equal(second.tracks.counts, second.counts)
    assert second.glimpses.shape == (6, 2, 4, 4, 1)
    assert second.frames.min() >= 0
    assert second.frames.max() <= 1


def test_dark_on_light_is_inverted_as_for_tracking(model: SQAIR, prediction: sqair.Prediction) -> None:
    again = sqair.predict(model, 255 - CLIP, **NUMBERS)
    assert again.fit.inverted
    assert all(map(same, again.futures, prediction.futures))
    assert not sqair.predict(model, 255 - CLIP, **NUMBERS, invert="no").fit.inverted


def test_a_model_without_objects_predicts_pixels() -> None:
    sizes = VRNNConfig(latent_size=3, layers=1)
    model = helpers.build(VRNN, dataclasses.replace(helpers.TINY, kind="vrnn", vrnn=sizes))
    found = sqair.predict(model, CLIP, **NUMBERS)
    assert found.pixel_error.shape == (5, 2)
    assert (found.pixel_error > 0).all()
    for future in found.futures:
        assert future.frames.shape == (5, 8, 8, 1)
        assert future.ids.shape == (5, 0)
        assert len(future.tracks) == 0
        assert future.tracks.frames == 5


def test_what_is_refused(model: SQAIR) -> None:
    with pytest.raises(UserError, match="array has 4 frames, fewer than the 5 to observe"):
        sqair.predict(model, CLIP, observe=5)
    for name in ("observe", "frames", "futures"):
        with pytest.raises(UserError, match=f"{name} must be at least 1, not 0"):
            sqair.predict(model, CLIP, **changed(**{name: 0}))
    with pytest.raises(UserError, match="count must be at least 1, not -1"):
        sqair.sample(model, count=-1)
    with pytest.raises(UserError, match="at most 20000"):
        sqair.sample(model, count=1000, frames=1000)
    with pytest.raises(UserError, match="knows no time"):
        sqair.predict(eqx.filter_eval_shape(lambda: AIR(helpers.TINY, key=jax.random.key(0))), CLIP, **NUMBERS)


def test_one_clip_at_a_time(model: SQAIR, tmp_path) -> None:
    save_sequences(tmp_path / "many.npz", Sequences(np.stack([CLIP, CLIP])))
    for call in (sqair.predict, sqair.track):
        with pytest.raises(UserError, match=r"many.npz holds 2 clips; give one of those that .*open_clips returns"):
            call(model, tmp_path / "many.npz")


def test_notes_of_a_clip_are_warnings(model: SQAIR, tmp_path) -> None:
    from PIL import Image

    Image.fromarray(CLIP[0]).save(tmp_path / "1.png")
    Image.fromarray(CLIP[1]).resize((9, 9)).save(tmp_path / "2.png")
    with pytest.warns(UserWarning, match="not all of one size"):
        assert len(sqair.predict(model, tmp_path, **NUMBERS).clip) == 2


def test_a_saved_model_is_the_same_model(model: SQAIR, tmp_path) -> None:
    sqair.save_pretrained(model, tmp_path / "model", training={"note": "mine"})
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["config.json", "model.safetensors"]
    loaded = sqair.from_pretrained(tmp_path / "model")
    assert isinstance(loaded, SQAIR)
    assert loaded.config == model.config
    assert all(map(np.array_equal, jax.tree.leaves(loaded), jax.tree.leaves(model)))
    sqair.save_pretrained(model, tmp_path / "half", half=True)
    close = sqair.from_pretrained(tmp_path / "half")
    leaves = zip(jax.tree.leaves(close), jax.tree.leaves(model), strict=True)
    assert all(jnp.allclose(a, b, rtol=1e-3, atol=1e-6) for a, b in leaves)
    with pytest.raises(UserError, match="no model 'none'"):
        sqair.from_pretrained("none")

"""Tracking: however frames are divided the result is the same, what was told is final, and ghosts are let go."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import TINY, build

from sqair.baselines.air import AIR
from sqair.baselines.vrnn import VRNN
from sqair.config import ModelConfig, UserError
from sqair.distributions import Noise
from sqair.model import SQAIR
from sqair.objects import Objects, initial_state
from sqair.tracking import Tracker, track, track_batch
from sqair.tracking.filter import PATIENCE, Settings, agreement, count_doubts, let_go

LENGTH = 11


@pytest.fixture(scope="module")
def model() -> SQAIR:
    return build(SQAIR)


@pytest.fixture(scope="module")
def frames() -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (LENGTH, *TINY.image, 1), np.uint8)


def follow(model: SQAIR, frames: np.ndarray, parts: list[int], **settings: int) -> list:
    """What is found when frames are fed in parts of these lengths; with pictures by a filter, without them else."""
    tracker = Tracker(model, jax.random.key(7), pictures="particles" in settings, block=4, **settings)
    found = []
    for part in np.split(frames, np.cumsum(parts)[:-1]):
        found += tracker.feed(part)
    return found + tracker.finish()


def same(a: list, b: list) -> None:
    assert len(a) == len(b) == LENGTH
    for x, y in zip(a, b, strict=True):
        jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, rtol=1e-5, atol=1e-5), x, y)


@pytest.mark.parametrize("settings", [{}, {"particles": 4, "lag": 3}], ids=["mode", "filter"])
def test_streaming_is_one_shot(model: SQAIR, frames: np.ndarray, settings: dict[str, int]) -> None:
    whole = follow(model, frames, [LENGTH], **settings)
    same(whole, follow(model, frames, [1, 3, 2, 5], **settings))
    tracker = Tracker(model, jax.random.key(7), pictures="particles" in settings, block=4, **settings)
    same(whole, list(tracker.stream(frames)))


def test_a_batch_is_many_trackers(model: SQAIR, frames: np.ndarray) -> None:
    clips = np.stack([frames, frames[::-1]])
    found = jax.device_get(track_batch(model, jax.random.key(7), clips, particles=4, lag=3, pictures=True))
    assert found.box.shape == (2, LENGTH, TINY.max_objects, 4)
    for number, clip in enumerate(clips):
        tracker = Tracker(model, jax.random.fold_in(jax.random.key(7), number), particles=4, pictures=True, block=4)
        told = [jax.tree.map(lambda leaf, at=(number, t): leaf[at], found) for t in range(LENGTH)]
        same(told, tracker.feed(clip) + tracker.finish())


def test_a_clip_shorter_than_the_lag(model: SQAIR, frames: np.ndarray) -> None:
    for length in (1, 2, 3, 4):
        tracker = Tracker(model, jax.random.key(7), particles=4, lag=3, pictures=True, block=4)
        assert len(tracker.feed(frames[:length])) == max(0, length - 3)
        assert len(tracker.finish()) == min(3, length)


def test_one_particle_is_the_mode(model: SQAIR, frames: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without doubt, tracking with one particle is `observe` without noise."""
    monkeypatch.setattr("sqair.tracking.filter.MARGIN", np.inf)
    found = track_batch(model, jax.random.key(0), frames[None])
    noise = model.noise(jax.random.key(0), LENGTH)
    noise = Noise(noise.what * 0, noise.where * 0, noise.pres * 0 + 0.5)
    _, info = model.observe(None, jnp.asarray(frames) / 255.0, noise=noise)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[0], b, rtol=2e-4, atol=2e-4), found.objects, info.objects)


def test_identities_are_never_used_again(model: SQAIR) -> None:
    """Objects of this model come and go at every frame: who is gone does not return, however the lag chose."""
    clip = np.random.default_rng(4).integers(0, 256, (48, *TINY.image, 1), np.uint8)
    tracker = Tracker(model, jax.random.key(1), particles=4, lag=3, pictures=True, block=4)
    told = tracker.feed(clip) + tracker.finish()
    lives: dict[int, list[int]] = {}
    for t, found in enumerate(told):
        present = found.objects.identity[found.objects.pres > 0]
        assert len(set(present.tolist())) == len(present)
        for identity in present.tolist():
            lives.setdefault(identity, []).append(t)
    assert len(lives) > 10
    assert all(times == list(range(times[0], times[-1] + 1)) for times in lives.values())
    births = [times[0] for _, times in sorted(lives.items())]
    assert births == sorted(births)


def test_uncertainty_is_the_particles(model: SQAIR) -> None:
    """Three particles: two agree that object 0 is there, at centres 2 pixels apart; the third knows only object 1."""
    transformer = model.image.transformer
    boxes = jnp.array([[[1.0, 1, 3, 3]], [[3.0, 1, 3, 3]], [[5.0, 5, 3, 3]]])
    objects = Objects(
        what=jnp.zeros((3, 1, 2)),
        where=transformer.where_of_boxes(boxes),
        pres=jnp.ones((3, 1)),
        identity=jnp.array([[0], [0], [1]]),
    )
    presence, spread = agreement(model.image, objects, jnp.array([0.3, 0.3, 0.4]), alone=False)
    np.testing.assert_allclose(presence[:, 0], [0.6, 0.6, 0.4], rtol=1e-5)
    np.testing.assert_allclose(spread[:, 0], [1.0, 1.0, 0.0], atol=1e-3)


def test_without_a_filter_nothing_is_said_of_uncertainty(model: SQAIR, frames: np.ndarray) -> None:
    found = follow(model, frames, [LENGTH])
    assert all(np.isnan(each.presence).all() and np.isnan(each.spread).all() for each in found)
    filtered = follow(model, frames, [LENGTH], particles=4, lag=3)
    here = [each.objects.pres > 0 for each in filtered]
    shares = np.concatenate([each.presence[mask] for each, mask in zip(filtered, here, strict=True)])
    assert ((shares > 0) & (shares <= 1)).all()


# --- objects that the frame speaks against


def bright(model: SQAIR) -> SQAIR:
    """A model whose glimpses are all white, and whose objects never vanish by themselves."""
    last = model.image.decoder.mlp.layers[-1]  # type: ignore[union-attr]
    white = eqx.tree_at(
        lambda layer: (layer.weight, layer.bias),
        last,
        (jnp.zeros_like(last.weight), jnp.full_like(last.weight[:, 0], 9.0)),
    )
    sure = jnp.full(1, 50.0)
    return eqx.tree_at(
        lambda m: (m.image.decoder.mlp.layers[-1], m.propagation.pres_head.layers[-1].bias), model, (white, sure)
    )


def test_doubt_follows_the_frame(model: SQAIR) -> None:
    image = bright(model).image
    boxes = jnp.array([[1.0, 1, 3, 3], [4.0, 4, 3, 3]])
    objects = Objects(jnp.zeros((2, 2)), image.transformer.where_of_boxes(boxes), jnp.ones(2), jnp.array([5, 3]))
    seen = image.canvas(objects)
    only_first = image.canvas(objects._replace(pres=jnp.array([1.0, 0.0])))
    before, doubted = jnp.array([3, 5]), jnp.array([1, 2])
    count = jax.jit(lambda frame: count_doubts(image, frame, Settings(), objects, before, doubted))
    np.testing.assert_array_equal(count(seen), [0, 0])
    np.testing.assert_array_equal(count(only_first), [0, 2])
    np.testing.assert_array_equal(count(0 * seen), [3, 2])


def test_who_is_doubted_for_long_is_let_go() -> None:
    state = initial_state(3, 2, 4)
    objects = Objects(
        what=jnp.arange(6.0).reshape(3, 2),
        where=jnp.arange(12.0).reshape(3, 4),
        pres=jnp.ones(3),
        identity=jnp.array([4, 7, 9]),
    )
    state = state._replace(objects=objects, temporal=jnp.arange(12.0).reshape(3, 4))
    after, doubted = let_go(state, jnp.array([PATIENCE, PATIENCE - 1, 0]))
    np.testing.assert_array_equal(after.objects.identity, [7, 9, -1])
    np.testing.assert_array_equal(after.objects.pres, [1, 1, 0])
    np.testing.assert_array_equal(after.objects.what[:2], objects.what[1:])
    np.testing.assert_array_equal(after.temporal[:2], state.temporal[1:])
    np.testing.assert_array_equal(doubted, [PATIENCE - 1, 0, 0])


def test_a_model_that_never_lets_go_is_corrected() -> None:
    """White objects on black frames: each is told as alive and out of sight for two frames, then its slot is free."""
    config = dataclasses.replace(TINY, shift_limit=0.3, scale_limits=(0.5, 1.0), output_std=0.2)
    tracker = Tracker(bright(build(SQAIR, config)), jax.random.key(0), block=4)
    found = tracker.feed(np.zeros((12, *TINY.image, 1), np.uint8))
    assert all(np.isnan(each.box).all() for each in found)
    alive = [each.objects.identity[each.objects.pres > 0].tolist() for each in found]
    lives = {identity: sum(identity in row for row in alive) for row in alive for identity in row}
    assert len(lives) >= 4
    assert max(lives.values()) == PATIENCE - 1


# --- what is refused, and other kinds


def test_settings_that_cannot_be(model: SQAIR) -> None:
    for settings in ({"particles": 0}, {"lag": -1}, {"particles": 10**6}, {"lag": 10**6}):
        with pytest.raises(UserError, match="must be from"):
            Tracker(model, jax.random.key(0), pictures=False, **settings)
    vrnn = eqx.filter_eval_shape(lambda: VRNN(ModelConfig(kind="vrnn"), key=jax.random.key(0)))
    with pytest.raises(UserError, match="no objects"):
        Tracker(vrnn, jax.random.key(0))


def test_air_tracks_frames_by_themselves(frames: np.ndarray) -> None:
    tracker = Tracker(build(AIR), jax.random.key(0), block=4)
    rows = [each.objects.identity[each.objects.pres > 0].tolist() for each in tracker.feed(frames)]
    named = [identity for row in rows for identity in row]
    assert len(named) == len(set(named)) > 0


def test_track_gives_tracks_in_pixels_of_the_clip(model: SQAIR, frames: np.ndarray, monkeypatch) -> None:
    monkeypatch.setattr("sqair.tracking.clips.BLOCK", 4)  # the program that others have compiled
    small = track(model, frames)
    large = track(model, frames.repeat(3, 1).repeat(3, 2)[..., 0], seed=1)
    assert small.frames == LENGTH
    assert small.size == TINY.image
    assert large.size == (24, 24)
    np.testing.assert_array_equal(small.id, large.id)
    np.testing.assert_allclose(3 * small.where, large.where, rtol=1e-4, atol=1e-2)
    assert len(small) > 0

"""The collapse alarm: facts of drawn frames, signals of models with forced presences, and each rule on made signals."""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import PRNGKeyArray
from scipy import ndimage

from sqair.baselines.air import AIR
from sqair.distributions import Noise
from sqair.model import SQAIR
from sqair.training import alarm
from sqair.training.alarm import FAILURES, Scene, Signals, look, measure, name_failure
from tests.helpers import build, film

CELLS = [(y, x) for y in (2, 16) for x in (2, 16)]
"""Corners of places that are more than ten pixels apart, in frames of 26 pixels."""


def squares(*corners: tuple[int, int], size: int = 4) -> np.ndarray:
    """A sequence of one frame with bright squares."""
    frame = np.zeros((1, 1, 26, 26), np.float32)
    for y, x in corners:
        frame[0, 0, y : y + size, x : x + size] = 0.8
    return frame


# --- look


@given(st.lists(st.sets(st.sampled_from(CELLS)), min_size=1, max_size=4))
def test_separate_blobs_are_counted(places: list[set[tuple[int, int]]]) -> None:
    """As many blobs as squares, ink where there is one, and all frames clear."""
    frames = np.concatenate([squares(*corners) for corners in places], 1)
    scene = look(frames)
    count = [len(corners) for corners in places]
    np.testing.assert_array_equal(scene.blobs[0], count)
    np.testing.assert_array_equal(scene.inked[0], np.array(count) > 0)
    assert scene.clear.all()


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 0.6))
def test_labels_are_those_of_scipy(seed: int, density: float) -> None:
    """The same partition into blobs as scipy's, diagonal neighbours included; frames do not touch each other."""
    mask = np.random.default_rng(seed).random((3, 9, 7)) < density
    ours = alarm.label(mask)
    corners = np.zeros((3, 3, 3))
    corners[1] = 1
    theirs = np.zeros(mask.shape, np.int32)
    count = ndimage.label(mask, corners, output=theirs)
    assert len(np.unique(ours[mask])) == count
    assert len({(a, b) for a, b in zip(ours[mask], theirs[mask], strict=True)}) == count
    assert not ours[~mask].any()


def test_what_is_no_evidence() -> None:
    """Touching squares are one blob; near ones are two, but not clearly; a speck makes a frame unclear."""
    touching, near, speck = squares((4, 4), (4, 9)), squares((4, 4), (4, 12)), squares((4, 4))
    speck[0, 0, 20, 20] = 0.8
    scene = look(np.concatenate([touching, near, speck, squares((4, 4)), squares((9, 9))], 1))
    np.testing.assert_array_equal(scene.blobs[0], [1, 2, 1, 1, 1])
    np.testing.assert_array_equal(scene.clear[0], [True, False, False, True, True])


def test_bytes_colours_and_darkness() -> None:
    """Bytes and colour frames show the same blobs; frames without any ink are empty and clear."""
    frames = squares((2, 2), (16, 16))
    colour = np.zeros((*frames.shape, 3), np.float32)
    colour[..., 1] = frames
    for other in ((frames * 255).astype(np.uint8), colour):
        np.testing.assert_array_equal(look(other).blobs, [[2]])
    dark = look(np.zeros((1, 2, 8, 8)))
    assert not dark.inked.any()
    assert dark.clear.all()
    assert (dark.blobs == 0).all()


# --- measure


class Forced(SQAIR):
    """SQAIR on a given path: an object is discovered, it goes on and a second one comes, both go on, the first dies."""

    path: ClassVar = np.array([[[0, 0], [1, 0]], [[1, 0], [1, 0]], [[1, 1], [0, 0]], [[0, 1], [0, 0]]], np.float32)

    def noise(self, key: PRNGKeyArray, length: int) -> Noise:
        """Noise with the path forced on it."""
        return super().noise(key, length)._replace(forced=jnp.asarray(self.path[:length]))


def test_signals_of_a_known_path() -> None:
    """Presences, identities and discoveries are the path's; log-likelihoods and what objects explain the model's."""
    model, frames, key = build(Forced), jnp.stack([film(4), 0.5 * film(4)]), jax.random.key(3)
    signals = eqx.filter_jit(measure)(model, key, frames)
    np.testing.assert_array_equal(signals.present, [[[1, 0], [1, 1], [1, 1], [1, 0]]] * 2)
    np.testing.assert_array_equal(signals.identity, [[[0, -1], [0, 1], [0, 1], [1, -1]]] * 2)
    np.testing.assert_array_equal(signals.discovered, [[1, 1, 0, 0]] * 2)
    assert not signals.independent

    def likelihood(x: jax.Array, canvas: jax.Array) -> float:
        return float(model.image.log_prob(x, canvas))

    keys = jax.random.split(key, 2)
    for s in range(2):
        info = eqx.filter_jit(lambda k, x: model.observe(k, x)[1])(keys[s], frames[s])
        np.testing.assert_allclose(signals.likelihood[s], info.log_likelihood, rtol=1e-5)
        for t, x in enumerate(frames[s]):
            assert float(signals.empty[s, t]) == pytest.approx(likelihood(x, jnp.zeros_like(x)), rel=1e-5)
            assert float(signals.perfect[s, t]) == pytest.approx(likelihood(x, x), rel=1e-5)
    alone = np.asarray(signals.present.sum(-1) == 1)
    gains = np.asarray(signals.likelihood - signals.empty)
    np.testing.assert_allclose(np.asarray(signals.explained[..., 0])[alone], gains[alone], rtol=1e-3, atol=1e-3)
    assert not np.asarray(signals.explained[..., 1])[alone].any()


def test_every_frame_of_air_is_a_first_one() -> None:
    """AIR discovers in all frames; its frames may come as sequences of one; it is never accused of re-detection."""
    model, frames = build(AIR), jnp.stack([film(3)] * 4)
    scene = look(np.asarray(frames))
    for given_frames in (frames, frames.reshape(12, 1, *frames.shape[2:])):
        signals = eqx.filter_jit(measure)(model, jax.random.key(0), given_frames)
        assert signals.independent
        np.testing.assert_array_equal(signals.discovered, signals.present.sum(-1))
        named = name_failure(signals, scene, slots=2, best_bound=None, bound=-100.0, skipped=0)
        assert named != "re-detection"


# --- name_failure

SLOTS, LENGTH = 3, 4
BLOBS = np.repeat([[0], [1], [1], [1], [2], [2]] * 4, LENGTH, 1)
SCENE = Scene(BLOBS > 0, BLOBS, np.ones(BLOBS.shape, bool))
WORTH, PERFECT = 100.0, 500.0
"""Nats that one thing is worth in a frame, and those of a perfect canvas."""


def told(objects: np.ndarray, new: np.ndarray | None = None, gain: float = 1.0, error: float = 0.1) -> Signals:
    """Signals of a model with `objects` in each frame, `new` of them discovered there.

    Each object explains `gain` times an equal part of the frame; the canvas lacks the share `error` of it.
    """
    present = (np.arange(SLOTS) < objects[..., None]).astype(np.float32)
    new = np.concatenate([objects[:, :1], np.zeros_like(objects[:, 1:])], 1) if new is None else new
    worth = WORTH * BLOBS
    identity = np.where(present > 0, np.arange(SLOTS), -1)
    part = gain * worth / np.maximum(objects, 1)
    empty = PERFECT - worth
    perfect = np.full(BLOBS.shape, PERFECT)
    likelihood = PERFECT - error * worth
    signals = (np.array(False), present, identity, new, present * part[..., None], likelihood, empty, perfect)
    return Signals(*map(jnp.asarray, signals))


def name(signals: Signals, bound: float = 470.0, best: float | None = 470.0, skipped: int = 0) -> str | None:
    """The answer of the alarm."""
    return name_failure(signals, SCENE, slots=SLOTS, best_bound=best, bound=bound, skipped=skipped)


FULL = np.full(BLOBS.shape, SLOTS)
MADE = {
    "none used": told(np.zeros_like(BLOBS), error=1.0),
    "re-detection": told(BLOBS, new=BLOBS),
    "all slots used": told(FULL),
    "ghosts": told(np.maximum(BLOBS, 1), gain=0.01),
    "merged": told(np.minimum(BLOBS, 1), error=0.2),
}


@pytest.mark.parametrize("failure", MADE)
def test_made_failures_are_named(failure: str) -> None:
    """Each by its name."""
    assert name(MADE[failure]) == failure


@pytest.mark.parametrize(("error", "named"), [(0.3, "merged"), (0.6, None)])
def test_things_left_out_are_named_once_the_others_are_sharp(error: float, named: str | None) -> None:
    """One object of two is drawn, as well as in frames with a single one; at first, in a blur, that is no failure."""
    signals = told(np.minimum(BLOBS, 1), error=error)
    worth = WORTH * BLOBS
    one_of_two = PERFECT - worth + (1 - error) * np.minimum(worth, WORTH)
    signals = signals._replace(likelihood=jnp.asarray(one_of_two))
    assert name(signals) == named


def test_divergence_is_named_first() -> None:
    """Whatever else is wrong: a bound that is not finite, far below its best or an empty canvas, or skipped steps."""
    for signals in (*MADE.values(), told(BLOBS)):
        assert name(signals, bound=math.nan) == "divergence"
        assert name(signals, bound=400.0) == "divergence"
        assert name(signals, bound=-1e6, best=None) == "divergence"
        assert name(signals, skipped=alarm.SKIPPED) == "divergence"
    assert set(MADE) | {"divergence"} == set(FAILURES)


def test_healthy_signals_raise_no_alarm() -> None:
    """Right counts; the start, when all is blurred; one object too many; too few but not none; two; no bound before."""
    random = np.random.default_rng(0)
    blurred = told(random.integers(0, SLOTS, BLOBS.shape), error=0.9)
    one_more = told(np.minimum(BLOBS + 1, SLOTS))
    half = told(BLOBS * random.integers(0, 2, BLOBS.shape), error=0.5)
    two = told(np.full(BLOBS.shape, 2))
    for signals in (told(BLOBS), blurred, one_more, half, two):
        assert name(signals) is None
    assert name(told(BLOBS), best=None) is None


def test_what_cannot_be_seen_raises_no_alarm() -> None:
    """Without ink nothing is missing; without frames clearly showing two things nothing is merged; things may leave."""
    nothing = Scene(np.zeros(BLOBS.shape, bool), 0 * BLOBS, SCENE.clear)
    none = MADE["none used"]
    assert name_failure(none, nothing, slots=SLOTS, best_bound=None, bound=470.0, skipped=0) is None
    unclear = SCENE._replace(clear=BLOBS < 2)
    assert name_failure(MADE["merged"], unclear, slots=SLOTS, best_bound=None, bound=470.0, skipped=0) is None
    explained = np.array(told(BLOBS).explained)
    explained[:, 1:] = 0.0
    assert name(told(BLOBS)._replace(explained=jnp.asarray(explained))) is None


def test_frames_beyond_the_curriculum_are_no_evidence() -> None:
    """A model that finds all anew, but for what it is trained on, is not accused."""
    signals = told(BLOBS, new=np.where(np.arange(LENGTH) < 1, 0, BLOBS))
    assert name(signals) == "re-detection"
    assert name_failure(signals, SCENE, slots=SLOTS, best_bound=None, bound=470.0, skipped=0, length=1) is None


COUNTS = st.lists(st.integers(0, SLOTS), min_size=BLOBS.size, max_size=BLOBS.size)


@given(COUNTS, COUNTS, COUNTS)
def test_more_of_a_failure_never_silences(objects: list[int], new: list[int], more: list[int]) -> None:
    """More re-detections of the same objects, or a lower bound, leave the alarm on."""
    count = np.reshape(objects, BLOBS.shape)
    few = np.minimum(np.reshape(new, BLOBS.shape), count)
    many = np.minimum(few + np.reshape(more, BLOBS.shape), count)
    before, after = name(told(count, new=few)), name(told(count, new=many))
    assert before is None or after is not None
    assert before != "re-detection" or after == "re-detection"
    for bound, lower in ((470.0, 430.0), (430.0, 300.0)):
        before, after = name(told(count, new=few), bound=bound), name(told(count, new=few), bound=lower)
        assert before is None or after is not None

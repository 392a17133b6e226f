"""The generator of moving digits, against brute force in numpy and against its own rules."""

import hashlib
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sqair.config import DataConfig, UserError
from sqair.data import MOTIONS, Digits, check_fits, make_sequences
from sqair.data.moving_digits import Bounds, Motion, move, visible_share

COUNT = 900
CONFIG = DataConfig()
make = jax.jit(make_sequences, static_argnames=("config", "count"))


def noisy_digits(count: int = 30, largest: int = 20, smallest: int = 6) -> Digits:
    """Rectangles of noise; the label is the number of the image, so that a picture can be traced back."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(smallest, largest + 1, (count, 2)).astype(np.int32)
    images = np.zeros((count, 28, 28), np.uint8)
    for image, (height, width) in zip(images, sizes, strict=True):
        image[:height, :width] = rng.integers(1, 256, (height, width))
    return Digits(images, sizes, np.arange(count, dtype=np.int32))


DIGITS = noisy_digits()


@pytest.fixture(scope="module", params=MOTIONS)
def made(request):
    """Sequences of each motion, as numpy arrays."""
    config = replace(CONFIG, name=request.param)
    return config, jax.tree.map(np.asarray, make(jax.random.key(3), DIGITS, config=config, count=COUNT))


def test_shapes_and_ranges(made):
    """Shapes, types and ranges are those that Sequences promises; what is absent is marked in every array."""
    config, s = made
    assert s.frames.shape == (COUNT, 10, 50, 50)
    assert s.frames.dtype == np.float32
    assert (s.frames.min(), s.frames.max()) == (0.0, 1.0)
    assert s.counts.dtype == s.ids.dtype == s.labels.dtype == np.int32
    assert s.boxes.shape == (COUNT, 10, 2, 4)
    absent = s.ids < 0
    np.testing.assert_array_equal(np.isnan(s.boxes), np.broadcast_to(absent[..., None], s.boxes.shape))
    assert (s.visible[absent] == 0).all()
    assert (s.ids[absent] == -1).all()
    np.testing.assert_array_equal(s.counts, (~absent).sum(axis=2))
    assert (s.labels[~absent.all(axis=1)] >= 0).all()
    if config.name != "moving-mnist-in-out":
        np.testing.assert_array_equal(s.labels < 0, absent[:, 0])


def test_number_of_digits_is_uniform(made):
    """Chi-square of 0, 1 and 2 digits per sequence, below the 99.9% point for two degrees of freedom."""
    _, s = made
    observed = np.bincount((s.labels >= 0).sum(axis=1), minlength=3)
    assert ((observed - COUNT / 3) ** 2 / (COUNT / 3)).sum() < 13.8


def test_frames_are_the_boxes_painted(made):
    """Digits painted one by one at their boxes, the brighter pixel winning, give every frame exactly."""
    _, s = made
    for i in range(150):
        for t in range(10):
            canvas = np.zeros((150, 150), np.uint8)
            for (left, top, width, height), label in zip(s.boxes[i, t], s.labels[i], strict=True):
                if not np.isnan(left):
                    assert (height, width) == tuple(DIGITS.sizes[label])
                    y, x = int(top) + 50, int(left) + 50
                    view = canvas[y : y + int(height), x : x + int(width)]
                    np.maximum(view, DIGITS.images[label, : int(height), : int(width)], out=view)
            np.testing.assert_array_equal(np.round(s.frames[i, t] * 255), canvas[50:100, 50:100])


def test_visible_share_by_counting_pixels(made):
    """The share equals the number of the box's pixels inside the frame over their number."""
    _, s = made
    boxes, share = s.boxes[:200].reshape(-1, 4), s.visible[:200].reshape(-1)
    there = ~np.isnan(boxes[:, 0])
    grid = np.arange(-60, 120)
    for (left, top, width, height), given_share in zip(boxes[there], share[there], strict=True):
        columns = (grid >= left) & (grid < left + width)
        rows = (grid >= top) & (grid < top + height)
        seen = rows[60:110].sum() * columns[60:110].sum()
        np.testing.assert_allclose(given_share, seen / (rows.sum() * columns.sum()), rtol=1e-6)


def overlaps(boxes: np.ndarray) -> np.ndarray:
    """Whether any two of the boxes (..., O, 4) share a pixel; NaN boxes share none."""
    low, high = boxes[..., :2], boxes[..., :2] + boxes[..., 2:]
    shared = (low[..., :, None, :] < high[..., None, :, :]).all(axis=-1)
    shared &= np.swapaxes(shared, -1, -2)
    return np.any(np.triu(shared, 1), axis=(-1, -2))


def test_first_frame(made):
    """In the first frame all digits are inside and no two boxes overlap."""
    _, s = made
    assert not overlaps(s.boxes[:, 0]).any()
    there = s.ids[:, 0] >= 0
    assert (s.visible[:, 0][there] == 1).all()


def test_digits_are_distinct_and_all_used(made):
    """Two digits of a sequence are different images, and every image is drawn."""
    _, s = made
    two = (s.labels >= 0).all(axis=1)
    assert (s.labels[two, 0] != s.labels[two, 1]).all()
    assert set(s.labels[s.labels >= 0]) == set(range(30))


def test_where_digits_leave(made):
    """By the authors' rule on the right and at the bottom only, in the free version on every side; all the way out."""
    config, s = made
    left, top, width, height = np.moveaxis(s.boxes, -1, 0)
    with np.errstate(invalid="ignore"):
        gone = [(left == 50).any(), (top == 50).any(), (left == -width).any(), (top == -height).any()]
        beyond = [(left > 50).any(), (top > 50).any(), (left < -width).any(), (top < -height).any()]
        negative = (left < 0).any() or (top < 0).any()
    assert gone == ([True] * 4 if config.name == "moving-mnist-free" else [True, True, False, False])
    assert not any(beyond)
    assert negative == (config.name == "moving-mnist-free")


def test_identities(made):
    """An identity belongs to one digit and one unbroken stay; none is ever used again. Who never leaves keeps one."""
    config, s = made
    for ids in s.ids[:400]:
        for identity in set(ids.ravel()) - {-1}:
            frames, slots = np.nonzero(ids == identity)
            assert len(set(slots)) == 1
            assert np.ptp(frames) + 1 == len(frames)
    if config.name == "moving-mnist-in-out":
        assert s.ids.max() >= 2  # somebody came back
    else:
        assert (s.ids == np.where(s.labels >= 0, np.arange(2), -1)[:, None]).all()


def test_in_out_rates(made):
    """Presence 2/3 in every frame, deaths 0.1 and births 0.2 per frame, within 4 standard errors; births lie inside."""
    config, s = made
    if config.name != "moving-mnist-in-out":
        assert (s.counts == s.counts[:, :1]).all()
        return
    alive = (s.ids >= 0).transpose(0, 2, 1)[s.labels >= 0]  # (digits, T)
    before, after = alive[:, :-1].ravel(), alive[:, 1:].ravel()
    assert np.abs(alive.mean(axis=0) - 2 / 3).max() < 4 * np.sqrt(2 / 9 / len(alive))
    assert abs((~after[before]).mean() - 0.1) < 4 * np.sqrt(0.09 / before.sum())
    assert abs(after[~before].mean() - 0.2) < 4 * np.sqrt(0.16 / (~before).sum())
    born = (s.ids[:, 1:] >= 0) & (s.ids[:, :-1] < 0)
    assert (s.visible[:, 1:][born] == 1).all()


def test_same_seed_same_bytes(made):
    """A second run gives the same bytes, another key others."""
    config, s = made
    again = jax.tree.map(np.asarray, make(jax.random.key(3), DIGITS, config=config, count=COUNT))
    assert [values.tobytes() for values in jax.tree.leaves(again)] == [
        values.tobytes() for values in jax.tree.leaves(s)
    ]
    other = make(jax.random.key(4), DIGITS, config=config, count=COUNT)
    assert not np.array_equal(np.asarray(other.frames), s.frames)


GOLDEN = {
    "moving-mnist": "4ba34830357b522d",
    "moving-mnist-free": "f0ac921af62e306a",
    "moving-mnist-in-out": "db49353a53280264",
}


def test_data_sets_do_not_change(made):
    """Bytes of the first sequences and their truth, recorded once: a change would silently change the test set."""
    config, s = made
    digest = hashlib.sha256()
    for values in (np.round(s.frames[:8] * 255).astype(np.uint8), s.counts[:8], s.ids[:8], s.labels[:8]):
        digest.update(values.tobytes())
    assert digest.hexdigest()[:16] == GOLDEN[config.name]


CROWDED = DataConfig(length=1, size=(40, 61), max_digits=6, speed=3.0)


def test_crowded_frames_never_overlap():
    """Six 20x20 digits in a 40x61 frame, where chance layouts hardly ever work: still apart, and in varying order."""
    digits = noisy_digits(smallest=20)
    check_fits(digits, CROWDED)
    s = jax.tree.map(np.asarray, make(jax.random.key(0), digits, config=CROWDED, count=500))
    assert s.frames.shape == (500, 1, 40, 61)
    assert not overlaps(s.boxes[:, 0]).any()
    full = s.boxes[s.counts[:, 0] == 6, 0]
    assert len(full) > 40
    assert len({boxes.tobytes() for boxes in full}) > 3
    assert all(len(set(labels[labels >= 0])) == (labels >= 0).sum() for labels in s.labels)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"name": "moving-mnst"}, "did you mean 'moving-mnist'"),
        ({"max_digits": 5}, "may not hold 5 digits"),
        ({"size": (19, 50), "max_digits": 1}, "may not hold 1 digits"),
        ({"length": 0}, "at least 1"),
        ({"max_digits": 0}, "at least 1"),
        ({"speed": -1.0}, "data.speed must be at least 0"),
        ({"speed": float("nan")}, "data.speed must be at least 0, not nan"),
        ({"size": (700, 700), "max_digits": 31}, "30 digits are too few"),
    ],
)
def test_refusals(change, complaint):
    """What cannot be made is refused before anything is compiled."""
    with pytest.raises(UserError, match=complaint):
        check_fits(noisy_digits(smallest=20), replace(CONFIG, **change))


def arrays(low: float, high: float):
    return hnp.arrays(np.float32, (5, 2), elements=st.floats(low, high, width=32))


@given(arrays(-15, 50), arrays(-10, 10), arrays(-3, 3), arrays(-0.5, 0.5))
def test_one_move(position, velocity, acceleration, jerk):
    """All stays within bounds; inside them the motion is free, at them it is mirrored with both signs flipped."""
    bounds = Bounds(jnp.float32([-15.0, 0.0]), jnp.float32([50.0, 40.0]), 10.0)
    position = np.clip(position, bounds.low, bounds.high)
    new = move(
        Motion(jnp.asarray(position), jnp.asarray(velocity), jnp.asarray(acceleration)), jnp.asarray(jerk), bounds
    )
    low, high = np.asarray(bounds.low), np.asarray(bounds.high)
    assert (new.position >= low).all()
    assert (new.position <= high).all()
    assert (np.abs(new.velocity) <= 10).all()
    assert (np.abs(new.acceleration) <= 3.000001).all()
    free = position + velocity
    outside = (free < low) | (free > high)
    sign = np.where(outside, -1, 1)
    mirrored = np.where(free < low, 2 * low - free, np.where(free > high, 2 * high - free, free))
    np.testing.assert_allclose(new.position, mirrored, atol=1e-5)
    np.testing.assert_allclose(new.velocity, np.clip(sign * (velocity + acceleration), -10, 10), atol=1e-5)
    np.testing.assert_allclose(new.acceleration, np.clip(sign * (acceleration + jerk), -3, 3), atol=1e-5)


def test_move_clips_what_a_mirror_cannot_hold():
    """A step longer than the room ends on the bound."""
    bounds = Bounds(jnp.zeros(2), jnp.full(2, 3.0), 10.0)
    new = move(Motion(jnp.float32([1.0, 2.0]), jnp.float32([10.0, -10.0]), jnp.zeros(2)), jnp.zeros(2), bounds)
    assert new.position.tolist() == [0.0, 3.0]
    assert new.velocity.tolist() == [-10.0, 10.0]


def test_visible_share_of_a_box_larger_than_the_frame():
    """A box that covers the frame on all sides shows the frame's area."""
    share = visible_share(jnp.float32([-10.0, -20.0]), jnp.float32([40.0, 50.0]), (20, 10))
    assert float(share) == pytest.approx(200 / 2000)

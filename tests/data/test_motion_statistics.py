"""The statistics of the authors' data, as a re-simulation of their rules gave them for boxes of 20 x ~15 pixels.

Each number must be met within 5%, or within three standard errors over sequences. Boxes of exactly 20x15 stand for the
re-simulation; where MNIST is at hand ($SQAIR_DATA/mnist) the same is asked of real digits.
"""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sqair.config import DataConfig
from sqair.data import Digits, load_digits, make_sequences
from sqair.data.moving_digits import JERK_STD, Bounds, move, set_off

HAS_MNIST = "SQAIR_DATA" in os.environ and (Path(os.environ["SQAIR_DATA"]) / "mnist").is_dir()
COUNT = 4000
make = jax.jit(make_sequences, static_argnames=("config", "count"))

EXPECTED = {
    "displacement per axis": 6.1,
    "displacement": 9.3,
    "visible share at t=2": 0.88,
    "visible share at t=7": 0.62,
    "below 25% visible after t=5": 0.20,
    "fully invisible": 0.015,
    "objects that vanish at least once": 0.14,
    "boxes overlap from t=1": 0.30,
    "IoU above 0.5": 0.02,
    "centre outside": 0.25,
}


def ratio(values: np.ndarray, where: np.ndarray) -> tuple[float, float]:
    """Mean of `values` over `where`, and its standard error with sequences (the first axis) as independent units."""
    axes = tuple(range(1, where.ndim))
    total, number = np.where(where, values, 0).sum(axis=axes), where.sum(axis=axes)
    mean = total.sum() / number.sum()
    return mean, np.sqrt(((total - mean * number) ** 2).sum()) / number.sum()


def iou(boxes: np.ndarray) -> np.ndarray:
    """Intersection over union of the two boxes (..., 2, 4)."""
    first, second = boxes[..., 0, :], boxes[..., 1, :]
    low = np.maximum(first[..., :2], second[..., :2])
    high = np.minimum(first[..., :2] + first[..., 2:], second[..., :2] + second[..., 2:])
    shared = np.maximum(high - low, 0).prod(axis=-1)
    return shared / (first[..., 2:].prod(axis=-1) + second[..., 2:].prod(axis=-1) - shared)


def measure(digits: Digits) -> dict[str, tuple[float, float]]:
    """Each statistic of EXPECTED on sequences of these digits, with its standard error."""
    made = make(jax.random.key(0), jax.tree.map(jnp.asarray, digits), config=DataConfig(), count=COUNT)
    s = jax.tree.map(np.asarray, made)
    there, two = s.ids >= 0, s.counts == 2
    steps = np.diff(s.boxes[..., :2], axis=1)
    centre = s.boxes[..., :2] + s.boxes[..., 2:] / 2
    overlap = np.where(two, iou(np.nan_to_num(s.boxes, nan=1.0)), 0)
    return {
        "displacement per axis": ratio(np.abs(steps).mean(axis=-1), there[:, 1:]),
        "displacement": ratio(np.sqrt((steps**2).sum(axis=-1)), there[:, 1:]),
        "visible share at t=2": ratio(s.visible[:, 2], there[:, 2]),
        "visible share at t=7": ratio(s.visible[:, 7], there[:, 7]),
        "below 25% visible after t=5": ratio(s.visible[:, 6:] < 0.25, there[:, 6:]),
        "fully invisible": ratio(s.visible == 0, there),
        "objects that vanish at least once": ratio(((s.visible == 0) & there).any(axis=1), there[:, 0]),
        "boxes overlap from t=1": ratio(overlap[:, 1:] > 0, two[:, 1:]),
        "IoU above 0.5": ratio(overlap[:, 1:] > 0.5, two[:, 1:]),
        "centre outside": ratio((centre >= 50).any(axis=-1), there),  # the frame is [0, 50) on both axes
    }


def assert_close(measured: dict[str, tuple[float, float]], expected: dict[str, float]) -> None:
    far = {
        name: (mean, error, expected[name])
        for name, (mean, error) in measured.items()
        if abs(mean - expected[name]) > max(0.05 * expected[name], 3 * error)
    }
    assert not far


def test_boxes_of_20x15():
    """Positions, visibility and overlaps of the boxes of the re-simulation."""
    images = np.zeros((10, 28, 28), np.uint8)
    images[:, :20, :15] = 255
    digits = Digits(images, np.full((10, 2), (20, 15), np.int32), np.arange(10, dtype=np.int32))
    assert_close(measure(digits), EXPECTED)


@pytest.mark.skipif(not HAS_MNIST, reason="real digits are compared where $SQAIR_DATA/mnist holds them")
def test_real_mnist():
    """The same numbers with the 55,000 MNIST training digits."""
    digits = load_digits("mnist", "train")
    assert len(digits.labels) == 55_000
    assert_close(measure(digits), EXPECTED)


def test_velocities():
    """40% of velocity components are at the bound, and 17.5% of them change sign from frame to frame."""
    shape = (5000, 1, 2)
    bounds = Bounds(jnp.zeros(shape), jnp.full(shape, 50.0), 10.0)
    keys = jax.random.split(jax.random.key(2), 11)
    start = jnp.round(jax.random.uniform(keys[0], shape) * jnp.float32([30, 35]))
    motion = set_off(keys[1], start, JERK_STD * jax.random.normal(keys[1], shape), bounds)
    velocity = [motion.velocity]
    for key in keys[2:]:
        motion = move(motion, JERK_STD * jax.random.normal(key, shape), bounds)
        velocity.append(motion.velocity)
    v = np.stack(velocity, axis=1)
    everywhere = np.ones(v.shape, bool)
    measured = {"at": ratio(np.abs(v) >= 10, everywhere), "flip": ratio(v[:, 1:] * v[:, :-1] < 0, everywhere[:, 1:])}
    assert_close(measured, {"at": 0.40, "flip": 0.175})

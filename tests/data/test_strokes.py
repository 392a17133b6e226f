"""The stroke digits: repeatable, within MNIST's box, with MNIST's looks in numbers, and legible."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sqair.data import contact_sheet, load_digits, stroke_digits
from sqair.data.digits import STROKES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def strokes():
    return stroke_digits(3000, 7)


def test_same_seed_same_bytes(strokes):
    """A second drawing, not the cached one, is equal byte for byte; another seed is not."""
    again = stroke_digits.__wrapped__(3000, 7)
    assert [values.tobytes() for values in again] == [values.tobytes() for values in strokes]
    assert not np.array_equal(stroke_digits.__wrapped__(50, 8)[0], stroke_digits.__wrapped__(50, 9)[0])


def test_form(strokes):
    """28x28 bytes, all ten classes, and a caller cannot spoil the cached arrays."""
    images, labels = strokes
    assert images.shape == (3000, 28, 28)
    assert images.dtype == np.uint8
    assert labels.dtype == np.int32
    assert (np.bincount(labels, minlength=10) > 240).all()
    assert not images.flags.writeable
    assert not labels.flags.writeable


def test_looks_like_mnist_in_numbers(strokes):
    """Mean ink, box, share of inked pixels and centring are near MNIST's (33.8, 19.8 x 15.6, 0.193, middle)."""
    images, _ = strokes
    ink = images > 0
    height = ink.any(axis=2).sum(axis=1)
    width = ink.any(axis=1).sum(axis=1)
    assert max(height.max(), width.max()) <= 20
    assert abs(images.mean() - 33.8) < 2
    assert abs(height.mean() - 19.8) < 0.5
    assert abs(width.mean() - 15.6) < 1
    assert abs(ink.mean() - 0.193) < 0.02
    mass = images.sum(axis=(1, 2), dtype=float)
    centre = (images.sum(axis=2) @ np.arange(28)) / mass
    assert np.abs(centre - 13.5).mean() < 0.6


def test_no_two_digits_are_alike(strokes):
    """Every digit is written anew."""
    images, _ = strokes
    assert len({image.tobytes() for image in images}) == len(images)


def test_classes_are_legible(strokes):
    """The nearest of 2,000 digits names the class of most of 500 others, as it does for MNIST."""
    images, labels = strokes
    pixels = images.reshape(len(images), -1).astype(np.float32)
    known, unknown = pixels[:2000], pixels[2000:2500]
    distance = (known**2).sum(axis=1) - 2 * unknown @ known.T
    assert (labels[distance.argmin(axis=1)] == labels[2000:2500]).mean() > 0.9


def test_splits_share_no_digit():
    """Train, validation and test strokes are different digits."""
    sets = [{image.tobytes() for image in load_digits("strokes", split).images} for split in STROKES]
    assert [len(images) for images in sets] == [20_000, 2_000, 5_000]
    assert not sets[0] & sets[1]
    assert not sets[0] & sets[2]
    assert not sets[1] & sets[2]


def test_sheet_in_the_docs_is_current():
    """docs/images/strokes.png shows the first test digits as they are drawn today (a few pixels may round apart)."""
    shown = np.asarray(Image.open(ROOT / "docs/images/strokes.png"), float)
    drawn = contact_sheet(*stroke_digits(*STROKES["test"])).astype(float)
    assert shown.shape == drawn.shape
    assert (np.abs(shown - drawn) <= 2).mean() > 0.999

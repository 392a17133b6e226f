"""Digits cut out, divided into splits and rescaled."""

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sqair.config import UserError
from sqair.data import Digits, contact_sheet, cut_out, load_digits, rescale


def idx(values: np.ndarray) -> bytes:
    """An idx file with these bytes."""
    return bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes() + values.astype(np.uint8).tobytes()


def write_folder(folder, train: int, test: int):
    """A folder with MNIST's four files; image i of a file has one pixel with the value i + 1."""
    folder.mkdir()
    for part, count in (("train", train), ("t10k", test)):
        images = np.zeros((count, 28, 28), np.uint8)
        images[:, 5, 5] = 255
        images[:, 6, 6] = np.arange(count) + 1
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.arange(count) % 10))
    return folder


@given(hnp.arrays(np.uint8, (3, 28, 28), elements=st.sampled_from([0, 0, 0, 9, 200])))
def test_cut_out_keeps_all_ink(images):
    """The tight box found pixel by pixel is what lies in the corner, stretched; empty rows inside it are kept."""
    images[:, 14, 14] = 255
    images[:, 0, 27] = 0
    digits = cut_out(images, np.arange(3))
    for image, cut, (height, width) in zip(images, digits.images, digits.sizes, strict=True):
        rows, columns = np.nonzero(image)
        assert (height, width) == (np.ptp(rows) + 1, np.ptp(columns) + 1)
        box = image[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
        np.testing.assert_array_equal(cut[:height, :width], box)
        assert cut[height:].sum() == 0
        assert cut[:, width:].sum() == 0


def test_stretch_and_blank_images():
    """Grey 20 to 120 becomes 0 to 255; a blank image is left out with its label; only blank ones are refused."""
    images = np.full((2, 28, 28), 20, np.uint8)
    images[1, 3:5, 4:9] = 120
    digits = cut_out(images, np.array([3, 4]))
    assert digits.labels.tolist() == [4]
    assert digits.sizes.tolist() == [[2, 5]]
    assert (digits.images[0, :2, :5] == 255).all()
    assert digits.images.sum() == 255 * 10
    with pytest.raises(UserError, match="blank"):
        cut_out(images[:1], np.array([3]))


def test_folder_splits(tmp_path):
    """Train and validation divide the train file in its order, test is the t10k file alone."""
    folder = str(write_folder(tmp_path / "digits", 40, 7))
    seen = {split: load_digits(folder, split).images[:, 1, 1].tolist() for split in ("train", "validation", "test")}
    assert seen == {"train": list(range(1, 37)), "validation": list(range(37, 41)), "test": list(range(1, 8))}


def test_unknown_source(tmp_path):
    """Neither a name nor a folder: one line with what exists."""
    with pytest.raises(UserError, match="mnist, strokes, or a folder"):
        load_digits(str(tmp_path / "nowhere"), "train")


def test_rescale_by_one_is_the_identity():
    """The very same object."""
    digits = load_digits("strokes", "validation")
    assert rescale(digits, 1.0) is digits


@pytest.mark.parametrize("scale", [0.4, 0.7, 1.5])
def test_rescale_keeps_the_ink(scale):
    """Sizes follow the scale to a pixel, boxes stay tight, and ink grows with the area."""
    digits = load_digits("strokes", "validation")
    small = rescale(digits, scale)
    assert np.abs(small.sizes - digits.sizes * scale).max() <= 1.5
    assert small.images.shape[1] == round(20 * scale)
    for image, (height, width) in zip(small.images, small.sizes, strict=True):
        rows, columns = np.nonzero(image)
        assert (rows.min(), columns.min(), rows.max() + 1, columns.max() + 1) == (0, 0, height, width)
    ratio = small.images.sum(axis=(1, 2), dtype=float) / digits.images.sum(axis=(1, 2), dtype=float)
    assert abs(ratio.mean() / scale**2 - 1) < 0.05


def test_rescale_is_antialiased():
    """A fine checkerboard becomes grey, not black or white."""
    images = (np.indices((1, 28, 28)).sum(axis=0) % 2 * 255).astype(np.uint8)
    digits = Digits(images, np.array([[28, 28]], np.int32), np.array([0], np.int32))
    inner = rescale(digits, 0.5).images[0, 1:-1, 1:-1]
    assert np.abs(inner.astype(int) - 127).max() < 20


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), 100.0])
def test_rescale_refuses(scale):
    """A scale that makes no digit."""
    with pytest.raises(UserError, match="digit_scale"):
        rescale(load_digits("strokes", "validation"), scale)


def test_contact_sheet_has_one_row_per_class():
    """The digits of class d are in row d, the rest is black."""
    images = np.full((2, 28, 28), 200, np.uint8)
    sheet = contact_sheet(images, np.array([3, 3], np.int32), columns=2, enlarge=2)
    assert sheet.shape == (10 * 60 + 4, 2 * 60 + 4)
    assert (sheet[4 + 3 * 60 : 60 + 3 * 60, 4:60] == 200).all()
    assert sheet.sum(dtype=int) == 2 * 56 * 56 * 200

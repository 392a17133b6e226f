"""Single digits, ready to be moved about: cut to their tight box, from MNIST, from a folder or from our own strokes.

Axes: D digits; an image is C x C pixels (28 unless rescaled) with the digit in its top-left corner and zeros elsewhere.
"""

from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int32, UInt8
from numpy import ndarray

from sqair.config import UserError
from sqair.data.mnist import load_mnist
from sqair.data.strokes import stroke_digits

Split = Literal["train", "validation", "test"]

HELD_OUT = 5_000
"""MNIST training digits kept for validation: the last ones, so that 55,000 remain."""
STROKES: dict[Split, tuple[int, int]] = {"train": (20_000, 1), "validation": (2_000, 2), "test": (5_000, 3)}
"""Number of stroke digits and their seed."""
PIECE = 5_000
"""Digits rescaled at once; bounds the memory."""


class Digits(NamedTuple):
    """A set of digits, each in the top-left corner of its image."""

    images: UInt8[Array | ndarray, "D C C"]
    """Ink, 0 to 255."""
    sizes: Int32[Array | ndarray, "D 2"]
    """Height and width of the tight box in pixels."""
    labels: Int32[Array | ndarray, " D"]


def load_digits(source: str, split: Split) -> Digits:
    """The digits of one split from ``mnist``, ``strokes`` or a folder with the four MNIST files.

    MNIST's test digits are the t10k file and never meet the others. A folder with other files of that form is divided
    likewise; with few training digits a tenth of them, not 5,000, serves for validation.
    """
    if source == "strokes":
        return cut_out(*stroke_digits(*STROKES[split]))
    folder = None if source == "mnist" else Path(source).expanduser()
    if folder is not None and not folder.is_dir():
        raise UserError(f"no digits {source!r}: use mnist, strokes, or a folder with the four MNIST files")
    images, labels = load_mnist("t10k" if split == "test" else "train", folder)
    held_out = HELD_OUT if len(images) > 10 * HELD_OUT else -(-len(images) // 10)
    part = {"train": slice(None, -held_out), "validation": slice(-held_out, None), "test": slice(None)}[split]
    return cut_out(images[part], labels[part])


def cut_out(images: UInt8[ndarray, "D 28 28"], labels: ndarray) -> Digits:
    """Each image stretched to 0..255 and its tight box moved to the top-left corner; blank images are left out.

    The box holds all ink. (The authors' program took the number of non-empty rows for its height, and so cut an edge
    off digits with a gap.)
    """
    low, high = images.min(axis=(1, 2)), images.max(axis=(1, 2))
    drawn = high > low
    if not drawn.any():
        raise UserError("the digits are all blank; name another folder with --digits, or use strokes")
    images, low, high = images[drawn], low[drawn, None, None], high[drawn, None, None]
    stretched = ((images - low) * (255.0 / (high - low)).astype(np.float32)).round().astype(np.uint8)
    return _to_corner(stretched, labels[drawn].astype(np.int32))


def _to_corner(images: UInt8[ndarray, "D C C"], labels: Int32[ndarray, " D"]) -> Digits:
    """The tight box of every image moved to the top-left corner."""
    corner, sizes = _tight_box(images > 0)
    index = np.arange(images.shape[1])
    rows, columns = (corner[:, :, None] + index).transpose(1, 0, 2) % len(index)
    moved = np.take_along_axis(images, rows[:, :, None], axis=1)
    return Digits(np.take_along_axis(moved, columns[:, None, :], axis=2), sizes, labels)


def _tight_box(ink: ndarray) -> tuple[Int32[ndarray, "D 2"], Int32[ndarray, "D 2"]]:
    """Top-left corner and size (y, x) of the smallest box around all ink; gaps inside it do not matter."""
    corners, sizes = [], []
    for axis in (2, 1):
        lines = np.any(ink, axis=axis)
        first, last = lines.argmax(axis=1), lines.shape[1] - lines[:, ::-1].argmax(axis=1)
        corners.append(first)
        sizes.append(last - first)
    return np.stack(corners, axis=1).astype(np.int32), np.stack(sizes, axis=1).astype(np.int32)


def rescale(digits: Digits, scale: float) -> Digits:
    """Digits `scale` times as large, antialiased; the images are as large as the largest digit. 1 changes nothing."""
    if not 0.0 < scale <= 16.0:
        raise UserError(f"digit_scale must be above 0 and at most 16, not {scale}")
    if scale == 1.0:
        return digits
    images, old = np.asarray(digits.images), np.asarray(digits.sizes)
    new, side = _scaled(old, scale), rescaled_side(digits, scale)
    resized = np.empty((len(images), side, side), np.uint8)
    for start in range(0, len(images), PIECE):
        part = slice(start, start + PIECE)
        down = _resize_matrix(old[part, 0], new[part, 0], images.shape[1], side)
        across = _resize_matrix(old[part, 1], new[part, 1], images.shape[2], side)
        resized[part] = (down @ images[part].astype(np.float32) @ across.transpose(0, 2, 1)).round().clip(0, 255)
    return _to_corner(resized, np.asarray(digits.labels))  # the faintest edges may be gone


def rescaled_side(digits: Digits, scale: float) -> int:
    """The side of the images that `rescale` gives."""
    return digits.images.shape[1] if scale == 1.0 else int(_scaled(np.asarray(digits.sizes), scale).max())


def _scaled(sizes: Int32[ndarray, "D 2"], scale: float) -> Int32[ndarray, "D 2"]:
    """Sizes in whole pixels, one at least."""
    return np.maximum(np.round(sizes * scale), 1).astype(np.int32)


def widened(digits: Digits, side: int) -> Digits:
    """The same digits in images of at least `side` pixels, with nothing in what is added."""
    more = max(0, side - digits.images.shape[1])
    return digits._replace(images=np.pad(np.asarray(digits.images), ((0, 0), (0, more), (0, more))))


def _resize_matrix(
    old: ndarray, new: ndarray, old_side: int, new_side: int
) -> Float[ndarray, "D {new_side} {old_side}"]:
    """Weights that turn `old` pixels into `new` ones: a triangle as wide as one pixel of the coarser grid each way."""
    ratio = (old / new)[:, None, None]
    target, origin = np.arange(new_side)[None, :, None], np.arange(old_side)[None, None, :]
    distance = np.abs((target + 0.5) * ratio - (origin + 0.5)) / np.maximum(ratio, 1.0)
    inside = (origin < old[:, None, None]) & (target < new[:, None, None])
    weights = np.where(inside, np.maximum(1.0 - distance, 0.0), 0.0)
    return (weights / np.maximum(weights.sum(axis=2, keepdims=True), 1e-9)).astype(np.float32)


def contact_sheet(
    images: UInt8[ndarray, "n 28 28"], labels: Int32[ndarray, " n"], columns: int = 10, enlarge: int = 4
) -> UInt8[ndarray, "height width"]:
    """A picture with one row per class, 0 to 9, of the first `columns` digits of that class, smoothly enlarged."""
    side, gap = images.shape[1] * enlarge, 2 * enlarge
    sheet = np.zeros((10 * (side + gap) + gap, columns * (side + gap) + gap), np.uint8)
    old, new = np.array([images.shape[1]]), np.array([side])
    matrix = _resize_matrix(old, new, images.shape[1], side)[0]
    for digit in range(10):
        for column, image in enumerate(images[labels == digit][:columns]):
            top, left = gap + digit * (side + gap), gap + column * (side + gap)
            sheet[top : top + side, left : left + side] = (matrix @ image @ matrix.T).round()
    return sheet

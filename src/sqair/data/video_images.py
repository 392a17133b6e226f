"""Clips of images and arrays: files of pictures in natural order, .npy arrays and .npz files of sequences."""

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray

from sqair.config import UserError
from sqair.data.video import MOST_PIXELS, Clip, Frame

if TYPE_CHECKING:
    from PIL.Image import Image

LARGEST = {"b1": 1, "u1": 255, "u2": 65535, "f2": 1, "f4": 1, "f8": 1}
"""The value of white, by type."""


# --- images


def open_images(paths: Sequence[Path], name: str, rate: float) -> Clip:
    """Images as the frames of one clip, in the order given."""
    size = read_image(paths[0]).shape[:2]

    def read(notes: list[str]) -> Iterator[Frame]:
        return map(read_image, paths)

    return Clip(name, size, rate, len(paths), read)


def read_image(path: Path) -> Frame:
    """An image as bytes, upright, over black where it is transparent; 16 bits a channel become 8."""
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                _check_pixels(path, image.size[::-1])
                return to_bytes(ImageOps.exif_transpose(image))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UserError(f"{path} is too large; scale it down") from error
    except (OSError, ValueError, SyntaxError, EOFError) as error:
        raise UserError(f"cannot read {path} as an image: {error}") from error


def to_bytes(image: "Image") -> Frame:
    """The pixels of an image, grey or in colour."""
    from PIL import Image

    if image.mode.startswith(("I", "F")):  # 16 bits of grey; Pillow would cut them off at 255
        values = np.asarray(image, np.float64)
        return np.round(np.clip(values / 257, 0, 255)).astype(np.uint8)
    if image.has_transparency_data:
        seen = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", seen.size, (0, 0, 0, 255)), seen)
    return np.asarray(image.convert("L" if image.mode in ("1", "L", "LA") else "RGB"))


# --- arrays


def open_array(path: Path, rate: float) -> Clip:
    """An .npy file of (T,H,W) or (T,H,W,3): bytes, 16 bits, or floats in 0-1.

    It stays on disk while it is read, and is open only then: a command may be given more files than it may open.
    """

    def load() -> Clip:
        try:
            frames = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError, TypeError, SyntaxError, MemoryError, OverflowError) as error:
            raise UserError(f"{path} is not an intact .npy file of numbers; save it again with numpy.save") from error
        return clip_of_array(frames, path.name, rate)

    return dataclasses.replace(load(), read=lambda notes: load().read(notes))


def clip_of_array(frames: ndarray, name: str, rate: float) -> Clip:
    """An array of (T,H,W) or (T,H,W,3) as a clip."""
    _check_array(name, frames)
    white = LARGEST[frames.dtype.str[1:]]

    def read(notes: list[str]) -> Iterator[Frame]:
        return (_scaled(frame, white) for frame in frames)

    return Clip(name, frames.shape[1:3], rate, len(frames), read)


def open_sequences(path: Path, rate: float) -> list[Clip]:
    """The sequences of an .npz file as `sqair data` writes it, each a clip."""
    from sqair.data.sequences import load_sequences

    frames = np.asarray(load_sequences(path).frames)
    _check_pixels(path, frames.shape[2:4])
    names = [path.name] if len(frames) == 1 else [f"{path.stem} {number + 1}" for number in range(len(frames))]

    def clip(name: str, sequence: UInt8[ndarray, "T *pixels"]) -> Clip:
        return Clip(name, sequence.shape[1:3], rate, len(sequence), lambda notes: iter(sequence))

    return [clip(name, sequence) for name, sequence in zip(names, frames, strict=True)]


def _check_array(path: str, frames: ndarray) -> None:
    """Refuse an array that is no clip, and values that are no brightness, before any of it is used."""
    if frames.ndim not in (3, 4) or (frames.ndim == 4 and frames.shape[3] not in (1, 3)):
        raise UserError(f"{path} has shape {frames.shape}; it must be (frames, height, width), or that with a last 3")
    if frames.dtype.str[1:] not in LARGEST:
        raise UserError(f"{path} holds {frames.dtype}; it must hold uint8, uint16, or floats from 0 to 1")
    if 0 in frames.shape:
        raise UserError(f"{path} holds no frames: its shape is {frames.shape}")
    _check_pixels(path, frames.shape[1:3])
    if frames.dtype.kind != "f":
        return
    for number, frame in enumerate(frames):
        low, high = float(frame.min()), float(frame.max())
        if not np.isfinite((low, high)).all():
            raise UserError(f"frame {number} of {path} holds a number that is not finite (NaN?); replace it")
        if low < -0.001 or high > 1.001:
            raise UserError(f"frame {number} of {path} has values from {low:g} to {high:g}; floats must be from 0 to 1")


def _check_pixels(path: str | Path, size: tuple[int, ...]) -> None:
    if size[0] * size[1] > MOST_PIXELS:
        raise UserError(f"{path} has frames of {size[1]}x{size[0]}, which is too large; scale it down")


def _scaled(frame: ndarray, white: int) -> Frame:
    """A frame of an array as bytes, without a channel axis of one."""
    frame = frame[..., 0] if frame.ndim == 3 and frame.shape[2] == 1 else frame
    if white == 255:
        return np.array(frame)
    return np.round(np.clip(frame.astype(np.float32) * (255 / white), 0, 255)).astype(np.uint8)

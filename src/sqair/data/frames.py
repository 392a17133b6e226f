"""Parts and scales of clips: some of the frames, smaller ones, and decoded frames as a file for another machine."""

import zipfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy import ndarray

from sqair.config import FORMAT_VERSION, UserError
from sqair.data.video import Clip, Frame
from sqair.files import written_atomically


def between(clip: Clip, start: int, stop: int) -> Clip:
    """The frames `start` to `stop` of a clip, that one excluded; a `stop` of 0 is the end."""
    if clip.live:
        raise UserError(f"{clip.name} is a live stream, and sequences need a clip that can be read twice; record it")
    if (start, stop) == (0, 0):
        return clip

    def read(notes: list[str]) -> Iterator[Frame]:
        return islice(clip.read(notes), start, stop or None)

    return replace(clip, read=read, frames=None)


def scaled_size(size: tuple[int, int], height: int) -> tuple[int, int]:
    """Height and width of a frame that is scaled down to a height, 0 for its own."""
    share = min(1.0, height / size[0]) if height else 1.0
    return max(1, round(size[0] * share)), max(1, round(size[1] * share))


def scaled(picture: ndarray, size: tuple[int, int]) -> ndarray:
    """A picture of bytes or floats, scaled down by averages, or up with values between."""
    import cv2

    if picture.shape[:2] == size:
        return picture
    smaller = size[0] * size[1] < picture.shape[0] * picture.shape[1]
    return cv2.resize(picture, size[::-1], interpolation=cv2.INTER_AREA if smaller else cv2.INTER_LINEAR)


def to_grey(picture: ndarray) -> ndarray:
    """Bytes or floats in colour or grey, in grey (Rec. 601)."""
    import cv2

    return picture if picture.ndim == 2 else cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)


def save_frames(path: str | Path, clip: Clip, *, height: int = 0, colour: bool = False, dense: bool = False) -> int:
    """Write the decoded frames of a clip as an .npz of one sequence, in constant memory; returns how many there are.

    The clip is read twice: an array's length stands before its content. `dense` finds what frames have in common:
    slower, and for a fixed camera a fraction of the size.
    """
    total = sum(1 for _ in clip)
    if not total:
        raise UserError(f"{clip.name} has no frames")
    size = scaled_size(clip.size, height)
    try:
        with (
            written_atomically(Path(path)) as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA if dense else zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        ):
            with archive.open("format_version.npy", "w") as member:
                np.lib.format.write_array(member, np.array(FORMAT_VERSION, np.int32))
            with archive.open("frames.npy", "w", force_zip64=True) as member:
                shape = (1, total, *size, 3) if colour else (1, total, *size)
                header = {"descr": "|u1", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(member, header)
                for frame in islice(clip, total):
                    member.write(pictured(frame, size, colour).tobytes())
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    return total


def pictured(frame: Frame, size: tuple[int, int], colour: bool) -> ndarray:
    """A scaled frame in colour or in grey, whatever the clip has."""
    if not colour:
        return scaled(to_grey(frame), size)
    return scaled(
        np.ascontiguousarray(np.broadcast_to(frame if frame.ndim == 3 else frame[..., None], (*frame.shape[:2], 3))),
        size,
    )

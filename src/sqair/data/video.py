"""Clips: anything that shows frames one after the other, opened by its name and read in constant memory.

A source is a video, a stream address or a camera, a folder or a glob of images, an .npy or an .npz file; a folder or a
glob of videos, and an .npz of several sequences, are several clips. Frames come as bytes, (H, W) or (H, W, 3). What is
wrong with a clip but can be lived with, such as a missing end, is told in its `notes` while it is read.
"""

import glob
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray

from sqair.config import UserError
from sqair.files import ADDRESS, printable

Frame = UInt8[ndarray, "H W"] | UInt8[ndarray, "H W 3"]
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
VIDEOS = (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts", ".mts", ".wmv", ".flv", ".gif")
VIDEOS += (".3gp", ".ogv", ".y4m", ".mjpeg")
RATE = 10.0
"""Frames a second of what has no rate of its own."""
MOST_PIXELS = 2**26
"""A frame may have so many: twice what an 8K camera gives."""


@dataclass(frozen=True)
class Clip:
    """Frames of one size; iterating opens the source anew."""

    name: str
    """For people: never an address's password."""
    size: tuple[int, int]
    """Height and width of a frame."""
    rate: float
    """Frames a second, the average where it varies."""
    frames: int | None
    """How many there are, as far as the source tells; None where it does not."""
    read: Callable[[list[str]], Iterator[Frame]]
    """Opens the source and gives its frames; remarks go to the list."""
    live: bool = False
    """Whether it ends only when it is stopped."""
    notes: list[str] = field(default_factory=list)
    """What had to be lived with, in the latest reading."""

    def __iter__(self) -> Iterator[Frame]:
        self.notes.clear()
        for frame in self.read(self.notes):
            yield frame if frame.shape[:2] == self.size else self._resized(frame)

    def _resized(self, frame: Frame) -> ndarray:
        """A frame in the size of the first: a source may change its mind."""
        from PIL import Image

        note = f"frames are not all of one size: some were scaled to {self.size[1]}x{self.size[0]}"
        if note not in self.notes:
            self.notes.append(note)
        return np.asarray(Image.fromarray(frame).resize((self.size[1], self.size[0]), Image.Resampling.BILINEAR))


def open_clips(source: str | Path, *, rate: float = RATE) -> list[Clip]:
    """The clips of a source, at least one. `rate` is that of images and arrays, which have none of their own."""
    return [replace(clip, name=printable(clip.name)) for clip in _opened(source, rate)]


def _opened(source: str | Path, rate: float) -> list[Clip]:
    """The clips of a source, with the names of their files."""
    from sqair.data.video_decode import open_stream, open_video
    from sqair.data.video_images import open_array, open_images, open_sequences

    name = str(source)
    if ADDRESS.match(name) and not Path(name).exists():
        return [open_stream(name)]
    path = Path(name).expanduser()
    try:
        if path.is_dir():
            return _of_files(sorted(path.iterdir(), key=natural), path, rate)
        if not path.exists():
            return _of_files(_matches(path), path, rate)
        if not path.is_file():
            return [open_stream(name)]
    except OSError as error:
        raise UserError(f"cannot read {name}: {error.strerror or error}") from error
    if path.stat().st_size == 0:
        raise UserError(f"{path} is empty; copy it again")
    suffix = path.suffix.lower()
    if suffix in (".npy", ".npz"):
        return [open_array(path, rate)] if suffix == ".npy" else open_sequences(path, rate)
    return [open_images([path], path.name, rate) if suffix in IMAGES else open_video(path)]


def natural(path: Path) -> list[str | int]:
    """Orders names as people count: frame2 before frame10."""
    parts = re.split(r"([0-9]+)", path.name.casefold())
    return [int(part) if i % 2 else part for i, part in enumerate(parts)]


def _matches(pattern: Path) -> list[Path]:
    """The files that a glob names."""
    found = glob.glob(str(pattern))
    if not found:
        missing = "matches no file" if glob.has_magic(str(pattern)) else "does not exist"
        raise UserError(f"{pattern} {missing}; give a video, a folder or a glob of images, an .npy or an .npz file")
    return sorted(map(Path, found), key=natural)


def _of_files(paths: list[Path], source: Path, rate: float) -> list[Clip]:
    """One clip of all images among `paths`, or, where there are none, one of each video."""
    from sqair.data.video_images import open_images

    kinds = {path: path.suffix.lower() for path in paths if not path.name.startswith(".")}
    images = [path for path, kind in kinds.items() if kind in IMAGES]
    if images:
        return [open_images(images, source.name, rate)]
    clips = [path for path, kind in kinds.items() if kind in (*VIDEOS, ".npy", ".npz")]
    if not clips:
        raise UserError(f"{source} holds no frames: there is neither an image nor a video in it")
    return [clip for path in clips for clip in _opened(path, rate)]

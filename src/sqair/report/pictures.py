"""Pictures of a page: many frames in one sheet, as WebP in a data URI.

Axes: T frames, y, x, c picture.
"""

import base64
import io
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray

EXACT = 2**15
"""Pixels up to which a picture is kept exactly; a larger one loses what the eye does not see ..."""
LONGEST = 960
"""... and is scaled down until its longer side is this."""
SHEET = 2**20
"""Pixels of a sheet, unless one picture has more."""
Picture = UInt8[ndarray, "_ _ _"] | UInt8[ndarray, "_ _"]
"""(y, x, c) or (y, x): grey or colour."""


class Layout(NamedTuple):
    """How the pictures of a panel are kept."""

    size: tuple[int, int]
    """Height and width of one picture, scaled down if need be."""
    per_sheet: int
    """Pictures of a sheet, in rows ..."""
    columns: int
    """... of so many."""
    exact: bool

    def to_dict(self) -> dict[str, Any]:
        """For the page."""
        return {"size": list(self.size), "perSheet": self.per_sheet, "columns": self.columns, "exact": self.exact}


def layout_of(shape: Sequence[int], most: int) -> Layout:
    """The layout for pictures of this height and width, `most` at once."""
    height, width = shape[:2]
    scale = min(1.0, LONGEST / max(height, width))
    size = max(1, round(height * scale)), max(1, round(width * scale))
    count = max(1, min(most, SHEET // (size[0] * size[1])))
    return Layout(size, count, math.ceil(math.sqrt(count)), height * width <= EXACT)


class Reel:
    """The pictures of one panel, packed into sheets as they come, so that few are held as they are."""

    def __init__(self, shape: Sequence[int], most: int) -> None:
        self.layout = layout_of(shape, most)
        self.sheets: list[str] = []
        self.waiting: list[UInt8[ndarray, "y x 3"]] = []

    def add(self, picture: Picture) -> int:
        """The next picture; returns the bytes that this added to the sheets."""
        self.waiting.append(fitted(picture, self.layout))
        return self._pack() if len(self.waiting) == self.layout.per_sheet else 0

    def take(self) -> list[str]:
        """All sheets since the last time."""
        if self.waiting:
            self._pack()
        taken, self.sheets = self.sheets, []
        return taken

    def _pack(self) -> int:
        """Put what waits into a sheet."""
        self.sheets.append(sheet(self.waiting, self.layout.columns, exact=self.layout.exact))
        self.waiting = []
        return len(self.sheets[-1])


def to_colour(picture: Picture) -> UInt8[ndarray, "y x 3"]:
    """Grey or colour as colour."""
    if picture.ndim == 2:
        picture = picture[..., None]
    return np.broadcast_to(picture[..., :3], (*picture.shape[:2], 3))


def fitted(picture: Picture, layout: Layout) -> UInt8[ndarray, "y x 3"]:
    """A picture in the layout's size; a copy, since callers use their arrays again."""
    from PIL import Image

    picture = np.array(to_colour(picture))
    height, width = layout.size
    if picture.shape[:2] == layout.size:
        return picture
    return np.asarray(Image.fromarray(picture).resize((width, height), Image.Resampling.BOX))


def sheet(pictures: Sequence[UInt8[ndarray, "y x 3"]], columns: int, *, exact: bool) -> str:
    """Pictures of one size in rows from the top left, as a data URI."""
    from PIL import Image

    rows, (height, width) = math.ceil(len(pictures) / columns), pictures[0].shape[:2]
    whole = np.zeros((rows * height, min(columns, len(pictures)) * width, 3), np.uint8)
    for i, picture in enumerate(pictures):
        y, x = i // columns * height, i % columns * width
        whole[y : y + height, x : x + width] = picture
    file = io.BytesIO()
    settings = {"lossless": True} if exact else {"quality": 85, "method": 2}
    Image.fromarray(whole).save(file, "WEBP", **settings)
    return "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()

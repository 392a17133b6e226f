"""Whether a camera stands still: shifts of the whole picture by phase correlation, and cuts.

Frames are made small and grey, and divided into tiles. Each tile tells how far it has shifted, if it has anything to
go by; the median of the tiles is the picture's, since things move in some of them and the camera moves all. Shifts
from frame to frame show shaking and fast turning, those over a longer time slow turning. No tile with anything in it
stays in place when the camera moves, so a few that do outweigh the others.

A cut is where most of the picture changes at once and the two frames have little in common; a change of light is none,
nor is a thing that comes near.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32
from numpy import ndarray

from sqair.data.frames import scaled, to_grey
from sqair.data.video import Frame

Shifted = Float[ndarray, "2"]
"""x and y in small pixels."""
WIDTH = 192
"""Of small frames, at most, in pixels."""
TILES = 3
"""In a row, and in a column."""
LEAST = 8 * TILES
"""Height and width of small frames, at least."""
SURE = 0.15
"""Response of the phase correlation below which a tile has nothing to go by."""
STILL = 0.3
"""Small pixels below which a shift is none."""
AGREE = (1.0, 0.3)
"""Tiles agree within so many small pixels, or this share of the shift."""
FEW, MANY = 0.3, 0.4
"""Share of the tiles with something in them which, if they stay in place, show that the camera does; and share of all
tiles that must agree on a shift: things before an empty background are all that moves in theirs."""
LATER = 20
"""Frames between those that are compared for slow turning."""
CHANGED = 15.0
"""Grey levels from which on a small pixel has changed."""
MOST = 0.35
"""Share of pixels that change at a cut, at least."""
ALIKE = 0.6
"""Correlation of the frames before and after a cut, at most."""


class Stillness:
    """Watches the frames of a clip as they pass."""

    def __init__(self, size: tuple[int, int]) -> None:
        self.ratio = max(1.0, max(size) / WIDTH)
        self.small = (max(LEAST, round(size[0] / self.ratio)), max(LEAST, round(size[1] / self.ratio)))
        self.frames = 0
        self.cuts: list[int] = []
        """The first frames after cuts."""
        self.shifts: list[Shifted] = []
        """Of every frame against the one before it; the first has none."""
        self.late: list[tuple[int, Shifted]] = []
        """Frames, and their shift against the one LATER before them."""
        self._noise: list[float] = []

    def watch(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        """The same frames, which are looked at in passing."""
        before = key = picked = None
        step = round(self.ratio)
        for frame in frames:
            grey = to_grey(frame)
            now = scaled(grey, self.small).astype(np.float32)
            self.shifts.append(np.zeros(2) if before is None else self._compare(before, now))
            if self.frames % LATER == 0:
                if key is not None:
                    self.late.append((self.frames, shift_of(key, now).shift))
                key = now
            pixels = grey[::step, ::step].astype(np.float32)
            if picked is not None:
                self._noise.append(spread(pixels - picked) / np.sqrt(2))
            before, picked = now, pixels
            self.frames += 1
            yield frame

    def _compare(self, before: Float32[ndarray, "h w"], now: Float32[ndarray, "h w"]) -> Shifted:
        """The shift since the frame before; a cut has none."""
        shift, agreed = shift_of(before, now)
        if agreed < MANY and is_cut(before, now):
            self.cuts.append(self.frames)
            return np.zeros(2)
        return shift

    def longest_part(self) -> tuple[int, int]:
        """The first frame of the longest part without a cut, and the one after its last."""
        ends = [0, *self.cuts, self.frames]
        return max(pairwise(ends), key=lambda part: part[1] - part[0])

    def shake(self, start: int, stop: int) -> float:
        """How far the picture jumps from frame to frame, in pixels of the clip: the median."""
        jumps = np.hypot(*np.array(self.shifts[start + 1 : stop]).reshape(-1, 2).T)
        return float(np.median(jumps)) * self.ratio if len(jumps) else 0.0

    def drift(self, start: int, stop: int) -> float:
        """How far the picture wanders in all, in pixels of the clip."""
        late = [shift for frame, shift in self.late if start + LATER <= frame < stop]
        ways = [np.array(shifts).reshape(-1, 2) for shifts in (self.shifts[start:stop], late)]
        return self.ratio * max(reach(way) for way in ways)

    def noise(self) -> float:
        """Standard deviation of a pixel that stays as it is, in grey levels."""
        return float(np.median(self._noise)) if self._noise else 0.0


def reach(shifts: Float[ndarray, "n 2"]) -> float:
    """The largest extent of a way, either along x or y; steps below what can be measured are none."""
    if not len(shifts):
        return 0.0
    way = np.cumsum(np.where(np.hypot(*shifts.T)[:, None] < STILL, 0.0, shifts), axis=0)
    return float((way.max(0) - way.min(0)).max())


def is_cut(before: Float32[ndarray, "h w"], now: Float32[ndarray, "h w"]) -> bool:
    """Whether two frames show different scenes."""
    gain = float(np.median((now + 1) / (before + 1)))
    changed = float((np.abs(now - gain * before) > CHANGED).mean())
    if changed < MOST:
        return False
    first, second = before - before.mean(), now - now.mean()
    together = float(np.sqrt(np.square(first).mean() * np.square(second).mean()))
    return together == 0 or float((first * second).mean()) / together < ALIKE


class Shift(NamedTuple):
    """How a picture has shifted."""

    shift: Shifted
    """Right and down; none where too few tiles agree."""
    agreed: float
    """Share of the tiles that tell the same."""


def shift_of(before: Float32[ndarray, "h w"], now: Float32[ndarray, "h w"]) -> Shift:
    """How far the picture has shifted: the median of its tiles, if enough of them agree."""
    import cv2

    # multiples of 8: with odd sides, as OpenCV pads them, shifts would be off by half a pixel
    height, width = (side // TILES // 8 * 8 for side in before.shape)
    window = cv2.createHanningWindow((width, height), cv2.CV_32F)
    found = []
    for top in range(0, TILES * height, height):
        for left in range(0, TILES * width, width):
            old, new = (frame[top : top + height, left : left + width] for frame in (before, now))
            # without their means, which the window would turn into a hill that never moves
            shift, sure = cv2.phaseCorrelate(old - old.mean(), new - new.mean(), window)
            if sure >= SURE:
                found.append(shift)
    if not found:
        return Shift(np.zeros(2), 0.0)
    shifts = np.array(found)
    still = np.hypot(*shifts.T) < STILL
    middle = np.median(shifts[still] if still.mean() >= FEW else shifts, axis=0)
    slack = max(AGREE[0], AGREE[1] * float(np.hypot(*middle)))
    agreed = int((np.hypot(*(shifts - middle).T) < slack).sum()) / TILES**2
    return Shift(middle if agreed >= MANY else np.zeros(2), agreed)


def spread(values: Float32[ndarray, "h w"]) -> float:
    """Standard deviation of normal numbers, most of which are among these, by the smaller four fifths of them."""
    squares = np.sort(np.square(values), axis=None)
    return float(np.sqrt(squares[: max(1, 4 * len(squares) // 5)].mean())) / 0.6616

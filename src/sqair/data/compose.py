"""Sequences that are put together from things that were seen alone.

Where many pass, a clip shows few heaps of them, each for seconds, and a model can learn these heaps as things. But
what is alone tells how a thing looks, and any number of such things, each from a time of its own, make a heap that was
never seen. So blobs that go somewhere, are whole, as large as one thing and apart from all others are followed for as
long as a sequence lasts, and several of them are laid over each other at random places, some close together.

Axes: L frames of a sequence, H, W a scaled frame, h, w a patch of it, n blobs, 4 left, top, width, height in pixels.
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, UInt8
from numpy import ndarray

from sqair.data.camera import Sizes
from sqair.data.survey import Life, are_whole, pairs
from sqair.data.windows import Moment, Piece, Reservoir

SMALLER = 0.7
"""One thing is at least so many times as large as small things are, and no larger than large ones."""
RIM = 1
"""Pixels around a blob that it covers in part."""
FULL = 255
"""Cover of a pixel of which a thing hides all."""
MEET = 0.5
"""How often one thing is laid close to the one before it, at most its own sizes away."""


class Patch(NamedTuple):
    """A thing in one frame."""

    left: int
    top: int
    pixels: UInt8[ndarray, "h w *C"]
    """Times its cover."""
    cover: UInt8[ndarray, "h w"]
    """How much of a pixel it hides."""

    @property
    def centre(self) -> Float32[ndarray, "2"]:
        """x and y."""
        return np.array([self.left + self.cover.shape[1] / 2, self.top + self.cover.shape[0] / 2], np.float32)


def no_larger_than_one(boxes: Float32[ndarray, "n 4"], sizes: Sizes) -> Bool[ndarray, " n"]:
    """Which blobs are no larger than one thing; what a frame's edge cuts off may be smaller."""
    return (boxes[:, 2] <= sizes.width[2]) & (boxes[:, 3] <= sizes.height[2])


Tube = list[Patch]
"""A thing in each frame of a sequence."""


@dataclass
class Course:
    """A blob that is followed."""

    life: Life
    recent: deque[Patch]
    """Its last frames, as many as a sequence spans, since it was last anything but one whole thing."""


class Alone:
    """Follows what is alone through the frames of a clip, and keeps a uniform choice of what was seen."""

    def __init__(self, sizes: Sizes, span: int, stride: int, size: int, rng: np.random.Generator) -> None:
        self.sizes = sizes
        self.span, self.stride = span, stride
        self.present: list[Course] = []
        self.tubes = Reservoir[Tube](size, rng)

    def add(self, moment: Moment) -> None:
        """The next frame."""
        before = np.array([course.life.last for course in self.present], np.float32).reshape(-1, 4)
        partners, present = pairs(before, moment.boxes), []
        for place, (box, single) in enumerate(zip(moment.boxes, self.single(moment), strict=True)):
            new = Course(Life(box, box, 0), deque(maxlen=self.span))
            course = self.present[partners[place]] if place in partners else new
            course.life.last, course.life.frames = box, course.life.frames + 1
            if single:
                course.recent.append(cut_patch(moment, box))
            else:
                course.recent.clear()
            if len(course.recent) == self.span and course.life.went and (put := self.tubes.place()) is not None:
                put(list(course.recent)[:: self.stride])
            present.append(course)
        self.present = present

    def single(self, moment: Moment) -> Bool[ndarray, " n"]:
        """Which blobs of a frame are one whole thing."""
        height, width = moment.picture.shape[:2]
        low = SMALLER * np.array([self.sizes.width[0], self.sizes.height[0]])
        fits = (moment.boxes[:, 2:] >= low).all(1) & no_larger_than_one(moment.boxes, self.sizes)
        return fits & are_whole(moment.boxes, (height, width))


def cut_patch(moment: Moment, box: Float32[ndarray, "4"]) -> Patch:
    """The pixels of a blob and of its rim."""
    if moment.cover is None:
        raise ValueError("only moments that know their foreground can be cut out")
    left, top = (max(0, int(side) - RIM) for side in box[:2])
    right, bottom = (int(box[0] + box[2]) + RIM, int(box[1] + box[3]) + RIM)
    part = np.s_[top:bottom, left:right]
    return Patch(left, top, moment.picture[part].copy(), np.round(FULL * moment.cover[part]).astype(np.uint8))


def composed(tubes: list[Tube], crop: tuple[int, int], most: int, count: int, rng: np.random.Generator) -> list[Piece]:
    """So many sequences of 1 to `most` things each, half as many of every number as of the one before."""
    share = 0.5 ** np.arange(most)
    numbers = 1 + rng.choice(most, size=count, p=share / share.sum())
    return [compose(tubes, crop, int(number), rng) for number in numbers]


def compose(tubes: list[Tube], crop: tuple[int, int], number: int, rng: np.random.Generator) -> Piece:
    """A sequence of some things, the later ones before the earlier."""
    chosen = [tubes[int(place)] for place in rng.integers(len(tubes), size=number)]
    length = len(chosen[0])
    frames = np.zeros((length, *crop, *chosen[0][0].pixels.shape[2:]), np.uint8)
    count = np.zeros(length, int)
    before = None
    for tube in chosen:
        anchor = tube[int(rng.integers(length))]
        place = rng.uniform(0, crop[::-1])
        if before is not None and rng.random() < MEET:
            place = before + rng.uniform(-1, 1, 2) * np.array(anchor.cover.shape[::-1])
        shift = np.round(place - anchor.centre).astype(int)
        for t, patch in enumerate(tube):
            count[t] += lay(frames[t], patch, patch.left + int(shift[0]), patch.top + int(shift[1]))
        before = place
    return Piece(frames, [], None, (0, 0), count)


def lay(frame: UInt8[ndarray, "Y X *C"], patch: Patch, left: int, top: int) -> bool:
    """Lay a patch over a frame, as far as it lies in it; returns whether any of it is in sight there."""
    height, width = patch.cover.shape
    high, low = max(0, top), min(frame.shape[0], top + height)
    near, far = max(0, left), min(frame.shape[1], left + width)
    if low <= high or far <= near:
        return False
    mine = np.s_[high - top : low - top, near - left : far - left]
    cover = patch.cover[mine].reshape(low - high, far - near, *(1,) * (frame.ndim - 2)) / FULL
    there = frame[high:low, near:far]
    frame[high:low, near:far] = np.minimum(255, np.round(patch.pixels[mine] + (1 - cover) * there)).astype(np.uint8)
    return bool((cover >= 0.5).any())

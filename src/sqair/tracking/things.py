"""One thing that is followed: where it should be by now, what is known of its size, and its box told steadily.

Boxes of single frames jump: a head before a wall of its own grey is cut off, a foot goes astray. A thing moves evenly
and does not change its size at once, so a box is held against those of the frames around it, moved along with the
thing. Widths swing with every step, heights do not.

Axes: k frames, 2 x and y, 4 left, top, width, height in pixels of the picture.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Float32, Int
from numpy import ndarray

from sqair.tracking.boxes import middles

CERTAIN = 3
"""Frames that a thing must last to be told."""
SPREAD, GROWTH = 0.3, 0.08
"""How far a thing strays from where it is expected, in its sizes, and how much farther with every frame it is lost."""
LIKENESS, RESHAPED = 0.7, 0.5
"""Differences of log sizes: one that makes two boxes unlike each other, and one that halves the trust in a box."""
PLACE, SPEED, SIZE = 0.6, 0.15, 0.15
"""Shares of what was unexpected by which place, speed and size are corrected, if a box is trusted."""
LEAST_TRUST = 0.2
"""In the place of a box: that of two things at once still says where they are, but not how large and how fast."""
SHARED = 0.5
"""In a place that was found for a thing in a box that it shares."""
PAST = 9
"""Frames before that speak for where the sides of a box are; after it, those that are known when it is told."""
OUTER = 0.65
"""Share of those frames in which a side lies no farther out than it should: parts are missed more often than added."""
INWARD, OUTWARD = np.array([0.2, 0.0]), np.array([0.2, 0.05])
"""How far the sides of a box may lie from there, inside and outside, as shares of width and height."""
EDGE = 1.0
"""A box that comes so close to an edge of the picture, in pixels, is cut off by it."""


@dataclass
class Track:
    """One thing, and where it should be by now."""

    number: int
    """In the order of coming, among all that began; told ones are numbered anew."""
    centre: Float[ndarray, " 2"]
    size: Float[ndarray, " 2"]
    speed: Float[ndarray, " 2"] = field(default_factory=lambda: np.zeros(2))
    names: set[tuple[int, int]] = field(default_factory=set)
    """Window and identity of all views in the last frame in which it was seen."""
    life: int = 0
    """Frames in which it was seen."""
    lost: int = 0
    """Frames since it was seen or hidden."""
    apart: int = 0
    """Frames in which it was seen apart from others."""
    hidden: int = 0
    """Frames since it was seen in which it shared the box of another."""
    past: deque[tuple[int, Float32[ndarray, " 4"]]] = field(default_factory=lambda: deque(maxlen=PAST + CERTAIN))
    """The last frames with its boxes in them."""

    @property
    def expected(self) -> Float[ndarray, " 2"]:
        """Its centre by now."""
        return self.centre + self.speed * (1 + self.lost)

    @property
    def box(self) -> Float32[ndarray, " 4"]:
        """A box of its size where it was last."""
        return np.concatenate([self.centre - self.size / 2, self.size]).astype(np.float32)

    @property
    def expected_box(self) -> Float[ndarray, " 4"]:
        """A box of its size where it should be by now."""
        return np.concatenate([self.expected - self.size / 2, self.size])

    def unlike(self, box: Float32[ndarray, " 4"]) -> float:
        """How much a box differs from it in size."""
        return float(np.abs(np.log(box[2:] / self.size)).sum())

    def likely(self, box: Float32[ndarray, " 4"]) -> float:
        """How well a box fits, from 0 to 1."""
        off = (middles(box) - self.expected) / (self.size * (SPREAD + GROWTH * self.lost))
        return float(np.exp(-0.5 * (np.square(off).sum() + (self.unlike(box) / LIKENESS) ** 2)))

    def seen(self, box: Float32[ndarray, " 4"], names: set[tuple[int, int]]) -> None:
        """It is here. At first all is unexpected; later a box of another size is hardly trusted: it may show two."""
        trust = 1 / (1 + (self.unlike(box) / RESHAPED) ** 2)
        expected = self.expected
        wrong = middles(box) - expected
        early = 1 / (self.life + 0.5)
        self.centre = expected + max(trust, LEAST_TRUST) * max(PLACE, min(1.0, early)) * wrong
        if self.life:
            self.speed = self.speed + trust * max(SPEED, min(1.0, early)) * wrong / (1 + self.lost)
        self.size = self.size + SIZE * trust * (box[2:] - self.size)
        self._is_here(names)

    def shared(self, place: Float[ndarray, " 2"], names: set[tuple[int, int]] | None = None) -> None:
        """It is in the box of several, about here. `names` are those of the box, if it was recognised as this thing."""
        expected = self.expected
        self.centre = expected + SHARED * (place - expected)
        if names is None:
            self.hidden, self.lost = self.hidden + 1, 0
        else:
            self._is_here(names)

    def _is_here(self, names: set[tuple[int, int]]) -> None:
        self.names, self.lost, self.hidden = names, 0, 0
        self.life += 1

    def steady_box(self, frame: int, limits: Float[ndarray, " 2"]) -> Float32[ndarray, " 4"]:
        """Its box in one of the last frames that it has one in; in a direction in which it leaves the picture, as seen.

        `limits` are the picture's width and height.
        """
        near = [(number, box) for number, box in self.past if number >= frame - PAST]
        frames, boxes = (np.array(column) for column in zip(*near, strict=True))
        place = int(np.flatnonzero(frames == frame)[0])
        seen = boxes[place]
        is_cut = (seen[:2] < EDGE) | (seen[:2] + seen[2:] > limits - EDGE)
        return np.where(np.tile(is_cut, 2), seen, steadied(frames, boxes, place))


def steadied(frames: Int[ndarray, " k"], boxes: Float32[ndarray, "k 4"], place: int) -> Float32[ndarray, " 4"]:
    """The box at `place`, each side no farther than allowed from where those of all frames have it.

    All are first moved as far as their middles go from frame to frame. Two boxes do not tell which of them is wrong.
    """
    if len(frames) < CERTAIN:
        return boxes[place]
    since = (frames - frames[place]).astype(float)
    off = since - since.mean()
    speed = off @ middles(boxes) / np.square(off).sum()
    low = boxes[:, :2] - since[:, None] * speed
    high = low + boxes[:, 2:]
    usual_low, usual_high = np.quantile(low, 1 - OUTER, axis=0), np.quantile(high, OUTER, axis=0)
    size = usual_high - usual_low
    low = np.clip(boxes[place, :2], usual_low - OUTWARD * size, usual_low + INWARD * size)
    high = np.clip(boxes[place, :2] + boxes[place, 2:], usual_high - INWARD * size, usual_high + OUTWARD * size)
    return np.concatenate([low, high - low]).astype(np.float32)

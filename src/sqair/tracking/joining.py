"""One identity for what several windows see: in a frame by overlap, from frame to frame by identities and by motion.

In one frame, boxes of different windows that cover each other are the same thing; those of one window never are, since
the model told them apart. The best view of a thing is the window in whose middle it lies: its box counts. From frame to
frame two things speak for a track: that windows have known an object as this track before, and that it is where the
track should be by now, in its size. So identity passes from window to window as a thing moves; who was lost behind
another is found again; and when two who met part, each goes on as it came. A track is told once it has lasted for a few
frames.

Axes: n views of a frame, 4 left, top, width, height in pixels of the picture.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Int
from numpy import ndarray
from scipy.optimize import linear_sum_assignment

SAME = 0.3
"""Two boxes of different windows are one thing if they have this IoU ..."""
WITHIN = 0.7
"""... or one lies in the other by this share of itself: at the edge of a window a thing is cut off."""
KNOWN = 0.3
"""What it counts that all windows know an object, where being exactly where it is expected counts 1."""
LIKELY = 0.25
"""A thing that no window knows must be so likely where it is, at least."""
CERTAIN = 3
"""Frames that a track must last to be told."""
PATIENCE = 20
"""Frames for which a lost one is looked for."""
SPREAD, GROWTH = 0.3, 0.08
"""How far a thing strays from where it is expected, in its sizes, and how much farther with every frame it is lost."""
LIKENESS, RESHAPED = 0.7, 0.5
"""Differences of log sizes: one that makes two boxes unlike each other, and one that halves the trust in a box."""
PLACE, SPEED, SIZE = 0.6, 0.15, 0.15
"""Shares of what was unexpected by which place, speed and size are corrected, if a box is trusted."""
LEAST_TRUST = 0.2
"""In the place of a box: that of two things at once still says where they are, but not how large and how fast."""


class Views(NamedTuple):
    """What the windows see in a frame."""

    window: Int[ndarray, " n"]
    identity: Int[ndarray, " n"]
    """Of the object in its window."""
    box: Float32[ndarray, "n 4"]
    quality: Float[ndarray, " n"]
    """How far in the middle of its window, from 0 at its edge to 1; an edge of the picture is none."""
    born: Bool[ndarray, " n"]
    """Whether the view may begin a track: no other window should see it better."""


class Told(NamedTuple):
    """What is told of a frame: for each track the place of its best view in the `Views` of that frame."""

    track: Int[ndarray, " n"]
    view: Int[ndarray, " n"]


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
    """Frames since."""

    @property
    def expected(self) -> Float[ndarray, " 2"]:
        """Its centre by now."""
        return self.centre + self.speed * (1 + self.lost)

    def unlike(self, box: Float32[ndarray, " 4"]) -> float:
        """How much a box differs from it in size."""
        return float(np.abs(np.log(box[2:] / self.size)).sum())

    def likely(self, box: Float32[ndarray, " 4"]) -> float:
        """How well a box fits, from 0 to 1."""
        off = (_centre(box) - self.expected) / (self.size * (SPREAD + GROWTH * self.lost))
        return float(np.exp(-0.5 * (np.square(off).sum() + (self.unlike(box) / LIKENESS) ** 2)))

    def seen(self, box: Float32[ndarray, " 4"], names: set[tuple[int, int]]) -> None:
        """It is here. At first all is unexpected; later a box of another size is hardly trusted: it may show two."""
        trust = 1 / (1 + (self.unlike(box) / RESHAPED) ** 2)
        expected = self.expected
        wrong = _centre(box) - expected
        early = 1 / (self.life + 0.5)
        self.centre = expected + max(trust, LEAST_TRUST) * max(PLACE, min(1.0, early)) * wrong
        if self.life:
            self.speed = self.speed + trust * max(SPEED, min(1.0, early)) * wrong / (1 + self.lost)
        self.size = self.size + SIZE * trust * (box[2:] - self.size)
        self.names, self.lost = names, 0
        self.life += 1


class Joiner:
    """Takes the views of a frame; tells, `CERTAIN` - 1 frames later, which tracks they are."""

    def __init__(self) -> None:
        self.tracks: list[Track] = []
        self._waiting: deque[list[tuple[Track, int]]] = deque()
        self._begun = 0
        self._numbers: dict[int, int] = {}

    def add(self, views: Views) -> Told | None:
        """The next frame; what can be told by now, if anything."""
        groups = grouped(views)
        pairs = self._recognised(groups, views)
        frame = []
        for place, group in enumerate(groups):
            track = pairs.get(place) or (self._begin(views.box[group[0]]) if views.born[group].any() else None)
            if track is not None:
                names = {(int(views.window[n]), int(views.identity[n])) for n in group}
                track.seen(views.box[group[0]], names)
                frame.append((track, group[0]))
        here = {id(track) for track, _ in frame}
        for track in self.tracks:
            track.lost += id(track) not in here
        self.tracks = [track for track in self.tracks if track.lost <= (PATIENCE if track.life >= CERTAIN else 0)]
        self._waiting.append(frame)
        return self._tell() if len(self._waiting) >= CERTAIN else None

    def finish(self) -> list[Told]:
        """What is still to be told."""
        return [self._tell() for _ in range(len(self._waiting))]

    def _tell(self) -> Told:
        """The oldest frame, without tracks that did not last."""
        rows = [(track, view) for track, view in self._waiting.popleft() if track.life >= CERTAIN]
        numbers = [self._numbers.setdefault(track.number, len(self._numbers)) for track, _ in rows]
        return Told(np.array(numbers, np.int64), np.array([view for _, view in rows], np.int64))

    def _begin(self, box: Float32[ndarray, " 4"]) -> Track:
        track = Track(self._begun, _centre(box), box[2:].astype(float))
        self._begun += 1
        self.tracks.append(track)
        return track

    def _recognised(self, groups: list[list[int]], views: Views) -> dict[int, Track]:
        """Groups with the tracks that they are, each at most once, as windows and motion together have it."""
        score = np.zeros((len(groups), len(self.tracks)))
        for row, group in enumerate(groups):
            weight = 0.1 + views.quality[group]
            names = [(int(views.window[n]), int(views.identity[n])) for n in group]
            for column, track in enumerate(self.tracks):
                known = float(weight @ [name in track.names for name in names] / weight.sum())
                likely = track.likely(views.box[group[0]])
                score[row, column] = KNOWN * known + likely if known > 0 or likely >= LIKELY else 0.0
        rows, columns = linear_sum_assignment(-score)
        return {int(r): self.tracks[c] for r, c in zip(rows, columns, strict=True) if score[r, c] > 0}


def grouped(views: Views) -> list[list[int]]:
    """Views of one thing together, the best first; no two of a group are of one window."""
    groups: list[list[int]] = []
    overlap, inside = iou(views.box, views.box), within(views.box)
    for n in np.argsort(-views.quality, kind="stable").tolist():
        fits = [
            (max(overlap[n, group[0]], inside[n, group[0]], inside[group[0], n]), place)
            for place, group in enumerate(groups)
            if all(views.window[n] != views.window[other] for other in group)
            and (overlap[n, group[0]] >= SAME or max(inside[n, group[0]], inside[group[0], n]) >= WITHIN)
        ]
        if fits:
            groups[max(fits)[1]].append(n)
        else:
            groups.append([n])
    return groups


def iou(a: Float[ndarray, "n 4"], b: Float[ndarray, "m 4"]) -> Float[ndarray, "n m"]:
    """Intersection over union of all pairs."""
    both = _common(a, b)
    union = (a[:, 2] * a[:, 3])[:, None] + b[:, 2] * b[:, 3] - both
    return both / np.maximum(union, 1e-9)


def within(boxes: Float[ndarray, "n 4"]) -> Float[ndarray, "n n"]:
    """Which share of the first lies in the second, of all pairs."""
    return _common(boxes, boxes) / np.maximum(boxes[:, 2] * boxes[:, 3], 1e-9)[:, None]


def _common(a: Float[ndarray, "n 4"], b: Float[ndarray, "m 4"]) -> Float[ndarray, "n m"]:
    """The area that both have."""
    low = np.maximum(a[:, None, :2], b[:, :2])
    high = np.minimum(a[:, None, :2] + a[:, None, 2:], b[:, :2] + b[:, 2:])
    return np.prod(np.clip(high - low, 0, None), -1)


def _centre(box: Float[ndarray, " 4"]) -> Float[ndarray, " 2"]:
    return box[:2] + box[2:] / 2

"""One identity for what several windows see: in a frame by overlap, from frame to frame by identities and by motion.

In one frame, boxes of different windows that cover each other are the same thing; those of one window never are, since
the model told them apart. The best view of a thing is the window in whose middle it lies: its box counts. From frame to
frame two things speak for a track: that windows have known an object as this track before, and that it is where the
track should be by now, in its size. So identity passes from window to window as a thing moves; who was lost behind
another is found again; and when two who met part, each goes on as it came. While they are drawn as one object they
share its box, in which each has a place and its own size. A track is told once it has lasted for a few frames.

Axes: n views of a frame, 4 left, top, width, height in pixels of the picture.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Int
from numpy import ndarray
from scipy.optimize import linear_sum_assignment

from sqair.tracking.boxes import iou, within
from sqair.tracking.things import CERTAIN, Track

SAME = 0.3
"""Two boxes of different windows are one thing if they have this IoU ..."""
WITHIN = 0.7
"""... or one lies in the other by this share of itself: at the edge of a window a thing is cut off."""
KNOWN = 0.3
"""What it counts that all windows know an object, where being exactly where it is expected counts 1."""
LIKELY = 0.25
"""A thing that no window knows must be so likely where it is, at least."""
PATIENCE = 20
"""Frames for which a lost one is looked for."""
COVERED = 0.6
"""Who is not seen shares a box that covers this share of where it should be ..."""
HIDDEN = 20
"""... for so many frames at most ..."""
APART = 5
"""... if it was seen apart from others for so many, else it may be a part of another, ..."""
PART = 0.4
"""... and if it is not smaller than this share of the one whose box it is, for the same reason."""
CLOSE = 0.3
"""A thing is not apart if so much of its box lies in that of another."""
OWN = 10
"""Who was not apart from others for so many frames is not told while it lies in another: it may be a part of that."""
WIDE = 0.3
"""Difference of log sizes from which on a shared box is not that of the one whom it was recognised as."""


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
    """What is told of a frame."""

    track: Int[ndarray, " n"]
    view: Int[ndarray, " n"]
    """For each track the place of its best view in the `Views` of that frame; those that share a box have the same."""
    box: Float32[ndarray, "n 4"]


class Sight(NamedTuple):
    """A track in a frame that is not told yet."""

    track: Track
    view: int
    """The place of its best view among those of the frame."""
    is_within: bool
    """Whether it lies in the larger box of another that was seen."""

    @property
    def is_told(self) -> bool:
        """Whether by now the track has lasted, and is surely not a part of another here."""
        return self.track.life >= CERTAIN and not (self.is_within and self.track.apart < OWN)


Outline = Callable[[Float32[ndarray, "n 4"]], Float32[ndarray, "n 4"]]
"""Makes better boxes of those of all things in a frame."""


class Joiner:
    """Takes the views of a frame; tells, `CERTAIN` - 1 frames later, which tracks they are.

    `size` is the picture's height and width, if it has edges.
    """

    def __init__(self, size: tuple[int, int] | None = None) -> None:
        self._limits = np.full(2, np.inf) if size is None else np.array(size[::-1], float)
        self._start = np.full(2, -np.inf) if size is None else np.zeros(2)
        self.tracks: list[Track] = []
        self._waiting: deque[list[Sight]] = deque()
        self._begun = self._seen = self._told = 0
        self._numbers: dict[int, int] = {}

    def add(self, views: Views, outline: Outline | None = None) -> Told | None:
        """The next frame; what can be told by now, if anything."""
        groups = grouped(views)
        best = np.array([group[0] for group in groups], int)
        boxes = views.box[best] if outline is None else outline(views.box[best])
        owners = self._recognised(groups, boxes, views)
        for place, group in enumerate(groups):
            if place not in owners and views.born[group].any():
                owners[place] = self._begin(boxes[place])
        sharing = self._sharing(owners, boxes)
        covered = within(boxes, boxes) - np.eye(len(boxes))
        close = covered.max(1, initial=0.0) >= CLOSE
        smaller = boxes[:, 2:].prod(1)[:, None] < boxes[:, 2:].prod(1)
        is_within = (covered * smaller).max(1, initial=0.0) >= CLOSE
        for place, track in owners.items():
            names = {(int(views.window[n]), int(views.identity[n])) for n in groups[place]}
            track.apart += int(place not in sharing and not close[place])
            self._settle(track, sharing.get(place, []), boxes[place], names)
        self._waiting.append(
            [
                Sight(one, int(best[place]), one is track and bool(is_within[place]))
                for place, track in owners.items()
                for one in [track, *sharing.get(place, [])]
            ]
        )
        here = {sight.track.number for sight in self._waiting[-1]}
        for track in self.tracks:
            track.lost += track.number not in here
        self.tracks = [track for track in self.tracks if track.lost <= self._patience(track)]
        self._seen += 1
        return self._tell() if len(self._waiting) >= CERTAIN else None

    def finish(self) -> list[Told]:
        """What is still to be told."""
        return [self._tell() for _ in range(len(self._waiting))]

    def _patience(self, track: Track) -> int:
        """Frames for which it is looked for: not if it did not last, nor where it should be outside by now."""
        is_inside = ((track.expected >= self._start) & (track.expected <= self._limits)).all()
        return PATIENCE if track.life >= CERTAIN and is_inside else 0

    def _tell(self) -> Told:
        """The oldest frame, without tracks that did not last, and those that may be parts of others."""
        rows = [sight for sight in self._waiting.popleft() if sight.is_told]
        numbers = [self._numbers.setdefault(row.track.number, len(self._numbers)) for row in rows]
        boxes = np.array([row.track.steady_box(self._told, self._limits) for row in rows], np.float32).reshape(-1, 4)
        self._told += 1
        return Told(np.array(numbers, np.int64), np.array([row.view for row in rows], np.int64), boxes)

    def _begin(self, box: Float32[ndarray, " 4"]) -> Track:
        track = Track(self._begun, box[:2] + box[2:].astype(float) / 2, box[2:].astype(float))
        self._begun += 1
        self.tracks.append(track)
        return track

    def _recognised(self, groups: list[list[int]], boxes: Float32[ndarray, "m 4"], views: Views) -> dict[int, Track]:
        """Groups with the tracks that they are, each at most once, as windows and motion together have it."""
        score = np.zeros((len(groups), len(self.tracks)))
        for row, group in enumerate(groups):
            weight = 0.1 + views.quality[group]
            names = [(int(views.window[n]), int(views.identity[n])) for n in group]
            for column, track in enumerate(self.tracks):
                known = float(weight @ [name in track.names for name in names] / weight.sum())
                likely = track.likely(boxes[row])
                score[row, column] = KNOWN * known + likely if known > 0 or likely >= LIKELY else 0.0
        rows, columns = linear_sum_assignment(-score)
        return {int(r): self.tracks[c] for r, c in zip(rows, columns, strict=True) if score[r, c] > 0}

    def _sharing(self, owners: dict[int, Track], boxes: Float32[ndarray, "m 4"]) -> dict[int, list[Track]]:
        """Tracks that are not seen, by the box that hides each; those who were never apart from others do not count."""
        seen, sharing = {track.number for track in owners.values()}, dict[int, list[Track]]()
        places = list(owners)
        for track in self.tracks if owners else []:
            if track.number in seen or track.life < CERTAIN or track.apart < APART or track.hidden >= HIDDEN:
                continue
            covered = within(track.expected_box[None], boxes[places])[0]
            place = places[int(covered.argmax())]
            if covered.max() >= COVERED and track.size.prod() >= PART * owners[place].size.prod():
                sharing.setdefault(place, []).append(track)
        return sharing

    def _settle(
        self, track: Track, others: list[Track], box: Float32[ndarray, " 4"], names: set[tuple[int, int]]
    ) -> None:
        """Say to a track that was recognised, and to those that share its box, where they are."""
        everyone = [track, *others]
        places = placed(np.stack([one.expected_box for one in everyone]), box)
        if others and track.life >= CERTAIN and track.unlike(box) >= WIDE:
            track.shared(places[0], names)
            track.past.append((self._seen, track.box))
        else:
            track.seen(box, names)
            track.past.append((self._seen, box))
        for other, place in zip(others, places[1:], strict=True):
            other.shared(place)
            other.past.append((self._seen, other.box))


def placed(things: Float[ndarray, "n 4"], box: Float32[ndarray, " 4"]) -> Float[ndarray, "n 2"]:
    """The middles of things that together fill a box, by where they should be: its sides are those of the outer ones.

    What is as large as the box, or larger, is in its middle. In each direction by itself.
    """
    low, high = things[:, :2], things[:, :2] + things[:, 2:]
    start, end = box[:2], box[:2] + box[2:]
    moved = np.clip(low, start, np.maximum(start, end - things[:, 2:]))
    for axis in (0, 1):
        first, last = low[:, axis].argmin(), high[:, axis].argmax()
        if first != last:
            moved[first, axis], moved[last, axis] = start[axis], end[axis] - things[last, 2 + axis]
    return np.where(things[:, 2:] < box[2:], moved + things[:, 2:] / 2, (start + end) / 2)


def grouped(views: Views) -> list[list[int]]:
    """Views of one thing together, the best first; no two of a group are of one window."""
    groups: list[list[int]] = []
    overlap, inside = iou(views.box, views.box), within(views.box, views.box)
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

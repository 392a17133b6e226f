"""Failures found automatically (App. G): swapped identities, re-detections, digits drawn wrongly or not at all.

True objects are judged in frames in which no two true boxes touch, where it is plain which box belongs to which: they
are matched to boxes one to one at an IoU of 0.5, those under a quarter visible left out. A true object whose identity
is another one than it last had was *swapped* if another true object had it last, *re-detected* if none had. A digit
that is wholly visible and whose picture misses more than half of the frame's energy inside its box is *wrong* if a box
covers it, else *missed*.

Axes: T frames, O objects, N slots, Y, X, C frame.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from sqair.evaluation.matching import match
from sqair.evaluation.overlap import covered_share
from sqair.tracks.text import LEAST_VISIBLE

WRONG = 0.5
"""Share of the energy of a digit, the sum of its squared pixels, that a wrong picture misses."""
KINDS = ("ID swap", "re-detection", "wrong digit", "missed digit")


class Failure(NamedTuple):
    """Something that went wrong in a sequence."""

    kind: str
    """One of KINDS."""
    frame: int
    place: int
    """Of the true object."""
    extent: float
    """How bad it is: the share of missed energy, or 1."""


def failures(
    frames: Float[ndarray, "T Y X"],
    canvas: Float[ndarray, "T Y X C"],
    boxes: Float[ndarray, "T N 4"],
    ids: Int[ndarray, "T N"],
    true: Float[ndarray, "T O 4"],
    visible: Float[ndarray, "T O"],
) -> list[Failure]:
    """What went wrong in one sequence of grey frames, in the order of frames."""
    plain = (visible >= LEAST_VISIBLE) & (covered_share(true[None])[0] == 0)[:, None]
    names = covering(boxes, ids, true, plain, frames.shape[1:])
    whole = plain & (visible >= 1)
    found = [*identity_failures(names), *wrong_pictures(frames, canvas[..., 0], true, whole, names)]
    return sorted(found, key=lambda failure: failure.frame)


def covering(
    boxes: Float[ndarray, "T N 4"],
    ids: Int[ndarray, "T N"],
    true: Float[ndarray, "T O 4"],
    seen: Bool[ndarray, "T O"],
    size: tuple[int, ...],
) -> Int[ndarray, "T O"]:
    """The identity of the box that covers each true object; -1 for none."""
    names = np.full(true.shape[:2], -1)
    for t in range(len(true)):
        for place, slot in match(true[t], boxes[t], size, seen[t]):
            names[t, place] = ids[t, slot]
    return names


def identity_failures(names: Int[ndarray, "T O"]) -> list[Failure]:
    """Swaps and re-detections."""
    found, last = [], np.full(names.shape[1], -1)
    for t, now in enumerate(names):
        for place in np.flatnonzero((now >= 0) & (last >= 0) & (now != last)):
            others = np.delete(last, place)
            kind = "ID swap" if now[place] in others else "re-detection"
            found.append(Failure(kind, t, int(place), 1.0))
        last = np.where(now >= 0, now, last)
    return found


def wrong_pictures(
    frames: Float[ndarray, "T Y X"],
    canvas: Float[ndarray, "T Y X"],
    true: Float[ndarray, "T O 4"],
    judged: Bool[ndarray, "T O"],
    names: Int[ndarray, "T O"],
) -> list[Failure]:
    """Digits whose picture misses much of them."""
    found = []
    for t, place in np.argwhere(judged):
        left, top, width, height = true[t, place].astype(int)
        inside = (t, slice(top, top + height), slice(left, left + width))
        missed = np.square(frames[inside] - canvas[inside]).sum() / max(np.square(frames[inside]).sum(), 1e-6)
        if missed > WRONG:
            kind = "wrong digit" if names[t, place] >= 0 else "missed digit"
            found.append(Failure(kind, int(t), int(place), float(missed)))
    return found

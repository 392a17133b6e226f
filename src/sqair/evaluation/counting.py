"""Counting: does the number of present slots equal the number of objects that are there, in sight or not?

Axes: S sequences, T frames, O objects, M possible counts, 0 to N.
"""

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from sqair.data import Sequences

LEAST_VISIBLE = 0.25
"""Share of an object's box inside the frame from which on it is in sight."""


def accuracy(distribution: Float[ndarray, "S T M"], counts: Int[ndarray, "S T"]) -> Float[ndarray, "S T"]:
    """The probability of the true count; 0 where there are more objects than slots."""
    slots = distribution.shape[-1] - 1
    chosen = np.take_along_axis(distribution, np.minimum(counts, slots)[..., None], -1)[..., 0]
    return np.where(counts <= slots, chosen, 0.0)


def mode_accuracy(distribution: Float[ndarray, "S T M"], counts: Int[ndarray, "S T"]) -> Float[ndarray, "S T"]:
    """1 where the most probable count is the true one."""
    return (distribution.argmax(-1) == counts).astype(np.float64)


def all_in_sight(truth: Sequences) -> Bool[ndarray, "S T"] | None:
    """Frames in which every object is in sight; those with no object too. None where that is not known."""
    if truth.visible is None or truth.ids is None:
        return None
    absent = np.asarray(truth.ids) < 0
    return np.all(absent | (np.asarray(truth.visible) >= LEAST_VISIBLE), axis=-1)


def all_from_the_start(truth: Sequences) -> bool:
    """Whether every object is there in the first frame already; False where that is not known."""
    if truth.ids is not None:
        ids = np.asarray(truth.ids)
        first = ids[:, :1, None, :]
        return bool(((ids[..., None] == first).any(-1) | (ids < 0)).all())
    if truth.counts is None:
        return False
    counts = np.asarray(truth.counts)
    return bool((counts == counts[:, :1]).all())

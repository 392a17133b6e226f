"""Counting: does the number of present slots equal the number of objects that are there, in sight or not?

Axes: S sequences, T frames, O objects, M possible counts, 0 to N.
"""

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from sqair.data import Sequences
from sqair.tracks.text import LEAST_VISIBLE

BINS = 10
"""Of equal width, in which probabilities are compared with what happened."""


def accuracy(distribution: Float[ndarray, "S T M"], counts: Int[ndarray, "S T"]) -> Float[ndarray, "S T"]:
    """The probability of the true count; 0 where there are more objects than slots."""
    slots = distribution.shape[-1] - 1
    chosen = np.take_along_axis(distribution, np.minimum(counts, slots)[..., None], -1)[..., 0]
    return np.where(counts <= slots, chosen, 0.0)


def mode_accuracy(distribution: Float[ndarray, "S T M"], counts: Int[ndarray, "S T"]) -> Float[ndarray, "S T"]:
    """1 where the most probable count is the true one."""
    return (distribution.argmax(-1) == counts).astype(np.float64)


def presence_error(distribution: Float[ndarray, "S T M"], counts: Int[ndarray, "S T"]) -> float:
    """The expected calibration error of presence, from the distribution of the number of objects.

    For each frame and each n from 1 to N, the probability of at least n objects is held against whether there are.
    Probabilities are put into ten bins; in each, the mean probability and the share of those that came true differ by
    something, and the error is the mean of that over all pairs.
    """
    slots = distribution.shape[-1] - 1
    probability = distribution[..., ::-1].cumsum(-1)[..., ::-1][..., 1:].ravel()
    happened = (counts[..., None] >= np.arange(1, slots + 1)).ravel()
    place = np.clip((probability * BINS).astype(int), 0, BINS - 1)
    gaps = np.bincount(place, probability - happened, BINS)
    return float(np.abs(gaps).sum() / len(probability))


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

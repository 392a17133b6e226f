"""What the labels say about a training: which of the six failures it really has. Only the benchmark looks at them.

Axes: S sequences, T frames, N slots, O digits.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray

from sqair.data import Sequences
from sqair.evaluation.counting import all_in_sight

OVERLAP = 0.1
"""Intersection over union with a digit from which on an object is not a ghost (DEFINITIONS: ghost)."""
MOST = 0.6
"""Share of the frames, or of the objects, that must have the failure."""
FEW = 0.15
"""Objects per digit that are none."""


class Sample(NamedTuple):
    """One sample of the posterior."""

    present: Float[Array, "*R S T N"]
    identity: Int[Array, "*R S T N"]
    boxes: Float[Array, "*R S T N 4"]
    """Left, top, width, height in pixels."""
    discovered: Float[Array, "*R S T"]
    canvas: Float[Array, "*R S T Y X C"]


def true_failure(sample: Sample, truth: Sequences, collapsed: bool) -> str | None:
    """The failure in frames where every digit is in sight, or None; `collapsed` tells that the bound is lost."""
    sight = all_in_sight(truth)
    counts = np.asarray(truth.counts)
    assert sight is not None
    objects, slots = sample.present.sum(-1), sample.present.shape[-1]
    some, one, two = (sight & (counts > 0)), (sight & (counts == 1)), (sight & (counts > 1))
    later = sight[:, 1:] & (counts[:, 1:] > 0)
    full = objects[sight & (counts < slots)] == slots
    haunted = 1 - matched(sample, truth)[sight].sum() / max(objects[sight].sum(), 1)
    signs = {
        "divergence": collapsed,
        "none used": objects[some].sum() < FEW * counts[some].sum(),
        "re-detection": sample.discovered[:, 1:][later].sum() > MOST * objects[:, 1:][later].sum(),
        "all slots used": full.mean() > MOST,
        "ghosts": haunted > MOST,
        "merged": (objects[one] >= 1).mean() > MOST and (objects[two] <= 1).mean() > MOST,
    }
    return next((name for name, is_so in signs.items() if is_so), None)


def matched(sample: Sample, truth: Sequences) -> Int[ndarray, "S T"]:
    """How many objects of each frame lie on a digit of their own: each digit takes the free object that fits best."""
    overlaps = intersection_over_union(np.asarray(sample.boxes), np.asarray(truth.boxes))
    free: Bool[ndarray, "S T N"] = np.asarray(sample.present) > 0
    count = np.zeros(free.shape[:2], int)
    for digit in range(overlaps.shape[-1]):
        fits = np.where(free, overlaps[..., digit], 0.0)
        best = fits.argmax(-1)[..., None]
        taken = np.take_along_axis(fits, best, -1) >= OVERLAP
        count += taken[..., 0]
        np.put_along_axis(free, best, np.take_along_axis(free, best, -1) & ~taken, -1)
    return count


def intersection_over_union(
    boxes: Float[ndarray, "S T N 4"], others: Float[ndarray, "S T O 4"]
) -> Float[ndarray, "S T N O"]:
    """Of each box with each of the others; 0 where either is absent (NaN)."""
    a, b = boxes[..., :, None, :], others[..., None, :, :]
    low = np.maximum(a[..., :2], b[..., :2])
    high = np.minimum(a[..., :2] + a[..., 2:], b[..., :2] + b[..., 2:])
    shared = np.clip(high - low, 0, None).prod(-1)
    union = a[..., 2:].prod(-1) + b[..., 2:].prod(-1) - shared
    return np.nan_to_num(shared / union)

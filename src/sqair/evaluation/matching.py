"""Which boxes of a model are which true objects, frame by frame.

Axes: T frames, O true objects, N slots, 4 left, top, width, height in pixels.
"""

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from sqair.evaluation.boxes import MATCH_IOU
from sqair.evaluation.tracking import box_iou


def match(
    true: Float[ndarray, "O 4"],
    boxes: Float[ndarray, "N 4"],
    size: tuple[int, ...],
    seen: Bool[ndarray, " O"] | None = None,
) -> list[tuple[int, int]]:
    """Pairs of a true object and a slot in one frame, one to one, by the largest sum of overlaps, none below 0.5.

    True boxes are clipped to the frame, (height, width); those not `seen` have no pair, nor have boxes that are NaN.
    """
    from scipy.optimize import linear_sum_assignment

    low = np.clip(true[..., :2], 0, size[1::-1])
    sides = np.clip(true[..., :2] + true[..., 2:], 0, size[1::-1]) - low
    with np.errstate(invalid="ignore"):  # a box may be nowhere, or lie out of the frame and have no area
        overlap = np.nan_to_num(box_iou(np.concatenate([low, sides], -1), boxes))
    allowed = overlap >= MATCH_IOU
    allowed &= True if seen is None else seen[:, None]
    pairs = zip(*linear_sum_assignment(-np.where(allowed, overlap, 0.0)), strict=True)
    return [(int(place), int(slot)) for place, slot in pairs if allowed[place, slot]]

"""What boxes have in common. Axes: n, m boxes, 4 left, top, width, height."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray


def iou(a: Float[ndarray, "n 4"], b: Float[ndarray, "m 4"]) -> Float[ndarray, "n m"]:
    """Intersection over union of all pairs."""
    both = common(a, b)
    union = (a[:, 2] * a[:, 3])[:, None] + b[:, 2] * b[:, 3] - both
    return both / np.maximum(union, 1e-9)


def within(a: Float[ndarray, "n 4"], b: Float[ndarray, "m 4"]) -> Float[ndarray, "n m"]:
    """Which share of the first lies in the second, of all pairs."""
    return common(a, b) / np.maximum(a[:, 2] * a[:, 3], 1e-9)[:, None]


def common(a: Float[ndarray, "n 4"], b: Float[ndarray, "m 4"]) -> Float[ndarray, "n m"]:
    """The area that both have."""
    low = np.maximum(a[:, None, :2], b[:, :2])
    high = np.minimum(a[:, None, :2] + a[:, None, 2:], b[:, :2] + b[:, 2:])
    return np.prod(np.clip(high - low, 0, None), -1)


def middles(boxes: Float[ndarray, "*n 4"]) -> Float[ndarray, "*n 2"]:
    """x and y of their middles."""
    return boxes[..., :2] + boxes[..., 2:] / 2

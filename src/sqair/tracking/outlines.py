"""Sharp boxes: an object says where about a thing is, the foreground says where it ends.

A decoder blurs edges, and a model's picture is smaller than the clip's. Foreground is sharp, in the clip's own pixels,
but does not tell one thing from another. So foreground in an object's box and a little beyond is the object's own if no
other object is nearer, in units of its size; its box is that of those pixels. Pieces that lie mostly beyond the
object's box are somebody else's. Where too little foreground is left, behind another or where a mask has a hole, the
object's own box stays.

Axes: H, W a frame, h, w a part of it, n objects, 4 left, top, width, height in pixels of the frame.
"""

import numpy as np
from jaxtyping import Bool, Float, Float32
from numpy import ndarray

from sqair.tracking.boxes import middles

BEYOND = 0.15
"""How far beyond its box an object's foreground may reach, as a share of the box, on each side."""
ENOUGH = 0.075
"""Share of a box that must be foreground of its own to say where it ends."""


def outlined(boxes: Float32[ndarray, "n 4"], foreground: Bool[ndarray, "H W"]) -> Float32[ndarray, "n 4"]:
    """The boxes of the foreground that belongs to each object."""
    grown = np.concatenate([boxes[:, :2] - BEYOND * boxes[:, 2:], (1 + 2 * BEYOND) * boxes[:, 2:]], 1)
    limits = foreground.shape[::-1]
    low = np.floor(np.clip(grown[:, :2], 0, limits)).astype(int)
    high = np.ceil(np.clip(grown[:, :2] + grown[:, 2:], 0, limits)).astype(int)
    sharp = boxes.copy()
    for number, ((left, top), (right, bottom)) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        is_near = np.all((low < (right, bottom)) & (high > (left, top)), axis=1) & (np.arange(len(boxes)) != number)
        own = foreground[top:bottom, left:right] & _nearest(boxes[number], boxes[is_near], left, top, right, bottom)
        own = _mostly_inside(own, boxes[number] - np.array([left, top, 0, 0], np.float32))
        if own.sum() > ENOUGH * boxes[number, 2:].prod():
            (first, last), (upper, lower) = (_ends(np.any(own, axis=axis)) for axis in (0, 1))
            sharp[number] = left + first, top + upper, last - first, lower - upper
    return sharp


def _nearest(
    box: Float32[ndarray, " 4"], others: Float32[ndarray, "m 4"], left: int, top: int, right: int, bottom: int
) -> Bool[ndarray, "h w"]:
    """Where in a part of the frame no other box is nearer, in units of its width and height."""
    x, y = np.arange(left, right) + 0.5, np.arange(top, bottom) + 0.5

    def far(box: Float32[ndarray, " 4"]) -> Float[ndarray, "h w"]:
        across, down = middles(box)
        return np.square((x - across) / box[2])[None] + np.square((y - down) / box[3])[:, None]

    nearest = np.ones((bottom - top, right - left), bool)
    for other in others:
        nearest &= far(box) <= far(other)
    return nearest


def _mostly_inside(own: Bool[ndarray, "h w"], box: Float32[ndarray, " 4"]) -> Bool[ndarray, "h w"]:
    """Without connected pieces of which half or more lies outside of the box."""
    import cv2

    if not own.any():  # OpenCV cannot take an empty part of a frame
        return own
    count, found = cv2.connectedComponents(own.astype(np.uint8), connectivity=8)
    pieces = np.asarray(found, np.int32)
    y, x = (np.arange(side) + 0.5 for side in own.shape)
    across, down = (x > box[0]) & (x < box[0] + box[2]), (y > box[1]) & (y < box[1] + box[3])
    inside = np.bincount(pieces[np.ix_(down, across)].ravel(), minlength=count)
    is_kept = inside > 0.5 * np.bincount(pieces.ravel(), minlength=count)
    is_kept[0] = False
    return is_kept[pieces]


def _ends(line: Bool[ndarray, " n"]) -> tuple[int, int]:
    """The first true entry, and the one after the last."""
    places = np.flatnonzero(line)
    return int(places[0]), int(places[-1]) + 1

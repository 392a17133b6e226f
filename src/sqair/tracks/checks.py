"""What must hold for tracks. Everything here may be given by a stranger's file.

Axes: n rows.
"""

import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from sqair.config import UserError

MOST_FRAMES = 50_000_000
"""Frames of a clip, 19 days at 30 frames/s: a small file must not make who counts by frame allocate more."""
MOST_ID = 2**31 - 1
"""The largest identity."""
COLUMNS: dict[str, type] = {
    **dict.fromkeys(("frame", "id"), np.int64),
    **dict.fromkeys(("box", "where", "presence", "spread"), np.float32),
}
"""The arrays of a `Tracks` and their types."""


def as_column(name: str, values: Any, kind: type) -> ndarray:
    """`values` as a new array of a type that loses nothing but a float's digits."""
    try:
        array = np.array(values)
        if kind is np.int64 and array.size and array.dtype.kind not in "iu":
            raise UserError(f"`{name}` of tracks must be integers, not {array.dtype}")
        with np.errstate(over="ignore"):
            return array.astype(kind)
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"`{name}` of tracks must be an array of numbers") from error


def check_lengths(arrays: Mapping[str, ndarray]) -> None:
    """Refuse columns that do not fit each other."""
    rows = arrays["frame"].shape[0] if arrays["frame"].ndim == 1 else -1
    for name, array in arrays.items():
        wanted = (rows, 4) if name in ("box", "where") else (rows,)
        if array.shape != wanted:
            raise UserError(f"`{name}` of tracks has shape {array.shape}; beside {rows} frames it must be {wanted}")


def check_clip(frames: Any, size: Any, rate: Any, source: Any) -> None:
    """Refuse facts about the clip that cannot be."""
    if not _is_integer(frames) or not 0 <= frames <= MOST_FRAMES:
        raise UserError(f"`frames` of tracks must be a number from 0 to {MOST_FRAMES}, not {_short(frames)}")
    if size is not None and not (
        isinstance(size, tuple) and len(size) == 2 and all(_is_integer(side) and 1 <= side < 2**31 for side in size)
    ):
        raise UserError(f"`size` of tracks must be (height, width) in pixels, not {_short(size)}")
    number = isinstance(rate, float | int) and not isinstance(rate, bool)
    if rate is not None and not (number and 0 < rate <= sys.float_info.max):
        raise UserError(f"`rate` of tracks must be a positive number of frames per second, not {_short(rate)}")
    if not isinstance(source, str):
        raise UserError("`source` of tracks must be text")


def check_rows(arrays: Mapping[str, ndarray], frames: int) -> None:
    """Refuse rows that cannot be, by the frame and id of the first."""
    for row in np.flatnonzero(bad_rows(arrays, frames))[:1].tolist():
        frame, id = arrays["frame"][row], arrays["id"][row]
        raise UserError(
            f"object {id} in frame {frame} of {frames} is not a valid row of tracks: {problem(arrays, row)}"
        )


def bad_rows(arrays: Mapping[str, ndarray], frames: int) -> Bool[ndarray, " n"]:
    """Rows that break a rule of tracks."""
    frame, id = arrays["frame"], arrays["id"]
    bad = (frame < 0) | (frame >= frames) | (id < 0) | (id > MOST_ID)
    for box in (arrays["box"], arrays["where"]):
        usual = np.isfinite(box).all(1) & (box[:, 2:] > 0).all(1)
        bad |= ~(usual | np.isnan(box).all(1))
    presence, spread = arrays["presence"], arrays["spread"]
    bad |= ~(np.isnan(presence) | ((presence >= 0) & (presence <= 1)))
    return bad | ~(np.isnan(spread) | ((spread >= 0) & np.isfinite(spread)))


def problem(arrays: Mapping[str, ndarray], row: int) -> str:
    """What is wrong with a row that `bad_rows` found, in words."""
    for name in ("box", "where"):
        box = arrays[name][row]
        if not np.isnan(box).all() and not (np.isfinite(box).all() and (box[2:] > 0).all()):
            return f"{name} needs four finite numbers, with a positive width and height"
    if not (np.isnan(arrays["presence"][row]) or 0 <= arrays["presence"][row] <= 1):
        return "presence must be between 0 and 1"
    spread = arrays["spread"][row]
    if not (np.isnan(spread) or 0 <= spread < math.inf):
        return "spread must be at least 0 and finite"
    return "the frame lies outside the clip, or the id is negative or too large"


def check_unique(frame: ndarray, id: ndarray) -> None:
    """Refuse an identity that is twice in a frame; rows are sorted."""
    for row in np.flatnonzero((frame[1:] == frame[:-1]) & (id[1:] == id[:-1]))[:1].tolist():
        raise UserError(f"object {id[row]} is twice in frame {frame[row]}")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**20 else "a huge number"
    return text if len(text) <= 40 else text[:37] + "..."

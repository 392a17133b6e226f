"""Windows that are cut out of a clip, with the objects in them, and a uniform choice of windows.

An object belongs to a window if the centre of its box lies in it. Axes: L frames of a sequence, C windows, n objects, 4
left, top, width, height in pixels.
"""

import functools
import math
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float32, Int, Int64, UInt8
from numpy import ndarray

T = TypeVar("T")


class Moment(NamedTuple):
    """A scaled frame and the objects in it."""

    picture: UInt8[ndarray, "*size"]
    ids: Int64[ndarray, " n"]
    """-1 for blobs, which have no identity."""
    boxes: Float32[ndarray, "n 4"]
    scene: UInt8[ndarray, "*size"] | None = None
    """What it would show without them, where raw frames are wanted."""
    cover: Float32[ndarray, "H W"] | None = None
    """How much of each pixel is foreground."""
    is_one: Bool[ndarray, " n"] | None = None
    """Which blobs are not larger than one thing; None where it is not known how large things are."""

    @property
    def centres(self) -> Float32[ndarray, "n 2"]:
        """x and y."""
        return self.boxes[:, :2] + self.boxes[:, 2:] / 2


class Piece(NamedTuple):
    """A sequence and the truth about it: for each frame identities and boxes, in pixels of the window."""

    frames: UInt8[ndarray, "L *size"]
    objects: list[tuple[Int64[ndarray, " n"], Float32[ndarray, "n 4"]]]
    scene: UInt8[ndarray, "*size"] | None
    """What the first frame would show without them."""
    corner: tuple[int, int]
    """Left and top of the first frame's window."""
    most_objects: Int[ndarray, " L"]
    """No more things than so many are there; -1 where that is not known."""


def draw_windows(
    rng: np.random.Generator, seen: list[Moment], count: int, crop: tuple[int, int], moving: bool, beyond: float = 0.0
) -> Int[ndarray, "C L 2"]:
    """Left and top of some windows in each frame: uniform over the frame and still, or going along with an object.

    Still ones may reach `beyond` the frame, by a share of their sides.
    """
    height, width = seen[0].picture.shape[:2]
    limits = np.array([width - crop[1], height - crop[0]], int)
    over = (beyond * np.array(crop[::-1])).astype(int)
    still = rng.integers(-over, limits + over + 1, (count, 1, 2)).repeat(len(seen), 1)
    if not moving or not len(seen[0].boxes):
        return still
    share = np.linspace(0, 1, len(seen))[:, None]
    whom = rng.integers(len(seen[0].boxes), size=count).tolist()
    centres = np.array([(seen[0].centres[who], followed(seen, who)) for who in whom], np.float64)
    ends = centres - np.array(crop[::-1]) * rng.uniform(0.1, 0.9, centres.shape)
    ends = np.clip(ends, 0, limits)
    return np.round(ends[:, :1] * (1 - share) + ends[:, 1:] * share).astype(int)


def followed(seen: list[Moment], who: int) -> Float32[ndarray, "2"]:
    """Where an object of the first frame is in the last: by its identity, or from nearest to nearest."""
    place, id = seen[0].centres[who], seen[0].ids[who]
    for moment in seen[1:]:
        same = moment.centres[moment.ids == id]
        if len(same):
            place = same[np.square(same - place).sum(1).argmin()]
    return place


def inside(seen: list[Moment], windows: Int[ndarray, "C L 2"], crop: tuple[int, int]) -> Int[ndarray, "C L"]:
    """How many objects have their centre in each window."""
    return np.stack([held(moment, windows[:, t], crop).sum(1) for t, moment in enumerate(seen)], 1)


def held(moment: Moment, corners: Int[ndarray, "C 2"], crop: tuple[int, int]) -> Bool[ndarray, "C n"]:
    """Which objects of a frame have their centre in which windows."""
    place = moment.centres[None] - corners[:, None]
    within = (place >= 0) & (place < np.array(crop[::-1]))
    return within[..., 0] & within[..., 1]


def cut_out(seen: list[Moment], window: Int[ndarray, "L 2"], crop: tuple[int, int]) -> Piece:
    """The pixels of a window and the objects in it."""
    frames, objects = [], []
    for moment, (left, top) in zip(seen, window.tolist(), strict=True):
        frames.append(pixels(moment.picture, left, top, crop))
        mine = held(moment, np.array([[left, top]]), crop)[0]
        objects.append((moment.ids[mine], moment.boxes[mine] - np.array([left, top, 0, 0], np.float32)))
    left, top = window[0].tolist()
    scene = seen[0].scene
    scene = None if scene is None else pixels(scene, left, top, crop)
    return Piece(np.stack(frames), objects, scene, (left, top), most_objects(seen, window, crop))


def most_objects(seen: list[Moment], window: Int[ndarray, "L 2"], crop: tuple[int, int]) -> Int[ndarray, " L"]:
    """How many things there are in a window at most; -1 where that is not known.

    As many as blobs reach into it, where none of these is larger than one thing. Between two frames in which there are
    more, or it is not known, there may be as many: one can be hidden by another.
    """
    counts = np.array([blobs_in(moment, corner, crop) for moment, corner in zip(seen, window, strict=True)])
    so_far, from_now = np.maximum.accumulate(counts), np.maximum.accumulate(counts[::-1])[::-1]
    most = np.minimum(so_far, from_now)
    return np.where(np.isinf(most), -1, most).astype(int)


def blobs_in(moment: Moment, corner: Int[ndarray, "2"], crop: tuple[int, int]) -> float:
    """How many blobs reach into a window; infinitely many where one of them may be several things."""
    if moment.is_one is None:
        return math.inf
    low = moment.boxes[:, :2] - corner
    reach = ((low < np.array(crop[::-1])) & (low + moment.boxes[:, 2:] > 0)).all(1)
    return float(reach.sum()) if moment.is_one[reach].all() else math.inf


def pixels(picture: UInt8[ndarray, "*size"], left: int, top: int, crop: tuple[int, int]) -> UInt8[ndarray, "*crop"]:
    """What a picture shows in a window, black beyond its edges."""
    part = picture[max(0, top) : max(0, top + crop[0]), max(0, left) : max(0, left + crop[1])]
    if part.shape[:2] == crop:
        return part
    whole = np.zeros((*crop, *picture.shape[2:]), picture.dtype)
    down, right = max(0, -top), max(0, -left)
    whole[down : down + part.shape[0], right : right + part.shape[1]] = part
    return whole


def visible_share(boxes: Float32[ndarray, "*n 4"], size: tuple[int, ...]) -> Float32[ndarray, "*n"]:
    """The part of each box inside a frame of (height, width); 0 where there is no box."""
    low = np.clip(boxes[..., :2], 0, size[::-1])
    high = np.clip(boxes[..., :2] + boxes[..., 2:], 0, size[::-1])
    return np.nan_to_num((high - low).prod(-1) / boxes[..., 2:].prod(-1)).astype(np.float32)


class Reservoir(Generic[T]):
    """Keeps `size` of all things offered, each with the same probability (Vitter's algorithm R)."""

    items: list[T]

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self.size, self.rng = size, rng
        self.items, self.offered = [], 0

    def place(self) -> Callable[[T], None] | None:
        """Where to put the next thing offered; None if it is not among those kept, so that it need not be made."""
        self.offered += 1
        if len(self.items) < self.size:
            return self.items.append
        place = int(self.rng.integers(self.offered))
        return functools.partial(self.items.__setitem__, place) if place < self.size else None

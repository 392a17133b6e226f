"""A look at a clip before a model is made for it: how large things are, how many, how they move, and what is amiss.

The clip is read twice. The first reading learns the background and watches the camera: whether it stands still
(stillness.py). The second finds blobs of foreground and follows each from frame to frame, nearest to nearest, while
its size hardly changes. Only blobs that go somewhere count as things: leaves and noise stay where they are.

Axes: n blobs, 4 left, top, width, height in pixels of the clip.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32
from numpy import ndarray

from sqair.config import UserError
from sqair.data.background import Foreground, Picture, Subtraction, find_blobs
from sqair.data.camera import Quantiles, Sizes, scene_of
from sqair.data.frames import between, to_grey
from sqair.data.stillness import Stillness
from sqair.data.video import Clip, Frame

LEAST_FRAMES = 10
"""Fewer are not enough to tell a background from what moves before it."""
LEAST_LIFE = 4
"""Frames for which a blob must be followed."""
LEAST_AREA = 5e-5
"""Share of the frame below which a blob is a speck."""
WENT = 0.3
"""A blob that ends less than this far from its start, in its own sizes, did not move."""
ALIKE = 1.6
"""A blob may become so many times larger or smaller from one frame to the next and be taken for the same."""
FULL = 0.8
"""A thing is always at least as long as this quantile of its lengths: now and then subtraction loses a head."""
FRAGMENT = 0.25
"""Blobs with less than this share of the usual area are pieces, and are not counted."""
LEVELS = (0.1, 0.5, 0.9)
SPARSE = 10
"""Of so many frames one tells of the contrast."""
DRIFT, SHAKE = 0.15, 0.015
"""A camera that wanders, or jumps, by this share of the frame's width is none that stands still ..."""
FLOODED = 0.5
"""... nor is one where this share of the picture is foreground most of the time ..."""
MANY_CUTS = 0.02
"""... or this share of all frames are cuts."""
LEAST_SHAKE, SHAKING, WANDERING = 0.6, 0.002, 0.06
"""Shaking is remarked upon from so many pixels, and this share of the width, on; wandering from the last."""


@dataclass(frozen=True)
class Survey:
    """What was seen."""

    name: str
    size: tuple[int, int]
    """Height and width of the clip."""
    part: tuple[int, int]
    """The longest part without a cut: its first frame, and the one after its last."""
    frames: int
    """In the whole clip, as far as it was to be used."""
    cuts: int
    shake: float
    """How far the picture as a whole jumps from frame to frame, in pixels: the median."""
    drift: float
    """How far it wanders in all, in pixels."""
    noise: float
    """Standard deviation of a pixel where nothing moves, in grey levels."""
    foreground: float
    """Median share of pixels that are foreground."""
    brightness: float
    """Mean of foreground pixels, as the subtraction shows them."""
    busy: float
    """Share of frames in which something moves."""
    counts: Quantiles
    """Things in a frame that has any."""
    motion: Quantiles
    """How far a thing goes from frame to frame, in its own sizes (the root of its area)."""
    objects: Sizes | None
    """How large things are; None where nothing moves."""
    scene: tuple[float, ...] = ()
    """What the background looks like, for `Camera.scene`."""
    contrast: float = 0.0
    """How much foreground pixels differ from their background, in the mean."""


class Things(NamedTuple):
    """The part of a survey that blobs tell."""

    foreground: float
    brightness: float
    busy: float
    counts: Quantiles
    motion: Quantiles
    objects: Sizes | None


@dataclass
class Life:
    """A blob, followed for a while."""

    first: Float32[ndarray, "4"]
    last: Float32[ndarray, "4"]
    frames: int = 1
    sides: list[tuple[float, float]] = field(default_factory=list)
    """Width and height wherever it was seen whole and alone."""

    @property
    def step(self) -> float:
        """How far it went per frame, in its own sizes."""
        size = float(np.sqrt(self.last[2:].prod() * self.first[2:].prod()) ** 0.5)
        return float(np.hypot(*(centres(self.last[None]) - centres(self.first[None]))[0])) / size / (self.frames - 1)

    @property
    def way(self) -> float:
        """How far it went in all, in its own sizes."""
        return self.step * (self.frames - 1) if self.frames > 1 else 0.0

    @property
    def went(self) -> bool:
        """Whether it lasted, and got anywhere."""
        return self.frames >= LEAST_LIFE and self.way >= WENT

    def full_sides(self) -> Float[ndarray, "n 2"]:
        """Its sides, the longer one where it lost a part made good."""
        sides = np.array(self.sides, np.float64).reshape(-1, 2)
        if len(sides):
            axis = int(np.median(sides, 0).argmax())
            sides[:, axis] = np.maximum(sides[:, axis], np.quantile(sides[:, axis], FULL))
        return sides


def survey(clip: Clip, subtraction: Subtraction, start: int = 0, stop: int = 0) -> Survey:
    """Look at the frames `start` to `stop` of a clip, that one excluded; a `stop` of 0 is the end."""
    clip = between(clip, start, stop)
    stillness, foreground = Stillness(clip.size), Foreground(subtraction)
    total = foreground.warm(stillness.watch(clip))
    if total < LEAST_FRAMES:
        raise UserError(
            f"{clip.name} has {total} {'frame' if total == 1 else 'frames'}, and to learn a camera takes "
            f"{LEAST_FRAMES} at the very least, better some hundreds; give a longer clip"
        )
    first, after = stillness.longest_part()
    if (first, after) != (0, total):
        clip, foreground = between(clip, first, after), Foreground(subtraction)
        foreground.warm(clip)
    blobs = Blobs(clip.size)
    contrasts = []
    for number, frame in enumerate(clip):
        blobs.add(foreground.push(frame), foreground.mask)
        if number % SPARSE == 0 and foreground.mask.any():
            contrasts.append(contrast_of(frame, foreground))
    return Survey(
        name=clip.name,
        size=clip.size,
        part=(start + first, start + after),
        frames=total,
        cuts=len(stillness.cuts),
        shake=stillness.shake(first, after),
        drift=stillness.drift(first, after),
        noise=stillness.noise(),
        scene=scene_of(foreground.background),
        contrast=float(np.mean(contrasts)) if contrasts else 0.0,
        **blobs.summary()._asdict(),
    )


def contrast_of(frame: Frame, foreground: Foreground) -> float:
    """How much the foreground of the last frame differs from what is behind it, from 0 to 1."""
    difference = to_grey(frame).astype(np.float32) - to_grey(foreground.background)
    return float(np.abs(difference[foreground.mask]).mean()) / 255


def check_survey(seen: Survey) -> None:
    """Refuse a clip that no model of a fixed camera can be learnt from."""
    width, length = seen.size[1], seen.part[1] - seen.part[0]
    turns = max(seen.drift / DRIFT, seen.shake / SHAKE) >= width or seen.foreground >= FLOODED
    if turns or seen.cuts > max(2, MANY_CUTS * seen.frames):
        raise UserError(
            f"{seen.name} does not look like a fixed camera: the whole picture moves or changes (it wanders by "
            f"{seen.drift:.0f} pixels, {seen.cuts} cuts); use a camera on a stand, or a part of the clip with --start "
            "and --stop"
        )
    if length < LEAST_FRAMES:
        raise UserError(f"{seen.name} has no part of {LEAST_FRAMES} frames without a cut; give a longer clip")
    if seen.objects is None:
        shaken = ", or its shaking hides what does" if is_shaking(seen) else ""
        raise UserError(
            f"nothing moves in {seen.name}{shaken}; give a longer clip, or lower --subtraction.threshold (below 16) "
            "if things hardly differ from their background"
        )


def remarks(seen: Survey) -> list[str]:
    """What is amiss with a clip but can be lived with."""
    said = []
    if seen.cuts:
        first, after = seen.part
        cuts = "a cut" if seen.cuts == 1 else f"{seen.cuts} cuts"
        said.append(f"there {'is' if seen.cuts == 1 else 'are'} {cuts}; only frames {first} to {after - 1} are used")
    if is_shaking(seen):
        said.append(
            f"the camera shakes by about {seen.shake:.1f} pixels; hold it still, or expect false finds at edges"
        )
    elif seen.drift >= WANDERING * seen.size[1]:
        said.append(f"the camera seems to wander by about {seen.drift:.0f} pixels; a shorter part may do better")
    return said


def is_shaking(seen: Survey) -> bool:
    """Whether the picture jumps as a whole."""
    return seen.shake >= max(LEAST_SHAKE, SHAKING * seen.size[1])


class Blobs:
    """Follows blobs of foreground through a clip."""

    def __init__(self, size: tuple[int, int]) -> None:
        self.size = size
        self.least = max(4, round(LEAST_AREA * size[0] * size[1]))
        self.lives: list[Life] = []
        self.present: list[Life] = []
        self.areas: list[Float32[ndarray, " n"]] = []
        self.shares: list[float] = []
        self.light: list[float] = []

    def add(self, shown: Picture, mask: Bool[ndarray, "H W"]) -> None:
        """The next frame: its foreground, and where that is."""
        boxes = find_blobs(mask, self.least)
        self.shares.append(float(mask.mean()))
        if mask.any():
            self.light.append(float(to_grey(shown)[mask].mean()))
        self.areas.append(boxes[:, 2:].prod(1))
        self._follow(boxes)

    def _follow(self, boxes: Float32[ndarray, "n 4"]) -> None:
        """Give each blob to the life that it continues, the nearest pairs first; the others begin one."""
        partners = pairs(np.array([life.last for life in self.present], np.float32).reshape(-1, 4), boxes)
        whole = are_whole(boxes, self.size)
        present = []
        for place, box in enumerate(boxes):
            life = self.present[partners[place]] if place in partners else Life(box, box, 0)
            if life.frames == 0:
                self.lives.append(life)
            life.last, life.frames = box, life.frames + 1
            if whole[place]:
                life.sides.append((float(box[2]), float(box[3])))
            present.append(life)
        self.present = present

    def summary(self) -> Things:
        """What they tell."""
        moving = [life for life in self.lives if life.went]
        objects = sizes_of(moving) if sum(len(life.sides) for life in moving) >= LEAST_LIFE else None
        usual = 1.0 if objects is None else objects.width[1] * objects.height[1]
        counts = np.array([int((areas >= FRAGMENT * usual).sum()) for areas in self.areas])
        steps = np.repeat([life.step for life in moving], [life.frames for life in moving])
        return Things(
            foreground=float(np.median(self.shares)),
            brightness=float(np.mean(self.light)) if self.light else 0.0,
            busy=float((counts > 0).mean()) if objects else 0.0,
            counts=quantiles(counts[counts > 0]),
            motion=quantiles(steps),
            objects=objects,
        )


def pairs(old: Float32[ndarray, "m 4"], new: Float32[ndarray, "n 4"]) -> dict[int, int]:
    """For each new blob that continues an old one, which: alike in size, and nearer than its longer side."""
    if not len(old) or not len(new):
        return {}
    apart = np.hypot(*np.moveaxis(centres(new)[:, None] - centres(old)[None], -1, 0))
    ratio = np.abs(np.log(new[:, None, 2:] / old[None, :, 2:])).max(-1)
    near = (apart <= np.maximum(new[:, None, 2:], old[None, :, 2:]).max(-1)) & (ratio <= np.log(ALIKE))
    found: dict[int, int] = {}
    for place in np.argsort(np.where(near, apart, np.inf), axis=None)[: int(near.sum())]:
        mine, its = divmod(int(place), len(old))
        if mine not in found and its not in found.values():
            found[mine] = its
    return found


def centres(boxes: Float32[ndarray, "n 4"]) -> Float32[ndarray, "n 2"]:
    """x and y."""
    return boxes[:, :2] + boxes[:, 2:] / 2


def are_whole(boxes: Float32[ndarray, "n 4"], size: tuple[int, int]) -> Bool[ndarray, " n"]:
    """Which blobs touch neither an edge of the frame nor the box of another that is not a speck beside them."""
    low, high = boxes[:, :2], boxes[:, :2] + boxes[:, 2:]
    inside = (low > 1).all(1) & (high < np.array(size[::-1]) - 1).all(1)
    touch = ((low[:, None] <= high[None]) & (low[None] <= high[:, None])).all(-1)
    areas = boxes[:, 2:].prod(1)
    return inside & ((touch & (areas[None] >= FRAGMENT * areas[:, None])).sum(1) == 1)


def sizes_of(lives: list[Life]) -> Sizes:
    """Quantiles of widths and heights, each blob weighted by the way that it went, in pixels.

    By number alone the pieces of large things would outweigh them; by area, groups that walk as one blob would. What
    is whole and alone goes far before it breaks up or meets another.
    """
    sides = np.concatenate([life.full_sides() for life in lives])
    ways = np.repeat([life.way for life in lives], [len(life.sides) for life in lives])
    weights = ways * np.sqrt(sides.prod(1))
    width, height = (weighted_quantiles(sides[:, axis], weights) for axis in (0, 1))
    return Sizes(width, height)


def weighted_quantiles(values: Float[ndarray, " n"], weights: Float[ndarray, " n"]) -> Quantiles:
    """The values up to which a tenth, a half and nine tenths of the weight lie."""
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    low, middle, high = (float(values[order][np.searchsorted(share, level)]) for level in LEVELS)
    return low, middle, high


def quantiles(values: ndarray) -> Quantiles:
    """The same of values that weigh alike; zeros where there are none."""
    if not len(values):
        return 0.0, 0.0, 0.0
    low, middle, high = np.quantile(values, LEVELS).tolist()
    return low, middle, high

"""Two made cameras with exact truth, for tests, documents and measurements: `street` and `crossings`.

Walkers (walkers.py) cross a textured scene that stands still. The light drifts slowly, walkers throw soft shadows to
one side, and the sensor adds noise. `street`: people on the pavements and the road of a street, who pass left and
right; nearer ones are in front. `crossings`: a square where many go from any edge to another and pass through the
middle; who came later is in front.

True boxes are amodal: the tight box of the whole walker, what others hide included, clipped to the frame. A tracker is
asked where things are, not how much of them is uncovered; boxes of the visible part would jump at every crossing.
Shadows belong to nobody. Of whom less than a quarter lies in the frame is ignored, as everywhere (DEFINITIONS).

Frame t depends on the camera and t only, so that a clip of any length takes no memory. Axes: H, W a frame, n boxes.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int64
from numpy import ndarray

from sqair.config import UserError
from sqair.data.scenery import GREY, draw_scene, light, put, shade
from sqair.data.video import Clip, Frame
from sqair.data.walkers import HALF_WIDTH, Looks, Sprite, choose_looks, draw_walker
from sqair.files import written_atomically
from sqair.tracks import Tracks, Truth
from sqair.tracks.text import LEAST_VISIBLE

Scene = Literal["street", "crossings"]
USUAL: dict[Scene, int] = {"street": 4, "crossings": 8}
"""Walkers at once unless another number is asked for."""
HEIGHT = 0.2
"""A walker's height as a share of the frame's, at scale 1 and half way down."""
SPEED = (0.005, 0.01)
"""Slowest and fastest, in widths of the frame per frame."""
GAP = (5, 40)
"""Frames until the next one comes after one has left."""
NOISE = 2.5
"""Standard deviation of the sensor's noise in grey levels."""


class Walk(NamedTuple):
    """One walker and its way: straight, from out of sight to out of sight."""

    looks: Looks
    start: int
    """The frame in which it sets out; before 0 for those that are on their way when the clip begins."""
    begin: tuple[float, float]
    """Where its feet are then, x and y."""
    end: tuple[float, float]
    frames: int
    """How long it takes."""

    def sprite(self, frame: int) -> Sprite | None:
        """How it looks in a frame; None before and after its walk."""
        share = (frame - self.start) / self.frames
        if not 0 <= share < 1:
            return None
        (x, y), (right, down) = self.begin, self.end
        walked = share * float(np.hypot(right - x, down - y))
        return draw_walker(
            self.looks, x + share * (right - x), y + share * (down - y), walked, 1.0 if right > x else -1.0
        )


class Boxes(NamedTuple):
    """The truth about one frame."""

    ids: Int64[ndarray, " n"]
    boxes: Float32[ndarray, "n 4"]
    """Left, top, width, height, clipped to the frame."""
    visible: Float[ndarray, " n"]
    """Share of a box inside the frame."""


@dataclass(frozen=True)
class Camera:
    """A made camera; the same values give the same clip everywhere."""

    scene: Scene = "street"
    frames: int = 600
    size: tuple[int, int] = (240, 320)
    """Height and width."""
    objects: int = 0
    """Walkers at once, at most; 0 for the scene's usual number, 4 on the street and 8 at the crossings."""
    scale: float = 1.0
    """Size of walkers; 1 makes them a fifth of the frame's height."""
    seed: int = 0
    colour: bool = False
    rate: float = 10.0

    def __post_init__(self) -> None:
        if self.frames < 1 or min(self.size) < 16 or self.objects < 0 or not 0.05 <= self.scale <= 4:
            raise UserError("a made camera needs a frame, sides of at least 16 pixels, and a scale from 0.05 to 4")

    def frame(self, number: int) -> Frame:
        """Frame `number`, from 0."""
        seen, sprites = self._ground.copy(), [sprite for _, sprite in self._present(number)]
        for sprite in sprites:
            shade(seen, sprite.box)
        for sprite in sprites:
            put(seen, sprite)
        seen *= light(number, self.seed)
        pixels = 255 * (seen if self.colour else seen @ GREY)
        pixels += np.random.default_rng((self.seed, 2, number)).normal(0, NOISE, pixels.shape)
        return np.clip(np.round(pixels), 0, 255).astype(np.uint8)

    def boxes(self, number: int) -> Boxes:
        """The truth about frame `number`: those of whom at least a pixel lies in it."""
        present = self._present(number)
        full = np.array([sprite.box for _, sprite in present], np.float64).reshape(-1, 4)
        low = np.clip(full[:, :2], 0, self.size[::-1])
        sides = np.clip(full[:, :2] + full[:, 2:], 0, self.size[::-1]) - low
        seen = (sides > 0).all(1)
        ids = np.array([id for id, _ in present], np.int64)[seen]
        boxes = np.concatenate([low, sides], 1)[seen].astype(np.float32)
        return Boxes(ids, boxes, (sides.prod(1) / full[:, 2:].prod(1))[seen])

    def clip(self) -> Clip:
        """The frames as a clip like any other."""

        def read(notes: list[str]) -> Iterator[Frame]:
            return map(self.frame, range(self.frames))

        return Clip(f"{self.scene} {self.seed}", self.size, self.rate, self.frames, read)

    def truth(self) -> Truth:
        """The truth about the whole clip; ids are numbered in the order of coming."""
        found = [self.boxes(number) for number in range(self.frames)]
        ids, boxes, visible = (np.concatenate(column) for column in zip(*found, strict=True))
        frame = np.repeat(np.arange(self.frames), [len(each.ids) for each in found])
        clip = self.clip()
        tracks = Tracks.make(frame, ids, boxes, frames=self.frames, size=clip.size, rate=clip.rate, source=clip.name)
        return Truth(tracks, (visible < LEAST_VISIBLE)[np.lexsort((ids, frame))])

    @functools.cached_property
    def _ground(self) -> Float32[ndarray, "H W 3"]:
        return draw_scene(np.random.default_rng((self.seed, 0)), self.size, self.scene == "street")

    @functools.cached_property
    def walks(self) -> list[Walk]:
        """Everyone, in the order of coming; the place in the list is the identity."""
        walks: list[Walk] = []
        for slot in range(self.objects or USUAL[self.scene]):
            rng = np.random.default_rng((self.seed, 1, slot))
            start: int | None = None
            while start is None or start < self.frames:
                walk = self._walk(rng, start)
                walks.append(walk)
                start = walk.start + walk.frames + int(rng.integers(*GAP))
        return sorted(walks, key=lambda walk: walk.start)

    def _walk(self, rng: np.random.Generator, start: int | None) -> Walk:
        """A walk at random; without a start it is under way when the clip begins."""
        begin, end = (_along_the_street if self.scene == "street" else _across)(rng, self.scale)
        height, width = self.size
        depth = 0.6 + 0.8 * (begin[1] if self.scene == "street" else 0.5)
        looks = choose_looks(rng, HEIGHT * height * self.scale * depth)
        distance = float(np.hypot((end[0] - begin[0]) * width, (end[1] - begin[1]) * height))
        frames = max(2, round(distance / (width * float(rng.uniform(*SPEED)))))
        start = -int(rng.integers(frames // 5, frames * 4 // 5 + 1)) if start is None else start
        return Walk(looks, start, (begin[0] * width, begin[1] * height), (end[0] * width, end[1] * height), frames)

    def _present(self, number: int) -> list[tuple[int, Sprite]]:
        """Who is on the way in a frame, those in front last."""
        walks = enumerate(self.walks)
        found = [(id, sprite) for id, walk in walks if (sprite := walk.sprite(number)) is not None]
        return sorted(found, key=lambda one: one[1].top + len(one[1].alpha)) if self.scene == "street" else found


Point = tuple[float, float]
"""x and y as shares of the frame's width and height."""


def _along_the_street(rng: np.random.Generator, scale: float) -> tuple[Point, Point]:
    """From one side to the other, nearly level."""
    margin = 1.6 * HALF_WIDTH * HEIGHT * scale
    depth, slope = float(rng.uniform(0.55, 0.97)), float(rng.uniform(-0.04, 0.04))
    left, right = (-margin, depth), (1 + margin, min(depth + slope, 0.99))
    return (left, right) if rng.random() < 0.5 else (right, left)


def _across(rng: np.random.Generator, scale: float) -> tuple[Point, Point]:
    """From a point beyond one edge to one beyond another, by way of the middle."""
    wide, tall = 1.6 * HALF_WIDTH * HEIGHT * scale, 1.3 * HEIGHT * scale
    middle = rng.uniform(0.35, 0.65), rng.uniform(0.45, 0.75)
    angle = float(rng.uniform(0, 2 * np.pi))
    towards = float(np.cos(angle)), 0.9 * float(np.sin(angle))

    def leave(sign: int) -> Point:
        """Go on from the middle until out of sight."""
        steps = [
            ((1 + wide if sign * towards[0] > 0 else -wide) - middle[0]) / (sign * towards[0] or 1e-9),
            ((1 + tall if sign * towards[1] > 0 else -0.02) - middle[1]) / (sign * towards[1] or 1e-9),
        ]
        step = min(steps)
        return float(middle[0] + step * sign * towards[0]), float(middle[1] + step * sign * towards[1])

    return leave(-1), leave(1)


def write_camera(camera: Camera, folder: str | Path) -> None:
    """Write the clip as `clip.mp4` and its truth as `gt.txt` (MOTChallenge, with visibility) into a folder."""
    folder = Path(folder)
    if camera.size[0] % 2 or camera.size[1] % 2:
        raise UserError(f"a video needs even sides, not {camera.size[1]}x{camera.size[0]}")
    _write_video(folder / "clip.mp4", camera)
    with written_atomically(folder / "gt.txt") as file:
        for line in truth_lines(camera):
            file.write(f"{line}\n".encode())


def truth_lines(camera: Camera) -> Iterator[str]:
    """The truth as MOTChallenge writes it: frame, id, left, top, width, height, 1, class 1, visibility."""
    for number in range(camera.frames):
        for id, box, visible in zip(*camera.boxes(number), strict=True):
            left, top, width, height = box
            yield f"{number + 1},{id + 1},{left + 1:g},{top + 1:g},{width:g},{height:g},1,1,{visible:.4f}"


def _write_video(path: Path, camera: Camera) -> None:
    """H.264 that browsers play, frame by frame."""
    import av
    from av.video.frame import VideoFrame

    kind = "rgb24" if camera.colour else "gray"
    with written_atomically(path) as file, av.open(file, "w", format="mp4") as container:
        rate = Fraction(camera.rate).limit_denominator(1000)
        stream = container.add_stream("libx264", rate=rate, options={"crf": "12"})
        stream.height, stream.width = camera.size
        stream.pix_fmt = "yuv420p"
        for picture in camera.clip():
            container.mux(stream.encode(VideoFrame.from_ndarray(picture, format=kind)))
        container.mux(stream.encode(None))

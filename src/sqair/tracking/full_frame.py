"""A clip of a camera that a model was fitted to: background subtracted, scaled, followed in windows, joined.

`FullFrame` stands where `Watch` does, for models whose card has a `camera`. It tells of a frame a little later, when it
is known which tracks last and, unless the clip is live, who was who in a meeting (courses.py). A model that was
taught on every n-th frame sees those; between two of them, whoever is in both goes straight from the one to the other.
Boxes end where foreground does (outlines.py). A model with a background sees the frames as they are, shadows too; what
is behind them when the clip begins is what a subtraction would take away. A clip that is unlike the camera is remarked
upon in its notes.

Axes: H, W the clip's frame, h, w, C the scaled picture of its foreground, n views or tracks.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Float32, Int, UInt8
from numpy import ndarray

from sqair.config import UserError
from sqair.data.background import Foreground
from sqair.data.camera import Camera
from sqair.data.frames import pictured, scaled, to_grey
from sqair.data.video import Clip, Frame
from sqair.data.video_fit import Fit
from sqair.model import SequenceModel
from sqair.tracking.clips import Seen
from sqair.tracking.courses import WAIT, Namer
from sqair.tracking.filter import Found
from sqair.tracking.joining import Joiner, Outline, Told, Views
from sqair.tracking.outlines import outlined
from sqair.tracking.things import CERTAIN
from sqair.tracking.tracker import check_settings
from sqair.tracking.windows import BLOCK, Grid, WindowTracker

CORE = 0.25
"""A view may begin a track if it lies so far in the middle of its window; with half of a window shared, one does."""
CUT_OFF = 1.0
"""A box that comes so close to an inner edge of its window, in pixels, is taken for cut off."""


class Arrival(NamedTuple):
    """A frame as people and as the model see it."""

    shown: Frame | None
    picture: UInt8[ndarray, "h w C"]
    foreground: Bool[ndarray, "H W"] | None
    """Where it is foreground; None between two frames that the model sees."""


class Moment(NamedTuple):
    """A frame that waits to be told."""

    arrival: Arrival
    found: Found
    places: Int[ndarray, "2 n"]
    """Window and slot of every view."""


class FullFrame:
    """Follows a clip of a known camera; iterate over it once. Arguments as those of `Watch`."""

    def __init__(
        self,
        model: SequenceModel,
        clip: Clip,
        camera: Camera,
        *,
        particles: int = 1,
        seed: int = 0,
        show: Callable[[Frame], Frame] | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        check_settings(model, particles, 0)
        if particles > 1:
            raise UserError("a model that was fitted to a camera follows many windows, each with one particle")
        self.clip, self.show, self.stop, self.channels = clip, show, stop, model.config.channels
        self.camera, size = camera, camera.picture_size(clip.size)
        self.fit = Fit(clip.size, size, self.channels)
        self.foreground, self.is_raw = Foreground(camera.subtraction), model.config.background != "none"
        grid, pictures, block = Grid(size, model.config.image), show is not None, 1 if clip.live else BLOCK
        self.tracker = WindowTracker(
            model, jax.random.key(seed), grid, pictures=pictures, block=block, evidence=camera.evidence
        )
        self.wait = 0 if clip.live else WAIT
        self.lag = (CERTAIN + self.wait) * camera.stride - 1
        self._arrived: deque[Arrival] = deque()
        self._between: deque[Arrival] = deque()

    def __iter__(self) -> Iterator[Seen]:
        if not self.clip.live:
            self.foreground.warm(self._unless_stopped())
        before = None
        for after in self._followed():
            if before is not None:
                yield from self._filled(before, after)
            yield after
            before = after
        if before is None:
            raise UserError(f"{self.clip.name} has no frames")
        yield from self._filled(before, before)

    def _followed(self) -> Iterator[Seen]:
        """The frames that the model sees."""
        waiting, numbers = deque[Moment](), count(step=self.camera.stride)
        for told in self._named(waiting):
            yield self._seen(next(numbers), waiting.popleft(), told)

    def _named(self, waiting: deque[Moment]) -> Iterator[Told]:
        """What is told of these frames, each of which is first put among those that wait."""
        namer = Namer(self.fit.image, self.wait)
        for told in self._joined(waiting):
            if (named := namer.add(told)) is not None:
                yield named
        yield from namer.finish()

    def _joined(self, waiting: deque[Moment]) -> Iterator[Told]:
        """The same before tracks have their names for good."""
        joiner = Joiner(self.fit.image)
        for found in self.tracker.stream(self._pictures()):
            places, views = views_of(found, self.tracker.grid)
            arrival = self._arrived.popleft()
            waiting.append(Moment(arrival._replace(foreground=None), found, places))
            if (told := joiner.add(views, self._outline(arrival.foreground))) is not None:
                yield told
        yield from joiner.finish()

    def _outline(self, foreground: Bool[ndarray, "H W"] | None) -> Outline | None:
        """What makes sharp boxes in the picture's pixels; None without foreground."""
        if foreground is None:
            return None
        return lambda boxes: self.fit.to_image(outlined(self.fit.to_source(boxes), foreground))

    def _pictures(self) -> Iterator[UInt8[ndarray, "h w C"]]:
        """Every n-th picture; those between them are kept until it is known what is in them."""
        for number, frame in enumerate(self._unless_stopped()):
            picture = self._picture(frame)
            is_between = number % self.camera.stride > 0
            foreground = None if is_between else self.foreground.mask
            arrival = Arrival(self.show(frame) if self.show else None, picture, foreground)
            if number == 0:  # a reading begins with empty notes
                self.clip.notes.extend(self.camera.remarks(self.clip.size, self.foreground.background))
                self.tracker.scene = self._scaled(self.foreground.background) if self.is_raw else None
            if is_between:
                self._between.append(arrival)
            else:
                self._arrived.append(arrival)
                yield arrival.picture

    def _filled(self, before: Seen, after: Seen) -> Iterator[Seen]:
        """The frames between two that the model saw, or after the last one, where things stay."""
        for step in range(1, min(self.camera.stride, 1 + len(self._between))):
            yield between(before, after, step / self.camera.stride, before.number + step, self._between.popleft())

    def blocks(self) -> Iterator[list[Seen]]:
        """The same in lists of as many frames as go through the model at once."""
        frames = iter(self)
        while block := list(islice(frames, self.tracker.block)):
            yield block

    def describe(self) -> str:
        """What is done to a frame, in words."""
        grid = self.tracker.grid
        count, (height, width) = len(grid.corners), grid.window
        said = [f"{'boxes of ' if self.is_raw else ''}{self.foreground.options.method} foreground", self.fit.describe()]
        return ", ".join(filter(None, [*said, f"followed in {count} windows of {width}x{height}"]))

    def _unless_stopped(self) -> Iterator[Frame]:
        for number, frame in enumerate(self.clip):
            if number and self.stop():
                return
            yield frame

    def _picture(self, frame: Frame) -> UInt8[ndarray, "h w C"]:
        """A frame as the model wants it: its foreground, or all of it; the former is known after it."""
        if self.is_raw:
            self.foreground.find(frame)
            return self._scaled(frame)
        shown = self.foreground.push(frame)
        if self.channels == 1:
            shown = to_grey(shown)
        elif shown.ndim == 2:
            shown = np.repeat(shown[..., None], 3, -1)
        picture = np.round(255 * scaled(shown, self.fit.image)).astype(np.uint8)
        return picture.reshape(*self.fit.image, self.channels)

    def _scaled(self, frame: Frame) -> UInt8[ndarray, "h w C"]:
        """A frame in the size and the colours of the model."""
        return pictured(frame, self.fit.image, self.channels == 3).reshape(*self.fit.image, self.channels)

    def _seen(self, number: int, moment: Moment, told: Told) -> Seen:
        """A frame in pixels of the clip; its slots are the tracks that are told."""
        window, slot = moment.places[:, told.view]
        corners = self.tracker.grid.corners[window].astype(np.float32)
        chosen = [leaf[window, slot] for leaf in moment.found.objects]
        objects = type(moment.found.objects)(*chosen)._replace(identity=told.track)
        where = np.asarray(moment.found.where_box)[window, slot] + np.pad(corners, ((0, 0), (0, 2)))
        glimpses, canvas = moment.found.glimpses, moment.found.canvas
        unknown = np.full(len(told.track), np.nan, np.float32)
        found = Found(
            objects,
            told.box,
            where,
            unknown,
            unknown,
            moment.found.error.mean(),
            None if canvas is None else self.tracker.grid.assembled(np.asarray(canvas), mean=self.is_raw),
            None if glimpses is None else glimpses[window, slot],
        )
        box, where = self.fit.clipped(self.fit.to_source(told.box)), self.fit.to_source(where)
        slots, (shown, picture, _) = np.arange(len(told.track)), moment.arrival
        return Seen(number, shown, picture, slots, told.track, box, where, unknown, unknown, found)


def between(before: Seen, after: Seen, share: float, number: int, arrival: Arrival) -> Seen:
    """A frame between two others, of whose way a share is gone: those that are in both, their boxes interpolated."""
    _, first, last = np.intersect1d(before.ids, after.ids, return_indices=True)

    def gone(old: Float32[ndarray, "n 4"], new: Float32[ndarray, "m 4"]) -> Float32[ndarray, "both 4"]:
        return ((1 - share) * old[first] + share * new[last]).astype(np.float32)

    return before._replace(
        number=number,
        shown=arrival.shown,
        fitted=arrival.picture,
        slots=before.slots[first],
        ids=before.ids[first],
        box=gone(before.box, after.box),
        where=gone(before.where, after.where),
        presence=before.presence[first],
        spread=before.spread[first],
    )


def views_of(found: Found, grid: Grid) -> tuple[Int[ndarray, "2 n"], Views]:
    """What all windows see, in pixels of the picture, with the window and the slot of each."""
    there = (np.asarray(found.objects.pres) > 0) & np.isfinite(np.asarray(found.box)).all(-1)
    window, slot = places = np.stack(np.nonzero(there))
    inner = np.asarray(found.box)[window, slot]
    gaps = _gaps(inner, grid, window)
    middle = gaps + np.tile(inner[:, 2:] / 2, 2)
    quality = np.clip((middle / np.tile(np.array(grid.window[::-1]) / 2, 2)).min(1), 0.0, 1.0)
    cut_off = (gaps < CUT_OFF).any(1)
    box = inner + np.pad(grid.corners[window].astype(np.float32), ((0, 0), (0, 2)))
    identity = np.asarray(found.objects.identity)[window, slot]
    return places, Views(window, identity, box, np.where(cut_off, 0.1, 1.0) * quality, ~cut_off & (quality >= CORE))


def _gaps(inner: Float32[ndarray, "n 4"], grid: Grid, window: Int[ndarray, " n"]) -> Float[ndarray, "n 4"]:
    """From each box to the left, upper, right and lower edge of its window; far, where that is one of the picture."""
    side, picture = np.array(grid.window[::-1]), np.array(grid.size[::-1])
    corner = grid.corners[window]
    gaps = np.concatenate([inner[:, :2], side - inner[:, :2] - inner[:, 2:]], 1)
    outer = np.concatenate([corner <= 0, corner + side >= picture], 1)
    return np.where(outer, np.tile(side, 2), gaps)

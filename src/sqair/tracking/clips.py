"""A clip of any size becomes tracks: fitted to the model, followed, and boxes brought back to its own pixels."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float32, Int, Int64, UInt8
from numpy import ndarray

from sqair.config import UserError
from sqair.data.video import Clip, Frame
from sqair.data.video_fit import LOOK, Fit, Invert, is_light
from sqair.model import SequenceModel
from sqair.tracking.filter import Found
from sqair.tracking.tracker import BLOCK, Tracker
from sqair.tracks import Tracks

PARTICLES = 1
"""Particles unless another number is asked for."""


class Seen(NamedTuple):
    """A frame of a clip and the n objects that are alive in it, in pixels of the clip."""

    number: int
    """From 0."""
    shown: Frame | None
    """The frame for people; None if nobody asked for it."""
    fitted: UInt8[ndarray, "Y X C"]
    """The frame that the model saw."""
    slots: Int[ndarray, " n"]
    """Places of the objects in `found`."""
    ids: Int64[ndarray, " n"]
    box: Float32[ndarray, "n 4"]
    """NaN where out of sight."""
    where: Float32[ndarray, "n 4"]
    presence: Float32[ndarray, " n"]
    spread: Float32[ndarray, " n"]
    found: Found


def to_tracks(frames: Sequence[Seen], clip: Clip) -> Tracks:
    """The rows of some frames, the last of the clip so far; at least one."""
    numbers = np.repeat([seen.number for seen in frames], [len(seen.ids) for seen in frames])
    names = ("ids", "box", "where", "presence", "spread")
    columns = [np.concatenate([getattr(seen, name) for seen in frames]) for name in names]
    length = frames[-1].number + 1
    return Tracks(numbers, *columns, frames=length, size=clip.size, rate=clip.rate, source=clip.name)


class Watch:
    """Follows a clip; iterate over it once.

    `fit`, how frames are brought to the model, is known from the start: the first frames are looked at here. `show`
    makes of a frame what people will look at; without it frames are not kept. `stop` is asked before every frame.
    """

    fit: Fit

    def __init__(
        self,
        model: SequenceModel,
        clip: Clip,
        *,
        particles: int = PARTICLES,
        lag: int | None = None,
        invert: Invert = "auto",
        seed: int = 0,
        show: Callable[[Frame], Frame] | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.clip, self.show, self.stop = clip, show, stop
        self.frames = iter(clip)
        first = list(islice(self.frames, 1 if clip.live else LOOK))
        if not first:
            raise UserError(f"{clip.name} has no frames")
        inverted = is_light(first) if invert == "auto" else invert == "yes"
        self.fit = Fit(clip.size, model.config.image, model.config.channels, inverted)
        self.first = first
        pictures, block = show is not None, 1 if clip.live else BLOCK
        key = jax.random.key(seed)
        self.tracker = Tracker(model, key, particles=particles, lag=lag, pictures=pictures, block=block)

    def __iter__(self) -> Iterator[Seen]:
        waiting: deque[tuple[Frame | None, UInt8[ndarray, "Y X C"]]] = deque()

        def fitted() -> Iterator[UInt8[ndarray, "Y X C"]]:
            first, self.first = self.first, []
            for number, frame in enumerate(chain(first, self.frames)):
                if number and self.stop():
                    return
                waiting.append((self.show(frame) if self.show else None, self.fit(frame)))
                yield waiting[-1][1]

        for number, found in enumerate(self.tracker.stream(fitted())):
            yield self._seen(number, *waiting.popleft(), found)

    def blocks(self) -> Iterator[list[Seen]]:
        """The same in lists of as many frames as go through the model at once."""
        frames = iter(self)
        while block := list(islice(frames, self.tracker.block)):
            yield block

    def describe(self) -> str:
        """What is done to a frame, in words; empty when nothing is."""
        return self.fit.describe()

    @property
    def lag(self) -> int:
        """Frames that are seen before one is told."""
        return self.tracker.settings.lag

    def _seen(self, number: int, shown: Frame | None, fitted: UInt8[ndarray, "Y X C"], found: Found) -> Seen:
        """What was found in a frame, in pixels of the clip."""
        slots = np.flatnonzero(np.asarray(found.objects.pres) > 0)
        ids, presence, spread, box, where = (
            np.asarray(column)[slots]
            for column in (found.objects.identity, found.presence, found.spread, found.box, found.where_box)
        )
        box, where = self.fit.clipped(self.fit.to_source(box)), self.fit.to_source(where)
        ids, spread = ids.astype(np.int64), spread / self.fit.scale
        return Seen(number, shown, fitted, slots, ids, box, where, presence, spread, found)

"""Dreams: sequences from a model's prior, and futures of a clip; births and deaths included.

`sample` dreams from nothing. `predict` observes the first frames of a clip and goes on from there: the observed frames
are inferred K times, and each future goes on from one of these inferences, drawn by its weight, so that futures are
drawn from p(future | observed frames).

Axes: S sequences, T frames, N slots, W what, Y, X, C the model's frame, G, J glimpse, K particles.
"""

import warnings
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt8
from numpy import ndarray

from sqair.config import UserError
from sqair.data.video import RATE, Clip
from sqair.data.video_fit import LOOK, Fit, Invert, is_light
from sqair.image import ImageModel, tight_boxes
from sqair.model import Info, SequenceModel
from sqair.objects import Objects
from sqair.tracking.filter import to_bytes
from sqair.tracking.sources import one_clip
from sqair.tracks import Tracks

PARTICLES = 20
"""Inferences of the observed frames, from which futures go on."""
MOST_FRAMES = 20_000
"""Of all sequences together: they are held in memory."""


class Scene(NamedTuple):
    """A sequence that a model inferred or dreamt. N is 0 for a model that knows no objects."""

    frames: Float[ndarray, "T Y X C"]
    """Means of the frames, from 0 to 1."""
    boxes: Float[ndarray, "T N 4"]
    """Left, top, width, height in pixels of `frames`; NaN where there is nothing to be seen."""
    ids: Int[ndarray, "T N"]
    """-1 where absent."""
    counts: Int[ndarray, " T"]
    """Objects that are there, in sight or not."""
    what: Float[ndarray, "T N W"]
    glimpses: UInt8[ndarray, "T N G J C"]
    tracks: Tracks
    """The same objects as a table, in pixels of the clip if there is one."""


@dataclass(frozen=True)
class Prediction:
    """Several futures of one clip."""

    clip: UInt8[ndarray, "t Y X C"]
    """Its frames as the model sees them: those observed, then as much of the true continuation as there is."""
    observed: int
    """Frames that the model saw."""
    futures: list[Scene]
    """Each has the observed frames as the model explains them, then those it predicts."""
    fit: Fit
    """How frames of the clip were brought to the model."""

    @property
    def pixel_error(self) -> Float[ndarray, "S t"]:
        """Mean squared difference between each future and the true continuation, frame by frame, as far as it goes."""
        truth = self.clip[self.observed :] / 255.0
        dreamt = np.stack([future.frames[self.observed : len(self.clip)] for future in self.futures])
        return np.square(dreamt - truth).mean((2, 3, 4))


def sample(model: SequenceModel, *, count: int = 4, frames: int = 20, seed: int = 0) -> list[Scene]:
    """Dream `count` sequences of `frames` frames from a model's prior."""
    check_numbers({"frames": frames, "count": count}, frames * count)
    info = jax.device_get(_dream(model, jax.random.key(seed), count, frames))
    return [scene(model, jax.tree.map(lambda leaf, i=i: leaf[i], info)) for i in range(count)]


def predict(
    model: SequenceModel,
    source: str | Path | Clip | ndarray,
    *,
    observe: int = 3,
    frames: int = 10,
    futures: int = 1,
    invert: Invert = "auto",
    seed: int = 0,
    rate: float = RATE,
) -> Prediction:
    """Observe the first `observe` frames of a clip and continue it by `frames` more, `futures` times.

    The source is what `track` takes: a file, a folder or a glob of images, an address, an array (T,H,W) or (T,H,W,3).
    Later frames of the clip are never shown to the model; the result holds them for comparison. `invert` and `rate` are
    those of `track`. What had to be lived with, such as a missing end, comes as a warning.
    """
    clip = one_clip(source, rate)
    prediction = continue_clip(model, clip, observe=observe, frames=frames, futures=futures, invert=invert, seed=seed)
    for note in clip.notes:
        warnings.warn(f"{clip.name}: {note}", stacklevel=2)
    return prediction


def continue_clip(
    model: SequenceModel,
    clip: Clip,
    *,
    observe: int,
    frames: int,
    futures: int,
    invert: Invert = "auto",
    seed: int = 0,
) -> Prediction:
    """`predict` of a clip that is open; what had to be lived with stands in its notes."""
    check_numbers({"observe": observe, "frames": frames, "futures": futures}, (observe + frames) * futures)
    if model.frames_are_independent:
        raise UserError("this model knows no time: its frames are independent; predict with one of the kind sqair")
    fit, seen = _look(model, clip, observe, observe + frames, invert)
    pixels = jnp.asarray(seen[:observe], jnp.float32) / 255
    info = jax.device_get(_continue(model, jax.random.key(seed), pixels, frames, futures))
    parts = [jax.tree.map(lambda leaf, i=i: leaf[i], info) for i in range(futures)]
    scenes = [scene(model, part, fit, rate=clip.rate, source=clip.name) for part in parts]
    return Prediction(seen, observe, scenes, fit)


def check_numbers(numbers: dict[str, int], total: int) -> None:
    """Refuse what is no number of frames or sequences, and more frames in all than can be held."""
    for name, number in numbers.items():
        if number < 1:
            raise UserError(f"{name} must be at least 1, not {number}")
    if total > MOST_FRAMES:
        raise UserError(f"these are {total} frames in all; ask for at most {MOST_FRAMES}")


def _look(
    model: SequenceModel, clip: Clip, observe: int, length: int, invert: Invert
) -> tuple[Fit, UInt8[ndarray, "t Y X C"]]:
    """The first frames of a clip as the model sees them, and how they became so."""
    frames = islice(iter(clip), length)
    first = list(islice(frames, min(observe, LOOK)))
    inverted = is_light(first) if invert == "auto" and first else invert == "yes"
    fit = Fit(clip.size, model.config.image, model.config.channels, inverted)
    seen = [fit(frame) for frame in chain(first, frames)]
    if len(seen) < observe:
        raise UserError(f"{clip.name} has {len(seen)} frames, fewer than the {observe} to observe; observe fewer")
    return fit, np.stack(seen)


# --- compiled


@eqx.filter_jit
def _dream(model: SequenceModel, key: PRNGKeyArray, count: int, length: int) -> Info:
    """`count` sequences from the prior."""
    return jax.vmap(lambda key: model.imagine(key, length)[1])(jax.random.split(key, count))


@eqx.filter_jit
def _continue(
    model: SequenceModel, key: PRNGKeyArray, frames: Float[Array, "T Y X C"], length: int, futures: int
) -> Info:
    """The observed frames and `length` more, `futures` times."""
    key_seen, key_chosen, key_dreamt = jax.random.split(key, 3)
    state, seen = jax.vmap(lambda key: model.observe(key, frames))(jax.random.split(key_seen, PARTICLES))
    chosen = jax.random.categorical(key_chosen, seen.log_weight.sum(1), shape=(futures,))
    state, seen = jax.tree.map(lambda leaf: leaf[chosen], (state, seen))
    dream = jax.vmap(lambda key, state: model.imagine(key, length, state=state)[1])
    dreamt = dream(jax.random.split(key_dreamt, futures), state)
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b], 1), seen, dreamt)


@eqx.filter_jit
def _drawn(
    image: ImageModel, objects: Objects
) -> tuple[Float[Array, "T N 4"], Float[Array, "T N 4"], UInt8[Array, "T N G J C"]]:
    """Tight boxes, boxes of the glimpses, and the glimpses."""
    glimpses = jax.vmap(image.glimpses)(objects.what)
    return tight_boxes(image, objects), image.transformer.boxes(objects.where), to_bytes(glimpses)


# --- in numpy


def scene(model: SequenceModel, info: Info, fit: Fit | None = None, *, rate: float = RATE, source: str = "") -> Scene:
    """One sequence, without batch axis, in numpy; `fit` brings its tracks to pixels of a clip."""
    config = model.config
    fit = Fit(config.image, config.image, config.channels) if fit is None else fit
    what, ids = np.asarray(info.objects.what), np.asarray(info.objects.identity)
    if model.has_objects:
        drawn = _drawn(model.image, info.objects)  # type: ignore[attr-defined]
        boxes, where, glimpses = map(np.asarray, drawn)
    else:
        what, ids = what[:, :0], ids[:, :0]
        boxes = where = np.zeros((*ids.shape, 4), np.float32)
        glimpses = np.zeros((*ids.shape, *config.glimpse, config.channels), np.uint8)
    frame, slot = np.nonzero(ids >= 0)
    tracks = Tracks.make(
        frame,
        ids[frame, slot],
        fit.clipped(fit.to_source(boxes[frame, slot])),
        where=fit.to_source(where[frame, slot]),
        frames=len(ids),
        size=fit.source,
        rate=rate,
        source=source,
    )
    frames = np.clip(np.asarray(info.canvas), 0.0, 1.0)
    return Scene(frames, boxes, ids, (ids >= 0).sum(1).astype(np.int32), what, glimpses, tracks)

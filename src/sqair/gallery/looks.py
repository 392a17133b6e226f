"""What a model sees in sequences, or dreams, as arrays for figures.

Axes: S sequences, T frames, N slots, G, L glimpse, Y, X, C frame, W what.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy import ndarray

from sqair.baselines.air import AIR
from sqair.figures import Row
from sqair.image import as_frames, tight_boxes
from sqair.model import SQAIR, Info, SequenceModel
from sqair.particles import draw_particles, run_particles

PARTICLES = 20
"""Inferences of a sequence, of which the most probable is shown."""


class Look(NamedTuple):
    """One sequence; a model without objects has none in any slot."""

    canvas: Float[ndarray, "T Y X C"]
    boxes: Float[ndarray, "T N 4"]
    """Left, top, width, height in pixels; NaN where there is nothing to be seen."""
    ids: Int[ndarray, "T N"]
    """-1 where absent."""
    glimpses: Float[ndarray, "T N G L C"]

    def row(self, label: str) -> Row:
        """The sequence as a line of a figure."""
        return Row(label, self.canvas, self.boxes, self.ids)


def infer(model: SequenceModel, frames: ndarray, seed: int = 0) -> list[Look]:
    """The most probable of several inferences of each sequence of `frames`, (S, T, Y, X) or with channels.

    Where frames are independent, each has its own.
    """
    keys = jax.random.split(jax.random.key(seed), len(frames))
    return looks(model, _infer(model, keys, jnp.asarray(frames)))


def dream(model: SequenceModel, count: int, length: int, seed: int = 0) -> list[Look]:
    """Sequences from the prior."""
    return looks(model, _dream(model, jax.random.split(jax.random.key(seed), count), length))


def continued(model: SequenceModel, frames: ndarray, length: int, seed: int = 0) -> list[Look]:
    """The sequences inferred, then `length` frames dreamt on, from the most probable inference."""
    keys = jax.random.split(jax.random.key(seed), len(frames))
    return looks(model, _continued(model, keys, jnp.asarray(frames), length))


@eqx.filter_jit
def _infer(model: SequenceModel, keys: Array, frames: Array) -> Info:
    def one(key: PRNGKeyArray, frames: Array) -> Info:
        seen = as_frames(frames)
        info = run_particles(model, draw_particles(model, key, PARTICLES, seen.shape[0]), seen)
        if model.frames_are_independent:
            best = jnp.argmax(info.log_weight, 0)
            return jax.tree.map(lambda leaf: leaf[best, jnp.arange(len(best))], info)
        best = jnp.argmax(info.log_weight.sum(1))
        return jax.tree.map(lambda leaf: leaf[best], info)

    return jax.vmap(one)(keys, frames)


@eqx.filter_jit
def _dream(model: SequenceModel, keys: Array, length: int) -> Info:
    return jax.vmap(lambda key: model.imagine(key, length)[1])(keys)


@eqx.filter_jit
def _continued(model: SequenceModel, keys: Array, frames: Array, length: int) -> Info:
    def one(key: PRNGKeyArray, frames: Array) -> Info:
        key_seen, key_dream = jax.random.split(key)
        seen = as_frames(frames)
        noise = draw_particles(model, key_seen, PARTICLES, seen.shape[0])
        states, past = jax.vmap(lambda each: model.observe(None, seen, noise=each))(noise)
        best = jnp.argmax(past.log_weight.sum(1))
        state, past = jax.tree.map(lambda leaf: leaf[best], (states, past))
        _, later = model.imagine(key_dream, length, state=state)
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), past, later)

    return jax.vmap(one)(keys, frames)


def looks(model: SequenceModel, info: Info) -> list[Look]:
    """The sequences of an Info with axes (S, T)."""
    return [_look(model, jax.tree.map(lambda leaf, i=i: leaf[i], info)) for i in range(len(info.canvas))]


def _look(model: SequenceModel, info: Info) -> Look:
    canvas = np.asarray(info.canvas)
    if not isinstance(model, SQAIR | AIR):
        none = np.zeros((len(canvas), 0, 4), np.float32)
        return Look(canvas, none, np.zeros(none.shape[:2], np.int32), np.zeros((*none.shape[:2], 1, 1, 1), np.float32))
    boxes, ids = np.asarray(tight_boxes(model.image, info.objects)), np.asarray(info.objects.identity)
    return Look(canvas, boxes, ids, np.asarray(_glimpses(model, info.objects.what)))


@eqx.filter_jit
def _glimpses(model: SQAIR | AIR, what: Float[Array, "T N W"]) -> Float[Array, "T N G L C"]:
    return jax.vmap(model.image.glimpses)(what)

"""What a model saw or dreamt, as arrays for pictures and files: canvases, boxes, identities, counts.

Axes: T frames, N slots, K particles, Y, X, C frame.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy import ndarray

from sqair.baselines.air import AIR
from sqair.config import UserError
from sqair.image import tight_boxes
from sqair.model import SQAIR, Info, SequenceModel
from sqair.objective import draw_particles, run_particles
from sqair.training.checkpoint import load_model


class Scene(NamedTuple):
    """A sequence of objects."""

    canvas: Float[ndarray, "T Y X C"]
    boxes: Float[ndarray, "T N 4"]
    """Left, top, width, height in pixels; NaN where there is nothing to be seen."""
    ids: Int[ndarray, "T N"]
    """-1 where absent."""
    counts: Int[ndarray, " T"]
    """Objects that are there, in sight or not."""


@eqx.filter_jit
def infer(model: SequenceModel, key: PRNGKeyArray, frames: Float[Array, "T Y X C"], particles: int) -> Info:
    """The most probable of K inferences of a sequence."""
    info = run_particles(model, draw_particles(model, key, particles, frames.shape[0]), frames)
    best = jnp.argmax(info.log_weight.sum(1))
    return jax.tree.map(lambda leaf: leaf[best], info)


@eqx.filter_jit
def dream(model: SequenceModel, key: PRNGKeyArray, count: int, length: int) -> Info:
    """`count` sequences from the prior."""
    return jax.vmap(lambda k: model.imagine(k, length)[1])(jax.random.split(key, count))


def load_objects(name_or_folder: str) -> SQAIR | AIR:
    """A trained model whose latent variables are objects, which can be drawn."""
    model = load_model(name_or_folder)
    if not isinstance(model, SQAIR | AIR):
        raise UserError(f"{name_or_folder} has no objects to show; use a model of the kinds sqair or air")
    return model


def scene(model: SQAIR | AIR, info: Info) -> Scene:
    """The objects of one sequence as numpy arrays."""
    objects = info.objects
    return Scene(
        canvas=np.asarray(info.canvas),
        boxes=np.asarray(tight_boxes(model.image, objects)),
        ids=np.asarray(objects.identity),
        counts=np.asarray(objects.pres.sum(-1)).astype(np.int32),
    )

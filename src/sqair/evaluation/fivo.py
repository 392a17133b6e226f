"""The FIVO bound of test sequences: a particle filter's estimate of log p(x), beside the IWAE bound.

Both are lower bounds with the same particles; the paper finds this one tighter. All K particles of a sequence resample
together, so only sequences can be run a batch at a time.

Axes: S sequences, T frames, Y, X, C frame.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from sqair.data import Source
from sqair.evaluation.blocks import in_blocks
from sqair.evaluation.evaluate import PRODUCTS, ROWS, check_frames, evenly
from sqair.image import as_frames
from sqair.model import SequenceModel
from sqair.particles import draw_particles, particle_filter


def fivo(model: SequenceModel, source: Source, *, sequences: int, particles: int, seed: int) -> dict[str, Any]:
    """`fivo` and `fivo_se`, in nats per sequence; None for AIR, whose frames have no past to resample."""
    if model.frames_are_independent:
        return {"fivo": None, "fivo_se": None}
    batch = evenly(sequences, ROWS.get(jax.default_backend(), ROWS["gpu"]) // particles)
    key, bounds = jax.random.key(seed), []
    for first in range(0, sequences, batch):
        here = min(batch, sequences - first)
        data = source.fixed(here, seed, first)
        check_frames(model, data.frames)
        frames = jnp.asarray(data.frames)[jnp.arange(batch) % here]
        with jax.default_matmul_precision(PRODUCTS):
            bounds.append(np.asarray(batch_fivo(model, key, frames, first + jnp.arange(batch), particles))[:here])
    values = np.concatenate(bounds).astype(np.float64)
    error = float(values.std(ddof=1) / math.sqrt(sequences)) if sequences > 1 else None
    return {"fivo": float(values.mean()), "fivo_se": error}


@eqx.filter_jit
def batch_fivo(
    model: SequenceModel,
    key: PRNGKeyArray,
    frames: Float[Array, "S T Y X"] | Float[Array, "S T Y X C"],
    index: Int[Array, " S"],
    particles: int,
) -> Float[Array, " S"]:
    """The bound of each sequence of a batch; sequence i has noise of its own, whatever the batches."""

    model = in_blocks(model)

    def one(i: Int[Array, ""], frames: Array) -> Float[Array, ""]:
        key_noise, key_filter = jax.random.split(jax.random.fold_in(key, i))
        noise = draw_particles(model, key_noise, particles, frames.shape[0])
        return particle_filter(model, key_filter, noise, as_frames(frames)).log_increment.sum()

    return jax.vmap(one)(index, frames)

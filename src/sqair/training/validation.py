"""The validation bound: on the same held-out sequences with the same noise every time, without training's restraint.

Members of a population share sequences and noise, so that their bounds can be compared.
"""

import copy

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from sqair.config import Preset, UserError
from sqair.data import FileSource, Source
from sqair.data.backdrops import PLACE
from sqair.model import SequenceModel
from sqair.objective import Diagnostics, diagnose, iwae
from sqair.particles import draw_particles, run_particles, summarise
from sqair.training.population import Population
from sqair.training.step import model_frames

VALIDATION_SEED = 1
"""Which fixed list of sequences is used."""


class Validation:
    """Held-out frames, and the bound of a model on them."""

    def __init__(self, source: Source, preset: Preset) -> None:
        count = preset.train.validation_sequences
        if isinstance(source, FileSource):
            count = min(count, len(source))
        self.frames = jnp.asarray(source.fixed(count, VALIDATION_SEED).frames)
        self.batch, self.particles = min(preset.train.batch, count), preset.train.particles
        channels = self.frames.shape[4] if self.frames.ndim == 5 else 1
        brings_scene = preset.model.background != "none" and channels == 2 * preset.model.channels + PLACE
        if channels != preset.model.channels and not brings_scene:
            raise UserError(f"the data has {channels} channels, the model {preset.model.channels}; set model.channels")

    def __call__(self, population: Population, model: SequenceModel, key: PRNGKeyArray) -> list[dict[str, float]]:
        """Means over all sequences for every member, each name with the prefix `validation_`; bounds are per frame."""
        count = len(self.frames)
        parts = []
        for start in range(0, count, self.batch):
            index = np.arange(start, start + self.batch)
            frames = self.frames[index % count]
            part = population.map(batch_bound, model, key, frames, jnp.asarray(index), self.particles)
            parts.append(jax.tree.map(lambda values, real=index < count: np.asarray(values, np.float64)[:, real], part))
        means = jax.tree.map(lambda *values: np.concatenate(values, axis=1).mean(1), *parts)._asdict()
        return [
            {f"validation_{name}": float(values[i]) for name, values in means.items()} for i in range(population.size)
        ]

    def part(self, count: int) -> "Validation":
        """The same with the first `count` sequences only; nothing is compiled anew for it where batches fit."""
        fewer = copy.copy(self)
        fewer.frames = self.frames[:count]
        return fewer


@eqx.filter_jit
def batch_bound(
    model: SequenceModel,
    key: PRNGKeyArray,
    frames: Float[Array, "B T Y X"] | Float[Array, "B T Y X C"],
    index: Array,
    particles: int,
) -> Diagnostics:
    """The IWAE bound and the diagnostics of each sequence; sequence i has noise of its own, whatever the batches."""
    sequences = model_frames(frames, model)
    each = sequences.shape[0] // frames.shape[0]
    length = jnp.array(sequences.shape[1])

    def one(key: PRNGKeyArray, frames: Float[Array, "T Y X C"]) -> Diagnostics:
        info = run_particles(model, draw_particles(model, key, particles, frames.shape[0]), frames)
        return diagnose(summarise(info), iwae(info.log_weight.sum(-1)), length)

    keys = jax.vmap(lambda i: jax.random.split(jax.random.fold_in(key, i), each))(index).reshape(-1)
    values = jax.vmap(one)(keys, sequences)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, each).mean(1), values)

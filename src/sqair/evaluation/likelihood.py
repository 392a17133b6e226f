"""Bounds and posterior averages of one sequence, over any number of particles in bounded memory.

Particles are run a chunk at a time; sums of weights are kept relative to the largest log weight so far, so the result
is that of all particles at once. SQAIR's weights belong to whole sequences. AIR's frames are independent in the model,
so there each frame has weights of its own and the bound is a sum over frames.

Axes: T frames, K particles, C the particles of a chunk, M possible counts, 0 to N, Y, X, C frame.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sqair.baselines.air import AIR
from sqair.evaluation.boxes import APART, Draws, Sample, add_draws, no_draws, sample_boxes
from sqair.model import SQAIR, Info, SequenceModel
from sqair.particles import run_particles


class Values(NamedTuple):
    """What is averaged over particles, for each frame."""

    log_likelihood: Float[Array, "*particles T"]
    kl: Float[Array, "*particles T"]
    """log q - log p of the latent variables."""
    discovered: Float[Array, "*particles T"]
    counts: Float[Array, "*particles T M"]
    """1 at the number of present slots: averaged, it is the distribution of that number."""


class Sums(NamedTuple):
    """Running sums over particles."""

    top: Float[Array, " T"]
    """The largest log weight so far; the weights below are divided by exp of it."""
    weight: Float[Array, " T"]
    squared: Float[Array, " T"]
    weighted: Values
    plain: Values


class Posterior(NamedTuple):
    """What K particles tell about a sequence."""

    log_p: Float[Array, "*batch"]
    """The IWAE bound."""
    ess: Float[Array, "*batch"]
    """Effective sample size over K."""
    single: Values
    """Averages of single samples."""
    weighted: Values
    """Self-normalised importance-weighted averages."""
    sample: Sample | None = None
    """Boxes of a particle drawn by weight; None for a model without objects."""


def posterior(
    model: SequenceModel, key: PRNGKeyArray, frames: Float[Array, "T Y X C"], particles: int, chunk: int
) -> Posterior:
    """Run K `particles`, `chunk` at a time. Particle k has noise of its own, whatever the chunks."""

    apart = jax.random.fold_in(key, APART)

    def add(number: Int[Array, ""], state: tuple[Sums, Draws | None]) -> tuple[Sums, Draws | None]:
        sums, draws = state
        index = number * chunk + jnp.arange(chunk)
        noise = jax.vmap(lambda k: model.noise(jax.random.fold_in(key, k), frames.shape[0]))(index)
        info = run_particles(model, noise, frames)
        log_w = jnp.where((index < particles)[:, None], log_weights(model, info), -jnp.inf)  # the rest fills the chunk
        draws = None if draws is None else add_draws(draws, apart, index, log_w, info.objects)
        return add_particles(sums, log_w, values_of(model, info), index < particles), draws

    chunks = math.ceil(particles / chunk)
    start = no_draws(model, frames.shape[0]) if isinstance(model, SQAIR | AIR) else None
    sums, draws = jax.lax.fori_loop(0, chunks, add, (no_sums(frames.shape[0], model.config.max_objects), start))
    sample = sample_boxes(model, draws) if isinstance(model, SQAIR | AIR) and draws is not None else None
    return conclude(model, sums, particles)._replace(sample=sample)


def log_weights(model: SequenceModel, info: Info) -> Float[Array, "C T"]:
    """The log weight that each frame's values get: the whole sequence's, or with AIR the frame's own."""
    each = info.log_weight
    return each if model.frames_are_independent else jnp.broadcast_to(each.sum(-1, keepdims=True), each.shape)


def values_of(model: SequenceModel, info: Info) -> Values:
    """What is averaged, of particles with axes (C, T)."""
    present = info.objects.pres.sum(-1, keepdims=True)
    counts = (present == jnp.arange(model.config.max_objects + 1)).astype(present.dtype)
    return Values(info.log_likelihood, info.log_q - info.log_p, info.discovered, counts)


def no_sums(length: int, slots: int) -> Sums:
    """Sums over no particles."""
    zero = jnp.zeros(length)
    values = Values(zero, zero, zero, jnp.zeros((length, slots + 1)))
    return Sums(jnp.full(length, jnp.finfo(zero.dtype).min), zero, zero, values, values)


def add_particles(sums: Sums, log_w: Float[Array, "C T"], values: Values, real: Bool[Array, " C"]) -> Sums:
    """Add a chunk; particles that are not `real` only fill it up, and have log weights of -inf."""
    top = jnp.maximum(sums.top, log_w.max(0))
    rescale, weight = jnp.exp(sums.top - top), jnp.exp(log_w - top)

    def total(by: Float[Array, "C T"], leaf: Array) -> Array:
        return jnp.einsum("ct,ct...->t...", by, leaf)

    def scaled(leaf: Array) -> Array:
        return leaf * rescale.reshape(rescale.shape + (1,) * (leaf.ndim - 1))

    ones = jnp.where(real[:, None], jnp.ones_like(log_w), 0.0)
    return Sums(
        top=top,
        weight=sums.weight * rescale + weight.sum(0),
        squared=sums.squared * rescale**2 + (weight**2).sum(0),
        weighted=jax.tree.map(lambda old, new: scaled(old) + total(weight, new), sums.weighted, values),
        plain=jax.tree.map(lambda old, new: old + total(ones, new), sums.plain, values),
    )


def conclude(model: SequenceModel, sums: Sums, particles: int) -> Posterior:
    """Averages from sums over all particles."""
    bounds = sums.top + jnp.log(sums.weight) - math.log(particles)
    weighted = jax.tree.map(
        lambda leaf: leaf / sums.weight.reshape(sums.weight.shape + (1,) * (leaf.ndim - 1)), sums.weighted
    )
    return Posterior(
        log_p=bounds.sum() if model.frames_are_independent else bounds[0],
        ess=(sums.weight**2 / sums.squared).mean() / particles,
        single=jax.tree.map(lambda leaf: leaf / particles, sums.plain),
        weighted=weighted,
    )

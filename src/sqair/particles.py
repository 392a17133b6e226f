"""Particles: K inferences of a sequence side by side, for the objectives, and the particle filter behind FIVO.

Axes: B sequences, K particles, T frames, Y, X, C frame.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sqair.distributions import Noise
from sqair.image import as_frames
from sqair.loops import limited, scan
from sqair.model import Info, Restraint, SequenceModel, no_restraint
from sqair.objects import State

FEW = 128
"""Particles that are resampled by comparing each with each, which needs no loop within the loop over frames."""


class Summary(NamedTuple):
    """The numbers of an `Info`, without its arrays: what an objective needs of each frame."""

    log_likelihood: Float[Array, "*T"]
    log_p: Float[Array, "*T"]
    log_q: Float[Array, "*T"]
    log_q_presence: Float[Array, "*T"]
    objects: Float[Array, "*T"]
    """How many are present."""
    propagated: Float[Array, "*T"]
    discovered: Float[Array, "*T"]

    @property
    def log_weight(self) -> Float[Array, "*T"]:
        """As that of `Info`."""
        return self.log_likelihood + self.log_p - self.log_q


def summarise(info: Info) -> Summary:
    """The numbers of an Info."""
    objects = info.objects.pres.sum(-1)
    presence = info.log_q_presence
    return Summary(info.log_likelihood, info.log_p, info.log_q, presence, objects, info.propagated, info.discovered)


def run_particles(
    model: SequenceModel,
    noise: Noise,
    frames: Float[Array, "T Y X"] | Float[Array, "T Y X C"],
    restraint: Restraint | None = None,
) -> Info:
    """K independent inferences of one sequence; noise and Info have a leading particle axis.

    Frames have none, so everything that depends on the frame alone, its encoding above all, is computed once.
    """
    return jax.vmap(lambda noise: model.observe(None, frames, noise=noise, restraint=restraint)[1])(noise)


def run_batch(
    model: SequenceModel,
    noise: Noise,
    frames: Float[Array, "B T Y X C"],
    restraint: Restraint,
    length: Int[Array, ""],
    limit: float | Float[Array, ""] = 0.0,
    *,
    uniforms: Float[Array, "B T"] | None = None,
    halved: bool = False,
) -> Summary:
    """K inferences of each of B sequences, made for training: noise and Summary have axes (B, K, T).

    With `uniforms` the particles of a sequence are resampled after every frame, and their weights start anew.

    A particle passes back to the frame before a gradient of at most the norm `limit`, 0 for no limit. With `halved`
    what the gradient needs is kept in bfloat16.

    Time is the outer loop, so that its gradient can be arranged (loops/). Frames from `length` on are encoded, but not
    inferred, and their numbers are zero: one compiled program serves a whole curriculum. Where no later frame waits for
    it, the likelihood of all frames is computed after the loop, at once. Resampling needs its value before: then frames
    are drawn twice, and only the second time has a gradient.
    """
    parameters, rest = eqx.partition(model, eqx.is_inexact_array)
    batch, particles = noise.pres.shape[:2]
    start = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (batch, particles, *leaf.shape)), model.initial())

    def step(
        parameters: SequenceModel, states: State, encodings: Array, now: tuple
    ) -> tuple[State, tuple[Summary, Any]]:
        frames, noise, restraint, uniform = now
        here = eqx.combine(parameters, rest)
        before = jax.vmap(jax.vmap(lambda state: limited(state, limit)))(states)
        of_particles = jax.vmap(here.step, in_axes=(0, None, None, 0, None))
        states, info = jax.vmap(of_particles, in_axes=(0, 0, 0, 0, None))(before, frames, encodings, noise, restraint)
        if uniform is not None:
            ancestors = jax.vmap(resample)(uniform, jax.lax.stop_gradient(info.log_weight))
            states = jax.vmap(descend)(states, ancestors)
        drawn_of = jax.vmap(jax.vmap(here.drawn_of))(before, info)
        if drawn_of is not None:
            info = info._replace(log_likelihood=jnp.zeros_like(info.log_p))
        return states, (summarise(info), drawn_of)

    frames_by_time, encodings = (jnp.moveaxis(leaf, 1, 0) for leaf in (frames, jax.vmap(model.encode)(frames)))
    noise_by_time = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 2, 0), noise)
    data = (frames_by_time, noise_by_time, restraint, None if uniforms is None else uniforms.T)
    _, (summary, drawn_of) = scan(step, parameters, start, encodings, data, length, halved=halved)
    if drawn_of is not None:
        of_particles = jax.vmap(model.log_likelihood, in_axes=(None, 0))
        # time and batch as one axis: with both, a compiler finds worse layouts
        together = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (frames_by_time, drawn_of))
        likelihood = jax.vmap(of_particles)(*together).reshape(-1, batch, particles)
        was_seen = (jnp.arange(len(likelihood)) < length)[:, None, None]
        summary = summary._replace(log_likelihood=jnp.where(was_seen, likelihood, 0.0))
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 2), summary)


def draw_particles(model: SequenceModel, key: PRNGKeyArray, particles: int, length: int) -> Noise:
    """Noise of K particles."""
    return jax.vmap(lambda k: model.noise(k, length))(jax.random.split(key, particles))


def resample(uniform: Float[Array, ""], log_weight: Float[Array, " K"]) -> Int[Array, " K"]:
    """Systematic resampling: K ancestors, each on average as often as its weight says, from one uniform number."""
    count = log_weight.shape[0]
    edges = jnp.cumsum(jax.nn.softmax(log_weight))
    points = (jnp.arange(count) + uniform) / count
    method = "compare_all" if count <= FEW else "scan"
    places = jnp.searchsorted(edges, points * edges[-1], side="right", method=method)
    return jnp.minimum(places, count - 1)


def descend(states: State, ancestors: Int[Array, " K"]) -> State:
    """The states of the ancestors, one for each particle; the choice has no gradient."""
    return jax.tree.map(lambda leaf: leaf[ancestors], states)


class Filtered(NamedTuple):
    """What a particle filter tells; after the scan with a leading time axis."""

    log_increment: Float[Array, "*T"]
    """The estimate of log p(x_t | x_<t)."""
    ess: Float[Array, "*T"]
    """Effective sample size, before resampling."""
    resampled: Bool[Array, "*T"]
    info: Info
    """Of each particle, before resampling."""


def particle_filter(
    model: SequenceModel,
    key: PRNGKeyArray,
    noise: Noise,
    frames: Float[Array, "T Y X"] | Float[Array, "T Y X C"],
    *,
    threshold: float = 0.5,
) -> Filtered:
    """FIVO (Maddison et al. 2017): particles are resampled whenever the effective sample size falls below threshold K.

    The sum of `log_increment` is the log of an unbiased estimate of p(x), so its mean is a lower bound. A threshold
    above 1 resamples at every time-step. This one is for reports; `run_batch` resamples in training.
    """
    frames = as_frames(frames)
    total, count = frames.shape[0], noise.pres.shape[0]
    by_time = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), noise)
    start = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), model.initial())
    even = jnp.full(count, -jnp.log(count))

    def advance(carry: tuple[State, Float[Array, " K"]], now: tuple) -> tuple[tuple, Filtered]:
        states, log_weight = carry
        x, encoding, noise_t, restraint_t, uniform = now
        of_particles = jax.vmap(model.step, in_axes=(0, None, None, 0, None))
        states, info = of_particles(states, x, encoding, noise_t, restraint_t)
        log_weight = log_weight + info.log_weight
        increment = jax.nn.logsumexp(log_weight)
        log_weight = log_weight - increment
        ess = jnp.exp(-jax.nn.logsumexp(2 * log_weight))
        needed = ess < threshold * count
        ancestors = jnp.where(needed, resample(uniform, log_weight), jnp.arange(count))
        after = descend(states, ancestors), jnp.where(needed, even, log_weight)
        return after, Filtered(increment, ess, needed, info)

    uniforms = jax.random.uniform(key, (total,))
    inputs = (frames, model.encode(frames), by_time, no_restraint(total), uniforms)
    return jax.lax.scan(advance, (start, even), inputs)[1]

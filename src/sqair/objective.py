"""Objectives (sec. 3, Learning): the ELBO, the IWAE bound, FIVO, and gradient estimators for the discrete presences.

Home of eq. 5 (iwae).

Reparameterised gradients pass through what and where; presences need a score term, the gradient of log q(pres) times
a learning signal. Every estimator here is a *surrogate*: a scalar whose gradient is the estimate. In the signals, L is
the IWAE bound of K particles and L_-k the same with w_k replaced by the geometric mean of the others.

    vimco          signal L - L_-k, summed over particles: unbiased for the IWAE bound (Mnih and Rezende 2016)
    vimco-authors  signal log w_k - L_-k, averaged: what the authors' program does; biased
    reinforce      signal log w_k - mean of the others, averaged: unbiased for the ELBO
    nvil           signal (log w_k - learned baseline), averaged: for the ELBO (Mnih and Gregor 2014); dividing it by
                   its running deviation, as that paper does, biases it and is a switch

FIVO is trained with vimco on each frame's particles, resampled at every frame. That gradient is biased. It leaves out
the choice of ancestors, as FIVO's authors do, and it credits a presence with its own frame only: what it does to the
increments of later frames, as an ancestor or through the state it leaves, has no score term.

Axes: B sequences, K particles, T frames, Y, X, C frame.
"""

import math
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sqair.config import TrainConfig, UserError
from sqair.distributions import Noise
from sqair.image import as_frames
from sqair.model import Info, Restraint, SequenceModel, no_restraint
from sqair.networks import MLP
from sqair.objects import State

Estimator = Literal["vimco", "vimco-authors", "reinforce", "nvil"]


# --- bounds


def elbo(log_w: Float[Array, " K"]) -> Float[Array, ""]:
    """The mean of log w: K single-particle bounds."""
    return log_w.mean()


def iwae(log_w: Float[Array, " K"]) -> Float[Array, ""]:
    """eq. 5: log of the mean of w, for one sequence."""
    return jax.nn.logsumexp(log_w) - math.log(log_w.shape[0])  # eq. 5


def leave_one_out(log_w: Float[Array, " K"]) -> Float[Array, " K"]:
    """L_-k: the IWAE bound in which particle k is replaced by the geometric mean of the others."""
    count = log_w.shape[0]
    others = (log_w.sum() - log_w) / (count - 1)
    replaced = jnp.where(jnp.eye(count, dtype=bool), others[:, None], log_w[None, :])
    return jax.vmap(iwae)(replaced)


# --- gradient estimators


class Moments(NamedTuple):
    """Running mean and variance of NVIL's learning signal, both from before the samples they are used on."""

    mean: Float[Array, ""]
    variance: Float[Array, ""]


def no_moments() -> Moments:
    """Before the first step."""
    return Moments(jnp.zeros(()), jnp.ones(()))


def update_moments(moments: Moments, signal: Float[Array, "*batch"], decay: float = 0.9) -> Moments:
    """Move towards the mean and variance of `signal`, which is log w less the input-dependent baseline."""
    mean, variance = signal.mean(), signal.var()
    return Moments(decay * moments.mean + (1 - decay) * mean, decay * moments.variance + (1 - decay) * variance)


class Baseline(eqx.Module):
    """NVIL's input-dependent baseline: a sum over frames of a small network of the pixels."""

    mlp: MLP

    def __init__(self, pixels: int, *, key: PRNGKeyArray) -> None:
        self.mlp = MLP((pixels, 100, 1), key=key, gain=0.1)

    def __call__(self, frames: Float[Array, "T Y X C"], length: Int[Array, ""]) -> Float[Array, ""]:
        """The expected log w of the first `length` frames."""
        each = jax.vmap(lambda frame: self.mlp(frame.reshape(-1))[0])(frames)
        return jnp.where(jnp.arange(frames.shape[0]) < length, each, 0.0).sum()


def surrogate(
    estimator: Estimator,
    log_w: Float[Array, " K"],
    log_q: Float[Array, " K"],
    baseline: Float[Array, ""] | None = None,
    deviation: Float[Array, ""] | None = None,
) -> Float[Array, ""]:
    """A scalar whose gradient estimates that of the bound. `log_q` is log q of the presences of each particle.

    `baseline` and `deviation` belong to NVIL: what is subtracted from its signal, and what it is divided by.
    """
    count = log_w.shape[0]
    if estimator == "nvil":
        if baseline is None:
            raise ValueError("nvil needs a baseline")
        signal = log_w - baseline
        signal = signal if deviation is None else signal / jnp.maximum(1.0, deviation)
        return elbo(log_w) + (jax.lax.stop_gradient(signal) * log_q).mean()
    if count < 2:
        raise UserError(f"the estimator {estimator!r} needs at least 2 particles; raise --train.particles")
    if estimator == "reinforce":
        signal = log_w - (log_w.sum() - log_w) / (count - 1)
        return elbo(log_w) + (jax.lax.stop_gradient(signal) * log_q).mean()
    if estimator == "vimco-authors":
        signal = log_w - leave_one_out(log_w)
        return iwae(log_w) + (jax.lax.stop_gradient(signal) * log_q).mean()
    signal = iwae(log_w) - leave_one_out(log_w)
    return iwae(log_w) + (jax.lax.stop_gradient(signal) * log_q).sum()


# --- particles


def run_particles(
    model: SequenceModel,
    noise: Noise,
    frames: Float[Array, "T Y X"] | Float[Array, "T Y X C"],
    restraint: Restraint | None = None,
    length: Int[Array, ""] | None = None,
) -> Info:
    """K independent inferences of one sequence; noise, restraint and Info have a leading particle axis.

    Frames have none, so everything that depends on the frame alone, its encoding above all, is computed once.
    """

    def one(noise: Noise, restraint: Restraint | None) -> Info:
        return model.observe(None, frames, noise=noise, restraint=restraint, length=length)[1]

    return jax.vmap(one)(noise, restraint)


def draw_particles(model: SequenceModel, key: PRNGKeyArray, particles: int, length: int) -> Noise:
    """Noise of K particles."""
    return jax.vmap(lambda k: model.noise(k, length))(jax.random.split(key, particles))


def resample(uniform: Float[Array, ""], log_weight: Float[Array, " K"]) -> Int[Array, " K"]:
    """Systematic resampling: K ancestors, each on average as often as its weight says, from one uniform number."""
    count = log_weight.shape[0]
    edges = jnp.cumsum(jax.nn.softmax(log_weight))
    points = (jnp.arange(count) + uniform) / count
    return jnp.minimum(jnp.searchsorted(edges, points * edges[-1], side="right"), count - 1)


class Filtered(NamedTuple):
    """What a particle filter tells; after the scan with a leading time axis."""

    log_increment: Float[Array, "*T"]
    """The estimate of log p(x_t | x_<t)."""
    log_weight: Float[Array, "*T K"]
    """Of each particle at this time-step, before resampling."""
    log_q_presence: Float[Array, "*T K"]
    ess: Float[Array, "*T"]
    """Effective sample size, before resampling."""
    resampled: Bool[Array, "*T"]
    info: Info


def particle_filter(
    model: SequenceModel,
    key: PRNGKeyArray,
    noise: Noise,
    frames: Float[Array, "T Y X"] | Float[Array, "T Y X C"],
    *,
    threshold: float = 0.5,
    restraint: Restraint | None = None,
    length: Int[Array, ""] | None = None,
) -> Filtered:
    """FIVO (Maddison et al. 2017): particles are resampled whenever the effective sample size falls below threshold K.

    The sum of `log_increment` is the log of an unbiased estimate of p(x), so its mean is a lower bound. A threshold
    above 1 resamples at every time-step.

    A gradient through this function ignores the choice of ancestors, as FIVO's authors do, and has no score term for
    presences. Training adds one frame by frame, so a presence gets no credit for later frames (`sequence_objective`).
    """
    frames = as_frames(frames)
    total, count = frames.shape[0], noise.pres.shape[0]
    encodings = model.encode(frames)
    free = jax.tree.map(lambda leaf: jnp.tile(leaf, (count, 1)), no_restraint(total))
    restraint = free if restraint is None else restraint
    by_time = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), (noise, restraint))
    start = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), model.initial())
    uniforms = jax.random.uniform(key, (total,))
    active = jnp.arange(total) < (total if length is None else length)

    def advance(carry: tuple[State, Float[Array, " K"]], now: tuple) -> tuple[tuple, Filtered]:
        state, log_weight = carry
        x, encoding, (noise_t, restraint_t), uniform, is_active = now
        stepped, info = jax.vmap(model.step, in_axes=(0, None, None, 0, 0))(state, x, encoding, noise_t, restraint_t)
        log_weight = log_weight + info.log_weight
        increment = jax.nn.logsumexp(log_weight)
        log_weight = log_weight - increment
        ess = jnp.exp(-jax.nn.logsumexp(2 * log_weight))
        needed = (ess < threshold * count) & is_active
        ancestors = jnp.where(needed, resample(uniform, log_weight), jnp.arange(count))
        moved = jax.tree.map(lambda leaf: leaf[jax.lax.stop_gradient(ancestors)], stepped)
        after = jnp.where(needed, -jnp.log(count), log_weight)
        kept = jax.tree.map(lambda new, old: jnp.where(is_active, new, old), (moved, after), carry)
        told = (increment, info.log_weight, info.log_q_presence)
        increment, weight, presence = (jnp.where(is_active, leaf, 0.0) for leaf in told)
        return kept, Filtered(increment, weight, presence, ess, needed, info)

    inputs = (frames, encodings, by_time, uniforms, active)
    return jax.lax.scan(advance, (start, jnp.full(count, -jnp.log(count))), inputs)[1]


# --- what training minimises


class Diagnostics(NamedTuple):
    """Unsupervised signs of how training goes, averaged over the batch; all but the first are of single samples."""

    bound: Float[Array, "*batch"]
    """The bound that is trained, in nats per frame."""
    log_likelihood: Float[Array, "*batch"]
    """Nats per frame."""
    kl: Float[Array, "*batch"]
    """log q - log p of the latent variables, nats per frame."""
    objects: Float[Array, "*batch"]
    """Present objects per frame."""
    discovered_first: Float[Array, "*batch"]
    """Objects discovered in the first frame."""
    discovered_later: Float[Array, "*batch"]
    """Objects discovered per later frame."""
    propagated: Float[Array, "*batch"]
    """Objects propagated per later frame."""


def check_objective(config: TrainConfig) -> None:
    """Refuse a bound and an estimator that do not belong together, before anything is compiled."""
    fitting = {"elbo": ("reinforce", "nvil"), "iwae": ("vimco", "vimco-authors"), "fivo": ("vimco",)}[config.bound]
    if config.estimator not in fitting:
        raise UserError(
            f"the bound {config.bound!r} goes with the estimators {', '.join(fitting)}, not {config.estimator!r}"
        )
    if config.estimator != "nvil" and config.particles < 2:
        raise UserError(f"the estimator {config.estimator!r} needs at least 2 particles; raise --train.particles")


def sequence_objective(
    model: SequenceModel,
    key: PRNGKeyArray,
    frames: Float[Array, "T Y X C"],
    restraint: Restraint,
    length: Int[Array, ""],
    config: TrainConfig,
    baseline: Baseline | None = None,
    moments: Moments | None = None,
) -> tuple[Float[Array, ""], tuple[Diagnostics, Float[Array, " K"]]]:
    """The surrogate of one sequence, per frame, with diagnostics and NVIL's signal. `restraint` has axes (K, T).

    FIVO is trained with resampling at every frame, and presences are credited with their own frame's increment only:
    what they do to later frames, through the choice of ancestors or otherwise, is left out of the gradient.
    """
    key_noise, key_filter = jax.random.split(key)
    noise = draw_particles(model, key_noise, config.particles, frames.shape[0])
    if config.bound == "fivo":
        run = particle_filter(model, key_filter, noise, frames, threshold=2.0, restraint=restraint, length=length)
        steps = jax.vmap(lambda w, q: surrogate("vimco", w, q))(run.log_weight, run.log_q_presence)
        value = jnp.where(jnp.arange(frames.shape[0]) < length, steps, 0.0).sum()
        info = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), run.info)
        return value / length, (diagnose(info, run.log_increment.sum(), length), jnp.zeros(config.particles))
    info = run_particles(model, noise, frames, restraint, length)
    log_w, log_q = info.log_weight.sum(-1), info.log_q_presence.sum(-1)
    bound = elbo(log_w) if config.bound == "elbo" else iwae(log_w)
    if config.estimator != "nvil" or baseline is None or moments is None:
        value = surrogate(config.estimator, log_w, log_q)
        return value / length, (diagnose(info, bound, length), jnp.zeros_like(log_w))
    expected = baseline(frames, length)
    deviation = jnp.sqrt(moments.variance) if config.normalise_nvil else None
    value = surrogate("nvil", log_w, log_q, expected + moments.mean, deviation)
    signal = jax.lax.stop_gradient(log_w)
    fit = 0.5 * jnp.square((signal - expected - moments.mean) / length).mean()
    return value / length - fit, (diagnose(info, bound, length), signal - jax.lax.stop_gradient(expected))


def diagnose(info: Info, bound: Float[Array, ""], length: Int[Array, ""]) -> Diagnostics:
    """Averages over the particles and the first `length` frames of an Info with axes (K, T)."""
    seen = jnp.arange(info.log_p.shape[1]) < length

    def per_frame(values: Float[Array, "K T"]) -> Float[Array, ""]:
        return jnp.where(seen, values, 0.0).sum(1).mean() / length

    def per_later_frame(values: Float[Array, "K T"]) -> Float[Array, ""]:
        return jnp.where(seen, values, 0.0)[:, 1:].sum(1).mean() / jnp.maximum(length - 1, 1)

    return Diagnostics(
        bound=bound / length,
        log_likelihood=per_frame(info.log_likelihood),
        kl=per_frame(info.log_q - info.log_p),
        objects=per_frame(info.objects.pres.sum(-1)),
        discovered_first=info.discovered[:, 0].mean(),
        discovered_later=per_later_frame(info.discovered),
        propagated=per_later_frame(info.propagated),
    )


def batch_loss(
    model: SequenceModel,
    key: PRNGKeyArray,
    frames: Float[Array, "B T Y X C"],
    restraint: Restraint,
    length: Int[Array, ""],
    config: TrainConfig,
    baseline: Baseline | None = None,
    moments: Moments | None = None,
) -> tuple[Float[Array, ""], tuple[Diagnostics, Float[Array, "B K"]]]:
    """What training minimises: minus the mean surrogate of a batch. `restraint` has axes (B, K, T)."""

    def one(key: PRNGKeyArray, frames: Float[Array, "T Y X C"], restraint: Restraint) -> tuple:
        return sequence_objective(model, key, frames, restraint, length, config, baseline, moments)

    keys = jax.random.split(key, frames.shape[0])
    values, (diagnostics, signals) = jax.vmap(one)(keys, frames, restraint)
    return -values.mean(), (jax.tree.map(lambda leaf: leaf.mean(0), diagnostics), signals)

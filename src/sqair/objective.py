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
from collections.abc import Callable
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from sqair.config import TrainConfig, UserError
from sqair.distributions import Noise
from sqair.model import Restraint, SequenceModel
from sqair.networks import MLP, halved
from sqair.particles import Summary, draw_particles, run_batch

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


class Surplus(NamedTuple):
    """Training only: a price on objects of which the data say that there are too many."""

    most_objects: Int[Array, "B T"]
    """There are no more; -1 where that is not known."""
    cost: Float[Array, ""]
    """Nats per frame and further object."""


def check_objective(config: TrainConfig) -> None:
    """Refuse a bound and an estimator that do not belong together, before anything is compiled."""
    fitting = {"elbo": ("reinforce", "nvil"), "iwae": ("vimco", "vimco-authors"), "fivo": ("vimco",)}[config.bound]
    if config.estimator not in fitting:
        raise UserError(
            f"the bound {config.bound!r} goes with the estimators {', '.join(fitting)}, not {config.estimator!r}"
        )
    if config.bound == "fivo" and config.surplus_cost:
        raise UserError("the bound 'fivo' resamples before surplus_cost is known; leave --train.surplus-cost at 0")
    if config.estimator != "nvil" and config.particles < 2:
        raise UserError(f"the estimator {config.estimator!r} needs at least 2 particles; raise --train.particles")


def fivo_objective(summary: Summary, length: Int[Array, ""]) -> tuple[Float[Array, ""], Diagnostics]:
    """The surrogate of one sequence, per frame, with resampling at every frame. `summary` has axes (K, T).

    Presences are credited with their own frame's increment only: what they do to later frames, through the choice of
    ancestors or otherwise, is left out of the gradient.
    """
    steps = jax.vmap(lambda w, q: surrogate("vimco", w, q), in_axes=1)(summary.log_weight, summary.log_q_presence)
    bound = jax.vmap(iwae, in_axes=1)(summary.log_weight).sum()
    return steps.sum() / length, diagnose(summary, bound, length)


def sequence_objective(
    summary: Summary,
    frames: Float[Array, "T Y X C"],
    length: Int[Array, ""],
    config: TrainConfig,
    baseline: Baseline | None = None,
    moments: Moments | None = None,
) -> tuple[Float[Array, ""], tuple[Diagnostics, Float[Array, " K"]]]:
    """The surrogate of one sequence, per frame, with diagnostics and NVIL's signal. `summary` has axes (K, T)."""
    log_w, log_q = summary.log_weight.sum(-1), summary.log_q_presence.sum(-1)
    bound = elbo(log_w) if config.bound == "elbo" else iwae(log_w)
    diagnostics = diagnose(summary, bound, length)
    if config.estimator != "nvil" or baseline is None or moments is None:
        return surrogate(config.estimator, log_w, log_q) / length, (diagnostics, jnp.zeros_like(log_w))
    expected = baseline(frames, length)
    deviation = jnp.sqrt(moments.variance) if config.normalise_nvil else None
    value = surrogate("nvil", log_w, log_q, expected + moments.mean, deviation)
    signal = jax.lax.stop_gradient(log_w)
    fit = 0.5 * jnp.square((signal - expected - moments.mean) / length).mean()
    return value / length - fit, (diagnostics, signal - jax.lax.stop_gradient(expected))


def diagnose(summary: Summary, bound: Float[Array, ""], length: Int[Array, ""]) -> Diagnostics:
    """Averages over the particles and the first `length` frames of a Summary with axes (K, T)."""
    seen = jnp.arange(summary.log_p.shape[1]) < length

    def per_frame(values: Float[Array, "K T"]) -> Float[Array, ""]:
        return jnp.where(seen, values, 0.0).sum(1).mean() / length

    def per_later_frame(values: Float[Array, "K T"]) -> Float[Array, ""]:
        return jnp.where(seen, values, 0.0)[:, 1:].sum(1).mean() / jnp.maximum(length - 1, 1)

    return Diagnostics(
        bound=bound / length,
        log_likelihood=per_frame(summary.log_likelihood),
        kl=per_frame(summary.log_q - summary.log_p),
        objects=per_frame(summary.objects),
        discovered_first=summary.discovered[:, 0].mean(),
        discovered_later=per_later_frame(summary.discovered),
        propagated=per_later_frame(summary.propagated),
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
    surplus: Surplus | None = None,
) -> tuple[Float[Array, ""], tuple[Diagnostics, Float[Array, "B K"]]]:
    """What training minimises: minus the mean surrogate of a batch. `restraint` is the same for all of it."""
    filter_keys, noise = draw_batch(model, key, frames, config)
    limit, data = config.clip_frame / len(frames), (filter_keys, noise, frames, restraint, length, surplus)
    return drawn_loss(model, *data, config, baseline, moments, limit=limit)


def priced(summary: Summary, surplus: Surplus | None) -> Summary:
    """A Summary with axes (B, K, T), its weights without what objects cost of which there are too many."""
    if surplus is None:
        return summary
    most = surplus.most_objects[:, None]
    excess = jnp.where(most >= 0, jax.nn.relu(summary.objects - most), 0.0)
    return summary._replace(log_p=summary.log_p - surplus.cost * excess)


def draw_batch(
    model: SequenceModel, key: PRNGKeyArray, frames: Float[Array, "B T Y X C"], config: TrainConfig
) -> tuple[Key[Array, " B"], Noise]:
    """All randomness of a batch: a key for each sequence's resampling, and the noise of its particles."""
    count, total = frames.shape[:2]
    keys, filter_keys = jax.vmap(jax.random.split, out_axes=1)(jax.random.split(key, count))
    return filter_keys, jax.vmap(lambda key: draw_particles(model, key, config.particles, total))(keys)


def drawn_loss(
    model: SequenceModel,
    filter_keys: Key[Array, " B"],
    noise: Noise,
    frames: Float[Array, "B T Y X C"],
    restraint: Restraint,
    length: Int[Array, ""],
    surplus: Surplus | None,
    config: TrainConfig,
    baseline: Baseline | None,
    moments: Moments | None,
    *,
    limit: float | Float[Array, ""],
    gather: Callable[[Summary], Summary] = lambda summary: summary,
) -> tuple[Float[Array, ""], tuple[Diagnostics, Float[Array, "B K"]]]:
    """`batch_loss` of noise that is drawn. `gather` adds the particles that other devices have."""
    is_halved = config.precision == "bf16" and jax.default_backend() != "cpu"
    model = halved(model) if is_halved else model

    def run(uniforms: Float[Array, "B T"] | None = None) -> Summary:
        summary = run_batch(model, noise, frames, restraint, length, limit, uniforms=uniforms, halved=is_halved)
        return priced(summary, surplus)

    if config.bound == "fivo":
        uniforms = jax.vmap(lambda key: jax.random.uniform(key, frames.shape[1:2]))(filter_keys)
        of_batch = jax.vmap(lambda summary: fivo_objective(summary, length))
        values, diagnostics = of_batch(run(uniforms=uniforms))
        signals = jnp.zeros((len(frames), config.particles))
    else:
        of_batch = jax.vmap(lambda summary, x: sequence_objective(summary, x, length, config, baseline, moments))
        values, (diagnostics, signals) = of_batch(gather(run()), frames)
    return -values.mean(), (jax.tree.map(lambda leaf: leaf.mean(0), diagnostics), signals)

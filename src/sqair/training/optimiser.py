"""Optimisers: Adam, Muon, or the RMSprop of the authors' program; clipping; steps with bad gradients are skipped."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from sqair.config import TrainConfig
from sqair.training.curriculum import learning_rate
from sqair.training.muon import scale_by_muon

BASELINE_RATE = 10.0
"""NVIL's baseline learns so many times faster than the model, since it must follow the model's bound."""
MOST_SKIPPED = 20
"""Steps in a row that are skipped before training stops to do something about it."""
NORM_DECAY = 0.99
"""Of the running mean of gradient norms."""


class GuardState(NamedTuple):
    """What `guarded` remembers. Its first fields have the names that files know them by."""

    notfinite_count: Int[Array, "*members"]
    """Steps skipped in a row ..."""
    last_finite: Bool[Array, "*members"]
    """... whether the last one was not ..."""
    total_notfinite: Int[Array, "*members"]
    """... and how many were in all."""
    inner_state: Any
    """Of the rule that is guarded."""
    norm: Float[Array, "*members"]
    """The running mean of the norms of gradients; 0 before the first."""
    rate: Float[Array, "*members"]
    """What the learning rate is multiplied by: 1, or less after training has gone back."""


def model_optimiser(config: TrainConfig) -> optax.GradientTransformation:
    """The optimiser of the model. Its state counts skipped steps: `notfinite_count` in a row, `total_notfinite`."""
    schedule = learning_rate(config)
    if config.optimiser == "muon":
        rule = optax.chain(scale_by_muon(), optax.scale_by_learning_rate(schedule))
        return guarded(rule, config.clip, config.spike, whole=False)
    rule = rmsprop(schedule) if config.optimiser == "rmsprop" else optax.adam(schedule)
    return guarded(rule, config.clip, config.spike)


def baseline_optimiser(config: TrainConfig) -> optax.GradientTransformation:
    """NVIL's baseline has an optimiser and a norm of its own, so that its gradients do not shrink the model's."""
    schedule = learning_rate(config)
    return guarded(optax.adam(lambda step: BASELINE_RATE * schedule(step)), config.clip, config.spike)


def rmsprop(rate: optax.ScalarOrSchedule) -> optax.GradientTransformation:
    """TensorFlow's RMSprop: mean squares start at 1, epsilon is inside the root, the rate inside the momentum.

    ms <- .9 ms + .1 g^2;  mom <- .9 mom + rate g / sqrt(ms + 1e-10);  parameters <- parameters - mom
    """
    return optax.rmsprop(rate, decay=0.9, eps=1e-10, initial_scale=1.0, eps_in_sqrt=True, momentum=0.9)


def guarded(
    rule: optax.GradientTransformation, clip: float, spike: float = 0.0, *, whole: bool = True
) -> optax.GradientTransformation:
    """`rule` after clipping to the global norm `clip` (0 for none), left out where a gradient is bad.

    That is one that is not finite, or with a norm more than `spike` times (0 for any) its running mean. The mean
    follows such gradients too, each as if it were no larger than that: ones that stay large are soon not left out.

    All parameters are one vector to it, so that a step of the optimiser is a few operations, not a few for each array;
    but not to a `rule` that must know which of them belong together (`whole=False`).
    """

    def as_given(vector: Float[Array, " P"], as_tree: Callable[[Array], Any]) -> Any:
        return vector if whole else as_tree(vector)

    def begin(params: optax.Params) -> GuardState:
        none = jnp.zeros((), jnp.int32)
        inner = rule.init(as_given(*ravel_pytree(params)))
        return GuardState(none, jnp.array(True), none, inner, jnp.zeros(()), jnp.ones(()))

    def update(
        updates: optax.Updates, state: optax.OptState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, GuardState]:
        assert isinstance(state, GuardState)
        vector, as_tree = ravel_pytree(updates)
        norm = jnp.sqrt(jnp.square(vector).sum())
        limit = jnp.where(state.norm > 0, spike * state.norm, jnp.inf) if spike > 0 else jnp.inf
        good = jnp.isfinite(norm) & (norm <= limit)
        scale = jnp.minimum(1.0, clip / norm) if clip > 0 else 1.0
        given = as_given(jnp.where(good, scale * vector, 0.0), as_tree)
        moved, inner = rule.update(given, state.inner_state, None)
        kept = jax.tree.map(lambda new, old: jnp.where(good, new, old), inner, state.inner_state)
        in_a_row, total = jnp.where(good, 0, state.notfinite_count + 1), state.total_notfinite + ~good
        moved = jax.tree.map(lambda leaf: jnp.where(good, state.rate * leaf, 0.0), moved)
        moved = as_tree(jnp.asarray(moved)) if whole else moved
        mean = _running(state.norm, jnp.where(jnp.isfinite(norm), jnp.minimum(norm, limit), jnp.nan))
        return moved, GuardState(in_a_row, good, total, kept, mean, state.rate)

    return optax.GradientTransformation(begin, update)


def _running(mean: Float[Array, ""], norm: Float[Array, ""]) -> Float[Array, ""]:
    """The running mean with one more norm, unless that is not finite."""
    moved = jnp.where(mean > 0, NORM_DECAY * mean + (1 - NORM_DECAY) * norm, norm)
    return jnp.where(jnp.isfinite(norm), moved, mean).astype(mean.dtype)

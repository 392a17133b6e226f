"""Optimisers: Adam, or the RMSprop of the authors' program; clipping; steps with non-finite gradients are skipped."""

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from sqair.config import TrainConfig
from sqair.training.curriculum import learning_rate

BASELINE_RATE = 10.0
"""NVIL's baseline learns so many times faster than the model, since it must follow the model's bound."""


def model_optimiser(config: TrainConfig) -> optax.GradientTransformation:
    """The optimiser of the model. Its state counts skipped steps: `notfinite_count` in a row, `total_notfinite`."""
    schedule = learning_rate(config)
    rule = rmsprop(schedule) if config.optimiser == "rmsprop" else optax.adam(schedule)
    return guarded(rule, config.clip)


def baseline_optimiser(config: TrainConfig) -> optax.GradientTransformation:
    """NVIL's baseline has an optimiser and a norm of its own, so that its gradients do not shrink the model's."""
    schedule = learning_rate(config)
    return guarded(optax.adam(lambda step: BASELINE_RATE * schedule(step)), config.clip)


def rmsprop(rate: optax.ScalarOrSchedule) -> optax.GradientTransformation:
    """TensorFlow's RMSprop: mean squares start at 1, epsilon is inside the root, the rate inside the momentum.

    ms <- .9 ms + .1 g^2;  mom <- .9 mom + rate g / sqrt(ms + 1e-10);  parameters <- parameters - mom
    """
    return optax.rmsprop(rate, decay=0.9, eps=1e-10, initial_scale=1.0, eps_in_sqrt=True, momentum=0.9)


def guarded(rule: optax.GradientTransformation, clip: float) -> optax.GradientTransformation:
    """`rule` after clipping to the global norm `clip` (0 for none), left out where a gradient is not finite.

    All parameters are one vector to it, so that a step of the optimiser is a few operations, not a few for each array.
    """

    def begin(params: optax.Params) -> optax.ApplyIfFiniteState:
        none = jnp.zeros((), jnp.int32)
        return optax.ApplyIfFiniteState(none, jnp.array(True), none, rule.init(ravel_pytree(params)[0]))

    def update(
        updates: optax.Updates, state: optax.OptState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.ApplyIfFiniteState]:
        assert isinstance(state, optax.ApplyIfFiniteState)
        vector, as_tree = ravel_pytree(updates)
        norm = jnp.sqrt(jnp.square(vector).sum())
        finite = jnp.isfinite(norm)
        scale = jnp.minimum(1.0, clip / norm) if clip > 0 else 1.0
        moved, inner = rule.update(jnp.where(finite, scale * vector, 0.0), state.inner_state, None)
        kept = jax.tree.map(lambda new, old: jnp.where(finite, new, old), inner, state.inner_state)
        in_a_row, total = jnp.where(finite, 0, state.notfinite_count + 1), state.total_notfinite + ~finite
        moved = as_tree(jnp.where(finite, jnp.asarray(moved), 0.0))
        return moved, optax.ApplyIfFiniteState(in_a_row, finite, total, kept)

    return optax.GradientTransformation(begin, update)

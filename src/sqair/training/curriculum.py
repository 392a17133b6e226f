"""What changes while training goes on (App. D.1): sequence length, learning rate, and the restraint on discovery.

Every function can be compiled with `step` as an argument. Restraint is for training only: no reported bound has it.

Axes: T frames.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from sqair.config import TrainConfig
from sqair.model import Restraint

DROPOUT_SEED = 0
"""Which frames discovery is switched off at."""


def length_at(step: Int[Array, ""] | int, config: TrainConfig, total_length: int) -> Int[Array, ""]:
    """Frames used at `step`: `first_length`, and one more every `stage` steps, up to `total_length`."""
    return jnp.clip(config.first_length + step // config.stage, 1, total_length)


def learning_rate(config: TrainConfig) -> optax.Schedule:
    """A linear rise over `warm_up`, a third at each step of `decay`, and a cosine to 0 over the last `final_decay`."""
    cosine_steps = config.final_decay * config.steps
    cosine_start = config.steps - cosine_steps

    def schedule(count: Any) -> Float[Array, ""]:
        step = jnp.asarray(count)
        warm_up = jnp.minimum(1.0, (step + 1) / max(config.warm_up, 1))
        thirds = sum(jnp.where(step >= at, math.log(3.0), 0.0) for at in config.decay)
        done = jnp.clip((step - cosine_start) / cosine_steps, 0.0, 1.0) if cosine_steps > 0 else 0.0
        return config.learning_rate * warm_up * jnp.exp(-jnp.asarray(thirds)) * 0.5 * (1 + jnp.cos(math.pi * done))

    return schedule


def restraint_at(step: Int[Array, ""] | int, config: TrainConfig, total_length: int) -> Restraint:
    """The restraint of a batch: discovery dropout after the first frame, and costs of discovery and of presence.

    A frame without discovery is so for the whole batch, and at a step for every seed: the program branches on it, and
    the frame costs half as much.
    """
    later = jnp.arange(total_length) > 0
    key = jax.random.fold_in(jax.random.key(DROPOUT_SEED), step)
    dropped = later & jax.random.bernoulli(key, config.discovery_dropout, (total_length,))
    left = jnp.clip(1 - step / max(config.discovery_cost_steps, 1), 0.0, 1.0)
    cost = config.discovery_cost * left + config.rediscovery_cost * later
    return Restraint(
        discover=jnp.where(dropped, 0.0, 1.0),
        cost=jnp.broadcast_to(cost, (total_length,)),
        rent=jnp.broadcast_to(jnp.asarray(config.presence_cost, cost.dtype), (total_length,)),
        learned=jnp.broadcast_to(jnp.where(step < config.presence_delay, 0.0, 1.0), (total_length,)),
    )

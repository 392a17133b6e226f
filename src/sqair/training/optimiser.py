"""Optimisers: Adam, or the RMSprop of the authors' program; clipping; steps with non-finite gradients are skipped."""

import optax

from sqair.config import TrainConfig
from sqair.training.curriculum import learning_rate

NEVER = 2**31 - 1
"""A number of bad steps in a row that is never reached: a non-finite gradient is never applied."""
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
    """`rule` after clipping to the global norm `clip` (0 for none), left out where a gradient is not finite."""
    clipped = optax.chain(optax.clip_by_global_norm(clip), rule) if clip > 0 else rule
    return optax.apply_if_finite(clipped, max_consecutive_errors=NEVER)

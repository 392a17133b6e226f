"""Our recipe for another number of steps than a preset's own. Standard library only, for the command line.

What was chosen for the preset's own number of steps is stretched or shrunk in proportion, within limits: a learning
rate needs some steps to rise whatever comes after, a curriculum is of no use when its stages are too short to learn
in, and a long run must still show itself, and be saved, before long.

    field                  at least (if the preset's own is not less)   at most
    warm_up                100                                          the preset's own
    stage                  100                                          twice the preset's own
    discovery_cost_steps   500                                          twice the preset's own
    evaluate_every         50                                           twice the preset's own
"""

import dataclasses
from typing import NamedTuple

from sqair.config import TrainConfig


class Limits(NamedTuple):
    """How far a field is scaled."""

    least: int
    most: int
    """In multiples of the preset's own value."""


SCALED = {
    "warm_up": Limits(100, 1),
    "stage": Limits(100, 2),
    "discovery_cost_steps": Limits(500, 2),
    "evaluate_every": Limits(50, 2),
}
"""Fields of TrainConfig that are counted in steps and belong to the recipe."""


def scaled(config: TrainConfig, steps: int) -> TrainConfig:
    """`config`, a preset's own, for this many steps; for its own number it is unchanged."""
    return dataclasses.replace(config, steps=steps, **{name: scaled_field(config, name, steps) for name in SCALED})


def scaled_field(config: TrainConfig, name: str, steps: int) -> int:
    """A field in proportion to the number of steps, within its limits."""
    own, limits = getattr(config, name), SCALED[name]
    return max(min(limits.least, own), min(limits.most * own, round(own * steps / config.steps)))

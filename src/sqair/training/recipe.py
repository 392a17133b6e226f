"""The paper's recipe, and ours for other steps or digits than a preset's own. Standard library only.

What was chosen for the preset's own number of steps is stretched or shrunk in proportion, within limits: a learning
rate needs some steps to rise whatever comes after, a curriculum is of no use when its stages are too short to learn
in, and a long run must still show itself, and be saved, before long.

    field                  at least (if the preset's own is not less)   at most
    warm_up                100                                          the preset's own
    stage                  100                                          twice the preset's own
    discovery_cost_steps   500                                          twice the preset's own
    evaluate_every         50                                           twice the preset's own

For digits of another size all that is measured by a digit follows them: boxes, or one box would hold two digits; and
what a discovery costs, which is a share of what a digit explains, so it grows with its area and the pixels' precision.
SQAIR learns much smaller digits after those of the preset's own size, a third of training long (phases.py); then boxes
stay the preset's own.
"""

import dataclasses
import math
import operator
from typing import NamedTuple

from sqair.config import DataConfig, Preset, TrainConfig

PAPER_RECIPE = TrainConfig(
    steps=2_000_000,
    batch=32,
    particles=5,
    optimiser="rmsprop",
    learning_rate=1e-5,
    warm_up=0,
    decay=(400_000, 1_000_000),
    final_decay=0.0,
    clip=0.0,
    clip_frame=0.0,
    precision="float32",
    first_length=3,
    stage=100_000,
    discovery_dropout=0.0,
    discovery_cost=0.0,
    evaluate_every=10_000,
    spike=0.0,
)
"""App. D.1; the last learning rate is 1.11e-6, a third as in the authors' program, where the paper prints 1e-6."""

PAPER_VRNN_RECIPE = dataclasses.replace(PAPER_RECIPE, bound="fivo", decay=(), first_length=10)
"""App. D.3: FIVO, one learning rate, no curriculum. The paper trains until the bound no longer rises."""


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
FIRST_STEPS = "first_scale_steps"
"""Another one, which is a part of all steps."""
BOXES = ("scale_limits", "width_limits")
"""Fields of ModelConfig that are measured by a digit."""
SMALL = 0.85
"""Digits of less than this share of a preset's are not learnt by every seed from the start."""
FIRST = 1 / 3
"""The part of training that is given to digits of the preset's size, where they are to be smaller."""
LEAST = 1e-3
"""Settings below it are left to be refused, or taken as they are."""


def scaled(config: TrainConfig, steps: int) -> TrainConfig:
    """`config`, a preset's own, for this many steps; for its own number it is unchanged."""
    return dataclasses.replace(config, steps=steps, **{name: scaled_field(config, name, steps) for name in SCALED})


def scaled_field(config: TrainConfig, name: str, steps: int) -> int:
    """A field in proportion to the number of steps, within its limits."""
    own, limits = getattr(config, name), SCALED[name]
    return max(min(limits.least, own), min(limits.most * own, round(own * steps / config.steps)))


def following(config: TrainConfig, name: str, steps: int) -> int:
    """A field for a number of steps: one of SCALED, or FIRST_STEPS of a training with a first phase."""
    return max(1, round(FIRST * steps)) if name == FIRST_STEPS else scaled_field(config, name, steps)


def beginning_scale(own: Preset, data: DataConfig) -> float:
    """The size of digits to begin with when a new SQAIR is to learn those of `data`: the preset's, or 0 for no other.

    They must be much smaller than the preset's, which must have room in the frames; a file has no digits to scale.
    """
    is_small = LEAST <= data.digit_scale < SMALL * own.data.digit_scale
    has_room = data.max_digits <= own.data.max_digits and all(map(operator.ge, data.size, own.data.size))
    is_made = not data.name.endswith(".npz")
    return own.data.digit_scale if is_small and has_room and is_made else 0.0


def for_digits(own: Preset, digit_scale: float, output_std: float, first_scale: float = 0.0) -> Preset:
    """A preset for digits of another size than its own, or another output std; for its own it is unchanged.

    Where training begins with digits of `first_scale`, boxes follow the larger ones. The size of frames is taken to be
    the preset's. VRNN has neither boxes nor discoveries.
    """
    possible = (LEAST <= value < math.inf for value in (digit_scale, output_std, first_scale or digit_scale))
    if own.model.kind == "vrnn" or not all(possible):
        return own
    size, precision = digit_scale / own.data.digit_scale, own.model.output_std / output_std
    side = max(size, first_scale / own.data.digit_scale)
    limits = {name: tuple(share_of_frame(side * limit) for limit in getattr(own.model, name)) for name in BOXES}
    cost = round(own.train.discovery_cost * (size * precision) ** 2, 1)
    return dataclasses.replace(
        own,
        model=dataclasses.replace(own.model, **limits),
        train=dataclasses.replace(own.train, discovery_cost=cost),
    )


def share_of_frame(side: float) -> float:
    """A side of a box, to four digits, and at most that of the frame."""
    return min(1.0, float(f"{side:.4g}"))

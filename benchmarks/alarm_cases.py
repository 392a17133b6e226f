"""Trainings for the alarm: healthy ones, and ones that are provoked to fail in each of the six ways.

A population trains side by side under `vmap`. Its members differ in the seed, in training knobs that are numbers inside
the compiled step, and in settings of the model that only choose the parameters it starts from. What is fixed in the
compiled step (the curriculum, how long a price lasts) is the same for a whole population: hence two of them.

Axes: R members.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from sqair.config import DataConfig, ModelConfig, Preset, TrainConfig, preset
from sqair.data import open_data
from sqair.settings import from_dict, to_dict
from sqair.training.members import KNOBS
from sqair.training.population import train_members
from sqair.training.step import TrainState, first_state, seed_keys

HEALTHY = "healthy"
BEYOND = (-0.5, -0.5, 3.0, 3.0)
"""A place to look first, as logits of where: outside the lower right corner."""
LASTING = 10**9
"""Steps over which a price is annealed that is to last."""
SMALL = Preset(
    ModelConfig(image=(28, 28), glimpse=(10, 10), max_objects=3, what_size=8, width=32),
    DataConfig(digits="strokes", size=(28, 28), length=4, max_digits=2, digit_scale=0.4, speed=3.0),
    TrainConfig(
        steps=10_000,
        batch=16,
        particles=4,
        learning_rate=1e-3,
        warm_up=50,
        first_length=2,
        stage=200,
        discovery_cost=10.0,
        discovery_cost_steps=1_000,
    ),
)
"""What `--preset tiny` trains: two digits in three slots, small enough for two CPU cores."""


class Case(NamedTuple):
    """One training."""

    kind: str
    """The failure it is meant to have, or HEALTHY."""
    seed: int
    knobs: dict[str, float] = {}  # noqa: RUF012 (never changed)
    """Fields of TrainConfig, of those in KNOBS."""
    start: dict[str, Any] = {}  # noqa: RUF012
    """Fields of ModelConfig that only choose the first parameters."""
    aim: tuple[float, ...] | None = None
    """Where discovery and its prior look at first, if not where they usually do."""


def setting_named(name: str, steps: int, changes: dict[str, dict[str, Any]]) -> Preset:
    """The preset with `steps` steps in all and the given changes of its parts; `tiny` means SMALL."""
    base = to_dict(SMALL if name == "tiny" else preset(name))
    chosen = from_dict(Preset, {part: {**fields, **changes.get(part, {})} for part, fields in base.items()})
    return dataclasses.replace(chosen, train=dataclasses.replace(chosen.train, steps=steps))


def provoked_setting(setting: Preset) -> Preset:
    """How the provoked population is trained: on whole sequences from the start, with prices that last."""
    train = dataclasses.replace(setting.train, first_length=setting.data.length, discovery_cost_steps=LASTING)
    return dataclasses.replace(setting, train=train)


def worth(setting: Preset) -> float:
    """What a digit is worth in nats: how much an empty canvas loses to a perfect one over a sequence, per digit."""
    truth = open_data(setting.data, "validation").fixed(50, 1)
    frames, counts = np.asarray(truth.frames), np.asarray(truth.counts)
    nats = np.square(frames).sum() / (2 * setting.model.output_std**2)
    return float(nats / max(counts[:, 0].sum(), 1))


def provoked_cases(setting: Preset) -> list[Case]:
    """Settings that lead into each failure. Prices are shares of what a digit is worth."""
    price = worth(setting)
    free = {"discovery_dropout": 0.0, "discovery_cost": 0.0}
    forget = {"nothing_new_bias": 0.0, "survival_bias": -3.0, "propagation_bias": -2.0}
    cases = [Case("re-detection", 0, {**free, "rediscovery_cost": -s * price}, forget) for s in (0.02, 0.05, 0.1, 0.15)]
    # What is paid for a discovery in the first frame is taken back in later ones, or objects would be found anew.
    gifts = [{"discovery_cost": -s * price, "rediscovery_cost": s * price} for s in (0.1, 0.15, 0.2)]
    cases += [Case("all slots used", 0, gift) for gift in gifts]
    cases += [Case("none used", 0, {"discovery_cost": s * price}) for s in (0.5, 1.0, 2.0)]
    cases += [Case("none used", 0, {"learning_rate": 0.1})]
    cases += [Case("merged", 0, {"discovery_cost": s * price}) for s in (0.12, 0.14, 0.16, 0.18)]
    cases += [Case("ghosts", 0, {"discovery_cost": n}, {}, BEYOND) for n in (-0.3, 0.0, 0.3)]
    cases += [Case("divergence", 0, {"learning_rate": rate, **gifts[2]}) for rate in (1e6, 1e9, 1e12)]
    return [case._replace(seed=100 + number) for number, case in enumerate(cases)]


def begin(setting: Preset, cases: list[Case]) -> tuple[TrainState, PRNGKeyArray]:
    """The first states of a population, stacked but for the step, which all share; and its keys."""
    states, keys = [], []
    for case in cases:
        seeds = seed_keys(case.seed)
        model = dataclasses.replace(setting.model, **case.start)
        state = first_state(dataclasses.replace(setting, model=model), seeds.weights)
        state = state if case.aim is None else state._replace(model=aimed(state.model, case.aim))
        states.append(eqx.filter(state, eqx.is_array))
        keys.append(seeds.steps)
    # Leaves alone are taken from each member: the tree, and with it the config, is that of the population's setting.
    rest = first_state(setting, keys[0])
    stacked = [jnp.stack(leaves) for leaves in zip(*map(jax.tree.leaves, states), strict=True)]
    arrays = jax.tree.unflatten(jax.tree.structure(eqx.filter(rest, eqx.is_array)), stacked)
    together = eqx.combine(arrays, eqx.filter(rest, eqx.is_array, inverse=True))
    return together._replace(step=jnp.array(0)), jnp.stack(keys)


def aimed(model: Any, aim: tuple[float, ...]) -> Any:
    """The model with the first windows of discovery, and the mean of their prior, at `aim`."""

    def places(model: Any) -> tuple[Array, Array]:
        return model.discovery.where_head.layers[-1].bias, model.discovery_prior.where.mean

    bias, mean = places(model)
    return eqx.tree_at(places, model, (bias.at[:4].set(jnp.array(aim)), jnp.array(aim, mean.dtype)))


def train_population(
    setting: Preset, cases: list[Case], checks: int, every: int, look_at: Callable[[int, TrainState], None]
) -> None:
    """Train all members for `checks` times `every` steps, and show them to `look_at` with the step after each."""
    source = open_data(setting.data, "train")
    states, keys = begin(setting, cases)
    own = {name: [case.knobs.get(name, getattr(setting.train, name)) for case in cases] for name in KNOBS}
    knobs = {name: jnp.array(numbers, float) for name, numbers in own.items()}
    for check in range(checks):
        states = jax.block_until_ready(train_members(states, source, keys, knobs, setting.train, jnp.array(every)))
        look_at((check + 1) * every, states)

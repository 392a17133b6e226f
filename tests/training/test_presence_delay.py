"""Presence is learned only after as many steps as the recipe says, alone and in a population."""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import pytest

from sqair.config import Preset
from sqair.training.population import Population


@pytest.mark.parametrize("kind", ["sqair", "air"])
def test_it_is_held_and_then_learns(small: Preset, kind: str, moved: Callable) -> None:
    model = dataclasses.replace(small.model, kind=kind)
    train = dataclasses.replace(small.train, batch=2, warm_up=0, presence_delay=2)
    changes = moved(dataclasses.replace(small, model=model, train=train), 3)
    for phase in ["discovery", "propagation"] if kind == "sqair" else ["discovery"]:
        learns = [any(name.startswith(f"{phase}.pres_head") for name in names) for names in changes]
        assert learns == [False, False, True]
        assert all(any(name.startswith(f"{phase}.where_head") for name in names) for names in changes)


def test_members_may_differ_in_it(small: Preset) -> None:
    train = dataclasses.replace(small.train, batch=2, warm_up=0, sweep=("presence_delay=0,5",))
    population = Population(dataclasses.replace(small, train=train))
    delays = [member.preset.train.presence_delay for member in population.members]
    assert delays == [0, 5]
    assert all(isinstance(delay, int) for delay in delays)
    knob = population.knobs()["presence_delay"]
    assert knob.tolist() == [0.0, 5.0]
    assert jnp.issubdtype(knob.dtype, jnp.floating)

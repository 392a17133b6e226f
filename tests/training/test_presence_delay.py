"""The presence of discoveries is learned only after as many steps as the recipe says, alone and in a population."""

import dataclasses
from itertools import pairwise

import jax.numpy as jnp
import pytest

from sqair.config import Preset
from sqair.data import open_data
from sqair.training.checkpoint import named_arrays
from sqair.training.population import Population
from sqair.training.step import first_state, seed_keys, train_steps

HEAD = "discovery.pres_head"


def moved(before: dict, after: dict) -> set[str]:
    return {name for name in before if (before[name] != after[name]).any()}


@pytest.mark.parametrize("kind", ["sqair", "air"])
def test_it_is_held_and_then_learns(small: Preset, kind: str) -> None:
    model = dataclasses.replace(small.model, kind=kind)
    train = dataclasses.replace(small.train, batch=2, warm_up=0, presence_delay=2)
    chosen = dataclasses.replace(small, model=model, train=train)
    state, source = first_state(chosen, seed_keys(0).weights), open_data(chosen.data, "train")
    seen = [named_arrays(state.model)]
    for _ in range(3):
        state = train_steps(state, source, seed_keys(0).steps, train, jnp.array(1))
        seen.append(named_arrays(state.model))
    changes = [moved(*pair) for pair in pairwise(seen)]
    assert [any(name.startswith(HEAD) for name in names) for names in changes] == [False, False, True]
    assert all(any(name.startswith("discovery.where_head") for name in names) for names in changes)


def test_members_may_differ_in_it(small: Preset) -> None:
    train = dataclasses.replace(small.train, batch=2, warm_up=0, sweep=("presence_delay=0,5",))
    chosen = dataclasses.replace(small, train=train)
    population = Population(chosen)
    assert [member.preset.train.presence_delay for member in population.members] == [0, 5]
    assert all(isinstance(member.preset.train.presence_delay, int) for member in population.members)
    knobs = population.knobs()
    assert knobs["presence_delay"].tolist() == [0.0, 5.0]
    assert jnp.issubdtype(knobs["presence_delay"].dtype, jnp.floating)

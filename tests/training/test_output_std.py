"""A learned output std is held for as many steps as the recipe says, then learns; its model need not be SQAIR."""

import dataclasses
from itertools import pairwise

import jax.numpy as jnp
import pytest

from sqair.config import Preset, UserError, VRNNConfig
from sqair.data import open_data
from sqair.settings import check
from sqair.training.checkpoint import named_arrays
from sqair.training.step import first_state, seed_keys, train_steps

STD = "pixels.log_std"


def test_it_is_held_and_then_learns(small: Preset) -> None:
    vrnn = VRNNConfig(latent_size=3, layers=1)
    model = dataclasses.replace(small.model, kind="vrnn", vrnn=vrnn, learn_output_std=True)
    train = dataclasses.replace(small.train, batch=2, bound="fivo", warm_up=0, output_std_steps=2)
    chosen = dataclasses.replace(small, model=model, train=train)
    state, source = first_state(chosen, seed_keys(0).weights), open_data(chosen.data, "train")
    seen = [named_arrays(state.model)]
    for _ in range(3):
        state = train_steps(state, source, seed_keys(0).steps, train, jnp.array(1))
        seen.append(named_arrays(state.model))
    moved = [{name for name in before if (before[name] != after[name]).any()} for before, after in pairwise(seen)]
    assert [STD in names for names in moved] == [False, False, True]
    assert all(len(names) > 5 for names in moved)


def test_it_must_start_above_the_smallest(small: Preset) -> None:
    model = dataclasses.replace(small.model, learn_output_std=True, output_std=0.01)
    with pytest.raises(UserError, match=r"output_std must be more than min_std"):
        check(model)
    check(dataclasses.replace(model, learn_output_std=False))

"""A learned output std is held for as many steps as the recipe says, then learns; its model need not be SQAIR."""

import dataclasses
from collections.abc import Callable

import pytest

from sqair.config import Preset, UserError, VRNNConfig
from sqair.settings import check

STD = "pixels.log_std"


def test_it_is_held_and_then_learns(small: Preset, moved: Callable) -> None:
    vrnn = VRNNConfig(latent_size=3, layers=1)
    model = dataclasses.replace(small.model, kind="vrnn", vrnn=vrnn, learn_output_std=True)
    train = dataclasses.replace(small.train, batch=2, bound="fivo", warm_up=0, output_std_steps=2)
    changes = moved(dataclasses.replace(small, model=model, train=train), 3)
    assert [STD in names for names in changes] == [False, False, True]
    assert all(len(names) > 5 for names in changes)


def test_it_must_start_above_the_smallest(small: Preset) -> None:
    model = dataclasses.replace(small.model, learn_output_std=True, output_std=0.01)
    with pytest.raises(UserError, match=r"output_std must be more than min_std"):
        check(model)
    check(dataclasses.replace(model, learn_output_std=False))

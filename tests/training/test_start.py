"""Training that begins with the weights of a model: one member or all have them; other settings are refused."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from sqair.config import Preset, UserError
from sqair.training.checkpoint import build, named_arrays, save_model
from sqair.training.loop import prepare
from sqair.training.population import Population
from sqair.training.resume import Notes, check_resumable, save_state


@pytest.fixture(scope="module")
def given(small: Preset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the preset's sizes, with weights of a seed that training does not use."""
    folder = tmp_path_factory.mktemp("model") / "given"
    save_model(folder, build(small.model, jax.random.key(77)), {})
    return folder


def started(preset: Preset, start: Path, **changes: Any) -> Preset:
    return dataclasses.replace(preset, train=dataclasses.replace(preset.train, start=str(start), **changes))


def test_one_member(small: Preset, given: Path) -> None:
    """The weights are the model's, the rest is that of a new run."""
    state, plain = Population(started(small, given)).first(), Population(small).first()
    wanted = named_arrays(build(small.model, jax.random.key(77)))
    for name, array in named_arrays(state.model).items():
        np.testing.assert_array_equal(array, wanted[name])
    assert jax.tree.structure(state) == jax.tree.structure(plain)
    for a, b in zip(jax.tree.leaves(state.optimiser), jax.tree.leaves(plain.optimiser), strict=True):
        np.testing.assert_array_equal(a, b)


def test_members_that_are_restarted(small: Preset, given: Path) -> None:
    """All begin with the same weights, and so does one that begins again."""
    population = Population(started(small, given, members=2))
    state = population.first()
    changed = state._replace(model=jax.tree.map(lambda leaf: leaf + 1 if hasattr(leaf, "shape") else leaf, state.model))
    again = population.afresh(changed, 1)
    wanted = named_arrays(build(small.model, jax.random.key(77)))
    for index in range(2):
        for name, array in named_arrays(population.take(state.model, index)).items():
            np.testing.assert_array_equal(array, wanted[name])
    for name, array in named_arrays(population.take(again.model, 1)).items():
        np.testing.assert_array_equal(array, wanted[name])


def test_parts_begin_anew(small: Preset, given: Path) -> None:
    """All weights are the model's but those of the parts that are named, which are those of a new run."""
    names = ("propagation.pres_head", "set_encoder")
    preset = started(small, given, anew=names)
    theirs, fresh = named_arrays(build(small.model, jax.random.key(77))), named_arrays(Population(small).first().model)
    arrays = named_arrays(Population(preset).first().model)
    assert all(any(name.startswith(part) for name in arrays) for part in names)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, (fresh if name.startswith(names) else theirs)[name])


def test_members_have_new_parts_of_their_own(small: Preset, given: Path) -> None:
    population = Population(started(small, given, members=2, anew=("propagation.pres_head",)))
    first, second = (named_arrays(population.take(population.first().model, index)) for index in range(2))
    again = named_arrays(population.take(population.afresh(population.first(), 1).model, 1))
    for name in first:
        is_new = name.startswith("propagation.pres_head") and name.endswith("weight")  # biases begin as one number
        assert np.array_equal(first[name], second[name]) != is_new
        np.testing.assert_array_equal(again[name], second[name])


@pytest.mark.parametrize("name", ["propagation.head_of_nothing", "config", "image.transformer", "__class__", ""])
def test_a_part_that_is_not_there(small: Preset, given: Path, name: str) -> None:
    preset = started(small, given, anew=(name,))
    with pytest.raises(UserError, match=f"has no part '{name}' with weights"):
        Population(preset).first()


def test_parts_of_no_model(small: Preset) -> None:
    preset = dataclasses.replace(small, train=dataclasses.replace(small.train, anew=("propagation",)))
    with pytest.raises(UserError, match="give that, too"):
        Population(preset).first()


def test_a_model_with_other_settings(small: Preset, given: Path) -> None:
    other = dataclasses.replace(small, model=dataclasses.replace(small.model, width=8, what_size=5))
    with pytest.raises(UserError, match=r"train\.start is a model with other settings: model\.what_size, model\.width"):
        Population(started(other, given)).first()


def test_a_run_goes_on_without_the_model_that_it_began_with(small: Preset, given: Path, tmp_path: Path) -> None:
    preset = started(small, shutil.copytree(given, tmp_path / "gone"))
    population = Population(preset)
    save_state(tmp_path / "run", population, population.first(), Notes(preset, 0, None, 0.0))
    shutil.rmtree(tmp_path / "gone")
    found = check_resumable(tmp_path / "run", preset)
    run = prepare(preset, tmp_path / "run", found, (), 0.0, None, quiet=True)
    wanted = named_arrays(build(small.model, jax.random.key(77)))
    for name, array in named_arrays(run.state.model).items():
        np.testing.assert_array_equal(array, wanted[name])

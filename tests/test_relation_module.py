"""docs/relation_module.md: its code is the example, is short, learns, and treats absent objects as it says."""

import dataclasses
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from sqair.config import preset
from sqair.distributions import draw_noise
from sqair.networks import Encoders
from sqair.objects import Objects
from sqair.propagation import PropagationPosterior
from sqair.relation import Relation
from sqair.spatial_transformer import SpatialTransformer
from sqair.training.checkpoint import load_tensors, save_tensors

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "relation_module.py"
GUIDE = ROOT / "docs" / "relation_module.md"
CONFIG = dataclasses.replace(helpers.TINY, max_objects=3)


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("relation_module", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_guide_shows_the_example() -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert EXAMPLE.read_text() in blocks
    excerpts = [block for block in blocks if block not in EXAMPLE.read_text()]
    assert not excerpts, "code in the guide that no test runs"


def test_the_example_is_short() -> None:
    lines = [line for line in EXAMPLE.read_text().splitlines() if line.strip()]
    assert len(lines) < 50


def test_every_parameter_learns_and_can_be_saved(
    example: ModuleType, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    model = example.main(steps=2, seed=0)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2
    assert all(float(line.rsplit(" ", 1)[1]) > 0 for line in printed)

    config = preset("tiny").model
    untrained = example.SumOfMessages(config, key=jax.random.split(jax.random.key(0), 3)[1])
    moved = jax.tree.map(
        lambda new, old: bool(jnp.any(new != old)), *eqx.filter((model.propagation.relation, untrained), eqx.is_array)
    )
    assert all(jax.tree.leaves(moved)), "a parameter without a gradient"

    save_tensors(tmp_path / "relation.safetensors", model.propagation.relation)
    loaded = load_tensors(tmp_path / "relation.safetensors", untrained)
    assert eqx.tree_equal(loaded, model.propagation.relation)


def test_the_order_of_earlier_objects_does_not_matter(example: ModuleType) -> None:
    relation = example.SumOfMessages(CONFIG, key=jax.random.key(0))
    what, where = jax.random.normal(jax.random.key(1), (2, 2)), jax.random.normal(jax.random.key(2), (2, 4))

    def after(order: tuple[int, ...]) -> Float[Array, " H"]:
        related = relation.initial()
        for i in order:
            related = relation.update(related, jnp.zeros(CONFIG.width), what[i], where[i])
        return related

    np.testing.assert_allclose(after((0, 1)), after((1, 0)), rtol=1e-6)
    assert not np.allclose(after((0,)), after((1,)))


def test_absent_objects_do_not_move_the_state(example: ModuleType) -> None:
    """What the object in the middle was changes nothing for the last one while it is absent, and something if not."""
    keys = jax.random.split(jax.random.key(3), 6)
    encoders, transformer = Encoders(CONFIG, key=keys[0]), SpatialTransformer(CONFIG)
    posterior = PropagationPosterior(CONFIG, key=keys[1])
    relation = example.SumOfMessages(CONFIG, key=keys[2])
    posterior = helpers.scatter(eqx.tree_at(lambda it: it.relation, posterior, relation), keys[3])
    noise = draw_noise(keys[4], (), CONFIG.max_objects, CONFIG.what_size)
    temporal = jax.random.normal(keys[5], (3, CONFIG.width))

    @jax.jit
    def last(pres: Float[Array, "3"], middle: Float[Array, ""]) -> tuple:
        what = jnp.zeros((3, CONFIG.what_size)).at[1].set(middle)
        objects = Objects(what, jnp.zeros((3, 4)), pres, jnp.arange(3))
        given = (objects, temporal, encoders, transformer, jnp.zeros(CONFIG.width), jnp.ones(()))
        moved, hidden, _, _ = posterior(noise, helpers.film(1)[0], *given)
        return moved.what[2], moved.where[2], moved.pres[2], hidden[2]

    for pres, same in (([1.0, 0.0, 1.0], True), ([1.0, 1.0, 1.0], False)):
        one, other = (last(jnp.array(pres), jnp.array(middle)) for middle in (0.0, 5.0))
        assert bool(eqx.tree_equal(one, other)) == same


def test_a_relation_needs_all_three_methods() -> None:
    class Forgetful(Relation):
        def initial(self) -> None:
            return None

    with pytest.raises(TypeError, match=r"__call__.*update"):
        Forgetful()  # pyright: ignore[reportAbstractUsage]

"""Layers in bfloat16: what is halved and what keeps 32 bits, and how near values and gradients stay."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import film

from sqair.config import ModelConfig
from sqair.convolutions import Convolution
from sqair.model import SQAIR, no_restraint
from sqair.networks import MLP, halved, linear
from sqair.objective import iwae
from sqair.particles import draw_particles, run_batch

T = 2
SIZES = {"image": (14, 14), "glimpse": (8, 8), "max_objects": 1, "what_size": 4, "width": 32}


def test_values_and_gradients_stay_near():
    """The bound of halved weights has the gradient of the whole ones to two digits, in 32 bits."""
    model = SQAIR(ModelConfig(**SIZES), key=jax.random.key(0))
    noise = jax.tree.map(lambda leaf: leaf[None], draw_particles(model, jax.random.key(1), 3, T))

    def bound(model: SQAIR, is_halved: bool) -> jax.Array:
        used = halved(model) if is_halved else model
        summary = run_batch(used, noise, film(T, (14, 14))[None], no_restraint(T), jnp.array(T))
        return iwae(summary.log_weight[0].sum(-1))

    evaluate = eqx.filter_jit(eqx.filter_value_and_grad(bound))
    (whole, wanted), (near, found) = (evaluate(model, is_halved) for is_halved in (False, True))
    assert near.dtype == jnp.float32
    assert near != whole
    assert float(near) == pytest.approx(float(whole), rel=2e-2)
    wanted, found = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(grad)]) for grad in (wanted, found))
    assert found.dtype == np.float32
    assert found @ wanted / np.linalg.norm(found) / np.linalg.norm(wanted) > 0.99


def test_what_keeps_32_bits():
    """Hidden units are halved, outputs are not; a model that is not halved has no bfloat16 anywhere."""
    mlp, layer = MLP((5, 6, 2), key=jax.random.key(0)), linear(5, 2, key=jax.random.key(1))
    small = halved(mlp)
    assert {leaf.dtype for leaf in jax.tree.leaves(small)} == {jnp.dtype(jnp.bfloat16)}
    assert small.layers[0].hidden(jnp.ones(5)).dtype == jnp.bfloat16
    assert small(jnp.ones(3), jnp.ones(2)).dtype == halved(layer)(jnp.ones(5)).dtype == jnp.float32
    assert "bf16" not in str(jax.make_jaxpr(mlp)(jnp.ones(5)))
    convolution = Convolution(1, 2, key=jax.random.key(2))
    assert halved(convolution)(jnp.ones((4, 4, 1))).dtype == jnp.bfloat16


@pytest.mark.parametrize("networks", ["mlp", "conv"])
def test_states_and_densities_keep_32_bits(networks):
    model = SQAIR(ModelConfig(networks=networks, **SIZES), key=jax.random.key(0))
    shapes = jax.eval_shape(lambda: halved(model).observe(jax.random.key(2), film(T, (14, 14))))
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype(jnp.float32), jnp.dtype(jnp.int32)}

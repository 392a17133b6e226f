"""Products that keep 32 bits: their values, and the precision of what passes back through them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sqair.products import wide_product


def factors(dtype):
    draw = np.random.default_rng(0)
    return jnp.asarray(draw.normal(size=(3, 5)), dtype), jnp.asarray(draw.normal(size=(5, 4)), dtype)


def value(left, right):
    return jnp.sin(wide_product(left, right)).sum()


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_the_result_has_32_bits(dtype):
    left, right = factors(dtype)
    found = wide_product(left, right)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(
        found, np.asarray(left, np.float64) @ np.asarray(right, np.float64), rtol=1e-5, atol=1e-6
    )


def test_gradients_are_those_of_the_product():
    expected = jax.grad(lambda left, right: jnp.sin(left @ right).sum(), argnums=(0, 1))(*factors(jnp.float32))
    for found, wanted in zip(jax.grad(value, argnums=(0, 1))(*factors(jnp.float32)), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_all_factors_have_the_precision_they_came_with():
    """Also those of the products for gradients, one of whose factors comes from what is 32 bits wide."""
    traced = jax.make_jaxpr(jax.grad(value, argnums=(0, 1)))(*factors(jnp.bfloat16))
    found = [equation for equation in traced.jaxpr.eqns if equation.primitive.name == "dot_general"]
    assert len(found) == 3
    assert {var.aval.dtype for equation in found for var in equation.invars} == {jnp.dtype(jnp.bfloat16)}

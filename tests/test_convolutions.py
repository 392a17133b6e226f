"""Convolutions as matrix products are Equinox's convolutions, and cost in a loop what other products do."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sqair import loops
from sqair.convolutions import Convolution, TransposedConvolution

KEY = jax.random.key(0)


def values_and_gradients(run, layer, x):
    """The output, and the gradients of a sum of it in which no two numbers weigh the same."""

    @eqx.filter_jit
    def both(layer, x):
        def total(inputs):
            y = run(*inputs)
            return (jnp.sin(jnp.arange(y.size)).reshape(y.shape) * y).sum(), y

        return eqx.filter_value_and_grad(total, has_aux=True)((layer, x))

    return both(layer, x)


def assert_equinoxs(layer, kind, x, shape):
    """Equinox, and so `jax.lax.conv_general_dilated`, makes the same of these weights, channels last or first."""
    ours = values_and_gradients(lambda layer, x: layer(x), layer, x)
    theirs = values_and_gradients(
        lambda layer, x: jnp.moveaxis(kind.__call__(layer, jnp.moveaxis(x, -1, 0)), 0, -1), layer, x
    )
    assert ours[0][1].shape == shape
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


CASES = [((7, 10), 1), ((8, 5), 2), ((5, 8), 2), ((7, 2), 3), ((1, 9), 5)]
"""Images and strides: odd and even sizes, and a stride that passes over pixels."""


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("shape", "stride"), CASES)
@pytest.mark.parametrize(("channels", "features"), [(2, 3), (9, 1)])
def test_a_convolution_is_equinoxs(shape, stride, channels, features):
    layer = Convolution(channels, features, stride=stride, key=KEY)
    x = jax.random.normal(KEY, (*shape, channels))
    assert_equinoxs(layer, eqx.nn.Conv2d, x, (*(-(-size // stride) for size in shape), features))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("shape", "stride"), CASES)
def test_a_transposed_convolution_is_equinoxs(shape, stride):
    """It leads back to the image that a convolution came from."""
    layer = TransposedConvolution(2, 3, stride=stride, shape=shape, key=KEY)
    x = jax.random.normal(KEY, (*(-(-size // stride) for size in shape), 2))
    assert_equinoxs(layer, eqx.nn.ConvTranspose2d, x, (*shape, 3))


def loops_in(jaxpr):
    """The loops of a program, outermost only."""
    for equation in jaxpr.eqns:
        inner = [value.jaxpr for value in equation.params.values() if hasattr(value, "jaxpr")]
        yield from [equation] if equation.primitive.name == "while" else (it for each in inner for it in loops_in(each))


def test_in_a_loop_they_cost_what_other_products_do():
    """Backwards an iteration makes no weight gradients; forwards it saves products and no neighbourhoods."""
    frames, batch, channels = 4, 3, 5
    down, same = Convolution(channels, 7, stride=2, key=KEY), Convolution(7, 7, key=KEY)
    layers = down, same, TransposedConvolution(7, channels, stride=2, shape=(4, 4), key=KEY)

    def step(layers, images, x, datum):
        down, same, up = layers
        images = jax.vmap(lambda image: jnp.tanh(up(jax.nn.elu(same(down(image)))) + x))(images)
        return images, images.sum()

    def total(layers):
        images = jnp.ones((batch, 4, 4, channels))
        return loops.scan(step, layers, images, jnp.ones(frames), (), jnp.array(frames))[1].sum()

    parameters, rest = eqx.partition(layers, eqx.is_array)
    program = jax.make_jaxpr(jax.grad(lambda it: total(eqx.combine(it, rest))))(parameters)
    found = list(loops_in(program.jaxpr))
    names = [[equation.primitive.name for equation in loop.params["body_jaxpr"].jaxpr.eqns] for loop in found]
    assert [each.count("dot_general") for each in names] == [0, 3, 0, 3], (
        "each after one that zeroes what it passes over"
    )
    _, forwards, _, _ = found
    saved = sum(var.aval.size for var in forwards.outvars if var.aval.shape[:1] == (frames,)) // frames
    images, sums = batch * 4 * 4 * channels, 1
    assert saved <= batch * 2 * 2 * (7 + 7 + 4 * channels) + images + sums

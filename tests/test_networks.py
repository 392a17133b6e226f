"""Sizes and shapes of the networks: parameter counts of the paper, pixel shuffle, CNN, decoders, shared weights."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sqair.baselines.air import AIR
from sqair.config import ConvConfig, ModelConfig, preset
from sqair.model import SQAIR
from sqair.networks import (
    CNN,
    MLP,
    Encoders,
    GRUCell,
    Linear,
    cnn_size,
    gaussian,
    glimpse_decoder,
    linear,
    pixel_shuffle,
)

KEY = jax.random.key(0)


def count_parameters(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize(
    ("name", "papers", "ours"),
    [
        ("sqair-mlp", 2.9e6, 2_910_711),
        ("sqair-conv", 2.6e6, 2_622_856),
        ("sqair-pedestrians", 3.5e6, 3_356_200),
        ("air-mlp", None, 1_361_158),
    ],
)
def test_parameter_counts_are_the_papers(name, papers, ours):
    """Nothing is allocated. The paper's 1.7M of AIR holds weights that AIR never uses, so only ours is stated."""
    config = preset(name).model
    count = count_parameters(eqx.filter_eval_shape(AIR if config.kind == "air" else SQAIR, config, key=KEY))
    assert count == ours
    assert papers is None or abs(count / papers - 1) < 0.05


@pytest.mark.parametrize(("features", "s", "rows", "columns"), [(1, 2, 3, 4), (3, 3, 2, 1), (2, 1, 4, 3)])
def test_pixel_shuffle_is_a_loop(features, s, rows, columns):
    x = np.random.default_rng(0).normal(size=(rows, columns, features * s * s)).astype(np.float32)
    expected = np.zeros((rows * s, columns * s, features), np.float32)
    for f in range(features):
        for row in range(rows * s):
            for column in range(columns * s):
                source = f * s * s + (row % s) * s + column % s
                expected[row, column, f] = x[row // s, column // s, source]
    assert np.array_equal(pixel_shuffle(jnp.asarray(x), s), expected)


@pytest.mark.parametrize("shape", [(7, 10), (8, 8), (5, 3), (1, 1)])
@pytest.mark.parametrize("strides", [(2, 2, 1), (1, 3, 2)])
def test_the_size_of_a_cnn_is_known_beforehand(shape, strides):
    features = (2, 3, 5)
    cnn = eqx.filter_eval_shape(CNN, 3, features, strides, key=KEY)
    output = eqx.filter_eval_shape(lambda cnn, x: cnn(x), cnn, jax.ShapeDtypeStruct((*shape, 3), jnp.float32))
    assert output.shape == (cnn_size(shape, features, strides),)


@pytest.mark.parametrize("networks", ["mlp", "conv"])
@pytest.mark.parametrize("glimpse", [(5, 7), (8, 3), (1, 9)])
@pytest.mark.parametrize("channels", [1, 3])
def test_decoders_fit_any_glimpse(networks, glimpse, channels):
    config = ModelConfig(networks=networks, glimpse=glimpse, channels=channels, what_size=4, width=8)
    decoder = eqx.filter_eval_shape(glimpse_decoder, config, key=KEY)
    output = eqx.filter_eval_shape(lambda it, what: it(what), decoder, jax.ShapeDtypeStruct((4,), jnp.float32))
    assert output.shape == (*glimpse, channels)


def conv_encoders():
    conv = ConvConfig(features=(2, 3), strides=(2, 1))
    config = ModelConfig(networks="conv", image=(6, 7), glimpse=(3, 4), what_size=2, width=5, conv=conv)
    return eqx.filter_jit(lambda key: Encoders(config, key=key))(KEY)


def test_image_and_glimpse_encoders_share_the_cnn():
    """One set of weights, and both encodings depend on it."""
    encoders = conv_encoders()
    assert sum(isinstance(it, CNN) for it in vars(encoders).values()) == 1

    @eqx.filter_jit
    def encode(encoders, image, glimpse):
        return encoders.image(image), encoders.glimpse(glimpse).mean

    changed = eqx.tree_at(lambda it: it.cnn.layers[0].bias, encoders, replace_fn=lambda bias: bias + 1)
    inputs = jnp.ones((6, 7, 1)), jnp.ones((3, 4, 1))
    for before, after in zip(encode(encoders, *inputs), encode(changed, *inputs), strict=True):
        assert not np.allclose(before, after)


def test_a_glimpse_becomes_a_mean_and_a_std():
    q = conv_encoders().glimpse(jnp.full((3, 4, 1), -100.0))
    assert q.mean.shape == q.std.shape == (2,)
    assert np.all(q.std >= ModelConfig().min_std)


def test_a_mlp_concatenates_inputs_and_puts_elu_between_layers():
    mlp, encoder = (MLP((5, 3, 2), key=KEY, final_elu=last) for last in (False, True))
    a, b = jnp.array([1.0, -2.0]), jnp.array([0.5, 3.0, -1.0])
    (w1, b1), (w2, b2) = ((np.asarray(it.weight), np.asarray(it.bias)) for it in mlp.layers)
    hidden = w1 @ np.concatenate([a, b]) + b1
    expected = w2 @ np.where(hidden > 0, hidden, np.expm1(hidden)) + b2
    np.testing.assert_allclose(mlp(a, b), expected, rtol=1e-5)
    np.testing.assert_allclose(encoder(a, b), np.where(expected > 0, expected, np.expm1(expected)), rtol=1e-5)


def test_a_linear_layer_starts_with_its_gain_and_bias():
    layer = linear(400, 300, key=KEY, gain=2.0, bias=-3.0)
    assert np.all(layer.bias == -3.0)
    assert np.std(layer.weight) == pytest.approx(2.0 / 20 * 0.88, rel=0.02)


def test_a_heads_output_is_read_as_mean_and_std():
    q = gaussian(jnp.array([[1.0, 2.0, 0.0, 1e3], [3.0, 4.0, -1e3, 1.0]]), min_std=0.01, std_bias=-1.0)
    np.testing.assert_allclose(q.mean, [[1, 2], [3, 4]])
    np.testing.assert_allclose(
        q.std, [[math.log1p(math.exp(-1)) + 0.01, 999.01], [0.01, math.log(2) + 0.01]], rtol=1e-5
    )


def test_layers_are_those_of_equinox():
    """Multiplied from the right, with biases that are not zero, the same weights give the same results."""
    ours, theirs = Linear(5, 3, key=KEY), eqx.nn.Linear(5, 3, key=KEY)
    x, hidden = jax.random.normal(KEY, (5,)), jax.random.normal(KEY, (4,))
    np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-5, atol=1e-6)
    cell, other = GRUCell(5, 4, key=KEY), eqx.nn.GRUCell(5, 4, key=KEY)
    assert np.any(cell.bias)
    assert np.any(cell.bias_n)
    np.testing.assert_allclose(cell(x, hidden), other(x, hidden), rtol=1e-5, atol=1e-6)

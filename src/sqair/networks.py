"""The networks (App. A, D.2, E): encoders of images and glimpses, the glimpse decoder, the heads; MLP and CONV.

"If a function has multiple inputs, all the inputs are concatenated": so every network here takes any number of vectors.
ELU follows every layer except outputs and RNNs.

Axes: Y, X rows and columns; C channels; F features.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sqair.config import ModelConfig
from sqair.convolutions import Convolution
from sqair.distributions import Gaussian
from sqair.products import wide_product

M = TypeVar("M")

HEAD_GAIN = 0.1
"""Output layers of heads start small, so that training starts from the biases in `config.py`."""


class Linear(eqx.nn.Linear):
    """Equinox's layer, multiplied from the right: in a batch the features then stay the last axis, without copies."""

    def __init__(self, size_in: int, size_out: int, *, key: PRNGKeyArray) -> None:
        super().__init__(size_in, size_out, key=key)

    def __call__(self, x: Float[Array, " _"], *, key: PRNGKeyArray | None = None) -> Float[Array, " F"]:
        """W x + b, with 32 bits or more."""
        assert self.bias is not None
        return wide_product(x.astype(self.weight.dtype), self.weight.T) + self.bias

    def hidden(self, x: Float[Array, " _"]) -> Float[Array, " F"]:
        """ELU(W x + b), in the precision of W."""
        assert self.bias is not None
        return jax.nn.elu(x.astype(self.weight.dtype) @ self.weight.T + self.bias)


class GRUCell(eqx.nn.GRUCell):
    """Equinox's cell, multiplied from the right, too."""

    def __init__(self, size_in: int, size: int, *, key: PRNGKeyArray) -> None:
        super().__init__(size_in, size, key=key)

    def __call__(
        self, input: Float[Array, " _"], hidden: Float[Array, " H"], *, key: PRNGKeyArray | None = None
    ) -> Float[Array, " H"]:
        """The next state: reset and update gates, and a candidate that sees the state through the reset gate."""
        assert self.bias is not None
        assert self.bias_n is not None
        dtype = self.weight_ih.dtype
        reset, update, new = jnp.split(input.astype(dtype) @ self.weight_ih.T + self.bias, 3)
        reset_h, update_h, new_h = jnp.split(hidden.astype(dtype) @ self.weight_hh.T, 3)
        reset, update = jax.nn.sigmoid(reset + reset_h), jax.nn.sigmoid(update + update_h)
        new = jnp.tanh(new + reset * (new_h + self.bias_n))
        return new + update * (hidden - new)


def halved(model: M) -> M:
    """The model with the weights of its layers in bfloat16, and so with most of its hidden units in it, too.

    What layers give out as statistics, states of RNNs, samples, densities, windows and canvases keep 32 bits.
    """

    def is_layer(node: Any) -> bool:
        return isinstance(node, Linear | GRUCell | eqx.nn.Conv)

    def halve(node: Any) -> Any:
        cast = partial(jax.tree.map, lambda leaf: leaf.astype(jnp.bfloat16) if eqx.is_array(leaf) else leaf)
        return cast(node) if is_layer(node) else node

    return jax.tree.map(halve, model, is_leaf=is_layer)


def linear(size_in: int, size_out: int, *, key: PRNGKeyArray, gain: float = 1.0, bias: float = 0.0) -> Linear:
    """A linear layer with weights of variance gain^2 / size_in and a constant bias."""
    layer = Linear(size_in, size_out, key=key)
    weight = gain / math.sqrt(size_in) * jax.random.truncated_normal(key, -2, 2, (size_out, size_in))
    constant = jnp.full(size_out, bias, weight.dtype)  # a weak type would change at the first update and recompile
    return eqx.tree_at(lambda it: (it.weight, it.bias), layer, (weight, constant))


class MLP(eqx.Module):
    """Linear layers with ELU between them, and after the last one if it is an encoder's."""

    layers: tuple[Linear, ...]
    final_elu: bool = eqx.field(static=True)

    def __init__(
        self, sizes: Sequence[int], *, key: PRNGKeyArray, final_elu: bool = False, gain: float = 1.0, bias: float = 0.0
    ) -> None:
        keys = jax.random.split(key, len(sizes) - 1)
        pairs = list(zip(sizes[:-1], sizes[1:], keys, strict=True))
        hidden = [linear(a, b, key=k) for a, b, k in pairs[:-1]]
        a, b, k = pairs[-1]
        self.layers = (*hidden, linear(a, b, key=k, gain=gain, bias=bias))
        self.final_elu = final_elu

    def __call__(self, *inputs: Float[Array, " _"]) -> Float[Array, " F"]:
        """The output for the concatenated inputs."""
        x = jnp.concatenate([each.astype(self.layers[0].weight.dtype) for each in inputs])
        for layer in self.layers[:-1]:
            x = layer.hidden(x)
        last = self.layers[-1]
        return last.hidden(x) if self.final_elu else last(x)


def encoder(size_in: int, width: int, *, key: PRNGKeyArray) -> MLP:
    """Two layers, both followed by ELU."""
    return MLP((size_in, width, width), key=key, final_elu=True)


def head(size_in: int, width: int, size_out: int, *, key: PRNGKeyArray, bias: float = 0.0) -> MLP:
    """The two-layer MLP that gives the statistics of q: one hidden layer and the output."""
    return MLP((size_in, width, size_out), key=key, gain=HEAD_GAIN, bias=bias)


def gaussian(raw: Float[Array, "*batch twice_D"], min_std: float, std_bias: float = 0.0) -> Gaussian:
    """A head's output read as a mean and a standard deviation before softplus."""
    mean, std = jnp.split(raw, 2, axis=-1)
    return Gaussian(mean, jax.nn.softplus(std + std_bias) + min_std)


class CNN(eqx.Module):
    """3x3 convolutions with SAME padding and ELU, flattened at the end."""

    layers: tuple[Convolution, ...]

    def __init__(self, channels: int, features: Sequence[int], strides: Sequence[int], *, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key, len(features))
        sizes = zip((channels, *features[:-1]), features, strides, keys, strict=True)
        self.layers = tuple(Convolution(a, b, stride=s, key=k) for a, b, s, k in sizes)

    def __call__(self, x: Float[Array, "Y X C"]) -> Float[Array, " F"]:
        """All features as one vector, map by map."""
        for layer in self.layers:
            x = jax.nn.elu(layer(x))
        return jnp.moveaxis(x, -1, 0).reshape(-1)


def cnn_size(shape: tuple[int, int], features: Sequence[int], strides: Sequence[int]) -> int:
    """Length of what `CNN` returns for an image of `shape`."""
    rows, columns = shape
    for stride in strides:
        rows, columns = math.ceil(rows / stride), math.ceil(columns / stride)
    return rows * columns * features[-1]


class Encoders(eqx.Module):
    """h_enc of images and h_glimpse of glimpses. In the CONV variant they share the CNN."""

    cnn: CNN | None
    to_image: MLP
    to_glimpse: MLP
    to_what: Linear
    min_std: float = eqx.field(static=True)

    def __init__(self, config: ModelConfig, *, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key, 4)
        sizes = [math.prod(shape) * config.seen_channels for shape in (config.image, config.glimpse)]
        hidden: tuple[int, ...] = (config.width, config.width)
        self.cnn = None
        if config.networks == "conv":
            layers = (config.conv.features, config.conv.strides)
            self.cnn = CNN(config.seen_channels, *layers, key=keys[0])
            sizes = [cnn_size(shape, *layers) for shape in (config.image, config.glimpse)]
            hidden = (config.width,)
        self.to_image = MLP((sizes[0], *hidden), key=keys[1], final_elu=True)
        self.to_glimpse = MLP((sizes[1], *hidden), key=keys[2], final_elu=True)
        self.to_what = linear(config.width, 2 * config.what_size, key=keys[3])
        self.min_std = config.min_std

    def _features(self, x: Float[Array, "Y X C"]) -> Float[Array, " F"]:
        return x.reshape(-1) if self.cnn is None else self.cnn(x)

    def image(self, x: Float[Array, "Y X C"]) -> Float[Array, " H"]:
        """e_t, the encoding of a whole frame (Algorithm 3)."""
        return self.to_image(self._features(x))

    def glimpse(self, g: Float[Array, "G L C"]) -> Gaussian:
        """The encoding of a glimpse, as the mean and std of a what: discovery samples it, RNNs and heads see both."""
        return gaussian(self.to_what(self.to_glimpse(self._features(g))), self.min_std)


def pixel_shuffle(x: Float[Array, "Y X maps"], s: int) -> Float[Array, "rows columns F"]:
    """Feature maps become an s times larger image (Shi et al. 2016)."""
    rows, columns, _ = x.shape
    x = x.reshape(rows, columns, -1, s, s)
    return jnp.transpose(x, (0, 3, 1, 4, 2)).reshape(rows * s, columns * s, -1)


class SubpixelDecoder(eqx.Module):
    """Two dense layers, then convolutions that each end in a pixel shuffle (App. D.2)."""

    dense: MLP
    layers: tuple[Convolution, ...]
    output: Convolution
    strides: tuple[int, ...] = eqx.field(static=True)
    maps: tuple[int, int, int] = eqx.field(static=True)
    glimpse: tuple[int, int] = eqx.field(static=True)

    def __init__(self, config: ModelConfig, *, key: PRNGKeyArray) -> None:
        conv = config.conv
        keys = jax.random.split(key, len(conv.decoder_features) + 2)
        up = math.prod(conv.decoder_strides)
        self.glimpse, self.strides = config.glimpse, conv.decoder_strides
        self.maps = (conv.decoder_maps, math.ceil(config.glimpse[0] / up), math.ceil(config.glimpse[1] / up))
        self.dense = MLP((config.what_size, conv.decoder_hidden, math.prod(self.maps)), key=keys[0], final_elu=True)
        sizes = zip(
            (conv.decoder_maps, *conv.decoder_features[:-1]),
            conv.decoder_features,
            self.strides,
            keys[1:-1],
            strict=True,
        )
        self.layers = tuple(Convolution(a, b * s * s, key=k) for a, b, s, k in sizes)
        self.output = Convolution(conv.decoder_features[-1], config.drawn_channels, key=keys[-1])

    def __call__(self, what: Float[Array, " W"]) -> Float[Array, "G L C"]:
        """A glimpse, before its output non-linearity."""
        x = jnp.moveaxis(self.dense(what).reshape(self.maps), 0, -1)
        for layer, stride in zip(self.layers, self.strides, strict=True):
            x = jax.nn.elu(pixel_shuffle(layer(x), stride))
        rows, columns = self.glimpse
        return self.output(x)[:rows, :columns]


class DenseDecoder(eqx.Module):
    """Two hidden layers and the glimpse."""

    mlp: MLP
    shape: tuple[int, int, int] = eqx.field(static=True)

    def __init__(self, config: ModelConfig, *, key: PRNGKeyArray) -> None:
        self.shape = (*config.glimpse, config.drawn_channels)
        self.mlp = MLP((config.what_size, config.width, config.width, math.prod(self.shape)), key=key)

    def __call__(self, what: Float[Array, " W"]) -> Float[Array, "G L C"]:
        """A glimpse, before its output non-linearity."""
        return self.mlp(what).reshape(self.shape)


def glimpse_decoder(config: ModelConfig, *, key: PRNGKeyArray) -> DenseDecoder | SubpixelDecoder:
    """f_dec of Algorithm 1, before its output non-linearity."""
    return SubpixelDecoder(config, key=key) if config.networks == "conv" else DenseDecoder(config, key=key)

"""VRNN (App. D.3; Chung et al. 2015): a Gaussian vector for each frame, and an LSTM that remembers frames and vectors.

    o_t = LSTM(psi^x(x_{t-1}), psi^z(z_{t-1}))       of zeros for t = 1
    p(z_t | o_t)                                     Gaussian
    p(x_t | z_t, o_t)                                Gaussian with mean psi^dec(psi^z(z_t), o_t) and a fixed std
    q(z_t | o_t, psi^x(x_t))                         Gaussian

It is a `SequenceModel` like `SQAIR`, so objectives and commands take either, but it knows no objects. Its `Info` tells
of one slot in which nothing is ever present and whose what is z_t. Numbers of objects and densities of presence are 0,
so restraint and score terms leave it alone. Its `State.temporal` holds two vectors: o_{t+1}, then the LSTM's cell.

Axes: T frames, Z latent variables, H hidden units, Y, X, C frame.
"""

import math
from collections.abc import Sequence
from typing import ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sqair.config import ModelConfig
from sqair.convolutions import TransposedConvolution
from sqair.distributions import Gaussian, Noise, draw_noise
from sqair.image import PixelNoise
from sqair.model import Info, Restraint, SequenceModel
from sqair.networks import CNN, HEAD_GAIN, MLP, cnn_size, gaussian
from sqair.objects import State, initial_state, no_objects

T = TypeVar("T")

UNIT_GAIN = math.sqrt(3.0)
"""Brings the weights that Equinox gives a convolution to the variance 1 / fan-in; nine layers of less would fade."""
FORGET_BIAS = 1.0
"""Of the LSTM, which starts by remembering."""


class FrameEncoder(eqx.Module):
    """psi^x: a frame as Z features, by fully connected layers, or by a CNN and then fully connected layers."""

    cnn: CNN | None
    mlp: MLP

    def __init__(self, config: ModelConfig, *, key: PRNGKeyArray) -> None:
        key_cnn, key_mlp = jax.random.split(key)
        sizes = config.vrnn
        self.cnn, inputs = None, math.prod(config.image) * config.channels
        if config.networks == "conv":
            self.cnn = scaled(CNN(config.channels, sizes.features, sizes.strides, key=key_cnn), UNIT_GAIN)
            inputs = cnn_size(config.image, sizes.features, sizes.strides)
        self.mlp = dense(config, inputs, sizes.latent_size, key=key_mlp)

    def __call__(self, x: Float[Array, "Y X C"]) -> Float[Array, " Z"]:
        """psi^x(x)."""
        return self.mlp(x.reshape(-1) if self.cnn is None else self.cnn(x))


class FrameDecoder(eqx.Module):
    """psi^dec: the mean of a frame, by fully connected layers, or by these and then the mirror image of the CNN."""

    mlp: MLP
    layers: tuple[TransposedConvolution, ...]
    """Transposed convolutions; none in the fully connected variant."""
    maps: tuple[int, int, int] = eqx.field(static=True)
    """What the fully connected layers give: feature maps, rows, columns."""

    def __init__(self, config: ModelConfig, *, key: PRNGKeyArray) -> None:
        key_mlp, *keys = jax.random.split(key, len(config.vrnn.features) + 1)
        self.layers, self.maps = (), (config.channels, *config.image)
        if config.networks == "conv":
            self.layers, self.maps = mirrored(config, keys)
        inputs, gain = config.vrnn.latent_size + config.width, 1.0 if self.layers else HEAD_GAIN
        self.mlp = dense(config, inputs, math.prod(self.maps), key=key_mlp, gain=gain, final_elu=bool(self.layers))

    def __call__(self, z_features: Float[Array, " Z"], output: Float[Array, " H"]) -> Float[Array, "Y X C"]:
        """psi^dec(psi^z(z_t), o_t)."""
        x = jnp.moveaxis(self.mlp(z_features, output).reshape(self.maps), 0, -1)
        for layer in self.layers[:-1]:
            x = jax.nn.elu(layer(x))
        return self.layers[-1](x) if self.layers else x


def mirrored(
    config: ModelConfig, keys: Sequence[PRNGKeyArray]
) -> tuple[tuple[TransposedConvolution, ...], tuple[int, int, int]]:
    """Transposed convolutions from the CNN's last size back to the frame, and the maps that they begin with."""
    sizes, shape = config.vrnn, config.image
    features = (config.channels, *sizes.features[:-1], sizes.decoder_maps)
    layers: list[TransposedConvolution] = []
    for out, into, stride, key in zip(features[:-1], features[1:], sizes.strides, keys, strict=True):
        layer = TransposedConvolution(into, out, stride=stride, shape=shape, key=key)
        layers.append(scaled(layer, UNIT_GAIN if layers else HEAD_GAIN))
        shape = (math.ceil(shape[0] / stride), math.ceil(shape[1] / stride))
    return tuple(layers[::-1]), (sizes.decoder_maps, *shape)


def scaled(module: T, gain: float) -> T:
    """The module with the weights of its convolutions multiplied by `gain`."""
    return jax.tree.map(lambda leaf: gain * leaf if eqx.is_array(leaf) and leaf.ndim == 4 else leaf, module)


def dense(
    config: ModelConfig,
    size_in: int,
    size_out: int,
    *,
    key: PRNGKeyArray,
    gain: float = 1.0,
    final_elu: bool = False,
) -> MLP:
    """L hidden layers of H units and an output."""
    hidden = [config.width] * config.vrnn.layers
    return MLP((size_in, *hidden, size_out), key=key, gain=gain, final_elu=final_elu)


class VRNN(SequenceModel):
    """The generative model p and the inference network q."""

    psi_x: FrameEncoder
    psi_z: MLP
    psi_dec: FrameDecoder
    lstm: eqx.nn.LSTMCell
    prior: MLP
    posterior: MLP
    pixels: PixelNoise
    config: ModelConfig = eqx.field(static=True)
    has_objects: ClassVar[bool] = False

    def __init__(self, config: ModelConfig, *, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key, 6)
        latent, width = config.vrnn.latent_size, config.width
        self.psi_x = FrameEncoder(config, key=keys[0])
        self.psi_z = dense(config, latent, latent, key=keys[1])
        self.psi_dec = FrameDecoder(config, key=keys[2])
        lstm = eqx.nn.LSTMCell(2 * latent, width, key=keys[3])
        forget = slice(width, 2 * width)  # gates lie in the order input, forget, cell, output
        self.lstm = eqx.tree_at(lambda it: it.bias, lstm, replace_fn=lambda bias: bias.at[forget].add(FORGET_BIAS))
        self.prior = dense(config, width, 2 * latent, key=keys[4], gain=HEAD_GAIN)
        self.posterior = dense(config, width + latent, 2 * latent, key=keys[5], gain=HEAD_GAIN)
        self.pixels = PixelNoise(config)
        self.config = config

    def initial(self) -> State:
        """o_1, which the LSTM makes of zeros."""
        zeros = jnp.zeros(self.config.width)
        temporal = self.lstm(jnp.zeros(2 * self.config.vrnn.latent_size), (zeros, zeros))
        return initial_state(1, self.config.vrnn.latent_size, 0)._replace(temporal=jnp.stack(temporal))

    def noise(self, key: PRNGKeyArray, length: int) -> Noise:
        """One slot and no phases; z_t takes the normal numbers of what."""
        return draw_noise(key, (length,), 1, self.config.vrnn.latent_size)

    def encode(self, frames: Float[Array, "T Y X C"]) -> Float[Array, "T Z"]:
        """psi^x of every frame."""
        return jax.vmap(self.psi_x)(frames)

    def step(
        self,
        state: State,
        x: Float[Array, "Y X C"],
        encoding: Float[Array, " Z"],
        noise: Noise,
        restraint: Restraint,
    ) -> tuple[State, Info]:
        """q(z_t | x_t, o_t) and the prior of what was inferred; there is nothing to restrain."""
        output = state.temporal[0]
        q = gaussian(self.posterior(output, encoding), self.config.min_std)
        z = q.sample(noise.what[0])
        z_features = self.psi_z(z)
        canvas = self.psi_dec(z_features, output)
        state, info = self._finish(state, z, self._expected(output).log_prob(z), canvas, encoding, z_features)
        return state, info._replace(log_likelihood=self.log_prob(x, canvas), log_q=q.log_prob(z))

    def dream_step(self, state: State, noise: Noise) -> tuple[State, Info]:
        """Generation for one frame. The LSTM is shown the mean of x_t, as it never sees frames with pixel noise."""
        output = state.temporal[0]
        p = self._expected(output)
        z = p.sample(noise.what[0])
        z_features = self.psi_z(z)
        canvas = self.psi_dec(z_features, output)
        return self._finish(state, z, p.log_prob(z), canvas, self.psi_x(canvas), z_features)

    def drawn_of(self, state: State, info: Info) -> tuple[Float[Array, " H"], Float[Array, " Z"]]:
        """o_t and z_t."""
        return state.temporal[0], info.objects.what[0]

    def log_likelihood(
        self, x: Float[Array, "Y X C"], drawn_of: tuple[Float[Array, " H"], Float[Array, " Z"]]
    ) -> Float[Array, ""]:
        """log p(x_t | z_t, o_t)."""
        output, z = drawn_of
        return self.log_prob(x, self.psi_dec(self.psi_z(z), output))

    def log_prob(self, x: Float[Array, "Y X C"], canvas: Float[Array, "Y X C"]) -> Float[Array, ""]:
        """log p(x_t | z_t, o_t), given its mean."""
        return self.pixels.log_prob(x, canvas)

    def _expected(self, output: Float[Array, " H"]) -> Gaussian:
        """p(z_t | o_t)."""
        return gaussian(self.prior(output), self.config.min_std)

    def _finish(
        self,
        state: State,
        z: Float[Array, " Z"],
        log_p: Float[Array, ""],
        canvas: Float[Array, "Y X C"],
        x_features: Float[Array, " Z"],
        z_features: Float[Array, " Z"],
    ) -> tuple[State, Info]:
        """The state with o_{t+1}, and the Info of a frame not observed."""
        output, cell = state.temporal
        temporal = self.lstm(jnp.concatenate([x_features, z_features]), (output, cell))
        objects = no_objects(1, z.shape[0])._replace(what=z[None])
        zero = jnp.zeros(())
        info = Info(objects, canvas, zero, zero, zero, log_p, zero, zero, zero)
        return state._replace(objects=objects, temporal=jnp.stack(temporal), time=state.time + 1), info

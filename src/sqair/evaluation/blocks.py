"""Convolutional networks for reports: run on few inputs at a time, and not on empty slots. The numbers stay the same.

A network has no batch axis, and `jax.vmap` over sequences, particles and slots makes one large batch of it. On a CPU
that is slow, since what lies between two layers does not fit into the cache. Here the batch becomes a list, of which a
block is run after the other.

The decoder of glimpses skips empty slots, of which there are two in three. They hold zeros (objects.py), and zeros
always decode to the same glimpse: it is made once. The loop then ends where the objects end, so it has no gradient.

On a GPU only that decoder is in blocks. Convolutions are XLA's own there and work in half precision, with sums of 32
bits. It has as many digits as the tf32 that products are rounded to there anyway (10 bits), and half the bytes, on
which their time depends. So there the numbers stay the same but for rounding.

Axes: M inputs, of all mapped axes; W what.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float, Int

from sqair.baselines.air import AIR
from sqair.baselines.vrnn import VRNN
from sqair.convolutions import Convolution, TransposedConvolution
from sqair.model import SQAIR, SequenceModel

M = TypeVar("M", bound=SequenceModel)
Network = Callable[..., Array]

GLIMPSES = {"cpu": 32, "gpu": 2048}
"""Glimpses of a block."""
FRAMES = 16
"""Frames of a block; a GPU takes all of them at once."""


def in_blocks(model: M) -> M:
    """The model with its convolutional networks as above; fully connected ones take little time and stay."""
    if model.config.networks != "conv":
        return model
    on_cpu = jax.default_backend() == "cpu"
    if isinstance(model, VRNN):

        def changed(network: Network) -> Network:
            return InBlocks(native(network), FRAMES) if on_cpu else InHalf(network)

        return eqx.tree_at(lambda it: (it.psi_x, it.psi_dec), model, replace_fn=changed)
    if isinstance(model, SQAIR | AIR):
        encoder, decoder, block = model.encoders.cnn, model.image.decoder, GLIMPSES["cpu" if on_cpu else "gpu"]
        assert encoder is not None
        encoder = InBlocks(encoder, block) if on_cpu else InHalf(encoder)
        decoder = InBlocks(decoder if on_cpu else InHalf(decoder), block, skips_zeros=True)
        return eqx.tree_at(lambda it: (it.encoders.cnn, it.image.decoder), model, (encoder, decoder))
    return model


class InHalf(eqx.Module):
    """A network whose convolutions are native and in half precision; what it gives to others has 32 bits again."""

    network: Network

    def __init__(self, network: Network) -> None:
        def halve(node: Any) -> Any:
            cast = partial(jax.tree.map, lambda leaf: leaf.astype(jnp.float16) if eqx.is_array(leaf) else leaf)
            return cast(node) if is_layer(node) else node

        self.network = jax.tree.map(halve, native(network), is_leaf=is_layer)

    def __call__(self, *inputs: Float[Array, "..."]) -> Float[Array, "..."]:
        """What the network gives for its inputs."""
        return self.network(*inputs).astype(jnp.float32)


class InBlocks(eqx.Module):
    """A network as it is, but under `jax.vmap` the inputs of all mapped axes are run as one list."""

    network: Network
    block: int = eqx.field(static=True)
    skips_zeros: bool = eqx.field(static=True, default=False)
    """Whether an input that is all zeros, of a network with one input, is run only once."""

    def __call__(self, *inputs: Float[Array, "..."]) -> Float[Array, "..."]:
        """What the network gives for its inputs."""
        weights, rest = eqx.partition(self.network, eqx.is_array)
        ranks = [x.ndim for x in inputs]

        @custom_vmap
        def run(weights: Any, *inputs: Array) -> Array:
            network = eqx.combine(weights, rest)
            axes = inputs[0].shape[: inputs[0].ndim - ranks[0]]
            if not axes:
                return network(*inputs)
            listed = [x.reshape(-1, *x.shape[len(axes) :]) for x in inputs]
            results = (run_used if self.skips_zeros else run_all)(network, *listed, block=self.block)
            return results.reshape(*axes, *results.shape[1:])

        @run.def_vmap
        def _(size: int, mapped: Any, weights: Any, *inputs: Array) -> tuple[Array, bool]:
            if any(jax.tree.leaves(mapped[0])):
                raise NotImplementedError("inputs of several networks are not one list")
            pairs = zip(inputs, mapped[1:], strict=True)
            inputs = tuple(x if is_mapped else jnp.broadcast_to(x, (size, *x.shape)) for x, is_mapped in pairs)
            return run(weights, *inputs), True  # the mapped axis is the first: one more to make a list of

        return run(weights, *inputs)


class Native(eqx.Module):
    """A convolution by XLA itself: in blocks on a CPU it is faster than our matrix products, which training needs."""

    layer: Convolution | TransposedConvolution

    def __call__(self, x: Float[Array, "Y X C"]) -> Float[Array, "rows columns F"]:
        """What the layer gives."""
        layer, stride, padding, enlarged = self.layer, self.layer.stride, "SAME", (1, 1)
        assert layer.bias is not None
        if isinstance(layer, TransposedConvolution):
            padding = [(1, 1 + (size - 1) % stride[0]) for size in layer.shape]
            stride, enlarged = (1, 1), stride
        filters, axes = layer.weight.transpose(2, 3, 1, 0), ("NHWC", "HWIO", "NHWC")
        x = x.astype(filters.dtype)[None]
        return jax.lax.conv_general_dilated(x, filters, stride, padding, enlarged, None, axes)[0] + layer.bias[:, 0, 0]


def native(network: Any) -> Any:
    """The network with `Native` layers, where the numbers of channels do not favour ours."""

    def change(node: Any) -> Any:
        return Native(node) if is_layer(node) and 9 * node.weight.shape[0] > node.weight.shape[1] else node

    return jax.tree.map(change, network, is_leaf=is_layer)


def is_layer(node: Any) -> bool:
    """Whether this is a convolution."""
    return isinstance(node, Convolution | TransposedConvolution)


def run_all(network: Network, *inputs: Float[Array, "M ..."], block: int) -> Float[Array, "M ..."]:
    """The results of all inputs, `block` at a time."""
    count = len(inputs[0])
    block = min(block, count)
    return run_blocks(network, inputs, math.ceil(count / block), block)[:count]


def run_used(network: Network, what: Float[Array, "M W"], *, block: int) -> Float[Array, "M ..."]:
    """The same of one input. Only a row of zeros and the inputs that are not zero are run."""
    block = min(block, len(what) + 1)
    is_used = (what != 0).any(-1)
    place = jnp.where(is_used, jnp.cumsum(is_used), 0)
    used_first = what[jnp.argsort(~is_used, stable=True)]
    listed = jnp.pad(used_first, ((1, 0), (0, 0)))
    return run_blocks(network, [listed], is_used.sum() // block + 1, block)[place]


def run_blocks(
    network: Network, inputs: Sequence[Array], number: int | Int[Array, ""], block: int
) -> Float[Array, "room ..."]:
    """The results of the first `number` blocks, and zeros for the others; the last block is filled up."""
    room = block * math.ceil(len(inputs[0]) / block)
    filled = [jnp.pad(x, [(0, room - len(x)), *[(0, 0)] * (x.ndim - 1)]) for x in inputs]

    def run_block(index: Array, results: Array) -> Array:
        here = [jax.lax.dynamic_slice_in_dim(x, index * block, block) for x in filled]
        return jax.lax.dynamic_update_slice_in_dim(results, jax.vmap(network)(*here), index * block, 0)

    shape = jax.eval_shape(network, *(x[0] for x in inputs))
    return jax.lax.fori_loop(0, number, run_block, jnp.zeros((room, *shape.shape), shape.dtype))

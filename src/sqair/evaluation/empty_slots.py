"""Decoding without empty slots, for reports. Of three slots about one holds an object, and decoding is most work.

A slot without an object holds zeros (objects.py), and zeros always decode to the same glimpse. So that one is made
once, and of all slots of all particles and sequences only the others are decoded, some at a time. The numbers are the
same. The loop stops where the objects end, so there is no gradient.

Axes: M slots of all particles and sequences, W what, G, L glimpse, C channels.
"""

import math
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float

from sqair.baselines.air import AIR
from sqair.model import SQAIR, SequenceModel
from sqair.networks import SubpixelDecoder

M = TypeVar("M", bound=SequenceModel)

BLOCK = {"cpu": 32, "gpu": 2048}
"""Slots that are decoded together: on a CPU so few that what lies between two layers stays in the cache."""


def skips_empty_slots(model: M) -> M:
    """The model with a decoder that does not decode empty slots; a fully connected one takes little time and stays."""
    if not isinstance(model, SQAIR | AIR) or not isinstance(model.image.decoder, SubpixelDecoder):
        return model
    block = BLOCK.get(jax.default_backend(), BLOCK["gpu"])
    return eqx.tree_at(lambda it: it.image.decoder, model, SparseDecoder(model.image.decoder, block))


class SparseDecoder(eqx.Module):
    """A decoder as it is, but under `jax.vmap` all slots of all mapped axes are decoded as one list."""

    decoder: SubpixelDecoder
    block: int = eqx.field(static=True)

    def __call__(self, what: Float[Array, " W"]) -> Float[Array, "G L C"]:
        """A glimpse, before its output non-linearity."""
        weights, rest = eqx.partition(self.decoder, eqx.is_array)

        @custom_vmap
        def decode(weights: Any, what: Float[Array, "*axes W"]) -> Float[Array, "*axes G L C"]:
            slots = what.reshape(-1, what.shape[-1])
            glimpses = decode_slots(eqx.combine(weights, rest), slots, self.block)
            return glimpses.reshape(*what.shape[:-1], *glimpses.shape[1:])

        @decode.def_vmap
        def _(size: int, mapped: Any, weights: Any, what: Array) -> tuple[Array, bool]:
            if any(jax.tree.leaves(mapped[0])):
                raise NotImplementedError("the slots of several models are not one list")
            return decode(weights, what), True  # its axis is the first, one more of those that `decode` takes

        return decode(weights, what)


def decode_slots(decoder: SubpixelDecoder, what: Float[Array, "M W"], block: int) -> Float[Array, "M G L C"]:
    """The glimpses of all slots. A row of zeros and the slots that are not empty are decoded, `block` at a time."""
    is_used = (what != 0).any(-1)
    place = jnp.where(is_used, jnp.cumsum(is_used), 0)
    room = block * math.ceil((len(what) + 1) / block)
    used_first = what[jnp.argsort(~is_used, stable=True)]
    listed = jnp.pad(used_first, ((1, room - len(what) - 1), (0, 0)))

    def decode_block(number: Array, glimpses: Array) -> Array:
        start = number * block
        new = jax.vmap(decoder)(jax.lax.dynamic_slice_in_dim(listed, start, block))
        return jax.lax.dynamic_update_slice_in_dim(glimpses, new, start, 0)

    shape = jax.eval_shape(decoder, what[0])
    number = is_used.sum() // block + 1
    glimpses = jax.lax.fori_loop(0, number, decode_block, jnp.zeros((room, *shape.shape), shape.dtype))
    return glimpses[place]

"""What iterations save, packed into few arrays."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

LARGE = 2**23
"""Bytes of an array that stays by itself: to copy it costs more than to launch an operation for it."""


class Packing(NamedTuple):
    """How arrays are packed: small ones of a type together in one vector, each large one alone."""

    halved: bool
    """Whether 32-bit numbers are kept as bfloat16."""

    def pack(self, values: Sequence[Any]) -> list[Array]:
        """Arrays as few vectors, one for each bundle; an array that is alone keeps its shape."""
        bundles = bundle(values)
        values = [self._kept(value) for value in values]
        return [
            values[places[0]] if len(places) == 1 else jnp.concatenate([values[place].reshape(-1) for place in places])
            for places in bundles
        ]

    def unpack(self, vectors: Sequence[Array], shapes: Sequence[jax.ShapeDtypeStruct]) -> list[Array]:
        """The arrays again, from what `pack` gave or stacks of it, which give stacks of arrays."""
        values: dict[int, Array] = {}
        for places, vector in zip(bundle(shapes), vectors, strict=True):
            begin = 0
            for place in places:
                shape, part = shapes[place], vector
                if len(places) > 1:
                    part = jax.lax.slice_in_dim(vector, begin, begin + shape.size, axis=-1)
                    part = part.reshape(*part.shape[:-1], *shape.shape)
                begin += shape.size
                values[place] = part.astype(shape.dtype)
        return [values[place] for place in range(len(shapes))]

    def zeros(self, shapes: Sequence[jax.ShapeDtypeStruct]) -> list[Array]:
        """What `pack` makes of zeros of these shapes."""
        return self.pack([zeros(shape) for shape in shapes])

    def _kept(self, value: Any) -> Any:
        """A value as it is kept."""
        return value.astype(jnp.bfloat16) if self.halved and value.dtype == jnp.float32 else value


def bundle(shapes: Sequence[Any]) -> list[list[int]]:
    """Which arrays lie in one vector, by their places."""
    found: dict[Any, list[int]] = {}
    for place, shape in enumerate(shapes):
        is_large = shape.size * shape.dtype.itemsize >= LARGE
        found.setdefault(place if is_large else str(shape.dtype), []).append(place)
    return list(found.values())


def zeros(shape: jax.ShapeDtypeStruct) -> Array:
    """Zeros of a shape and type."""
    return jnp.zeros(shape.shape, shape.dtype)


def like(value: Any, *, stacked: bool = False) -> jax.ShapeDtypeStruct:
    """Shape and type of a value, or of one of the values stacked in it."""
    return jax.ShapeDtypeStruct(value.shape[1:] if stacked else value.shape, value.dtype)

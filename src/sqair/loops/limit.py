"""A bound on gradients that pass back through time."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from sqair.loops.parts import is_float


def limited(tree: PyTree, limit: float | Float[Array, ""]) -> PyTree:
    """`tree` itself; the gradient that comes back through it is scaled down to the norm `limit`, 0 for no limit.

    In a chain of frames a gradient can grow at every link. Where one sequence's grows without bound, it drowns those
    of all others in the batch, however their sum is clipped.
    """
    if not isinstance(limit, jax.Array) and limit <= 0:
        return tree
    leaves, structure = jax.tree.flatten(tree)
    passed = iter(_limited([leaf for leaf in leaves if is_float(leaf)], jnp.asarray(limit)))
    return jax.tree.unflatten(structure, [next(passed) if is_float(leaf) else leaf for leaf in leaves])


@jax.custom_vjp
def _limited(leaves: list, limit: Any) -> list:
    return leaves


def _forward(leaves: list, limit: Any) -> tuple[list, Any]:
    return leaves, limit


def _backward(limit: Any, cotangents: list) -> tuple[list, None]:
    squared = jnp.stack([jnp.square(leaf).sum() for leaf in cotangents]).sum()
    norm = jnp.sqrt(jnp.maximum(squared, jnp.finfo(squared.dtype).tiny))
    scale = jnp.where(limit > 0, jnp.minimum(1.0, limit / norm), 1.0)
    return [scale * leaf for leaf in cotangents], None


_limited.defvjp(_forward, _backward)

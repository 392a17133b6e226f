"""Muon: steps whose matrices are orthogonal, so that a layer learns all its directions at once, not the loudest few.

Each matrix has a running mean of its gradients M (Jordan et al. 2024). A step goes along the nearest matrix with equal
singular values, U V^T of M = U S V^T, which a few matrix products come close to (Newton and Schulz's iteration).
Filters of convolutions are matrices with a row for each map that they make, and the gates of a recurrent cell are one
matrix. All else goes by Adam: biases, vectors, matrices of few rows or columns, and what is no linear map, such as the
picture of a background. A step of full rank is as long as Adam's usual one, so that both take the same learning rates.

Axes: M matrices of one shape, R rows, at most as many as columns C.
"""

import math
from collections import defaultdict
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

MOMENTUM = 0.95
"""Of the running means of gradients."""
WEIGHTS = "weight"
"""How the names of a layer's weights begin."""
FEW = 8
"""A matrix with fewer rows or columns is left to Adam."""
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of X, of X X^T X and of (X X^T)^2 X: a polynomial that brings singular values of 0.01 to 1 into 0.7 to 1.2 ..."""
ITERATIONS = 5
"""... when it is applied so many times."""
USUAL = 0.2
"""Root mean square of a step of Adam before its rate, as it usually is."""


class MuonState(NamedTuple):
    """What Muon remembers, as trees like the parameters."""

    momentum: PyTree
    """Running means of gradients; nothing where Adam goes."""
    adam: optax.OptState
    """Of what is left to Adam."""


def scale_by_muon() -> optax.GradientTransformation:
    """Steps upwards of length one, so to say: the learning rate and its sign come after it."""
    adam = optax.scale_by_adam()

    def begin(params: optax.Params) -> MuonState:
        return MuonState(jax.tree.map(jnp.zeros_like, of_matrices(params)), adam.init(of_the_rest(params)))

    def update(
        updates: optax.Updates, state: optax.OptState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, MuonState]:
        assert isinstance(state, MuonState)
        slopes = of_matrices(updates)
        momentum = optax.incremental_update(slopes, state.momentum, 1 - MOMENTUM)
        ahead = optax.incremental_update(slopes, momentum, 1 - MOMENTUM)  # Nesterov's
        others, inner = adam.update(of_the_rest(updates), state.adam)
        return jax.tree.map(either, steps_along(ahead), others, is_leaf=is_none), MuonState(momentum, inner)

    return optax.GradientTransformation(begin, update)


def is_matrix(path: tuple[Any, ...], leaf: Array) -> bool:
    """Whether Muon takes it: it is the weights of a layer, which are called so, and large enough in both directions."""
    is_weights = jax.tree_util.keystr(path[-1:], simple=True).startswith(WEIGHTS)
    return is_weights and leaf.ndim >= 2 and min(leaf.shape[0], math.prod(leaf.shape[1:])) >= FEW


def of_matrices(tree: PyTree) -> PyTree:
    """The tree with matrices only."""
    return jax.tree_util.tree_map_with_path(lambda path, leaf: leaf if is_matrix(path, leaf) else None, tree)


def of_the_rest(tree: PyTree) -> PyTree:
    """The tree with all but matrices."""
    return jax.tree_util.tree_map_with_path(lambda path, leaf: None if is_matrix(path, leaf) else leaf, tree)


def is_none(leaf: object) -> bool:
    """Whether there is nothing here."""
    return leaf is None


def either(first: Array | None, second: Array | None) -> Array | None:
    """The one that is there."""
    return second if first is None else first


def steps_along(tree: PyTree) -> PyTree:
    """Every matrix made orthogonal; those of one shape together, since many small products cost as many launches."""
    leaves, shape = jax.tree.flatten(tree)
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    wide = [as_wide(leaf) for leaf in leaves]
    for number, matrix in enumerate(wide):
        groups[matrix.shape].append(number)
    for numbers in groups.values():
        for number, done in zip(numbers, orthogonal(jnp.stack([wide[number] for number in numbers])), strict=True):
            leaf = leaves[number]
            rows = leaf.shape[0]
            leaves[number] = (done if rows == done.shape[0] else done.T).reshape(leaf.shape)
    return jax.tree.unflatten(shape, leaves)


def as_wide(leaf: Array) -> Float[Array, "R C"]:
    """Weights as a matrix with at most as many rows as columns."""
    matrix = leaf.reshape(leaf.shape[0], -1)
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T


def orthogonal(matrices: Float[Array, "M R C"]) -> Float[Array, "M R C"]:
    """Nearly U V^T of each, as long as a step of Adam."""
    a, b, c = COEFFICIENTS
    x = matrices / (jnp.linalg.norm(matrices, axis=(1, 2), keepdims=True) + 1e-12)
    for _ in range(ITERATIONS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return USUAL * math.sqrt(matrices.shape[2]) * x

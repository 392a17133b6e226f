"""What several test files share: tiny models, every admissible presence path, float64."""

import functools
import itertools
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from sqair.config import ModelConfig

T = TypeVar("T")

TINY = ModelConfig(
    image=(8, 8),
    glimpse=(4, 4),
    max_objects=2,
    what_size=2,
    width=8,
    output_std=1.0,
    discovery_bias=0.3,
    propagation_bias=0.5,
    survival_bias=0.7,
    nothing_new_bias=0.5,
    discovery_where_std_bias=0.0,
    propagation_where_std_bias=0.0,
)
"""The smallest model in which everything happens: the biases leave births and deaths about as likely as their absence,
and the wide q(where) lets presences depend on the noise."""


def scatter(model: T, key: PRNGKeyArray, scale: float = 0.5) -> T:
    """The model with normal numbers added to all of its parameters, so that none is zero or without influence."""
    draw = np.random.default_rng(np.asarray(jax.random.key_data(key)))  # numpy has nothing to compile for each shape

    def move(leaf: Any) -> Any:
        return leaf + scale * draw.normal(size=leaf.shape).astype(leaf.dtype) if eqx.is_inexact_array(leaf) else leaf

    return jax.tree.map(move, model)


@functools.cache
def build(kind: Callable[..., T], config: ModelConfig = TINY, scale: float = 0.5) -> T:
    """A model of `kind` with scattered parameters, in float32; made once for all tests."""
    with jax.enable_x64(False):
        return scatter(eqx.filter_jit(lambda key: kind(config, key=key))(jax.random.key(0)), jax.random.key(1), scale)


def cast(tree: T, dtype: Any = jnp.float64) -> T:
    """The tree with its floating point arrays in another precision (float64 needs the fixture `x64`)."""
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, tree)


def film(length: int, size: tuple[int, int] = TINY.image) -> Float[Array, "T Y X C"]:
    """A bright square that moves one pixel per frame over a dim slope."""
    frames = np.zeros((length, *size, 1), np.float32) + np.linspace(0, 0.2, size[1], dtype=np.float32)[:, None]
    for t in range(length):
        frames[t, 1 + t : 4 + t, 2 + t : 5 + t] = 0.9
    return jnp.asarray(frames)


def paths(slots: int, length: int) -> np.ndarray:
    """Every admissible presence path, with axes (path, T, phase, N): what `Noise.forced` takes, for SQAIR.

    From n present objects, which fill the first n slots, some survive; then come as many births as there is room for,
    or fewer, as ones and then zeros.
    """
    return np.array([[frame for frame, _ in path] for path in _continuations(slots, length, 0)], np.float32)


def _continuations(slots: int, length: int, present: int) -> list[tuple]:
    """The paths of `length` frames from `present` objects; each frame is (its two rows of presences, objects after)."""
    if length == 0:
        return [()]
    first = []
    for alive in itertools.product((0, 1), repeat=present):
        for births in range(slots - sum(alive) + 1):
            rows = ((*alive, *[0] * (slots - present)), (*[1] * births, *[0] * (slots - births)))
            first.append((rows, sum(alive) + births))
    return [(frame, *rest) for frame in first for rest in _continuations(slots, length - 1, frame[1])]


def strings(slots: int, length: int, phases: int = 2) -> np.ndarray:
    """Every string of bits, admissible or not, in the shape of `paths`."""
    bits = itertools.product((0, 1), repeat=length * phases * slots)
    return np.array(list(bits), np.float32).reshape(-1, length, phases, slots)

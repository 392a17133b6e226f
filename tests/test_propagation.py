"""Propagation's switches: what an object sees of the frame before it looks, and of the objects before it."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import TINY, film

from sqair.distributions import draw_noise
from sqair.networks import Encoders
from sqair.objects import Objects
from sqair.propagation import LOW_RESOLUTION, FrameAccess, PropagationPosterior, low_resolution
from sqair.spatial_transformer import SpatialTransformer

NOISE = draw_noise(jax.random.key(0), (), 2, TINY.what_size)
TEMPORAL = jax.random.normal(jax.random.key(1), (2, TINY.width))
FRAME = film(1)[0]
ENCODING = jnp.linspace(-1.0, 1.0, TINY.width)
WHAT = jnp.array([[0.5, -0.5], [1.0, 2.0]])


def filled(kind, config=TINY):
    """A module with normal numbers for all of its parameters."""
    draw = np.random.default_rng(2)
    empty = eqx.filter_eval_shape(kind, config, key=jax.random.key(0))
    return jax.tree.map(lambda leaf: jnp.asarray(0.5 * draw.normal(size=leaf.shape), leaf.dtype), empty)


def finder(**switches):
    """Where both objects of a frame are found, given the frame, its encoding and their whats."""
    posterior, encoders = filled(PropagationPosterior, dataclasses.replace(TINY, **switches)), filled(Encoders)

    @jax.jit
    def places(x, encoding, what):
        objects = Objects(what, jnp.zeros((2, 4)), jnp.ones(2), jnp.arange(2))
        given = (objects, TEMPORAL, encoders, SpatialTransformer(TINY), encoding, jnp.ones(()))
        return posterior(NOISE, x, *given)[0].where

    return places


def invisible(image: tuple[int, int]) -> np.ndarray:
    """A change of a frame that is not to be seen at a low resolution."""
    pixels, small = np.eye(image[0]), low_resolution(image)[0]
    rows = jax.image.resize(pixels, (small, image[0]), "linear")
    hidden = np.linalg.svd(np.asarray(rows))[2][-1]
    return np.tile(hidden[:, None, None], (1, image[1], 1)).astype(np.float32)


@pytest.mark.parametrize(
    ("proposal", "sees_frame", "sees_detail", "sees_encoding"),
    [
        ("glimpse", True, True, False),
        ("none", False, False, False),
        ("image", False, False, True),
        ("low-resolution", True, False, False),
        ("projection", False, False, True),
    ],
)
def test_the_first_object_is_placed_by_what_is_seen(proposal, sees_frame, sees_detail, sees_encoding):
    """The first: the second one sees, through the relation RNN, the final glimpse of the first."""
    places = finder(proposal=proposal)
    plain = places(FRAME, ENCODING, WHAT)[0]

    def is_moved(x, encoding):
        return not np.allclose(places(x, encoding, WHAT)[0], plain, atol=1e-5)

    assert is_moved(FRAME[::-1], ENCODING) == sees_frame
    assert is_moved(FRAME + invisible(TINY.image), ENCODING) == sees_detail
    assert is_moved(FRAME, ENCODING[::-1]) == sees_encoding


@pytest.mark.parametrize(("relation", "proposal", "is_told"), [("rnn", "glimpse", True), ("none", "image", False)])
def test_an_object_is_told_of_those_before_it(relation, proposal, is_told):
    places = finder(relation=relation, proposal=proposal)
    one, other = (places(FRAME, ENCODING, what) for what in (WHAT, WHAT.at[0].add(1.0)))
    assert not np.allclose(one[0], other[0], atol=1e-5)
    assert (not np.allclose(one[1], other[1], atol=1e-5)) == is_told


def test_low_resolution_is_a_smaller_frame():
    """A plain frame stays plain; sizes are rounded up."""
    config = dataclasses.replace(TINY, proposal="low-resolution", image=(9, 8), channels=3)
    access = FrameAccess(config, key=jax.random.key(0))
    assert low_resolution(config.image) == (3, 2) == (-(-9 // LOW_RESOLUTION), 8 // LOW_RESOLUTION)
    assert access.network is not None
    found = access(jnp.full((9, 8, 3), 0.25), ENCODING)
    np.testing.assert_allclose(found, access.network(jnp.full(3 * 2 * 3, 0.25)), rtol=1e-5)

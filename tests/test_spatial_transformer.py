"""ST and ST^-1 against scipy's interpolation, their gradients, and the maps between where, windows and pixel boxes."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import map_coordinates

from sqair.config import ModelConfig
from sqair.spatial_transformer import SpatialTransformer, Window

SHAPES = [((9, 13), (5, 4), 1), ((12, 7), (3, 6), 3)]
"""Image, glimpse and channels; no two sides are equal."""


def make(image, glimpse, limits=(0.02, 1.0), shift_limit=3.0, widths=(0.0, 0.0)):
    """A shift limit of 3 lets windows lie wholly outside the frame."""
    return SpatialTransformer(
        ModelConfig(image=image, glimpse=glimpse, scale_limits=limits, width_limits=widths, shift_limit=shift_limit)
    )


@eqx.filter_jit
def read(spatial, x, where):
    return spatial.read(x, where)


@eqx.filter_jit
def write(spatial, glimpse, where):
    return spatial.write(glimpse, where)


@eqx.filter_jit
def to_window(spatial, where):
    return spatial.window(where)


@eqx.filter_jit
def to_boxes(spatial, where):
    return spatial.boxes(where)


@eqx.filter_jit
def of_boxes(spatial, boxes):
    return spatial.where_of_boxes(boxes)


def sampling_points(spatial: SpatialTransformer, where, direction: Literal["read", "write"]):
    """Rows and columns at which the source is sampled, in pixels of the source, in double precision."""
    low, high = np.array(spatial.scale_limits)
    where = np.asarray(where, np.float64)
    scales = low + (high - low) / (1 + np.exp(-where[:2]))
    shifts = spatial.shift_limit * np.tanh(where[2:])
    points = []
    for axis, side in [(1, 0), (0, 1)]:
        grid = np.linspace(-1, 1, (spatial.glimpse if direction == "read" else spatial.image)[side])
        size_in = (spatial.image if direction == "read" else spatial.glimpse)[side]
        place = scales[axis] * grid + shifts[axis] if direction == "read" else (grid - shifts[axis]) / scales[axis]
        points.append((place + 1) / 2 * (size_in - 1))
    return points


def interpolate(source, rows, columns):
    """scipy's bilinear interpolation of every channel, with zeros outside."""
    grid = np.meshgrid(rows, columns, indexing="ij")
    channels = [map_coordinates(source[..., c], grid, order=1, mode="grid-constant") for c in range(source.shape[-1])]
    return np.stack(channels, -1)


wheres = st.tuples(*[st.floats(-3, 3)] * 2, *[st.floats(-0.8, 0.8)] * 2).map(lambda four: np.array(four, np.float32))
"""Windows of all sizes; about half of them touch the frame."""
seeds = st.integers(0, 2**31)


@pytest.mark.parametrize(("image", "glimpse", "channels"), SHAPES)
@given(where=wheres, seed=seeds)
def test_read_is_scipys_interpolation(image, glimpse, channels, where, seed):
    spatial = make(image, glimpse, widths=(0.01, 0.8))
    x = np.random.default_rng(seed).random((*image, channels), np.float32)
    expected = interpolate(x, *sampling_points(spatial, where, "read"))
    np.testing.assert_allclose(read(spatial, x, where), expected, atol=1e-5)


@pytest.mark.parametrize(("image", "glimpse", "channels"), SHAPES)
@given(where=wheres, seed=seeds)
def test_write_is_scipys_interpolation(image, glimpse, channels, where, seed):
    spatial = make(image, glimpse)
    g = np.random.default_rng(seed).random((*glimpse, channels), np.float32)
    expected = interpolate(g, *sampling_points(spatial, where, "write"))
    np.testing.assert_allclose(write(spatial, g, where), expected, atol=1e-5)


@pytest.mark.parametrize("shift", [(2.9, 0.0), (-2.9, 0.0), (0.0, 2.9), (0.0, -2.9)])
def test_far_outside_there_is_nothing(shift):
    spatial = make((9, 13), (5, 4))
    where = spatial.where(Window(jnp.array([0.5, 0.5]), jnp.array(shift)))
    assert np.all(read(spatial, np.ones((9, 13, 1)), where) == 0)
    assert np.all(write(spatial, np.ones((5, 4, 1)), where) == 0)


def test_the_whole_frame_is_read_unchanged():
    spatial = make((6, 5), (6, 5))
    x = np.random.default_rng(0).random((6, 5, 2), np.float32)
    where = spatial.where(Window(jnp.ones(2), jnp.zeros(2)))
    np.testing.assert_allclose(read(spatial, x, where), x, atol=1e-4)


def far_from_kinks(rng, spatial, direction):
    """A random where whose sampling points keep away from pixel centres, where bilinear interpolation has a kink."""
    while True:
        where = rng.uniform([-2, -2, -1, -1], [2, 2, 1, 1])
        points = np.concatenate(sampling_points(spatial, where, direction))
        inside = points[(points > -2) & (points < max(spatial.image) + 1)]
        if len(inside) and np.min(np.abs(inside - np.round(inside))) > 1e-3:
            return where


@pytest.mark.parametrize("direction", ["read", "write"])
@pytest.mark.parametrize(("image", "glimpse", "channels"), SHAPES)
def test_gradients_are_finite_differences(x64, direction, image, glimpse, channels):
    """In double precision, with respect to both the pixels and where, away from the kinks."""
    spatial = make(image, glimpse, shift_limit=1.5)
    source, target = (image, glimpse) if direction == "read" else (glimpse, image)
    rng = np.random.default_rng(1)

    @jax.jit
    def value(pixels, where, weights):
        return (weights * getattr(spatial, direction)(pixels, where)).sum()

    for _ in range(5):
        pixels, weights = rng.random((*source, channels)), rng.random((*target, channels))
        where, small = far_from_kinks(rng, spatial, direction), 1e-6
        by_pixels, by_where = jax.grad(value, argnums=(0, 1))(pixels, where, weights)
        steps = small * np.eye(4)
        slopes = [(value(pixels, where + s, weights) - value(pixels, where - s, weights)) / (2 * small) for s in steps]
        np.testing.assert_allclose(by_where, slopes, rtol=1e-5, atol=1e-7)
        along = rng.normal(size=pixels.shape)
        ahead, behind = (value(pixels + s * along, where, weights) for s in (small, -small))
        np.testing.assert_allclose((by_pixels * along).sum(), (ahead - behind) / (2 * small), rtol=1e-6)


def test_reading_multiplies_no_matrices():
    """Nor does its gradient by the window; that by the frame does, and sums over all who read from the same one."""
    spatial = make((9, 13), (5, 4))
    x, where = jnp.asarray(np.random.default_rng(0).random((9, 13, 1), np.float32)), jnp.zeros((3, 4))

    def value(x, where):
        return jnp.square(jax.vmap(spatial.read, in_axes=(None, 0))(x, where)).sum()

    assert "dot_general" not in str(jax.make_jaxpr(jax.grad(value, argnums=1))(x, where))
    one_by_one = sum(jax.grad(value)(x, window[None]) for window in where)
    np.testing.assert_allclose(jax.grad(value)(x, where), one_by_one, rtol=1e-5)


# --- where, windows and boxes


@given(where=st.lists(st.floats(-1e6, 1e6, width=32), min_size=4, max_size=4))
def test_windows_respect_the_limits(where):
    spatial = make((9, 13), (5, 4), limits=(0.1, 0.7), shift_limit=1.5, widths=(0.2, 0.3))
    window = to_window(spatial, np.array(where, np.float32))
    assert np.all((window.scale >= np.array([0.2, 0.1]) - 1e-6) & (window.scale <= np.array([0.3, 0.7]) + 1e-6))
    assert np.all(np.abs(window.shift) <= 1.5)


@given(where=wheres)
def test_where_to_window_and_back(where):
    spatial = make((9, 13), (5, 4), widths=(0.05, 0.5))
    np.testing.assert_allclose(spatial.where(to_window(spatial, where)), where, atol=2e-3)


@given(
    scale=st.lists(st.floats(0.05, 0.95), min_size=2, max_size=2),
    shift=st.lists(st.floats(-2.9, 2.9), min_size=2, max_size=2),
)
def test_window_to_where_and_back(scale, shift):
    spatial = make((9, 13), (5, 4))
    back = to_window(spatial, spatial.where(Window(jnp.array(scale), jnp.array(shift))))
    np.testing.assert_allclose(back.scale, scale, atol=1e-5)
    np.testing.assert_allclose(back.shift, shift, atol=1e-5)


def test_a_window_outside_the_limits_is_brought_inside():
    spatial = make((9, 13), (5, 4), limits=(0.1, 0.7), shift_limit=1.5, widths=(0.2, 0.3))
    back = spatial.window(spatial.where(Window(jnp.array([0.0, 5.0]), jnp.array([-9.0, 9.0]))))
    np.testing.assert_allclose(back.scale, [0.2, 0.7], atol=1e-5)
    np.testing.assert_allclose(back.shift, [-1.5, 1.5], atol=1e-5)


@st.composite
def pixel_windows(draw):
    """First and last pixel of a window on a 13 wide, 9 high frame: columns a..b and rows c..d; it may stick out."""
    a, c = draw(st.integers(-6, 11)), draw(st.integers(-4, 7))
    return a, a + draw(st.integers(1, 11)), c, c + draw(st.integers(1, 7))


@given(window=pixel_windows())
def test_boxes_count_pixels(window):
    """A window over the pixels a..b has left a and width b - a + 1; the way to where and back returns the box."""
    a, b, c, d = window
    spatial = make((9, 13), (5, 4))
    scale = jnp.array([(b - a) / 12, (d - c) / 8])
    shift = jnp.array([(a + b) / 12 - 1, (c + d) / 8 - 1])
    box = [a, c, b - a + 1, d - c + 1]
    np.testing.assert_allclose(to_boxes(spatial, spatial.where(Window(scale, shift))), box, atol=1e-4)
    np.testing.assert_allclose(to_boxes(spatial, of_boxes(spatial, np.array(box, np.float32))), box, atol=1e-4)


def test_boxes_take_any_leading_axes():
    spatial = make((9, 13), (5, 4))
    where = jax.random.normal(jax.random.key(0), (2, 3, 4))
    boxes = spatial.boxes(where)
    np.testing.assert_allclose(boxes[1, 2], to_boxes(spatial, where[1, 2]), rtol=1e-6)
    np.testing.assert_allclose(spatial.where_of_boxes(boxes), where, atol=1e-3)


@pytest.mark.parametrize("corner", [(0, 0), (2, 4), (8, 1)])
def test_what_is_written_can_be_read(corner):
    """A window as many pixels wide and high as the glimpse holds each of its pixels on a pixel of the frame."""
    spatial = make((9, 13), (4, 5))
    g = np.random.default_rng(0).random((4, 5, 3), np.float32)
    where = of_boxes(spatial, np.array([*corner, 5, 4], np.float32))
    frame = write(spatial, g, where)
    left, top = corner
    np.testing.assert_allclose(frame[top : top + 4, left : left + 5], g, atol=1e-4)
    np.testing.assert_allclose(frame.sum(), g.sum(), rtol=1e-4)
    np.testing.assert_allclose(read(spatial, frame, where), g, atol=2e-4)

"""ST and its inverse (sec. 2, fig. 1): the window that `where` names is read from, or written to, a frame.

`where` is four unbounded numbers: scale x, scale y, shift x, shift y, before the squashing below. Coordinates run from
-1 at the centre of the first pixel to 1 at the centre of the last (align-corners). Since a window is only scaled and
shifted, bilinear sampling separates: one small matrix for the rows, one for the columns, whose entries are hat
functions of the distance between a sampling point and a pixel. Outside, values fade to zero over one pixel.

Writing multiplies by these matrices. Their rows have at most two entries that are not zero, so reading needs no
product: a pixel of a glimpse is made of four of the frame (`sampled`), and the gradient by the window of their
differences. Only the gradient by the frame, rarely wanted, is made by products; sampling would have to scatter it.

Axes: N slots; Y, X frame rows and columns; G, L glimpse rows and columns; C channels.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float, Int

from sqair.config import ModelConfig
from sqair.products import wide_product


class Window(NamedTuple):
    """A box in frame coordinates: it spans shift - scale to shift + scale on each axis (x, y)."""

    scale: Float[Array, "*batch 2"]
    shift: Float[Array, "*batch 2"]


def sampling_points(
    scale: Float[Array, ""], shift: Float[Array, ""], size_out: int, size_in: int
) -> Float[Array, " out"]:
    """Where `size_in` pixels are sampled, counted in pixels: at scale u + shift, for u evenly spaced on [-1, 1]."""
    points = scale * jnp.linspace(-1.0, 1.0, size_out) + shift
    return (points + 1) * (size_in - 1) / 2


def hat_weights(
    scale: Float[Array, ""], shift: Float[Array, ""], size_out: int, size_in: int
) -> Float[Array, "out in"]:
    """Bilinear weights that sample `size_in` pixels at scale u + shift, for u evenly spaced on [-1, 1]."""
    pixels = sampling_points(scale, shift, size_out, size_in)
    return jnp.maximum(0.0, 1.0 - jnp.abs(pixels[:, None] - jnp.arange(size_in)))


class Taps(NamedTuple):
    """The pixels that a sampling point on an axis lies between, on an axis with one more pixel at either end."""

    before: Int[Array, " out"]
    """The place of the first of them; the other one follows it."""
    weights: Float[Array, "2 out"]
    """What `hat_weights` has for them."""
    slope: Float[Array, " out"]
    """The derivative of the second weight by the sampling point, before that is counted in pixels."""


def taps(scale: Float[Array, ""], shift: Float[Array, ""], size_out: int, size_in: int) -> Taps:
    """The entries of `hat_weights` that are not zero. They are made of places, so rounding cannot part the two."""
    pixels = sampling_points(scale, shift, size_out, size_in)
    before = jnp.clip(jnp.floor(pixels), -1, size_in - 1)
    weights = jnp.maximum(0.0, 1.0 - jnp.abs(pixels - before - jnp.arange(2)[:, None]))
    slope = jnp.where((pixels > -1) & (pixels < size_in), (size_in - 1) / 2, jnp.zeros_like(pixels))
    return Taps(before.astype(int) + 1, weights, slope)


def two_taps(
    source: Float[Array, "Y X C"], scale: Float[Array, "2"], shift: Float[Array, "2"], shape: tuple[int, int]
) -> tuple[Taps, Taps]:
    """Those of the rows and of the columns."""
    (height, width, _), (rows, columns) = source.shape, shape
    return taps(scale[1], shift[1], rows, height), taps(scale[0], shift[0], columns, width)


def pick(
    source: Float[Array, "Y X C"], rows: Int[Array, " G"], columns: Int[Array, " L"], weights: Float[Array, "G L"]
) -> Float[Array, "G L C"]:
    """The pixels of these rows and columns, times weights."""
    height, width, channels = source.shape
    line = source.reshape(height * width, channels)  # so that a place is one number
    places = rows[:, None] * width + columns
    return weights[..., None] * line.at[places].get(mode="promise_in_bounds", wrap_negative_indices=False)


def framed(source: Float[Array, "Y X C"]) -> Float[Array, "rows columns C"]:
    """The source with a frame of zeros, one pixel wide."""
    return jnp.pad(source, ((1, 1), (1, 1), (0, 0)))


@partial(jax.custom_jvp, nondiff_argnums=(3,))
def sampled(
    source: Float[Array, "Y X C"], scale: Float[Array, "2"], shift: Float[Array, "2"], shape: tuple[int, int]
) -> Float[Array, "G L C"]:
    """The source at scale u + shift (x, y), for u on an even grid of `shape` (rows, columns) over [-1, 1] x [-1, 1]."""
    rows, columns = two_taps(source, scale, shift, shape)
    source = framed(source)

    def corner(a: int, b: int) -> Float[Array, "G L C"]:
        return pick(source, rows.before + a, columns.before + b, rows.weights[a, :, None] * columns.weights[b])

    return corner(0, 0) + corner(0, 1) + corner(1, 0) + corner(1, 1)


@partial(sampled.defjvp, symbolic_zeros=True)
def _sampled_jvp(shape: tuple[int, int], values: tuple, tangents: tuple) -> tuple[Array, Array]:
    source, scale, shift = values
    of_source, *of_window = tangents
    of_scale, of_shift = (jnp.zeros(2, scale.dtype) if isinstance(it, SymbolicZero) else it for it in of_window)
    by_row, by_column = slopes(source, scale, shift, shape)
    u, v = (jnp.linspace(-1.0, 1.0, size, dtype=source.dtype)[:, None] for size in (shape[1], shape[0]))
    change = by_row * v[:, None] * of_scale[1] + by_row * of_shift[1]
    change = change + by_column * u * of_scale[0] + by_column * of_shift[0]
    if not isinstance(of_source, SymbolicZero):
        row_weights = hat_weights(scale[1], shift[1], shape[0], source.shape[0])
        column_weights = hat_weights(scale[0], shift[0], shape[1], source.shape[1])
        change = change + jnp.einsum("gy,yxc,lx->glc", row_weights, of_source, column_weights)
    return sampled(source, scale, shift, shape), change


def slopes(
    source: Float[Array, "Y X C"], scale: Float[Array, "2"], shift: Float[Array, "2"], shape: tuple[int, int]
) -> tuple[Float[Array, "G L C"], Float[Array, "G L C"]]:
    """The derivatives of `sampled` by the sampling points: differences along an axis, weighted along the other."""
    rows, columns = two_taps(source, scale, shift, shape)
    down, right = (jnp.diff(framed(source), axis=axis) for axis in (0, 1))

    def of_row(b: int) -> Float[Array, "G L C"]:
        return pick(down, rows.before, columns.before + b, rows.slope[:, None] * columns.weights[b])

    def of_column(a: int) -> Float[Array, "G L C"]:
        return pick(right, rows.before + a, columns.before, rows.weights[a, :, None] * columns.slope)

    return of_row(0) + of_row(1), of_column(0) + of_column(1)


class SpatialTransformer(eqx.Module):
    """Reads and writes windows; it has no parameters."""

    image: tuple[int, int] = eqx.field(static=True)
    glimpse: tuple[int, int] = eqx.field(static=True)
    scale_limits: tuple[tuple[float, float], tuple[float, float]] = eqx.field(static=True)
    """Smallest and largest, each for x and y."""
    shift_limit: float = eqx.field(static=True)

    def __init__(self, config: ModelConfig) -> None:
        self.image = config.image
        self.glimpse = config.glimpse
        of_y = config.scale_limits
        of_x = config.width_limits if any(config.width_limits) else of_y
        self.scale_limits = ((of_x[0], of_y[0]), (of_x[1], of_y[1]))
        self.shift_limit = config.shift_limit

    def window(self, where: Float[Array, "*batch 4"]) -> Window:
        """The window that `where` names."""
        low, high = jnp.array(self.scale_limits, where.dtype)
        scale = low + (high - low) * jax.nn.sigmoid(where[..., :2])
        return Window(scale, self.shift_limit * jnp.tanh(where[..., 2:]))

    def where(self, window: Window) -> Float[Array, "*batch 4"]:
        """The inverse of `window`; what lies outside the limits is brought just inside them."""
        low, high = jnp.array(self.scale_limits, window.scale.dtype)
        tiny = 1e-6
        share = jnp.clip((window.scale - low) / (high - low), tiny, 1 - tiny)
        shift = jnp.clip(window.shift / self.shift_limit, tiny - 1, 1 - tiny)
        return jnp.concatenate([jax.scipy.special.logit(share), jnp.arctanh(shift)], -1)

    def read(self, x: Float[Array, "Y X C"], where: Float[Array, "4"]) -> Float[Array, "G L C"]:
        """ST(x, where): the glimpse at `where`."""
        window = self.window(where)
        glimpse = sampled(x, window.scale, window.shift, self.glimpse)
        return checkpoint_name(glimpse, "glimpse")  # kept for the gradient, not read again

    def write(self, glimpse: Float[Array, "G L C"], where: Float[Array, "4"]) -> Float[Array, "Y X C"]:
        """ST^-1(glimpse, where): an empty frame with the glimpse drawn into its window."""
        return self.write_all(glimpse[None], where[None])

    def write_all(self, glimpses: Float[Array, "N G L C"], where: Float[Array, "N 4"]) -> Float[Array, "Y X C"]:
        """The sum of ST^-1 over glimpses, with 32 bits, made in the precision of the glimpses.

        One product sums over slots, too: no frame of a single glimpse is ever there.
        """
        slots, height, width, channels = glimpses.shape
        rows, columns = (weights.astype(glimpses.dtype) for weights in jax.vmap(self._drawing_weights)(where))
        lines = jnp.moveaxis(glimpses, -1, -2).reshape(slots, height * channels, width)
        across = (lines @ columns).reshape(slots * height, channels * self.image[1])
        drawn = wide_product(jnp.moveaxis(rows, 0, 1).reshape(-1, slots * height), across)
        return jnp.moveaxis(drawn.reshape(self.image[0], channels, self.image[1]), 1, -1)

    def _drawing_weights(self, where: Float[Array, "4"]) -> tuple[Float[Array, "Y G"], Float[Array, "L X"]]:
        """Bilinear weights of a glimpse's rows in those of the frame, and of its columns."""
        (scale_x, scale_y), (shift_x, shift_y) = self.window(where)
        rows = hat_weights(1 / scale_y, -shift_y / scale_y, self.image[0], self.glimpse[0])
        return rows, hat_weights(1 / scale_x, -shift_x / scale_x, self.image[1], self.glimpse[1]).T

    def boxes(self, where: Float[Array, "*batch 4"]) -> Float[Array, "*batch 4"]:
        """Pixel boxes (left, top, width, height); a window over the pixels a to b has left a and width b - a + 1."""
        window = self.window(where)
        span = jnp.array([self.image[1] - 1, self.image[0] - 1])
        corner = (window.shift - window.scale + 1) * span / 2
        return jnp.concatenate([corner, window.scale * span + 1], -1)

    def where_of_boxes(self, boxes: Float[Array, "*batch 4"]) -> Float[Array, "*batch 4"]:
        """The inverse of `boxes`, within the limits of `where`."""
        span = jnp.array([self.image[1] - 1, self.image[0] - 1])
        scale = (boxes[..., 2:] - 1) / span
        return self.where(Window(scale, 2 * boxes[..., :2] / span + scale - 1))

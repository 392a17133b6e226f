"""ST and its inverse (sec. 2, fig. 1): the window that `where` names is read from, or written to, a frame.

`where` is four unbounded numbers: scale x, scale y, shift x, shift y, before the squashing below. Coordinates run from
-1 at the centre of the first pixel to 1 at the centre of the last (align-corners). Since a window is only scaled and
shifted, bilinear sampling separates: one small matrix for the rows, one for the columns, whose entries are hat
functions of the distance between a sampling point and a pixel. Outside, values fade to zero over one pixel.

Axes: N slots; Y, X frame rows and columns; G, L glimpse rows and columns; C channels.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sqair.config import ModelConfig


class Window(NamedTuple):
    """A box in frame coordinates: it spans shift - scale to shift + scale on each axis (x, y)."""

    scale: Float[Array, "*batch 2"]
    shift: Float[Array, "*batch 2"]


def hat_weights(
    scale: Float[Array, ""], shift: Float[Array, ""], size_out: int, size_in: int
) -> Float[Array, "out in"]:
    """Bilinear weights that sample `size_in` pixels at scale u + shift, for u evenly spaced on [-1, 1]."""
    points = scale * jnp.linspace(-1.0, 1.0, size_out) + shift
    pixels = (points + 1) * (size_in - 1) / 2
    return jnp.maximum(0.0, 1.0 - jnp.abs(pixels[:, None] - jnp.arange(size_in)))


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
        (scale_x, scale_y), (shift_x, shift_y) = self.window(where)
        rows = hat_weights(scale_y, shift_y, self.glimpse[0], self.image[0])
        columns = hat_weights(scale_x, shift_x, self.glimpse[1], self.image[1])
        return jnp.einsum("gy,yxc,lx->glc", rows, x, columns)

    def write(self, glimpse: Float[Array, "G L C"], where: Float[Array, "4"]) -> Float[Array, "Y X C"]:
        """ST^-1(glimpse, where): an empty frame with the glimpse drawn into its window."""
        return self.write_all(glimpse[None], where[None])

    def write_all(self, glimpses: Float[Array, "N G L C"], where: Float[Array, "N 4"]) -> Float[Array, "Y X C"]:
        """The sum of ST^-1 over glimpses, made by one product: no frame of a single glimpse is ever there."""
        rows, columns = jax.vmap(self._drawing_weights)(where)
        across = jnp.einsum("nglc,nxl->ngxc", glimpses, columns)
        return jnp.einsum("nyg,ngxc->yxc", rows, across)

    def _drawing_weights(self, where: Float[Array, "4"]) -> tuple[Float[Array, "Y G"], Float[Array, "X L"]]:
        """Bilinear weights of a glimpse's rows and columns in those of the frame."""
        (scale_x, scale_y), (shift_x, shift_y) = self.window(where)
        rows = hat_weights(1 / scale_y, -shift_y / scale_y, self.image[0], self.glimpse[0])
        return rows, hat_weights(1 / scale_x, -shift_x / scale_x, self.image[1], self.glimpse[1])

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

"""3x3 convolutions, plain and transposed, each as one matrix product.

XLA's own are slow inside a loop on a CPU, and their weight gradients cannot leave the loop (loops/). Here a product is
between rearrangements that are cheap to make again for the gradient. Channels are the last axis; weights are Equinox's.

Axes: Y, X and rows, columns: images before and after; C, F channels before and after.
"""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class Convolution(eqx.nn.Conv2d):
    """Equinox's layer with 3x3 filters and SAME padding."""

    def __init__(self, size_in: int, size_out: int, *, stride: int = 1, key: PRNGKeyArray) -> None:
        super().__init__(size_in, size_out, 3, stride, "SAME", key=key)

    def __call__(self, x: Float[Array, "Y X C"], *, key: PRNGKeyArray | None = None) -> Float[Array, "rows columns F"]:
        """The filters at every place, `stride` pixels apart, plus a bias."""
        assert self.bias is not None
        return convolve(x.astype(self.weight.dtype), self.weight, self.stride[0]) + self.bias[:, 0, 0]


class TransposedConvolution(eqx.nn.ConvTranspose2d):
    """Equinox's layer with 3x3 filters that leads from where a `Convolution` led back to an image of `shape`."""

    shape: tuple[int, int] = eqx.field(static=True)

    def __init__(self, size_in: int, size_out: int, *, stride: int, shape: tuple[int, int], key: PRNGKeyArray) -> None:
        extra = [(size - 1) % stride for size in shape]  # several sizes shrink to the same; so many pixels are missing
        super().__init__(size_in, size_out, 3, stride, padding=1, output_padding=extra, key=key)
        self.shape = shape

    def __call__(self, x: Float[Array, "Y X C"], *, key: PRNGKeyArray | None = None) -> Float[Array, "rows columns F"]:
        """The image enlarged `stride` times by zeros, then filtered, plus a bias."""
        assert self.bias is not None
        x = x.astype(self.weight.dtype)
        if self.stride[0] == 1:
            return convolve(x, self.weight, 1) + self.bias[:, 0, 0]
        return enlarge(x, self.weight, self.stride[0], self.shape) + self.bias[:, 0, 0]


def convolve(x: Float[Array, "Y X C"], weight: Float[Array, "F C 3 3"], stride: int) -> Float[Array, "rows columns F"]:
    """Neighbourhoods of pixels times filters; or pixels times filters, where this makes less than there was."""
    features, channels = weight.shape[:2]
    if stride == 1 and 9 * features <= channels:
        return spread(x, weight)
    return neighbourhoods(x, stride) @ weight.transpose(2, 3, 1, 0).reshape(9 * channels, features)


def neighbourhoods(x: Float[Array, "Y X C"], stride: int) -> Float[Array, "rows columns nine_C"]:
    """The 3x3 pixels that a filter sees at each place; beyond the edges they are zero."""
    places = [math.ceil(size / stride) for size in x.shape[:2]]
    spans = [(count - 1) * stride + 1 for count in places]
    missing = [max(span + 2 - size, 0) for span, size in zip(spans, x.shape[:2], strict=True)]
    x = jnp.pad(x, [*((size // 2, size - size // 2) for size in missing), (0, 0)])
    rows, columns = spans
    return jnp.concatenate(
        [x[i : i + rows : stride, j : j + columns : stride] for i in range(3) for j in range(3)], axis=-1
    )


def enlarge(
    x: Float[Array, "Y X C"], weight: Float[Array, "F C 3 3"], stride: int, shape: tuple[int, int]
) -> Float[Array, "rows columns F"]:
    """A transposed convolution with a stride of two or more, as 2x2 pixels times filters for each place between them.

    A pixel p gives row i of a filter to row stride p + 1 - i of the image, so row stride q + a, with a < stride, hears
    of pixels q and q + 1 only.
    """
    features, channels = weight.shape[:2]
    height, width = x.shape[:2]
    x = jnp.pad(x, ((0, 1), (0, 1), (0, 0)))
    four = jnp.concatenate([x[d : d + height, e : e + width] for d in (0, 1) for e in (0, 1)], axis=-1)
    by_place = rows_by_place(rows_by_place(weight, 2, stride), -1, stride)  # pixel and place in x, in y, F, C
    filters = by_place.transpose(2, 0, 5, 3, 1, 4).reshape(4 * channels, stride**2 * features)
    parts = (four @ filters).reshape(height, width, stride, stride, features)
    image = parts.transpose(0, 2, 1, 3, 4).reshape(height * stride, width * stride, features)
    return image[: shape[0], : shape[1]]


def rows_by_place(filters: Float[Array, "..."], axis: int, stride: int) -> Float[Array, "2 stride ..."]:
    """What pixels q and q + 1 give to row stride q + a: row 1 - a of the filters and row stride + 1 - a, or zeros.

    It is made of the filters alone, so that a loop finds it made before it begins.
    """
    widths = [(0, 0)] * filters.ndim
    widths[axis] = (stride - 2, stride - 1)
    padded = jnp.pad(filters, widths)
    numbers = [d * stride + (stride - 1) - a for d in (0, 1) for a in range(stride)]
    rows = jnp.stack([jax.lax.index_in_dim(padded, number, axis, keepdims=False) for number in numbers])
    return rows.reshape(2, stride, *rows.shape[1:])


def spread(x: Float[Array, "Y X C"], weight: Float[Array, "F C 3 3"]) -> Float[Array, "Y X F"]:
    """A convolution without a stride, the other way round: each pixel times the filters is added around its place."""
    features, channels = weight.shape[:2]
    shares = (x @ weight.transpose(1, 2, 3, 0).reshape(channels, 9 * features)).reshape(*x.shape[:2], 3, 3, features)
    for axis in (0, 1):
        shares = sum_shifted([jax.lax.index_in_dim(shares, i, 2, keepdims=False) for i in range(3)], axis)
    return shares


def sum_shifted(parts: Sequence[Array], axis: int) -> Array:
    """The sum of three images, moved along an axis by +1, 0 and -1, as a filter's rows are; what leaves is lost."""
    size, moved = parts[0].shape[axis], []
    for i, part in enumerate(parts):
        widths = [(0, 0)] * part.ndim
        widths[axis] = (1, 1)
        moved.append(jax.lax.slice_in_dim(jnp.pad(part, widths), i, i + size, axis=axis))
    return moved[0] + moved[1] + moved[2]

"""Image generation (Algorithm 1, eq. 1): objects are decoded, placed and added; the frame is that sum and noise.

Home of eq. 1 (air_gen). Home of Algorithm 1.
Axes: T frames, N slots, W what, Y, X frame, G, L glimpse, C channels.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sqair.config import ModelConfig
from sqair.distributions import HALF_LOG_TWO_PI
from sqair.networks import DenseDecoder, SubpixelDecoder, glimpse_decoder
from sqair.objects import Objects
from sqair.spatial_transformer import SpatialTransformer

VISIBLE = 0.1
"""Pixels above this share of a glimpse's maximum belong to the object."""


def as_frames(frames: Float[Array, "T Y X"] | Float[Array, "T Y X C"]) -> Float[Array, "T Y X C"]:
    """Frames with a channel axis, which grey ones may leave out."""
    return frames if frames.ndim == 4 else frames[..., None]


class ImageModel(eqx.Module):
    """p(x | z): the glimpse decoder, the canvas and the likelihood."""

    decoder: DenseDecoder | SubpixelDecoder
    transformer: SpatialTransformer
    output_scale: Float[Array, ""] | None
    """Learned scale of glimpses; None with the sigmoid output."""
    mean_image: Float[Array, "Y X C"] | None
    """Learned image shown under present glimpses; None without the switch."""
    std: float = eqx.field(static=True)

    def __init__(self, config: ModelConfig, *, key: PRNGKeyArray) -> None:
        self.decoder = glimpse_decoder(config, key=key)
        self.transformer = SpatialTransformer(config)
        self.output_scale = jnp.array(0.25) if config.glimpse_output == "scaled" else None
        self.mean_image = jnp.zeros((*config.image, config.channels)) if config.mean_image else None
        self.std = config.output_std

    def glimpses(self, what: Float[Array, "N W"]) -> Float[Array, "N G L C"]:
        """y_att = f_dec(what) of every slot."""
        raw = jax.vmap(self.decoder)(what)
        return jax.nn.sigmoid(raw - 2.0) if self.output_scale is None else self.output_scale * raw

    def canvas(self, objects: Objects) -> Float[Array, "Y X C"]:
        """y_t: the sum of ST^-1(y_att, where) over O_t."""
        pres = objects.pres[:, None, None, None]
        glimpses = jnp.where(pres > 0, self.glimpses(objects.what), 0.0)
        canvas = jax.vmap(self.transformer.write)(glimpses, objects.where).sum(0)  # eq. 1
        if self.mean_image is None:
            return canvas
        covered = jax.vmap(self.transformer.write)(pres * jnp.ones_like(glimpses), objects.where).sum(0)
        return canvas + self.mean_image * jax.nn.sigmoid(20.0 * covered - 10.0)

    def log_prob(self, x: Float[Array, "Y X C"], canvas: Float[Array, "Y X C"]) -> Float[Array, ""]:
        """log N(x | y_t, std^2 I): the ceiling of a perfect canvas less half the squared error in stds.

        The ceiling is exact and added once, which loses less to rounding than summing thousands of log densities.
        """
        ceiling = -math.prod(x.shape) * (math.log(self.std) + HALF_LOG_TWO_PI)
        return ceiling - 0.5 * jnp.square((x - canvas) / self.std).sum()  # eq. 1

    def sample(self, noise: Float[Array, "Y X C"], canvas: Float[Array, "Y X C"]) -> Float[Array, "Y X C"]:
        """A frame from standard normal noise (the last line of Algorithm 1)."""
        return canvas + self.std * noise


@eqx.filter_jit
def tight_boxes(image: ImageModel, objects: Objects) -> Float[Array, "T N 4"]:
    """The box around the pixels of each object that lie in the frame; NaN where it is absent or has none."""

    def box(what: Float[Array, " W"], where: Float[Array, "4"], pres: Float[Array, ""]) -> Float[Array, "4"]:
        glimpse = image.glimpses(what[None])[0]
        written = image.transformer.write(glimpse, where).max(-1)
        seen = (written > 0) & (written > VISIBLE * glimpse.max())  # beyond the glimpse it is 0, whatever its maximum
        (top, bottom), (left, right) = (_ends(seen.any(axis)) for axis in (1, 0))
        corners = jnp.stack([left, top, right - left + 1, bottom - top + 1]).astype(where.dtype)
        return jnp.where((pres > 0) & seen.any(), corners, jnp.nan)

    return jax.vmap(jax.vmap(box))(objects.what, objects.where, objects.pres)


def _ends(line: Array) -> tuple[Array, Array]:
    """The first and the last true entry."""
    return jnp.argmax(line), line.shape[0] - 1 - jnp.argmax(line[::-1])

"""Image generation (Algorithm 1, eq. 1): objects are decoded, placed and added; the frame is that sum and noise.

Home of eq. 1 (air_gen). Home of Algorithm 1. Before a background objects are not added, but hide it with masks; the
equations are in background.py.
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


class PixelNoise(eqx.Module):
    """The Gaussian noise of pixels around the mean of a frame. Its std is fixed, or one learned number."""

    log_std: Float[Array, ""] | None
    """Log of the learned std, less the smallest that it may have; None where it is fixed."""
    fixed_std: float = eqx.field(static=True)
    min_std: float = eqx.field(static=True)

    def __init__(self, config: ModelConfig) -> None:
        self.fixed_std, self.min_std = config.output_std, config.min_std
        self.log_std = jnp.array(math.log(self.fixed_std - self.min_std)) if config.learn_output_std else None

    @property
    def std(self) -> float | Float[Array, ""]:
        """The standard deviation of a pixel."""
        return self.fixed_std if self.log_std is None else jnp.exp(self.log_std) + self.min_std

    def log_prob(self, x: Float[Array, "Y X C"], canvas: Float[Array, "Y X C"]) -> Float[Array, ""]:
        """log N(x | canvas, std^2 I): the ceiling of a perfect canvas less half the squared error in stds.

        The ceiling is exact and added once, which loses less to rounding than summing thousands of log densities.
        """
        std = self.std
        log_std = math.log(std) if isinstance(std, float) else jnp.log(std)
        ceiling = -math.prod(x.shape) * (log_std + HALF_LOG_TWO_PI)
        return ceiling - 0.5 * jnp.square((x - canvas) / std).sum()  # eq. 1

    def sample(self, noise: Float[Array, "Y X C"], canvas: Float[Array, "Y X C"]) -> Float[Array, "Y X C"]:
        """A frame from standard normal noise."""
        return canvas + self.std * noise


class ImageModel(eqx.Module):
    """p(x | z): the glimpse decoder, the canvas and the likelihood."""

    decoder: DenseDecoder | SubpixelDecoder
    transformer: SpatialTransformer
    output_scale: Float[Array, ""] | None
    """Learned scale of glimpses; None with the sigmoid output."""
    mean_image: Float[Array, "Y X C"] | None
    """Learned image shown under present glimpses; None without the switch."""
    pixels: PixelNoise
    has_masks: bool = eqx.field(static=True)
    """Whether objects hide what is behind them."""

    def __init__(self, config: ModelConfig, *, key: PRNGKeyArray) -> None:
        self.decoder = glimpse_decoder(config, key=key)
        self.transformer = SpatialTransformer(config)
        self.output_scale = jnp.array(0.25) if config.glimpse_output == "scaled" else None
        self.mean_image = jnp.zeros((*config.image, config.channels)) if config.mean_image else None
        self.pixels = PixelNoise(config)
        self.has_masks = config.background != "none"

    @property
    def precision(self) -> jnp.dtype:
        """That of the decoder's weights, where it has any; glimpses are drawn in it."""
        weights = jax.tree.leaves(eqx.filter(self.decoder, eqx.is_inexact_array))
        return jnp.result_type(*weights) if weights else jnp.result_type(float)

    def glimpses(self, what: Float[Array, "N W"]) -> Float[Array, "N G L C"]:
        """y_att = f_dec(what) of every slot; with masks, what shows of it."""
        if self.has_masks:
            return self.masked(what)[..., :-1]
        raw = jax.vmap(self.decoder)(what)
        return jax.nn.sigmoid(raw - 2.0) if self.output_scale is None else self.output_scale * raw

    def masked(self, what: Float[Array, "N W"]) -> Float[Array, "N G L D"]:
        """m_i a_i, and m_i as the last channel, of every slot."""
        raw = jax.vmap(self.decoder)(what)
        looks, mask = raw[..., :-1], jax.nn.sigmoid(raw[..., -1:] - 2.0)
        looks = jax.nn.sigmoid(looks) if self.output_scale is None else self.output_scale * looks
        return jnp.concatenate([mask * looks, mask], -1)

    def shapes(self, what: Float[Array, "N W"]) -> Float[Array, "N G L C"]:
        """Where in its glimpse each object is: its mask, or else its brightness."""
        return self.masked(what)[..., -1:] if self.has_masks else self.glimpses(what)

    def painted(
        self, objects: Objects, background: Float[Array, "Y X C"]
    ) -> tuple[Float[Array, "Y X C"], Float[Array, "Y X 1"]]:
        """y_t before a background, and c_t, how much of that is hidden."""
        glimpses = jnp.where(objects.pres[:, None, None, None] > 0, self.masked(objects.what), 0.0)
        drawn = self.transformer.write_all(glimpses.astype(self.precision), objects.where)
        paint, masks = drawn[..., :-1], drawn[..., -1:]
        covered = jnp.minimum(1.0, masks)
        return (1 - covered) * background + paint / jnp.maximum(1.0, masks), covered

    def canvas(self, objects: Objects, background: Float[Array, "Y X C"] | None = None) -> Float[Array, "Y X C"]:
        """y_t: the sum of ST^-1(y_att, where) over O_t; with masks, before a background."""
        if background is not None:
            return self.painted(objects, background)[0]
        pres = objects.pres[:, None, None, None]
        glimpses = jnp.where(pres > 0, self.glimpses(objects.what), 0.0).astype(self.precision)
        canvas = self.transformer.write_all(glimpses, objects.where)  # eq. 1
        if self.mean_image is None:
            return canvas
        covered = self.transformer.write_all(pres * jnp.ones_like(glimpses), objects.where)
        return canvas + self.mean_image * jax.nn.sigmoid(20.0 * covered - 10.0)

    def log_prob(self, x: Float[Array, "Y X C"], canvas: Float[Array, "Y X C"]) -> Float[Array, ""]:
        """log p(x_t | z_t), given y_t."""
        return self.pixels.log_prob(x, canvas)

    def log_likelihood(
        self, x: Float[Array, "Y X C"], objects: Objects, background: Float[Array, "Y X C"] | None = None
    ) -> Float[Array, ""]:
        """log p(x_t | z_t), given z_t."""
        return self.log_prob(x, self.canvas(objects, background))

    def sample(self, noise: Float[Array, "Y X C"], canvas: Float[Array, "Y X C"]) -> Float[Array, "Y X C"]:
        """A frame from standard normal noise (the last line of Algorithm 1)."""
        return self.pixels.sample(noise, canvas)


@eqx.filter_jit
def tight_boxes(
    image: ImageModel, objects: Objects, least: float = 0.0, visible: float = VISIBLE
) -> Float[Array, "T N 4"]:
    """The box around the pixels of each object that lie in the frame: those above the share `visible` of its maximum.

    NaN where it is absent, has no such pixel, or where less than the share `least` of its whole box is in the frame.
    """

    def box(what: Float[Array, " W"], where: Float[Array, "4"], pres: Float[Array, ""]) -> Float[Array, "4"]:
        glimpse = image.shapes(what[None])[0]
        written = image.transformer.write(glimpse, where).max(-1)
        seen = (written > 0) & (written > visible * glimpse.max())  # beyond the glimpse it is 0, whatever its maximum
        (left, right), (top, bottom) = (_ends(seen.any(axis)) for axis in (0, 1))
        corners = jnp.stack([left, top, right - left + 1, bottom - top + 1]).astype(where.dtype)
        return jnp.where((pres > 0) & seen.any(), corners, jnp.nan)

    boxes = jax.vmap(jax.vmap(box))(objects.what, objects.where, objects.pres)
    if least <= 0:
        return boxes
    share = boxes[..., 2:].prod(-1) / whole_boxes(image, objects, visible)[..., 2:].prod(-1)
    return jnp.where(share[..., None] >= least, boxes, jnp.nan)


def whole_boxes(image: ImageModel, objects: Objects, visible: float = VISIBLE) -> Float[Array, "T N 4"]:
    """The box around the pixels of each glimpse above a share of its maximum, in the frame's pixels, not clipped."""
    windows = image.transformer.boxes(objects.where)
    glimpses = jax.vmap(image.shapes)(objects.what).max(-1)
    seen = glimpses > visible * glimpses.max((-2, -1), keepdims=True)
    ends = [_ends(seen.any(axis)) for axis in (-2, -1)]  # of columns, then of rows
    low, high = (jnp.stack([end[side] for end in ends], -1) for side in (0, 1))
    sides = jnp.array([glimpses.shape[-1] - 1, glimpses.shape[-2] - 1])
    corner = windows[..., :2] + low / sides * (windows[..., 2:] - 1)
    return jnp.concatenate([corner, (high - low) / sides * (windows[..., 2:] - 1) + 1], -1)


def _ends(line: Array) -> tuple[Array, Array]:
    """The first and the last true entry of the last axis."""
    return jnp.argmax(line, -1), line.shape[-1] - 1 - jnp.argmax(line[..., ::-1], -1)

"""The static background inside the model, so that the likelihood explains the raw frame of a fixed camera.

The paper's objects add grey values onto black, which asks for subtracted frames (App. E). With a background each object
also has a mask: its decoder gives a look a_i and a mask m_i in [0, 1] for every pixel of its glimpse. Drawn into the
frame at where_i, with M_t the sum of the masks over O_t, the mean of the frame is

    y_t = (1 - c_t) b_t + sum_i m_i a_i / max(1, M_t),    c_t = min(1, M_t)

a mixture of the background and the looks: things may be darker or brighter than what they hide, and where masks overlap
by more than 1 they share the pixel, in no order, as in the paper's sum. The likelihood is N(x_t | y_t, std^2 I).

b_t depends on the frames before t only, so that p(x_t | z_t, x_<t) is a density. s is the empty scene as it is known
when a sequence begins (data/backdrops.py), or else the first frame itself.

    running    b_1 = s,          b_{t+1} = b_t + a (1 - c_t) (x_t - b_t)
    learned    b_t = g_t B,      g_1 = <s, B> / <B, B>,
               g_{t+1} = g_t + r (g'_t - g_t),   g'_t = <w x_t, B> / <w B, B>,   w = 1 - c_t

`running` learns nothing but follows everything that is not painted over, slowly. `learned` has a picture B of the whole
camera as a parameter, of which a window takes its piece, and one number g_t for the light, which drifts. No gradient
passes through s, g_t or the running b_t. q sees the frame and how it differs from b_t, side by side.

Axes: Y, X, C frame, D frame and what it brings along, H, W the camera's scaled picture.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sqair.config import ModelConfig
from sqair.data.backdrops import PLACE, place_of

CONTRAST = 4.0
"""Differences from the background are small; so much larger they count as much as the picture."""
DRIFT = 0.2
"""r, how fast the light follows what the last frame says."""
START = 0.5
"""The learned picture before anything is known of the camera."""


class Average(NamedTuple):
    """What is known of a running background before a frame; a part of `State`."""

    picture: Float[Array, "Y X C"]
    """b_t."""


class Light(NamedTuple):
    """What is known of a learned one."""

    light: Float[Array, ""]
    """g_t."""
    place: Int[Array, "2"]
    """Left and top of the window in B."""


class RunningBackground(eqx.Module):
    """An average of what was not painted over."""

    rate: float = eqx.field(static=True)
    shape: tuple[int, int, int] = eqx.field(static=True)

    def __init__(self, config: ModelConfig) -> None:
        self.rate, self.shape = config.background_rate, (*config.image, config.channels)

    def initial(self) -> Average:
        """Before the first frame nothing is known."""
        return Average(picture=jnp.full(self.shape, START))

    def begin(self, known: Average, x: Float[Array, "Y X D"], is_first: Bool[Array, ""]) -> Average:
        """What is known when frame x comes: at first, what it brings along."""
        return Average(picture=jnp.where(is_first, scene_of(x, self.shape[2]), self.behind(known)))

    def behind(self, known: Average) -> Float[Array, "Y X C"]:
        """b_t."""
        return known.picture

    def follow(self, known: Average, picture: Float[Array, "Y X C"], covered: Float[Array, "Y X 1"]) -> Average:
        """b_{t+1}, when frame t was seen and so much of it painted over."""
        moved = self.behind(known) + self.rate * (1 - covered) * (picture - self.behind(known))
        return Average(picture=jax.lax.stop_gradient(moved))


class LearnedBackground(eqx.Module):
    """A picture of the whole camera, and the light."""

    picture: Float[Array, "H W C"]
    """B."""
    frame: tuple[int, int] = eqx.field(static=True)

    def __init__(self, config: ModelConfig) -> None:
        size = (max(side, least) for side, least in zip(config.background_size, config.image, strict=True))
        self.picture, self.frame = jnp.full((*size, config.channels), START), config.image

    def initial(self) -> Light:
        """The middle of the picture in its own light."""
        middle = [(full - side) // 2 for full, side in zip(self.picture.shape, self.frame, strict=False)]
        return Light(light=jnp.ones(()), place=jnp.array(middle[::-1], jnp.int32))

    def begin(self, known: Light, x: Float[Array, "Y X D"], is_first: Bool[Array, ""]) -> Light:
        """What is known when frame x comes: its place, and at first the light of the scene that it brings along."""
        channels = self.picture.shape[2]
        if x.shape[-1] == channels:
            return known
        known = known._replace(place=place_of(x))
        light = self.light_of(known, scene_of(x, channels), jnp.ones(()))
        return known._replace(light=jnp.where(is_first, light, known.light))

    def behind(self, known: Light) -> Float[Array, "Y X C"]:
        """b_t."""
        return known.light * self.piece(known)

    def piece(self, known: Light) -> Float[Array, "Y X C"]:
        """The part of B that a window shows; it is moved inside where it would reach beyond."""
        left, top = known.place
        return jax.lax.dynamic_slice(self.picture, (top, left, 0), (*self.frame, self.picture.shape[2]))

    def light_of(self, known: Light, x: Float[Array, "Y X C"], weight: Float[Array, "..."]) -> Float[Array, ""]:
        """g': how much brighter than B a picture is, by least squares."""
        piece = self.piece(known)
        least = 1e-6  # a black piece tells nothing of the light
        light = (jnp.sum(weight * x * piece) + least) / (jnp.sum(weight * jnp.square(piece)) + least)
        return jax.lax.stop_gradient(light)

    def follow(self, known: Light, picture: Float[Array, "Y X C"], covered: Float[Array, "Y X 1"]) -> Light:
        """The light that is expected in the next frame."""
        now = self.light_of(known, picture, jax.lax.stop_gradient(1 - covered))
        return known._replace(light=known.light + DRIFT * (now - known.light))


Background = RunningBackground | LearnedBackground


def make_background(config: ModelConfig) -> Background | None:
    """The background that `config` names; None for black."""
    if config.background == "none":
        return None
    return RunningBackground(config) if config.background == "running" else LearnedBackground(config)


def scene_of(x: Float[Array, "Y X D"], channels: int) -> Float[Array, "Y X C"]:
    """s: the empty scene that a frame brings along, or else the frame itself."""
    return x[..., :channels] if x.shape[-1] == channels else x[..., channels:-PLACE]


def compared(picture: Float[Array, "Y X C"], behind: Float[Array, "Y X C"]) -> Float[Array, "Y X E"]:
    """What q sees: the picture, and how it differs from what is behind."""
    return jnp.concatenate([picture, CONTRAST * (picture - jax.lax.stop_gradient(behind))], -1)

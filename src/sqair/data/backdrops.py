"""Frames that bring along what is behind them: the empty scene, as far as it is known, and their place in the picture.

A model with a background (background.py) may be given frames of 2C + 4 channels: the picture, the empty scene in the
light of the sequence's first frame, and where the upper left corner lies in the camera's scaled picture, in four bytes:
left and top, each as its rest and its quotient by 256. All of it are bytes, as frames are. Frames of C channels bring
nothing along.

Axes: S sequences, T frames, H, W a frame, C its channels.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, Int, UInt8
from numpy import ndarray

PLACE = 4
"""Channels that tell the place."""


def surroundings(
    scenes: UInt8[ndarray, "S H W C"] | UInt8[Array, "S H W C"], corners: Int[ndarray, "S 2"] | Int[Array, "S 2"]
) -> Float32[Array, "S H W D"]:
    """What follows the picture in each frame: the scenes, and left and top of their corners; bytes over 255."""
    scenes, corners = jnp.asarray(scenes), jnp.maximum(jnp.asarray(corners), 0)
    digits = jnp.stack([corners % 256, corners // 256], -1).reshape(len(corners), 1, 1, PLACE)
    places = jnp.broadcast_to(digits, (*scenes.shape[:3], PLACE))
    return jnp.concatenate([scenes.astype(jnp.float32), places.astype(jnp.float32)], -1) / 255.0


def with_surroundings(
    frames: Float32[Array, "S T H W C"], around: Float32[Array, "S H W D"]
) -> Float32[Array, "S T H W E"]:
    """Frames in [0, 1] that bring along what is behind them, the same in all frames of a sequence."""
    repeated = jnp.broadcast_to(around[:, None], (*frames.shape[:4], around.shape[-1]))
    return jnp.concatenate([frames, repeated], -1)


def place_of(frame: Float32[Array, "H W E"]) -> Int[Array, "2"]:
    """Left and top of a frame that brings them along."""
    digits = jnp.round(255.0 * frame[0, 0, -PLACE:]).astype(jnp.int32).reshape(2, 2)
    return digits[:, 0] + 256 * digits[:, 1]


def whole_scene(
    scenes: UInt8[ndarray, "S H W C"], corners: Int[ndarray, "S 2"], size: tuple[int, int]
) -> Float32[ndarray, "Y X C"]:
    """The camera's picture, in [0, 1], of pieces of it: their mean, and the mean of all where there is none."""
    total = np.zeros((*size, scenes.shape[-1]), np.float64)
    count = np.zeros((*size, 1), np.float64)
    for scene, (left, top) in zip(scenes, corners.tolist(), strict=True):
        part = (slice(top, top + scene.shape[0]), slice(left, left + scene.shape[1]))
        total[part] += scene
        count[part] += 1
    mean = total.sum((0, 1)) / np.maximum(count.sum(), 1)
    return (np.where(count > 0, total / np.maximum(count, 1), mean) / 255).astype(np.float32)

"""From a clip's frames to those a model was trained on, and from its boxes back to pixels of the clip.

A frame is scaled as a whole, never distorted, and put into the middle of the model's frame on black; colours become
grey by the weights of Rec. 601 where the model sees grey. Models know bright things on black, so a clip of dark things
on light is inverted: pixel i covers the stretch from i to i + 1 in either frame.

Axes: H, W the clip's frame, Y, X, C the model's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Float32, UInt8
from numpy import ndarray

from sqair.data.video import Frame

Invert = Literal["auto", "yes", "no"]
LIGHT = 0.5
"""Clips whose middle brightness is above this are taken for dark things on light."""
LOOK = 8
"""Frames from which that is decided."""


def is_light(frames: Sequence[Frame]) -> bool:
    """Whether the background is light: the median over pixels, and of that over frames, is above one half."""
    return float(np.median([np.median(frame) for frame in frames])) > LIGHT * 255


@dataclass(frozen=True)
class Fit:
    """How frames of one size are brought to a model's."""

    source: tuple[int, int]
    """Height and width of the clip's frames."""
    image: tuple[int, int]
    """Height and width of the model's frames."""
    channels: int
    inverted: bool = False

    @property
    def scale(self) -> float:
        """Pixels of the model for one of the clip."""
        return min(self.image[0] / self.source[0], self.image[1] / self.source[1])

    @property
    def content(self) -> tuple[int, int, int, int]:
        """The part of the model's frame that shows the clip: left, top, width, height."""
        height, width = (max(1, round(side * self.scale)) for side in self.source)
        return (self.image[1] - width) // 2, (self.image[0] - height) // 2, width, height

    def __call__(self, frame: Frame) -> UInt8[ndarray, "Y X C"]:
        """A frame of the clip as the model wants it."""
        from PIL import Image

        image = Image.fromarray(frame).convert("L" if self.channels == 1 else "RGB")
        left, top, width, height = self.content
        if image.size != (width, height):
            smaller = width < image.size[0]
            image = image.resize((width, height), Image.Resampling.BOX if smaller else Image.Resampling.BILINEAR)
        pixels = np.asarray(image).reshape(height, width, self.channels)
        fitted = np.zeros((*self.image, self.channels), np.uint8)
        fitted[top : top + height, left : left + width] = 255 - pixels if self.inverted else pixels
        return fitted

    def to_source(self, boxes: Float[ndarray, "*n 4"]) -> Float[ndarray, "*n 4"]:
        """Boxes of the model's frame (left, top, width, height) in pixels of the clip."""
        return (boxes - self._corner) * self._ratio

    def to_image(self, boxes: Float[ndarray, "*n 4"]) -> Float[ndarray, "*n 4"]:
        """The inverse of `to_source`."""
        return boxes / self._ratio + self._corner

    @property
    def _corner(self) -> Float32[ndarray, " 4"]:
        left, top, _, _ = self.content
        return np.array([left, top, 0, 0], np.float32)

    @property
    def _ratio(self) -> Float32[ndarray, " 4"]:
        _, _, width, height = self.content
        return np.array([self.source[1] / width, self.source[0] / height] * 2, np.float32)

    def clipped(self, boxes: Float[ndarray, "*n 4"]) -> Float[ndarray, "*n 4"]:
        """Boxes in pixels of the clip without what lies outside of its frame; NaN where nothing is left."""
        limits = np.array(self.source[::-1], np.float32)
        low = np.clip(boxes[..., :2], 0, limits)
        high = np.clip(boxes[..., :2] + boxes[..., 2:], 0, limits)
        inside = (high > low).all(-1, keepdims=True)
        return np.where(inside, np.concatenate([low, high - low], -1), np.nan).astype(np.float32)

    def describe(self) -> str:
        """What is done to a frame, in words; empty when nothing is."""
        (height, width), (y, x) = self.source, self.image
        words = []
        if self.source != self.image:
            _, _, inner_width, inner_height = self.content
            words.append(f"frames of {width}x{height} are scaled to {inner_width}x{inner_height}")
            if (inner_height, inner_width) != self.image:
                words.append(f"set on black in {x}x{y}")
        if self.inverted:
            words.append("inverted, since they show dark on light (--invert no keeps them)")
        return ", ".join(words)

"""What moves before a fixed camera: background subtraction, frame by frame in constant memory (App. E).

A mixture of Gaussians (MOG2) or the nearest of some earlier values (KNN), both from OpenCV, learn what each pixel shows
when nothing is there. Pixels that do not fit are foreground; those that are only somewhat darker are shadow, and are
not. Specks are opened away and holes closed, by discs that are sized to the frame. A model wants bright things on
black: `look` says what foreground pixels show.

Axes: H, W a frame, n blobs, 4 left, top, width, height in pixels.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float32
from numpy import ndarray

from sqair.config import UserError
from sqair.data.video import Frame

Method = Literal["mog2", "knn"]
Look = Literal["inverted", "difference", "mask", "mixed"]
Picture = Float32[ndarray, "H W"] | Float32[ndarray, "H W 3"]
USUAL: dict[Method, float] = {"mog2": 16.0, "knn": 200.0}
"""Thresholds: OpenCV's own, and half of it for knn, which fills people better."""
OFTEN = 0.7
"""What a pixel shows in this share of the time, most frequent things first, is background for mog2; OpenCV's own, 0.9,
swallows people where many pass."""
GAINS = (0.5, 2.0)
"""The light is taken to change by no more."""
REPEATS = 5
"""How often a first frame is shown to a model that has seen none: KNN believes in nothing that it saw less often."""
FOREGROUND = 255
"""What OpenCV writes for it; shadows have another number."""


@dataclass(frozen=True)
class Subtraction:
    """How the background is learned, and what the foreground shows."""

    method: Method = "mog2"
    history: int = 1000
    """Frames that the background remembers: who stands still for a third of them becomes a part of it."""
    threshold: float = 0.0
    """Squared distance from which on a pixel is foreground, in variances for mog2 and in grey levels for knn; 0 takes
    the usual one, 16 and 200."""
    shadow: float = 0.6
    """Pixels darkened to no less than this share of the background are shadow; 1 for no shadows. In grey a dark thing
    and a shadow differ by nothing else."""
    steady: bool = True
    """Even out the light: frames are divided by how much brighter they are than the first, in the median."""
    opening: float = 0.003
    """Radius of the disc that removes specks, as a share of the frame's shorter side; 0 for none."""
    closing: float = 0.006
    """Radius of the disc that closes holes and gaps, likewise."""
    look: Look = "inverted"
    """inverted: 1 - frame (App. E). difference: how far from the background, as a share of how far a pixel can be.
    mask: 1. mixed: (1 + inverted) / 2, so that white things do not vanish."""

    def __post_init__(self) -> None:
        if self.history < 1 or not self.threshold >= 0 or not 0 < self.shadow <= 1:
            raise UserError("history must be at least 1, threshold at least 0, and shadow more than 0 and at most 1")
        if not (0 <= self.opening < 0.5 and 0 <= self.closing < 0.5):
            raise UserError("opening and closing must be at least 0 and less than 0.5")


class Foreground:
    """Frames in, foreground out, one after the other; all frames have one size."""

    def __init__(self, options: Subtraction) -> None:
        self.options = options
        self._model = _subtractor(options)
        self._light = Light()
        self._mask: ndarray | None = None
        self._seen = 0
        self._rate = 1.0
        """Share of the newest frame in the background."""

    @property
    def mask(self) -> Bool[ndarray, "H W"]:
        """Where the last frame is foreground."""
        if self._mask is None:
            raise ValueError("there is no mask before the first frame")
        return self._mask

    @property
    def background(self) -> Frame:
        """What the camera shows when nothing is there, as far as it is known after the last frame, in its light."""
        return _brightened(self._model.getBackgroundImage(), self._light.gain)

    @property
    def light(self) -> float:
        """How much brighter the last frame was than the first."""
        return self._light.gain

    def warm(self, frames: Iterable[Frame]) -> int:
        """Only learn, so that the background is known from the first frame that is pushed; returns their number."""
        before = self._seen
        for frame in frames:
            self._learn(frame)
        if self._seen > before:
            self._rate = 1 / self.options.history
        return self._seen - before

    def push(self, frame: Frame) -> Picture:
        """The foreground of the next frame in [0, 1]; background is 0."""
        mask = self.find(frame)
        return self._shown(frame) * (mask if frame.ndim == 2 else mask[..., None])

    def find(self, frame: Frame) -> Bool[ndarray, "H W"]:
        """Where the next frame is foreground. The first of all frames is background."""
        for _ in range(0 if self._seen else REPEATS):
            self._learn(frame)
        found = self._learn(frame) == FOREGROUND
        self._mask = cleaned(found, self.options.opening, self.options.closing)
        return self._mask

    def _learn(self, frame: Frame) -> ndarray:
        """Show the model the next frame; in the first frames all count alike, unless the background is known."""
        if self.options.steady:
            frame = _brightened(frame, 1 / self._light(frame))
        self._rate = min(self._rate, max(1 / (self._seen + 1), 1 / self.options.history))
        self._seen += 1
        return self._model.apply(np.ascontiguousarray(frame), learningRate=self._rate)

    def _shown(self, frame: Frame) -> Picture:
        """What all pixels show if they are foreground."""
        look = self.options.look
        if look == "mask":
            return np.ones(frame.shape, np.float32)
        if look == "difference":
            background = self.background.astype(np.float32)
            return np.abs(frame - background) / np.maximum(background, 255.0 - background)
        inverted = 1.0 - frame.astype(np.float32) / 255.0
        return inverted if look == "inverted" else 0.5 + 0.5 * inverted


class Light:
    """How much brighter a frame is than the first: the median of the ratios of their pixels, some of them."""

    gain: float = 1.0
    """Of the last frame."""

    def __init__(self) -> None:
        self._first: ndarray | None = None

    def __call__(self, frame: Frame) -> float:
        """The gain of the next frame."""
        step = max(1, min(frame.shape[:2]) // 64)
        pixels = frame[::step, ::step].astype(np.float32) + 1.0
        if self._first is None:
            self._first = pixels
        self.gain = float(np.clip(np.median(pixels / self._first), *GAINS))
        return self.gain


def _brightened(frame: Frame, gain: float) -> Frame:
    """A frame in another light, rounded and cut off at white."""
    import cv2

    return frame if gain == 1 else cv2.convertScaleAbs(frame, alpha=gain)


def _subtractor(options: Subtraction) -> Any:
    """OpenCV's model of a background."""
    import cv2

    threshold = options.threshold or USUAL[options.method]
    given = {"history": options.history, "detectShadows": options.shadow < 1}
    if options.method == "knn":
        model = cv2.createBackgroundSubtractorKNN(dist2Threshold=threshold, **given)
    else:
        model = cv2.createBackgroundSubtractorMOG2(varThreshold=threshold, **given)
        model.setBackgroundRatio(OFTEN)
    model.setShadowThreshold(options.shadow)
    return model


def cleaned(mask: Bool[ndarray, "H W"], opening: float, closing: float) -> Bool[ndarray, "H W"]:
    """A mask without specks, then without small holes; both are shares of the shorter side."""
    import cv2

    pixels = mask.astype(np.uint8)
    for kind, share in ((cv2.MORPH_OPEN, opening), (cv2.MORPH_CLOSE, closing)):
        radius = round(share * min(mask.shape))
        if radius:
            disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1, 2 * radius + 1))
            pixels = cv2.morphologyEx(pixels, kind, disc)
    return pixels > 0


def find_blobs(mask: Bool[ndarray, "H W"], least: int = 1) -> Float32[ndarray, "n 4"]:
    """The boxes of connected pieces of foreground (8 neighbours) that have at least so many pixels, top ones first."""
    import cv2

    _, _, pieces, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
    pieces = pieces[1:]  # the first is the background
    return pieces[pieces[:, cv2.CC_STAT_AREA] >= least, :4].astype(np.float32)

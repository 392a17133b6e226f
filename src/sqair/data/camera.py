"""What a model learnt from one fixed camera must be told to see another clip of it as it saw the first.

`sqair fit` writes it into the model's card as `training.camera`; whoever follows things with that model subtracts the
background, scales and cuts windows as it says. A card may be a stranger's: all that does not fit is refused by name.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqair.config import UserError
from sqair.data.background import Subtraction
from sqair.data.frames import scaled, to_grey
from sqair.data.video import Frame
from sqair.settings import from_dict, to_dict

Quantiles = tuple[float, float, float]
"""The values below which a tenth, a half and nine tenths lie."""
TILES = (6, 8)
"""Rows and columns of tiles into which a background is averaged, to know it again."""
OTHER = 6.0
"""Grey levels by which the usual tile of another scene differs, at least, once the light is evened out."""


@dataclass(frozen=True)
class Sizes:
    """How large moving things are, in pixels of the clip."""

    width: Quantiles
    height: Quantiles

    def __post_init__(self) -> None:
        for name, values in to_dict(self).items():
            if not 0 < values[0] <= values[1] <= values[2] < math.inf:
                raise UserError(f"camera.objects.{name} must be three rising sizes in pixels, not {values}")


@dataclass(frozen=True)
class Camera:
    """From the frames of a clip to those of a model."""

    subtraction: Subtraction
    """How the background is learned, and what the foreground shows."""
    height: int
    """Frames are scaled down to this height."""
    size: tuple[int, int]
    """Height and width of the clip that the model was learnt from."""
    crop: tuple[int, int]
    """Height and width of a window in scaled pixels: the model's image."""
    stride: int
    """Every so many frames of the clip the model saw one."""
    objects: Sizes
    """Of what moved in that clip."""
    scene: tuple[float, ...] = ()
    """Grey levels of the tiles of its background, row by row; none where they are not known."""
    evidence: float = 0.0
    """Nats by which a frame must be more likely with an object than without it; 0 where it is not known."""

    def __post_init__(self) -> None:
        for name in ("height", "size", "crop", "stride"):
            value = getattr(self, name)
            if min(value if isinstance(value, tuple) else (value,)) < 1:
                raise UserError(f"camera.{name} must be at least 1, not {value}")
        if not 0 <= self.evidence < math.inf:
            raise UserError(f"camera.evidence must be a number of nats from 0 on, not {self.evidence}")

    def picture_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Height and width to which frames of a clip are brought, up or down: things look as large as in the first."""
        return self.height, max(1, round(size[1] * self.height / size[0]))

    def remarks(self, size: tuple[int, int], background: Frame) -> list[str]:
        """How a clip differs from the one that the model was learnt from, in at most one line."""
        (height, width), (own_height, own_width) = size, self.size
        other = bool(self.scene) and is_other(self.scene, scene_of(background))
        if not other and size == self.size:
            return []
        scene = "another background than" * other or f"{width}x{height} pixels, not the {own_width}x{own_height} of"
        advice = "fit a model to this camera" if other else "if it is not the same camera, fit a model to it"
        return [f"it shows {scene} the clip that the model was fitted to; {advice}"]

    def to_card(self) -> dict[str, Any]:
        """The value of a card's key `training.camera`."""
        return to_dict(self)

    @classmethod
    def from_card(cls, values: Any) -> "Camera":
        """The inverse of `to_card`."""
        _check_complete(cls, values, "camera")
        _check_complete(Sizes, values["objects"], "camera.objects")
        return from_dict(cls, values, "camera.")


def camera_of(card: Mapping[str, Any]) -> Camera | None:
    """The camera that a model was learnt from, by its card as `read_card` gives it; None if it was not one."""
    training = card.get("training")
    values = training.get("camera") if isinstance(training, Mapping) else None
    return None if values is None else Camera.from_card(values)


def _check_complete(cls: type, values: Any, name: str) -> None:
    """Refuse a table that lacks a field of `cls` that has no default."""
    if not isinstance(values, Mapping):
        raise UserError(f"the model's card has no table at {name}; copy it again")
    for item in dataclasses.fields(cls):
        if item.name not in values and item.default is dataclasses.MISSING:
            raise UserError(f"the model's card lacks {name}.{item.name}; copy it again")


def scene_of(background: Frame) -> tuple[float, ...]:
    """What a background looks like, roughly: the mean grey levels of its tiles, row by row."""
    return tuple(round(float(level), 1) for level in scaled(to_grey(background).astype(np.float32), TILES).reshape(-1))


def is_other(first: tuple[float, ...], second: tuple[float, ...]) -> bool:
    """Whether two backgrounds are different scenes: in whatever light, their usual tile differs."""
    one, two = np.array(first), np.array(second)
    if one.shape != two.shape:
        return True
    gain = float(np.median((one + 1) / (two + 1)))
    return float(np.median(np.abs(one - gain * two))) > OTHER

"""What a model learnt from one fixed camera must be told to see another clip of it as it saw the first.

`sqair fit` writes it into the model's card as `training.camera`; whoever follows things with that model subtracts the
background, scales and cuts windows as it says. A card may be a stranger's: all that does not fit is refused by name.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqair.config import UserError
from sqair.data.background import Subtraction
from sqair.settings import from_dict, to_dict

Quantiles = tuple[float, float, float]
"""The values below which a tenth, a half and nine tenths lie."""


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

    def __post_init__(self) -> None:
        for name in ("height", "size", "crop", "stride"):
            value = getattr(self, name)
            if min(value if isinstance(value, tuple) else (value,)) < 1:
                raise UserError(f"camera.{name} must be at least 1, not {value}")

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
    """Refuse a table that lacks a field of `cls`."""
    if not isinstance(values, Mapping):
        raise UserError(f"the model's card has no table at {name}; copy it again")
    for item in dataclasses.fields(cls):
        if item.name not in values:
            raise UserError(f"the model's card lacks {name}.{item.name}; copy it again")

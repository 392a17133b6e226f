"""Whether a clip is like what a model was trained on: silence would mislead, since a model finds something in anything.

Three numbers of a clip: the brightness of its frames as the model sees them, the size of its objects (the root of a
box's area, as a share of the frame's) and the part of its light that the canvas leaves unexplained. A model's card
tells, as `training.typical`, between which values they lie for nearly all clips of its training data; a clip that lies
well outside is remarked upon.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray

from sqair.data import FileSource, Source, to_bytes
from sqair.model import SequenceModel
from sqair.tracking.tracker import track_batch
from sqair.training.checkpoint import CONFIG, read_card
from sqair.training.files import write_json
from sqair.training.manifest import checksum

SLACK = 0.25
"""How far beyond the range of the training's clips a clip may lie, as a share of that range."""
LOOKS = {
    "brightness": ("darker", "brighter", "try --invert, or cut the clip"),
    "size": ("smaller", "larger", "crop or scale the clip"),
    "unexplained": ("", "worse explained", "train a model on such clips"),
}
"""What the numbers are about: when too low, when too high, what to do."""
BATCH = 50


class Impression:
    """Collects the numbers of a clip, frame by frame."""

    def __init__(self) -> None:
        self.frames = self.boxes = 0
        self.brightness = self.size = self.light = self.error = 0.0

    def add(self, fitted: UInt8[ndarray, "Y X C"], boxes: Float[ndarray, "N 4"], error: float) -> None:
        """A frame as the model saw it; the boxes in it, NaN where there is none; the canvas's mean squared error."""
        sides = boxes[np.isfinite(boxes[:, 0]), 2:]
        self.frames += 1
        self.boxes += len(sides)
        self.brightness += float(fitted.mean()) / 255
        self.size += float(np.sqrt(sides.prod(1)).sum()) / math.sqrt(fitted.shape[0] * fitted.shape[1])
        self.light += float(np.square(fitted / 255.0).mean())
        self.error += error

    def numbers(self) -> dict[str, float | None]:
        """The means; None where there was nothing to average."""
        frames, boxes = self.frames or None, self.boxes or None
        return {
            "brightness": frames and self.brightness / frames,
            "size": boxes and self.size / boxes,
            "unexplained": self.error / self.light if self.light else None,
        }


def typical(model: SequenceModel, source: Source, *, sequences: int = 400, seed: int = 5) -> dict[str, list[float]]:
    """For each number the range in which all but one in a hundred clips of a source lie: what a model's card holds.

    Clips are tracked as `Tracker` does by itself, one particle, so that the numbers can be compared. A file may hold
    fewer sequences than asked for.
    """
    if isinstance(source, FileSource):
        sequences = min(sequences, len(source))
    batch = min(BATCH, sequences)
    starts = range(0, sequences - batch + 1, batch)
    told = [_numbers(model, to_bytes(source.fixed(batch, seed, start)).frames) for start in starts]
    clips = [clip for batch in told for clip in batch]
    columns = {name: [number for clip in clips if (number := clip[name]) is not None] for name in LOOKS}
    return {name: np.quantile(values, [0.005, 0.995]).tolist() for name, values in columns.items() if values}


def write_typical(folder: Path, numbers: dict[str, list[float]]) -> None:
    """Add what is typical of a model's training data to its card, the config.json in `folder`."""
    card = read_card(folder)
    card |= {"training": (card.get("training") or {}) | {"typical": numbers}}
    if "sha256" in card:
        card["sha256"] |= {"training.typical": checksum(numbers)}
    write_json(folder / CONFIG, card)


def _numbers(model: SequenceModel, frames: Any) -> list[dict[str, float | None]]:
    """The numbers of some clips of the model's size."""
    frames = np.asarray(frames)
    frames = frames if frames.ndim == 5 else frames[..., None]
    found = jax.device_get(track_batch(model, jax.random.key(0), frames))
    numbers = []
    for clip in range(len(frames)):
        impression = Impression()
        for t in range(frames.shape[1]):
            picture = frames[clip, t, ..., : model.config.channels]
            impression.add(picture, found.box[clip, t], float(found.error[clip, t]))
        numbers.append(impression.numbers())
    return numbers


def remarks(card: Mapping[str, Any], numbers: Mapping[str, float | None]) -> list[str]:
    """What sets a clip apart from a model's training data, in words; nothing where the card does not know."""
    known = (card.get("training") or {}).get("typical") or {}
    said = []
    for name, (low_word, high_word, advice) in LOOKS.items():
        value, limits = numbers.get(name), _range(known.get(name))
        if value is None or limits is None:
            continue
        low, high = limits
        slack = SLACK * (high - low)
        if value > high + slack or (value < low - slack and name != "unexplained"):
            subject = "its objects are" if name == "size" else "it is"
            word = high_word if value > high else low_word
            there = f"{value:.3g}, there {low:.3g} to {high:.3g}"
            said.append(f"{subject} {word} than what the model was trained on ({there}); {advice}")
    return said


def _range(limits: Any) -> tuple[float, float] | None:
    """Two finite numbers; a stranger's card may hold anything."""
    if not isinstance(limits, list | tuple) or len(limits) != 2:
        return None
    low, high = limits
    numbers = all(isinstance(limit, int | float) and math.isfinite(limit) for limit in limits)
    return (float(low), float(high)) if numbers else None

"""What a figure is made from: models by their role (model, air, vrnn, in_out), data, how many sequences to measure."""

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int
from numpy import ndarray

from sqair.config import DataConfig
from sqair.data import FileSource, Sequences, Source, open_data
from sqair.data.digits import Split
from sqair.evaluation.evaluate import check_frames
from sqair.evaluation.prediction import OBSERVED
from sqair.model import SequenceModel
from sqair.training.checkpoint import load_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Made(NamedTuple):
    """A figure and the numbers that it shows."""

    figure: "Figure"
    numbers: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Asked:
    """The models, each a shipped name or a folder, and the data they are shown."""

    models: dict[str, str]
    data: dict[str, DataConfig]
    """What each of them is shown."""
    splits: dict[str, Split] = dataclasses.field(default_factory=dict)
    """Which part of it; test where nothing is said."""
    sequences: int = 200
    """To measure on, and to search for failures."""
    seed: int = 1
    observe: int = OBSERVED
    """Frames after which a model goes on by itself ..."""
    frames: int = 0
    """... for so many frames; 0 for as many as the data has."""

    def load(self, role: str) -> SequenceModel:
        """The model with this role."""
        return _load(self.models[role])

    def source(self, role: str, **changes: Any) -> Source:
        """The data of a model; `changes` are to its config."""
        return _open(dataclasses.replace(self.data[role], **changes), self.splits.get(role, "test"))

    def counts(self, role: str, most: int) -> Int[ndarray, "S T"] | None:
        """The true numbers of objects in the first sequences; None where they are not known."""
        source = self.source(role)
        counts = source.fixed(_at_most(source, most), self.seed).counts
        return None if counts is None else np.asarray(counts)

    def some(self, role: str, count: int, **changes: Any) -> Sequences:
        """The first sequences of a model in which there is something, as numpy arrays."""
        source = self.source(role, **changes)
        found = source.fixed(_at_most(source, 4 * count), self.seed)
        check_frames(self.load(role), found.frames)
        seen = np.asarray(found.frames if found.counts is None else found.counts)
        order = np.argsort(seen.reshape(len(seen), -1).max(1) <= 0, kind="stable")
        return jax.tree.map(lambda leaf: np.asarray(leaf)[order[:count]], found)


@functools.cache
def _load(name: str) -> SequenceModel:
    """Several figures show the same model."""
    return load_model(name)


@functools.cache
def _open(config: DataConfig, split: Split) -> Source:
    return open_data(config, split)


def _at_most(source: Source, count: int) -> int:
    """So many sequences, or as many as a file has."""
    return min(count, len(source)) if isinstance(source, FileSource) else count

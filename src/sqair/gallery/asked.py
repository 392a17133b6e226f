"""What a figure is made from: models by their role (model, air, vrnn, in_out), data, how many sequences to measure."""

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from sqair.config import DataConfig
from sqair.data import Sequences, Source, open_data
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
    """What each of them was trained on, of which the test split is used."""
    sequences: int = 200
    """To measure on, and to search for failures."""
    seed: int = 1

    def load(self, role: str) -> SequenceModel:
        """The model with this role."""
        return _load(self.models[role])

    def source(self, role: str, **changes: Any) -> Source:
        """The test data of a model; `changes` are to its config."""
        return _open(dataclasses.replace(self.data[role], **changes))

    def some(self, role: str, count: int, **changes: Any) -> Sequences:
        """The first test sequences of a model that have a digit, as numpy arrays."""
        found = self.source(role, **changes).fixed(4 * count, self.seed)
        counts = np.ones(len(found.frames)) if found.counts is None else np.asarray(found.counts).max(1)
        chosen = np.flatnonzero(counts > 0)[:count]
        return jax.tree.map(lambda leaf: np.asarray(leaf)[chosen], found)


@functools.cache
def _load(name: str) -> SequenceModel:
    """Several figures show the same model."""
    return load_model(name)


@functools.cache
def _open(config: DataConfig) -> Source:
    return open_data(config, "test")

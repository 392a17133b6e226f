"""All numbers that `sqair evaluate` prints."""

from typing import Any

from sqair.data import Source
from sqair.model import SequenceModel


def evaluate(
    model: SequenceModel, source: Source, *, sequences: int, particles: int, seed: int, batch: int | None = None
) -> dict[str, Any]:
    """The keys of `evaluate --json` in their order; None where there is no truth or no meaning.

    `model` is its kind and `data` the source's name: the caller may put better names in.
    """
    raise NotImplementedError

"""Counting where it is hard: over how much two digits overlap, and over how little of a digit is visible.

Axes: S sequences, T frames, O objects, M possible counts, 0 to N.
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from sqair.data import Sequences, Source
from sqair.evaluation import counting
from sqair.evaluation.evaluate import infer
from sqair.model import SequenceModel

EDGES = np.linspace(0.0, 1.0, 6)
"""Of five bins; what is exactly 0 has a bin of its own before them."""


def counting_curves(
    model: SequenceModel, source: Source, *, sequences: int, particles: int, seed: int
) -> dict[str, list[dict[str, Any]]]:
    """Weighted counting accuracy of frames with two objects or more, binned by `overlap` and by `visible`.

    The first is the largest share of a box that another box covers, the second the smallest visible share.
    """
    overlap, visible, right = [], [], []
    for found, truth in infer(model, source, sequences=sequences, particles=particles, seed=seed):
        assert truth.counts is not None
        assert truth.boxes is not None
        assert truth.visible is not None
        counts = np.asarray(truth.counts)
        here = counts >= 2
        overlap.append(covered_share(np.asarray(truth.boxes))[here])
        visible.append(least_visible(truth)[here])
        right.append(counting.accuracy(np.asarray(found.weighted.counts), counts)[here])
    values = np.concatenate(right)
    return {"overlap": binned(np.concatenate(overlap), values), "visible": binned(np.concatenate(visible), values)}


def covered_share(boxes: Float[ndarray, "S T O 4"]) -> Float[ndarray, "S T"]:
    """The largest share of an object's box that another one covers; 0 where there are no two."""
    a, b = boxes[..., :, None, :], boxes[..., None, :, :]
    shared = np.minimum(a[..., :2] + a[..., 2:], b[..., :2] + b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    share = np.maximum(shared, 0).prod(-1) / np.minimum(a[..., 2:].prod(-1), b[..., 2:].prod(-1))
    others = ~np.eye(boxes.shape[-2], dtype=bool)
    return np.nan_to_num(np.where(others, share, 0.0)).max((-2, -1))


def least_visible(truth: Sequences) -> Float[ndarray, "S T"]:
    """The smallest visible share of the objects that are there; 1 where there are none."""
    assert truth.ids is not None
    return np.where(np.asarray(truth.ids) >= 0, np.asarray(truth.visible), 1.0).min(-1)


def binned(shares: Float[ndarray, " n"], values: Float[ndarray, " n"]) -> list[dict[str, Any]]:
    """Means of the values in bins of the shares: exactly 0, then five of equal width; empty ones are left out."""
    place = np.where(shares <= 0, 0, np.clip(np.ceil(shares * (len(EDGES) - 1)), 1, len(EDGES) - 1)).astype(int)
    rows = []
    for number in range(len(EDGES)):
        chosen = values[place == number]
        if len(chosen):
            error = float(chosen.std() / np.sqrt(len(chosen)))
            middle = 0.0 if number == 0 else float(EDGES[number - 1 : number + 1].mean())
            rows.append({"share": middle, "accuracy": float(chosen.mean()), "se": error, "frames": len(chosen)})
    return rows

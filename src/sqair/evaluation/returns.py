"""In and out (App. F): is a digit that comes back into view found again, and how soon?

A case is a true object that appears after the first frame and stays for at least two frames. It is found within two
frames if in its first or its second frame a box of the posterior sample overlaps its own with an IoU of at least 0.5,
one to one with the other objects of the frame. `returned` are those that had been there before.

Axes: S sequences, T frames, O objects, N slots.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from sqair.config import UserError
from sqair.data import Source
from sqair.evaluation.boxes import Sample
from sqair.evaluation.evaluate import by_sequence, infer
from sqair.evaluation.matching import match
from sqair.model import SequenceModel

WITHIN = 2
"""Frames, the one in which it appears included."""


def returns(
    model: SequenceModel, source: Source, *, sequences: int, particles: int, seed: int, batch: int | None = None
) -> dict[str, Any]:
    """Shares of appearances and of returns that are found within two frames, and how many there were."""
    if not model.has_objects:
        raise UserError(f"a {model.config.kind} has no objects that could return; use a model of the kind sqair")
    cases: list[tuple[bool, bool]] = []
    for found, truth in infer(model, source, sequences=sequences, particles=particles, seed=seed, batch=batch):
        if found.sample is None or truth.boxes is None or truth.ids is None:
            raise UserError("returns need data whose boxes are known; use moving-mnist-in-out")
        for number, sample in enumerate(by_sequence(found.sample)):
            boxes, ids = np.asarray(truth.boxes[number]), np.asarray(truth.ids[number])
            cases += sequence_cases(boxes, ids, sample, model.config.image)
    return shares(cases)


def shares(cases: list[tuple[bool, bool]]) -> dict[str, Any]:
    """The results from all cases; a share of nothing is None."""
    appeared, returned = [hit for hit, _ in cases], [hit for hit, again in cases if again]
    return {
        "appeared": len(appeared),
        "returned": len(returned),
        "appeared_found": float(np.mean(appeared)) if appeared else None,
        "returned_found": float(np.mean(returned)) if returned else None,
    }


def sequence_cases(
    boxes: Float[ndarray, "T O 4"], ids: Int[ndarray, "T O"], sample: Sample, size: tuple[int, int]
) -> list[tuple[bool, bool]]:
    """For each appearance of a sequence, whether it was found in time and whether the object had been there before."""
    hits = found_objects(boxes, sample, size)
    return [
        (bool(hits[frame : frame + WITHIN, place].any()), bool((ids[:frame, place] >= 0).any()))
        for frame, place in appearances(ids)
    ]


def appearances(ids: Int[ndarray, "T O"]) -> list[tuple[int, int]]:
    """First frames and places of objects that appear after the first frame and stay for two frames or more."""
    there = ids >= 0
    fresh = there[1:] & (ids[1:] != ids[:-1])
    stays = np.zeros_like(fresh)
    stays[:-1] = ids[2:] == ids[1:-1]
    return [(int(t) + 1, int(place)) for t, place in np.argwhere(fresh & stays)]


def found_objects(boxes: Float[ndarray, "T O 4"], sample: Sample, size: tuple[int, int]) -> Bool[ndarray, "T O"]:
    """Which true objects have a box of the sample of their own in each frame; truth is clipped to the frame."""
    hits = np.zeros(boxes.shape[:2], bool)
    for t, (true, ours) in enumerate(zip(boxes, np.asarray(sample.boxes), strict=True)):
        for place, _ in match(true, ours, size):
            hits[t, place] = True
    return hits

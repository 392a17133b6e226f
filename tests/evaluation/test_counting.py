"""Counting by hand."""

import numpy as np
import pytest

from sqair.data import Sequences
from sqair.evaluation.counting import accuracy, all_from_the_start, all_in_sight, mode_accuracy

DISTRIBUTION = np.array([[[0.2, 0.5, 0.3], [0.6, 0.4, 0.0], [0.1, 0.1, 0.8]]])
FRAMES = np.zeros((1, 3, 4, 4), np.uint8)


def sequences(ids: list | None, visible: list | None = None, counts: list | None = None) -> Sequences:
    return Sequences(
        FRAMES,
        ids=None if ids is None else np.array([ids], np.int32),
        visible=None if visible is None else np.array([visible], np.float32),
        counts=None if counts is None else np.array([counts], np.int32),
    )


def test_accuracy_is_the_probability_of_the_truth() -> None:
    assert accuracy(DISTRIBUTION, np.array([[1, 1, 0]])).tolist() == [[0.5, 0.4, 0.1]]
    assert accuracy(DISTRIBUTION, np.array([[3, 7, 2]])).tolist() == [[0.0, 0.0, 0.8]], "more objects than slots"


def test_mode() -> None:
    assert mode_accuracy(DISTRIBUTION, np.array([[1, 1, 2]])).tolist() == [[1.0, 0.0, 1.0]]


def test_in_sight_from_a_quarter_on_and_with_no_objects() -> None:
    seen = all_in_sight(sequences([[0, 1], [0, 1], [-1, -1]], [[0.25, 1.0], [0.24, 1.0], [0.0, 0.0]]))
    assert seen is not None
    assert seen.tolist() == [[True, False, True]]
    assert all_in_sight(sequences(None)) is None


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([[0, 1], [1, 0], [1, -1]], True),
        ([[0, -1], [0, 1], [0, 1]], False),
        ([[0, -1], [-1, -1], [1, -1]], False),
        ([[-1, -1], [-1, -1], [-1, -1]], True),
    ],
)
def test_from_the_start(ids: list, expected: bool) -> None:
    assert all_from_the_start(sequences(ids)) is expected


def test_from_the_start_by_counts_alone() -> None:
    assert all_from_the_start(sequences(None, counts=[1, 1, 1]))
    assert not all_from_the_start(sequences(None, counts=[1, 2, 1]))
    assert not all_from_the_start(sequences(None)), "not known"

"""Matching, overlap, consistency of what and failures, each on arrays whose answer is known."""

import numpy as np
import pytest

from sqair.data import Sequences
from sqair.evaluation.consistency import change, matched_codes
from sqair.evaluation.failures import failures, identity_failures
from sqair.evaluation.matching import match
from sqair.evaluation.overlap import binned, covered_share, least_visible

NAN = [np.nan] * 4


def test_match_is_one_to_one_and_only_of_what_is_seen() -> None:
    true = np.array([[0, 0, 4, 4], [1, 0, 4, 4], [16, 0, 8, 4], NAN], np.float32)
    boxes = np.array([[16, 0, 4, 4], NAN, [1, 0, 4, 4]], np.float32)
    assert match(true, boxes, (20, 20)) == [(1, 2), (2, 0)]
    assert match(true, boxes, (20, 20), np.array([True, False, False, True])) == [(0, 2)]


def test_overlap_is_a_share_of_the_smaller_box() -> None:
    boxes = np.array([[[[0, 0, 4, 4], [2, 0, 8, 4]], [[0, 0, 4, 4], NAN], [[0, 0, 2, 2], [0, 0, 8, 8]]]], np.float32)
    assert covered_share(boxes).tolist() == [[0.5, 0.0, 1.0]]


def test_least_visible_counts_only_those_there() -> None:
    ids = np.array([[[0, 1], [0, -1], [-1, -1]]], np.int32)
    visible = np.array([[[0.5, 0.25], [0.75, 0.0], [0.0, 0.0]]], np.float32)
    data = Sequences(np.zeros((1, 3, 2, 2), np.float32), ids=ids, visible=visible)
    assert least_visible(data).tolist() == [[0.25, 0.75, 1.0]]


def test_bins() -> None:
    rows = binned(np.array([0.0, 0.0, 0.1, 0.2, 1.0]), np.array([1.0, 0.0, 1.0, 1.0, 0.0]))
    assert [(row["share"], row["accuracy"], row["frames"]) for row in rows] == [
        (0.0, 0.5, 2),
        (pytest.approx(0.1), 1.0, 2),
        (pytest.approx(0.9), 0.0, 1),
    ]


def test_consistency_is_0_for_what_never_changes_and_1_for_what_is_drawn_anew() -> None:
    random = np.random.default_rng(0)
    known = np.ones((400, 5, 1), bool)
    steady = np.broadcast_to(random.normal(size=(400, 1, 1, 8)), (400, 5, 1, 8)).copy()
    assert change(steady, known) == {"what_change": 0.0, "pairs": 1600}
    assert change(random.normal(size=(400, 5, 1, 8)), known)["what_change"] == pytest.approx(1.0, abs=0.05)
    assert change(steady, np.zeros_like(known))["what_change"] is None


def test_distances_between_objects_are_those_of_all_pairs() -> None:
    codes = np.array([[0.0], [1.0], [5.0]])[:, None, None].repeat(2, 1)
    codes[0, 1] = 1.0
    apart = np.mean([1.0, 25.0, 16.0])
    assert change(codes, np.ones((3, 2, 1), bool))["what_change"] == pytest.approx((1.0 / 3) / apart)


def test_a_code_belongs_to_the_object_under_its_box() -> None:
    true = np.array([[[[0, 0, 4, 4], [10, 10, 4, 4]]]], np.float32)
    what = np.array([[[[1.0], [2.0]]]])
    codes, known = matched_codes(what, true[:, :, ::-1], true, np.array([[[True, True]]]), (20, 20))
    assert codes.tolist() == [[[[2.0], [1.0]]]]
    assert known.all()


def test_swaps_and_redetections() -> None:
    names = np.array([[0, 1], [0, 1], [-1, 1], [1, 0], [1, 0], [2, 0]])
    found = [(each.kind, each.frame, each.place) for each in identity_failures(names)]
    assert found == [("ID swap", 3, 0), ("ID swap", 3, 1), ("re-detection", 5, 0)]
    assert identity_failures(np.array([[-1], [3], [-1], [3]])) == [], "an object may be found late and out of sight"


def test_digits_that_are_drawn_wrongly_or_not_at_all() -> None:
    frames = np.zeros((4, 20, 20), np.float32)
    frames[:, 2:6, 3:8] = 1.0
    true = np.tile(np.array([[3, 2, 5, 4], NAN], np.float32), (4, 1, 1))
    canvas = frames[..., None].copy()
    canvas[1] = canvas[3] = 0.0  # all of it is missed
    canvas[2, 2:4] = 0.9
    boxes, ids = true[:, :1].copy(), np.zeros((4, 1), int)
    boxes[3] = np.nan
    visible = np.tile([1.0, 0.0], (4, 1))
    found = failures(frames, canvas, boxes, ids, true, visible)
    assert [(each.kind, each.frame, each.extent) for each in found] == [
        ("wrong digit", 1, 1.0),
        ("missed digit", 3, 1.0),
    ]
    assert failures(frames, canvas, boxes, ids, true, 0.9 * visible) == [], "only digits in plain sight are judged"


def test_identities_are_not_judged_while_digits_touch() -> None:
    """Two digits pass through each other: in the middle frame boxes may belong to either."""
    true = np.zeros((3, 2, 4), np.float32) + 4.0
    true[:, 0, :2], true[:, 1, :2] = [(0, 0), (5, 0), (10, 0)], [(10, 0), (6, 0), (0, 0)]
    ids = np.array([[0, 1], [1, 0], [0, 1]])
    dark, visible = np.zeros((3, 20, 20), np.float32), np.ones((3, 2))
    assert failures(dark, dark[..., None], true, ids, true, visible) == []
    swapped = np.array([[0, 1], [1, 0], [1, 0]])
    assert [each.kind for each in failures(dark, dark[..., None], true, swapped, true, visible)] == ["ID swap"] * 2

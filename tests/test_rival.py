"""The rival of benchmarks/rival.py: what is around SORT, which stands in here, is right."""

import dataclasses
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import rival
from benchmarks.rival import Blobs, Case, Rival, better, choose, compete, follow, made, measured, padded, shifted
from sqair.data import Camera
from sqair.tracks import Tracks


class Nearest:
    """Stands in for SORT: a box has the identity of the nearest one of the frame before, if that is near."""

    def __init__(self, **given: Any) -> None:
        self.given, self.before, self.next = given, [], 0

    def update(self, detections: Any) -> Any:
        now, left = [], list(self.before)
        for corners in detections.xyxy:
            middle = (corners[:2] + corners[2:]) / 2
            near = [one for one in left if np.abs(middle - one[0]).max() < 12]
            if near:
                left.remove(near[0])
            now.append((tuple(middle), near[0][1] if near else self.next))
            self.next += not near
        self.before = now
        return SimpleNamespace(xyxy=detections.xyxy, tracker_id=np.array([id for _, id in now], int))


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch):
    for name, content in {"trackers": {"SORTTracker": Nearest}, "supervision": {"Detections": SimpleNamespace}}.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture(scope="module")
def case() -> Case:
    return made(Camera("street", frames=64, size=(96, 128), objects=2, scale=1.5))


def test_padded_boxes_keep_their_middles():
    assert padded(np.array([[10.0, 20.0, 4.0, 8.0]]), 1.5).tolist() == [[9.0, 18.0, 15.0, 30.0]]


def test_a_part_is_a_clip_of_its_own():
    tracks = Tracks.make([0, 3, 4, 6], [0, 0, 1, 1], np.ones((4, 4)), frames=8)
    part = shifted(tracks, (3, 6))
    assert (part.frame.tolist(), part.id.tolist(), part.frames) == ([0, 1], [0, 1], 3)


def test_blobs_are_found_where_people_are(case):
    """Settings change what they should: a larger least size leaves fewer, padding makes them larger."""
    blobs = Blobs(case.clip, 40)
    usual, large, wide = (
        blobs(dataclasses.replace(Rival("mog2"), **change)) for change in ({}, {"least": 0.9}, {"pad": 2})
    )
    assert len(usual) == 40
    assert sum(map(len, usual)) > 20
    assert sum(map(len, large)) == 0
    assert np.allclose(wide[30][:, 2:] - wide[30][:, :2], 2 * (usual[30][:, 2:] - usual[30][:, :2]))


def test_tracks_of_blobs_are_clipped():
    blobs = [np.array([[-3.0, 5.0, 7.0, 15.0]]), np.zeros((0, 4)), np.array([[90.0, 5.0, 130.0, 15.0]])]
    tracks = follow(Rival("knn"), blobs, (96, 128))
    assert tracks.box.tolist() == [[0, 5, 7, 10], [90, 5, 38, 10]]
    assert (tracks.frame.tolist(), tracks.frames) == ([0, 2], 3)


def test_perfect_tracks_are_measured_as_such(case):
    truth = case.truth.tracks.select(~case.truth.ignored)
    for part in (case.train, case.test):
        found = measured(case, truth, part)
        assert (found["mota"], found["idf1"], found["frames"]) == (1.0, 1.0, part[1] - part[0])


def test_settings_are_chosen_by_the_labels_of_the_training_part(case, monkeypatch):
    """No neighbour of what is chosen is better there, and the test part is not looked at."""
    monkeypatch.setattr(rival, "LATTICE", {"threshold": (1.0, 100.0), "pad": (0.5, 1.0)})
    asked = []
    monkeypatch.setattr(rival, "measured", lambda *given: asked.append(given[2]) or measured(*given))
    start = Rival("mog2", threshold=100.0, pad=0.5)
    monkeypatch.setattr(rival, "Rival", lambda method: start)
    best, train, tried = choose(case, "mog2", lambda line: None)
    assert (best.threshold, best.pad, tried) == (1.0, 1.0, 4)
    assert set(asked) == {case.train}
    assert train["mota"] > 0.1


def test_what_is_recorded(case, monkeypatch):
    monkeypatch.setattr(rival, "LATTICE", {"confirm": (1, 2)})
    rows = {method: compete(case, method, lambda line: None) for method in ("mog2", "knn")}
    row = rows[better(rows)]
    assert set(row) == {"settings", "tried", "train", "test_iou_0.5", "test_iou_0.3", "seconds"}
    assert row["test_iou_0.3"]["mota"] >= row["test_iou_0.5"]["mota"]
    assert sum(row["train"][name] for name in ("mota", "idf1", "hota")) == max(
        sum(each["train"][name] for name in ("mota", "idf1", "hota")) for each in rows.values()
    )

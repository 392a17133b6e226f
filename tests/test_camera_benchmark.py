"""benchmarks/cameras.py: what is around fitting and tracking, for which others stand in here, is right."""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import cameras
from benchmarks.cameras import (
    crop_counting,
    inside,
    lines,
    main,
    open_case,
    pets,
    rival_of,
    scaled_tracks,
    true_sizes,
)
from benchmarks.rival import Case, made
from sqair.commands.fit import Fit
from sqair.config import UserError
from sqair.data import Camera, save_frames
from sqair.data.video import open_clips
from sqair.data.video_images import clip_of_array
from sqair.tracks import Tracks, Truth

BOXES = np.array([[0, 0, 20, 40], [100, 50, 20, 40], [300, 500, 40, 60]], np.float32)


def people(size: tuple[int, int] = cameras.SIZE) -> Tracks:
    """Three boxes in one frame."""
    return Tracks.make(np.zeros(3, int), np.arange(3), BOXES, frames=1, size=size)


def test_boxes_of_another_size():
    half = scaled_tracks(people(), (288, 384))
    np.testing.assert_allclose(half.box, BOXES / 2)
    assert half.size == (288, 384)


def test_people_belong_to_a_window_by_their_centres():
    """At a ratio of one half they are at (5, 10), (55, 35) and (160, 265)."""
    corners = np.array([[0.0, 0.0], [4.0, 9.0], [6.0, 0.0], [100.0, 202.0], [97.0, 210.0]])
    assert inside(people(), 0, 0.5, corners).tolist() == [2, 2, 1, 1, 1]
    assert inside(people(), 1, 0.5, corners).tolist() == [0] * 5


def test_counting_on_crops():
    """All right with the truth itself; with nobody, right where nobody is."""
    case = made(Camera("crossings", frames=24, size=(175, 240)))
    assert crop_counting(case, case.truth.tracks.select(~case.truth.ignored)) == 1
    nobody = case.truth.tracks.select(np.zeros(len(case.truth.tracks), bool))
    assert 0.05 < crop_counting(case, nobody) < 0.9


def test_true_sizes_are_of_those_who_are_whole():
    """Of the training part alone, and without those who touch an edge."""
    boxes = [[0, 10, 90, 90], [50, 20, 10, 30], [80, 20, 14, 40], [230, 20, 10, 90], [50, 20, 70, 70]]
    tracks = Tracks.make([0, 0, 1, 1, 5], range(5), np.array(boxes, np.float32), frames=6, size=(120, 240))
    clip = clip_of_array(np.zeros((6, 120, 240), np.uint8), "clip", 10.0)
    case = Case("clip", clip, Truth(tracks, np.zeros(5, bool)), (0, 5), (5, 6))
    sizes = true_sizes(case)
    assert sizes.width == pytest.approx((10.4, 12, 13.6))
    assert sizes.height == pytest.approx((31, 35, 39))


def test_true_sizes_are_told_to_the_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What it would have proposed had it seen them, as flags that it understands."""
    told = []
    monkeypatch.setattr(cameras, "fit", lambda case, folder, flags: told.extend(flags) or 1.0)
    monkeypatch.setattr(cameras, "tested", lambda case, folder: {})
    monkeypatch.setattr(cameras, "lines", lambda name, row, rival: [str(rival)])
    words = ["street", "--scale", "2", "--true-sizes", "--frames", "60", "--record", "x", "--folder", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["cameras", *words, "--steps", "9"])
    main()
    (record,) = tmp_path.glob("*_x.json")
    results = json.loads(record.read_text())["results"]
    assert (results["scale"], results["true_sizes"], results["flags"]) == (2, True, ["--steps", "9"])
    assert told == [*results["clips"]["street"]["sizes_given"], "--steps", "9"]
    command = Fit.parse(["clip.mp4", *told])
    case = open_case("street", 60, tmp_path, 2.0)
    assert command.height == round(240 * 26 / true_sizes(case).height[1])
    assert {"model.glimpse", "model.width_limits", "model.where_prior_std", "train.discovery_cost"} <= set(
        command.given
    )


@pytest.mark.parametrize(
    "words",
    [
        ["street", "--true-sizes", "--model", "somewhere"],
        ["street", "--true-sizes", "--networks=conv"],
        ["pets", "--scale", "2"],
    ],
)
def test_what_cannot_be_meant(words: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["cameras", *words])
    with pytest.raises(SystemExit, match="2"):
        main()


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Records of the rival, of which the newest counts, and another."""
    numbers = dict.fromkeys(cameras.SHOWN, 0.25)
    for date, mota in (("2026-01-01", 0.1), ("2026-01-02", 0.5)):
        row = {f"test_iou_{iou}": numbers | {"mota": mota} for iou in cameras.IOUS}
        results = {"kind": "rival", "clips": {"street": {"mog2": row, "knn": {}, "chosen": "mog2"}}}
        (tmp_path / f"{date}_rival.json").write_text(json.dumps({"results": results}))
    (tmp_path / "2026-01-03_speed.json").write_text(json.dumps({"results": {"kind": "speed"}}))
    return tmp_path


def test_the_rival_stands_beside(records: Path):
    rival = rival_of("street", records)
    assert rival is not None
    assert rival["test_iou_0.5"]["mota"] == 0.5
    assert rival_of("pets", records) is None
    ours = rival | {"counting_on_crops": 0.75}
    told = lines("street", ours, rival)
    assert len(told) == 6
    assert "0.500" in told[3]
    assert told[-1] == "counting on 64x64 crops 0.7500"
    assert len(lines("street", ours, None)) == 4


def test_decoded_frames_of_any_size_stand_for_the_video(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With boxes in their pixels; without them and without PyAV it is said what to do."""
    folder = tmp_path / cameras.FOLDER
    folder.mkdir()
    (folder / "gt.txt").write_text("1,1,101,51,20,40,1,-1,-1,-1\n2,2,101,51,20,40,0,-1,-1,-1\n")
    monkeypatch.setattr(cameras.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="made with --export"):
        pets(folder)
    frames = np.zeros((cameras.LENGTH, 72, 96), np.uint8)
    frames[:, 3:9, 4:7] = np.arange(cameras.LENGTH)[:, None, None] % 200
    save_frames(folder / cameras.FRAMES, clip_of_array(frames, "pets", 10.0), dense=True)
    case = pets(folder)
    assert (case.clip.size, case.train, case.test) == ((72, 96), (0, 500), (500, 795))
    np.testing.assert_allclose(case.truth.tracks.box, [[12.5, 6.25, 2.5, 5.0]])
    np.testing.assert_array_equal(np.stack(list(case.clip)), frames)


def test_fit_track_and_record_in_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    """`sqair fit` is given the training part alone, and the flags that are its own; the record has all numbers."""
    asked = []

    def fit(words: list[str]) -> int:
        (clip,) = open_clips(words[1])
        asked.append((words, sum(1 for _ in clip)))
        return 0

    case = open_case("street", 40, tmp_path)
    monkeypatch.setattr(cameras, "sqair", fit)
    monkeypatch.setattr(cameras, "track", lambda folder, clip: case.truth.tracks.select(~case.truth.ignored))
    card = {"training": {"step": 7, "validation_bound": 1.5}, "model": {"width": 8}}
    monkeypatch.setattr(cameras, "read_card", lambda folder: card)
    words = ["cameras", "street", "--frames=40", "--minutes=0.5", "--background", "running", "--record=x"]
    monkeypatch.setattr(sys, "argv", [*words, "--folder", str(tmp_path), "--out", str(tmp_path / "kept")])
    main()
    ((given, frames),) = asked
    assert frames == 25
    assert given[2:] == [
        "--out",
        str(tmp_path / "kept" / "street"),
        "--overwrite",
        "--background",
        "running",
        "--minutes=0.5",
    ]
    (record,) = (json.loads(path.read_text())["results"] for path in tmp_path.glob("*_x.json"))
    row = record["clips"]["street"]
    assert (record["kind"], row["step"], row["counting_on_crops"]) == ("cameras", 7, 1)
    assert row["test_iou_0.5"]["mota"] == row["test_iou_0.3"]["idf1"] == 1
    assert "ours at IoU 0.5" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["yard"], ["street", "pets", "--model", "one"]])
def test_wrong_usage_of_the_benchmark(words: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["cameras", *words])
    with pytest.raises(SystemExit):
        main()


def test_the_parts_of_a_made_camera():
    """A model needs no labels, so that it may learn from the first frames on."""
    case = open_case("crossings", 16, Path())
    assert isinstance(case, Case)
    assert (case.train, case.test) == ((0, 10), (10, 16))
    assert isinstance(case.truth, Truth)
    assert dataclasses.is_dataclass(case.clip)


def test_of_several_members_the_best_bound_speaks_for_the_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Every member is followed and keeps its own curve; folders of members that never had a bound are missing."""
    bounds = {0: -7.0, 2: -3.0, 10: None}
    for number in bounds:
        (tmp_path / "members" / str(number)).mkdir(parents=True)
    lines = [
        {"step": step, "member": member, "train_bound": 0.0, "validation_bound": step + member}
        for step in (1, 2)
        for member in bounds
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))

    def tested(_: Case, folder: Path) -> dict:
        number = int(folder.name)
        same = dict.fromkeys(("camera", "true_sizes", "model"))
        return {"seed": number, "validation_bound": bounds[number], "curve": cameras.curve(folder), **same}

    monkeypatch.setattr(cameras, "tested", tested)
    found = cameras.all_tested(made(Camera("street", 20)), tmp_path)
    assert found["seed"] == 2
    assert [row["seed"] for row in found["members"]] == [0, 2, 10]
    assert [[line["validation_bound"] for line in row["curve"]] for row in found["members"]] == [
        [1, 2],
        [3, 4],
        [11, 12],
    ]
    assert cameras.curve(tmp_path / "elsewhere") == []

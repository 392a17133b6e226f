"""Tracks: what must hold, slicing, repair by hand, and exports."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sqair.config import UserError
from sqair.tracks import Tracks

NAN = float("nan")
UNSEEN = [NAN] * 4


def made() -> Tracks:
    """Object 4 in frames 0 to 3, out of sight in the second; object 7 in frames 1 and 3; rows in any order."""
    return Tracks.make(
        frame=[3, 0, 1, 2, 1, 3],
        id=[7, 4, 4, 4, 7, 4],
        box=[[9, 1, 2, 2], [0, 0, 4, 4], UNSEEN, [2, 0, 4, 4.5], [8, 1, 2, 2], [3, 0, 4, 4]],
        where=[[9, 1, 3, 3]] * 6,
        presence=[0.5, 1, 0.25, 1, 1, 1],
        spread=[1.5, 0, NAN, 0, 0, 0],
        frames=5,
        size=(8, 12),
        rate=25.0,
        source="clip.mp4",
    )


def test_rows_are_sorted_and_read_only() -> None:
    tracks = made()
    assert len(tracks) == 6
    assert tracks.frame.tolist() == [0, 1, 1, 2, 3, 3]
    assert tracks.id.tolist() == [4, 4, 7, 4, 4, 7]
    assert tracks.presence.tolist() == [1, 0.25, 1, 1, 1, 0.5]
    assert tracks.ids.tolist() == [4, 7]
    assert tracks.counts.tolist() == [1, 2, 1, 2, 0]
    assert tracks.in_sight.tolist() == [True, False, True, True, True, True]
    assert tracks.box.dtype == np.float32
    with pytest.raises(ValueError, match="read-only"):
        tracks.box[0, 0] = 1
    assert "2 objects, 6 rows, 5 frames" in repr(tracks)


def test_what_is_left_out_is_not_known() -> None:
    tracks = Tracks.make([0], [0], [[1, 2, 3, 4]], frames=1)
    assert np.isnan([*tracks.where.ravel(), *tracks.presence, *tracks.spread]).all()
    empty = Tracks.make([], [], [], frames=3)
    assert (len(empty), empty.counts.tolist(), empty.ids.tolist()) == (0, [0, 0, 0], [])


def test_equality() -> None:
    assert made() == made()
    assert made() != made().between(0, 3)
    assert made() != "tracks"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frame": [0, 5]}, "object 1 in frame 5 of 5 .* outside the clip"),
        ({"frame": [-1, 0]}, "outside the clip"),
        ({"id": [0, -1]}, "id is negative"),
        ({"id": [0, 2**31]}, "too large"),
        ({"id": [0.5, 1]}, "`id` of tracks must be integers, not float64"),
        ({"id": ["a", "b"]}, "must be integers"),
        ({"id": [0]}, "beside 2 frames"),
        ({"frame": [2, 2], "id": [3, 3]}, "object 3 is twice in frame 2"),
        ({"box": [[0, 0, 1, 1], [0, 0, 0, 1]]}, "object 1 in frame 1 .* positive width and height"),
        ({"box": [[0, 0, 1, 1], [0, NAN, 1, 1]]}, "four finite numbers"),
        ({"box": [[0, 0, 1, 1], [np.inf, 0, 1, 1]]}, "four finite numbers"),
        ({"box": [[0, 0, 1], [0, 0, 1]]}, "must be \\(2, 4\\)"),
        ({"box": [[0, 0, 1, 1], [0, 0, 1]]}, "array of numbers"),
        ({"where": [[0, 0, 1, 1], [0, 0, -1, 1]]}, "where needs four"),
        ({"presence": [0, 1.5]}, "presence must be between 0 and 1"),
        ({"spread": [0, -1]}, "spread must be at least 0"),
        ({"frames": -1}, "`frames` of tracks must be"),
        ({"frames": 10**9}, "`frames` of tracks must be"),
        ({"size": (0, 4)}, "`size` of tracks must be"),
        ({"rate": 0.0}, "`rate` of tracks must be"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict, message: str) -> None:
    good = {"frame": [0, 1], "id": [0, 1], "box": [[0, 0, 1, 1]] * 2, "frames": 5}
    Tracks.make(**good)
    with pytest.raises(UserError, match=message):
        Tracks.make(**(good | changes))


def test_slicing() -> None:
    tracks = made()
    assert tracks.at(1).id.tolist() == [4, 7]
    assert len(tracks.at(4)) == 0
    assert tracks.between(1, 3).frame.tolist() == [1, 1, 2]
    assert len(tracks.between(3, 1)) == 0
    assert tracks.between(0, 99) == tracks
    assert tracks.of(7).frame.tolist() == [1, 3]
    assert tracks.of(7, 4) == tracks
    assert tracks.between(1, 2).frames == 5, "frames keep their numbers"
    with pytest.raises(UserError, match="there is no frame 5: the clip has frames 0 to 4"):
        tracks.at(5)
    with pytest.raises(UserError, match="there is no object 5; known are 4, 7"):
        tracks.of(5)


def test_split_and_merge_are_inverse() -> None:
    tracks = made()
    apart = tracks.split(4, 2)
    assert apart.ids.tolist() == [4, 7, 8]
    assert apart.of(8).frame.tolist() == [2, 3]
    assert apart.merge(4, 8) == tracks
    assert apart.merge(8, 4).ids.tolist() == [7, 8], "the first name is kept"


def test_what_cannot_be_repaired_so_is_refused() -> None:
    tracks = made()
    with pytest.raises(UserError, match="4, 7 cannot be one object: frame 1 has two"):
        tracks.merge(4, 7)
    with pytest.raises(UserError, match="at least two"):
        tracks.merge(4, 4)
    for frame in (0, 4):
        with pytest.raises(UserError, match="lives from frame 0 to 3"):
            tracks.split(4, frame)
    with pytest.raises(UserError, match="identity 7 is taken"):
        tracks.rename({4: 7})
    with pytest.raises(UserError, match="identity 9 is taken"):
        tracks.rename({4: 9, 7: 9})


def test_rename() -> None:
    swapped = made().rename({4: 7, 7: 4})
    assert swapped.id.tolist() == [7, 4, 7, 7, 4, 7]
    assert swapped.box[2].tolist() != made().box[2].tolist(), "rows move with their names"
    assert swapped.rename({4: 7, 7: 4}) == made()
    assert made().rename({7: 0}).ids.tolist() == [0, 4]


def test_pandas() -> None:
    frame = made().to_pandas()
    assert frame.shape == (6, 12)
    assert frame["id"].tolist() == [4, 4, 7, 4, 4, 7]
    assert frame.loc[frame["frame"] == 2, ["left", "top", "width", "height"]].to_numpy().tolist() == [[2, 0, 4, 4.5]]
    assert frame["left"].isna().tolist() == [False, True, False, False, False, False]


def test_supervision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for supervision, whose Detections take these arrays; the real one needs a third of a GB."""
    detections = ModuleType("supervision")
    detections.Detections = SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "supervision", detections)
    found = made().to_supervision()
    assert len(found) == 5
    assert [len(each.xyxy) for each in found] == [1, 1, 1, 2, 0]
    assert found[3].xyxy.tolist() == [[3, 0, 7, 4], [9, 1, 11, 3]]
    assert found[3].tracker_id.tolist() == [4, 7]
    assert found[3].confidence.tolist() == [1.0, 0.5]


@pytest.mark.parametrize("name", ["pandas", "supervision"])
def test_a_package_that_is_not_there_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=f"pip install {name}"):
        getattr(made(), f"to_{name}")()


def test_coco(tmp_path: Path) -> None:
    from pycocotools.coco import COCO

    made().to_coco(tmp_path / "tracks.coco.json")
    coco: Any = COCO(tmp_path / "tracks.coco.json")
    assert [image["frame_id"] for image in coco.loadImgs(coco.getImgIds())] == [0, 1, 2, 3, 4]
    assert coco.loadImgs([1])[0] | {"file_name": "000001.png", "height": 8, "width": 12} == coco.loadImgs([1])[0]
    found = coco.loadAnns(coco.getAnnIds(imgIds=[4]))
    assert [(each["track_id"], each["bbox"], each["score"]) for each in found] == [
        (4, [3.0, 0.0, 4.0, 4.0], 1.0),
        (7, [9.0, 1.0, 2.0, 2.0], 0.5),
    ]
    assert coco.getAnnIds(imgIds=[5]) == []
    Tracks.make([], [], [], frames=1, size=(2, 2), source='a "b"').to_coco(tmp_path / "empty.json")
    assert json.loads((tmp_path / "empty.json").read_text())["videos"] == [{"id": 1, "name": 'a "b"'}]


def test_yolo(tmp_path: Path) -> None:
    outside = Tracks.make([4, 4], [0, 1], [[10, -2, 8, 4], [20, 20, 2, 2]], frames=5)
    made().to_yolo(tmp_path / "a")
    files = sorted((tmp_path / "a/labels").iterdir())
    assert [file.name for file in files] == [f"00000{n}.txt" for n in range(1, 6)]
    assert files[3].read_text() == "0 0.416667 0.250000 0.333333 0.500000\n0 0.833333 0.250000 0.166667 0.250000\n"
    assert files[4].read_text() == ""
    assert (tmp_path / "a/classes.txt").read_text() == "object\n"
    with pytest.raises(UserError, match="exists already"):
        made().to_yolo(tmp_path / "a")
    with pytest.raises(UserError, match="YOLO needs the size"):
        outside.to_yolo(tmp_path / "b")
    outside.write(tmp_path / "t.csv")
    Tracks.read(tmp_path / "t.csv", size=(8, 12)).to_yolo(tmp_path / "b")
    assert (tmp_path / "b/labels/000005.txt").read_text() == "0 0.916667 0.125000 0.166667 0.250000\n"


def test_exports_that_cannot_be_written_leave_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for write in (made().to_coco, made().to_yolo, made().write):
        with pytest.raises(UserError, match="cannot write"):
            write(tmp_path / "file/x.json")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]

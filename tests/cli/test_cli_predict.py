"""``sqair predict``: files that agree, the true continuation where there is one, one line for errors."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sqair.data import Sequences, load_sequences, save_sequences
from sqair.report.document import read_blocks
from sqair.tracking.typical import write_typical

FILES = {"future.mp4", "future.gif", "future.png", "future.npz", "summary.json", "index.html"}
SHORT = ("--observe=2", "--frames=3", "--futures=2")


@pytest.fixture
def clip(here: Path) -> Path:
    """Four frames of twice the size that the model `tiny` takes."""
    np.save(here / "clip.npy", np.random.default_rng(0).integers(0, 120, (4, 32, 32), np.uint8))
    return here / "clip.npy"


def test_all_files_of_a_prediction(sqair, models: Path, clip: Path, is_video) -> None:
    done = sqair("predict", clip, "--model", models / "tiny", *SHORT)
    assert done.code == 0, done.err
    folder = Path("runs/predict/clip")
    assert {path.name for path in folder.iterdir()} == FILES
    assert "frames of 32x32 are scaled to 16x16" in done.err
    summary = json.loads((folder / "summary.json").read_text())
    first, last = summary["pixel_error"]
    assert f"pixel error {first:.4f} in the first predicted frame, {last:.4f} 2 frames ahead" in done.out
    assert done.out.splitlines()[-2:] == ["open index.html to look at them", "Results saved to runs/predict/clip"]
    assert is_video(folder / "future.mp4", 5)
    with Image.open(folder / "future.png") as strip:
        assert strip.size[0] > 5 * 144
    arrays = load_sequences(folder / "future.npz")
    assert arrays.frames.shape == (2, 5, 16, 16)
    for future, counts in zip(summary["futures"], np.asarray(arrays.counts), strict=True):
        assert future["counts"] == counts.tolist()


def test_numbers_agree_with_the_arrays(sqair, models: Path, clip: Path) -> None:
    assert sqair("predict", clip, "--model", models / "tiny", *SHORT, "--out=x").code == 0
    summary, arrays = json.loads(Path("x/summary.json").read_text()), load_sequences("x/future.npz")
    assert arrays.boxes is not None
    assert arrays.ids is not None
    truth = np.load(clip)[2:].reshape(2, 16, 2, 16, 2).mean((2, 4)) / 255
    errors = np.square(np.asarray(arrays.frames)[:, 2:4] / 255 - truth).mean((2, 3))
    np.testing.assert_allclose(summary["pixel_error"], np.median(errors, axis=0), atol=2e-3)
    assert any(future["positions"] for future in summary["futures"])
    for future, boxes, ids in zip(summary["futures"], arrays.boxes, arrays.ids, strict=True):
        for identity, places in future["positions"].items():
            for place, box in zip(places, boxes_of(int(identity) - 1, ids, boxes), strict=True):
                assert (place is None) == bool(np.isnan(box).all())
                if place is not None:  # the clip is twice as large
                    np.testing.assert_allclose(place, 2 * (box[:2] + box[2:] / 2), atol=0.01)


def boxes_of(identity: int, ids: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """The boxes of one identity in every frame, NaN where it is not."""
    mine = ids == identity
    return np.where(mine.any(1)[:, None], np.where(mine[..., None], boxes, 0).sum(1), np.nan)


def test_the_page_shows_the_clip_and_the_futures(sqair, models: Path, clip: Path) -> None:
    assert sqair("predict", clip, "--model", models / "tiny", *SHORT, "--out=x").code == 0
    head = json.loads(next(read_blocks(Path("x/index.html")))[1])
    assert [(panel["name"], panel["group"]) for panel in head["panels"]] == [
        ("clip", -1),
        ("future 1", 0),
        ("future 2", 1),
    ]
    assert (head["kind"], head["frames"], head["observed"], head["size"]) == ("predict", 5, 2, [32, 32])


def test_a_clip_unlike_the_training_data_is_remarked_upon(sqair, models: Path, clip: Path, here: Path) -> None:
    shutil.copytree(models / "tiny", here / "dark")
    for limits, count in (([0.01, 0.02], 1), ([0.01, 0.9], 0)):
        write_typical(here / "dark", {"brightness": limits})
        done = sqair("predict", clip, "--model", "dark", *SHORT, "--out=x", "--quiet", "--overwrite")
        assert done.code == 0, done.err
        assert done.err.count("warning: clip.npy: it is brighter than what the model was trained on") == count
        remarks = json.loads(Path("x/summary.json").read_text())["remarks"]
        assert len(remarks) == count
        head = json.loads(next(read_blocks(Path("x/index.html")))[1])
        assert head["summary"]["remarks"] == remarks


@pytest.mark.parametrize("command", [("predict", "clip.npy", *SHORT), ("sample", "--frames=5", "--count=2")])
def test_a_full_disk_leaves_nothing(command, refused, models: Path, clip: Path, monkeypatch) -> None:
    """The page is the last to be written, when all other files are there."""

    def close(self, summary) -> None:
        raise OSError(28, "No space left on device", "index.html")

    monkeypatch.setattr("sqair.report.clip.PageWriter.close", close)
    assert "No space left on device" in refused(1, *command, "--model", models / "tiny")


def test_overwriting_touches_only_results(sqair, models: Path, clip: Path, here: Path) -> None:
    (here / "out" / "page").mkdir(parents=True)
    (here / "out" / "mine.txt").write_text("mine")
    for command in (("predict", clip, *SHORT), ("sample", "--frames=5", "--count=2")):
        done = sqair(*command, "--model", models / "tiny", "--out", "out", "--overwrite", "--quiet")
        assert done.code == 0, done.err
    samples = {"samples.mp4", "samples.gif", "samples.png", "samples.npz"}
    assert {path.name for path in (here / "out").iterdir()} == {*FILES, *samples, "mine.txt"}
    assert {path.name for path in here.iterdir()} == {"clip.npy", "out"}


def test_a_clip_that_ends_where_the_future_begins(sqair, models: Path, clip: Path) -> None:
    np.save("end.npy", np.load(clip)[:2])
    done = sqair("predict", "end.npy", "--model", models / "tiny", *SHORT, "--out=x")
    assert done.code == 0, done.err
    assert "pixel error" not in done.out
    assert json.loads(Path("x/summary.json").read_text())["pixel_error"] is None


def test_one_of_many_clips(sqair, refused, models: Path) -> None:
    frames = np.random.default_rng(0).integers(0, 120, (2, 2, 16, 16), np.uint8)
    save_sequences("many.npz", Sequences(frames))
    words = ("predict", "many.npz", "--model", models / "tiny", *SHORT, "--clip")
    done = sqair(*words, "2", "--out=x")
    assert "many.npz holds 2 clips; this is number 2 (--clip)" in done.err
    assert json.loads(Path("x/summary.json").read_text())["source"] == "many 2"
    assert "--clip 3 is not there: many.npz holds 2" in refused(1, *words, "3")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("clip.npy", "--observe=5"), "clip.npy has 4 frames, fewer than the 5 to observe; observe fewer"),
        (("clip.npy", "--observe=0"), "--observe must be at least 1, not 0"),
        (("clip.npy", "--frames=-1"), "--frames must be at least 1, not -1"),
        (("clip.npy", "--futures=0"), "--futures must be at least 1, not 0"),
        (("clip.npy", "--clip=0"), "--clip must be at least 1, not 0"),
        (("clip.npy", "--rate=nan"), "--rate must be a positive number, not nan"),
        (("clip.npy", "--frames=10000"), "these are 40012 frames in all; ask for at most 20000"),
        (("none.npy",), "none.npy does not exist"),
        (("clip.npy", "--model=none"), "no model 'none'"),
    ],
)
def test_what_cannot_be_predicted(words, line: str, refused, models: Path, clip: Path) -> None:
    model = () if "--model=none" in words else ("--model", models / "tiny")
    assert line in refused(1, "predict", *words, *model)


def test_a_folder_that_is_not_empty_is_refused(refused, clip: Path, here: Path) -> None:
    (here / "taken").mkdir()
    (here / "taken" / "notes.txt").write_text("mine")
    assert "--overwrite" in refused(2, "predict", clip, "--out=taken")

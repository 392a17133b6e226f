"""benchmarks/pedestrians.py: what is cut, trained, resumed, tested and recorded; another stands in for training."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from benchmarks import pedestrians, results
from benchmarks.cameras import SIZE
from sqair.config import ModelConfig, Preset, TrainConfig, UserError
from sqair.data import Camera, Sequences, load_sequences, save_frames, save_sequences
from sqair.data.cameras import truth_lines
from sqair.training.checkpoint import build, save_model

MODEL = ModelConfig(image=(16, 16), glimpse=(8, 4), max_objects=1, what_size=4, width=8)
STEPS = 40


def scaled_up(line: str) -> str:
    """A line of truth in pixels of the clip."""
    frame, id, left, top, width, height, *rest = line.split(",")
    low = [f"{6 * (float(value) - 1) + 1:g}" for value in (left, top)]
    return ",".join([frame, id, *low, *(f"{6 * float(value):g}" for value in (width, height)), *rest])


def test_sequences_are_cut_from_both_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """People fill their boxes, though the truth is of larger frames; what is there is not made again."""
    camera = Camera(frames=90, size=(SIZE[0] // 6, SIZE[1] // 6))
    save_frames(tmp_path / "frames.npz", camera.clip())
    (tmp_path / "gt.txt").write_text("\n".join(scaled_up(line) for line in truth_lines(camera)))
    monkeypatch.setattr(pedestrians, "BORDER", 60)
    monkeypatch.setattr(pedestrians, "TESTED", 30)
    train, test = pedestrians.cut(tmp_path, tmp_path, 40)
    stamp = test.stat().st_mtime_ns
    assert pedestrians.cut(tmp_path, tmp_path, 40) == (train, test)
    assert test.stat().st_mtime_ns == stamp
    assert [load_sequences(path).frames.shape for path in (train, test)] == [(40, 5, 64, 64), (30, 5, 64, 64)]
    found = load_sequences(test)
    frames, boxes = np.asarray(found.frames), np.asarray(found.boxes)
    filled = [
        (frames[s, t, max(0, round(top)) : round(top + height), max(0, round(left)) : round(left + width)] > 0).mean()
        for s, t, o in np.argwhere(np.asarray(found.visible) > 0.9)
        for left, top, width, height in [boxes[s, t, o].tolist()]
    ]
    assert np.median(filled) > 0.3
    assert (frames > 0).mean() < 0.1


def files(folder: Path) -> tuple[Path, Path]:
    """Sequences for training, and some for the test with nobody, one or two in each frame."""
    counts = np.array([[0, 1, 1], [2, 1, 1]], np.int32)
    save_sequences(folder / "train.npz", Sequences(np.zeros((20, 3, 16, 16), np.uint8)))
    save_sequences(folder / "test.npz", Sequences(np.zeros((2, 3, 16, 16), np.uint8), counts))
    return folder / "train.npz", folder / "test.npz"


def trained(asked: list[list[str]], members: int, outcome: str | None = "finished") -> Any:
    """Stands in for `sqair train`: an untrained model for each member."""

    def sqair(words: list[str]) -> int:
        asked.append(words)
        folder = Path(words[words.index("--out") + 1])
        for member in range(members):
            place = folder / "members" / str(member) if members > 1 else folder
            about = {"step": STEPS, "validation_bound": 1.5, "train": {"seed": member}}
            save_model(place, build(MODEL, jax.random.key(member)), about)
        (folder / "run.json").write_text(json.dumps({"outcome": outcome}))
        return 0

    return sqair


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The program with some words; returns what it asked of `sqair train`."""
    notes = SimpleNamespace(preset=Preset(MODEL, train=TrainConfig(steps=STEPS)), step=STEPS, seconds=90.0)
    monkeypatch.setattr(pedestrians, "newest", lambda folder: SimpleNamespace(notes=notes))
    train, test = files(tmp_path)

    def run(*words: str, members: int = 1, outcome: str | None = "finished") -> list[list[str]]:
        asked: list[list[str]] = []
        monkeypatch.setattr(pedestrians, "sqair", trained(asked, members, outcome))
        usual = ["--data", str(train), "--test", str(test), "--out", str(tmp_path / "runs"), "--particles", "2"]
        record = ["--record", "x", "--folder", str(tmp_path / "records"), "--steps", str(STEPS)]
        monkeypatch.setattr(sys, "argv", ["pedestrians", *usual, *record, "--members", str(members), *words])
        pedestrians.main()
        return asked

    return run


def test_each_count_is_trained_once_and_recorded(bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Flags reach `sqair train`; what has ended is tested only, what was stopped goes on; the page shows it all."""
    asked = bench("--counts", "9", "3", "--train.batch", "4")
    assert [words[1] for words in asked] == ["sqair-pedestrians"] * 2
    assert [words[words.index("--data.sequences") + 1] for words in asked] == ["3", "9"], "the smallest first"
    assert all(words[words.index("--train.batch") + 1] == "4" and "--resume" not in words for words in asked)
    (path,) = (tmp_path / "records").iterdir()
    record = json.loads(path.read_text())["results"]
    assert (record["kind"], record["files"], record["commonest"]) == ("pedestrians", {"train": 20, "test": 2}, 4 / 6)
    rows = record["rows"]
    assert [row["sequences"] for row in rows] == [3, 9]
    assert [(each["people"], each["frames"]) for each in rows[0]["by_number"]] == [(0, 1), (1, 4), (2, 1)]
    parts = sum(each["frames"] * each["single"] for each in rows[0]["by_number"]) / 6
    assert rows[0]["counting"] == pytest.approx(parts)
    page = results.page(tmp_path / "records", tmp_path)
    assert "2 test sequences, K = 2. Always the commonest number would be right in 0.6667 of their frames." in page
    assert f"| 3 | 0 | {STEPS} | {STEPS} | {rows[0]['counting']:.4f} |" in page

    (tmp_path / "runs" / "9" / "run.json").write_text(json.dumps({"outcome": "stopped"}))
    (again,) = bench("--counts", "3", "9")
    assert again == ["train", "--resume", "--out", str(tmp_path / "runs" / "9"), "--device", "auto"]
    assert "3 sequences: counting" in capsys.readouterr().out


def test_every_member_is_tested(bench, tmp_path: Path) -> None:
    bench("--counts", "5", members=2, outcome=None)
    (path,) = (tmp_path / "records").iterdir()
    assert [row["seed"] for row in json.loads(path.read_text())["results"]["rows"]] == [0, 1]
    assert pedestrians.outcome(tmp_path / "runs" / "5") == "unknown", "a run that was killed says nothing"


def test_what_is_refused(bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with other steps, sequences without truth, one file alone, and a command that fails."""
    with pytest.raises(UserError, match="was begun with 40 steps"):
        bench("--counts", "3", "--steps", "41")
    with pytest.raises(UserError, match=r"make it with --video\.gt"):
        pedestrians.open_test(tmp_path / "train.npz")
    monkeypatch.setattr(sys, "argv", ["pedestrians", "--data", "x.npz"])
    with pytest.raises(SystemExit):
        pedestrians.main()
    monkeypatch.setattr(pedestrians, "sqair", lambda words: 1)
    with pytest.raises(UserError, match="`sqair data clip` ended with 1"):
        pedestrians.run("data", "clip")

"""Run folders: names, refusals, metrics, and what run.json tells."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import sqair
from sqair.config import UsageError, UserError, preset
from sqair.files import folder_written_atomically
from sqair.training import runs
from sqair.training.files import write_json


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fill(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "x").write_text("x")
    return folder


def test_names_are_counted_up() -> None:
    first = runs.choose_folder("train", "tiny")
    assert first == Path("runs/train/tiny")
    assert not first.exists(), "choosing writes nothing"
    first.mkdir(parents=True)
    assert runs.choose_folder("train", "tiny") == first, "an empty folder is free"
    (first / "x").write_text("x")
    assert fill(runs.choose_folder("train", "tiny")) == Path("runs/train/tiny-2")
    assert runs.choose_folder("train", "tiny") == Path("runs/train/tiny-3")
    assert runs.choose_folder("train", "tiny", resume=True) == Path("runs/train/tiny-2"), "the newest run"
    assert runs.choose_folder("train", "tiny", overwrite=True) == first


def test_a_folder_that_is_not_empty_is_refused_with_the_ways_out() -> None:
    folder = fill(Path("mine"))
    with pytest.raises(UsageError, match=r"mine is not empty.*--resume.*--overwrite"):
        runs.choose_folder("train", "tiny", folder)
    assert runs.choose_folder("train", "tiny", folder, resume=True) == folder
    assert runs.choose_folder("train", "tiny", folder, overwrite=True) == folder
    assert runs.choose_folder("train", "tiny", Path("new")) == Path("new")
    assert not Path("new").exists()


def test_other_refusals() -> None:
    Path("file").write_text("")
    with pytest.raises(UsageError, match="file is a file"):
        runs.check_folder(Path("file"))
    with pytest.raises(UserError, match="no run in nothing to resume"):
        runs.check_folder(Path("nothing"), resume=True)
    with pytest.raises(UserError, match="no run runs/train/tiny to resume"):
        runs.choose_folder("train", "tiny", resume=True)


def test_overwriting_deletes_only_what_a_run_wrote() -> None:
    folder = fill(Path("mine"))
    (folder / "checkpoints/00000001").mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("{}\n")
    runs.clear_folder(folder)
    assert sorted(os.listdir(folder)) == ["x"]


def test_run_json() -> None:
    folder = Path("run")
    runs.begin_run(folder, preset("tiny"), "sqair train tiny", resume=False)
    run = json.loads((folder / "run.json").read_text())
    assert run["version"] == sqair.__version__
    assert run["command"] == "sqair train tiny"
    assert (run["device"], run["seed"], run["ended"]) == ("cpu", 0, None)
    runs.end_run(folder, "stopped")
    assert runs.read_run(folder)["outcome"] == "stopped"
    runs.begin_run(folder, preset("tiny"), "sqair train tiny --resume", resume=True)
    again = runs.read_run(folder)
    assert (len(again["resumed"]), again["started"], again["ended"]) == (1, run["started"], None)


def test_metrics_are_cut_back_and_survive_a_torn_line() -> None:
    folder = Path("run")
    folder.mkdir()
    for step in (10, 20, 30):
        runs.append_metrics(folder, {"step": step, "bound": float("nan") if step == 20 else step / 3})
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 40, "bou')
    assert [line["step"] for line in runs.read_metrics(folder)] == [10, 20, 30]
    runs.cut_metrics(folder, 20)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert lines == [{"step": 10, "bound": 10 / 3}, {"step": 20, "bound": None}]


def test_commit_is_the_packages_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commit = runs.git_commit()
    assert commit is None or len(commit) == 40
    monkeypatch.setattr(sqair, "__file__", str(tmp_path / "sqair/__init__.py"))
    assert runs.git_commit() is None


def fail_second(real: Callable[..., Path]) -> Callable[..., Path]:
    """The function, which fails when it is called for the second time."""
    calls: list[Path] = []

    def call(self: Path, target: Path) -> Path:
        calls.append(self)
        if len(calls) == 2:
            raise OSError("torn")
        return real(self, target)

    return call


def test_a_folder_is_written_whole_or_not_at_all() -> None:
    with pytest.raises(TypeError), folder_written_atomically(Path("a/b")) as part:
        write_json(part / "x.json", {"not": object()})
    assert os.listdir("a") == []
    for value in (1, 2):
        with folder_written_atomically(Path("a/b")) as part:
            write_json(part / "x.json", value)
            assert not Path("a/b/x.json").exists() or value == 2
    assert os.listdir("a") == ["b"]
    assert json.loads(Path("a/b/x.json").read_text()) == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rename", fail_second(Path.rename))
        with pytest.raises(OSError, match="torn"), folder_written_atomically(Path("a/b")) as part:
            write_json(part / "x.json", 3)
    (kept,) = Path("a").rglob("x.json")
    assert json.loads(kept.read_text()) == 2, "the old one is only put aside until the new one is there"
    kept.parent.rename("a/b")
    assert oct(Path("a/b").stat().st_mode) == oct(Path("a").stat().st_mode)

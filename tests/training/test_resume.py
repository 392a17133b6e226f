"""Checkpoints: damage is named and passed over, old formats are read, and one process writes at a time."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from sqair.config import Preset, UserError
from sqair.training import lock, loop, runs
from sqair.training.checkpoint import load_model
from sqair.training.lock import locked
from sqair.training.loop import Progress, train
from sqair.training.manifest import check_manifest, write_manifest
from sqair.training.resume import ADDED, checkpoints, newest


class Enough(Exception):
    """Ends a run that has shown what it was to show."""


def until(step: int) -> Callable[[Progress], None]:
    def end(progress: Progress) -> None:
        if progress.step >= step:
            raise Enough

    return end


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def quick(small: Preset) -> Preset:
    """One slot and few steps, with an evaluation every ten."""
    model = dataclasses.replace(small.model, max_objects=1)
    config = dataclasses.replace(small.train, steps=40, evaluate_every=10, batch=4, stage=10)
    return dataclasses.replace(small, model=model, train=config)


@pytest.fixture(scope="module")
def whole(quick: Preset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(quick, tmp_path_factory.mktemp("runs") / "whole", quiet=True)


@pytest.fixture(scope="module")
def died(quick: Preset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that died after its third evaluation."""
    out = tmp_path_factory.mktemp("runs") / "died"
    with pytest.raises(Enough):
        train(quick, out, quiet=True, callbacks=[until(30)])
    return out


@pytest.fixture
def half(died: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(died, tmp_path / "half")


def assert_same(run: Path, other: Path) -> None:
    for name in ("checkpoints/00000040", "best", ""):
        assert weights(run / name) == weights(other / name), name
    lines = [[(line["step"], line["validation_bound"]) for line in runs.read_metrics(each)] for each in (run, other)]
    assert lines[0] == lines[1]


# --- damage


def test_every_file_of_a_checkpoint_is_in_its_manifest(half: Path) -> None:
    folder = checkpoints(half)[-1]
    listed = json.loads((folder / "manifest.json").read_text())["files"]
    assert sorted([*listed, "manifest.json"]) == sorted(os.listdir(folder))
    assert {"config.json", "model.safetensors", "state.safetensors", "state.json", "metrics.jsonl"} == listed.keys()


@pytest.mark.parametrize("name", ["model.safetensors", "state.json"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_used(
    quick: Preset, whole: Path, half: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = half / "checkpoints/00000030" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    train(quick, half, resume=True)
    said = capsys.readouterr().err
    assert f"{path} is damaged" in said
    assert "resuming from step 20" in said
    assert_same(half, whole)
    assert (half / "checkpoints/damaged-00000030").is_dir(), "put aside, not deleted"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"files": 3}', b'{"files": {"state.json": 1, "../x": 2}}'])
def test_a_damaged_manifest(half: Path, content: bytes) -> None:
    (half / "checkpoints/00000030/manifest.json").write_bytes(content)
    found = newest(half)
    assert (found.notes.step, [path.name for path in found.damaged]) == (20, ["00000030"])


def test_without_an_intact_checkpoint_nothing_is_changed(quick: Preset, half: Path) -> None:
    for folder in checkpoints(half):
        (folder / "state.json").write_text("{")
    before = sorted(half.rglob("*"))
    with pytest.raises(UserError, match=r"none of its checkpoints is intact .*00000030.*start a new run"):
        train(quick, half, quiet=True, resume=True)
    assert sorted(half.rglob("*")) == before


def test_a_damaged_best_model_is_named_and_sought_anew(
    quick: Preset, half: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = half / "best/model.safetensors"
    path.write_bytes(weights(half / "best")[:-4] + b"\0\0\0\1")
    with pytest.raises(UserError, match="is damaged: it is not what"):
        load_model(half)
    train(quick, half, resume=True)
    assert f"{path} is damaged" in capsys.readouterr().err
    load_model(half)
    assert json.loads((half / "config.json").read_text())["training"]["step"] == 40


def test_what_a_killed_process_was_writing_is_deleted(quick: Preset, whole: Path, half: Path) -> None:
    shutil.copytree(half / "best", half / "checkpoints/.00000040.xyz.part")
    shutil.move(half / "best", half / ".best.xyz.part.old")  # killed between two renames
    (half / ".run.json.xyz.part").write_text("{")
    (half / "run.json").write_bytes(b"\xff")
    train(quick, half, quiet=True, resume=True)
    assert not list(half.rglob(".*"))
    assert_same(half, whole)
    assert runs.read_run(half)["outcome"] == "finished"


def test_metrics_are_those_of_the_checkpoint(quick: Preset, whole: Path, half: Path) -> None:
    (half / "metrics.jsonl").write_bytes(b'{"step": 10, "validation_bound": 1.0}\n\xff\n[3]\n{"step": "x"}\n')
    assert [line["step"] for line in runs.read_metrics(half)] == [10]
    train(quick, half, quiet=True, resume=True)
    assert_same(half, whole)


# --- formats


def test_checkpoints_of_version_1_are_read(quick: Preset, whole: Path, half: Path) -> None:
    folder = half / "checkpoints/00000030"
    state = safetensors.numpy.load_file(folder / "state.safetensors")
    old = {name: value for name, value in state.items() if name not in ADDED}
    assert len(old) == len(state) - 2
    safetensors.numpy.save_file(old, folder / "state.safetensors")
    notes = json.loads((folder / "state.json").read_text())
    del notes["rollbacks"], notes["preset"]["train"]["spike"]
    (folder / "state.json").write_text(json.dumps(notes | {"format_version": 1}))
    for name in ("manifest.json", "metrics.jsonl"):
        (folder / name).unlink()
    train(quick, half, quiet=True, resume=True)
    assert_same(half, whole)


def test_newer_formats_are_refused_with_one_line(quick: Preset, half: Path) -> None:
    folder = half / "checkpoints/00000030"
    notes = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps(notes | {"format_version": 3}))
    write_manifest(folder)
    check_manifest(folder)
    with pytest.raises(UserError, match="has format_version 3, this program reads 2; update sqair"):
        newest(half)


def test_a_checkpoint_without_its_manifest_is_damaged(half: Path) -> None:
    (half / "checkpoints/00000030/manifest.json").unlink()
    assert newest(half).notes.step == 20


# --- two processes

HOLD = """
import sys, pathlib
sys.path.insert(0, sys.argv[2])
from sqair.training.lock import locked
with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_and_the_lock_of_a_dead_one_is_not_in_the_way(
    quick: Preset, tmp_path: Path
) -> None:
    words = [sys.executable, "-c", HOLD, str(tmp_path / "run"), str(Path(lock.__file__).parents[2])]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match=rf"run is in use by process {other.pid} on .*choose another --out"):
            train(quick, tmp_path / "run", quiet=True)
        other.kill()
    assert (tmp_path / "run/.lock").is_file(), "left behind"
    with pytest.raises(Enough):
        train(quick, tmp_path / "run", quiet=True, callbacks=[until(1)])
    assert not (tmp_path / "run/.lock").exists()


def test_a_lock_that_its_holder_deletes_meanwhile_is_made_anew(tmp_path: Path, monkeypatch) -> None:
    real, calls = lock._is_at, []

    def gone(handle: int, path: Path) -> bool:
        calls.append(handle)
        if len(calls) == 1:
            path.unlink()
        return real(handle, path)

    monkeypatch.setattr(lock, "_is_at", gone)
    with locked(tmp_path):
        assert len(calls) == 2
        with pytest.raises(UserError, match=f"process {os.getpid()}"), locked(tmp_path):
            pass
        (tmp_path / ".lock").write_text("?")
        with pytest.raises(UserError, match="another process"), locked(tmp_path):
            pass
    assert os.listdir(tmp_path) == []


def test_a_folder_in_which_nothing_was_written_is_not_left_behind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no luck"), locked(tmp_path / "new/run"):
        raise UserError("no luck")
    assert not list(tmp_path.iterdir())
    with locked(tmp_path / "new/run"):
        (tmp_path / "new/run/file").touch()
    assert [path.name for path in (tmp_path / "new/run").iterdir()] == ["file"]


def test_a_run_that_died_before_its_first_step_can_be_resumed(quick: Preset, whole: Path, tmp_path: Path) -> None:
    def die(*_: Any) -> None:
        raise Enough

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Run, "advance", die)
        with pytest.raises(Enough):
            train(quick, tmp_path, quiet=True)
    assert [folder.name for folder in checkpoints(tmp_path)] == ["00000000"]
    (tmp_path / "run.json").unlink()
    train(quick, tmp_path, quiet=True, resume=True)
    assert_same(tmp_path, whole)
    assert np.isfinite(runs.read_metrics(tmp_path)[-1]["validation_bound"])

"""What goes wrong gives one line, the right exit code and no file."""

import gzip
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sqair.commands import Demo


def test_unknown_preset(refused) -> None:
    assert refused(2, "train", "sqair-mpl") == "sqair train: unknown preset 'sqair-mpl'; did you mean 'sqair-mlp'?"
    assert refused(2, "train") == (
        "sqair train: name a preset: sqair-mlp, sqair-conv, air-mlp, vrnn-mlp-small, vrnn-mlp, vrnn-mlp-large, "
        "vrnn-conv-small, vrnn-conv, vrnn-conv-large, sqair-pedestrians, tiny"
    )


def test_unknown_command_and_option(refused) -> None:
    assert refused(2, "trian") == "sqair: unknown command 'trian'; did you mean 'train'?"
    assert refused(2, "--versoin") == "sqair: unknown option '--versoin'; did you mean '--version'?"


def test_steps_or_minutes(refused) -> None:
    line = refused(2, "train", "tiny", "--steps", "3", "--minutes", "1")
    assert line == "sqair train: --steps and --minutes exclude each other; give one"


def test_minutes_that_are_none(refused) -> None:
    for minutes in ("-1", "0", "nan", "inf"):
        line = refused(1, "train", "tiny", "--minutes", minutes)
        assert line == f"sqair train: --minutes must be more than 0, not {minutes}"


def test_what_cannot_be_swept(refused) -> None:
    line = refused(2, "train", "tiny", "--sweep", "batch=8,16")
    assert line == (
        "sqair train: --sweep cannot vary 'batch'; it takes learning_rate, clip_frame, discovery_dropout, "
        "discovery_cost, rediscovery_cost, presence_cost, surplus_cost, presence_delay, seed, "
        "such as learning_rate=1e-4,3e-4"
    )
    assert "wants numbers" in refused(2, "train", "tiny", "--sweep=seed=one")
    assert "train.members must be at least 1" in refused(1, "train", "tiny", "--members=0")


def test_tensorboard_needs_its_package(refused, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tensorboardX" else real(name))
    assert "run `pip install 'sqair[log]'`" in refused(1, "train", "tiny", "--tensorboard")


@pytest.mark.parametrize(
    ("flag", "value", "line"),
    [
        ("--model.max-objects", "0", "model.max_objects must be at least 1, not 0"),
        ("--model.width", "0", "model.width must be at least 1, not 0"),
        ("--train.learning-rate", "-1", "train.learning_rate must be more than 0, not -1.0"),
        ("--train.discovery-dropout", "1.5", "train.discovery_dropout must be between 0 and 1, not 1.5"),
        ("--data.speed", "nan", "data.speed must be at least 0, not nan"),
    ],
)
def test_settings_out_of_range(flag: str, value: str, line: str, refused) -> None:
    assert refused(1, "train", "tiny", flag, value) == f"sqair train: {line}"
    assert refused(1, "train", "tiny", flag, value, "--minutes=1") == f"sqair train: {line}"


def test_data_out_of_range(refused) -> None:
    words = ("data", "moving-mnist", "--digits", "strokes", "--out", "x.npz")
    assert refused(1, *words, "--data.speed", "nan") == "sqair data: data.speed must be at least 0, not nan"
    assert "--seed must be between 0 and" in refused(1, *words, "--seed", "-1")


def test_nvil_without_particles(refused) -> None:
    words = ("--train.bound=elbo", "--train.estimator=nvil", "--train.particles=0")
    assert "train.particles must be at least 1, not 0" in refused(1, "train", "tiny", *words)


def test_pedestrians_need_data(refused) -> None:
    line = refused(2, "train", "sqair-pedestrians")
    assert line == "sqair train: sqair-pedestrians has no data of its own; give yours with --data FILE.npz"


def test_resume_or_overwrite(refused) -> None:
    line = refused(2, "train", "tiny", "--resume", "--overwrite")
    assert line == "sqair train: --resume and --overwrite exclude each other; give one"


@pytest.mark.parametrize("folder", ["file/x", "n" * 300, "/proc/none"])
@pytest.mark.parametrize(
    "command", [("train", "tiny"), ("sample",), ("demo",), ("evaluate", "sqair-strokes"), ("data",)]
)
def test_out_that_cannot_be_written(command: tuple[str, ...], folder: str, refused, here: Path, monkeypatch) -> None:
    """Found before the work, which would fail here."""
    from sqair.training import checkpoint, population

    for module, name in ((checkpoint, "load_tensors"), (population, "first_state")):
        monkeypatch.delattr(module, name)
    (here / "file").write_text("mine")
    out = f"{folder}/x.npz" if command[0] == "data" else folder
    words = (*command, "--digits=strokes") if command[0] == "data" else command
    line = refused(1, *words, "--out", out)
    assert f"cannot write to {folder}" in line
    assert "choose another --out" in line


def test_data_goes_into_an_npz_file(refused) -> None:
    assert "--out must be a file whose name ends in .npz, not e.txt" in refused(2, "data", "--out", "e.txt")


def test_disk_that_fails(refused, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Demo) -> None:
        raise OSError(28, "No space left on device", "a.png")

    monkeypatch.setattr(Demo, "run", fail)
    assert refused(1, "demo") == "sqair demo: No space left on device: a.png"


def test_config_file_missing_or_broken(refused, here: Path) -> None:
    assert "none.toml does not exist" in refused(1, "train", "tiny", "--config", "none.toml")
    (here / "broken.toml").write_text("[model\n")
    assert "broken.toml is not TOML" in refused(1, "train", "tiny", "--config", "broken.toml")


def test_zero_sequences(refused) -> None:
    line = refused(1, "data", "moving-mnist", "--digits", "strokes", "--sequences", "0", "--out", "x.npz")
    assert "at least 1" in line
    assert "at least 1" in refused(1, "sample", "--count", "0", "--out", "x")


def test_unknown_data(refused) -> None:
    line = refused(1, "data", "moving-mnits", "--digits", "strokes", "--out", "x.npz")
    assert "did you mean 'moving-mnist'?" in line


def test_truncated_digits(refused, here: Path) -> None:
    folder = here / "digits"
    folder.mkdir()
    for part in ("train", "t10k"):
        images = bytes([0, 0, 8, 3, 0, 0, 0, 9, 0, 0, 0, 28, 0, 0, 0, 28]) + bytes(8 * 28 * 28)
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 9]) + bytes(9))
    line = refused(1, "data", "moving-mnist", "--digits", folder, "--out", "x.npz")
    assert "train-images-idx3-ubyte.gz is truncated" in line


def test_wrong_checksum(refused, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "mnist").mkdir()
    for name in ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"):
        (here / "mnist" / name).write_bytes(gzip.compress(b"not the original"))
    monkeypatch.setenv("SQAIR_DATA", str(here))
    assert "checksum" in refused(1, "data", "moving-mnist", "--digits", "mnist", "--out", "x.npz")


@pytest.mark.parametrize(
    "words",
    [
        ("data", "none.npz", "--out", "x.npz"),
        ("evaluate", "none"),
        ("sample", "--model", "none"),
        ("demo", "--model", "none"),
    ],
)
def test_missing_file(words: tuple[str, ...], refused) -> None:
    assert "none" in refused(1, *words)


@pytest.mark.parametrize("words", [("train", "tiny"), ("sample",), ("demo",), ("evaluate", "none")])
def test_out_that_is_not_empty(words: tuple[str, ...], refused, here: Path) -> None:
    (here / "taken").mkdir()
    (here / "taken" / "notes.txt").write_text("mine")
    line = refused(2, *words, "--out", "taken")
    assert "taken" in line
    assert "--resume" in line
    assert "--overwrite" in line


def test_file_that_exists(refused, here: Path) -> None:
    (here / "x.npz").write_text("mine")
    assert "--overwrite" in refused(2, "data", "moving-mnist", "--digits", "strokes", "--out", "x.npz")


def test_no_gpu(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    words = [sys.executable, "-m", "sqair", "sample", "--device", "gpu", "--quiet"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert 'pip install ".[cuda13]"' in line
    assert "--device cpu" in line
    assert list(here.iterdir()) == []


def test_weights_of_another_model(refused, models, here: Path) -> None:
    shutil.copytree(models / "tiny", here / "mixed")
    shutil.copy(models / "wider" / "model.safetensors", here / "mixed")
    for words in (("evaluate", "mixed"), ("sample", "--model", "mixed"), ("demo", "--model", "mixed")):
        assert "is not a file of this model" in refused(1, *words)


def test_frames_of_another_size(refused, models) -> None:
    line = refused(1, "evaluate", models / "tiny", "--data", models / "large.npz")
    assert "large.npz has frames of 20x20, the model was made for 16x16" in line


class TestUnexpected:
    """Errors of ours, and signals."""

    def fail(self, error: BaseException):
        def run(self: Demo) -> None:
            raise error

        return run

    def test_internal_error(self, refused, sqair, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Demo, "run", self.fail(ValueError("a\nb")))
        assert refused(1, "demo") == "sqair demo: internal error: ValueError: a b; run again with --debug"
        done = sqair("demo", "--debug")
        assert done.code == 1
        assert done.err.startswith("Traceback")
        assert done.err.endswith("sqair demo: internal error: ValueError: a b\n")

    def test_traceback_of_a_user_error_only_with_debug(self, sqair) -> None:
        assert "Traceback" not in sqair("evaluate", "none").err
        assert "Traceback" in sqair("evaluate", "none", "--debug").err

    def test_interrupt(self, refused, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Demo, "run", self.fail(KeyboardInterrupt()))
        assert refused(130, "demo") == "sqair demo: stopped"

    def test_termination(self, refused, monkeypatch: pytest.MonkeyPatch) -> None:
        before = signal.getsignal(signal.SIGTERM)
        monkeypatch.setattr(Demo, "run", lambda self: os.kill(os.getpid(), signal.SIGTERM))
        assert refused(143, "demo") == "sqair demo: stopped"
        assert signal.getsignal(signal.SIGTERM) is before


def test_a_reader_who_leaves_sees_no_traceback(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "sqair", "--help"], stdout=pipe, stderr=subprocess.PIPE, cwd=tmp_path
        )
    assert done.returncode == 1
    assert done.stderr == b""

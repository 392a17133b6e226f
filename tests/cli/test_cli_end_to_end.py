"""From data to numbers: data, train and evaluate on a model that is tiny and hardly trained."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sqair.cli import main
from sqair.commands import Train, speed
from sqair.data import Sequences, load_sequences, save_sequences
from sqair.training.loop import Run

DATA = ["--data.length=3", "--data.size", "16", "16", "--data.max-digits=1", "--data.digit-scale=0.4", "--data.speed=2"]
MODEL = ["--model.image", "16", "16", "--model.glimpse", "6", "6", "--model.max-objects=2", "--model.what-size=4"]
MODEL += ["--model.width=8"]
TRAIN = ["--train.batch=2", "--train.particles=2", "--train.validation-sequences=2", "--train.evaluate-every=2"]
TRAIN += ["--train.stage=1"]
# All runs below have the same settings, two steps included, so that one compilation serves them all.
KEYS = [
    "model",
    "data",
    "sequences",
    "particles",
    "seed",
    "device",
    "seconds",
    "log_p",
    "log_p_se",
    "reconstruction",
    "kl",
    "reconstruction_weighted",
    "kl_weighted",
    "counting",
    "counting_weighted",
    "counting_mode",
    "counting_visible",
    "rediscoveries_per_frame",
    "mota",
    "idf1",
    "hota",
    "id_switches",
    "presence_ece",
    "box_coverage",
    "ess",
]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with digits.npz and a run trained on it for two steps."""
    folder = tmp_path_factory.mktemp("work")
    data = [
        "data",
        "moving-mnist",
        "--digits=strokes",
        "--split=test",
        "--sequences=20",
        "--out",
        folder / "digits.npz",
    ]
    assert main([*map(str, data), *DATA, "--quiet"]) == 0
    train = ["train", "tiny", "--steps=2", "--data", folder / "digits.npz", "--out", folder / "run"]
    assert main([*map(str, train), *DATA, *MODEL, *TRAIN, "--quiet"]) == 0
    return folder


def test_data(work: Path, sqair) -> None:
    made = load_sequences(work / "digits.npz")
    assert made.frames.shape == (20, 3, 16, 16)
    assert made.boxes is not None
    assert made.counts is not None
    assert set(np.unique(made.counts)) == {0, 1}
    with Image.open(work / "digits.png") as preview:
        assert preview.size[1] > 8 * 16
    done = sqair("data", work / "digits.npz", "--sequences=5", "--out", "few.npz", *DATA)
    assert (done.code, done.out) == (0, "Results saved to few.npz\n")
    assert np.array_equal(load_sequences("few.npz").frames, made.frames[:5])
    again = sqair("data", work / "digits.npz", "--sequences=4", "--out", "few.npz", *DATA, "--overwrite")
    assert again.code == 0
    assert len(load_sequences("few.npz").frames) == 4


def test_data_chooses_its_folder(work: Path, sqair) -> None:
    for folder in ("digits", "digits-2"):
        done = sqair("data", work / "digits.npz", "--sequences=2", *DATA)
        assert done.out == f"Results saved to runs/data/{folder}/sequences.npz\n"
        assert sorted(os.listdir(f"runs/data/{folder}")) == ["sequences.npz", "sequences.png"]


def test_train_wrote_a_run(work: Path) -> None:
    assert {"run.json", "preset.json", "metrics.jsonl", "best", "checkpoints"} <= set(os.listdir(work / "run"))
    preset = json.loads((work / "run" / "preset.json").read_text())
    assert preset["model"]["width"] == 8
    assert preset["train"]["steps"] == 2
    pictures = work / "run" / "reconstructions"
    assert sorted(os.listdir(pictures)) == ["latest.png", "step-000002.png"]
    for path in (pictures / "latest.png", work / "run" / "curves.png"):
        with Image.open(path) as picture:
            assert min(picture.size) > 100


def test_a_trained_model_knows_what_it_was_trained_on(work: Path, sqair) -> None:
    """Its own data are not remarked upon, a clip that is brighter is."""
    frames = np.asarray(load_sequences(work / "digits.npz").frames)
    numbers = json.loads((work / "run/config.json").read_text())["training"]["typical"]
    assert numbers == json.loads((work / "run/best/config.json").read_text())["training"]["typical"]
    low, high = numbers["brightness"]
    assert 0 < low + high < 2 * frames.mean((1, 2, 3)).max() / 255
    np.save("own.npy", frames[int(frames[:18].mean((1, 2, 3)).argmax())])
    np.save("bright.npy", np.full((3, 16, 16), 120, np.uint8))
    done = sqair("track", "own.npy", "bright.npy", "--model", work / "run", "--out=x", "--quiet")
    assert done.code == 0, done.err
    assert done.err.startswith("warning: bright.npy: it is brighter than")
    assert "own.npy" not in done.err


def test_termination_saves_and_resume_goes_on(work: Path, sqair, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--data", work / "digits.npz", "--out", "run", *DATA, *MODEL, *TRAIN, "--steps=2"]
    with monkeypatch.context() as patch:
        patch.setattr(Run, "notify", lambda self, lines: os.kill(os.getpid(), signal.SIGTERM))
        stopped = sqair("train", "tiny", *words)
    assert (stopped.code, stopped.out) == (143, "")
    assert stopped.err.splitlines()[-1] == "sqair train: stopped; continue with --resume --out run"
    assert sorted(os.listdir("run/checkpoints")) == ["00000000", "00000001"]
    assert sqair("train", "--resume", "--out", "run", "--quiet") == (0, "Results saved to run\n", "")
    (line,) = Path("run/metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["step"] == 2


def test_resume_starts_from_the_runs_own_settings(work: Path, sqair, refused) -> None:
    words = ("train", "tiny", "--resume", "--out", work / "run")
    assert "model.width differs from the run's" in refused(1, *words, "--model.width=9")
    line = refused(1, *words, "--train.batch=3", "--data.length=2", "--switches=paper")
    assert "model.where_prior, model.what_update, data.length, train.batch differ from the run's" in line
    assert "train.validation_sequences differs" in refused(1, *words, "--train.validation-sequences=1")
    line = refused(1, *words, "--steps=4")
    assert "with other steps than its 2" in line
    assert "start a new run" in line
    assert "--train.final-decay 0" in line
    before = json.loads((work / "run" / "preset.json").read_text())
    assert sqair(*words, "--quiet").code == 0
    assert json.loads((work / "run" / "preset.json").read_text()) == before


def test_evaluate(work: Path, sqair) -> None:
    words = ["evaluate", work / "run", "--particles=3", "--seed=0"]
    done = sqair(*words, "--json")
    assert done.code == 0
    said = f"the model was trained on {work / 'digits.npz'}: using the 2 sequences held out"
    assert done.err.splitlines()[-2:] == [said, "Results saved to runs/evaluate/run"]
    numbers = json.loads(done.out)
    assert list(numbers) == KEYS
    assert (numbers["model"], numbers["data"]) == (str(work / "run"), str(work / "digits.npz"))
    assert numbers["sequences"] == 2
    assert numbers["reconstruction"] - numbers["kl"] <= numbers["log_p"]
    assert json.loads(Path("runs/evaluate/run/metrics.json").read_text()) == numbers
    again = sqair(*words, "--json", "--quiet", "--overwrite")
    assert (json.loads(again.out) | {"seconds": 0}, again.err) == (numbers | {"seconds": 0}, "")
    readable = sqair(*words, "--quiet")
    assert (readable.code, readable.err) == (0, "")
    assert readable.out.splitlines()[-1] == "Results saved to runs/evaluate/run-2"
    assert f"log_p                    {numbers['log_p']:.2f}" in readable.out


def test_evaluate_takes_all_of_another_file_in_the_trained_length(work: Path, sqair, monkeypatch) -> None:
    made = load_sequences(work / "digits.npz")
    longer = np.concatenate([made.frames[:7], made.frames[:7]], axis=1)
    save_sequences("other.npz", Sequences(longer))
    reads: list[str] = []

    def read(path: str) -> Sequences:
        reads.append(path)
        return load_sequences(path)

    monkeypatch.setattr("sqair.data.load_sequences", read)
    done = sqair("evaluate", work / "run", "--data=other.npz", "--particles=3", "--json")
    assert "held out" not in done.err
    assert json.loads(done.out)["sequences"] == 7
    assert reads == ["other.npz"], "read once"
    save_sequences("short.npz", made._replace(frames=made.frames[-2:], **truth_of(made, slice(-2, None))))
    short, held_out = (
        json.loads(sqair("evaluate", work / "run", *data, "--particles=3", "--json", "--overwrite", "--quiet").out)
        for data in (["--data=short.npz"], [])
    )
    assert short["log_p"] == held_out["log_p"], "the last tenth is what was held out"


def truth_of(sequences: Sequences, part: slice) -> dict[str, np.ndarray | None]:
    """The truth about a part of the sequences."""
    known = sequences._asdict() | {"frames": None}
    return {name: values[part] for name, values in known.items() if values is not None}


def test_evaluate_prints_before_it_saves(work: Path, sqair, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device", "metrics.json")

    monkeypatch.setattr("sqair.training.files.write_json", fail)
    done = sqair("evaluate", work / "run", "--particles=3", "--json", "--quiet")
    assert (done.code, done.err) == (1, "sqair evaluate: No space left on device: metrics.json\n")
    assert json.loads(done.out)["sequences"] == 2


def test_evaluate_refuses_numbers_that_make_no_sense(work: Path, refused) -> None:
    assert "at least 1" in refused(1, "evaluate", work / "run", "--sequences=0")
    assert "at least 1" in refused(1, "evaluate", work / "run", "--sequences=2", "--particles=0")
    assert "--sequences" in refused(1, "evaluate", work / "run", "--sequences=21")


def test_minutes_become_steps(work: Path, sqair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "measure", lambda *_: speed.Speed(compiling=10.0, first=1.0, last=1.0))
    words = ["--data", work / "digits.npz", "--out", "run", *DATA, *MODEL, *TRAIN, "--quiet"]
    done = sqair("train", "tiny", "--minutes", "0.23", *words)  # 13.8 s, a tenth kept, less 10 s
    assert done.code == 0, done.err
    assert json.loads(Path("run/preset.json").read_text())["train"]["steps"] == 2
    assert "too few" in sqair("train", "tiny", "--minutes", "0.1", *words, "--overwrite").err
    assert "keeps its number of steps" in sqair("train", "--resume", "--out=run", "--minutes", "0.23", "--quiet").err


def test_speed_is_measured_with_the_step_of_training(work: Path) -> None:
    words = ["tiny", "--steps=2", "--data", str(work / "digits.npz"), *DATA, *MODEL, *TRAIN]
    found = speed.measure(Train.parse(words).resolved())
    assert 0 < found.first < 1
    assert 0 < found.last < 1

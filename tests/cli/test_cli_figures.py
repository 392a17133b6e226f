"""``sqair figures``: which can be made, and what is written."""

import dataclasses
import json
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np
import pytest

from sqair.commands.figures import FIGURES
from sqair.config import DataConfig, ModelConfig
from sqair.data import Camera, Sequences, cut_sequences, load_sequences, save_sequences
from sqair.data.background import Subtraction
from sqair.data.crops import Cutting
from sqair.data.digits import STROKES
from sqair.gallery import mistakes, sequences
from sqair.gallery.drawing import strips
from sqair.settings import to_dict
from sqair.training.checkpoint import build, save_model


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_figures_without_models(sqair, here: Path) -> None:
    done = sqair("figures", "generation")
    assert (done.code, done.out) == (0, "Results saved to runs/figures/generation\n"), done.err
    assert files(here / "runs" / "figures" / "generation") == ["generation.pdf", "generation.png"]


def test_without_weights_one_line(refused) -> None:
    line = refused(1, "figures", "partial", "--model", "nowhere", "--air", "neither")
    assert line == (
        "sqair figures: no partial without nowhere (--model), neither (--air): train such a model and name its folder"
    )


def test_a_model_of_another_kind_is_refused(refused, models: Path) -> None:
    line = refused(1, "figures", "vrnn", "--vrnn", models / "tiny")
    assert line.endswith("is of the kind sqair, not vrnn")


def test_figures_of_a_model(sqair, models: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All figures for which there is a model; every one is drawn from the same few programs."""
    monkeypatch.setitem(STROKES, "test", (60, 3))
    monkeypatch.setattr(sequences, "DREAMS", 6)
    monkeypatch.setattr(mistakes, "BATCH", 4)
    words = ("--model", models / "tiny", "--air", "no", "--vrnn", "no", "--in-out", "no", "--sequences", "6")
    done = sqair("figures", *words, "--out", "pictures")
    assert done.code == 0, done.err
    assert "no partial, curves, consistency, in-out, vrnn without no (--air), no (--vrnn), no (--in-out)" in done.err
    made = ("generation", "inference", "reconstructions", "samples", "conditional", "failures")
    expected = [f"{name}.{kind}" for name in made for kind in ("pdf", "png")] + ["failures.json", "samples.json"]
    assert files(here / "pictures") == sorted(expected)
    shares = json.loads((here / "pictures" / "samples.json").read_text())
    assert sum(shares["samples"]) == pytest.approx(1) == sum(shares["data"])
    assert json.loads((here / "pictures" / "failures.json").read_text())["sequences"] == 6
    assert set(made) <= set(FIGURES)


# --- sequences of a file


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with sequences of a street, `people.npz`, a model of them, one in colour, one with a background."""
    folder, camera = tmp_path_factory.mktemp("people"), Camera(frames=40, size=(64, 86))
    cutting = Cutting(height=0, crop=(24, 24), length=4, sequences=40)
    save_sequences(
        folder / "people.npz", cut_sequences(camera.clip(), Subtraction(), cutting, camera.truth()).sequences
    )
    data = DataConfig(str(folder / "people.npz"), length=4, size=(24, 24))
    plain = ModelConfig(image=(24, 24), glimpse=(8, 4), max_objects=2, what_size=4, width=8)
    other = {"colour": {"channels": 3}, "raw": {"background": "running"}}
    for name, changes in {"plain": {}, **other}.items():
        model = build(dataclasses.replace(plain, **changes), jax.random.key(0))
        save_model(folder / name, model, {"data": to_dict(data)})
    save_sequences(folder / "few.npz", Sequences(np.full((2, 4, 24, 24, 3), 9, np.uint8)))
    return folder


def test_figures_of_a_file(sqair, people: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be made is; samples tell how many objects the data has, continuation goes on beyond its end."""
    monkeypatch.setattr(sequences, "DREAMS", 6)
    shown = []
    monkeypatch.setattr(sequences, "strips", lambda rows, **how: shown.append((rows, how)) or strips(rows, **how))
    words = ("--model", people / "plain", "--air", "no", "--vrnn", "no", "--in-out", "no")
    done = sqair("figures", *words, "--observe", "2", "--frames", "3", "--out", "pictures")
    assert done.code == 0, done.err
    assert f"no failures of {people / 'people.npz'}: moving digits are needed" in done.err
    made = ("generation", "inference", "reconstructions", "samples", "conditional")
    expected = [f"{name}.{kind}" for name in made for kind in ("pdf", "png")] + ["samples.json"]
    assert files(here / "pictures") == sorted(expected)
    shares = json.loads((here / "pictures" / "samples.json").read_text())
    held_out = np.asarray(load_sequences(people / "people.npz").counts)[-4:]
    assert shares["data"][:2] == [(held_out == 0).mean(), (held_out == 1).mean()]
    rows, how = shown[-1]
    assert how["observed"] == 2
    assert {len(row.frames) for row in rows} == {4, 5}, "the truth ends before the dream does"


def test_a_file_without_truth_in_colour(sqair, people: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another file than that of training: all of it is shown, and only samples are counted."""
    monkeypatch.setattr(sequences, "DREAMS", 6)
    words = ("--model", people / "colour", "--data", people / "few.npz", "--out", "pictures")
    assert sqair("figures", "samples", *words).code == 0
    shares = json.loads((here / "pictures" / "samples.json").read_text())
    assert list(shares) == ["samples"]
    assert sum(shares["samples"]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("code", "words", "told"),
    [
        (1, ["failures", "--model", "plain"], "moving digits are needed; choose from reconstructions, samples, cond"),
        (1, ["samples", "--model", "raw"], "has a background of its own, which figures do not draw"),
        (1, ["samples", "--model", "colour"], "the model sees frames of 24x24x3, the data has 24x24x1"),
        (1, ["samples", "--model", "plain", "--data", "no.npz"], "does not exist"),
        (2, ["samples", "--model", "plain", "--data", "clip.mp4"], "whose name ends in .npz, not"),
        (1, ["conditional", "--model", "plain", "--observe", "4"], "--observe must be from 1 to 3, or 4 with --frames"),
        (1, ["conditional", "--model", "plain", "--frames", "0"], "--frames must be at least 1, not 0"),
        (2, ["vrnn", "--data", "plain.npz"], "--data is for figures of --model, and vrnn is none"),
        (
            2,
            ["samples", "--model", "plain", "--observe", "2"],
            "--observe and --frames are for conditional, not for samples",
        ),
    ],
)
def test_what_cannot_be_drawn(refused, people: Path, code: int, words: list[str], told: str) -> None:
    given = [people / word if before in ("--model", "--data") else word for before, word in pairwise(["", *words])]
    assert told in refused(code, "figures", *given)

"""``sqair figures``: which can be made, and what is written."""

import json
from pathlib import Path

import pytest

from sqair.commands.figures import FIGURES
from sqair.data.digits import STROKES
from sqair.gallery import mistakes, sequences


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

"""``sqair table``: rows that exist, those that do not, and what it prints."""

import json
from pathlib import Path

import jax
import pytest

from sqair.commands import table as module
from sqair.commands.table import missing_line
from sqair.config import ModelConfig
from sqair.data.digits import STROKES
from sqair.evaluation import table
from sqair.settings import from_dict
from sqair.training import checkpoint
from sqair.training.checkpoint import build, read_card, save_model


@pytest.fixture
def in_out(models: Path, here: Path) -> Path:
    """An untrained AIR, with a card that says it was trained on digits in and out, as one of two seeds."""
    folder, card = here / "in-out", read_card(models / "tiny")
    config = from_dict(ModelConfig, card["model"] | {"kind": "air"}, "model.")
    data = card["training"]["data"] | {"name": "moving-mnist-in-out", "length": 6}
    save_model(folder, build(config, jax.random.key(0)), {"data": data, "seeds": [{"log_p": 1.5}, {"log_p": 3.5}]})
    return folder


def test_a_row(sqair, in_out: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STROKES, "test", (60, 3))
    monkeypatch.setattr(table, "FEW", 1)
    words = ("--models", in_out, "--sequences", "30", "--particles", "2", "--addition", "40")
    done = sqair("table", *words)
    assert done.code == 0, done.err
    assert done.out.startswith("| model ")
    assert "in-out: 30 sequences of moving-mnist-in-out (strokes), K = 2." in done.out
    assert "in-out: median / worst of 2 seeds: log_p 2.5 / 1.5." in done.out
    assert "digits that returned were found within two frames (K = 1)." in done.out
    assert done.out.endswith("Results saved to runs/table/in-out\n")
    (row,) = json.loads((here / "runs" / "table" / "in-out" / "table.json").read_text())
    assert (row["model"], row["row"], row["sequences"], row["particles"]) == ("in-out", "air-mlp", 30, 2)
    assert row["counting_weighted"] is not None
    assert row["returned"] > 0
    assert row["addition_same"] is None
    assert (here / "runs" / "table" / "in-out" / "table.md").read_text() in done.out
    plain = sqair("table", *words, "--json", "--quiet", "--overwrite")
    (again,) = json.loads(plain.out)
    assert {**again, "seconds": 0} == {**row, "seconds": 0}


def test_what_is_not_shipped_is_named_in_one_line(refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "shipped_models", lambda: ["sqair-strokes"])
    line = refused(1, "table")
    assert line == "sqair table: " + missing_line(list(module.ROWS))
    assert "sqair train NAME" in line
    assert missing_line([]) == ""
    assert refused(1, "table", "--models", "nowhere").startswith("sqair table: no model 'nowhere'")


def test_a_model_of_other_data_is_refused(refused, models: Path, here: Path) -> None:
    card = read_card(models / "tiny")
    shapes = from_dict(ModelConfig, card["model"] | {"kind": "air"}, "model.")
    save_model(
        here / "other", build(shapes, jax.random.key(0)), {"data": card["training"]["data"] | {"name": "mine.npz"}}
    )
    assert "other was trained on mine.npz" in refused(1, "table", "--models", here / "other")
    assert "other was trained on mine.npz" in refused(
        1, "figures", "partial", "--model", models / "tiny", "--air", "other"
    )

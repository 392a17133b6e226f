"""``sqair ablate``: every ablation can be built, one is run on a small model, and what it writes."""

import dataclasses
import json
from pathlib import Path
from typing import NamedTuple

import jax
import pytest

from sqair.config import AUTHORS_SWITCHES, ModelConfig, Preset
from sqair.data import Source
from sqair.data.digits import STROKES
from sqair.evaluation import ablations
from sqair.evaluation.ablations import ABLATIONS, ablated, spread, text
from sqair.model import SequenceModel
from sqair.training.checkpoint import build
from sqair.training.members import new_members


@pytest.mark.parametrize("name", ABLATIONS)
def test_each_changes_what_it_says_and_nothing_else(name: str) -> None:
    chosen, plain = (ablated(each, steps=5000, seeds=5, digits="strokes") for each in (name, "default"))
    expected = Preset(
        dataclasses.replace(plain.model, **ABLATIONS[name].model),
        plain.data,
        dataclasses.replace(plain.train, **ABLATIONS[name].train),
    )
    assert chosen == expected
    assert (chosen == plain) == (name == "default")
    assert (chosen.train.members, chosen.train.steps) == (5, 5000)


def test_the_curriculum_reaches_all_frames_early() -> None:
    train = ablated("default", steps=5000, seeds=5).train
    assert train.first_length + 5000 // 2 // train.stage >= 10


def test_each_switch_of_the_authors_has_an_ablation() -> None:
    changed = {name for name, value in AUTHORS_SWITCHES.items() if getattr(ModelConfig(), name) != value}
    alone = [each.model for name, each in ABLATIONS.items() if name.startswith("authors-") and len(each.model) == 1]
    assert {name for model in alone for name in model} == changed


def test_refusals(refused) -> None:
    assert refused(2, "ablate") == "sqair ablate: name an ablation; `sqair ablate --list` shows them"
    assert "did you mean 'no-curriculum'?" in refused(1, "ablate", "no-curiculum")
    assert "must be at least 1" in refused(1, "ablate", "default", "--seeds", "0")


def test_list(sqair) -> None:
    done = sqair("ablate", "--list")
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()] == list(ABLATIONS)


def test_median_and_worst() -> None:
    assert spread([0.5, 0.9, 0.8], "counting") == "0.8000 (0.5000)"
    assert spread([0.5, 0.9, None], "rediscoveries_per_frame") == "0.7000 (0.9000)"
    assert spread([None], "log_p") == ""
    row = dict.fromkeys(ablations.COLUMNS, 1.0)
    assert "| one      | 2     |" in text([{"name": "one", "rows": [row, row]}])


class Trained(NamedTuple):
    """A state of training in which every member has had so many steps."""

    model: SequenceModel
    steps: int


class Quick:
    """Stands for a Population, whose own tests train: members are untrained models, one for each seed."""

    def __init__(self, preset: Preset) -> None:
        self.members = new_members(preset)
        self.config = ModelConfig(kind="air", image=(16, 16), glimpse=(6, 6), max_objects=2, what_size=4, width=8)
        assert preset.train.discovery_cost == 0

    def first(self) -> Trained:
        return Trained(build(self.config, jax.random.key(0)), 0)

    def advance(self, state: Trained, source: Source, count: int) -> Trained:
        assert source.fixed(1).frames.shape == (1, 3, 16, 16)
        return state._replace(steps=state.steps + count)

    def take(self, model: SequenceModel, number: int) -> SequenceModel:
        return build(self.config, jax.random.key(number))


def test_run(sqair, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = ablations.preset("sqair-mlp")
    data = dataclasses.replace(full.data, length=3, size=(16, 16), max_digits=1, digit_scale=0.4, speed=2.0)
    model = dataclasses.replace(full.model, image=(16, 16))
    monkeypatch.setattr(ablations, "preset", lambda name: Preset(model, data, full.train))
    monkeypatch.setattr(ablations, "Population", Quick)
    monkeypatch.setitem(STROKES, "train", (60, 1))
    monkeypatch.setitem(STROKES, "validation", (60, 2))
    other = here / "runs" / "ablate" / "another"
    other.mkdir(parents=True)
    rows = [dict.fromkeys(("seed", *ablations.COLUMNS), 0.25)]
    (other / "ablation.json").write_text(json.dumps({"name": "another", "rows": rows}))
    words = ("--digits", "strokes", "--steps", "11", "--seeds", "2", "--sequences", "3", "--particles", "2")
    done = sqair("ablate", "no-discovery-cost", *words)
    assert done.code == 0, done.err
    assert "step 11 of 11" in done.err
    assert "| another           | 1     | 0.2500 (0.2500)" in done.out
    assert "| no-discovery-cost | 2 " in done.out
    found = json.loads((here / "runs" / "ablate" / "no-discovery-cost" / "ablation.json").read_text())
    assert [row["seed"] for row in found["rows"]] == [0, 1]
    assert found["rows"][0]["log_p"] != found["rows"][1]["log_p"]
    assert found["settings"]["train"]["discovery_cost"] == 0
    assert found["settings"]["train"]["steps"] == 11

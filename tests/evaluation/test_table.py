"""Table 1: its numbers against the functions they come from, its text, and the FIVO bound against a plain loop."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sqair.config import ModelConfig, VRNNConfig
from sqair.data import FileSource, Sequences
from sqair.evaluation import fivo as fivo_module
from sqair.evaluation.fivo import fivo
from sqair.evaluation.table import COLUMNS, PAPER, row_of, seeds, text
from sqair.model import SequenceModel
from sqair.particles import draw_particles, particle_filter
from sqair.training.checkpoint import build

MODEL = ModelConfig(
    kind="vrnn", image=(16, 16), max_objects=1, width=8, output_std=0.8, vrnn=VRNNConfig(latent_size=4, layers=1)
)


@pytest.fixture(scope="module")
def model() -> SequenceModel:
    return build(MODEL, jax.random.key(1))


@pytest.fixture(scope="module")
def source() -> FileSource:
    frames = np.random.default_rng(0).integers(0, 256, (5, 3, 16, 16), np.uint8)
    return FileSource(Sequences(jnp.asarray(frames)), "made.npz")


def test_the_papers_numbers() -> None:
    """Three rows have reconstruction - KL above log p, which DEFINITIONS explains; it shows that none is mistyped."""
    assert [name for name, row in PAPER.items() if row.reconstruction - row.kl > row.log_p] == [
        "sqair-conv",
        "sqair-mlp",
        "air-mlp",
    ]
    assert all(0.8 < row.addition < 1 for row in PAPER.values())


def test_rows_of_models() -> None:
    assert row_of(MODEL) == "vrnn-mlp"
    assert row_of(ModelConfig(networks="conv")) == "sqair-conv"


def test_fivo_is_the_particle_filters_bound(model: SequenceModel, source: FileSource) -> None:
    @jax.jit
    def bound(i: jax.Array, frames: jax.Array) -> jax.Array:
        key_noise, key_filter = jax.random.split(jax.random.fold_in(jax.random.key(3), i))
        return particle_filter(model, key_filter, draw_particles(model, key_noise, 4, 3), frames).log_increment.sum()

    found = fivo(model, source, sequences=5, particles=4, seed=3)
    values = [bound(jnp.array(i), jnp.asarray(frames)) for i, frames in enumerate(source.fixed(5).frames)]
    assert found["fivo"] == pytest.approx(np.mean(values), rel=1e-5)
    assert found["fivo_se"] == pytest.approx(np.std(values, ddof=1) / np.sqrt(5), rel=1e-4)


def test_fivo_does_not_depend_on_batches(
    model: SequenceModel, source: FileSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fivo(model, source, sequences=5, particles=4, seed=3)
    monkeypatch.setattr(fivo_module, "ROWS", {"cpu": 8, "gpu": 8})
    assert fivo(model, source, sequences=5, particles=4, seed=3)["fivo"] == pytest.approx(whole["fivo"], rel=1e-6)


def test_air_has_no_past_to_resample(source: FileSource) -> None:
    air = eqx.filter_eval_shape(build, dataclasses.replace(MODEL, kind="air", glimpse=(6, 6)), jax.random.key(1))
    assert fivo(air, source, sequences=2, particles=2, seed=0) == {"fivo": None, "fivo_se": None}


def made(**changes: Any) -> dict[str, Any]:
    row = {
        "model": "mine",
        "row": "sqair-mlp",
        "data": "moving-mnist",
        "digits": "mnist",
        "sequences": 9,
        "particles": 2,
    }
    numbers = {"log_p": 6700.04, "log_p_se": 3.21, "counting_weighted": 1.0, "addition_same": 0.99987}
    return row | numbers | changes


def test_text() -> None:
    spread = {"number": 5, "log_p": {"median": 6650.0, "worst": 6600.0}}
    lines = text([made(seeds=spread), made(model="out", data="moving-mnist-in-out", returned=7, returned_found=0.957)])
    cells = [[word.strip() for word in line.split("|")[1:-1]] for line in lines.splitlines()[:5]]
    assert cells[0] == ["model", *COLUMNS]
    assert cells[2] == ["mine", "6700.0 ± 3.2", "", "", "", "1.0000", ".9999", ""]
    assert cells[3] == ["sqair-mlp, paper", "6617.6", "", "6786.5", "164.5", ".9986", ".9998", ""]
    assert cells[4][0] == "out", "the paper has no numbers for digits in and out"
    assert len({len(line) for line in lines.splitlines()[:5]}) == 1
    assert "mine: median / worst of 5 seeds: log_p 6650.0 / 6600.0." in lines
    assert "out: .9570 of 7 digits that returned were found within two frames." in lines
    assert "not to be compared" in text([made(digits="strokes")])
    assert "not to be compared" not in lines


def test_seeds_of_a_card() -> None:
    assert seeds({"training": None}) is None
    rows = [{"log_p": value, "kl_weighted": -value, "counting_weighted": None} for value in (3.0, 1.0, 2.0)]
    assert seeds({"training": {"seeds": rows}}) == {
        "number": 3,
        "log_p": {"median": 2.0, "worst": 1.0},
        "kl_weighted": {"median": -2.0, "worst": -1.0},
    }

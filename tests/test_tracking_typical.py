"""A clip unlike the training data is remarked upon, one that is like it is not; cards from strangers are no danger."""

from pathlib import Path

import jax
import numpy as np
import pytest

from sqair.config import DataConfig
from sqair.data import open_data, to_bytes
from sqair.model import SequenceModel
from sqair.tracking import track, track_batch
from sqair.tracking.typical import _numbers, remarks, write_typical
from sqair.training.checkpoint import load_model, read_card, save_model

MODEL = "sqair-strokes"


@pytest.fixture(scope="module")
def model() -> SequenceModel:
    return load_model(MODEL)


def digits(count: int, **changes) -> np.ndarray:
    """Clips of test digits, as the shipped model was trained on them or otherwise; 50 of them, which compiles once."""
    config = DataConfig(digits="strokes", **changes)
    frames = np.asarray(to_bytes(open_data(config, "test").fixed(count, 11)).frames)
    return frames[np.arange(50) % count]


def test_its_own_data_and_others(model: SequenceModel) -> None:
    card = read_card(MODEL)
    assert sum(bool(remarks(card, numbers)) for numbers in _numbers(model, digits(50))) == 0
    noise = np.random.default_rng(0).integers(0, 256, (50, 10, 50, 50), np.uint8)
    speckles = (noise > 250).astype(np.uint8) * 255
    others = np.concatenate([255 - digits(8)[:8], noise[:20], speckles[:22]])
    for numbers in _numbers(model, others):
        said = remarks(card, numbers)
        assert said
        assert all("than what the model was trained on" in line for line in said)


def test_digits_that_come_and_go(model: SequenceModel) -> None:
    """The model was trained on digits that last. Late in a clip it finds new ones; by doubt it lets go of old ones.

    Without doubt, MARGIN = inf, it would count right in 34% of the late frames instead of 64%.
    """
    config = DataConfig(name="moving-mnist-in-out", digits="strokes", length=100)
    clips = open_data(config, "test").fixed(12, 3)
    frames, counts = np.asarray(to_bytes(clips).frames)[..., None], np.asarray(clips.counts)
    objects = track_batch(model, jax.random.key(0), frames).objects
    identity = np.asarray(objects.identity)
    assert (np.asarray(objects.pres).sum(-1) == counts)[:, -30:].mean() > 0.5
    late = [np.setdiff1d(identity[clip, 60:], identity[clip, :60]) for clip in range(12)]
    assert sum(map(len, late)) > 10


def test_dark_on_light_is_light_on_dark(model: SequenceModel) -> None:
    clips = digits(50)
    frames = clips[int(clips.mean((1, 2, 3)).argmax())]
    dark, light = track(model, frames, invert="no"), track(model, 255 - frames)
    assert len(dark) > 0
    assert dark == light


@pytest.mark.parametrize("limits", [None, [], [1], ["a", "b"], [float("nan"), 1], {"low": 1}, 7, [1, 2, 3]])
def test_a_card_may_hold_anything(limits) -> None:
    numbers: dict[str, float | None] = {"brightness": 0.9, "size": None, "unexplained": 0.5}
    assert remarks({"training": {"typical": {"brightness": limits}}}, numbers) == []
    assert remarks({"training": None}, numbers) == []
    assert remarks({}, numbers) == []


def test_a_card_is_added_to(tmp_path: Path, model: SequenceModel) -> None:
    for old in ({}, {"typical": {"brightness": [0.5, 0.6]}}):
        save_model(tmp_path / "mine", model, {"step": 3} | old)
        ranges = {"brightness": [0.1, 0.2]}
        write_typical(tmp_path / "mine", ranges)
        assert read_card(tmp_path / "mine")["training"] == {"step": 3, "typical": ranges}
        assert len(remarks(read_card(tmp_path / "mine"), {"brightness": 0.4})) == 1

"""Digits that come back: which count as cases, and what finding them means."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sqair.config import ModelConfig, UserError, VRNNConfig
from sqair.data import FileSource, Sequences
from sqair.evaluation.boxes import Sample
from sqair.evaluation.returns import appearances, found_objects, returns, sequence_cases, shares
from sqair.training.checkpoint import build

IDS = np.array([[0, -1], [-1, 1], [2, 1], [2, 1], [-1, -1], [4, 3], [4, 3], [4, -1]])
"""Object 0 is there, goes and comes back twice; object 1 comes at frame 1, and again at frame 5 for two frames."""


def test_cases_appear_late_and_stay_for_two_frames() -> None:
    assert appearances(IDS) == [(1, 1), (2, 0), (5, 0), (5, 1)]
    assert appearances(IDS[:6]) == [(1, 1), (2, 0)], "the sequence ends before the second frame"
    assert appearances(np.array([[-1], [0], [-1], [1], [2]])) == []


def sample(boxes: np.ndarray) -> Sample:
    centre = np.zeros((*boxes.shape[:-1], 2), np.float32)
    return Sample(boxes, np.zeros(boxes.shape[:-1], np.int32), centre, centre)


def test_finding_is_one_to_one_and_clipped_to_the_frame() -> None:
    true = np.array([[[0, 0, 4, 4], [1, 0, 4, 4]], [[16, 0, 8, 4], [np.nan] * 4]], np.float32)
    ours = np.array([[[0, 0, 4, 4]], [[16, 0, 4, 4]]], np.float32)
    assert found_objects(true, sample(ours), (20, 20)).tolist() == [[True, False], [True, False]]


def test_shares() -> None:
    place = np.array([[2.0, 2, 5, 5], [12, 12, 5, 5]], np.float32)
    true = np.where(IDS[..., None] >= 0, place, np.nan).astype(np.float32)
    late = true.copy()
    late[2, 0] = late[5:, 1] = np.nan  # the first return is found a frame late, the last one never
    found = shares(sequence_cases(true, IDS, sample(late), (20, 20)))
    assert found == {"appeared": 4, "returned": 3, "appeared_found": 0.75, "returned_found": pytest.approx(2 / 3)}
    assert shares([])["returned_found"] is None


def test_a_model_without_objects_is_refused() -> None:
    config = ModelConfig(kind="vrnn", image=(20, 20), width=8, vrnn=VRNNConfig(latent_size=3, layers=1))
    shapes = eqx.filter_eval_shape(build, config, jax.random.key(0))
    source = FileSource(Sequences(jnp.zeros((1, 2, 20, 20), jnp.uint8)), "made.npz")
    with pytest.raises(UserError, match="a vrnn has no objects"):
        returns(shapes, source, sequences=1, particles=1, seed=0)

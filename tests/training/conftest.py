"""A small problem that learns in seconds: one bright square moves over a dark 12x12 frame."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from sqair.config import DataConfig, ModelConfig, Preset, TrainConfig
from sqair.data import Sequences, open_data, save_sequences
from sqair.training.checkpoint import named_arrays
from sqair.training.step import first_state, seed_keys, train_steps

MODEL = ModelConfig(image=(12, 12), glimpse=(6, 6), max_objects=2, what_size=4, width=16)
TRAIN = TrainConfig(
    steps=240,
    batch=8,
    particles=2,
    learning_rate=3e-3,
    warm_up=10,
    first_length=2,
    stage=60,
    discovery_cost=2.0,
    discovery_cost_steps=50,
    evaluate_every=80,
    validation_sequences=12,
)


def moved_at_each_step(preset: Preset, steps: int) -> list[set[str]]:
    """Names of the arrays of a new model that each of its first steps changes."""
    state, source = first_state(preset, seed_keys(0).weights), open_data(preset.data, "train")
    seen = [named_arrays(state.model)]
    for _ in range(steps):
        state = train_steps(state, source, seed_keys(0).steps, preset.train, jnp.array(1))
        seen.append(named_arrays(state.model))
    return [{name for name in before if (before[name] != after[name]).any()} for before, after in pairwise(seen)]


def square_frames(sequences: int, length: int) -> np.ndarray:
    """uint8 frames in which a 4x4 square moves one pixel to the right per frame from a random place."""
    random = np.random.default_rng(0)
    frames = np.zeros((sequences, length, 12, 12), np.uint8)
    for s in range(sequences):
        top, left = random.integers(0, 9), random.integers(0, 6)
        for t in range(length):
            frames[s, t, top : top + 4, left + t : left + t + 4] = 255
    return frames


@pytest.fixture(scope="session")
def moved() -> Callable[[Preset, int], list[set[str]]]:
    """What training changes, step by step."""
    return moved_at_each_step


@pytest.fixture(scope="session")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 120 sequences of 4 frames."""
    path = tmp_path_factory.mktemp("data") / "squares.npz"
    save_sequences(path, Sequences(square_frames(120, 4)))
    return path


@pytest.fixture(scope="session")
def small(squares: Path) -> Preset:
    """A preset that trains in seconds. Tests share it, so that its step is compiled once."""
    return Preset(MODEL, DataConfig(name=str(squares), length=4, size=(12, 12)), TRAIN)

"""Every preset builds, takes two steps, saves, reloads and goes on alike."""

import dataclasses
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from sqair.config import PRESETS, DataConfig, Preset
from sqair.data import Sequences, open_data, save_sequences
from sqair.training.checkpoint import load_model, named_arrays, save_model
from sqair.training.step import first_state, seed_keys, train_steps


def shrunk(preset: Preset, folder: Path) -> Preset:
    """The preset's model with little data: batches of 2 sequences of 2 frames, 2 particles."""
    size = preset.data.size
    shape = (4, 2, *size) if preset.model.channels == 1 else (4, 2, *size, 3)
    frames = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    save_sequences(folder / "noise.npz", Sequences(frames))
    data = DataConfig(name=str(folder / "noise.npz"), length=2, size=size)
    return dataclasses.replace(preset, data=data, train=dataclasses.replace(preset.train, batch=2, particles=2))


# Small and large VRNNs are the medium ones in other sizes, which test_vrnn.py counts.
@pytest.mark.parametrize("name", [name for name in PRESETS if not name.endswith(("-small", "-large"))])
def test_preset_takes_two_steps_and_comes_back(name: str, tmp_path: Path) -> None:
    preset = shrunk(PRESETS[name], tmp_path)
    source, keys = open_data(preset.data, "train"), seed_keys(0)
    start = first_state(preset, keys.weights)
    state = train_steps(start, source, keys.steps, preset.train, jnp.array(2))
    assert int(state.step) == 2
    assert int(state.optimiser.total_notfinite) == 0
    assert int(state.counted) == 2
    before, after = named_arrays(start.model), named_arrays(state.model)
    assert all(np.isfinite(array).all() for array in after.values())
    assert sum((before[key] != after[key]).any() for key in after) > 0.8 * len(after), "most parameters moved"
    save_model(tmp_path / "model", state.model, {})
    loaded = state._replace(model=load_model(tmp_path / "model"))
    on, again = (train_steps(s, source, keys.steps, preset.train, jnp.array(1)) for s in (state, loaded))
    assert on.totals == again.totals
    assert all((a == b).all() for a, b in zip(*(named_arrays(s).values() for s in (on, again)), strict=True))

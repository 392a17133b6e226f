"""The data of a run to be killed and damaged, and that run left in peace."""

import subprocess
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="session")
def squares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 40 sequences of 3 frames, in which a bright square moves."""
    from sqair.data import Sequences, save_sequences

    random, frames = np.random.default_rng(0), np.zeros((40, 3, 8, 8), np.uint8)
    for sequence in frames:
        top, left = random.integers(0, 5), random.integers(0, 3)
        for t, frame in enumerate(sequence):
            frame[top : top + 3, left + t : left + t + 3] = 255
    path = tmp_path_factory.mktemp("data") / "squares.npz"
    save_sequences(path, Sequences(frames))
    return path


@pytest.fixture(scope="session")
def whole(squares: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run from start to end; afterwards its program is in the compilation cache."""
    from peace import command

    out = tmp_path_factory.mktemp("runs") / "whole"
    subprocess.run(command(squares, out), check=True)
    return out

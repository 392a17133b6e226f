"""``sqair sample``: files that agree with each other, the same for the same seed; models without objects, too."""

import json
import os
from pathlib import Path

import jax
import numpy as np
from PIL import Image

from sqair.config import ModelConfig, VRNNConfig
from sqair.data import load_sequences
from sqair.report.document import read_blocks
from sqair.training.checkpoint import build, save_pretrained

FILES = ["index.html", "samples.gif", "samples.mp4", "samples.npz", "samples.png"]


def test_sample(models: Path, sqair, is_video) -> None:
    for folder in ("one", "two"):
        done = sqair("sample", "--model", models / "tiny", "--frames=5", "--count=5", "--seed=2", "--out", folder)
        assert (done.code, done.out) == (0, f"Results saved to {folder}\n")
        assert done.err.splitlines()[-1] == "samples.mp4 shows the first 4 of 5 sequences"
    assert sorted(os.listdir("one")) == FILES
    assert Path("one/samples.npz").read_bytes() == Path("two/samples.npz").read_bytes()
    assert is_video(Path("one/samples.mp4"), 5)
    dreams = load_sequences("one/samples.npz")
    assert dreams.frames.shape == (5, 5, 16, 16)
    assert dreams.ids is not None
    assert dreams.boxes is not None
    assert dreams.counts is not None
    assert np.array_equal((dreams.ids >= 0).sum(-1), dreams.counts)
    assert np.isnan(dreams.boxes[dreams.ids < 0]).all()
    head = json.loads(next(read_blocks(Path("one/index.html")))[1])
    assert [panel["name"] for panel in head["panels"]] == ["dream 1", "dream 2", "dream 3", "dream 4"]
    assert (head["kind"], head["frames"], head["observed"]) == ("sample", 5, None)
    assert sqair("sample", "--model", models / "tiny", "--out", "one").code == 2


def test_gif_repeats_and_lasts_as_long_as_the_video(models: Path, sqair) -> None:
    assert sqair("sample", "--model", models / "tiny", "--frames=5", "--count=5", "--seed=2", "--out=x").code == 0
    with Image.open("x/samples.gif") as gif:
        assert gif.info["loop"] == 0
        durations = []
        for number in range(gif.n_frames):  # type: ignore[attr-defined]
            gif.seek(number)
            durations.append(gif.info["duration"])
    assert sum(durations) == 5 * 200  # frames that do not change may be one


def test_a_model_without_objects_dreams_frames(sqair, here: Path) -> None:
    sizes = VRNNConfig(latent_size=3, layers=1)
    config = ModelConfig(kind="vrnn", image=(8, 8), width=4, vrnn=sizes)
    save_pretrained(build(config, jax.random.key(0)), here / "vrnn")
    done = sqair("sample", "--model", "vrnn", "--frames=2", "--count=1", "--out=x")
    assert done.code == 0, done.err
    assert sorted(os.listdir("x")) == FILES
    assert load_sequences("x/samples.npz").boxes is None
    assert sqair("sample", "--model", "vrnn", "--frames=20001", "--out=y").err.splitlines()[-1] == (
        "sqair sample: these are 80004 frames in all; ask for at most 20000"
    )

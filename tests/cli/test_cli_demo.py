"""``sqair demo``: what track and predict write of a made clip, and what it tells people to open."""

import json
import os
from pathlib import Path

import jax
import numpy as np

from sqair.commands import demo
from sqair.config import ModelConfig
from sqair.data import load_sequences
from sqair.tracks import Tracks
from sqair.training.checkpoint import build, save_pretrained


def test_demo(models: Path, sqair, is_video, monkeypatch) -> None:
    monkeypatch.setattr(demo, "LENGTH", 4)
    done = sqair("demo", "--model", models / "tiny")
    assert done.code == 0, done.err
    folder = Path("runs/demo/tiny")
    *_, futures, first, last = done.out.splitlines()
    assert last == "Results saved to runs/demo/tiny"
    assert first == "open this first: runs/demo/tiny/index.html"
    assert futures.endswith(" runs/demo/tiny/futures/index.html")
    tracked = ["latents.npz", "overlay.mp4", "overlay.png", "summary.json", "tracks.csv", "tracks.json", "tracks.txt"]
    assert sorted(os.listdir(folder)) == ["clip.npz", "futures", "index.html", *tracked]
    assert {"future.mp4", "future.png", "index.html", "summary.json"} <= set(os.listdir(folder / "futures"))
    assert is_video(folder / "overlay.mp4", 4)
    made, found = load_sequences(folder / "clip.npz"), Tracks.read(folder / "tracks.json")
    assert made.counts is not None
    assert made.counts.tolist() == [[1, 1, 1, 1]]
    right = np.mean(found.counts == 1)
    assert f"{right:.0%} of 4 frames counted right, {len(found.ids)} identities" in done.out
    assert json.loads((folder / "futures/summary.json").read_text())["observe"] == 3
    again = sqair("track", folder / "clip.npz", "--model", models / "tiny", "--out=again", "--quiet")
    assert again.code == 0
    assert Tracks.read("again/tracks.json") == found


def test_a_full_disk_leaves_nothing(models: Path, refused, monkeypatch) -> None:
    """The strip is the last to be drawn, when both commands have written all."""

    def strip(*words) -> None:
        raise OSError(28, "No space left on device", "overlay.png")

    monkeypatch.setattr(demo, "LENGTH", 4)
    monkeypatch.setattr(demo, "draw", strip)
    assert "No space left on device" in refused(1, "demo", "--model", models / "tiny")


def test_a_model_without_time_is_refused(refused, here: Path) -> None:
    config = ModelConfig(kind="air", image=(16, 16), glimpse=(4, 4), max_objects=1, what_size=2, width=4)
    save_pretrained(build(config, jax.random.key(0)), here / "air")
    assert "of the kind sqair" in refused(1, "demo", "--model", "air")

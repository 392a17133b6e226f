"""Speed, memory and quality of tracking, as a record: `python -m benchmarks.tracking speed memory --record NAME`.

speed      frames per second of one clip after compilation: by the model alone, and with all files of `sqair track`
memory     of a process that tracks 10,000 frames, after 1,000 and at the end
batch      frames per second of many clips at once on a GPU; needs jax only
quality    MOTA, IDF1, switches and counting on test sequences of moving-mnist (--digits DIR)
"""

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.flags import add_record_flags
from benchmarks.record import write_record
from sqair.commands.track import Track
from sqair.config import DataConfig, ModelConfig
from sqair.data import open_data, to_bytes
from sqair.model import SequenceModel
from sqair.tracking import Tracker, track_batch
from sqair.training.checkpoint import build, load_model, save_model

BATCHES = (1024, 4096, 8192)
"""Clips at once of which the fastest is reported."""


def film(model: SequenceModel, digits: str, length: int, seed: int = 1) -> np.ndarray:
    """One clip of moving digits in the model's size, as bytes (T, Y, X, C)."""
    config = DataConfig(digits=digits, length=length, size=model.config.image)
    frames = np.asarray(to_bytes(open_data(config, "test").fixed(100, seed)).frames)
    return frames[int(frames.mean((1, 2, 3)).argmax())][..., None]


# --- one clip


def measure_speed(model: SequenceModel, digits: str, length: int) -> dict[str, Any]:
    """Frames per second after compilation."""
    frames = film(model, digits, length)
    rows: dict[str, Any] = {"frames": length}
    for particles in (1, 10):
        tracker = Tracker(model, jax.random.key(0), particles=particles, pictures=True)
        tracker.feed(frames[: tracker.block])
        start = time.perf_counter()
        tracker.feed(frames)
        rows[f"frames_per_second_{particles}_particles"] = length / (time.perf_counter() - start)
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "clip.npy", frames)
        save_model(Path(folder) / "model", model, {})
        rows["frames_per_second_command"] = command_speed(Path(folder))
    return rows


def command_speed(folder: Path) -> float:
    """Frames per second of `sqair track` from the first frame on, with all its files."""
    out = folder / "out"
    words = [folder / "clip.npy", "--model", folder / "model", "--out", out, "--quiet"]
    Track.parse([str(word) for word in words]).run()
    summary = json.loads((out / "summary.json").read_text())
    return summary["frames"] / (summary["seconds"] - summary["seconds_until_first_frame"])


# --- memory


def measure_memory(model: SequenceModel, digits: str, length: int = 10_000, early: int = 1_000) -> dict[str, Any]:
    """Resident memory while all that `sqair track` writes is written, after `early` frames and after all."""
    from sqair.commands.track_clip import Job, track_clip
    from sqair.data.video import Clip

    short, used = film(model, digits, 100), {}

    def read(notes: list[str]) -> Iterator[np.ndarray]:
        for number in range(length):
            if number in (early, length - 1):
                used[number] = resident()
            yield short[number % 100, ..., 0]

    with tempfile.TemporaryDirectory() as folder:
        command = Track.parse(["film", "--quiet"])
        clip = Clip("film", short.shape[1:3], 30.0, length, read)
        track_clip(Job(command, model, {}, stop=lambda: False), clip, Path(folder) / "out", None)
    first, last = used[early], used[length - 1]
    return {
        "frames": length,
        f"megabytes_after_{early}": first,
        "megabytes_at_the_end": last,
        "growth": last / first - 1,
        "megabytes_at_most": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def resident() -> float:
    """Megabytes of memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


# --- many clips


def measure_batch(model: SequenceModel, digits: str, length: int = 20, repeats: int = 3) -> dict[str, Any]:
    """Frames per second of `track_batch`, frames on the device, results fetched: boxes, ids and latents."""
    few = np.stack([film(model, digits, length, seed) for seed in range(1, 3)])
    rows = []
    for batch in BATCHES:
        frames = jnp.asarray(few[np.arange(batch) % len(few)])
        jax.block_until_ready(track_batch(model, jax.random.key(0), frames))
        start = time.perf_counter()
        for seed in range(repeats):
            jax.device_get(track_batch(model, jax.random.key(seed), frames))
        rows.append({"clips": batch, "frames_per_second": repeats * batch * length / (time.perf_counter() - start)})
        print(rows[-1], flush=True)
    return {"length": length, "rows": rows, "best": max(row["frames_per_second"] for row in rows)}


# --- quality


def measure_quality(model: SequenceModel, digits: str, sequences: int, particles: int) -> dict[str, Any]:
    """Tracking metrics on test sequences of moving-mnist with seed 1 (DEFINITIONS.md)."""
    from sqair.evaluation.tracking import combine, score, sequence_tracks, truth_tracks

    config = DataConfig(digits=digits, size=model.config.image)
    source, scores = open_data(config, "test"), []
    for start in range(0, sequences, 100):
        clips = jax.tree.map(np.asarray, source.fixed(100, 1, start))
        key = jax.random.key(start)
        found = jax.device_get(track_batch(model, key, to_bytes(clips).frames[..., None], particles=particles))
        for i in range(min(100, sequences - start)):
            truth = truth_tracks(clips.boxes[i], clips.ids[i], clips.visible[i], config.size)
            tracks = sequence_tracks(found.box[i], found.objects.identity[i], config.size)
            scores.append(score(truth.tracks, tracks, ignored=truth.ignored))
    return {"sequences": sequences, "particles": particles, **combine(scores)}


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=("speed", "memory", "batch", "quality"))
    parser.add_argument(
        "--model", default="sqair-strokes", help="a shipped model, a folder, or `untrained` (sqair-mlp)"
    )
    parser.add_argument("--digits", default="strokes")
    parser.add_argument("--frames", type=int, default=2_000, help="of the clip whose speed is measured")
    parser.add_argument("--sequences", type=int, default=1_000, help="for quality")
    parser.add_argument("--particles", type=int, nargs="+", default=[1], help="for quality")
    add_record_flags(parser)
    given = parser.parse_args()
    model = build(ModelConfig(), jax.random.key(0)) if given.model == "untrained" else load_model(given.model)
    digits = "mnist" if Path(given.digits).is_dir() else given.digits
    results: dict[str, Any] = {"kind": "tracking", "model": Path(given.model).name, "digits": digits, "seeds": [0]}
    for what in given.what:
        if what == "speed":
            results[what] = measure_speed(model, given.digits, given.frames)
        elif what == "memory":
            results[what] = measure_memory(model, given.digits)
        elif what == "batch":
            results[what] = measure_batch(model, given.digits)
        else:
            results[what] = [measure_quality(model, given.digits, given.sequences, k) for k in given.particles]
        print(what, results[what], flush=True)
    if given.record:
        print("Record saved to", write_record(given.record, results, given.folder))


if __name__ == "__main__":
    main()

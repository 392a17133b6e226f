"""Counting people against the number of sequences that a model is trained on (App. E), on the pedestrian clip:

    python -m benchmarks.pedestrians --counts 100 300 1000 3000 --steps 4000 --out runs/pedestrians --record pedestrians

Sequences are cut by `sqair data` from the clip in $SQAIR_DATA/pets09-s2l1 (where PyAV is not, from its decoded frames,
see benchmarks/cameras.py): those of training and validation from frames 1-500, those of the test from frames 501-795.
A person belongs to a window of 64x64 pixels if the centre of the box lies in it; no frame of a sequence has more than
three, and at most a tenth of the sequences are empty. Labels decide which windows those are, as in App. E, and are
used for nothing else in training. --data and --test take other files instead.

For each count a model, or a population (--members), is trained by `sqair train sqair-pedestrians` on the first so many
sequences, with the same validation sequences and the same steps, which early stopping may cut short; each is tested at
its best validation bound. Flags that are not known here, such as --train.learning-rate, go to `sqair train`. A run in
--out that has ended is not trained again, one that was stopped goes on, and the record is written after each.
"""

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.cameras import BORDER, FOLDER, FRAMES, SIZE
from benchmarks.flags import add_record_flags
from benchmarks.population import gather, members_of
from benchmarks.record import circumstances, write_record
from sqair.cli import main as sqair
from sqair.commands.common import launch_whole_loops
from sqair.config import DataConfig, UserError
from sqair.data import FileSource, load_sequences
from sqair.data.sequences import file_source
from sqair.evaluation import counting, evaluate
from sqair.settings import to_dict
from sqair.training.checkpoint import load_model, read_card
from sqair.training.resume import newest

PRESET = "sqair-pedestrians"
SEQUENCES = 3500
"""For training and validation, as in App. E."""
TESTED = 1000
"""For the test."""
OWN = ("seed", "learning_rate", "discovery_cost", "discovery_dropout")
"""What members of a run may differ in, with `--sweep`, as a row of the record tells it."""
ENDED = ("finished", "stopped early")
"""How run.json says that there is nothing left to train."""


# --- sequences


def cut(folder: Path, data: Path, sequences: int) -> tuple[Path, Path]:
    """The files of training and of test sequences in `folder`, made from the clip in `data` unless they are there."""
    clip = data / FRAMES if (data / FRAMES).exists() else data / "vtest.avi"
    truth = ["--video.gt", str(data / "gt.txt"), "--video.gt-size", *map(str, SIZE)]
    parts = {"train": ["--video.stop", BORDER, "--sequences", sequences]}
    parts["test"] = ["--video.start", BORDER, "--sequences", TESTED]
    files = {name: folder / f"{name}-{words[-1]}.npz" for name, words in parts.items()}
    for name, words in parts.items():
        if not files[name].exists():
            run("data", str(clip), "--out", str(files[name]), "--overwrite", *truth, *map(str, words))
    return files["train"], files["test"]


def run(*words: str) -> None:
    """A command of `sqair`."""
    if code := sqair(list(words)):
        raise UserError(f"`sqair {' '.join(words[:2])}` ended with {code}")


def open_test(path: Path) -> FileSource:
    """All sequences of a file, with the truth about them."""
    content = load_sequences(path)
    if content.counts is None:
        raise UserError(f"{path} does not say how many people there are; make it with --video.gt")
    length, *size = content.frames.shape[1:4]
    return file_source(content, DataConfig(str(path), length=length, size=(size[0], size[1])), "test")


# --- models


def train(folder: Path, words: list[str]) -> str:
    """Train what `words` say, or what is left of it, in `folder`; returns how the run ended."""
    if (said := outcome(folder)) not in ENDED:
        start = ["--resume"] if said is not None else [*words, "--overwrite"]
        run("train", *([] if said is not None else [PRESET]), *start, "--out", str(folder), "--device", "auto")
    return str(outcome(folder))


def outcome(folder: Path) -> str | None:
    """How the run in a folder ended, "unknown" where it does not say; None if there is no run."""
    try:
        return json.loads((folder / "run.json").read_text()).get("outcome") or "unknown"
    except (FileNotFoundError, ValueError):
        return None


def tested(folder: Path, source: FileSource, particles: int, seed: int) -> dict[str, Any]:
    """What a record says of a model: bounds and counting on all test sequences, also for each true number of people."""
    model, training = load_model(folder), read_card(folder)["training"]
    found, truth = gather(model, source, len(source.sequences.frames), particles, seed)
    true = np.asarray(truth.counts)
    each = {name: counting.accuracy(np.asarray(getattr(found, name).counts), true) for name in ("single", "weighted")}
    by_number = [
        {"people": number, "frames": int((true == number).sum())}
        | {name: float(right[true == number].mean()) for name, right in each.items()}
        for number in np.unique(true).tolist()
    ]
    known = {"step": training["step"], "validation_bound": training.get("validation_bound")}
    own = {name: training["train"].get(name) for name in OWN}
    return own | known | evaluate.bounds(found) | evaluate.counts(found, truth) | {"by_number": by_number}


def commonest(source: FileSource) -> float:
    """How often the number of people is right if it is said to be the most frequent one in every frame."""
    counts = np.asarray(source.sequences.counts).ravel()
    return float(np.bincount(counts).max() / len(counts))


# --- records


def measured(given: argparse.Namespace, file: Path, source: FileSource, save: Callable[[list, Any], None]) -> list:
    """Train and test every count, the smallest first; `save` is told of all rows so far after each."""
    rows: list[dict[str, Any]] = []
    for count in sorted(given.counts):
        folder = given.out / str(count)
        words = ["--data", str(file), "--data.sequences", str(count), "--steps", str(given.steps)]
        ended = train(folder, [*words, "--members", str(given.members), *given.flags])
        notes = newest(folder).notes
        if notes.preset.train.steps != given.steps:
            raise UserError(f"{folder} was begun with {notes.preset.train.steps} steps; choose another --out")
        about = {"sequences": count, "outcome": ended, "steps": notes.step, "minutes": round(notes.seconds / 60, 2)}
        for path in members_of(folder):
            rows.append(about | tested(path, source, given.particles, given.seed))
            print(json.dumps({name: value for name, value in rows[-1].items() if name != "by_number"}), flush=True)
        save(rows, notes.preset)
    return rows


def parse() -> argparse.Namespace:
    """The flags of this program, and as `flags` those of `sqair train`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=[100, 300, 1000, 3000], help="training sequences")
    parser.add_argument("--steps", type=int, default=4000, help="of each model, at most")
    parser.add_argument("--members", type=int, default=1, help="models of each count, with other seeds")
    parser.add_argument("--data", type=Path, help="sequences of training and validation, from `sqair data`")
    parser.add_argument("--test", type=Path, help="sequences of the test, with their truth, from `sqair data`")
    parser.add_argument("--out", type=Path, default=Path("runs/pedestrians"), help="the folder of files and runs")
    parser.add_argument("--particles", type=int, default=20, help="of the test")
    parser.add_argument("--seed", type=int, default=1, help="of the test")
    add_record_flags(parser)
    given, given.flags = parser.parse_known_args()
    if (given.data is None) != (given.test is None):
        parser.error("give both --data and --test, or neither")
    return given


def main() -> None:
    """Cut, train, test, print and record."""
    launch_whole_loops()
    given, about = parse(), circumstances()
    given.out.mkdir(parents=True, exist_ok=True)
    clip = Path(os.environ.get("SQAIR_DATA", "../shared/data")) / FOLDER
    # the last tenth of a file is for validation
    needed = max(SEQUENCES, -(-10 * max(given.counts) // 9))
    file, test = (given.data, given.test) if given.data is not None else cut(given.out, clip, needed)
    source = open_test(test)

    def save(rows: list[dict[str, Any]], preset: Any) -> None:
        asked = {name: getattr(given, name) for name in ("counts", "steps", "members", "particles", "seed", "flags")}
        sizes = {"train": len(load_sequences(file).frames), "test": len(source.sequences.frames)}
        setting = {name: values for name, values in to_dict(preset).items() if name != "data"}
        results = {"kind": "pedestrians", **asked, "files": sizes, "commonest": commonest(source), "setting": setting}
        if given.record:
            write_record(given.record, results | {"rows": rows}, given.folder, about)

    rows = measured(given, file, source, save)
    for row in rows:
        print(f"{row['sequences']} sequences: counting {row['counting']:.4f}, weighted {row['counting_weighted']:.4f}")
    print(f"always the commonest number: {commonest(source):.4f}; device {jax.devices()[0].device_kind}")


if __name__ == "__main__":
    main()

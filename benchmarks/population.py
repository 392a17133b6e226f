"""How every member of a population counts on test sequences, the bad ones too.

    sqair train sqair-mlp --steps 6000 --members 10 --out RUN --digits DIR
    python -m benchmarks.population RUN --digits DIR --record NAME

Members are evaluated as they are saved in RUN/members: each at its best validation bound. A member has reached the goal
when `counting` is .98 and `rediscoveries_per_frame` are at most .01 (GOALS of benchmarks/learning.py).
"""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.flags import add_record_flags
from benchmarks.learning import MOST_REDISCOVERIES
from benchmarks.prediction import named
from benchmarks.record import write_record
from sqair.commands.common import launch_whole_loops
from sqair.data import Sequences, Source, open_data
from sqair.evaluation import evaluate
from sqair.evaluation.likelihood import Posterior
from sqair.model import SequenceModel
from sqair.settings import to_dict
from sqair.training.checkpoint import load_model, read_card
from sqair.training.resume import newest
from sqair.training.runs import MEMBERS

COUNTING = 0.98
"""What `counting` must reach."""


def members_of(run: Path) -> list[Path]:
    """The members of a run, or the one model that it is."""
    if not (run / MEMBERS).is_dir():
        return [run]
    return sorted((run / MEMBERS).iterdir(), key=lambda path: int(path.name))


def number_of(model: Path) -> int:
    """Which member of its run a model is; 0 of one that stands for itself."""
    return int(model.name) if model.parent.name == MEMBERS else 0


def look(folder: Path, source: Source, sequences: int, particles: int, seed: int) -> dict[str, Any]:
    """Bounds, counting and rediscoveries of one member; tracks are not scored, which would take longer."""
    model = load_model(folder)
    found, truth = gather(model, source, sequences, particles, seed)
    again = evaluate.rediscoveries(model, found, truth)
    return {**evaluate.bounds(found), **evaluate.counts(found, truth), "rediscoveries_per_frame": again}


def gather(
    model: SequenceModel, source: Source, sequences: int, particles: int, seed: int
) -> tuple[Posterior, Sequences]:
    """The posterior of all sequences, without samples of objects, and the truth about them."""
    batches = evaluate.infer(model, source, sequences=sequences, particles=particles, seed=seed)
    pairs = [(found._replace(sample=None), truth) for found, truth in batches]
    found, truth = jax.tree.map(lambda *leaves: np.concatenate(leaves), *pairs)
    return evaluate.in_doubles(found, particles), truth


def has_reached(row: dict[str, Any]) -> bool:
    """Whether a member counts and does not discover twice."""
    return row["counting"] >= COUNTING and row["rediscoveries_per_frame"] <= MOST_REDISCOVERIES


def main() -> None:
    """Evaluate every member, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of a run with members")
    parser.add_argument("--digits", help="mnist, strokes, or a folder with the four MNIST files; the run's by default")
    parser.add_argument("--sequences", type=int, default=10_000)
    parser.add_argument("--particles", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    add_record_flags(parser)
    given = parser.parse_args()
    launch_whole_loops()
    preset = newest(given.run).notes.preset
    data = preset.data if given.digits is None else dataclasses.replace(preset.data, digits=given.digits)
    source, rows = open_data(data, "test"), []
    for folder in members_of(given.run):
        training = read_card(folder)["training"]
        about = {"member": number_of(folder), "seed": training["train"]["seed"], "step": training["step"]}
        about["validation_bound"] = training.get("validation_bound")
        rows.append(about | look(folder, source, given.sequences, given.particles, given.seed))
        print(json.dumps(rows[-1]), flush=True)
    print(f"{sum(map(has_reached, rows))} of {len(rows)} reached counting {COUNTING}")
    if given.record:
        setting = to_dict(preset) | {"data": named(to_dict(data))}
        asked = {name: getattr(given, name) for name in ("sequences", "particles", "seed")}
        results = {"kind": "population", **asked, "setting": setting, "rows": rows}
        print("Record saved to", write_record(given.record, results, given.folder))


if __name__ == "__main__":
    main()

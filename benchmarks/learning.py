"""Minutes until a model counts: each seed trained alone, as `sqair train` does it, and looked at while it learns.

    python -m benchmarks.learning --preset sqair-mlp --seeds 0 1 2 3 4 --minutes 10 --digits DIR --record NAME

A seed has reached .9 or .98 when `counting` is that on held-out training digits (never the test digits) and
`rediscoveries_per_frame` are at most .01. It is looked at every so many seconds of training, so the minutes are up to
one interval too many. The clock runs through opening the data, compiling and the run's own validation and saving; it
stands while we look. Nothing compiled is kept between seeds. A seed ends when it has reached .98, or with --full after
its last step; a seed that failed stays in the table. The record is written anew after every look.
"""

import argparse
import dataclasses
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from benchmarks.record import circumstances, write_record
from sqair.commands.bench import compiled_afresh
from sqair.commands.speed import steps_within
from sqair.config import Preset, UserError, preset
from sqair.data import Source, open_data
from sqair.evaluation.evaluate import evaluate
from sqair.settings import from_dict, to_dict
from sqair.training.loop import Progress, Stopped, train

GOALS = {"minutes_to_90": 0.9, "minutes_to_98": 0.98}
"""Values of `counting` to reach ..."""
MOST_REDISCOVERIES = 0.01
"""... with so many rediscoveries per frame at most."""
SHOWN = ("counting", "counting_weighted", "rediscoveries_per_frame", "log_p")
"""What is kept of each look."""


class Reached(Exception):
    """The last goal is reached."""


class Watch:
    """A callback of training that looks at the model at intervals and notes what it sees in `row`."""

    def __init__(self, row: dict[str, Any], look: Callable[[Any], dict[str, Any]], every: float, steps: int) -> None:
        self.row, self.look, self.every, self.steps = row, look, every, steps
        self.started = time.perf_counter()
        self.away = self.last = 0.0

    def __call__(self, progress: Progress) -> None:
        """Note the first step, and look when it is time."""
        trained = time.perf_counter() - self.started - self.away
        if self.row["first_step_s"] is None:
            self.row["first_step_s"] = round(trained, 1)
        self.row |= {"steps": progress.step, "minutes": round(trained / 60, 3)}
        if trained - self.last < self.every and progress.step < self.steps:
            return
        began, self.last = time.perf_counter(), trained
        seen = self.look(progress.model)
        self.away += time.perf_counter() - began
        self.row["looking_minutes"] = round(self.away / 60, 3)
        note(self.row, seen)


def note(row: dict[str, Any], seen: dict[str, Any]) -> None:
    """Add a look to a seed's row, and the minutes of goals that are reached for the first time."""
    row["curve"].append({"step": row["steps"], "minutes": row["minutes"]} | {name: seen[name] for name in SHOWN})
    for name, goal in GOALS.items():
        if row[name] is None and seen["counting"] >= goal and seen["rediscoveries_per_frame"] <= MOST_REDISCOVERIES:
            row[name] = row["minutes"]


def new_row(seed: int) -> dict[str, Any]:
    """What is known of a seed before it begins."""
    empty = dict.fromkeys(("first_step_s", "steps", "minutes", "looking_minutes", *GOALS))
    return {"seed": seed, "outcome": "unfinished", **empty, "curve": []}


def learn(setting: Preset, source: Source, row: dict[str, Any], arguments: Any, save: Callable[[], None]) -> None:
    """Train one seed and fill in its row."""

    def look(model: Any) -> dict[str, Any]:
        return evaluate(model, source, sequences=arguments.sequences, particles=arguments.particles, seed=1)

    def shown(progress: Progress) -> None:
        if row["curve"] and row["curve"][-1]["step"] == progress.step:
            print(json.dumps({"seed": row["seed"], **row["curve"][-1]}), flush=True)
            save()
            if row["minutes_to_98"] is not None and not arguments.full:
                raise Reached

    jax.clear_caches()
    with tempfile.TemporaryDirectory() as folder:
        watch = Watch(row, look, arguments.every, setting.train.steps)
        try:
            train(setting, Path(folder) / "run", quiet=True, callbacks=[watch, shown])
            row["outcome"] = "all steps"
        except Reached:
            row["outcome"] = "reached"
        except UserError as error:
            row["outcome"] = f"failed: {error}"


def middle(values: list[float | None]) -> float | None:
    """The median, where None means never; None if that is the median."""
    found = statistics.median(math.inf if value is None else value for value in values)
    return None if math.isinf(found) else found


def describe(row: dict[str, Any]) -> str:
    """One line about a seed."""
    last = row["curve"][-1] if row["curve"] else dict.fromkeys(SHOWN)
    return (
        f"seed {row['seed']}: .9 after {row['minutes_to_90']}, .98 after {row['minutes_to_98']} minutes; in the end "
        f"counting {last['counting']}, rediscoveries {last['rediscoveries_per_frame']}; {row['steps']} steps in "
        f"{row['minutes']} minutes, {row['first_step_s']} s until the first; {row['outcome']}"
    )


def parse() -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="sqair-mlp")
    parser.add_argument("--config", type=json.loads, default={}, help="JSON of preset fields to change")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--minutes", type=float, help="as many steps as fit; they are counted once for all seeds")
    parser.add_argument("--steps", type=int, help="instead of --minutes; the preset's unless given")
    parser.add_argument("--every", type=float, default=30, help="seconds of training between two looks")
    parser.add_argument("--digits", help="mnist, strokes, or a folder with the four MNIST files")
    parser.add_argument("--sequences", type=int, default=512, help="held-out sequences of a look")
    parser.add_argument("--particles", type=int, default=5)
    parser.add_argument("--full", action="store_true", help="make all steps even when .98 is reached")
    parser.add_argument("--record", default="", help="write benchmarks/records/<date>_<RECORD>.json")
    parser.add_argument("--folder", type=Path, help="where the record goes instead of benchmarks/records")
    return parser.parse_args()


def chosen(arguments: argparse.Namespace) -> Preset:
    """The preset with the changes of the command line, and the steps that fit into --minutes."""
    base = to_dict(preset(arguments.preset))
    setting = from_dict(Preset, {part: {**fields, **arguments.config.get(part, {})} for part, fields in base.items()})
    setting = dataclasses.replace(
        setting, data=dataclasses.replace(setting.data, digits=arguments.digits or setting.data.digits)
    )
    steps = arguments.steps or setting.train.steps
    if arguments.minutes:
        steps = steps_within(setting, 60 * arguments.minutes)
        print(f"{arguments.minutes:g} minutes are {steps} steps", flush=True)
    return dataclasses.replace(setting, train=dataclasses.replace(setting.train, steps=steps))


def main() -> None:
    """Train every seed, print and record."""
    arguments, about = parse(), circumstances()
    rows: list[dict[str, Any]] = []
    with compiled_afresh():
        setting = chosen(arguments)
        source = open_data(setting.data, "validation")
        kept = to_dict(setting)
        kept["data"]["digits"] = Path(setting.data.digits).name
        results = {"kind": "learning", "preset": arguments.preset, "minutes": arguments.minutes, "setting": kept}
        results |= {"seeds": arguments.seeds, "sequences": arguments.sequences, "every_s": arguments.every}

        def save() -> None:
            if arguments.record:
                write_record(arguments.record, results | {"rows": rows}, arguments.folder, about)

        for seed in arguments.seeds:
            rows.append(new_row(seed))
            save()
            train_config = dataclasses.replace(setting.train, seed=seed)
            try:
                learn(dataclasses.replace(setting, train=train_config), source, rows[-1], arguments, save)
            except (Stopped, KeyboardInterrupt):
                rows[-1]["outcome"] = "interrupted"
                raise
            finally:
                save()
                print(describe(rows[-1]), flush=True)
    for name, goal in GOALS.items():
        print(f"counting {goal}: median of {len(rows)} seeds {middle([row[name] for row in rows])} minutes")


if __name__ == "__main__":
    main()

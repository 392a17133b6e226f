"""Minutes until a model counts: each seed trained alone, as `sqair train` does it, and looked at while it learns.

    python -m benchmarks.learning --preset sqair-mlp --seeds 0 1 2 3 4 --minutes 10 --digits DIR --record NAME

Flags that are not listed below are those of `sqair train`, such as --steps 5000 or --data.digit-scale 0.7.

A seed has reached .9 or .98 when `counting` is that on held-out training digits (never the test digits) and
`rediscoveries_per_frame` are at most .01. It is looked at every so many seconds of training, so the minutes are up to
one interval too many. The clock runs through opening the data, compiling and the run's own validation and saving; it
stands while we look, and while the steps that fit into --minutes are counted. Nothing compiled is kept between seeds.
A seed ends when it has reached .98, or with --full after its last step; a seed that failed stays in the table. The
record is written anew after every look.
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

from benchmarks.flags import add_record_flags
from benchmarks.record import circumstances, write_record
from sqair.commands.bench import compiled_afresh
from sqair.commands.common import launch_whole_loops
from sqair.commands.speed import steps_within
from sqair.commands.train import Train
from sqair.config import Preset, UserError
from sqair.data import Source, open_data
from sqair.evaluation.evaluate import evaluate
from sqair.settings import to_dict
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


def parse() -> tuple[argparse.Namespace, Train]:
    """The arguments of the command line, and the command `sqair train` that they stand for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="sqair-mlp")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--minutes", type=float, help="as many steps as fit; they are counted once for all seeds")
    parser.add_argument("--digits", help="mnist, strokes, or a folder with the four MNIST files")
    parser.add_argument("--every", type=float, default=30, help="seconds of training between two looks")
    parser.add_argument("--sequences", type=int, default=512, help="held-out sequences of a look")
    parser.add_argument("--particles", type=int, default=5)
    parser.add_argument("--full", action="store_true", help="make all steps even when .98 is reached")
    add_record_flags(parser)
    arguments, arguments.flags = parser.parse_known_args()
    words = [arguments.preset, *arguments.flags]
    words += [] if arguments.minutes is None else ["--minutes", str(arguments.minutes)]
    words += [] if arguments.digits is None else ["--digits", arguments.digits]
    command = Train.parse(words)
    train_config = command.resolved().train
    if train_config.members > 1 or train_config.sweep:
        parser.error("every seed is trained alone; give --seeds instead of --members or --sweep")
    return arguments, command


def chosen(command: Train) -> Preset:
    """What `command` would train; the steps that fit into --minutes are found by measuring."""
    setting = command.resolved()
    if command.minutes is None:
        return setting
    steps = steps_within(setting, lambda steps: command.resolved(steps).train, 60 * command.minutes)
    print(f"{command.minutes:g} minutes are {steps} steps", flush=True)
    return command.resolved(steps)


def described(setting: Preset, arguments: argparse.Namespace) -> dict[str, Any]:
    """What the record says about all seeds; of folders, their names only."""
    kept = to_dict(setting)
    kept["data"]["digits"] = Path(setting.data.digits).name
    return {
        "kind": "learning",
        "preset": arguments.preset,
        "flags": " ".join(Path(word).name if word.startswith("/") else word for word in arguments.flags),
        "minutes": arguments.minutes,
        "seeds": arguments.seeds,
        "sequences": arguments.sequences,
        "particles": arguments.particles,
        "every_s": arguments.every,
        "full": arguments.full,
        "setting": kept,
    }


def main() -> None:
    """Train every seed, print and record."""
    launch_whole_loops()
    (arguments, command), about = parse(), circumstances()
    rows: list[dict[str, Any]] = []
    with compiled_afresh():
        setting = chosen(command)
        source, results = open_data(setting.data, "validation"), described(setting, arguments)

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

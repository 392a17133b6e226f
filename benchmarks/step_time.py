"""Time of one train step, as a record: `python -m benchmarks.step_time --batch 32 256 best --grow --record NAME`.

Measures what `sqair bench` does, by the same functions. Absolute times mean something on a GPU only; on two shared
cores compare ratios within one run.
"""

import argparse
import dataclasses
import json
from pathlib import Path

from benchmarks.flags import add_record_flags
from benchmarks.record import write_record
from sqair.commands.bench import BEST, compiled_afresh, timed
from sqair.commands.common import launch_whole_loops
from sqair.config import preset
from sqair.evaluation.timing import FIRST_BATCH, FULL, QUICK, sizes, time_batches, time_growth


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="sqair-mlp")
    usual, words = ["32", "256", BEST], "numbers, or the word best; nothing for growth alone"
    parser.add_argument("--batch", nargs="*", default=usual, help=words)
    parser.add_argument("--grow", action="store_true", help="also time other numbers of slots, frames and particles")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--precision", choices=("float32", "tf32", "bf16"), help="if not the preset's")
    parser.add_argument("--dropout", type=float, help="of discovery, if not the preset's; 0 lets every frame discover")
    parser.add_argument("--digits", default="strokes")
    add_record_flags(parser)
    arguments = parser.parse_args()
    if not arguments.batch and not arguments.grow:
        parser.error("give a --batch, or --grow, or both")
    launch_whole_loops()
    effort = QUICK if arguments.quick else FULL
    chosen = timed(preset(arguments.preset), arguments.digits, arguments.precision)
    if arguments.dropout is not None:
        train = dataclasses.replace(chosen.train, discovery_dropout=arguments.dropout)
        chosen = dataclasses.replace(chosen, train=train)
    batches = [int(word) for word in arguments.batch if word != BEST]
    results = {
        "kind": "speed",
        "preset": arguments.preset,
        "precision": chosen.train.precision,
        "digits": "mnist" if Path(arguments.digits).is_dir() else arguments.digits,
        **sizes(chosen),
        "seeds": [chosen.train.seed],
    }
    results |= {"rows": [], "best_batch": None}
    if arguments.batch:
        with compiled_afresh():
            results |= time_batches(chosen, batches, BEST in arguments.batch, effort, print)
        for row in results["rows"]:
            print(json.dumps(row), flush=True)
        if arguments.record:  # already now, since growth takes long
            write_record(arguments.record, results, arguments.folder)
    if arguments.grow:  # says nothing of compiling, and may take it from jax's cache
        smallest = min(batches, default=FIRST_BATCH)
        results["growth"] = time_growth(chosen, smallest, effort, print, ends_only=arguments.quick)
        print(json.dumps(results["growth"]), flush=True)
    if arguments.record:
        print("Record saved to", write_record(arguments.record, results, arguments.folder))


if __name__ == "__main__":
    main()

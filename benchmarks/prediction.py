"""Prediction errors of models, as a record.

    python -m benchmarks.prediction sqair-mlp vrnn-mlp --digits DIR --sequences 1000 --record NAME

Three frames are observed, ten predicted, twenty times; DEFINITIONS of the numbers: sqair/evaluation/prediction.py.
"""

import argparse
import json
import time
from pathlib import Path

from benchmarks.flags import add_record_flags
from benchmarks.record import write_record
from sqair.commands.common import launch_whole_loops, replaced
from sqair.commands.evaluate import trained_on
from sqair.evaluation.prediction import prediction
from sqair.settings import to_dict
from sqair.training.checkpoint import load_model, read_card


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", help="shipped names or folders")
    parser.add_argument("--digits", help="mnist, strokes or a folder; otherwise what each model was trained on")
    parser.add_argument("--sequences", type=int, default=1000)
    parser.add_argument("--particles", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    add_record_flags(parser)
    arguments = parser.parse_args()
    launch_whole_loops()
    rows = []
    for name in arguments.models:
        began = time.perf_counter()
        data = replaced(trained_on(read_card(name)), digits=arguments.digits)
        asked = {"sequences": arguments.sequences, "particles": arguments.particles, "seed": arguments.seed}
        found = prediction(load_model(name), data, **asked)
        row = {"model": Path(name).name, "data": named(to_dict(data)), "seed": arguments.seed, **found}
        rows.append(row | {"seconds": round(time.perf_counter() - began, 1)})
        print(json.dumps(rows[-1]), flush=True)
    if arguments.record:
        results = {"kind": "prediction", "seeds": [arguments.seed], "rows": rows}
        print("Record saved to", write_record(arguments.record, results, arguments.folder))


def named(data: dict) -> dict:
    """The data without this machine's folders."""
    return data | {"digits": "mnist" if Path(data["digits"]).is_dir() else data["digits"]}


if __name__ == "__main__":
    main()

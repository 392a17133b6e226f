"""Gathers what `sqair ablate` wrote into one record: `python -m benchmarks.ablations FOLDER... --record NAME`.

    sqair ablate default no-relation --out runs/ablate
    python -m benchmarks.ablations runs/ablate --record ablations

Every ablation.json below the folders is taken, with the device and the code that it names, and all of its seeds.
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.flags import add_record_flags
from benchmarks.record import circumstances, write_record
from sqair.commands.ablate import RECORD
from sqair.config import UserError
from sqair.evaluation.ablations import text

KEPT = ("name", "command", "commit", "device", "jax", "ended", "minutes", "sequences", "particles", "rows")
"""What of an ablation goes into the record; its settings are those of its name in that commit."""


def gather(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """All ablations below the folders, by name; of one that is there twice the last to end."""
    paths = [path for folder in folders for path in folder.rglob(RECORD)]
    found = sorted((json.loads(path.read_text()) for path in paths), key=lambda each: each["ended"])
    newest = {each["name"]: each for each in found}
    return [
        {"steps": each["settings"]["train"]["steps"]} | {key: each[key] for key in KEPT}
        for each in (newest[name] for name in sorted(newest))
    ]


def main() -> None:
    """Print the table, and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", help="folders in which `sqair ablate` left its results")
    add_record_flags(parser)
    given = parser.parse_args()
    ablations = gather(given.folders)
    if not ablations:
        raise UserError(f"no {RECORD} there; make one with `sqair ablate NAME --out {given.folders[0]}`")
    print(text(ablations), end="")
    if given.record:
        devices = sorted({each["device"] for each in ablations})
        about = circumstances() | {"device": ", ".join(devices)}
        results = {"kind": "ablations", "seeds": sorted({row["seed"] for each in ablations for row in each["rows"]})}
        path = write_record(given.record, results | {"ablations": ablations}, given.folder, about)
        print("Record saved to", path)


if __name__ == "__main__":
    main()

"""What soak tests count, as records: `python -m benchmarks.soak kills --record` runs one of them in full.

kills      kill -9 at 200 random moments of a training run
damages    bytes flipped or cut in the files of a run, 1,000 times
videos     500 short videos through Ray, 5 of them broken, 3 workers killed
memory     of a process that trains for 10,000 steps
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from benchmarks.record import write_record

ROOT = Path(__file__).parents[1]


class Soak(NamedTuple):
    """A test, and how many of it are asked for."""

    test: str
    environment: Mapping[str, str] = MappingProxyType({})


SOAKS = {
    "kills": Soak("test_soak_kills.py::test_kill_9_at_random_moments", {"SQAIR_KILLS": "200"}),
    "damages": Soak("test_soak_damage.py::test_damage_is_seen"),
    "videos": Soak("test_soak_ray.py::test_many_videos_with_workers_killed", {"SQAIR_VIDEOS": "500"}),
    "memory": Soak("test_soak_memory.py::test_memory_is_flat", {"SQAIR_MEMORY_STEPS": "10000"}),
}


def soak(chosen: Soak) -> dict[str, Any]:
    """Run a test; what it told of itself, if it passed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = [sys.executable, "-m", "pytest", "-q", f"tests/soak/{chosen.test}"]
        words += [f"--junitxml={report}", "-o", "junit_family=xunit1"]  # the form that holds what tests tell
        began = time.perf_counter()
        subprocess.run(words, cwd=ROOT, env=os.environ | dict(chosen.environment), check=True)
        seconds = time.perf_counter() - began
        found = xml.parse(report).getroot().iter("property")
        told = {each.attrib["name"]: float(each.attrib["value"]) for each in found}
    counts = {name: int(value) if value.is_integer() else value for name, value in told.items()}
    return {"test": chosen.test, **chosen.environment, "seconds": round(seconds), **counts}


def main() -> None:
    """Run, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=SOAKS)
    parser.add_argument("--record", action="store_true", help="write benchmarks/records/<date>_soak_<WHAT>.json")
    parser.add_argument("--folder", type=Path, help="where records go instead of benchmarks/records")
    given = parser.parse_args()
    for what in given.what:
        results = soak(SOAKS[what])
        print(what, results, flush=True)
        if given.record:
            print("Record saved to", write_record(f"soak_{what}", {"kind": "soak", **results}, given.folder))


if __name__ == "__main__":
    main()

"""Flags that all benchmarks share; standard library only, since some must set jax up before it is imported."""

import argparse
from pathlib import Path


def add_record_flags(parser: argparse.ArgumentParser) -> None:
    """Where the record goes, if there is to be one."""
    parser.add_argument("--record", default="", help="write benchmarks/records/<date>_<RECORD>.json")
    parser.add_argument("--folder", type=Path, help="where the record goes instead of benchmarks/records")

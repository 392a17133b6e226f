"""How a run is begun in a process of its own, and how two runs are compared to the last bit."""

import sys
from pathlib import Path
from typing import Any

from driver import STEPS

from sqair.training.runs import read_metrics

HERE = Path(__file__).parent
TIMES = ("seconds", "sequences_per_second")


def command(squares: Path, out: Path) -> list[str]:
    """What begins the run, or goes on with it."""
    return [sys.executable, str(HERE / "driver.py"), str(squares), str(out)]


def numbers(run: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without what a clock tells."""
    return [{k: v for k, v in line.items() if k not in TIMES} for line in read_metrics(run)]


def tensors(run: Path, steps: int = STEPS) -> dict[str, bytes]:
    """All tensors that a run ends with."""
    last = f"checkpoints/{steps:08d}"
    paths = (f"{last}/state.safetensors", f"{last}/model.safetensors", "best/model.safetensors", "model.safetensors")
    return {path: (run / path).read_bytes() for path in paths}


def assert_same(run: Path, other: Path, steps: int = STEPS) -> None:
    """Two runs ended alike."""
    assert numbers(run) == numbers(other)
    assert tensors(run, steps) == tensors(other, steps)

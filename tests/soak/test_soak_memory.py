"""Memory of training is flat: what many thousand steps need is what the first thousand did."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from peace import HERE

STEPS = int(os.environ.get("SQAIR_MEMORY_STEPS", "10000"))

PROGRAM = """
import dataclasses, resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from driver import preset
from sqair.training.loop import train

def resident(progress):
    if progress.metrics is not None:
        print(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize(), flush=True)

steps = int(sys.argv[4])
chosen = preset(sys.argv[1])
config = dataclasses.replace(chosen.train, steps=steps, evaluate_every=steps // 20)
train(dataclasses.replace(chosen, train=config), Path(sys.argv[2]), quiet=True, callbacks=[resident])
"""


def test_memory_is_flat(squares: Path, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    words = [sys.executable, "-c", PROGRAM, str(squares), str(tmp_path / "run"), str(HERE), str(STEPS)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    used = np.array([int(line) for line in done.stdout.split()]) / 2**20
    assert len(used) == 20
    first, last = used[4:9].mean(), used[-5:].mean()
    assert last - first < 8, f"{first:.1f} MiB became {last:.1f} MiB: {np.round(used, 1).tolist()}"
    record_property("steps", STEPS)
    record_property("megabytes_after_a_tenth", round(float(used[1]), 1))
    record_property("megabytes_at_the_end", round(float(used[-1]), 1))

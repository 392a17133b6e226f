"""kill -9 at random moments of a training run: it is never lost, and ends as if nothing had happened."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from driver import EVERY
from peace import assert_same, command

from sqair.training.resume import checkpoints, newest

KILLS = int(os.environ.get("SQAIR_KILLS", "20"))
"""How many."""
SEED = int(os.environ.get("SQAIR_KILL_SEED", "0"))


HOLDS, TRAINS, EVALUATES = range(3)
"""How far a process is when the clock of its death starts: before it holds the run's folder it has nothing to lose."""


def begin(squares: Path, run: Path, moment: int) -> subprocess.Popen:
    """A process that has come so far with the run, or has ended."""
    told, before = last_change(run), seen(run)
    process = subprocess.Popen(command(squares, run), stderr=subprocess.PIPE, text=True)
    reached = (
        lambda: holder(run) == process.pid or last_change(run) > told,
        lambda: last_change(run) > told,
        lambda: seen(run) > before,
    )
    while process.poll() is None and not reached[moment]():
        time.sleep(0.005)
    return process


def last_change(run: Path) -> int:
    """When run.json was last written, as it is when a process begins to train; 0 if there is none."""
    told = run / "run.json"
    return told.stat().st_mtime_ns if told.exists() else 0


def holder(run: Path) -> int:
    """The process that the lock of a run names, which may be dead; 0 if none."""
    lock = run / ".lock"
    try:
        return json.loads(lock.read_bytes())["pid"]
    except (FileNotFoundError, ValueError):
        return 0


def seen(run: Path) -> int:
    """The last step that the run is known to have reached."""
    lines = run / "metrics.jsonl"
    return EVERY * lines.read_bytes().count(b"\n") if lines.exists() else 0


def test_kill_9_at_random_moments(
    squares: Path, whole: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    moments, kills, ended, run = random.Random(SEED), 0, 0, tmp_path / "run"
    most_lost = in_training = 0
    timed = begin(squares, tmp_path / "timed", TRAINS)
    started = time.monotonic()
    timed.communicate()
    longest = (time.monotonic() - started) / 2
    while kills < KILLS or not ended:
        before, process = seen(run), begin(squares, run, kills % 3)
        if kills < KILLS:
            time.sleep(moments.uniform(0, longest))
            process.kill()
        said = process.communicate()[1]
        if process.returncode == -signal.SIGKILL:
            kills += 1
            in_training += seen(run) > before
            saved = newest(run).notes.step if checkpoints(run) else 0
            most_lost = max(most_lost, seen(run) - saved)
            assert most_lost <= EVERY, "at most one interval is lost"
            continue
        assert process.returncode == 0, said
        assert_same(run, whole)
        shutil.rmtree(run)
        ended += 1
        longest *= 0.8  # the machine has become faster: death must come sooner
    assert in_training, "kills must strike while steps are made"
    record_property("kills", kills)
    record_property("kills_after_a_new_evaluation", in_training)
    record_property("runs_to_their_end_that_equal_an_unbroken_one", ended)
    record_property("steps_lost_at_most", most_lost)
    record_property("steps_between_checkpoints", EVERY)

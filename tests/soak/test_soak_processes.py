"""Many devices and many processes: the same numbers as one, and a clear end when a process dies."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from peace import HERE, numbers

from sqair.training.resume import checkpoints, newest

SHARING = HERE.parent / "training/sharing.py"
FLAGS: dict[str, list[int]] = {
    "model.width": [8],
    "model.what-size": [2],
    "model.max-objects": [1],
    "model.glimpse": [4, 4],
    "train.batch": [4],
    "train.particles": [2],
    "train.validation-sequences": [4],
    "train.evaluate-every": [10],
    "train.final-decay": [0],
}
"""A small model, saved often; its number of steps may change."""


def test_50_steps_on_8_devices_are_those_on_one(tmp_path: Path) -> None:
    """In float64, members and batch shared out, each on a part of the devices."""
    words = [sys.executable, str(SHARING), str(tmp_path / "made.npz"), "members=2,batch=4", "50", "x64", "members=2"]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert found["devices"] == 8
    assert max(found["differences"].values()) < 1e-6, found


def start(squares: Path, out: Path, port: int, process: int, steps: int) -> subprocess.Popen:
    words = [sys.executable, "-m", "sqair", "train", "tiny", "--data", str(squares), "--out", str(out), "--quiet"]
    words += [word for name, values in FLAGS.items() for word in (f"--{name}", *map(str, values))]
    words += ["--steps", str(steps)]
    words += ["--coordinator", f"127.0.0.1:{port}", "--processes", "2", "--process", str(process)]
    words += ["--resume"] if out.exists() and checkpoints(out) else []
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def test_a_job_of_two_processes_ends_clearly_when_one_dies_and_goes_on(squares: Path, tmp_path: Path) -> None:
    """One writes. The second is killed: the first says so and ends; both resume, and end as a job left in peace."""
    run, port = tmp_path / "run", free_port()
    pair = [start(squares, run, port, process, 10_000) for process in range(2)]
    while all(process.poll() is None for process in pair) and len(checkpoints(run)) < 2:
        time.sleep(0.1)
    pair[1].kill()
    said = [process.communicate(timeout=120)[1] for process in pair]
    assert pair[1].returncode == -signal.SIGKILL, said
    assert pair[0].returncode == 1, said
    assert "another process of the job is gone; start all of them again with --resume" in said[0]
    saved, port = newest(run).notes.step, free_port()
    pair = [start(squares, run, port, process, saved + 10) for process in range(2)]
    said = [process.communicate(timeout=300)[1] for process in pair]
    assert [process.returncode for process in pair] == [0, 0], said
    assert [line["step"] for line in numbers(run)] == list(range(10, saved + 11, 10))
    assert not list(run.rglob(".*")), "one process wrote, and nothing is left behind"


def test_a_job_ends_clearly_when_its_coordinator_dies(squares: Path, tmp_path: Path) -> None:
    """Process 0 writes, and the others hear of each other through it."""
    run, port = tmp_path / "run", free_port()
    pair = [start(squares, run, port, process, 10_000) for process in range(2)]
    while all(process.poll() is None for process in pair) and len(checkpoints(run)) < 2:
        time.sleep(0.1)
    pair[0].kill()
    said = [process.communicate(timeout=120)[1] for process in pair]
    assert pair[0].returncode == -signal.SIGKILL, said
    assert pair[1].returncode == 1, said
    last = said[1].splitlines()[-1]
    assert last.startswith("sqair train: ")
    assert "--resume" in last
    saved, port = newest(run).notes.step, free_port()
    pair = [start(squares, run, port, process, saved + 10) for process in range(2)]
    said = [process.communicate(timeout=300)[1] for process in pair]
    assert [process.returncode for process in pair] == [0, 0], said
    assert [line["step"] for line in numbers(run)] == list(range(10, saved + 11, 10))


def test_a_signal_to_one_process_stops_all(squares: Path, tmp_path: Path) -> None:
    run, port = tmp_path / "run", free_port()
    pair = [start(squares, run, port, process, 10_000) for process in range(2)]
    while all(process.poll() is None for process in pair) and len(checkpoints(run)) < 2:
        time.sleep(0.1)
    os.kill(pair[1].pid, signal.SIGTERM)
    said = [process.communicate(timeout=120)[1] for process in pair]
    assert [process.returncode for process in pair] == [143, 143], said

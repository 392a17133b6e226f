"""Tasks side by side: results in order, never too many at once, failures in their turn."""

import subprocess
import sys
import threading
import time

import pytest

from sqair.commands.side_by_side import side_by_side


def test_results_come_in_order_and_two_run_at_once():
    """Two tasks wait for each other, so they must run at the same time; the first of all ends last."""
    meeting, late = threading.Barrier(2, timeout=60), threading.Event()

    def first() -> int:
        meeting.wait()
        assert late.wait(60)
        return 0

    def second() -> int:
        meeting.wait()
        return 1

    def third() -> int:
        late.set()
        return 2

    assert list(side_by_side([first, second, third], 2)) == [0, 1, 2]


def test_no_more_than_so_many_run():
    running, most, lock = 0, 0, threading.Lock()

    def task() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1

    assert list(side_by_side([task] * 12, 3)) == [None] * 12
    assert most <= 3
    assert list(side_by_side([], 2)) == []


def test_a_failure_is_raised_in_its_turn():
    """What came before it is kept."""

    def fail() -> int:
        raise ValueError("no")

    results = side_by_side([lambda: 1, fail, lambda: 3], 1)
    assert next(results) == 1
    with pytest.raises(ValueError, match="no"):
        next(results)


def test_a_process_ends_at_once_though_a_task_computes():
    """It is stopped while four threads are in and out of compiled code; nothing aborts, the code is that of Ctrl-C."""
    program = """
import signal, sys
import jax
from sqair import cli
from sqair.commands.side_by_side import side_by_side

step = jax.jit(lambda x: jax.lax.fori_loop(0, 10**4, lambda _, y: jax.numpy.cos(y), x))

def compute():
    while True:
        step(1.0).block_until_ready()

def run(words):
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    next(side_by_side([compute] * 4, 4))

signal.signal(signal.SIGALRM, signal.default_int_handler)
cli.run, sys.argv = run, ["sqair"]
sys.exit(cli.program())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "sqair: stopped\n")

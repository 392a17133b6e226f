"""How many steps a call of the device makes, how fast they are, and signals that wait for the end of a call."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_CALL = 1.0
"""Seconds that one call should last at most, so that signals are answered."""
MOST_STEPS = 100
"""Steps in one call at most."""


class Pace:
    """Chooses the length of the next call by the speed of the last ones; results do not depend on it."""

    def __init__(self, started: float | None = None) -> None:
        self.started = time.perf_counter() if started is None else started
        self.calls = self.done = 0
        self.seconds = 0.0

    def steps(self, ahead: int) -> int:
        """Steps of the next call, at most `ahead`; one while the speed is unknown."""
        return max(1, min(ahead, MOST_STEPS, int(LONGEST_CALL * self.steps_per_second())))

    def steps_per_second(self) -> float:
        """The mean speed; 0 while it is unknown."""
        return self.done / self.seconds if self.seconds > 0 else 0.0

    def elapsed(self) -> float:
        """Seconds since `started`, a reading of time.perf_counter, everything counted."""
        return time.perf_counter() - self.started

    @contextmanager
    def timed(self, count: int) -> Iterator[None]:
        """Measure a call of `count` steps. The first one compiles, so it tells nothing."""
        start = time.perf_counter()
        yield
        self.calls += 1
        if self.calls > 1:
            self.done += count
            self.seconds += time.perf_counter() - start


@contextmanager
def catch_signals() -> Iterator[list[int]]:
    """The signals caught since: Ctrl-C and SIGTERM wait for the present call, a second one is answered at once."""
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # elsewhere Python allows no handlers
        yield caught
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, _: object) -> None:
        caught.append(number)
        restore()

    for number in before:
        signal.signal(number, note)
    try:
        yield caught
    finally:
        restore()

"""How training shows itself: a progress bar on a terminal, plain lines in a pipe, nothing when quiet. Always stderr."""

import math
import statistics
import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

LINE_EVERY = 30.0
"""Seconds between lines in a pipe."""


class Display:
    """Shows steps as they pass; use it as a context. `batch` is the number of sequences of a step, all members'."""

    def __init__(
        self, total: int, done: int, *, batch: int, quiet: bool = False, console: Console | None = None
    ) -> None:
        self.console = console or Console(stderr=True, quiet=quiet)
        self.total, self.batch = total, batch
        self.last_line = time.perf_counter()
        self.bar: Progress | None = None
        if self.console.is_terminal and not quiet:
            columns = (
                TextColumn("step {task.completed}/{task.total}"),
                BarColumn(20),
                TextColumn("{task.description}"),
            )
            self.bar = Progress(*columns, TimeRemainingColumn(), console=self.console)
        self.task: TaskID | None = (
            None if self.bar is None else self.bar.add_task("compiling", total=total, completed=done)
        )

    def __enter__(self) -> "Display":
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def update(self, step: int, means: Sequence[dict[str, float]], rate: float, healthy: int) -> None:
        """Show the means of every member over the last steps and the speed in sequences per second."""
        text = describe(means, healthy) + f"  {rate:.0f} sequences/s"
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=step, description=text)
        elif time.perf_counter() - self.last_line >= LINE_EVERY:
            self.last_line = time.perf_counter()
            self.say(f"step {step}/{self.total}  {text}  {self.remaining(step, rate)} left")

    def remaining(self, step: int, rate: float) -> str:
        """The time that is left at the present speed, such as 1:02:03; a question mark before it is known."""
        if rate <= 0:
            return "?"
        seconds = int((self.total - step) * self.batch / rate)
        return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"

    def evaluated(self, step: int, bounds: Sequence[float], is_best: bool, healthy: int) -> None:
        """Show the validation bounds of all members; `is_best`: one of them is a new best."""
        text = f"{bounds[0]:.2f}{' (best)' if is_best else ''}"
        if len(bounds) > 1:
            text = f"{describe_bounds(bounds, 2)}{', a new best' if is_best else ''}  healthy {healthy}/{len(bounds)}"
        self.say(f"step {step}/{self.total}  validation bound {text}")

    def say(self, text: str) -> None:
        """One line."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def describe(means: Sequence[dict[str, float]], healthy: int) -> str:
    """The bound and the numbers of objects, per frame; of a population, all bounds and the best one's objects."""
    best = max(means, key=lambda values: _known(values["bound"]))
    bound = f"{best['bound']:.1f}"
    if len(means) > 1:
        bound = f"{describe_bounds([values['bound'] for values in means], 1)}  healthy {healthy}/{len(means)}"
    return (
        f"bound {bound}  objects {best['objects']:.2f}  "
        f"found {best['discovered_first']:.2f}+{best['discovered_later']:.2f}  kept {best['propagated']:.2f}"
    )


def describe_bounds(bounds: Sequence[float], digits: int) -> str:
    """The best with its member, the median and the worst."""
    known = [_known(bound) for bound in bounds]
    best = max(known)
    return (
        f"{best:.{digits}f} (member {known.index(best)}), median {statistics.median(known):.{digits}f}, "
        f"worst {min(known):.{digits}f}"
    )


def _known(bound: float) -> float:
    """A bound that is no number counts as the worst."""
    return -math.inf if math.isnan(bound) else bound

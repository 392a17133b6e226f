"""How training shows itself: a progress bar on a terminal, plain lines in a pipe, nothing when quiet. Always stderr."""

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

LINE_EVERY = 30.0
"""Seconds between lines in a pipe."""


class Display:
    """Shows steps as they pass; use it as a context."""

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

    def update(self, step: int, means: dict[str, float], rate: float) -> None:
        """Show the means of the last steps and the speed in sequences per second."""
        text = describe(means) + f"  {rate:.0f} sequences/s"
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

    def evaluated(self, step: int, bound: float, is_best: bool) -> None:
        """Show the result of a validation."""
        self.say(f"step {step}/{self.total}  validation bound {bound:.2f}{' (best)' if is_best else ''}")

    def say(self, text: str) -> None:
        """One line."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def describe(means: dict[str, float]) -> str:
    """The bound and the numbers of objects, per frame."""
    return (
        f"bound {means['bound']:.1f}  objects {means['objects']:.2f}  "
        f"found {means['discovered_first']:.2f}+{means['discovered_later']:.2f}  kept {means['propagated']:.2f}"
    )

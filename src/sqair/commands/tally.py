"""How a command that does many things shows them as they end: a bar on a terminal, lines in a pipe; and tables of them.

What it shows goes to stderr.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from sqair.training.files import write_text


class Tally:
    """Counts what is done; use it as a context."""

    def __init__(self, total: int, *, quiet: bool) -> None:
        self.console = Console(stderr=True, quiet=quiet)
        self.total, self.done = total, 0
        columns = (MofNCompleteColumn(), BarColumn(20), TimeRemainingColumn())
        shown = self.console.is_terminal and not quiet
        self.bar = Progress(*columns, console=self.console, disable=not shown)
        self.task = self.bar.add_task("", total=total)

    def __enter__(self) -> "Tally":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def add(self, text: str) -> None:
        """One more is done; say what came of it."""
        self.done += 1
        line = f"{self.done}/{self.total}  {text}"
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)
        self.bar.update(self.task, completed=self.done)


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], *, first: Sequence[str]) -> None:
    """A table with the columns of all rows, those named `first` before the others."""
    columns = dict.fromkeys([*first, *(name for row in rows for name in row)])
    text = io.StringIO()
    table = csv.DictWriter(text, list(columns), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_text(path, text.getvalue())

"""Tasks that run at the same time in one process, and are waited for in order."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

NAME = "side by side"
"""Of threads."""


def side_by_side(tasks: Sequence[Callable[[], T]], most: int) -> Iterator[T]:
    """What the tasks return, in their order, while at most so many run; one that fails raises when its turn comes.

    Their threads do not hold up the process: who presses Ctrl-C need not wait for them, as for those of an executor.
    """
    futures: list[Future[T]] = [Future() for _ in tasks]
    pairs = iter(list(zip(tasks, futures, strict=True)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                task, future = next(pairs, (None, None))
            if task is None or future is None:
                return
            try:
                future.set_result(task())
            except BaseException as error:  # told in the thread that waits
                future.set_exception(error)
                return

    for _ in range(min(most, len(tasks))):
        threading.Thread(target=work, daemon=True, name=NAME).start()
    for future in futures:
        yield future.result()


def any_unfinished() -> bool:
    """Whether a task still runs, after its result was given up."""
    return any(thread.name == NAME for thread in threading.enumerate())

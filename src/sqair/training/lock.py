"""One process writes into a run's folder: the second is refused, and told who was first."""

import contextlib
import fcntl
import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from sqair.config import UserError

LOCK = ".lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run's folder, which is made if it is not there, and unmade if nothing is written into it.

    The system lets go of the lock when its holder dies, however it dies: a file that is left behind holds nobody up.
    """
    made = [path for path in (folder, *folder.absolute().parents) if not path.exists()]
    handle = _acquire(folder / LOCK)
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps({"pid": os.getpid(), "host": platform.node()}).encode(), 0)
        yield
    finally:
        try:
            (folder / LOCK).unlink(missing_ok=True)
        finally:
            os.close(handle)
        for path in made:
            with contextlib.suppress(OSError):  # those that hold something stay
                path.rmdir()


def _acquire(path: Path) -> int:
    """The open, locked file."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:  # its holder deleted the folder between the two calls
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(handle, path):
                return handle
        except BlockingIOError as error:
            holder = _describe(os.pread(handle, 1000, 0))
            os.close(handle)
            raise UserError(
                f"{path.parent} is in use by {holder}; wait for it, stop it, or choose another --out"
            ) from error
        os.close(handle)  # its holder deleted it between the two calls


def _is_at(handle: int, path: Path) -> bool:
    """Whether an open file is still the one with this name."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _describe(content: bytes) -> str:
    """The holder, as its lock tells."""
    try:
        holder = json.loads(content)
        return f"process {holder['pid']} on {holder['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"

"""Run folders: their names, what is in them, and what may be written over."""

from pathlib import Path


def choose_folder(
    command: str, name: str, out: Path | None = None, *, resume: bool = False, overwrite: bool = False
) -> Path:
    """`out` if given, else runs/<command>/<name>, with -2, -3, ... if that is taken. Nothing is written.

    A non-empty `out` is a UsageError unless `resume` or `overwrite`; with `resume` and no `out`, the newest run.
    """
    raise NotImplementedError

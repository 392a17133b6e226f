"""Text and folders written so that a reader, or a crash, sees all of it or nothing."""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqair.files import written_atomically


def write_text(path: Path, text: str) -> None:
    """Replace `path` by a file with this text."""
    with written_atomically(path) as file:
        file.write(text.encode())


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by a file with this value; numbers that are not finite become null, which JSON can say."""
    write_text(path, json.dumps(finite(value), indent=2, allow_nan=False) + "\n")


def finite(value: Any) -> Any:
    """The value with None for every float that is not finite."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


@contextlib.contextmanager
def folder_written_atomically(path: Path) -> Iterator[Path]:
    """A folder that takes the name `path` when the block ends well, and vanishes when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
    try:
        yield part
        sync_folder(part)
        part.chmod(path.parent.stat().st_mode & 0o777)  # mkdtemp makes folders that only their owner may read
        if path.exists():
            path.rename(old := path.with_name(f"{part.name}.old"))  # aside, until the new one has its place
            part.rename(path)
            shutil.rmtree(old)
        else:
            part.rename(path)
        sync_folder(path.parent)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable; its files are synced when they are written."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

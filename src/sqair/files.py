"""Writing a file or a folder so that a reader, or a crash, sees all of it or nothing; names that can be shown.

Standard library only.
"""

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:")
"""How an address begins; a drive of Windows has one letter only."""
AFTER_PATH = re.compile(r"[?#; ]")
"""What may follow an address's path: a question, a part, parameters, options."""


@contextlib.contextmanager
def written_atomically(path: Path) -> Iterator[BinaryIO]:
    """A binary file that takes the name `path` when the block ends well, and vanishes when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())  # mkstemp makes files that only their owner may read
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    sync_folder(path.parent)


def _umask() -> int:
    """The process's umask; it can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


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


def without_secrets(source: str) -> str:
    """What a source may be called on screen and in files: an address loses user, password and what follows its path.

    Where it is not clear what belongs to a password, more is left out. Addresses may be nested or listed, as FFmpeg
    has it: `cache:http://...`, `concat:http://...|http://...`.
    """
    source = printable(source)
    if not ADDRESS.match(source):
        return source
    return "|".join(_cleaned(part) for part in source.split("|"))


def _cleaned(address: str) -> str:
    """One address, perhaps nested."""
    scheme, slashes, rest = address.partition("://")
    if not slashes:
        return address
    host = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in host or (":" in rest.partition("@")[0] and "@" in rest):
        rest = AFTER_PATH.split(rest.partition("@")[2], maxsplit=1)[0].rpartition("@")[2]
    return f"{scheme}://{AFTER_PATH.split(rest, maxsplit=1)[0]}"


def printable(name: str) -> str:
    """A file's name with escapes for line breaks, for what steers a terminal and for bytes that are no text."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in name)

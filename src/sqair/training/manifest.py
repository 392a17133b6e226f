"""Checksums: what was written is what is read, or the file that is damaged is named.

A folder's manifest.json lists size and sha256 of each of its files. A table can carry the sha256 of its entries.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqair.config import UserError
from sqair.training.files import finite, write_json

MANIFEST = "manifest.json"


class Damaged(UserError):
    """A file is not what was written."""


def write_manifest(folder: Path) -> None:
    """List all files of a folder; to be called when they are complete."""
    files = {path.name: _describe(path) for path in sorted(folder.iterdir()) if path.name != MANIFEST}
    write_json(folder / MANIFEST, {"files": files})


def check_manifest(folder: Path) -> None:
    """Refuse a folder in which a file is missing or changed; the first one is named."""
    path = folder / MANIFEST
    try:
        files = dict(json.loads(path.read_bytes())["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{path} is damaged") from error
    for name, wanted in files.items():
        try:
            found = _describe(folder / name)
        except (OSError, ValueError) as error:
            raise Damaged(f"{folder / name} is missing") from error
        if found != wanted:
            raise Damaged(f"{folder / name} is damaged: it is not what {MANIFEST} says")


def _describe(path: Path) -> dict[str, Any]:
    """The size of a file and its sha256."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def checksum(value: Any) -> str:
    """The sha256 of bytes, or of a value as JSON can say it."""
    content = value if isinstance(value, bytes) else json.dumps(finite(value), sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()


def changed_entry(table: Mapping[str, Any], checksums: Mapping[str, Any]) -> str | None:
    """The first entry of a table that is missing or not what its checksum says; entries without one are not looked at.

    A dot in a name leads into the table of that name.
    """
    for name, wanted in checksums.items():
        value: Any = table
        for key in name.split("."):
            value = value.get(key, _Missing) if isinstance(value, dict) else _Missing
        if value is _Missing or checksum(value) != wanted:
            return name
    return None


class _Missing:
    """Stands for an entry that is not there."""

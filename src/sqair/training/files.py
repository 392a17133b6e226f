"""Bytes, text and JSON written so that a reader, or a crash, sees all of it or nothing."""

import json
from pathlib import Path
from typing import Any

from sqair.files import written_atomically


def write_bytes(path: Path, content: bytes) -> None:
    """Replace `path` by a file with this content."""
    with written_atomically(path) as file:
        file.write(content)


def write_text(path: Path, text: str) -> None:
    """Replace `path` by a file with this text."""
    write_bytes(path, text.encode())


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

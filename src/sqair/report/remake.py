"""The page of a folder made again, by this version's programs, from what the folder holds."""

import json
import tempfile
from pathlib import Path
from typing import Any

from sqair.config import UserError
from sqair.report.clip import write_clip
from sqair.report.document import PAGE, read_blocks
from sqair.report.evaluation import evaluate_page
from sqair.report.training import train_page
from sqair.training.runs import METRICS, RUN

NUMBERS = "metrics.json"
"""What `sqair evaluate` writes."""


def remake(folder: str | Path) -> Path:
    """Write index.html of the folder of a train, evaluate, track or predict run again; returns its path.

    The frames of a clip are nowhere but in its page, so such a page is made from itself.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}; give the folder of a run")
    if (folder / METRICS).is_file() and (folder / RUN).is_file():
        return train_page(folder)
    if (folder / NUMBERS).is_file():
        return evaluate_page(folder, read_numbers(folder / NUMBERS))
    if (folder / PAGE).is_file():
        return remake_clip(folder / PAGE)
    raise UserError(f"{folder} holds no run to report on; give the folder of a train, evaluate or track run")


def read_numbers(path: Path) -> dict[str, Any]:
    """The numbers of an evaluation."""
    try:
        numbers = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}; evaluate again") from None
    if not isinstance(numbers, dict):
        raise UserError(f"{path} holds no table of numbers; evaluate again")
    return numbers


def remake_clip(path: Path) -> Path:
    """Write the page of a clip again, with the data that is in it."""
    blocks = read_blocks(path)
    head = json.loads(next(blocks)[1])
    if not {"title", "kind", "inOne", "frames"} <= set(head):
        raise UserError(f"{path} is not the page of a clip; run the command that made it again")
    with tempfile.TemporaryDirectory(prefix=".page.", dir=path.parent) as scratch:
        files = []
        for name, content in blocks:
            files.append((name, Path(scratch) / name))
            files[-1][1].write_bytes(content)
        write_clip(path, head, files)
    return path

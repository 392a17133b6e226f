"""Tracks for other programs: pandas, supervision, COCO and YOLO."""

import importlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from sqair.config import UserError
from sqair.files import folder_written_atomically, written_atomically
from sqair.tracks.table import Tracks
from sqair.tracks.text import FIELDS, flat_columns

if TYPE_CHECKING:
    from pandas import DataFrame

CLASS = "object"
"""The only class: the model knows no others."""


def to_pandas(tracks: Tracks) -> "DataFrame":
    """As `Tracks.to_pandas`."""
    pandas = _needed("pandas")
    return pandas.DataFrame(dict(zip(FIELDS, flat_columns(tracks), strict=True)))


def to_supervision(tracks: Tracks) -> list[Any]:
    """As `Tracks.to_supervision`."""
    supervision = _needed("supervision")
    seen = tracks.select(tracks.in_sight)
    corners = np.concatenate([seen.box[:, :2], seen.box[:, :2] + seen.box[:, 2:]], 1)
    starts = np.searchsorted(seen.frame, np.arange(tracks.frames + 1))
    return [
        supervision.Detections(
            xyxy=corners[first:last],
            confidence=np.nan_to_num(seen.presence[first:last], nan=1.0),
            class_id=np.zeros(last - first, int),
            tracker_id=seen.id[first:last],
        )
        for first, last in itertools.pairwise(starts)
    ]


def to_coco(tracks: Tracks, path: Path) -> None:
    """As `Tracks.to_coco`; written row by row. Frame 0 is the image 000001.png, as ffmpeg would name it."""
    height, width = _size(tracks, "COCO")
    head = {
        "videos": [{"id": 1, "name": tracks.source}],
        "categories": [{"id": 1, "name": CLASS}],
    }
    images = (
        {"id": frame + 1, "file_name": f"{frame + 1:06}.png", "height": height, "width": width}
        | {"video_id": 1, "frame_id": frame}
        for frame in range(tracks.frames)
    )
    try:
        with written_atomically(path) as file:
            file.write(json.dumps(head)[:-1].encode())
            for name, items in (("images", images), ("annotations", _annotations(tracks))):
                file.write(f', "{name}": ['.encode())
                for number, item in enumerate(items):
                    file.write(("," * (number > 0) + "\n" + json.dumps(item, allow_nan=False)).encode())
                file.write(b"\n]")
            file.write(b"}\n")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


def _annotations(tracks: Tracks) -> Iterator[dict[str, Any]]:
    """One for each row in sight."""
    seen = tracks.select(tracks.in_sight)
    scores = np.nan_to_num(seen.presence, nan=1.0)
    for number, (frame, id, box, score) in enumerate(zip(seen.frame, seen.id, seen.box, scores, strict=True), 1):
        bbox = [float(str(side)) for side in box]
        yield {
            "id": number,
            "image_id": int(frame) + 1,
            "category_id": 1,
            "track_id": int(id),
            "bbox": bbox,
            "area": bbox[2] * bbox[3],
            "iscrowd": 0,
            "score": float(str(score)),
        }


def to_yolo(tracks: Tracks, folder: Path) -> None:
    """As `Tracks.to_yolo`: labels/000001.txt for frame 0 and so on, and classes.txt. An existing folder is refused."""
    size = _size(tracks, "YOLO")
    if folder.exists():
        raise UserError(f"{folder} exists already; choose another folder for the labels")
    seen = tracks.select(tracks.in_sight)
    starts = np.searchsorted(seen.frame, np.arange(tracks.frames + 1))
    try:
        with folder_written_atomically(folder) as part:
            (part / "classes.txt").write_text(f"{CLASS}\n")
            (part / "labels").mkdir()
            for frame, (first, last) in enumerate(itertools.pairwise(starts), 1):
                lines = yolo_lines(seen.box[first:last], size)
                (part / "labels" / f"{frame:06}.txt").write_text("".join(f"{line}\n" for line in lines))
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror or error}") from error


def yolo_lines(boxes: ndarray, size: tuple[int, int]) -> Iterator[str]:
    """Class, centre and size of boxes as shares of the frame, without what lies outside of it."""
    limits = np.array(size[::-1], float)
    low = np.clip(boxes[:, :2].astype(float), 0, limits)
    high = np.clip(boxes[:, :2].astype(float) + boxes[:, 2:], 0, limits)
    shares = np.concatenate([(low + high) / 2 / limits, (high - low) / limits], 1)
    return ("0 " + " ".join(f"{share:.6f}" for share in row) for row in shares if row[2:].min() > 0)


def _size(tracks: Tracks, kind: str) -> tuple[int, int]:
    if tracks.size is None:
        raise UserError(f"{kind} needs the size of the frames: give it with Tracks.read(file, size=(height, width))")
    return tracks.size


def _needed(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"{name} is not installed; install it with `pip install {name}`") from error

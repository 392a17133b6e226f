"""Files of tracks as text: rows to lines, and back from anything a stranger may call such a file.

MOTChallenge: `frame,id,left,top,width,height,confidence,-1,-1,-1`, where frames, ids and pixels count from 1. CSV: a
header and every row. JSON: facts about the clip and every row. Readers hold no more than a small multiple of the file
in memory, and refuse what they cannot use with one line that names the file and the place.
"""

import csv
import json
import math
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from sqair.config import FORMAT_VERSION, UserError
from sqair.tracks.checks import MOST_FRAMES, MOST_ID, bad_rows, check_clip, problem
from sqair.tracks.table import Tracks

FIELDS = ("frame", "id", "left", "top", "width", "height", "where_left", "where_top", "where_width", "where_height")
FIELDS += ("presence", "spread")
"""The numbers of a row in CSV and JSON files."""
NEEDED = FIELDS[:6]
MOST_BYTES = 2**28
"""Larger files are refused; an hour with three objects takes 30 MB."""
LEAST_VISIBLE = 0.25
"""Truth of which a smaller share is visible is ignored."""


class Truth(NamedTuple):
    """Tracks to compare with, and which of their rows are not to be found nor to be punished."""

    tracks: Tracks
    ignored: Bool[ndarray, " n"]


class Table(NamedTuple):
    """The numbers of a file, a row after the other, and where each row stands."""

    values: ndarray
    """Rows by fields, NaN where empty."""
    places: ndarray
    """Line or row of the file."""
    place: str
    """What the places are: line or row."""
    name: str
    """Of the file, for messages."""


# --- rows to text


def flat_columns(tracks: Tracks) -> list[ndarray]:
    """The columns of `FIELDS`."""
    return [tracks.frame, tracks.id, *tracks.box.T, *tracks.where.T, tracks.presence, tracks.spread]


def mot_lines(tracks: Tracks) -> Iterator[str]:
    """The rows in sight as lines of a MOTChallenge file."""
    seen = tracks.select(tracks.in_sight)
    corners = ((round(float(str(value)) + 1, 6) for value in column) for column in seen.box.T[:2])
    sizes = (map(str, column) for column in seen.box.T[2:])
    presence = ("1" if math.isnan(value) else str(value) for value in seen.presence)
    for frame, id, left, top, width, height, sure in zip(seen.frame, seen.id, *corners, *sizes, presence, strict=True):
        yield f"{frame + 1},{id + 1},{left},{top},{width},{height},{sure},-1,-1,-1"


def csv_lines(tracks: Tracks) -> Iterator[str]:
    """Every row as a line of a CSV file; what is not known is empty."""
    return _joined(tracks, "")


def json_lines(tracks: Tracks) -> Iterator[str]:
    """Every row as a JSON array; what is not known is null."""
    return (f"[{line}]" for line in _joined(tracks, "null"))


def _joined(tracks: Tracks, missing: str) -> Iterator[str]:
    """Numbers with commas between. A float32 as numpy writes it has as few digits as bring it back."""
    columns = ((missing if value != value else str(value) for value in column) for column in flat_columns(tracks))
    return map(",".join, zip(*columns, strict=True))


# --- files to tracks


def read_tracks(
    path: Path,
    *,
    frames: int | None = None,
    size: tuple[int, int] | None = None,
    rate: float | None = None,
    source: str | None = None,
) -> Tracks:
    """As `Tracks.read`."""
    given = {"frames": frames, "size": size, "rate": rate, "source": source}
    known = {name: value for name, value in given.items() if value is not None}
    return _parse(path, read_text(path), known).tracks


def read_truth(path: str | Path, *, frames: int | None = None, size: tuple[int, int] | None = None) -> Truth:
    """Tracks of a file to compare with.

    Of a MOTChallenge file, rows whose confidence is 0 are ignored, as the benchmark does, and those of a class whose
    visibility is given as less than a quarter.
    """
    path = Path(path)
    given = {"frames": frames, "size": size}
    return _parse(path, read_text(path), {name: value for name, value in given.items() if value is not None})


def _parse(path: Path, text: str, clip: dict[str, Any]) -> Truth:
    """What a file of the kind that its suffix names holds."""
    if path.suffix == ".txt":
        return parse_mot(text, str(path), clip)
    tracks = parse_json(text, str(path), clip) if path.suffix == ".json" else parse_csv(text, str(path), clip)
    return Truth(tracks, np.zeros(len(tracks), bool))


def read_text(path: Path) -> str:
    """The content of a file of tracks."""
    if path.suffix not in (".txt", ".csv", ".json"):
        raise UserError(f"{path} is no file of tracks: its name must end in .txt (MOTChallenge), .csv or .json")
    try:
        if not path.is_file():
            raise UserError(f"{path} is a folder, not a file of tracks" if path.is_dir() else f"{path} does not exist")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if len(content) > MOST_BYTES:
        raise UserError(f"{path} is larger than {MOST_BYTES // 2**20} MB; split it by frames")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text; it cannot be a file of tracks") from error


def parse_mot(text: str, name: str, clip: dict[str, Any]) -> Truth:
    """The rows of a MOTChallenge file, of a tracker or of the truth."""
    values, lines = array("d"), array("q")
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        fields = line.split(",")
        if len(fields) < 6:
            raise UserError(f"{name}, line {number}: frame,id,left,top,width,height are needed, separated by commas")
        numbers = [_number(field, f"{name}, line {number}") for field in fields[:9]]
        values.extend(numbers + [-1.0] * (9 - len(numbers)))
        lines.append(number)
    table = Table(np.array(values).reshape(-1, 9), np.array(lines), "line", name)
    frame, id, left, top, width, height, sure, kind, visible = table.values.T
    box = np.stack([left - 1, top - 1, width, height], 1)
    presence = np.where((sure >= 0) & (sure <= 1), sure, np.nan)
    arrays = {"frame": _whole(frame, 1, table), "id": _whole(id, 1, table), "box": box, "presence": presence}
    tracks = _tracks(arrays, table, clip)
    ignored = (sure == 0) | ((kind > 0) & (visible >= 0) & (visible < LEAST_VISIBLE))
    return Truth(tracks, ignored[np.lexsort((arrays["id"], arrays["frame"]))])


def parse_csv(text: str, name: str, clip: dict[str, Any]) -> Tracks:
    """The rows of a CSV file; columns may come in any order, and those we do not know are left out."""
    values, lines = array("d"), array("q")
    reader = csv.reader(text.splitlines())
    try:
        header = [field.strip() for field in next(reader, [])]
        for field in NEEDED:
            if field not in header:
                raise UserError(f"{name}, line 1: there is no column {field!r}; needed are {', '.join(NEEDED)}")
        order = [header.index(field) if field in header else None for field in FIELDS]
        for row in reader:
            if not row:
                continue
            place = f"{name}, line {reader.line_num}"
            if len(row) != len(header):
                raise UserError(f"{place}: it has {len(row)} fields, the header {len(header)}")
            fields = ("" if column is None else row[column] for column in order)
            values.extend(_number(field, place) if field.strip() else math.nan for field in fields)
            lines.append(reader.line_num)
    except csv.Error as error:
        raise UserError(f"{name}, line {reader.line_num}: it is not CSV ({error})") from error
    return _full_rows(Table(np.array(values).reshape(-1, len(FIELDS)), np.array(lines), "line", name), clip)


def parse_json(text: str, name: str, clip: dict[str, Any]) -> Tracks:
    """The content of a JSON file of tracks."""
    try:
        content = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        line = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise UserError(f"{name}{line}: it is not intact JSON") from error
    if not isinstance(content, dict) or "rows" not in content or content.get("columns") != list(FIELDS):
        raise UserError(f"{name} is no file of tracks: `columns` must be {', '.join(FIELDS)}, `rows` their numbers")
    if (version := content.get("format_version")) != FORMAT_VERSION:
        raise UserError(f"{name} has format_version {version!r:.20}, this program reads {FORMAT_VERSION}; update sqair")
    rows = content["rows"]
    if not isinstance(rows, list):
        raise UserError(f"{name}: `rows` must be a list")
    values = array("d")
    for number, row in enumerate(rows):
        values.extend(_json_row(row, f"{name}, row {number}"))
    size = content.get("size")
    facts = {fact: content.get(fact, default) for fact, default in (("frames", None), ("rate", None), ("source", ""))}
    facts["size"] = tuple(size) if isinstance(size, list) else size
    table = Table(np.array(values).reshape(-1, len(FIELDS)), np.arange(len(rows)), "row", name)
    return _full_rows(table, facts | clip)


def _json_row(row: Any, place: str) -> list[float]:
    if not isinstance(row, list) or len(row) != len(FIELDS):
        raise UserError(f"{place}: it must be a list of {len(FIELDS)} numbers")
    if not all(value is None or type(value) in (int, float) for value in row):
        raise UserError(f"{place}: it may hold only numbers and null")
    try:
        return [math.nan if value is None else float(value) for value in row]
    except OverflowError as error:
        raise UserError(f"{place}: a number is too large") from error


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _number(field: str, place: str) -> float:
    """A finite number."""
    try:
        number = float(field)
    except ValueError as error:
        raise UserError(f"{place}: {field.strip()[:20]!r} is not a number") from error
    if not math.isfinite(number):
        raise UserError(f"{place}: {field.strip()[:20]!r} is not a finite number")
    return number


# --- numbers to tracks


def _full_rows(table: Table, clip: dict[str, Any]) -> Tracks:
    """Tracks from rows of all `FIELDS`."""
    frame, id, presence, spread = (table.values[:, FIELDS.index(field)] for field in ("frame", "id", *FIELDS[-2:]))
    arrays = {"frame": _whole(frame, 0, table), "id": _whole(id, 0, table), "presence": presence, "spread": spread}
    return _tracks(arrays | {"box": table.values[:, 2:6], "where": table.values[:, 6:10]}, table, clip)


def _whole(column: ndarray, first: int, table: Table) -> ndarray:
    """Frames or ids that count from `first`, as integers that count from 0."""
    highest = min(MOST_FRAMES, MOST_ID) + first - 1
    wrong = ~((column >= first) & (column <= highest) & (column == np.floor(column)))
    for row in np.flatnonzero(wrong)[:1].tolist():
        raise _refusal(table, row, f"frame and id must be whole numbers from {first} to {highest}")
    return column.astype(np.int64) - first


def _tracks(arrays: dict[str, ndarray], table: Table, clip: dict[str, Any]) -> Tracks:
    """Tracks from columns of a file; a row that breaks a rule is named by its place."""
    frame, id, rows = arrays["frame"], arrays["id"], len(table.values)
    frames = clip.get("frames")
    clip = clip | {"frames": int(frame.max(initial=-1)) + 1 if frames is None else frames}
    try:
        check_clip(clip["frames"], clip.get("size"), clip.get("rate"), clip.get("source", ""))
    except UserError as error:
        raise UserError(f"{table.name}: {error}") from error
    if clip.get("rate") is not None:
        clip |= {"rate": float(clip["rate"])}  # JSON knows whole numbers, too
    unknown = {"where": np.full((rows, 4), np.nan), "presence": np.full(rows, np.nan), "spread": np.full(rows, np.nan)}
    with np.errstate(over="ignore"):
        floats = {name: array.astype(np.float32) for name, array in (unknown | arrays).items() if array.dtype == float}
    arrays = floats | {"frame": frame, "id": id}
    for row in np.flatnonzero(bad_rows(arrays, clip["frames"]))[:1].tolist():
        raise _refusal(table, row, problem(arrays, row))
    order = np.lexsort((id, frame))
    for row in np.flatnonzero((np.diff(frame[order]) == 0) & (np.diff(id[order]) == 0))[:1].tolist():
        first, again = order[row : row + 2].tolist()
        raise _refusal(table, again, f"this object is in this frame already, on {table.place} {table.places[first]}")
    return Tracks(**arrays, **clip)


def _refusal(table: Table, row: int, what: str) -> UserError:
    return UserError(f"{table.name}, {table.place} {table.places[row]}: {what}")

"""The clips of ``sqair track``: which there are, which are finished, what became of each, and the table of all.

Every clip has a folder, which has a summary.json from the moment that all its other files are there; it tells of what
it was made and how large they are. So a finished clip is known, and none is tracked twice. results.json tells from the
start what is to be done, and in the end, as results.csv does, what came of it.
"""

import glob
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqair.commands.tally import write_csv
from sqair.commands.track import folder_name
from sqair.commands.track_clip import METRICS, SUMMARY
from sqair.config import UsageError, UserError
from sqair.data.video import IMAGES, VIDEOS, Clip, natural, open_clips
from sqair.files import ADDRESS, without_secrets
from sqair.training.files import write_json
from sqair.training.manifest import checksum

if TYPE_CHECKING:
    from sqair.commands.track import Track

RESULTS, TABLE, PROGRAMS = "results.json", "results.csv", ".programs"
NUMBERS = ("frames", "identities", "objects_per_frame", "most_objects", "seconds")
DECIDES = ("model", "particles", "lag", "invert", "rate", "seed")
"""Flags that a resumed command must repeat."""


class Item(NamedTuple):
    """A clip that is to be tracked."""

    source: str
    """What opens it; an address may have a password in it."""
    number: int
    """Which of the source's clips it is."""
    name: str
    """For people."""
    place: Path
    """The folder of its results."""
    gt: str | None
    clip: Clip | None
    error: Exception | None = None
    """Why it could not be opened."""

    def sent(self) -> "Item":
        """What another process needs to open it, wherever that process works."""
        source = self.source if ADDRESS.match(self.source) else str(Path(self.source).expanduser().absolute())
        gt = None if self.gt is None else str(Path(self.gt).absolute())
        return self._replace(source=source, place=self.place.absolute(), gt=gt, clip=None)

    def opened(self, rate: float) -> Clip:
        """The clip."""
        return self.clip or open_clips(self.source, rate=rate)[self.number]


# --- which there are


def find_items(command: "Track", folder: Path) -> list[Item]:
    """The clips of all sources, with those that cannot be opened."""
    found = [each for source in command.sources for part in split(source) for each in opened(part, command.rate)]
    if command.gt and len(command.gt) != len(found):
        raise UsageError(f"{len(found)} clips need as many files with --gt, not {len(command.gt)}")
    truth = command.gt or [None] * len(found)
    places = places_of(folder, [item.name for item in found])
    return [item._replace(place=place, gt=gt) for item, place, gt in zip(found, places, truth, strict=True)]


def split(source: str) -> list[str]:
    """A folder or a glob of videos as its files, so that each may fail alone; anything else as it is."""
    path = Path(source).expanduser()
    try:
        is_name = path.exists() or ADDRESS.match(source)
        inside = path.iterdir() if path.is_dir() else [] if is_name else map(Path, glob.glob(str(path)))
        files = [each for each in sorted(inside, key=natural) if not each.name.startswith(".")]
    except OSError:  # opening it says why
        return [source]
    if any(each.suffix.lower() in IMAGES for each in files):
        return [source]
    return [str(each) for each in files if each.suffix.lower() in (*VIDEOS, ".npy", ".npz")] or [source]


def opened(source: str, rate: float) -> Iterator[Item]:
    """The clips of a source that is no folder of videos, or the one that cannot be opened."""
    try:
        for number, clip in enumerate(open_clips(source, rate=rate)):
            yield Item(source, number, clip.name, Path(), None, clip)
    except UserError as error:
        yield Item(source, 0, without_secrets(source), Path(), None, None, error)


def places_of(folder: Path, names: Sequence[str]) -> list[Path]:
    """Where the results of each clip go: the folder itself for one, else folders in it, whose names differ."""
    if len(names) == 1:
        return [folder]
    taken: set[str] = {PROGRAMS, RESULTS, TABLE}
    found = []
    for name in map(folder_name, names):
        number, free = 1, name
        while free in taken:
            number += 1
            free = f"{name}-{number}"
        taken.add(free)
        found.append(folder / free)
    return found


# --- which are finished


def made_of(item: Item, command: "Track", card: Mapping[str, Any]) -> dict[str, Any]:
    """All that decides what tracking a clip gives and writes: flags, and what names the model, the clip and its truth.

    Names are checksums: results are passed on, and the folders of this machine are nobody else's business.
    """
    return {
        **decisive(command),
        "card": checksum(card),
        "clip": checksum([identity(item.source), item.number]),
        "gt": None if item.gt is None else checksum(identity(item.gt)),
        "export": list(command.export),
    }


def identity(source: str) -> list[Any]:
    """What tells a file, or a folder or a glob of images, from all others and from before; an address is its own."""
    if ADDRESS.match(source):
        return [source]
    path = Path(source).expanduser()
    try:
        if path.is_file():
            return [str(path.absolute()), *state_of(path)]
        inside = path.iterdir() if path.is_dir() else map(Path, glob.glob(str(path)))
        images = sorted(each for each in inside if each.suffix.lower() in IMAGES)
        return [str(path.absolute()), *([str(each.absolute()), *state_of(each)] for each in images)]
    except OSError:
        return [str(path.absolute())]


def state_of(path: Path) -> tuple[int, int]:
    """The size of a file and when it was last changed."""
    about = path.stat()
    return about.st_size, about.st_mtime_ns


def finished(item: Item, made: Mapping[str, Any]) -> dict[str, Any] | None:
    """The summary of a clip that an earlier command tracked to its end as this one would, and whose files are whole."""
    try:
        summary = json.loads((item.place / SUMMARY).read_bytes())
        whole = all((item.place / name).stat().st_size == size for name, size in summary["files"].items())
        same = summary["made"] == made and not summary.get("stopped")
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None
    return summary if whole and same else None


def check_same(command: "Track", folder: Path, items: Sequence[Item]) -> None:
    """Refuse to go on with what was begun with other settings, or where a folder belongs to another source."""
    begun = read_table(folder / (SUMMARY if len(items) == 1 else RESULTS))
    settings = begun.get("made" if len(items) == 1 else "settings")
    if not isinstance(settings, dict):
        return
    now = decisive(command)
    if changed := [name for name in DECIDES if settings.get(name) != now[name]]:
        raise UsageError(
            f"{folder} was begun with another --{', --'.join(changed)}; repeat it, or choose another --out"
        )
    before = {row["clip"]: row.get("source") for row in rows_of(begun)}
    if len(items) == 1 and begun.get("source") != items[0].name:
        before = {folder.name: begun.get("source")}
    for item in items:
        if before.get(item.place.name, source_of(item)) != source_of(item):
            raise UsageError(
                f"{item.place} is for {before[item.place.name]}, not {source_of(item)}; choose another --out"
            )


def read_table(path: Path) -> dict[str, Any]:
    """A JSON object of ours; empty where there is none, or a damaged one."""
    try:
        found = json.loads(path.read_bytes())
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError, RecursionError):
        return {}


def rows_of(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The clips of a table; those that a damaged one does not name are left out."""
    rows = table.get("clips")
    rows = rows if isinstance(rows, list) else []
    return [row for row in rows if isinstance(row, dict) and isinstance(row.get("clip"), str)]


def decisive(command: "Track") -> dict[str, Any]:
    """The flags that decide what is found."""
    return {name: getattr(command, name) for name in DECIDES}


def source_of(item: Item) -> str:
    """Where a clip comes from, for people and for the table."""
    return without_secrets(item.source)


# --- what became of each


class Batch:
    """The clips of a command with a row for each; the table of them is in the folder from `begin` to after `end`."""

    def __init__(self, command: "Track", folder: Path, items: Sequence[Item]) -> None:
        self.command, self.folder, self.begun = command, folder, False
        self.deaths = deaths_of(folder) if command.resume else {}
        """Workers that died of a clip in earlier commands; `tries` is one more than all that did."""
        self.summaries: dict[str, dict[str, Any]] = {}
        self.failures: dict[str, str] = {}
        self.rows: dict[str, dict[str, Any]] = {
            item.place.name: {"clip": item.place.name, "source": source_of(item)} for item in items
        }

    def add(self, item: Item, summary: dict[str, Any], tries: int = 1) -> None:
        """A clip was tracked, now or earlier."""
        self.summaries[item.place.name] = summary
        numbers = {name: summary.get(name) for name in NUMBERS}
        metrics = {name: (summary.get("metrics") or {}).get(name) for name in METRICS} if item.gt else {}
        self._tell(item, "tracked", tries, **numbers, **metrics)

    def fail(self, item: Item, why: str, tries: int = 1) -> None:
        """A clip was not."""
        self.failures[item.place.name if item.name in self.failures else item.name] = why
        self._tell(item, "failed", tries, error=why)

    def died(self, item: Item, tries: int) -> None:
        """The worker of a clip died; the clip is to be tried once more."""
        self._tell(item, "open", tries + 1)

    def _tell(self, item: Item, state: str, tries: int, **more: Any) -> None:
        name = item.place.name
        self.rows[name] |= {"state": state, "tries": self.deaths.get(name, 0) + tries, **more}

    def begin(self) -> None:
        """Write what is to be done."""
        self.begun = True
        self.write()

    def end(self) -> None:
        """Write what came of it, and clean up; nothing, if it did not begin."""
        if self.begun:
            tidy(self.folder)
            self.write()

    def write(self) -> None:
        """Write the table of all clips, those included that nothing is known of yet."""
        rows = [{"state": "open"} | row for row in self.rows.values()]
        write_json(self.folder / RESULTS, {"settings": decisive(self.command), "clips": rows})
        write_csv(self.folder / TABLE, rows, first=("clip", "source", "state"))


def deaths_of(folder: Path) -> dict[str, int]:
    """How many workers died of each clip, as the table tells; nothing where it is damaged."""
    rows = rows_of(read_table(folder / RESULTS))
    return {row["clip"]: row["tries"] - 1 for row in rows if type(row.get("tries")) is int}


def say_found(summary: dict[str, Any]) -> str:
    """What was found in a clip, in a few words."""
    return f"{summary['frames']} frames, {summary['identities']} identities"


# --- workers


def environment(folder: Path) -> dict[str, str]:
    """What workers need to know: where all of them keep compiled programs."""
    name = "JAX_COMPILATION_CACHE_DIR"
    return {name: os.environ.get(name, str((folder / PROGRAMS).absolute()))}


def tidy(folder: Path) -> None:
    """Delete what workers that were killed left behind, and the compiled programs."""
    for path in (*folder.glob(".*.part"), folder / PROGRAMS):
        shutil.rmtree(path, ignore_errors=True)

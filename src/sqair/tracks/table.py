"""`Tracks`, the result of tracking: a table with one row for each object and frame.

Axes: n rows, 4 left, top, width, height in pixels of the source.
"""

import dataclasses
import operator
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float32, Int64
from numpy import ndarray

from sqair.config import UserError
from sqair.tracks.checks import COLUMNS, as_column, check_clip, check_lengths, check_rows, check_unique

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclasses.dataclass(frozen=True, eq=False)
class Tracks:
    """Objects of one clip: a row for each object and frame in which it is alive, in sight or not.

    Rows may be given in any order and are kept sorted by frame, then id; no id is in a frame twice. Arrays are
    read-only: methods that change something return new tracks. `Tracks.make` fills in what is not known.
    """

    frame: Int64[ndarray, " n"]
    """From 0."""
    id: Int64[ndarray, " n"]
    """At least 0; kept for life."""
    box: Float32[ndarray, "n 4"]
    """The tight box of what is seen; NaN where the object is alive but out of sight."""
    where: Float32[ndarray, "n 4"]
    """The box of the glimpse; NaN where not known."""
    presence: Float32[ndarray, " n"]
    """Posterior probability that the object is there; NaN where not known."""
    spread: Float32[ndarray, " n"]
    """Standard deviation of the centre in pixels; NaN where not known."""
    frames: int
    """Frames of the clip, those without objects included."""
    size: tuple[int, int] | None = None
    """Height and width of a frame, where known."""
    rate: float | None = None
    """Frames per second, where known."""
    source: str = ""
    """What was tracked."""

    def __post_init__(self) -> None:
        arrays = {name: as_column(name, getattr(self, name), kind) for name, kind in COLUMNS.items()}
        check_lengths(arrays)
        check_clip(self.frames, self.size, self.rate, self.source)
        check_rows(arrays, self.frames)
        order = np.lexsort((arrays["id"], arrays["frame"]))
        for name, array in arrays.items():
            array = array[order]
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        check_unique(self.frame, self.id)

    @classmethod
    def make(
        cls,
        frame: Any,
        id: Any,
        box: Any,
        *,
        frames: int,
        where: Any = None,
        presence: Any = None,
        spread: Any = None,
        size: tuple[int, int] | None = None,
        rate: float | None = None,
        source: str = "",
    ) -> "Tracks":
        """Tracks from anything like arrays; what is left out is not known."""
        rows = np.size(frame)
        box = np.zeros((0, 4)) if rows == 0 else box
        where = np.full((rows, 4), np.nan) if where is None else where
        unknown = np.full(rows, np.nan)
        presence, spread = (unknown if value is None else value for value in (presence, spread))
        values = zip(COLUMNS, (frame, id, box, where, presence, spread), strict=True)
        arrays = {name: as_column(name, value, COLUMNS[name]) for name, value in values}
        check_lengths(arrays)
        return cls(**arrays, frames=frames, size=size, rate=rate, source=source)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tracks):
            return NotImplemented
        clip = operator.attrgetter("frames", "size", "rate", "source")
        same = (np.array_equal(getattr(self, name), getattr(other, name), equal_nan=True) for name in COLUMNS)
        return clip(self) == clip(other) and all(same)

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        """Rows."""
        return len(self.frame)

    def __repr__(self) -> str:
        return f"Tracks({self.source!r}: {len(self.ids)} objects, {len(self)} rows, {self.frames} frames)"

    # --- what is in it

    @property
    def ids(self) -> Int64[ndarray, " m"]:
        """Every identity once, in order."""
        return np.unique(self.id)

    @property
    def in_sight(self) -> Bool[ndarray, " n"]:
        """Whether a row has a box."""
        return ~np.isnan(self.box[:, 0])

    @property
    def counts(self) -> Int64[ndarray, " t"]:
        """Objects alive in each frame, in sight or not."""
        return np.bincount(self.frame, minlength=self.frames)

    def select(self, rows: ndarray | slice) -> "Tracks":
        """Some of the rows, by a mask, indices or a slice."""
        return dataclasses.replace(self, **{name: getattr(self, name)[rows] for name in COLUMNS})

    def at(self, frame: int) -> "Tracks":
        """The rows of one frame."""
        if not 0 <= frame < self.frames:
            raise UserError(f"there is no frame {frame}: the clip has frames 0 to {self.frames - 1}")
        return self.between(frame, frame + 1)

    def between(self, start: int, stop: int) -> "Tracks":
        """The rows of frames `start` to `stop`, that one excluded; frames keep their numbers."""
        return self.select(slice(*np.searchsorted(self.frame, (start, max(start, stop)))))

    def of(self, *ids: int) -> "Tracks":
        """The rows of some identities."""
        self._check_known(ids)
        return self.select(np.isin(self.id, ids))

    # --- repair by hand

    def merge(self, *ids: int) -> "Tracks":
        """The same with all `ids` under the first of them: they were one object. No two may share a frame."""
        self._check_known(ids)
        if len(set(ids)) < 2:
            raise UserError("merging needs at least two identities")
        mine = np.isin(self.id, ids)
        frame, times = np.unique(self.frame[mine], return_counts=True)
        if (times > 1).any():
            names = ", ".join(map(str, ids))
            raise UserError(f"identities {names} cannot be one object: frame {frame[times > 1][0]} has two of them")
        return self._with_ids(np.where(mine, ids[0], self.id))

    def split(self, id: int, frame: int) -> "Tracks":
        """The same with the rows of `id` from `frame` on under a new identity, the next free number."""
        self._check_known([id])
        mine = self.id == id
        later = mine & (self.frame >= frame)
        if not later.any() or (later == mine).all():
            first, last = self.frame[mine][[0, -1]]
            raise UserError(f"object {id} lives from frame {first} to {last}: split it at a frame after its first")
        return self._with_ids(np.where(later, self.id.max() + 1, self.id))

    def rename(self, names: Mapping[int, int]) -> "Tracks":
        """The same with identities replaced, `{old: new}`; two may swap. A name that is taken is refused."""
        self._check_known(names)
        others = set(self.ids.tolist()) - set(names)
        new = list(names.values())
        for name in new:
            if name in others or new.count(name) > 1:
                raise UserError(f"identity {name} is taken; use `merge` if they are one object")
        ids, place = np.unique(self.id, return_inverse=True)
        renamed = np.array([names.get(int(id), int(id)) for id in ids], np.int64)
        return self._with_ids(renamed[place])

    def _with_ids(self, ids: ndarray) -> "Tracks":
        return dataclasses.replace(self, id=ids)

    def _check_known(self, ids: Iterable[int]) -> None:
        known = self.ids
        for id in ids:
            if id not in known:
                raise UserError(f"there is no object {id}; known are {_few(known)}")

    # --- in and out

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        frames: int | None = None,
        size: tuple[int, int] | None = None,
        rate: float | None = None,
        source: str | None = None,
    ) -> "Tracks":
        """Tracks from .txt (MOTChallenge), .csv or .json; the other arguments tell what the file does not.

        Only .json knows `frames`, `size`, `rate` and `source`; otherwise the clip ends with the last row.
        """
        from sqair.tracks.text import read_tracks

        return read_tracks(Path(path), frames=frames, size=size, rate=rate, source=source)

    def write(self, path: str | Path) -> None:
        """Write .txt (MOTChallenge: no rows out of sight), .csv (every row) or .json (everything), whole or not at all.

        Frames, ids and pixels count from 1 in MOTChallenge files, and from 0 everywhere else.
        """
        from sqair.tracks.streaming import TrackFiles

        with TrackFiles([Path(path)], size=self.size, rate=self.rate, source=self.source) as files:
            files.add(self)

    def to_pandas(self) -> "DataFrame":
        """A data frame with the columns of the CSV file; pandas must be installed."""
        from sqair.tracks.exports import to_pandas

        return to_pandas(self)

    def to_supervision(self) -> list[Any]:
        """A `supervision.Detections` for each frame, of the objects in sight; supervision must be installed."""
        from sqair.tracks.exports import to_supervision

        return to_supervision(self)

    def to_coco(self, path: str | Path) -> None:
        """Write the boxes as a COCO file: an image for each frame, `track_id` and `score` in each annotation."""
        from sqair.tracks.exports import to_coco

        to_coco(self, Path(path))

    def to_yolo(self, folder: str | Path) -> None:
        """Write the boxes as a new folder of YOLO labels: one file for each frame, of the one class `object`."""
        from sqair.tracks.exports import to_yolo

        to_yolo(self, Path(folder))


def _few(ids: ndarray) -> str:
    shown = ", ".join(map(str, ids[:10]))
    return f"{shown}, ..." if len(ids) > 10 else shown or "none"

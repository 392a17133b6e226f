"""Files of tracks written while a clip is tracked: memory does not grow, and a file appears whole or not at all."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from sqair.config import FORMAT_VERSION, UserError
from sqair.files import written_atomically
from sqair.tracks.table import Tracks
from sqair.tracks.text import FIELDS, csv_lines, json_lines, mot_lines


class TrackFiles:
    """Writes tracks into some files, .txt, .csv or .json, as they come.

    `with TrackFiles([folder / "tracks.txt", folder / "tracks.json"], size=size) as files: files.add(tracks)`. If the
    block ends well the files take their names; if it does not they vanish.
    """

    frames: int
    """Frames of the clip so far."""

    def __init__(
        self,
        paths: Iterable[str | Path],
        *,
        size: tuple[int, int] | None = None,
        rate: float | None = None,
        source: str = "",
    ) -> None:
        self.frames = 0
        self._paths = [Path(path) for path in paths]
        self._facts = {"source": source, "size": size, "rate": rate}
        self._next = 0
        self._stack = contextlib.ExitStack()
        self._parts: list[_Part] = []
        for path in self._paths:
            if path.suffix not in (".txt", ".csv", ".json"):
                raise UserError(
                    f"cannot write tracks to {path}: the name must end in .txt (MOTChallenge), .csv or .json"
                )

    def __enter__(self) -> "TrackFiles":
        with self._vanishing():
            for path in self._paths:
                with _said(path):
                    file = self._stack.enter_context(written_atomically(path))
                    self._parts.append(_begin(path, file, self._facts))
        return self

    def add(self, tracks: Tracks) -> None:
        """Append rows, of frames after those of earlier calls; `tracks.frames` is the length of the clip so far."""
        if len(tracks) and tracks.frame[0] < self._next:
            raise ValueError(f"frame {tracks.frame[0]} cannot follow frame {self._next - 1}")
        for part in self._parts:
            with _said(part.path):
                part.write(tracks)
        self._next = int(tracks.frame[-1]) + 1 if len(tracks) else self._next
        self.frames = max(self.frames, tracks.frames)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._stack.__exit__(kind, error, trace)
            return
        with self._vanishing():
            for part in self._parts:
                with _said(part.path):
                    part.end(self.frames)
        for path in self._paths[:1]:
            with _said(path.parent):
                self._stack.close()

    @contextlib.contextmanager
    def _vanishing(self) -> Iterator[None]:
        """Leave no file behind when something fails."""
        try:
            yield
        except BaseException as error:
            self._stack.__exit__(type(error), error, error.__traceback__)
            raise


class _Part:
    """A file that is being written: rows, and in JSON what stands between and after them."""

    def __init__(self, path: Path, file: BinaryIO, lines: Callable[[Tracks], Iterator[str]]) -> None:
        self.path = path
        self._file = file
        self._lines = lines
        self._json = path.suffix == ".json"
        self._empty = True

    def write(self, tracks: Tracks) -> None:
        """Append the rows."""
        for line in self._lines(tracks):
            comma = "," if self._json and not self._empty else ""
            self._file.write((f"{comma}\n{line}" if self._json else f"{line}\n").encode())
            self._empty = False

    def end(self, frames: int) -> None:
        """Write what stands after the rows; the length of the clip is known only now."""
        if self._json:
            self._file.write(f'\n], "frames": {frames}}}\n'.encode())


def _begin(path: Path, file: BinaryIO, facts: dict[str, object]) -> _Part:
    """Write what stands before the rows."""
    if path.suffix == ".json":
        head = json.dumps({"format_version": FORMAT_VERSION, **facts, "columns": FIELDS}, allow_nan=False)
        file.write((head[:-1] + ', "rows": [').encode())
        return _Part(path, file, json_lines)
    if path.suffix == ".csv":
        file.write((",".join(FIELDS) + "\n").encode())
    return _Part(path, file, csv_lines if path.suffix == ".csv" else mot_lines)


@contextlib.contextmanager
def _said(path: Path) -> Iterator[None]:
    """Say in one line what the system refuses."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error

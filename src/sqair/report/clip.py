"""The page of a clip, written frame by frame in constant memory.

Frames and objects go to small files in parts of 256 frames. If all of them fit into one page, they are put into it at
the end; if not, they stay beside it in page/ and the page loads what it shows, and plays a video beside it instead of
the frames. Axes: H, W frame of the source, y, x, c picture, gy, gx glimpse, Z what.
"""

import math
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, SupportsFloat

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray

import sqair
from sqair.figures import COLOURS
from sqair.report.document import PAGE, safe_json, write_page
from sqair.report.lives import Lives, packed
from sqair.report.pictures import Picture, Reel, sheet, to_colour

PARTS = "page"
"""The folder with the parts of a page that is too large for one file."""
LIMIT = 30_000_000
"""Bytes of data in a page that is one file."""
PART = 256
"""Frames of a part."""
TEMPLATE = "clip.html"
SCRIPTS = ("common.js", "store.js", "stage.js", "timeline.js", "detail.js", "player.js")
WHAT_RANGE = 4.0
"""Latents are shown between this and its negative, in steps of a byte."""


class PageObject(NamedTuple):
    """An object in one frame. Boxes are left, top, width, height in pixels of the source."""

    id: int
    """As tracks.txt has it, from 1 on."""
    box: Float[ndarray, "4"] | Sequence[float]
    """NaN when the object is out of sight."""
    where: Float[ndarray, "4"] | Sequence[float]
    """The frame of its glimpse."""
    presence: float
    """The probability that it is there."""
    spread: float
    """Standard deviation of its centre in pixels; NaN if it is not known."""
    glimpse: UInt8[ndarray, "gy gx c"]
    what: Float[ndarray, " Z"]


@dataclass(frozen=True)
class Video:
    """A video beside the page, and where the source's frame is in its pictures."""

    name: str = "overlay.mp4"
    left: float | int = 0.0
    top: float | int = 0.0
    zoom: float | int = 1.0
    """Pixels of the video for one of the source."""


class PageWriter:
    """Writes index.html into `folder`; use it as a context manager, `add` every frame, then `close`.

    `kind` is the command, `rate` frames a second, `size` the source's height and width, `model` its name. `panels`
    names the pictures side by side, and `groups` says whose objects each shows: by default all show the same, and a
    panel whose group is -1 shows none. The first `observed` frames are marked as seen, the others as predicted.
    `content` is the part of the pictures of all panels but the first that shows the source's frame, if that was
    letterboxed: left, top, width, height in their pixels. A clip whose data exceed `limit` bytes plays `video` instead
    of its frames; with no video, the frames are kept beside the page.
    """

    def __init__(
        self,
        folder: Path,
        *,
        title: str,
        kind: str,
        rate: SupportsFloat,
        size: tuple[int, int],
        model: str,
        panels: Sequence[str] = ("clip", "reconstruction"),
        groups: Sequence[int] | None = None,
        observed: int | None = None,
        content: Sequence[float | int] | None = None,
        video: Video | None = None,
        limit: int = LIMIT,
    ) -> None:
        self.folder, self.video, self.limit = folder, video, limit
        self.groups = [0] * len(panels) if groups is None else list(groups)
        if len(self.groups) != len(panels):
            raise ValueError(f"{len(panels)} panels need as many groups, not {len(self.groups)}")
        self.about = {"title": title, "kind": kind, "rate": float(rate), "size": list(size), "model": model}
        self.about |= {"observed": observed, "version": sqair.__version__}
        self.panels, self.content = list(panels), content
        self.reels: list[Reel] = []
        self.glimpse: tuple[int, int] | None = None
        self.what_size = 0
        self.has_spread = False
        self.lives = Lives(max([*self.groups, 0]) + 1)
        self.parts, self.used, self.keeps_frames = 0, 0, True
        self._clear_part()

    def __enter__(self) -> "PageWriter":
        self.folder.mkdir(parents=True, exist_ok=True)
        self.scratch = Path(tempfile.mkdtemp(prefix=f".{PARTS}.", suffix=".part", dir=self.folder))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)

    def add(self, frame: Picture, reconstruction: Picture, objects: Sequence[PageObject]) -> None:
        """The next frame of a clip with two panels: the source (H, W, c), the model's picture of it, the objects."""
        self.add_panels([frame, reconstruction], [objects])

    def add_panels(self, pictures: Sequence[Picture], objects: Sequence[Sequence[PageObject]]) -> None:
        """The next frame: one picture for each panel, and the objects of each group."""
        if not self.reels:
            self.reels = [Reel(picture.shape, PART) for picture in pictures]
        if self.keeps_frames:
            self.held += sum(reel.add(picture) for reel, picture in zip(self.reels, pictures, strict=True))
            self._drop_frames_beyond_limit()
        for group, found in enumerate(objects):
            for each in found:
                self._add_object(group, each)
            seen = [bool(np.isfinite(each.box).all()) for each in found]
            self.lives.add(group, [int(each.id) for each in found], seen)
        self.lives.next_frame()
        self.offsets.append(len(self.ids))
        if len(self.offsets) > PART:
            self._write_part()

    def close(self, summary: dict[str, Any]) -> None:
        """Write the page. `summary` is a table of facts: what it shows below the clip."""
        if len(self.offsets) > 1:
            self._write_part()
        in_one = self.used <= self.limit
        old = self.folder / PARTS
        if in_one:
            blocks = [(path.stem, path) for path in sorted(self.scratch.glob("*.json"))]
        else:
            blocks = []
            self._write_scripts()
            shutil.rmtree(old, ignore_errors=True)
            self.scratch.rename(old)
            old.chmod(self.folder.stat().st_mode & 0o777)  # mkdtemp makes folders that only their owner may read
        write_clip(self.folder / PAGE, self._head(summary, in_one), blocks)
        if in_one:
            shutil.rmtree(old, ignore_errors=True)

    # --- parts

    def _clear_part(self) -> None:
        """Begin a part."""
        self.held = 0
        self.offsets, self.ids, self.of_group = [0], [], []
        self.numbers: list[list[float]] = []
        self.whats: list[ndarray] = []
        self.glimpses: list[UInt8[ndarray, "y x 3"]] = []

    def _add_object(self, group: int, each: PageObject) -> None:
        """A row of the present part."""
        self.ids.append(int(each.id))
        self.of_group.append(group)
        self.numbers.append([*map(float, each.box), *map(float, each.where), float(each.presence), float(each.spread)])
        self.whats.append(np.asarray(each.what, np.float32))
        self.glimpses.append(np.array(to_colour(np.asarray(each.glimpse))))
        self.glimpse, self.what_size = each.glimpse.shape[:2], len(self.whats[-1])
        self.has_spread = self.has_spread or math.isfinite(each.spread)

    def _write_part(self) -> None:
        """Write the rows of the present part, and its frames while they are kept."""
        what = np.clip(np.stack(self.whats) if self.whats else np.zeros((0, 0)), -WHAT_RANGE, WHAT_RANGE)
        columns = math.ceil(math.sqrt(len(self.glimpses) or 1))
        rows = {
            "offsets": packed(self.offsets, "u4"),
            "ids": packed(self.ids, "i4"),
            "groups": packed(self.of_group, "u1"),
            "numbers": packed(self.numbers, "f4"),
            "what": packed(np.round((what / WHAT_RANGE + 1) * 127.5), "u1"),
            "glimpses": sheet(self.glimpses, columns, exact=False) if self.glimpses else None,
            "columns": columns,
        }
        self._write("rows", rows)
        if self.keeps_frames:
            self._write("frames", [reel.take() for reel in self.reels])
        self.parts += 1
        self._clear_part()
        self._drop_frames_beyond_limit()

    def _drop_frames_beyond_limit(self) -> None:
        """Where a video can be played instead, frames are given up when they no longer fit into one page."""
        if self.keeps_frames and self.video is not None and self.used + self.held > self.limit:
            self.keeps_frames = False
            self.used += self.held
            for reel in self.reels:
                reel.take()
            for path in self.scratch.glob("frames-*.json"):
                path.unlink()

    def _write(self, kind: str, value: Any) -> None:
        """A file of the present part; what a page once was too large for, it stays too large for."""
        content = safe_json(value).encode()
        self.used += len(content)
        (self.scratch / f"{kind}-{self.parts:05d}.json").write_bytes(content)

    def _write_scripts(self) -> None:
        """Turn the files of JSON into scripts, the only files that a page opened from disk may load."""
        for path in sorted(self.scratch.glob("*.json")):
            content = path.read_bytes()
            path.with_suffix(".js").write_bytes(b'deliver("%s", %s);\n' % (path.stem.encode(), content))
            path.unlink()

    def _head(self, summary: dict[str, Any], in_one: bool) -> dict[str, Any]:
        """What the page knows from the start."""
        panels = [
            {"name": name, "group": group, **reel.layout.to_dict()}
            for name, group, reel in zip(self.panels, self.groups, self.reels, strict=False)
        ]
        for i, panel in enumerate(panels):
            whole = (0, 0, *panel["size"][::-1])
            panel["content"] = list(whole if self.content is None or i == 0 else self.content)
        video = self.video if self.video is not None and not self.keeps_frames else None
        return self.about | {
            "frames": self.lives.frames,
            "part": PART,
            "parts": self.parts,
            "inOne": in_one,
            "video": None if video is None else vars(video),
            "panels": panels,
            "glimpse": self.glimpse,
            "whatSize": self.what_size,
            "whatRange": WHAT_RANGE,
            "hasSpread": self.has_spread,
            "colours": list(COLOURS),
            "summary": summary,
            **self.lives.to_dict(),
        }


def write_clip(path: Path, head: dict[str, Any], blocks: list[tuple[str, Path]]) -> None:
    """The page itself, from what it knows and the files with its parts."""
    title = f"{head['title']} · sqair {head['kind']}"
    write_page(path, TEMPLATE, SCRIPTS, title=title, head=head, blocks=blocks, parts=not head["inOne"])

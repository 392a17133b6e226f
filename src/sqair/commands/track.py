"""``sqair track``: what a model finds in a clip, as tracks, a video, a page."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

from sqair.commands.common import Command, choose_device, finish, optional
from sqair.config import UsageError, UserError
from sqair.files import without_secrets

if TYPE_CHECKING:
    from sqair.data.video import Clip


@dataclass(frozen=True, kw_only=True)
class Track(Command):
    """Find, follow and count the objects of a video.

    A source is a video, a folder or a glob of images, an .npy or .npz file, a camera or the address of a stream; a
    folder of videos, or several sources, are many clips. Writes tracks.txt (MOTChallenge), tracks.csv, tracks.json,
    overlay.mp4, latents.npz, summary.json and index.html. Ctrl-C ends a stream and saves what was tracked.

    examples:
      sqair track clip.mp4
      sqair track videos/ frames-*.png --model runs/train/mine --particles 10 --export coco --out tracked
    """

    NAME: ClassVar[str] = "track"
    POSITIONAL: ClassVar[str | None] = "sources"

    sources: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE...", help_behavior_hint="")]
    """Videos, folders, globs, .npy and .npz files, cameras or addresses."""
    model: str = "sqair-strokes"
    """A shipped model, a model's folder, or the folder of a run."""
    gt: Annotated[tuple[str, ...], optional("FILE...", "none")] = ()
    """The truth in MOTChallenge's format, a file for each clip: prints HOTA, MOTA, IDF1, switches and counting."""
    particles: int = 1
    """1 takes the most probable; more are a particle filter, which also tells how sure it is."""
    lag: Annotated[int | None, optional("INT", "3 with a particle filter, else 0")] = None
    """Frames that the particle filter looks ahead before it tells of one."""
    invert: Literal["auto", "yes", "no"] = "auto"
    """Turn dark objects on light into light ones on dark; auto decides by the first frames' brightness."""
    rate: float = 10.0
    """Frames a second of images and arrays, which have no rate of their own."""
    export: Annotated[tuple[Literal["coco", "yolo"], ...], optional("{coco,yolo}", "none")] = ()
    """Further formats of the boxes: coco.json, yolo/."""
    seed: int = 0
    """Of the particles."""
    out: Annotated[str | None, optional("DIR", "runs/track/SOURCE")] = None
    """Folder for results; of several clips each has a folder in it."""

    def check(self) -> None:
        """Refuse what no clip can be tracked with, before anything heavy is imported."""
        super().check()
        if not self.sources:
            raise UsageError("give at least one source: a video, a folder or glob of images, an .npy or .npz file")
        if self.particles < 1:
            raise UserError(f"--particles must be at least 1, not {self.particles}")
        if self.lag is not None and self.lag < 0:
            raise UserError(f"--lag must be at least 0, not {self.lag}")
        if not 0 < self.rate < float("inf"):
            raise UserError(f"--rate must be a positive number, not {self.rate}")

    def run(self) -> None:
        """Track every clip; one that fails does not stop the others."""
        self.common.say(f"tracking {', '.join(map(without_secrets, self.sources))} with {self.model}")
        from sqair.commands.track_clip import Job, track_clip
        from sqair.training.pace import catch_signals
        from sqair.training.runs import choose_folder

        out = Path(self.out) if self.out is not None else None
        folder = choose_folder(self.NAME, folder_name(self.sources[0]), out, overwrite=self.common.overwrite)
        clips, failures = self._open()
        choose_device(self.common)
        model, card = load(self.model)
        results: dict[str, dict[str, Any]] = {}
        with catch_signals() as caught:
            job = Job(self, model, card, stop=lambda: bool(caught))
            for (clip, gt), place in zip(self._with_truth(clips), places(folder, clips), strict=True):
                if caught:
                    break
                try:
                    results[place.name] = track_clip(job, clip, place, gt)
                except (UserError, OSError) as error:
                    if len(self.sources) == 1 and len(clips) == 1:
                        raise
                    failures[clip.name] = reason(error)
        self._conclude(folder, results, failures)
        if caught:
            print(f"sqair {self.NAME}: stopped; what was tracked is saved", file=sys.stderr)
            raise SystemExit(128 + caught[0])

    def _open(self) -> "tuple[list[Clip], dict[str, str]]":
        """The clips of all sources, and why the others are none."""
        from sqair.data.video import open_clips

        clips: list[Clip] = []
        failures: dict[str, str] = {}
        for source in self.sources:
            try:
                clips += open_clips(source, rate=self.rate)
            except UserError as error:
                if len(self.sources) == 1:
                    raise
                failures[without_secrets(source)] = reason(error)
        if not clips:
            raise UserError(next(iter(failures.values())))
        return clips, failures

    def _with_truth(self, clips: "list[Clip]") -> "Iterator[tuple[Clip, str | None]]":
        """Each clip with its file of the truth."""
        if self.gt and len(self.gt) != len(clips):
            raise UsageError(f"{len(clips)} clips need as many files with --gt, not {len(self.gt)}")
        return zip(clips, self.gt or [None] * len(clips), strict=True)

    def _conclude(self, folder: Path, results: dict[str, dict[str, Any]], failures: dict[str, str]) -> None:
        """Print what was found, and fail in the end if a clip did."""
        from sqair.commands.track_clip import describe, table

        if len(results) == 1 and not failures:
            print(describe(next(iter(results.values()))))
        elif results:
            print(table(results))
        for name, why in failures.items():
            print(f"sqair {self.NAME}: {name} failed: {why}", file=sys.stderr)
        if results:
            finish(folder)
        if failures:
            raise UserError(f"{len(failures)} of {len(failures) + len(results)} clips failed: {', '.join(failures)}")


def load(name: str) -> "tuple[Any, dict[str, Any]]":
    """A model that knows objects, and its card."""
    from sqair.commands.scenes import load_objects
    from sqair.training.checkpoint import read_card

    return load_objects(name), read_card(name)


def reason(error: Exception) -> str:
    """What went wrong, on one line."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return " ".join(str(error).split())


def folder_name(source: str) -> str:
    """What to call the results of a source: letters, digits, dots and dashes of its last part."""
    last = without_secrets(source).rstrip("/").rpartition("/")[2]
    stem = last.rpartition(".")[0] or last
    name = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in stem).strip(".-")
    return name[:50] or "clip"  # up to 200 bytes; with what is added, systems take 255


def places(folder: Path, clips: "list[Clip]") -> list[Path]:
    """Where the results of each clip go: the folder itself for one, else folders in it, whose names differ."""
    if len(clips) == 1:
        return [folder]
    taken: dict[str, int] = {}
    found = []
    for clip in clips:
        name = folder_name(clip.name)
        taken[name] = taken.get(name, 0) + 1
        found.append(folder / (name if taken[name] == 1 else f"{name}-{taken[name]}"))
    return found

"""One clip of ``sqair track``: followed frame by frame while its files grow in a folder of their own."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sqair.commands.publish import published
from sqair.data.camera import camera_of
from sqair.data.video import Clip, Frame
from sqair.evaluation.tracking import tracking_metrics
from sqair.overlay import Overlay, can_write_video
from sqair.report import PageObject, PageWriter
from sqair.report.clip import PARTS, Video
from sqair.report.document import PAGE
from sqair.tracking import FullFrame, Seen, Watch, watch
from sqair.tracking.clips import to_tracks
from sqair.tracking.latents import Latents
from sqair.tracking.typical import Impression, remarks
from sqair.tracks import TrackFiles, Tracks, read_truth
from sqair.training.files import write_json

if TYPE_CHECKING:
    from sqair.commands.track import Track

TRACKS = ("tracks.txt", "tracks.csv", "tracks.json")
OVERLAY, LATENTS, SUMMARY, COCO, YOLO = "overlay.mp4", "latents.npz", "summary.json", "coco.json", "yolo"
RESULTS = (*TRACKS, OVERLAY, LATENTS, COCO, YOLO, PAGE, PARTS, SUMMARY)
"""All that tracking may write; the last tells that the others are there."""
COMPILING = "compiling, about 20 s on two cores"
METRICS = ("hota", "mota", "idf1", "id_switches", "counting")


@dataclass
class Job:
    """What all clips share."""

    command: "Track"
    model: Any
    card: dict[str, Any]
    stop: Callable[[], bool]
    compiled: bool = False


def track_clip(
    job: Job, clip: Clip, folder: Path, gt: str | None, made: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Track one clip into a folder; returns its summary, which tells of what it was `made`."""
    command = job.command
    truth = None if gt is None else read_truth(gt, frames=clip.frames, size=clip.size)
    overlay = Overlay(clip.size, clip.rate)
    camera = camera_of(job.card)
    watched = watch(
        job.model,
        clip,
        camera,
        particles=command.particles,
        lag=command.lag,
        invert=command.invert,
        seed=command.seed,
        show=overlay.scaled,
        stop=job.stop,
    )
    say_clip(job, clip, watched)
    with published(folder, RESULTS) as part, page_of(job, clip, watched, overlay, part) as page:
        summary = follow(job, clip, watched, overlay, page, part)
        if job.stop() and not clip.live:
            summary["stopped"] = True
        summary["remarks"] = list(clip.notes)
        if camera is None:  # a card's numbers are of the model's frame, not of a picture of many windows
            summary["remarks"] += remarks(job.card, summary["impression"])
        if truth is not None:
            found = Tracks.read(part / "tracks.json")
            summary["metrics"] = tracking_metrics(truth.tracks, found, ignored=truth.ignored)
        page.close({name: value for name, value in summary.items() if name != "impression"})
        export(part, command.export)
        files = {path.name: path.stat().st_size for path in sorted(part.iterdir()) if path.is_file()}
        summary |= {"made": made, "files": files}
        write_json(part / SUMMARY, summary)
    warn(clip.name, summary["remarks"])
    return summary


def say_clip(job: Job, clip: Clip, watched: Watch | FullFrame) -> None:
    """What is about to happen."""
    length = "until it is stopped" if clip.live else f"{clip.frames or 'some'} frames"
    height, width = clip.size
    job.command.common.say(f"{clip.name}: {width}x{height}, {clip.rate:g} frames/s, {length}")
    if done := watched.describe():
        job.command.common.say(f"{clip.name}: {done}")
    if not can_write_video():
        job.command.common.say(f"{clip.name}: no {OVERLAY}, since there is no PyAV here; index.html shows the frames")
    if not job.compiled:
        job.command.common.say(COMPILING)
        job.compiled = True


def warn(name: str, said: Sequence[str]) -> None:
    """Tell people of what could mislead them, a line each; --quiet does not hide it."""
    for remark in said:
        print(f"warning: {name}: {remark}", file=sys.stderr)


def page_of(job: Job, clip: Clip, watched: Watch | FullFrame, overlay: Overlay, part: Path) -> PageWriter:
    """The page, which has the rate of the video that it may have to play."""
    return PageWriter(
        part,
        title=clip.name,
        kind="track",
        rate=overlay.rate,
        size=clip.size,
        model=job.command.model,
        content=[float(side) for side in watched.fit.content],
        video=Video(OVERLAY, zoom=overlay.zoom) if overlay.is_written else None,
    )


def follow(
    job: Job, clip: Clip, watched: Watch | FullFrame, overlay: Overlay, page: PageWriter, part: Path
) -> dict[str, Any]:
    """Write all that grows with the clip, and add to the page; returns the summary."""
    command, impression, progress = job.command, Impression(), Progress(clip, job.command.common.quiet)
    with (
        TrackFiles([part / name for name in TRACKS], size=clip.size, rate=clip.rate, source=clip.name) as files,
        Latents(part / LATENTS, job.model.config.what_size) as latents,
        overlay.into(part / OVERLAY),
    ):
        for block in watched.blocks():
            files.add(to_tracks(block, clip))
            for seen in block:
                add(seen, latents, overlay, page)
                impression.add(seen.fitted, np.asarray(seen.found.box), float(seen.found.error))
                progress.add(seen)
    return progress.summary() | {
        "source": clip.name,
        "model": command.model,
        "particles": command.particles,
        "lag": watched.lag,
        "size": list(clip.size),
        "rate": clip.rate,
        "inverted": watched.fit.inverted,
        "impression": impression.numbers(),
    }


def add(seen: Seen, latents: Latents, overlay: Overlay, page: PageWriter) -> None:
    """One frame into all files that show something of it."""
    objects, slots = seen.found.objects, seen.slots
    what, where = np.asarray(objects.what)[slots], np.asarray(objects.where)[slots]
    latents.add(seen.number, seen.ids, what, where)
    assert seen.shown is not None  # Watch keeps it and draws pictures, since there is a `show`
    overlay.add(seen.shown, seen.ids.tolist(), seen.box)
    glimpses = np.asarray(seen.found.glimpses)[slots]
    page_objects = [
        PageObject(
            id=int(seen.ids[n]) + 1,
            box=seen.box[n],
            where=seen.where[n],
            presence=float(seen.presence[n]),
            spread=float(seen.spread[n]),
            glimpse=glimpses[n],
            what=what[n],
        )
        for n in range(len(slots))
    ]
    page.add(with_channels(seen.shown), np.asarray(seen.found.canvas), page_objects)


def with_channels(frame: Frame) -> np.ndarray:
    """A frame with a channel axis."""
    return frame if frame.ndim == 3 else frame[..., None]


def export(part: Path, formats: tuple[str, ...]) -> None:
    """The formats that were asked for."""
    if not formats:
        return
    tracks = Tracks.read(part / "tracks.json")
    if "coco" in formats:
        tracks.to_coco(part / COCO)
    if "yolo" in formats:
        tracks.to_yolo(part / YOLO)


class Progress:
    """Counts what was found, and shows how far it is on a terminal."""

    def __init__(self, clip: Clip, quiet: bool) -> None:
        self.clip = clip
        self.shown = not quiet and sys.stderr.isatty()
        self.started = self.told = time.perf_counter()
        self.first = 0.0
        """Seconds until the first block was told, compilation included."""
        self.frames = self.alive = self.most = self.identities = 0

    def add(self, seen: Seen) -> None:
        """The next frame."""
        now = time.perf_counter()
        self.first = self.first or now - self.started
        self.frames += 1
        self.alive += len(seen.ids)
        self.most = max(self.most, len(seen.ids))
        self.identities = max(self.identities, 1 + int(seen.ids.max(initial=-1)))
        if self.shown and now - self.told > 0.2:
            of = f" of {self.clip.frames}" if self.clip.frames else ""
            print(f"\r{self.clip.name}: frame {self.frames}{of}, {len(seen.ids)} objects ", end="", file=sys.stderr)
            self.told = now

    def summary(self) -> dict[str, Any]:
        """Facts about the clip."""
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        seconds = time.perf_counter() - self.started
        return {
            "frames": self.frames,
            "identities": self.identities,
            "objects_per_frame": self.alive / max(1, self.frames),
            "most_objects": self.most,
            "seconds": round(seconds, 3),
            "seconds_until_first_frame": round(self.first, 3),
        }


# --- for people


def describe(summary: dict[str, Any]) -> str:
    """What was found in one clip."""
    lines = [
        f"{summary['frames']} frames, {summary['identities']} identities, "
        f"{summary['objects_per_frame']:.2f} objects per frame, at most {summary['most_objects']}"
    ]
    if metrics := summary.get("metrics"):
        lines.append(", ".join(f"{name} {number(metrics[name])}" for name in METRICS))
    return "\n".join([*lines, "open index.html to look at it"])


def table(results: dict[str, dict[str, Any]], failures: dict[str, str]) -> str:
    """A line for each clip; those that failed come last and say why."""
    names = ("frames", "identities", "objects_per_frame")
    names += METRICS if any("metrics" in result for result in results.values()) else ()
    rows = [("clip", *names)]
    for name, result in results.items():
        values = result | (result.get("metrics") or {})
        rows.append((name, *(number(values.get(column)) for column in names)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, *(f"{name}  failed: {why}" for name, why in failures.items())])


def number(value: Any) -> str:
    """A number as one reads it."""
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)

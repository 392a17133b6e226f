"""``sqair track``: what a model finds in a clip, as tracks, a video, a page."""

import dataclasses
import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

from sqair.cluster import Died, check_ray
from sqair.commands.common import Command, Flag, choose_device, finish, optional
from sqair.config import UsageError, UserError
from sqair.files import without_secrets

if TYPE_CHECKING:
    from sqair.commands.track_clip import Job
    from sqair.commands.track_many import Batch, Item


@dataclass(frozen=True, kw_only=True)
class Track(Command):
    """Find, follow and count the objects of a video.

    A source is a video, a folder or a glob of images, an .npy or .npz file, a camera or the address of a stream; a
    folder of videos, or several sources, are many clips. Writes tracks.txt (MOTChallenge), tracks.csv, tracks.json,
    overlay.mp4, latents.npz, summary.json and index.html, and of many clips a table of all, results.csv and
    results.json. Ctrl-C ends a stream and saves what was tracked.

    examples:
      sqair track clip.mp4
      sqair track videos/ frames-*.png --model runs/train/mine --particles 10 --ray local --out tracked
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
    ray: Annotated[str | None, optional("local|ADDRESS", "one clip after another")] = None
    """Spread many clips over this machine's cores (local) or a Ray cluster, which sees the same folders."""
    resume: Annotated[Flag, optional("")] = False
    """Go on with many clips: those that are finished are left out."""
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
        if self.resume and self.common.overwrite:
            raise UsageError("--resume keeps what --overwrite replaces; give one of them")
        if self.ray is not None:
            check_ray(self.ray)

    def run(self) -> None:
        """Track every clip; one that fails does not stop the others."""
        self.common.say(f"tracking {', '.join(map(without_secrets, self.sources))} with {self.model}")
        from sqair.commands.track_many import check_same, find_items
        from sqair.training.lock import locked
        from sqair.training.runs import check_folder, choose_folder

        out, how = Path(self.out) if self.out is not None else None, {"overwrite": self.common.overwrite}
        folder = choose_folder(self.NAME, folder_name(self.sources[0]), out, resume=self.resume, **how)
        items = find_items(self, folder)
        if all(item.error for item in items):
            raise next(item.error for item in items if item.error)
        if self.resume:
            check_same(self, folder, items)
        if self.ray is not None and any(item.clip and item.clip.live for item in items):
            raise UsageError("a camera or a stream has one reader; leave --ray out")
        if self.ray is None or len(items) == 1:
            choose_device(self.common)
            job = load_job(self, self.model)
        else:
            job = job_of_driver(self)
        with locked(folder):
            check_folder(folder, resume=self.resume, **how)  # another command may have come first
            if len(items) == 1:
                self._one(job, items[0])
            else:
                self._many(job, folder, items)

    def _one(self, job: "Job", item: "Item") -> None:
        """Track the one clip there is."""
        from sqair.commands.track_clip import describe
        from sqair.commands.track_many import finished, made_of
        from sqair.training.pace import catch_signals

        with catch_signals() as caught:
            job.stop = lambda: bool(caught)
            made = made_of(item, self, job.card)
            summary = (finished(item, made) if self.resume else None) or Work(self, job)(item)
        print(describe(summary))
        finish(item.place)
        stopped(caught)

    def _many(self, job: "Job", folder: Path, items: "list[Item]") -> None:
        """Track all clips, those that are finished left out, and keep the table of them."""
        from sqair.commands.track_many import Batch
        from sqair.training.pace import catch_signals

        batch = Batch(self, folder, items)
        with catch_signals() as caught:
            job.stop = lambda: bool(caught)
            try:
                self._track(job, batch, items)
            finally:
                batch.end()
        self._conclude(batch)
        stopped(caught)
        if batch.failures:
            raise UserError(f"{len(batch.failures)} of {len(items)} clips failed: {', '.join(batch.failures)}")

    def _track(self, job: "Job", batch: "Batch", items: "list[Item]") -> None:
        """Track what is to be tracked, here or on a cluster."""
        from sqair.cluster import Outcome, run_items
        from sqair.commands.tally import Tally
        from sqair.commands.track_clip import warn
        from sqair.commands.track_many import environment, finished, made_of, say_found

        left = []
        for item in items:
            if item.error is not None:
                batch.fail(item, reason(item.error))
            elif self.resume and (summary := finished(item, made_of(item, self, job.card))):
                batch.add(item, summary)
            else:
                left.append(item)
        if self.resume:
            self.common.say(f"{len(batch.summaries)} of {len(items)} clips are finished")

        def on_done(item: "Item", outcome: Outcome) -> None:
            if outcome.error is not None:
                batch.fail(item, reason(outcome.error), outcome.tries)
                tally.add(f"{item.name} failed: {reason(outcome.error)}")
            else:
                batch.add(item, outcome.value, outcome.tries)
                tally.add(f"{item.name}: {say_found(outcome.value)}")
                if self.ray is not None:  # a worker's own words are not heard here
                    warn(item.name, outcome.value["remarks"])

        work = Work(self, job) if self.ray is None else Work(self)
        sent = left if self.ray is None else [item.sent() for item in left]
        how: Any = {"device": self.common.device, "environment": environment(batch.folder)}
        with Tally(len(left), quiet=self.common.quiet or self.ray is None) as tally:  # here a clip tells of itself
            told: Any = {"on_start": batch.begin, "on_done": on_done, "on_died": batch.died}
            run_items(sent, work, address=self.ray, stop=job.stop, **told, **how)

    def _conclude(self, batch: "Batch") -> None:
        """Print what was found and what failed."""
        from sqair.commands.track_clip import table

        print(table(batch.summaries, batch.failures))
        for name, why in batch.failures.items():
            print(f"sqair {self.NAME}: {name} failed: {why}", file=sys.stderr)
        finish(batch.folder)


class Work:
    """Tracks a clip with what this process has loaded or, when it was sent to a worker, with what that one loads."""

    def __init__(self, command: Track, job: "Job | None" = None) -> None:
        path = Path(command.model).expanduser()
        self.model = str(path.absolute()) if path.exists() else command.model  # workers may be in another folder
        self.command, self.job = command, job

    def __call__(self, item: "Item") -> dict[str, Any]:
        """Track one clip into its folder; returns its summary."""
        from sqair.commands.track_clip import track_clip
        from sqair.commands.track_many import made_of

        job = self.job or job_of_worker(self.command, self.model)
        made = made_of(item, self.command, job.card)
        return track_clip(job, item.opened(self.command.rate), item.place, item.gt, made)


@functools.lru_cache(maxsize=1)
def job_of_worker(command: Track, model: str) -> "Job":
    """What a worker loads when its first clip comes; it says nothing."""
    command = dataclasses.replace(command, common=dataclasses.replace(command.common, quiet=True))
    choose_device(command.common)
    return load_job(command, model)


def load_job(command: Track, model: str) -> "Job":
    """A model that knows objects, and its card."""
    from sqair.commands.scenes import load_objects
    from sqair.commands.track_clip import Job
    from sqair.training.checkpoint import read_card

    return Job(command, load_objects(model), read_card(model), stop=lambda: False)


def job_of_driver(command: Track) -> "Job":
    """What a command knows whose workers load the model: its card. It computes nothing, so it must not wake jax.

    A process that did would hold memory of a GPU that workers need, and have threads when Ray forks it.
    """
    from sqair.commands.scenes import no_objects
    from sqair.commands.track_clip import Job
    from sqair.training.checkpoint import read_card

    card = read_card(command.model)
    if card.get("kind") == "vrnn":  # as `load_objects` would, before all clips fail of it
        raise no_objects(command.model)
    return Job(command, None, card, stop=lambda: False)


def stopped(caught: Sequence[int]) -> None:
    """Leave, if a signal came."""
    if caught:
        print(f"sqair {Track.NAME}: stopped; what was tracked is saved", file=sys.stderr)
        raise SystemExit(128 + caught[0])


def reason(error: Exception) -> str:
    """What went wrong, on one line."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    text = " ".join(str(error).split())
    return text if isinstance(error, UserError | Died) else f"internal error: {type(error).__name__}: {text}"


def folder_name(source: str) -> str:
    """What to call the results of a source: letters, digits, dots and dashes of its last part."""
    last = without_secrets(source).rstrip("/").rpartition("/")[2]
    stem = last.rpartition(".")[0] or last
    name = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in stem).strip(".-")
    return name[:50] or "clip"  # up to 200 bytes; with what is added, systems take 255

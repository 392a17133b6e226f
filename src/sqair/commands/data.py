"""``sqair data``: sequences of moving digits with the truth about them, or of what moves in a video, as a file."""

import dataclasses
import glob
import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

from sqair.commands.common import Command, Flag, choose_device, finish, optional, refuse_taken, replaced
from sqair.config import DataConfig, UsageError, UserError
from sqair.settings import check

if TYPE_CHECKING:
    from sqair.data import Cutting, Sequences, Subtraction
    from sqair.data.video import Clip
    from sqair.tracks import Truth

SHOWN = 8
"""Sequences in the preview."""
HEIGHT = 175
"""Of scaled frames, as in App. E."""


@dataclass(frozen=True)
class Video:
    """How sequences are cut from a video: subtract the background, scale down, take small windows."""

    method: Literal["mog2", "knn"] = "mog2"
    """How the background is learned."""
    history: int = 1000
    """Frames that the background remembers; who stands still for long becomes a part of it."""
    threshold: float = 0.0
    """How far a pixel must be from the background, squared; 0 for the usual (mog2 16 variances, knn 200)."""
    shadow: float = 0.6
    """Pixels darkened to no less than this share are shadow, not foreground; 1 for no shadows."""
    look: Literal["inverted", "difference", "mask", "mixed"] = "inverted"
    """What the foreground shows: the inverted frame, the distance from the background, 1, or (1 + inverted) / 2."""
    colour: bool = False
    """Keep colours."""
    height: Annotated[int, optional("INT", f"{HEIGHT}, and as it is with --frames-only")] = 0
    """Frames are scaled down to this height, never up."""
    crop: tuple[int, int] = (64, 64)
    """Height and width of a window in scaled pixels; 0 0 for the whole frame."""
    windows: Literal["still", "moving"] = "still"
    """Whether windows go along with an object."""
    length: int = 5
    """T, frames in a sequence."""
    stride: int = 1
    """Every so many frames one is taken."""
    max_objects: int = 3
    """At most so many objects in any frame: blobs, or people of the truth."""
    empty: float = 0.1
    """Share of sequences without an object, at most."""
    start: int = 0
    """First frame to use, from 0."""
    stop: Annotated[int, optional("INT", "the end")] = 0
    """The frame after the last one to use."""
    gt: Annotated[str, optional("FILE")] = ""
    """Truth (MOTChallenge, CSV or JSON), which follows through windows and scales."""
    gt_size: Annotated[tuple[int, int], optional("INT INT", "those of the video")] = (0, 0)
    """Height and width of the frames in whose pixels the truth is."""

    def subtraction(self) -> "Subtraction":
        """The part about the background."""
        from sqair.data import Subtraction

        return Subtraction(self.method, self.history, self.threshold, self.shadow, look=self.look)

    def truth(self) -> "Truth | None":
        """The truth, where it is given."""
        from sqair.tracks import read_truth

        is_given = self.gt_size != (0, 0)
        if is_given and (not self.gt or min(self.gt_size) < 1):
            raise UsageError("--video.gt-size takes height and width, 1 or more, of the frames that --video.gt is of")
        return read_truth(self.gt, size=self.gt_size if is_given else None) if self.gt else None

    def cutting(self, sequences: int, seed: int) -> "Cutting":
        """The part about windows."""
        from sqair.data import Cutting

        same = ("crop", "length", "stride", "max_objects", "empty", "colour", "start", "stop")
        given = {name: getattr(self, name) for name in same}
        height, moving = self.height or HEIGHT, self.windows == "moving"
        return Cutting(height=height, moving=moving, sequences=sequences, seed=seed, **given)


@dataclass(frozen=True, kw_only=True)
class Data(Command):
    """Make sequences of moving digits, or of what moves in a video, as one .npz file.

    A picture of the first few is put beside it. Digits come with boxes, identities and labels. Of a video, the last
    tenth of the sequences is from the last tenth of the time, for validation, and stands in a second file, too.

    examples:
      sqair data moving-mnist --digits strokes --sequences 100 --out digits.npz
      sqair data clip.mp4 --video.look mixed --sequences 3500 --out people.npz
    """

    NAME: ClassVar[str] = "data"
    POSITIONAL: ClassVar[str | None] = "name"

    name: Annotated[str | None, tyro.conf.Positional, optional("D", "moving-mnist")] = None
    """moving-mnist, moving-mnist-free, moving-mnist-in-out, an .npz file of sequences, or a video (see `track`)."""
    out: Annotated[str | None, optional("FILE.npz", "runs/data/D/sequences.npz")] = None
    """The file to write."""
    sequences: int = 1000
    """How many to make."""
    seed: int = 1
    """The same seed gives the same sequences."""
    split: Literal["train", "validation", "test"] = "train"
    """Which digits they are made from; no digit is in two splits."""
    digits: Annotated[str | None, optional("STR", "mnist")] = None
    """Short for --data.digits: mnist, strokes, or a folder with the four MNIST files."""
    frames_only: Annotated[Flag, optional("")] = False
    """Of a video, write the decoded frames and nothing else, for a machine that cannot decode it."""
    data: DataConfig = field(default_factory=DataConfig)
    video: Video = field(default_factory=Video)

    def resolved(self) -> "Data":
        """The same with the short forms put where they belong."""
        data = replaced(self.data, name=self.name, digits=self.digits)
        return dataclasses.replace(self, data=data, name=None, digits=None)

    def settings(self) -> dict[str, Any]:
        """All flags but --data.*, and [data]."""
        return super(Data, self.resolved()).settings()

    def run(self) -> None:
        """Make the sequences, then write both files."""
        config = self.resolved().data
        if is_video(config.name):
            self._run_video(config.name)
            return
        if self.frames_only:
            raise UsageError(f"--frames-only is for videos, and {config.name} is none")
        check(config, "data.")
        if config.first_scale:
            raise UsageError("--data.first-scale is for training; give --data.digit-scale")
        out = self._file(config.name)
        refuse_taken(out, self.common)
        refuse_taken(out.with_suffix(".png"), self.common)
        choose_device(self.common)
        from sqair.data import collect, open_data, save_sequences

        sequences = collect(open_data(config, self.split), self.sequences, self.seed)
        save_sequences(out, sequences)
        preview(out.with_suffix(".png"), sequences)
        finish(out)

    def _run_video(self, source: str) -> None:
        """Cut the sequences of a clip, or write its frames."""
        from sqair.data import between, cut_sequences, save_frames, save_sequences

        subtraction, cutting = self.video.subtraction(), self.video.cutting(self.sequences, self.seed)
        clip = only_clip(source)
        truth = self.video.truth()
        out = self._file(clip.name)
        held_out, picture = out.with_name(f"{out.stem}-validation.npz"), out.with_suffix(".png")
        for path in (out,) if self.frames_only else (out, held_out, picture):
            refuse_taken(path, self.common)
        if self.frames_only:
            part = between(clip, self.video.start, self.video.stop)
            save_frames(out, part, height=self.video.height, colour=self.video.colour)
        else:
            cut = cut_sequences(clip, subtraction, cutting, truth)
            total = len(cut.sequences.frames)
            self.common.say(f"{clip.name}: {total} sequences from {cut.frames} frames, {cut.held_out} for validation")
            save_sequences(out, cut.sequences)
            save_sequences(held_out, cut.validation)
            preview(picture, cut.sequences)
        for note in clip.notes:
            self.common.say(f"{clip.name}: {note}")
        finish(out)

    def _file(self, name: str) -> Path:
        """Where the sequences go."""
        from sqair.training.runs import check_writable, choose_folder

        if self.out is not None:
            out = Path(self.out)
            if out.suffix != ".npz":
                raise UsageError(f"--out must be a file whose name ends in .npz, not {self.out}")
            check_writable(out.parent)
            return out
        return choose_folder(self.NAME, Path(name).stem) / "sequences.npz"


def is_video(name: str) -> bool:
    """Whether a name is that of a clip: a file, a folder, a glob or an address, or an .npz of one sequence."""
    from sqair.data import MOTIONS, load_sequences
    from sqair.files import ADDRESS

    if name in MOTIONS:
        return False
    path = Path(name).expanduser()
    if path.suffix == ".npz":
        return path.is_file() and len(load_sequences(path).frames) == 1
    return path.exists() or path.suffix != "" or ADDRESS.match(name) is not None or glob.has_magic(name)


def only_clip(source: str) -> "Clip":
    """The clip that a source is; refuses one that holds several."""
    from sqair.data.video import open_clips

    clips = open_clips(source)
    if len(clips) > 1:
        raise UserError(f"{source} holds {len(clips)} clips; give one of them, since each camera needs its own file")
    return clips[0]


def preview(path: Path, sequences: "Sequences") -> None:
    """A picture of the first sequences, with their true boxes if they are known."""
    import numpy as np

    from sqair.figures import Row, strip

    first = [None if a is None else np.asarray(a[:SHOWN]) for a in (sequences.boxes, sequences.ids)]
    boxes, ids = (itertools.repeat(None) if values is None else values for values in first)
    marked = zip(np.asarray(sequences.frames[:SHOWN]), boxes, ids, strict=False)
    strip(path, [Row(str(i + 1), *row) for i, row in enumerate(marked)])

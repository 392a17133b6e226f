"""``sqair fit``: a model of one fixed camera from a clip of it, without labels and without settings."""

import dataclasses
import math
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

from sqair.commands.common import Command, Flag, choose_device, finish, optional, parse_as
from sqair.config import ModelConfig, TrainConfig, UsageError, UserError

if TYPE_CHECKING:
    from sqair.commands.fit_proposal import Proposal, Row, Wishes
    from sqair.commands.fit_run import Fitted
    from sqair.data import Subtraction
    from sqair.data.survey import Survey
    from sqair.data.video import Clip

MINUTES = {"cpu": 15.0}
"""How long to train unless it is said, by the kind of device ..."""
OTHER = 10.0
"""... and on any other."""
COMPOSED = 0.5
"""Share of the training sequences that is put together, where the background is subtracted."""
FEW = 2000
"""Steps below which a model has hardly learnt anything."""


@dataclass(frozen=True)
class Background:
    """How things are told from their background."""

    method: Literal["mog2", "knn"] = "mog2"
    """How the background is learned."""
    history: int = 1000
    """Frames that the background remembers; who stands still for a third of them becomes a part of it."""
    threshold: float = 0.0
    """How far a pixel must be from the background, squared; 0 for the usual (mog2 16 variances, knn 200)."""
    shadow: float = 0.6
    """Pixels darkened to no less than this share are shadow, not foreground; 1 for no shadows."""
    steady: bool = True
    """Even out changes of the light."""
    opening: float = 0.003
    """Radius of the disc that removes specks, as a share of the frame's shorter side; 0 for none."""
    closing: float = 0.006
    """Radius of the disc that closes holes, likewise."""
    look: Literal["inverted", "difference", "mask", "mixed"] = "mixed"
    """What the foreground shows: the inverted frame, the distance from the background, 1, or (1 + inverted) / 2."""

    def subtraction(self) -> "Subtraction":
        """The same, for those who do it."""
        from sqair.data import Subtraction

        return Subtraction(**dataclasses.asdict(self))


@dataclass(frozen=True, kw_only=True)
class Fit(Command):
    """Learn a model of one fixed camera from a clip, without labels.

    It looks at the clip, how large and how many the moving things are and how they move, proposes all settings, prints
    them, and trains. `sqair track` then follows things before the same camera with the model. Every flag sets what
    would be proposed; those of model and train show the defaults of presets, not what will be proposed.

    examples:
      sqair fit clip.mp4
      sqair fit clip.mp4 --minutes 30 --height 120 --model.max-objects 4 --out runs/fit/yard
    """

    NAME: ClassVar[str] = "fit"
    POSITIONAL: ClassVar[str | None] = "video"

    video: Annotated[str, tyro.conf.Positional, optional("VIDEO")] = ""
    """A video, a folder or a glob of images, or decoded frames (.npy, or .npz of one sequence)."""
    minutes: Annotated[float | None, optional("FLOAT", "10 on a GPU, 15 on a CPU")] = None
    """How long to train: as many steps as fit into this time are counted once, and recorded."""
    steps: Annotated[int | None, optional("INT")] = None
    """Instead of --minutes: how many steps to train."""
    start: int = 0
    """First frame to learn from, from 0."""
    stop: Annotated[int, optional("INT", "the end")] = 0
    """The frame after the last one to learn from."""
    height: Annotated[int | None, optional("INT", "proposed")] = None
    """Frames are scaled down to this height, never up."""
    crop: Annotated[tuple[int, int] | None, optional("H W", "proposed")] = None
    """Height and width of the windows that the model sees, in scaled pixels; 0 0 for the whole frame."""
    length: Annotated[int | None, optional("INT", "proposed")] = None
    """T, frames in a sequence at the end of the curriculum."""
    stride: Annotated[int | None, optional("INT", "proposed")] = None
    """Every so many frames one is taken."""
    networks: Literal["mlp", "conv"] = "mlp"
    """Fully connected encoders and decoders, or convolutional ones."""
    background: Literal["subtract", "running", "learned"] = "subtract"
    """Subtract it beforehand, or explain raw frames: before a slow average of them, or before a learned picture."""
    sequences: int = 3500
    """How many training sequences are cut from the clip, at most; a tenth of them for validation."""
    composed: Annotated[float | None, optional("FLOAT", "0.5; 0 with --background running or learned")] = None
    """Share of those for training that is put together instead, from things which were seen alone."""
    out: Annotated[str | None, optional("DIR", "runs/fit/VIDEO")] = None
    """Folder for the model and all else."""
    resume: Annotated[Flag, optional("")] = False
    """Continue the run in --out, or else the newest of VIDEO; the clip itself is not needed any more."""
    subtraction: Background = field(default_factory=Background)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    given: Annotated[tuple[str, ...], tyro.conf.Suppress] = ()
    """Dotted names of the fields of model and train that were set."""

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> "Fit":
        """Note which of the settings that are proposed were given."""
        return dataclasses.replace(parse_as(cls, arguments), given=given_names(arguments))

    def settings(self) -> dict[str, Any]:
        """What was given; what will be proposed stays open."""
        table = super().settings()
        del table["given"]
        for name in ("model", "train"):
            table[name] = only(table[name], self.given, f"{name}.")
            if not table[name]:
                del table[name]
        return table

    def run(self) -> None:
        """Look, propose, cut, train."""
        self._check_flags()
        kind = choose_device(self.common)
        from sqair.commands.fit_run import read_fitted, train_fitted

        folder = self._folder()
        fitted = read_fitted(folder) if self.resume else self._prepared(folder, kind)
        is_counted = self.steps is not None or "train.steps" in self.given or self.resume
        tells_time = kind == "cpu" and is_counted and not self.common.quiet
        train_fitted(fitted, folder, resume=self.resume, quiet=self.common.quiet, tells_time=tells_time)
        finish(folder)

    def _check_flags(self) -> None:
        """Refuse what cannot be meant."""
        if self.steps is not None and self.minutes is not None:
            raise UsageError("--steps and --minutes exclude each other; give one")
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise UserError(f"--minutes must be more than 0, not {self.minutes:g}")
        if self.composed is not None and not 0 <= self.composed < 1:
            raise UserError(f"--composed must be at least 0 and less than 1, not {self.composed:g}")
        if self.composed and self.background != "subtract":
            raise UsageError("only what is subtracted can be put together; leave --composed or --background out")
        if self.height is not None and self.height < 1:
            raise UserError(f"--height must be at least 1, not {self.height}")
        if self.resume and self.common.overwrite:
            raise UsageError("--resume and --overwrite exclude each other; give one")
        if not self.video and not (self.resume and self.out):
            raise UsageError("name a clip, such as `sqair fit clip.mp4`")
        if self.model.kind != "sqair" or "model.image" in self.given:
            raise UsageError(
                "fit learns models of kind sqair, whose image is --crop; leave --model.kind and .image out"
            )
        if "train.first_scale_steps" in self.given:
            raise UsageError("first sizes are for generated digits; leave --train.first-scale-steps out")
        if any(name.startswith("model.background") and name != "model.background_rate" for name in self.given):
            raise UsageError("the background of a fit is --background; leave --model.background out")
        told = (self.minutes, self.steps, self.height, self.crop, self.length, self.stride)
        told += (self.composed, self.given or None)
        if self.resume and any(value is not None for value in told):
            raise UsageError("a resumed fit keeps all its settings; give --out, --device and nothing else")

    def _folder(self) -> Path:
        """Where the run is, or will be."""
        from sqair.training.runs import choose_folder

        out = None if self.out is None else Path(self.out)
        name = Path(self.video.rstrip("/")).stem or "camera"
        return choose_folder(self.NAME, name, out, resume=self.resume, overwrite=self.common.overwrite)

    def _prepared(self, folder: Path, kind: str) -> "Fitted":
        """All that comes before training; the folder is written last."""
        from sqair.commands.data import only_clip
        from sqair.commands.fit_proposal import propose, table
        from sqair.commands.fit_run import SEQUENCES, Fitted, write_fitted
        from sqair.data.survey import check_survey, remarks, survey

        clip, subtraction = only_clip(self.video), self.subtraction.subtraction()
        self.common.say(f"looking at {clip.name}")
        seen = survey(clip, subtraction, self.start, self.stop)
        check_survey(seen)
        for remark in (*clip.notes, *remarks(seen)):
            self.common.say(f"{clip.name}: {remark}")
        wishes = self._wishes()
        proposal = propose(seen, subtraction, wishes, on_cpu=kind == "cpu")
        self._show(table(seen, proposal, wishes))
        with tempfile.TemporaryDirectory() as there:
            file = Path(there) / "sequences.npz"
            self._cut(clip, seen, proposal, file)
            train = self._training(proposal, wishes, str(file), kind)
            fitted = Fitted(proposal.preset(str(folder / SEQUENCES), train), proposal.camera)
            write_fitted(folder, file, fitted, seen, overwrite=self.common.overwrite)
        return fitted

    def _wishes(self) -> "Wishes":
        """What the user has set."""
        from sqair.commands.fit_proposal import Wishes

        return Wishes(
            self.height,
            self.crop,
            self.length,
            self.stride,
            self.networks,
            self.model,
            self.train,
            self.given,
            self.background,
        )

    def _show(self, rows: "list[Row]") -> None:
        """What is proposed, and why."""
        from rich.console import Console
        from rich.table import Table

        shown = Table("setting", "value", "why", box=None, pad_edge=False)
        for row in rows:
            shown.add_row(*row)
        Console(stderr=True, quiet=self.common.quiet).print(shown)

    def _cut(self, clip: "Clip", seen: "Survey", proposal: "Proposal", file: Path) -> None:
        """Write the training sequences."""
        from sqair.data import Cutting, cut_sequences, save_sequences

        camera, (start, stop) = proposal.camera, seen.part
        is_raw = proposal.model.background != "none"
        composed = COMPOSED if self.composed is None else self.composed
        cutting = Cutting(
            height=camera.height,
            crop=camera.crop,
            beyond=proposal.beyond,
            length=proposal.length,
            stride=camera.stride,
            max_objects=proposal.model.max_objects,
            sequences=self.sequences,
            colour=proposal.model.channels == 3,
            raw=is_raw,
            composed=0.0 if is_raw else composed,
            sizes=None if is_raw else proposal.sizes,
            start=start,
            stop=stop,
        )
        cut = cut_sequences(clip, camera.subtraction, cutting)
        count = len(cut.sequences.frames)
        self.common.say(f"{count} sequences, the last {cut.held_out} of them, from the clip's end, for validation")
        if cutting.composed:
            from_alone = f"{cut.composed} of the others are put together from things that were seen alone"
            self.common.say(from_alone if cut.composed else "nothing was seen alone, to put sequences together from")
        save_sequences(file, cut.sequences)

    def _training(self, proposal: "Proposal", wishes: "Wishes", file: str, kind: str) -> TrainConfig:
        """How to train: for so many steps, or for as many as there is time for."""
        from sqair.commands.fit_run import mesh_of
        from sqair.commands.speed import steps_within
        from sqair.training.loop import check_preset

        steps = self.train.steps if "train.steps" in self.given else self.steps
        trial = proposal.preset(file, proposal.recipe(steps or proposal.train.steps, wishes))
        check_preset(trial)
        if steps is not None:
            return trial.train
        minutes = MINUTES.get(kind, OTHER) if self.minutes is None else self.minutes
        self.common.say("measuring the speed of a step (compiles first)")
        steps = steps_within(trial, lambda steps: proposal.recipe(steps, wishes), 60 * minutes, mesh_of(trial))
        self.common.say(f"training will take about {minutes:g} minutes, which are {steps} steps")
        if steps < FEW:
            self.common.say(
                f"that is little: below {FEW} steps hardly anything is learnt; give more --minutes, or a GPU"
            )
        return proposal.recipe(steps, wishes)


def given_names(arguments: Sequence[str]) -> tuple[str, ...]:
    """Dotted names of the fields of model and train that flags set: --train.no-x sets train.x."""
    words = [word.partition("=")[0][2:].replace("-", "_") for word in arguments if word.startswith("--")]
    names = {word.replace(".no_", ".") for word in words if word.startswith(("model.", "train."))}
    return tuple(sorted(names | {word for word in words if word.startswith(("model.", "train."))}))


def only(table: dict[str, Any], given: Collection[str], prefix: str) -> dict[str, Any]:
    """The part of a table that was given, by dotted names."""
    kept = {}
    for key, value in table.items():
        part = only(value, given, f"{prefix}{key}.") if isinstance(value, dict) else value
        if part if isinstance(value, dict) else prefix + key in given:
            kept[key] = part
    return kept

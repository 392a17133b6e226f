"""``sqair train``: a model from a preset."""

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro

from sqair.commands.common import Command, Flag, choose_device, finish, optional, parse_as, replaced
from sqair.config import (
    PAPER_RECIPE,
    PRESETS,
    DataConfig,
    ModelConfig,
    Preset,
    TrainConfig,
    UsageError,
    UserError,
    preset,
)

Recipe = Literal["fast", "paper"]


@dataclass(frozen=True, kw_only=True)
class Train(Command):
    """Train a model from a preset.

    Every setting of a preset is a flag; `sqair train PRESET --help` shows that preset's values.

    presets:
      sqair-mlp, sqair-conv, air-mlp, sqair-pedestrians  with the paper's sizes
      tiny                                               small frames, for a CPU

    examples:
      sqair train tiny --steps 1000 --out runs/train/mine
      sqair train sqair-mlp --minutes 60 --digits strokes --model.max-objects 4
    """

    NAME: ClassVar[str] = "train"
    POSITIONAL: ClassVar[str | None] = "preset"

    preset: Annotated[str, tyro.conf.Positional, optional("PRESET")] = ""
    """The preset to start from."""
    steps: Annotated[int | None, optional("INT", "the preset's")] = None
    """Short for --train.steps."""
    minutes: Annotated[float | None, optional("FLOAT")] = None
    """Instead of --steps: as many as fit into this time, compilation included. They are counted once and recorded."""
    data_name: Annotated[str | None, optional("D", "the preset's"), tyro.conf.arg(name="data")] = None
    """Short for --data.name: a data set, or a .npz file of sequences."""
    digits: Annotated[str | None, optional("STR", "the preset's")] = None
    """Short for --data.digits: mnist, strokes, or a folder with the four MNIST files."""
    recipe: Recipe = "fast"
    """How to train: ours, or the paper's own schedule."""
    seed: Annotated[int | None, optional("INT", "0")] = None
    """Short for --train.seed."""
    out: Annotated[str | None, optional("DIR", "runs/train/PRESET")] = None
    """Folder for results."""
    resume: Annotated[Flag, optional("")] = False
    """Continue the run in --out, or the newest one of PRESET; with --out, PRESET may be left out."""
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> "Train":
        """Parse twice: to learn which preset and recipe are meant, then with their values as the defaults."""
        if {"-h", "--help"} & set(arguments):
            named = next((word for word in arguments if word in PRESETS), "sqair-mlp")
            recipe = "paper" if {"paper", "--recipe=paper"} & set(arguments) else "fast"
            return parse_as(cls, ["--help"], cls(preset=named, recipe=recipe).defaults())
        return parse_as(cls, arguments, parse_as(cls, arguments).defaults())

    def defaults(self) -> "Train":
        """A command with the values of this one's preset and recipe, and nothing else set.

        A run that is resumed keeps its own number of steps and, when no preset is named, all of its settings.
        """
        earlier = self._earlier() if self.resume and (self.preset or self.out) else None
        if not self.preset:
            if earlier is None:
                raise UsageError(f"name a preset: {', '.join(PRESETS)}")
            return Train(model=earlier.model, data=earlier.data, train=earlier.train)
        try:
            chosen = preset(self.preset)
        except UserError as error:
            raise UsageError(str(error)) from error
        train = PAPER_RECIPE if self.recipe == "paper" else chosen.train
        train = train if earlier is None else dataclasses.replace(train, steps=earlier.train.steps)
        return Train(model=chosen.model, data=chosen.data, train=train)

    def _earlier(self) -> Preset:
        """The settings of the run that is to be resumed."""
        from sqair.training.resume import read_notes

        return read_notes(self._folder()).preset

    def _folder(self) -> Path:
        """Where the run is, or will be."""
        from sqair.training.runs import choose_folder

        out = None if self.out is None else Path(self.out)
        return choose_folder(self.NAME, self.preset, out, resume=self.resume, overwrite=self.common.overwrite)

    def resolved(self) -> Preset:
        """The preset with all flags applied."""
        if self.steps is not None and self.minutes is not None:
            raise UsageError("--steps and --minutes exclude each other; give one")
        data = replaced(self.data, name=self.data_name, digits=self.digits)
        return Preset(self.model, data, replaced(self.train, steps=self.steps, seed=self.seed))

    def settings(self) -> dict[str, Any]:
        """The whole preset, and what else was given."""
        chosen = self.resolved()
        folded = dataclasses.replace(
            self, steps=None, seed=None, data_name=None, digits=None, data=chosen.data, train=chosen.train
        )
        return super(Train, folded).settings()

    def run(self) -> None:
        """Train, saving as it goes."""
        chosen = self.resolved()
        choose_device(self.common)
        from sqair.training.loop import Stopped, train

        folder = self._folder()
        try:
            train(
                self._timed(chosen),
                folder,
                resume=self.resume,
                overwrite=self.common.overwrite,
                quiet=self.common.quiet,
                command=shlex.join(["sqair", *sys.argv[1:]]),
            )
        except Stopped as stop:
            print(f"sqair train: {stop}", file=sys.stderr)
            raise SystemExit(stop.code) from stop
        finish(folder)

    def _timed(self, chosen: Preset) -> Preset:
        """The preset with the number of steps that --minutes allows."""
        if self.minutes is None:
            return chosen
        if self.resume:
            raise UsageError("a resumed run keeps its number of steps; leave --minutes out")
        from sqair.commands.speed import steps_within

        self.common.say("measuring the speed of a step (compiles first)")
        steps = steps_within(chosen, 60 * self.minutes)
        self.common.say(f"{self.minutes:g} minutes are {steps} steps")
        return dataclasses.replace(chosen, train=dataclasses.replace(chosen.train, steps=steps))

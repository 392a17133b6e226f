"""``sqair train``: a model from a preset."""

import dataclasses
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

import tyro

from sqair.commands.common import Command, Flag, choose_device, command_line, finish, optional, parse_as, replaced
from sqair.commands.recipe_words import recipe_lines
from sqair.config import (
    AUTHORS_SWITCHES,
    PAPER_SWITCHES,
    PRESETS,
    DataConfig,
    ModelConfig,
    Preset,
    TrainConfig,
    UsageError,
    UserError,
    preset,
)
from sqair.training.recipe import (
    BOXES,
    FIRST_STEPS,
    PAPER_RECIPE,
    PAPER_VRNN_RECIPE,
    SCALED,
    beginning_scale,
    following,
    for_digits,
)

if TYPE_CHECKING:
    from jax.sharding import Mesh

Recipe = Literal["fast", "paper"]
Switches = Literal["ours", "paper", "authors"]
SWITCHES: dict[str, dict[str, Any]] = {"paper": PAPER_SWITCHES, "authors": AUTHORS_SWITCHES}
NEEDS_DATA = "sqair-pedestrians"
"""The preset whose data the user must bring."""
OPEN = -(2**62)
"""Stands for a setting that the number of steps or the size of digits is to decide; no flag sets it."""


@dataclass(frozen=True, kw_only=True)
class Train(Command):
    """Train a model from a preset.

    Every setting of a preset is a flag; `sqair train PRESET --help` shows that preset's values.

    presets:
      sqair-mlp, sqair-conv, air-mlp  with the paper's sizes
      vrnn-mlp, vrnn-conv             the same, and with -small or -large after their names
      sqair-pedestrians               the same, for your own --data FILE.npz
      tiny                            small frames, for a CPU

    With --data FILE.npz the size and the colour of frames are the file's, and so is the length where it is shorter.
    With --members or --sweep several models are trained at once; the best is chosen by its validation bound.
    All devices share the work. Over many hosts, start the same command in each of them, by Slurm or Kubernetes, or with
    --coordinator.

    examples:
      sqair train tiny --steps 1000 --out runs/train/mine
      sqair train sqair-mlp --minutes 60 --members 4 --sweep learning_rate=1e-4,3e-4 --restart-collapsed
    """

    NAME: ClassVar[str] = "train"
    POSITIONAL: ClassVar[str | None] = "preset"

    preset: Annotated[str, tyro.conf.Positional, optional("PRESET")] = ""
    """The preset to start from."""
    steps: Annotated[int | None, optional("INT", "the preset's")] = None
    """Short for --train.steps. The recipe's other numbers of steps follow it, unless they are given."""
    minutes: Annotated[float | None, optional("FLOAT")] = None
    """Instead of --steps: as many as fit into this time, compilation included. They are counted once and recorded."""
    data_name: Annotated[str | None, optional("D", "the preset's"), tyro.conf.arg(name="data")] = None
    """Short for --data.name: a data set, or a .npz file of sequences."""
    digits: Annotated[str | None, optional("STR", "the preset's")] = None
    """Short for --data.digits: mnist, strokes, or a folder with the four MNIST files."""
    recipe: Recipe = "fast"
    """How to train: ours, or the paper's own schedule. It changes settings train.* only."""
    switches: Switches = "ours"
    """Choices within the model: our defaults, what the paper states, or what the authors' program does."""
    seed: Annotated[int | None, optional("INT", "0")] = None
    """Short for --train.seed."""
    members: Annotated[int | None, optional("R", "1")] = None
    """Short for --train.members: train so many seeds side by side."""
    sweep: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, optional("FIELD=V1,V2,...")] = ()
    """Train these settings side by side: learning_rate, clip_frame, discovery_dropout, seed, discovery_cost,
    rediscovery_cost, presence_cost, surplus_cost, presence_delay. Of several all combinations."""
    patience: Annotated[int | None, optional("INT", "0")] = None
    """Short for --train.patience: stop early after so many evaluations without a new best; 0 for never."""
    restart_collapsed: Annotated[Flag, optional("")] = False
    """Replace what the alarm finds collapsed: early afresh, later by a copy of the best healthy member."""
    fit_memory: Annotated[Flag, optional("")] = False
    """Halve the batch as often as the device's memory needs it."""
    mesh: Annotated[str | None, optional("AXIS=N,...", "all devices")] = None
    """Devices over which members, batch and particles are shared out, such as batch=8 or members=2,batch=4."""
    coordinator: Annotated[str | None, optional("HOST:PORT", "Slurm's or Kubernetes's, if any")] = None
    """Train over many hosts: where process 0 is to be reached. All processes run this same command."""
    processes: Annotated[int | None, optional("N")] = None
    """With --coordinator: how many processes there are."""
    process: Annotated[int | None, optional("I")] = None
    """With --coordinator: which one this is, from 0."""
    tensorboard: Annotated[Flag, optional("")] = False
    """Write TensorBoard files, too; needs `pip install 'sqair[log]'`."""
    out: Annotated[str | None, optional("DIR", "runs/train/PRESET")] = None
    """Folder for results."""
    resume: Annotated[Flag, optional("")] = False
    """Continue the run in --out, or else the newest of PRESET, with the run's own settings."""
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> "Train":
        """Parse to learn which preset and file are meant, then with their values as the defaults.

        Where digits are not of the preset's size, once more with defaults for those. What depends on the number of
        steps is left open: --minutes does not tell it yet.
        """
        if {"-h", "--help"} & set(arguments):
            named = next((word for word in arguments if word in PRESETS), "sqair-mlp")
            recipe: Recipe = "paper" if value_of("--recipe", arguments) == "paper" else "fast"
            switches = value_of("--switches", arguments)
            chosen = cls(
                preset=named, recipe=recipe, switches=cast(Switches, switches if switches in SWITCHES else "ours")
            )
            return parse_as(cls, ["--help"], chosen.defaults())
        arguments = repeated("--sweep", arguments)
        first = parse_as(cls, arguments)
        defaults = first.defaults()
        if first.recipe == "paper" or first.resume:
            return parse_as(cls, arguments, defaults)
        train = replaced(defaults.train, **dict.fromkeys((*SCALED, FIRST_STEPS), OPEN))
        own = Preset(defaults.model, defaults.data, train)
        defaults = dataclasses.replace(defaults, data=replaced(own.data, first_scale=float(OPEN)), train=train)
        chosen = parse_as(cls, arguments, defaults)
        beginning = chosen._first_scale(own)
        fitting = for_digits(own, chosen.data.digit_scale, chosen.model.output_std, beginning)
        model = own.model if chosen.train.start else fitting.model  # weights to start from have boxes of their own
        if (model, fitting.train) != (own.model, own.train):
            chosen = parse_as(cls, arguments, dataclasses.replace(defaults, model=model, train=fitting.train))
        return chosen._beginning_with(beginning)

    def _first_scale(self, own: Preset) -> float:
        """The size of digits to begin with: what is given, or what fits the digits; 0 for no other than digit_scale."""
        if self.data.first_scale != OPEN:
            return self.data.first_scale
        is_new = self.model.kind == "sqair" and not self.train.start
        has_own_boxes = any(getattr(self.model, name) != getattr(own.model, name) for name in BOXES)  # for small digits
        wanted = is_new and not has_own_boxes and self.train.first_scale_steps != 0
        return beginning_scale(own, replaced(self.data, name=self.data_name)) if wanted else 0.0

    def _beginning_with(self, scale: float) -> "Train":
        """The command with this size of digits to begin with; without it, no number of steps is left open for it."""
        steps = self.train.first_scale_steps
        train = replaced(self.train, first_scale_steps=0 if steps == OPEN and not scale else steps)
        return dataclasses.replace(self, data=replaced(self.data, first_scale=scale), train=train)

    def defaults(self) -> "Train":
        """A command with the values of this one's preset, or of the run it resumes, and nothing else set."""
        chosen = self._start()
        steps = chosen.train.steps
        if self.recipe == "paper":
            is_vrnn = chosen.model.kind == "vrnn"
            chosen = dataclasses.replace(chosen, train=PAPER_VRNN_RECIPE if is_vrnn else PAPER_RECIPE)
        if self.resume:
            chosen = dataclasses.replace(chosen, train=dataclasses.replace(chosen.train, steps=steps))
        model = dataclasses.replace(chosen.model, **SWITCHES.get(self.switches, {}))
        chosen = dataclasses.replace(chosen, model=model)
        name = self.data.name if self.data_name is None else self.data_name
        if name.endswith(".npz") and not self.resume:
            chosen = fitted(chosen, Path(name))
        return Train(model=chosen.model, data=chosen.data, train=chosen.train)

    def _start(self) -> Preset:
        """The settings that flags are applied to."""
        if self.resume and self.common.overwrite:
            raise UsageError("--resume and --overwrite exclude each other; give one")
        try:
            chosen = preset(self.preset) if self.preset else None
        except UserError as error:
            raise UsageError(str(error)) from error
        if self.resume and (self.preset or self.out):
            return self._earlier()
        if chosen is None:
            raise UsageError(f"name a preset: {', '.join(PRESETS)}")
        return chosen

    def _earlier(self) -> Preset:
        """The settings of the run that is to be resumed."""
        from sqair.training.resume import newest

        return newest(self._folder()).notes.preset

    def _folder(self) -> Path:
        """Where the run is, or will be."""
        from sqair.training.runs import choose_folder

        out = None if self.out is None else Path(self.out)
        return choose_folder(self.NAME, self.preset, out, resume=self.resume, overwrite=self.common.overwrite)

    def resolved(self, steps: int | None = None) -> Preset:
        """The preset with all flags applied; `steps` is what --minutes allows, where that is known."""
        if self.steps is not None and self.minutes is not None:
            raise UsageError("--steps and --minutes exclude each other; give one")
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise UserError(f"--minutes must be more than 0, not {self.minutes:g}")
        data = replaced(self.data, name=self.data_name, digits=self.digits)
        short = {"seed": self.seed, "members": self.members, "sweep": self.sweep or None, "patience": self.patience}
        short |= {"restart_collapsed": self.restart_collapsed or None}
        train = replaced(self.train, steps=self.steps if steps is None else steps, **short)
        own = PRESETS[self.preset].train if self._left_open() else train
        train = replaced(train, **{name: following(own, name, train.steps) for name in self._left_open()})
        return Preset(self.model, data, train)

    def _left_open(self) -> list[str]:
        """The settings that follow the number of steps."""
        return [name for name in (*SCALED, FIRST_STEPS) if getattr(self.train, name) == OPEN]

    def settings(self) -> dict[str, Any]:
        """The whole preset, and what else was given; what depends on the steps that --minutes allows stays open."""
        chosen = self.resolved()
        nothing = dict.fromkeys(("steps", "seed", "members", "patience", "data_name", "digits"))
        folded = dataclasses.replace(
            self, **nothing, sweep=(), restart_collapsed=False, data=chosen.data, train=chosen.train
        )
        table = super(Train, folded).settings()
        del table["sweep"]
        for name in self._left_open() if self.minutes is not None else ():
            del table["train"][name]
        return table

    def run(self) -> None:
        """Train, saving as it goes."""
        started = time.perf_counter()
        chosen = self.resolved()
        self._check_data(chosen.data)
        self._join()
        choose_device(self.common)
        from sqair.commands.watch import check_tensorboard
        from sqair.training.hosts import is_writer
        from sqair.training.loop import check_preset

        if self.tensorboard:
            check_tensorboard()
        check_preset(chosen)
        folder = self._folder()
        chosen = self._timed(self._fitting(chosen))
        self._say_recipe(chosen)
        self._train(chosen, folder, started)
        if is_writer():
            finish(folder)

    def _train(self, chosen: Preset, folder: Path, started: float) -> None:
        """Train, and leave with 130 or 143 where a signal ended it."""
        from sqair.commands.watch import watchers
        from sqair.training.faults import LostContact
        from sqair.training.loop import Stopped, train

        try:
            with watchers(chosen, tensorboard=self.tensorboard) as callbacks:
                train(
                    chosen,
                    folder,
                    resume=self.resume,
                    overwrite=self.common.overwrite,
                    quiet=self.common.quiet,
                    command=command_line(sys.argv[1:]),
                    callbacks=callbacks,
                    started=started,
                    mesh=self._mesh(chosen),
                )
        except Stopped as stop:
            print(f"sqair train: {stop}", file=sys.stderr)
            raise SystemExit(stop.code) from stop
        except LostContact as error:
            print(f"sqair train: {error}", file=sys.stderr, flush=True)
            os._exit(1)  # jax would wait for the others before it let this process end

    def _join(self) -> None:
        """Join the processes of a job on many hosts, if there is one."""
        from sqair.training.hosts import find_job, join

        job = find_job(self.coordinator, self.processes, self.process, os.environ)
        if job is not None:
            self.common.say("waiting for all processes of the job")
            join(job)

    def _mesh(self, chosen: Preset) -> "Mesh | None":
        """The devices that share the work; None for one."""
        import jax

        from sqair.training.distributed import choose_shares, make_mesh
        from sqair.training.members import member_configs

        members = len(member_configs(chosen.train))
        return make_mesh(choose_shares(self.mesh or "auto", chosen.train, members, jax.device_count()))

    def _fitting(self, chosen: Preset) -> Preset:
        """The preset with a batch for which there is memory, if that is wanted."""
        if not self.fit_memory:
            return chosen
        if self.resume:
            raise UsageError("a resumed run keeps its batch; leave --fit-memory out")
        from sqair.training.faults import fitting

        fitted = fitting(chosen, self._mesh)
        if fitted != chosen:
            self.common.say(f"{chosen.train.batch} sequences do not fit into memory; the batch is {fitted.train.batch}")
        return fitted

    def _check_data(self, config: DataConfig) -> None:
        """Refuse a preset without the data it needs; say what a file decides."""
        if self.preset == NEEDS_DATA and not self.resume and config == PRESETS[NEEDS_DATA].data:
            raise UsageError(f"{NEEDS_DATA} has no data of its own; give yours with --data FILE.npz")
        if config.name.endswith(".npz") and not self.resume:
            size = "x".join(map(str, config.size))
            self.common.say(f"{config.name}: sequences of {config.length} frames of {size}; the model is made for them")

    def _timed(self, chosen: Preset) -> Preset:
        """The preset with the number of steps that --minutes allows."""
        if self.minutes is None:
            return chosen
        if self.resume:
            raise UsageError("a resumed run keeps its number of steps; leave --minutes out")
        from sqair.commands.speed import steps_within
        from sqair.training.hosts import agreed

        self.common.say("measuring the speed of a step (compiles first)")
        batch, mesh = chosen.train.batch, self._mesh(chosen)

        def recipe(steps: int) -> TrainConfig:
            return dataclasses.replace(self.resolved(steps).train, batch=batch)

        steps = agreed(steps_within(chosen, recipe, 60 * self.minutes, mesh))
        self.common.say(f"{self.minutes:g} minutes are {steps} steps")
        return dataclasses.replace(chosen, train=recipe(steps))

    def _say_recipe(self, chosen: Preset) -> None:
        """Say what was decided for a new training."""
        if self.resume:
            return
        for line in recipe_lines(chosen, PRESETS[self.preset], self._left_open(), follows_digits=self.recipe == "fast"):
            self.common.say(line)


def repeated(flag: str, arguments: Sequence[str]) -> list[str]:
    """The arguments with a flag before each of its values: several FIELD=VALUES may follow one flag."""
    words: list[str] = []
    is_open = False
    for word in arguments:
        is_value = "=" in word and not word.startswith("-")
        if is_open and is_value and words[-1] != flag:
            words.append(flag)
        is_open = word == flag or word.startswith(f"{flag}=") or (is_open and is_value)
        words.append(word)
    return words


def fitted(chosen: Preset, path: Path) -> Preset:
    """The preset made for the frames of a file; a file that is not there is refused when it is opened."""
    if not path.expanduser().is_file():
        return chosen
    from sqair.data import load_sequences

    frames = load_sequences(path).frames
    length, *size = frames.shape[1:4]
    channels = 3 if frames.ndim == 5 else 1
    model = dataclasses.replace(chosen.model, image=tuple(size), channels=channels)
    data = dataclasses.replace(chosen.data, length=min(length, chosen.data.length), size=tuple(size))
    return dataclasses.replace(chosen, model=model, data=data)


def value_of(flag: str, words: Sequence[str]) -> str:
    """What follows a flag, as a word of its own or after an equals sign; nothing if it is not given."""
    for word, after in zip(words, [*words[1:], ""], strict=True):
        name, _, value = word.partition("=")
        if name == flag:
            return value or after
    return ""

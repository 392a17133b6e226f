"""``sqair figures``: the paper's figures, each by its name, from any trained models."""

import dataclasses
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import tyro

from sqair.commands.common import Command, choose_device, finish, optional, replaced
from sqair.config import UsageError, UserError

if TYPE_CHECKING:
    from sqair.config import DataConfig
    from sqair.data.digits import Split
    from sqair.gallery.asked import Asked

Name = Literal[
    "generation",
    "inference",
    "reconstructions",
    "samples",
    "conditional",
    "partial",
    "curves",
    "consistency",
    "in-out",
    "vrnn",
    "failures",
]
FIGURES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "generation": ("schematics", "generation", ()),
    "inference": ("schematics", "inference", ()),
    "reconstructions": ("sequences", "reconstructions", ("model",)),
    "samples": ("sequences", "samples", ("model",)),
    "conditional": ("sequences", "conditional", ("model",)),
    "partial": ("comparison", "partial", ("model", "air")),
    "curves": ("comparison", "curves", ("model", "air")),
    "consistency": ("comparison", "consistent", ("model", "air", "vrnn")),
    "in-out": ("sequences", "in_and_out", ("in_out",)),
    "vrnn": ("sequences", "vrnn", ("vrnn",)),
    "failures": ("mistakes", "gallery", ("model",)),
}
"""By its name: the module of gallery/ and the function that makes it, and the models that it needs."""
KINDS = {"model": "sqair", "air": "air", "vrnn": "vrnn", "in_out": "sqair"}
"""Of those models."""
OF_FILES = ("reconstructions", "samples", "conditional")
"""Those that can be made of the sequences of a file; what else shows --model needs moving digits."""
OBSERVED = 3
"""Frames after which a model goes on by itself, where sequences have more."""


@dataclass(frozen=True, kw_only=True)
class Figures(Command):
    """Make the paper's figures, as PNG and PDF, from shipped or given models.

    generation, inference: drawings of a time-step. reconstructions, samples (with numbers of objects), conditional:
    what a SQAIR sees, dreams and continues. partial, curves: AIR against SQAIR on hard frames, and counting over
    overlap and visibility. consistency: how steady what is. in-out: digits that come and go. vrnn: its reconstructions
    and samples. failures: found automatically. Numbers that a figure shows are written to NAME.json.

    reconstructions, samples and conditional are made of the sequences of a file, too: of pedestrians, say.

    examples:
      sqair figures
      sqair figures conditional --model runs/train/people --data people.npz --observe 4 --frames 6
    """

    NAME: ClassVar[str] = "figures"
    POSITIONAL: ClassVar[str | None] = "name"

    name: Annotated[
        Name | None, tyro.conf.Positional, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: all)")
    ] = None
    """The figure; without it all are made for which there are models."""
    model: str = "sqair-mlp"
    """A SQAIR: a shipped model, a model's folder, or the folder of a run."""
    air: str = "air-mlp"
    """An AIR."""
    vrnn: str = "vrnn-mlp"
    """A VRNN."""
    in_out: str = "sqair-mlp-in-out"
    """A SQAIR that knows digits that come and go."""
    data: Annotated[str | None, optional("FILE.npz", "what it was trained on")] = None
    """Sequences to show --model; of a file that it was trained on, the tenth that was held out."""
    digits: Annotated[str | None, optional("STR", "those each model was trained on")] = None
    """mnist, strokes, or a folder with the four MNIST files."""
    sequences: int = 200
    """To measure on, and to search for failures."""
    observe: Annotated[int | None, optional("INT", f"{OBSERVED}, or all but the last")] = None
    """conditional: frames that are seen ..."""
    frames: Annotated[int | None, optional("INT", "as many as the data has")] = None
    """... and frames that are generated after them."""
    seed: int = 1
    """Of the sequences, the particles and the dreams."""
    out: Annotated[str | None, optional("DIR", "runs/figures/NAME")] = None
    """Folder for results."""

    def run(self) -> None:
        """Make the figures and write them."""
        if self.sequences < 1:
            raise UserError(f"--sequences must be at least 1, not {self.sequences}")
        if self.data is not None and not self.data.endswith(".npz"):
            raise UsageError(f"--data must be a file of sequences whose name ends in .npz, not {self.data}")
        self._check_flags()
        choose_device(self.common)
        from sqair.training.runs import choose_folder

        names, missing = self._names()
        if self.name is not None and missing:
            raise UserError(missing)
        names, unfit = self._of_files(names)
        asked = self._asked(names)
        out = Path(self.out) if self.out is not None else None
        folder = choose_folder(self.NAME, self.name or "all", out, overwrite=self.common.overwrite)
        for line in filter(None, (missing, unfit)):
            self.common.say(line)
        for name in names:
            make(name, asked, folder)
            self.common.say(f"{name}: done")
        finish(folder)

    def _names(self) -> tuple[list[str], str]:
        """The figures that can be made of those that are wanted, and a line about the others."""
        from sqair.training.checkpoint import find_model

        absent = []
        for role in ("model", "air", "vrnn", "in_out"):
            try:
                find_model(getattr(self, role))
            except UserError:
                absent.append(role)
        wanted = [self.name] if self.name is not None else list(FIGURES)
        left_out = [name for name in wanted if set(FIGURES[name][2]) & set(absent)]
        flags = {
            role: f"--{role.replace('_', '-')}" for name in left_out for role in FIGURES[name][2] if role in absent
        }
        models = ", ".join(f"{getattr(self, role)} ({flag})" for role, flag in flags.items())
        line = f"no {', '.join(left_out)} without {models}: train such a model and name its folder" if left_out else ""
        return [name for name in wanted if name not in left_out], line

    def _check_flags(self) -> None:
        """Refuse flags that the figure asked for has no use for."""
        if self.name is None or self.name not in FIGURES:
            return
        if self.data is not None and "model" not in FIGURES[self.name][2]:
            raise UsageError(f"--data is for figures of --model, and {self.name} is none; leave it out")
        if self.name != "conditional" and (self.observe, self.frames) != (None, None):
            raise UsageError(f"--observe and --frames are for conditional, not for {self.name}; leave them out")

    def _of_files(self, names: list[str]) -> tuple[list[str], str]:
        """Without what needs moving digits, if --model is shown a file, and a line about that."""
        unfit = [name for name in names if "model" in FIGURES[name][2] and name not in OF_FILES]
        if not unfit or not (file := self._shown("model")[0].name).endswith(".npz"):
            return names, ""
        line = f"no {', '.join(unfit)} of {file}: moving digits are needed"
        if self.name is not None:
            raise UserError(f"{line}; choose from {', '.join(OF_FILES)}")
        return [name for name in names if name not in unfit], line

    def _asked(self, names: list[str]) -> "Asked":
        """The models that the figures need and their data."""
        from sqair.gallery.asked import Asked

        roles = sorted({role for name in names for role in FIGURES[name][2]})
        for role in roles:
            self._check_model(role)
        shown = {role: self._shown(role) for role in roles}
        data = {role: config for role, (config, _) in shown.items()}
        splits: dict[str, Split] = {role: split for role, (_, split) in shown.items() if split is not None}
        observe = self._observed(data["model"].length) if "conditional" in names else OBSERVED
        models = {role: getattr(self, role) for role in roles}
        asked = Asked(models, data, splits, self.sequences, self.seed, observe, self.frames or 0)
        if splits.get("model") is not None:
            asked.some("model", 1)  # a file that the model cannot see is refused before anything is written
        return asked

    def _check_model(self, role: str) -> None:
        """Refuse a model of another kind, and one that cannot be drawn."""
        from sqair.training.checkpoint import load_model

        flag, given = f"--{role.replace('_', '-')}", getattr(self, role)
        config = load_model(given).config
        if config.kind != KINDS[role]:
            raise UserError(f"{flag} {given} is of the kind {config.kind}, not {KINDS[role]}")
        if config.background != "none":
            raise UserError(f"{flag} {given} has a background of its own, which figures do not draw; see `sqair track`")

    def _shown(self, role: str) -> "tuple[DataConfig, Split | None]":
        """What a model is shown and, of a file, which part of it."""
        from sqair.commands.evaluate import check_size, is_same_file, trained_on
        from sqair.commands.table import check_digits
        from sqair.training.checkpoint import read_card

        given, card = getattr(self, role), read_card(getattr(self, role))
        trained = trained_on(card)
        config = replaced(trained, digits=self.digits, name=self.data if role == "model" else None)
        split = None
        if role == "model" and config.name.endswith(".npz"):
            config, split = of_file(config), "validation" if is_same_file(config.name, trained.name) else "test"
        else:
            check_digits(config, given)
        check_size(config, tuple(card["model"]["image"]))
        return config, split

    def _observed(self, length: int) -> int:
        """Frames that are seen before others are generated; refuses numbers that sequences of this length forbid."""
        if self.frames is not None and self.frames < 1:
            raise UserError(f"--frames must be at least 1, not {self.frames}")
        observe = max(1, min(OBSERVED, length - 1)) if self.observe is None else self.observe
        if not 1 <= observe <= length or (observe == length and self.frames is None):
            raise UserError(
                f"sequences have {length} frames: --observe must be from 1 to {length - 1}, or {length} with --frames, "
                f"not {observe}"
            )
        return observe


def of_file(config: "DataConfig") -> "DataConfig":
    """The same with the size of the frames of the file that it names, and no more frames than those."""
    from sqair.data import load_sequences

    length, *size = load_sequences(config.name).frames.shape[1:4]
    return dataclasses.replace(config, length=min(length, config.length), size=tuple(size), sequences=0)


def make(name: str, asked: "Asked", folder: Path) -> None:
    """Make one figure and write it, with its numbers."""
    from sqair.gallery.drawing import save
    from sqair.training.files import write_json

    module, function, _ = FIGURES[name]
    made = getattr(importlib.import_module(f"sqair.gallery.{module}"), function)(asked)
    save(made.figure, folder, name)
    if made.numbers:
        write_json(folder / f"{name}.json", made.numbers)

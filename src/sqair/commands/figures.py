"""``sqair figures``: the paper's figures, each by its name, from any trained models."""

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import tyro

from sqair.commands.common import Command, choose_device, finish, optional, replaced
from sqair.config import UserError

if TYPE_CHECKING:
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


@dataclass(frozen=True, kw_only=True)
class Figures(Command):
    """Make the paper's figures, as PNG and PDF, from shipped or given models.

    generation, inference: drawings of a time-step. reconstructions, samples (with numbers of objects), conditional:
    what a SQAIR sees, dreams and continues. partial, curves: AIR against SQAIR on hard frames, and counting over
    overlap and visibility. consistency: how steady what is. in-out: digits that come and go. vrnn: its reconstructions
    and samples. failures: found automatically. Numbers that a figure shows are written to NAME.json.

    examples:
      sqair figures
      sqair figures failures --model runs/train/mine --sequences 1000
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
    digits: Annotated[str | None, optional("STR", "those each model was trained on")] = None
    """mnist, strokes, or a folder with the four MNIST files."""
    sequences: int = 200
    """To measure on, and to search for failures."""
    seed: int = 1
    """Of the sequences, the particles and the dreams."""
    out: Annotated[str | None, optional("DIR", "runs/figures/NAME")] = None
    """Folder for results."""

    def run(self) -> None:
        """Make the figures and write them."""
        if self.sequences < 1:
            raise UserError(f"--sequences must be at least 1, not {self.sequences}")
        choose_device(self.common)
        from sqair.training.runs import choose_folder

        names, missing = self._names()
        if self.name is not None and missing:
            raise UserError(missing)
        asked = self._asked(names)
        out = Path(self.out) if self.out is not None else None
        folder = choose_folder(self.NAME, self.name or "all", out, overwrite=self.common.overwrite)
        if missing:
            self.common.say(missing)
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

    def _asked(self, names: list[str]) -> "Asked":
        """The models that the figures need and their data."""
        from sqair.commands.evaluate import check_size, trained_on
        from sqair.commands.table import check_digits
        from sqair.gallery.asked import Asked
        from sqair.training.checkpoint import load_model, read_card

        roles = sorted({role for name in names for role in FIGURES[name][2]})
        kinds = {"model": "sqair", "air": "air", "vrnn": "vrnn", "in_out": "sqair"}
        data = {}
        for role in roles:
            given, card = getattr(self, role), read_card(getattr(self, role))
            if (kind := load_model(given).config.kind) != kinds[role]:
                raise UserError(f"--{role.replace('_', '-')} {given} is of the kind {kind}, not {kinds[role]}")
            data[role] = check_digits(replaced(trained_on(card), digits=self.digits), given)
            check_size(data[role], tuple(card["model"]["image"]))
        return Asked({role: getattr(self, role) for role in roles}, data, self.sequences, self.seed)


def make(name: str, asked: "Asked", folder: Path) -> None:
    """Make one figure and write it, with its numbers."""
    from sqair.gallery.drawing import save
    from sqair.training.files import write_json

    module, function, _ = FIGURES[name]
    made = getattr(importlib.import_module(f"sqair.gallery.{module}"), function)(asked)
    save(made.figure, folder, name)
    if made.numbers:
        write_json(folder / f"{name}.json", made.numbers)

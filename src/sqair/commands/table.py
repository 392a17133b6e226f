"""``sqair table``: the paper's Table 1 from the shipped models, beside the paper's numbers."""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

from sqair.commands.common import Command, Flag, choose_device, finish, name_of, optional, replaced
from sqair.commands.side_by_side import side_by_side
from sqair.config import DataConfig, UserError

ROWS = ("sqair-conv", "sqair-mlp", "air-mlp", "vrnn-conv", "vrnn-mlp")
"""Models of the table; they are called as their presets."""
IN_OUT = "sqair-mlp-in-out"
"""The model of App. F, shown below them."""
SIZES = {"gpu": (10_000, 1000, 1_000_000), "cpu": (200, 50, 4_000)}
"""Sequences, particles and sequences that addition learns from, unless they are given."""


@dataclass(frozen=True, kw_only=True)
class Table(Command):
    """Print the paper's Table 1 from the shipped models, beside its numbers.

    Addition trains a classifier on each model's latent variables and so has a flag of its own here, not in evaluate.
    Everything is also written to table.json and table.md in the results folder.

    examples:
      sqair table --sequences 200 --particles 50
      sqair table --models runs/train/mine runs/train/other --addition 0 --json
    """

    NAME: ClassVar[str] = "table"

    models: Annotated[tuple[str, ...], optional("DIR", "those shipped")] = ()
    """Models to show instead: shipped names, or folders of models or runs."""
    sequences: Annotated[int | None, optional("INT", "10000 on a GPU, 200 on a CPU")] = None
    """Test sequences of each model's own data."""
    particles: Annotated[int | None, optional("INT", "1000 on a GPU, 50 on a CPU")] = None
    """K of the IWAE and FIVO bounds."""
    addition: Annotated[int | None, optional("INT", "1000000 on a GPU, 4000 on a CPU")] = None
    """Sequences from which the classifier of addition learns; 0 leaves addition out."""
    digits: Annotated[str | None, optional("STR", "those each model was trained on")] = None
    """mnist, strokes, or a folder with the four MNIST files."""
    seed: int = 1
    """Of the sequences and the particles."""
    json: Annotated[Flag, optional("")] = False
    """Print one JSON list and nothing else."""
    out: Annotated[str | None, optional("DIR", "runs/table/NAME")] = None
    """Folder for results."""

    def run(self) -> None:
        """Measure every model that is there, print, save."""
        kind = choose_device(self.common)
        from sqair.evaluation.table import text
        from sqair.training.files import finite, write_json, write_text
        from sqair.training.runs import choose_folder

        names, missing = self._names()
        out = Path(self.out) if self.out is not None else None
        label = name_of(names[0]) if len(self.models) == 1 else "models" if self.models else "shipped"
        folder = choose_folder(self.NAME, label, out, overwrite=self.common.overwrite)
        if missing:
            self.common.say(missing)
        rows: list[dict[str, Any]] = []
        where = "cpu" if kind == "cpu" else "gpu"
        # two at a time: while one compiles, and between large products, the machine would have no work
        for row in side_by_side([partial(self._row, name, where) for name in names], 2):
            rows.append(finite(row))
            write_json(folder / "table.json", rows)  # after each row, since they take long
            write_text(folder / "table.md", text(rows))
        print(json.dumps(rows) if self.json else text(rows), end="\n" if self.json else "", flush=True)
        if not (self.json and self.common.quiet):
            finish(folder, aside=self.json)

    def _names(self) -> tuple[list[str], str]:
        """The models to show, and a line about those that are not there."""
        from sqair.training.checkpoint import find_model, shipped_models

        if self.models:
            for name in self.models:
                find_model(name)
            return list(self.models), ""
        shipped = shipped_models()
        names = [name for name in (*ROWS, IN_OUT) if name in shipped]
        line = missing_line([name for name in ROWS if name not in shipped])
        if not names:
            raise UserError(line)
        return names, line

    def _row(self, name: str, kind: str) -> dict[str, Any]:
        """The numbers of one model; its seconds are those beside another row."""
        import time

        from sqair.commands.evaluate import check_size, trained_on
        from sqair.evaluation.table import measure, row_of, seeds
        from sqair.training.checkpoint import load_model, read_card

        began = time.perf_counter()
        model, card = load_model(name), read_card(name)
        data = check_digits(replaced(trained_on(card), digits=self.digits), name)
        check_size(data, model.config.image)
        asked = (self.sequences, self.particles, self.addition)
        sizes = [size if given is None else given for given, size in zip(asked, SIZES[kind], strict=True)]
        numbers = measure(
            model, data, sequences=sizes[0], particles=sizes[1], seed=self.seed, addition_sequences=sizes[2]
        )
        seconds = round(time.perf_counter() - began, 1)
        self.common.say(f"{name}: {seconds:.0f} s")
        about = {"model": name_of(name), "row": row_of(model.config), "seconds": seconds, "seeds": seeds(card)}
        return numbers | about | {"digits": "mnist" if Path(data.digits).is_dir() else data.digits}


def check_digits(config: DataConfig, model: str) -> DataConfig:
    """Refuse a model of other data than moving digits, whose truth is known."""
    from sqair.data import MOTIONS

    if config.name not in MOTIONS:
        raise UserError(
            f"{model} was trained on {config.name}; this needs a model of moving digits, see `sqair evaluate`"
        )
    return config


def missing_line(names: list[str]) -> str:
    """Which weights are not shipped, and how to make them."""
    if not names:
        return ""
    listed = ", ".join(names)
    return f"not shipped: {listed}; train each with `sqair train NAME` and show it with --models runs/train/NAME"

"""``sqair data``: sequences of moving digits with the truth about them, as one file."""

import dataclasses
import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

from sqair.commands.common import Command, choose_device, finish, optional, refuse_taken, replaced
from sqair.config import DataConfig, UsageError
from sqair.settings import check

if TYPE_CHECKING:
    from sqair.data import Sequences

SHOWN = 8
"""Sequences in the preview."""


@dataclass(frozen=True, kw_only=True)
class Data(Command):
    """Make sequences of moving digits, with boxes, identities and labels, as one .npz file.

    A picture of the first few is put beside it.

    examples:
      sqair data moving-mnist --digits strokes --sequences 100 --out digits.npz
      sqair data moving-mnist-in-out --split test --sequences 10000 --out test.npz
    """

    NAME: ClassVar[str] = "data"
    POSITIONAL: ClassVar[str | None] = "name"

    name: Annotated[str | None, tyro.conf.Positional, optional("D", "moving-mnist")] = None
    """moving-mnist, moving-mnist-free, moving-mnist-in-out, or a .npz file to take sequences from."""
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
    data: DataConfig = field(default_factory=DataConfig)

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
        check(config, "data.")
        out = self._file(config.name)
        refuse_taken(out, self.common)
        refuse_taken(out.with_suffix(".png"), self.common)
        choose_device(self.common)
        from sqair.data import collect, open_data, save_sequences

        sequences = collect(open_data(config, self.split), self.sequences, self.seed)
        save_sequences(out, sequences)
        preview(out.with_suffix(".png"), sequences)
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


def preview(path: Path, sequences: "Sequences") -> None:
    """A picture of the first sequences, with their true boxes if they are known."""
    import numpy as np

    from sqair.figures import Row, strip

    first = [None if a is None else np.asarray(a[:SHOWN]) for a in (sequences.boxes, sequences.ids)]
    boxes, ids = (itertools.repeat(None) if values is None else values for values in first)
    marked = zip(np.asarray(sequences.frames[:SHOWN]), boxes, ids, strict=False)
    strip(path, [Row(str(i + 1), *row) for i, row in enumerate(marked)])

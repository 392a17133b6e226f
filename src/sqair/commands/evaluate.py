"""``sqair evaluate``: the numbers of a trained model."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import tyro

from sqair.commands.common import Command, Flag, choose_device, finish, name_of, optional, replaced
from sqair.config import DataConfig, UserError
from sqair.settings import check, from_dict

if TYPE_CHECKING:
    from sqair.data import Source

MOST = 1000
"""Sequences that are used unless another number is asked for."""


@dataclass(frozen=True, kw_only=True)
class Evaluate(Command):
    """Measure a trained model: bound, reconstruction, KL, counting.

    Everything is also written to metrics.json in the results folder, and to index.html with what it means.

    examples:
      sqair evaluate sqair-strokes
      sqair evaluate runs/train/mine --data digits.npz --sequences 100 --particles 10 --seed 0 --json
    """

    NAME: ClassVar[str] = "evaluate"
    POSITIONAL: ClassVar[str | None] = "model"

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """A shipped model, a model's folder, or the folder of a run."""
    data: Annotated[str | None, optional("D", "what the model was trained on")] = None
    """A data set, of which the test split is used, or a .npz file; of one trained on, the tenth that was held out."""
    digits: Annotated[str | None, optional("STR", "those the model was trained on")] = None
    """mnist, strokes, or a folder with the four MNIST files."""
    sequences: Annotated[int | None, optional("INT", "1000, or as many as there are")] = None
    """How many to use."""
    particles: int = 10
    """K of the IWAE bound."""
    seed: int = 1
    """Of the sequences and the particles."""
    json: Annotated[Flag, optional("")] = False
    """Print one JSON object and nothing else."""
    out: Annotated[str | None, optional("DIR", "runs/evaluate/MODEL")] = None
    """Folder for results."""

    def run(self) -> None:
        """Evaluate, print, save."""
        choose_device(self.common)
        from sqair.evaluation.evaluate import evaluate
        from sqair.report import evaluate_page
        from sqair.training.checkpoint import load_model, read_card
        from sqair.training.files import finite, write_json
        from sqair.training.runs import choose_folder

        out = Path(self.out) if self.out is not None else None
        folder = choose_folder(self.NAME, name_of(self.model), out, overwrite=self.common.overwrite)
        model = load_model(self.model)
        source, name = self._source(trained_on(read_card(self.model)), model.config.image)
        sequences = min(MOST, available(source)) if self.sequences is None else self.sequences
        numbers = evaluate(model, source, sequences=sequences, particles=self.particles, seed=self.seed)
        numbers = finite(numbers | {"model": self.model, "data": name})
        print(json.dumps(numbers) if self.json else table(numbers), flush=True)
        write_json(folder / "metrics.json", numbers)
        evaluate_page(folder, numbers)
        if not (self.json and self.common.quiet):
            finish(folder, aside=self.json)

    def _source(self, trained: DataConfig, image: tuple[int, int]) -> "tuple[Source, str]":
        """What to evaluate on, and its name: the training data with the flags applied, in the training's length.

        The part of a file that the model was trained on is left out.
        """
        from sqair.data import load_sequences, open_data
        from sqair.data.sequences import file_source

        config = replaced(trained, name=self.data, digits=self.digits)
        if not config.name.endswith(".npz"):
            check_size(config, image)
            return open_data(config, "test"), config.name
        content = load_sequences(config.name)
        _, length, *size = content.frames.shape[:4]
        config = dataclasses.replace(config, length=min(length, config.length), size=tuple(size))
        check_size(config, image)
        known = is_same_file(config.name, trained.name)
        source = file_source(content, config, "validation" if known else "test")
        if known:
            self.common.say(f"the model was trained on {config.name}: using the {available(source)} sequences held out")
        return source, config.name


def is_same_file(one: str, other: str) -> bool:
    """Whether two names are of the same file, of which a part was trained on."""
    return Path(one).expanduser().resolve() == Path(other).expanduser().resolve()


def available(source: "Source") -> int:
    """Sequences that a source has; a generator always has enough."""
    from sqair.data import FileSource

    return len(source) if isinstance(source, FileSource) else MOST


def trained_on(card: dict[str, Any]) -> DataConfig:
    """The data of a model, as its config.json tells, all of it; the default where it does not."""
    training = card.get("training") or {}
    size = tuple(card["model"].get("image", DataConfig.size))
    config = from_dict(DataConfig, training.get("data", {"size": size}), "training.data.")
    check(config, "training.data.")
    return dataclasses.replace(config, sequences=0)  # how many of a file were trained on is of no interest elsewhere


def check_size(config: DataConfig, image: tuple[int, int]) -> None:
    """Refuse data whose frames the model cannot take."""
    if config.size != image:
        frames, wanted = "x".join(map(str, config.size)), "x".join(map(str, image))
        raise UserError(f"{config.name} has frames of {frames}, the model was made for {wanted}; use other --data")


def table(numbers: dict[str, Any]) -> str:
    """Names and numbers in two columns; what has no meaning here is left out."""
    shown = {name: value for name, value in numbers.items() if value is not None}
    width = max(map(len, shown))
    return "\n".join(f"{name:{width}}  {rounded(value)}" for name, value in shown.items())


def rounded(value: Any) -> str:
    """A value with as many digits as one reads."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"

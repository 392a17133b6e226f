"""``sqair ablate``: one thing left out or done in another way, over several seeds."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro

from sqair.commands.common import Command, Flag, choose_device, finish, optional
from sqair.config import UsageError, UserError

RECORD = "ablation.json"


@dataclass(frozen=True, kw_only=True)
class Ablate(Command):
    """Train a SQAIR with one thing changed, and show what that does.

    All seeds are trained side by side and all are reported: counting, rediscoveries, identity switches, log p on
    held-out training digits. Writes ablation.json; the table shows the others in runs/ablate, too.

    examples:
      sqair ablate --list
      sqair ablate no-curriculum --seeds 5 --steps 5000
    """

    NAME: ClassVar[str] = "ablate"
    POSITIONAL: ClassVar[str | None] = "name"

    name: Annotated[
        str | None, tyro.conf.Positional, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: none)")
    ] = None
    """The ablation, one of --list; `default` changes nothing."""
    list: Annotated[Flag, optional("")] = False
    """Print all ablations and what they are for."""
    seeds: int = 5
    """How many, trained side by side."""
    steps: int = 5_000
    """Of each seed; the recipe follows."""
    digits: Annotated[str | None, optional("STR", "mnist")] = None
    """mnist, strokes, or a folder with the four MNIST files."""
    sequences: int = 500
    """To evaluate each seed on."""
    particles: int = 50
    """K of the IWAE bound."""
    seed: int = 0
    """The first of the seeds."""
    json: Annotated[Flag, optional("")] = False
    """Print one JSON object and nothing else."""
    out: Annotated[str | None, optional("DIR", "runs/ablate/NAME")] = None
    """Folder for results."""

    def run(self) -> None:
        """List, or train, evaluate and save."""
        if self.list:
            from sqair.evaluation.ablations import listing

            print(listing(), end="")
            return
        if self.name is None:
            raise UsageError("name an ablation; `sqair ablate --list` shows them")
        if min(self.seeds, self.steps, self.sequences, self.particles) < 1:
            raise UserError("--seeds, --steps, --sequences and --particles must be at least 1")
        choose_device(self.common)
        from sqair.evaluation.ablations import ablate, ablated, text
        from sqair.settings import to_dict
        from sqair.training.files import finite, write_json
        from sqair.training.runs import choose_folder, describe_run

        chosen = ablated(self.name, steps=self.steps, seeds=self.seeds, digits=self.digits, seed=self.seed)
        out = Path(self.out) if self.out is not None else None
        folder = choose_folder(self.NAME, self.name, out, overwrite=self.common.overwrite)
        found = ablate(chosen, sequences=self.sequences, particles=self.particles, say=self.common.say)
        about = describe_run(chosen, f"sqair ablate {self.name}")
        kept = {key: about[key] for key in ("version", "commit", "command", "device", "jax", "started")}
        kept["ended"] = kept.pop("started")  # the description was made when all was done
        settings = to_dict(chosen)
        if Path(settings["data"]["digits"]).is_dir():
            settings["data"]["digits"] = "mnist"  # no folder of this machine
        result = finite({"name": self.name, **kept, "settings": settings, **found})
        write_json(folder / RECORD, result)
        print(json.dumps(result) if self.json else text([*earlier(folder), result]), end="\n" if self.json else "")
        if not (self.json and self.common.quiet):
            finish(folder, aside=self.json)


def earlier(folder: Path) -> list[dict[str, Any]]:
    """The results beside this one, by their names."""
    paths = sorted(path for path in folder.parent.glob(f"*/{RECORD}") if path.parent != folder)
    return [json.loads(path.read_text()) for path in paths]

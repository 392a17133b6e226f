"""``sqair ablate``: one thing left out or done in another way, over several seeds."""

import contextlib
import dataclasses
import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import tyro

from sqair.cluster import Outcome, check_ray, run_items
from sqair.commands.common import Command, Flag, choose_device, finish, optional
from sqair.config import Preset, UsageError, UserError

RECORD, RESULTS, TABLE = "ablation.json", "results.json", "results.csv"


@dataclass(frozen=True, kw_only=True)
class Ablate(Command):
    """Train a SQAIR with one thing changed, and show what that does.

    All seeds are trained side by side and all are reported: counting, rediscoveries, identity switches, log p on
    held-out training digits. Writes ablation.json; the table shows the others in runs/ablate, too. Of several
    ablations each has a folder, and one that fails does not stop the others; results.json and results.csv list all.

    examples:
      sqair ablate --list
      sqair ablate default no-curriculum --seeds 5 --steps 5000 --resume
    """

    NAME: ClassVar[str] = "ablate"
    POSITIONAL: ClassVar[str | None] = "names"

    names: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NAME...", help_behavior_hint="(default: none)")
    ] = ()
    """The ablations, of those of --list; `default` changes nothing."""
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
    ray: Annotated[str | None, optional("local|ADDRESS", "one ablation after another")] = None
    """Spread several ablations over this machine's cores (local) or a Ray cluster."""
    resume: Annotated[Flag, optional("")] = False
    """Leave out ablations that are finished."""
    json: Annotated[Flag, optional("")] = False
    """Print one JSON object and nothing else."""
    out: Annotated[str | None, optional("DIR", "runs/ablate/NAME")] = None
    """Folder for results; of several ablations each has a folder in it."""

    def check(self) -> None:
        """Refuse what no ablation can be run with, before anything heavy is imported."""
        super().check()
        if self.list:
            return
        if not self.names:
            raise UsageError("name an ablation; `sqair ablate --list` shows them")
        if len(set(self.names)) < len(self.names):
            raise UsageError("name each ablation once")
        if min(self.seeds, self.steps, self.sequences, self.particles) < 1:
            raise UserError("--seeds, --steps, --sequences and --particles must be at least 1")
        if self.resume and self.common.overwrite:
            raise UsageError("--resume keeps what --overwrite replaces; give one of them")
        if self.ray is not None:
            check_ray(self.ray)

    def run(self) -> None:
        """List, or train, evaluate and save."""
        from sqair.evaluation.ablations import listing

        if self.list:
            print(listing(), end="")
            return
        known = [(name, self._folder(name), settings_of(self, name)) for name in self.names]
        digits = checksum_of_digits(self)
        items = [Item(*each, digits) for each in known]
        self._finished(items)  # which refuses, if it does, before a folder is held
        if self.ray is None:
            choose_device(self.common)
        with contextlib.ExitStack() as held:
            self._hold(held, items)
            table = Table(items, self._finished(items))
            self._run(table)
        self._conclude(table)

    def _finished(self, items: "Sequence[Item]") -> dict[str, dict[str, Any]]:
        """What earlier commands found, if this one goes on with them."""
        return {item.name: done for item in items if self.resume and (done := finished(self, item))}

    def _hold(self, held: contextlib.ExitStack, items: "Sequence[Item]") -> None:
        """Have no other command write where this one will; it may have come first, and ended."""
        from sqair.training.lock import locked
        from sqair.training.runs import check_folder

        for item in items:
            held.enter_context(locked(item.folder))
            if not self.resume:
                check_folder(item.folder, overwrite=self.common.overwrite)

    def _folder(self, name: str) -> Path:
        """Where the results of an ablation go."""
        from sqair.training.runs import choose_folder, is_taken

        out = None if self.out is None else Path(self.out) if len(self.names) == 1 else Path(self.out) / name
        if self.resume:
            folder = out or Path("runs") / self.NAME / name
            return choose_folder(self.NAME, name, folder, resume=is_taken(folder))
        return choose_folder(self.NAME, name, out, overwrite=self.common.overwrite)

    def _run(self, table: "Table") -> None:
        """Run the ablations that are left, here or on a cluster, and save each as it ends."""
        from sqair.commands.tally import Tally
        from sqair.training.files import write_json

        def on_done(item: Item, outcome: Outcome) -> None:
            if outcome.error is None:
                table.found[item.name] = outcome.value
                write_json(item.folder / RECORD, outcome.value)
            else:
                table.failures[item.name] = outcome.error
            table.tries[item.name] = outcome.tries
            table.write()
            tally.add(f"{item.name} {'done' if outcome.error is None else 'failed'}")

        left = [item for item in table.items if item.name not in table.found]
        data = {name: str(Path(os.environ[name]).absolute()) for name in ("SQAIR_DATA",) if name in os.environ}
        how: Any = {"device": self.common.device, "environment": data, "on_start": table.write}
        with Tally(len(left), quiet=self.common.quiet or self.ray is None) as tally:
            run_items(left, Work(self), address=self.ray, on_done=on_done, **how)

    def _conclude(self, table: "Table") -> None:
        """Print the table, and say what failed."""
        from sqair.commands.track import reason
        from sqair.evaluation.ablations import text

        if not table.several and table.failures:
            raise table.failures[self.names[0]]
        found = [table.found[name] for name in self.names if name in table.found]
        if self.json:
            print(json.dumps({"ablations": found} if table.several else found[0]))
        else:
            print(text([*earlier(table.items), *found]), end="")
        for name, error in table.failures.items():
            print(f"sqair {self.NAME}: {name} failed: {reason(error)}", file=sys.stderr)
        if not (self.json and self.common.quiet):
            finish(table.folder, aside=self.json)
        if table.failures:
            failed = ", ".join(table.failures)
            raise UserError(f"{len(table.failures)} of {len(self.names)} ablations failed: {failed}")


class Item(NamedTuple):
    """An ablation that is to be run."""

    name: str
    folder: Path
    settings: dict[str, Any]
    digits: str | None
    """The checksum of the digits; None for those that are drawn."""


class Table:
    """What became of the ablations that were asked for, whether they were run now or earlier."""

    def __init__(self, items: Sequence[Item], found: dict[str, dict[str, Any]]) -> None:
        self.items, self.several = items, len(items) > 1
        self.folder = items[0].folder.parent if self.several else items[0].folder
        self.found = found
        self.failures: dict[str, Exception] = {}
        self.tries: dict[str, int] = {}

    def write(self) -> None:
        """Write results.json and results.csv; one ablation has its ablation.json and no need for them."""
        from sqair.commands.tally import write_csv
        from sqair.training.files import write_json

        if self.several:
            rows = [self._row(item.name) for item in self.items]
            write_json(self.folder / RESULTS, {"ablations": rows})
            write_csv(self.folder / TABLE, rows, first=("ablation", "state", "tries"))

    def _row(self, name: str) -> dict[str, Any]:
        """An ablation with the medians of its seeds, or why it has none."""
        from sqair.commands.track import reason

        row: dict[str, Any] = {"ablation": name, "state": "open"}
        row |= {"tries": self.tries[name]} if name in self.tries else {}
        if name in self.failures:
            return row | {"state": "failed", "error": reason(self.failures[name])}
        return row | ({"state": "finished", **medians(self.found[name])} if name in self.found else {})


def medians(found: Mapping[str, Any]) -> dict[str, Any]:
    """How many seeds there are, and the median of each number; a seed for which it has no meaning is left out."""
    from sqair.evaluation.ablations import COLUMNS

    known = {name: [row[name] for row in found["rows"] if row[name] is not None] for name in COLUMNS}
    numbers = {name: statistics.median(values) if values else None for name, values in known.items()}
    return {"seeds": len(found["rows"]), **numbers}


class Work:
    """Trains and evaluates an ablation, in this process or in a worker, which keeps quiet."""

    def __init__(self, command: Ablate) -> None:
        digits = command.digits
        if digits is not None and Path(digits).is_dir():
            digits = str(Path(digits).absolute())
        common = dataclasses.replace(command.common, quiet=command.common.quiet or command.ray is not None)
        self.command = dataclasses.replace(command, digits=digits, common=common)

    def __call__(self, item: Item) -> dict[str, Any]:
        """What becomes ablation.json."""
        command = self.command
        if command.ray is not None:
            choose_device(command.common)
        from sqair.evaluation.ablations import ablate
        from sqair.training.files import finite
        from sqair.training.runs import describe_run

        chosen = preset_of(command, item.name)
        found = ablate(chosen, sequences=command.sequences, particles=command.particles, say=command.common.say)
        about = describe_run(chosen, f"sqair ablate {item.name}")
        kept = {key: about[key] for key in ("version", "commit", "command", "device", "jax", "started")}
        kept["ended"] = kept.pop("started")  # the description was made when all was done
        return finite({"name": item.name, **kept, "settings": item.settings, "digits": item.digits, **found})


def preset_of(command: Ablate, name: str) -> Preset:
    """The preset of an ablation."""
    from sqair.evaluation.ablations import ablated

    return ablated(name, steps=command.steps, seeds=command.seeds, digits=command.digits, seed=command.seed)


def settings_of(command: Ablate, name: str) -> dict[str, Any]:
    """The preset of an ablation as a table, with no folder of this machine."""
    from sqair.settings import to_dict

    settings = to_dict(preset_of(command, name))
    if Path(settings["data"]["digits"]).is_dir():
        settings["data"]["digits"] = "mnist"
    return settings


def checksum_of_digits(command: Ablate) -> str | None:
    """What tells the digits of a folder, or MNIST's, from all others, whatever the folder is called."""
    from sqair.data.mnist import load_mnist
    from sqair.training.manifest import checksum

    digits = preset_of(command, command.names[0]).data.digits
    if digits == "strokes":
        return None
    images, labels = load_mnist("train", None if digits == "mnist" else Path(digits).expanduser())
    return checksum(images.tobytes() + labels.tobytes())


def finished(command: Ablate, item: Item) -> dict[str, Any] | None:
    """What an earlier command found with the same settings; others are refused."""
    try:
        found = json.loads((item.folder / RECORD).read_bytes())
        kept = {"settings": found["settings"], "sequences": found["sequences"], "particles": found["particles"]}
        digits, _ = found.get("digits"), medians(found)  # which fails if numbers are missing
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    asked = {"settings": item.settings, "sequences": command.sequences, "particles": command.particles}
    if kept != json.loads(json.dumps(asked)):
        raise UsageError(f"{item.folder} was made with other settings; repeat them, or choose another --out")
    if digits != item.digits:
        raise UsageError(f"{item.folder} was made with other digits; give the same --digits, or choose another --out")
    return found


def earlier(items: Sequence[Item]) -> list[dict[str, Any]]:
    """The results beside these, by their names; damaged ones are left out."""
    own, found = {item.folder for item in items}, []
    for path in sorted(path for path in items[0].folder.parent.glob(f"*/{RECORD}") if path.parent not in own):
        try:
            found.append(json.loads(path.read_bytes()))
        except (OSError, ValueError, RecursionError):
            print(f"warning: {path} is damaged; it is not in the table", file=sys.stderr)
    return found

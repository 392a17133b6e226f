"""``sqair bench``: how fast this machine trains."""

import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from sqair.commands.common import Command, Flag, choose_device, command_line, finish, optional, replaced
from sqair.config import PRESETS, Preset, UsageError, UserError, nearest

BEST = "best"
"""The word for the batch that gives most sequences per second."""


@dataclass(frozen=True, kw_only=True)
class Bench(Command):
    """Measure how long a training step takes on this machine.

    Sequences have their full length. Each batch is timed as the preset trains it, where most later frames may not
    discover objects, and with every frame allowed to. Everything is also written to bench.json in the results folder.

    examples:
      sqair bench --quick
      sqair bench --preset sqair-mlp --batch 32 256 best --grow --json
    """

    NAME: ClassVar[str] = "bench"

    preset: Annotated[str | None, optional("PRESET", "sqair-mlp, on a CPU tiny")] = None
    """What to train."""
    batch: Annotated[tuple[str, ...] | None, optional("B [B ...]", "32 256 best, with --quick 32")] = None
    """Sequences per step; `best` doubles them until sequences/s stop growing or memory ends."""
    grow: Annotated[Flag, optional("")] = False
    """Also measure how the time grows with slots, frames and particles."""
    quick: Annotated[Flag, optional("")] = False
    """Fewer and shorter calls, and growth from its ends only."""
    precision: Annotated[Literal["float32", "tf32", "bf16"] | None, optional("{float32,tf32,bf16}", "the preset's")] = (
        None
    )
    """Of matrix products, as --train.precision; large batches are fastest in bf16."""
    digits: str = "strokes"
    """mnist, strokes, or a folder with the four MNIST files."""
    json: Annotated[Flag, optional("")] = False
    """Print one JSON object and nothing else."""
    out: Annotated[str | None, optional("DIR", "runs/bench/PRESET")] = None
    """Folder for results."""

    def check(self) -> None:
        """Refuse, before jax is started, what cannot be measured."""
        super().check()
        if self.preset is not None and self.preset not in PRESETS:
            raise UsageError(f"unknown preset {self.preset!r}; {nearest(self.preset, PRESETS)}")
        for word in self.batch or ():
            if word != BEST and not (word.isdecimal() and int(word) > 0):
                raise UserError(f"--batch takes numbers of at least 1 and the word {BEST}, not {word!r}")

    def run(self) -> None:
        """Measure, print, save."""
        kind = choose_device(self.common)
        from sqair.training.files import write_json
        from sqair.training.runs import choose_folder

        name = self.preset or ("tiny" if kind == "cpu" else "sqair-mlp")
        out = Path(self.out) if self.out is not None else None
        folder = choose_folder(self.NAME, name, out, overwrite=self.common.overwrite)
        if kind == "cpu":
            self.common.say("on a CPU absolute times mean little; compare the numbers of one run with each other")
        numbers = {"preset": name} | self.measure(timed(PRESETS[name], self.digits, self.precision))
        print(json.dumps(numbers) if self.json else report(numbers), flush=True)
        write_json(folder / "bench.json", numbers)
        if not (self.json and self.common.quiet):
            finish(folder, aside=self.json)

    def measure(self, chosen: Preset) -> dict[str, Any]:
        """What was measured, where, and with what."""
        from sqair.evaluation.timing import FIRST_BATCH, FULL, QUICK, sizes, time_batches, time_growth
        from sqair.training.runs import describe_run

        effort, say, began = QUICK if self.quick else FULL, self.common.say, time.perf_counter()
        about = describe_run(chosen, command_line(sys.argv[1:]))
        words = self.batch or (("32",) if self.quick else ("32", "256", BEST))
        batches = [int(word) for word in words if word != BEST]
        with compiled_afresh():
            numbers = time_batches(chosen, batches, BEST in words, effort, say)
            growth = None
            if self.grow:
                growth = time_growth(chosen, min(batches, default=FIRST_BATCH), effort, say, ends_only=self.quick)
        return {
            **{name: about[name] for name in ("device", "jax", "python", "version", "commit", "command", "started")},
            **{"digits": chosen.data.digits, "precision": chosen.train.precision, **sizes(chosen)},
            **{"seed": chosen.train.seed, "quick": self.quick},
            **numbers,
            "growth": growth,
            "seconds": round(time.perf_counter() - began, 1),
        }


def timed(preset: Preset, digits: str, precision: str | None) -> Preset:
    """The preset with these digits, in its own precision or another."""
    train = replaced(preset.train, precision=precision)
    return dataclasses.replace(preset, data=dataclasses.replace(preset.data, digits=digits), train=train)


@contextlib.contextmanager
def compiled_afresh() -> Iterator[None]:
    """Without jax's cache of compiled programs, which would hide the time of compiling."""
    import jax

    before = jax.config.jax_enable_compilation_cache  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)


# --- as text

HEAD = ("batch", "may discover", "first call, s", "ms/step", "sequences/s", "peak MiB")


def report(numbers: dict[str, Any]) -> str:
    """The numbers for a person."""
    sizes = ", ".join(f"{name} = {numbers[name]}" for name in ("N", "T", "K") if numbers[name] is not None)
    lines = [
        f"{numbers['preset']} on {numbers['device']}: {sizes}, {numbers['precision']}, digits {numbers['digits']}",
        "",
    ]
    lines += columns([HEAD, *map(cells, numbers["rows"])])
    lines += ["", "may discover: the share of later frames at which new objects may be found"]
    lines += [f"out of memory at batch {batch}" for batch in numbers["out_of_memory"]]
    if numbers["best_batch"] is not None:
        lines.append(f"best batch: {numbers['best_batch']} ({numbers['best_because']})")
    for table in numbers["growth"] or []:
        ratios = ["-" if ratio is None else f"{ratio:.2f}" for ratio in table["ratio"]]
        values = [f"{table['knob']} = {value}" for value in table["values"]]
        fit = "" if table["exponent"] is None else f"; the time grows as {table['knob']}^{table['exponent']:.2f}"
        lines += ["", f"time relative to {table['knob']} = {table['default']}{fit}", *columns([values, ratios])]
    return "\n".join(lines)


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """One line of the table."""
    peak = "-" if row["peak_memory_mib"] is None else f"{row['peak_memory_mib']:.0f}"
    numbers = f"{row['first_call_s']:.1f}", f"{row['ms_per_step']:.2f}", f"{row['sequences_per_s']:.0f}"
    return str(row["batch"]), f"{1 - row['discovery_dropout']:.0%}", *numbers, peak


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with their cells below each other, to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]

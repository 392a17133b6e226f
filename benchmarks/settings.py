"""Settings side by side: each a member of one population, so that eight cost two or three times what one does.

    python -m benchmarks.settings --preset sqair-mlp --steps 11000 --digits DIR --record NAME \\
        --member '{"learning_rate": 6e-4}' --member '{"learning_rate": 6e-4, "seed": 1}' --member '{"clip_frame": 30}'

Each member is a JSON object of fields of TrainConfig that may differ between members (training/members.py); what it
leaves out is as the flags say, which are those of `sqair train`. The record has every member's curve on validation
digits and is written anew at each evaluation; a run that was stopped has its curves up to there.
"""

import argparse
import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.flags import add_record_flags
from benchmarks.learning import described
from benchmarks.record import circumstances, write_record
from sqair.commands.common import launch_whole_loops
from sqair.commands.train import Train
from sqair.config import Preset, UserError
from sqair.training import population
from sqair.training.loop import Progress, Stopped, train
from sqair.training.members import SWEPT, Member

SHOWN = ("bound", "log_likelihood", "kl", "objects", "discovered_later")
"""What is kept of a validation."""


def parse() -> tuple[argparse.Namespace, list[dict[str, Any]]]:
    """The arguments, and the settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--member", action="append", required=True, help="a JSON object; once for each member")
    parser.add_argument("--preset", default="sqair-mlp")
    parser.add_argument("--digits", help="mnist, strokes, or a folder with the four MNIST files")
    parser.add_argument("--out", type=Path, help="where the run is kept; a temporary folder by default")
    add_record_flags(parser)
    arguments, arguments.flags = parser.parse_known_args()
    settings = [json.loads(text) for text in arguments.member]
    for setting in settings:
        if unknown := set(setting) - set(SWEPT):
            parser.error(f"members cannot differ in {', '.join(sorted(unknown))}; only in {', '.join(SWEPT)}")
    return arguments, settings


def members(preset: Preset, settings: list[dict[str, Any]]) -> list[Member]:
    """One member for each setting."""
    alone = dataclasses.replace(preset.train, members=1)
    changed = (dataclasses.replace(alone, **setting) for setting in settings)
    return [Member(dataclasses.replace(preset, train=train_config)) for train_config in changed]


def main() -> None:
    """Train all settings, print and record."""
    launch_whole_loops()
    arguments, settings = parse()
    words = [arguments.preset, *arguments.flags, *(["--digits", arguments.digits] if arguments.digits else [])]
    chosen = Train.parse(words).resolved()
    chosen = dataclasses.replace(chosen, train=dataclasses.replace(chosen.train, members=len(settings)))
    population.new_members = lambda preset: members(preset, settings)  # instead of the product of a sweep
    arguments.seeds = sorted({setting.get("seed", chosen.train.seed) for setting in settings})
    about, rows = circumstances(), [{"setting": setting, "curve": []} for setting in settings]

    def note(progress: Progress) -> None:
        for line in progress.lines:
            seen = {"step": line["step"], "seconds": round(line["seconds"], 1), "alarm": line["alarm"]}
            seen |= {name: round(line[f"validation_{name}"], 4) for name in SHOWN}
            rows[line.get("member", 0)]["curve"].append(seen)
            print(json.dumps({"member": line.get("member", 0)} | seen), flush=True)
        if progress.lines and arguments.record:
            results = {"kind": "settings"} | about_run(chosen, arguments) | {"rows": rows}
            write_record(arguments.record, results, arguments.folder, about)

    with tempfile.TemporaryDirectory() as folder:
        try:
            train(chosen, arguments.out or Path(folder) / "run", quiet=True, callbacks=[note])
        except (Stopped, UserError) as error:
            print(error)


def about_run(chosen: Preset, arguments: argparse.Namespace) -> dict[str, Any]:
    """What the record says about all settings."""
    blank = argparse.Namespace(minutes=None, sequences=None, particles=None, every=None, full=None)
    facts = described(chosen, argparse.Namespace(**vars(blank) | vars(arguments)))
    return {name: facts[name] for name in ("preset", "flags", "seeds", "setting")}


if __name__ == "__main__":
    main()

"""The sections of docs/results.md, each made from records; what has none is called not yet measured."""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.learning import MOST_REDISCOVERIES, middle
from benchmarks.population import has_reached
from sqair.config import PRESETS
from sqair.evaluation.ablations import ABLATIONS, COLUMNS, spread

MISSING = "not yet measured"
BEFORE = [
    ("SQAIR-pytorch, the only public port", 32, 595, 54, None),
    ("SQAIR-pytorch", 256, 552, 463, None),
    ("the probe's step in PyTorch, eager", 32, 486, 66, 1.3),
    ("the probe's step in PyTorch, CUDA graph", 32, 58, 552, 1.2),
    ("the probe's step in PyTorch, CUDA graph", 256, 84, 3036, None),
    ("the probe's step in PyTorch, compiled, CUDA graph", 32, 27.3, 1171, 120),
    ("the probe in JAX, 10 steps per call", 32, 25.4, 1260, 45),
    ("the probe in JAX, 1 step per call", 32, 30.4, 1051, 50),
    ("the probe in JAX", 256, 59, 4324, 53),
    ("the probe in JAX, recomputing activations", 1024, 99, 10348, 60),
]
"""Program, batch, ms per step, sequences/s, first call in seconds."""
SPEED = """\
One train step with N slots, T frames and K particles. *May discover* is the share of later frames at which new objects
may be found: 10% in our recipe, 100% when every frame may. The first call compiles. Peak memory is given where no
earlier row of the same process had needed as much."""
PROBE = """\
For comparison, what a probe measured before this project, on one H200 on 2026-11-15, with T = 10, K = 5, N = 3 (the
probe's own program is a simplified model). These are not records of ours."""
GROWTH = """\
How the time of a step grows with slots (N), frames (T) and particles (K), each alone, by ratios within one run. The
exponent is that of the power law that fits best."""
LEARNING = f"""\
Minutes until counting is .9 and .98 with at most {MOST_REDISCOVERIES:g} rediscoveries per frame, each seed trained
alone, on held-out training digits. The clock includes opening the data and compiling, and stands while the model is
looked at. Every seed that was begun is here; one that never got there counts as never in the median."""
SEEDS = f"""\
Seeds trained side by side as one population, none left out, each evaluated on test sequences at its best validation
bound. The goal: counting .98 with at most {MOST_REDISCOVERIES:g} rediscoveries per frame."""
ABLATED = """\
One thing left out or done in another way (`sqair ablate NAME`), all seeds trained side by side on a fixed budget and
none left out: the median and, in brackets, the worst, on held-out training digits. Of an ablation that was run twice
the newer counts; every seed's numbers are in the records."""
PEDESTRIANS = """\
`sqair-pedestrians` (App. E) on PETS09-S2L1: trained on sequences of 64x64 windows of frames 1-500, each model tested at
its best validation bound on those of frames 501-795. Counting is right in a frame when as many slots are present as
people have the centre of their box in the window. The paper's .5712 is of another clip, DukeMTMC, and of 3,150 training
sequences."""
Record = dict[str, Any]


def read_records(folder: Path) -> list[Record]:
    """All records, oldest first, each with its file's name as `file`."""
    records = [json.loads(path.read_text()) | {"file": path.name} for path in folder.glob("*.json")]
    return sorted(records, key=lambda record: (record["date"], record.get("time", ""), record["file"]))


def of_kind(records: Iterable[Record], kind: str) -> list[Record]:
    """The records whose results say that they are of this kind."""
    return [record for record in records if record["results"].get("kind") == kind]


# --- text


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(shown, line))} |\n" for line in lines)


def shown(value: Any) -> str:
    """A cell; numbers with as many digits as one reads."""
    if value is None:
        return "-"
    if value == math.inf:
        return "never"
    if not isinstance(value, float):
        return str(value).replace("|", "\\|").replace("\n", " ")
    return f"{value:.4f}" if abs(value) < 1 else f"{value:.2f}" if abs(value) < 100 else f"{value:,.1f}"


def link(record: Record) -> str:
    """A link from the page to a record."""
    return f"[{record['date']}](../benchmarks/records/{record['file']})"


def section(title: str, text: str, *tables: str) -> str:
    """A heading, what is to be said, and tables."""
    return "\n\n".join([f"## {title}", text, *(part.rstrip("\n") for part in tables)]) + "\n"


# --- speed and growth


def speed_rows(records: Iterable[Record]) -> list[list[Any]]:
    """One row for each timing of the records of speed, and of the older ones that say how slots were run."""
    rows = []
    for record in records:
        results = record["results"]
        for row in results.get("rows", []):
            if results.get("kind") == "speed":
                share = f"{1 - row['discovery_dropout']:.0%}"
                sizes = "/".join(shown(results[name]) for name in ("N", "T", "K"))
                kind = results.get("precision", "tf32")
                name = results["preset"] if kind == "tf32" else f"{results['preset']}, {kind}"
                first, peak = row["first_call_s"], row["peak_memory_mib"]
            elif "slots" in row:
                share, sizes, peak = None, "3/10/5", round(1024 * row["peak_gib"])  # sizes: its command says so
                name, first = f"{results['preset']}, slots: {row['slots']}", row["lower_s"] + row["compile_s"]
            else:
                continue
            ms = row["ms_per_step"]
            rate = round(1000 * row["batch"] / ms)
            rows.append([name, record["device"], sizes, row["batch"], share, ms, rate, first, peak, link(record)])
    return rows


def speed(records: Sequence[Record]) -> str:
    """The section about speed."""
    head = ["program", "batch", "ms/step", "sequences/s", "first call, s"]
    ours = ["preset", "device", "N/T/K", "batch", "may discover", *head[2:], "peak MiB", "record"]
    rows = speed_rows(records)
    return section(
        "Speed",
        SPEED,
        table(ours, rows) if rows else f"{MISSING}: `python -m benchmarks.step_time --grow --record NAME`",
        PROBE,
        table(head, BEFORE),
    )


def growth(records: Sequence[Record]) -> str:
    """The section about growth with N, T and K."""
    rows, notes = [], []
    for record in of_kind(records, "speed"):
        results = record["results"]
        tables = results.get("growth") or []
        notes += [results["note"]] if tables and results.get("note") else []
        for found in tables:
            pairs = zip(found["values"], found["ratio"], strict=True)
            ratios = ", ".join(f"{value}: {'-' if ratio is None else f'{ratio:.2f}'}" for value, ratio in pairs)
            name = f"{found['knob']} (usually {found['default']})"
            rows.append([results["preset"], found["batch"], name, ratios, found["exponent"], link(record)])
    head = ["preset", "batch", "what grows", "time relative to the usual", "exponent", "record"]
    return section("Growth", GROWTH, table(head, rows) if rows else MISSING, *notes)


# --- learning


def learning_groups(records: Iterable[Record]) -> list[list[tuple[Record, dict[str, Any]]]]:
    """Seeds that were trained alike by the same code on the same kind of device: lists of (record, row)."""
    groups: dict[str, list[tuple[Record, dict[str, Any]]]] = {}
    for record in of_kind(records, "learning"):
        results = record["results"]
        data = results["setting"]["data"]
        key = json.dumps([record["code"], record["device"], data, *map(results.get, ("preset", "flags", "minutes"))])
        groups.setdefault(key, []).extend((record, row) for row in results["rows"])
    return list(groups.values())


def learning(records: Sequence[Record]) -> str:
    """The section about minutes to counting."""
    head = ["seed", ".9 after, min", ".98 after, min", "counting", "rediscoveries", "steps", "minutes"]
    head += ["first step after, s", "outcome", "record"]
    parts = []
    for group in learning_groups(records):
        record, rows = group[0][0], [row for _, row in group]
        results, data = record["results"], record["results"]["setting"]["data"]
        medians = [middle([row[name] for row in rows]) for name in ("minutes_to_90", "minutes_to_98")]
        times = " and ".join("never" if value is None else f"{value:.2f} minutes" for value in medians)
        what = f"{results['preset']} {results['flags']}".strip()
        parts.append(
            f"**{what}**, {data['name']} of {data['digits']}, on {record['device']}, code {record['code']}: "
            f"median of {len(rows)} seeds to .9 and .98: {times}."
        )
        parts.append(table(head, [learning_row(*pair) for pair in group]))
    return section("Learning", LEARNING, *(parts or [MISSING]))


def learning_row(record: Record, row: dict[str, Any]) -> list[Any]:
    """One seed."""
    last = row["curve"][-1] if row["curve"] else {}
    goals = [shown(row[name]) if row[name] is not None else "not" for name in ("minutes_to_90", "minutes_to_98")]
    end = [last.get("counting"), last.get("rediscoveries_per_frame")]
    return [row["seed"], *goals, *end, row["steps"], row["minutes"], row["first_step_s"], row["outcome"], link(record)]


# --- populations

BIASES = ("discovery_bias", "propagation_bias", "survival_bias", "nothing_new_bias")
PRICES = ("discovery_dropout", "rediscovery_cost", "presence_delay", "presence_cost")
"""Settings of the model and of its training that decide how readily slots are used."""


def departures(setting: dict[str, Any]) -> list[str]:
    """What a population was given that `sqair-mlp` does not have by itself, as far as it decides who is there."""
    usual, found = PRESETS["sqair-mlp"], []
    for part, names in (("model", BIASES), ("train", PRICES)):
        for name in names:
            value = getattr(getattr(usual, part), name)
            if (own := setting[part].get(name, value)) != value:
                found.append(f"{name}={own:g}")
    return found


def seeds(records: Sequence[Record]) -> str:
    """The section about populations: every member's numbers."""
    head = ["seed", "steps", "counting", "counting, weighted", "rediscoveries", "log p", "record"]
    names = ("seed", "step", "counting", "counting_weighted", "rediscoveries_per_frame", "log_p")
    parts = []
    for record in of_kind(records, "population"):
        results = record["results"]
        rows, train, data = results["rows"], results["setting"]["train"], results["setting"]["data"]
        swept = f" of {' '.join(train['sweep'])}, in this order" if train["sweep"] else ""
        other = "".join(f", {word}" for word in departures(results["setting"]))
        parts.append(
            f"**{len(rows)} {'members' if swept else 'seeds'}**{swept}, digits of {data['digit_scale']:g}{other}, "
            f"batch {train['batch']}, learning rate {train['learning_rate']:g}, on {record['device']}: "
            f"{sum(map(has_reached, rows))} reached the goal. {results['sequences']:,} sequences, "
            f"K = {results['particles']}."
        )
        parts.append(table(head, [[*map(row.get, names), link(record)] for row in rows]))
    return section("Seeds", SEEDS, *(parts or [MISSING]))


# --- ablations


def ablations(records: Sequence[Record]) -> str:
    """The section about what each part is good for."""
    newest = {
        each["name"]: (each, record)
        for record in of_kind(records, "ablations")
        for each in record["results"]["ablations"]
        if each["name"] in ABLATIONS
    }
    rows = []
    for name, (each, record) in sorted(newest.items(), key=lambda pair: list(ABLATIONS).index(pair[0])):
        cells = [spread([row[column] for row in each["rows"]], column) for column in COLUMNS]
        budget = f"{len(each['rows'])} x {each['steps']:,}"
        rows.append([name, ABLATIONS[name].why, budget, *cells, each["minutes"], each["device"], link(record)])
    head = ["ablation", "what it is", "seeds x steps", "counting", "counting, weighted", "rediscoveries"]
    head += ["identity switches", "log p", "minutes", "device", "record"]
    left = [name for name in ABLATIONS if name not in newest]
    open_ones = f"Open, each to be run by its name: {', '.join(left)}." if left else "None is open."
    return section("Ablations", ABLATED, *([table(head, rows)] if rows else []), open_ones)


# --- pedestrians


def pedestrians(records: Sequence[Record]) -> str:
    """The section about counting people against the number of training sequences."""
    head = ["training sequences", "seed", "best at step", "of", "counting", "counting, weighted", "mode", "log p"]
    head += ["KL", "KL, weighted", "outcome", "record"]
    names = ("sequences", "seed", "step", "steps", "counting", "counting_weighted", "counting_mode", "log_p")
    names += ("kl", "kl_weighted", "outcome")
    parts = []
    for record in of_kind(records, "pedestrians"):
        results = record["results"]
        train, flags = results["setting"]["train"], " ".join(results["flags"])
        parts.append(
            f"**At most {results['steps']:,} steps**, batch {train['batch']}{f', {flags}' if flags else ''}, on "
            f"{record['device']}: {results['files']['test']:,} test sequences, K = {results['particles']}. Always the "
            f"commonest number would be right in {results['commonest']:.4f} of their frames."
        )
        parts.append(table(head, [[*map(row.get, names), link(record)] for row in results["rows"]]))
    return section("Pedestrians", PEDESTRIANS, *(parts or [f"{MISSING}: `python -m benchmarks.pedestrians`"]))


# --- shipped models


def evaluation_of(name: str, card: Record, records: Iterable[Record]) -> tuple[dict[str, Any], str]:
    """The numbers of a shipped model and where they stand: in its card, or in the newest record named after it."""
    for place in (card, card.get("training") or {}):
        if isinstance(place.get("evaluation"), dict):
            return place["evaluation"], f"[card](../src/sqair/weights/{name}/config.json)"
    ending = f"_{name.replace('-', '_')}.json"
    found = [record for record in records if record["file"].endswith(ending) and "evaluation" in record["results"]]
    return (found[-1]["results"]["evaluation"], link(found[-1])) if found else ({}, MISSING)


def shipped(records: Sequence[Record], weights: Path) -> str:
    """The section about the models in the package."""
    names = ("log_p", "log_p_se", "kl_weighted", "counting", "counting_weighted", "rediscoveries_per_frame")
    rows = []
    for path in sorted(weights.glob("*/config.json")):
        card, name = json.loads(path.read_text()), path.parent.name
        numbers, where = evaluation_of(name, card, records)
        data = card["training"]["data"]
        size = sum(file.stat().st_size for file in path.parent.glob("*.safetensors")) / 1e6
        how = [f"{data['name']} of {Path(data['digits']).name}", card["training"].get("step"), f"{size:.1f}"]
        rows.append([name, *how, numbers.get("sequences"), numbers.get("particles"), *map(numbers.get, names), where])
    head = ["model", "trained on", "steps", "MB", "sequences", "K", "log p", "± se", "KL, weighted", "counting"]
    head += ["counting, weighted", "rediscoveries", "source"]
    text = "Test sequences of the data each was trained on, as `sqair evaluate` measures them."
    return section("Shipped models", text, table(head, rows) if rows else MISSING)

"""Makes docs/results.md from benchmarks/records/ and the cards of the shipped models: `python -m benchmarks.results`.

Every number on the page comes from one of those files, but for the table of what was measured before this project.
"""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.learning import middle
from benchmarks.population import has_reached
from benchmarks.record import RECORDS
from benchmarks.sections import (
    MISSING,
    Record,
    ablations,
    departures,
    evaluation_of,
    growth,
    learning,
    learning_groups,
    link,
    of_kind,
    pedestrians,
    read_records,
    section,
    seeds,
    shipped,
    shown,
    speed,
    table,
)

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results.md"
WEIGHTS = ROOT / "src" / "sqair" / "weights"
INTRO = """\
# Results

Made by `python -m benchmarks.results` from the [records](../benchmarks/records) and the cards of the shipped models;
change those, not this page.
"""
SHIPPED = {"sqair-mlp": (6617.6, 164.5, 0.9986), "sqair-conv": (6784.8, 134.6, 0.9974)}
"""The paper's log p, KL and counting of the models that are to be shipped."""
STEP_AIM = """\
In the default recipe 10% of later frames may discover, and a frame that may not costs less; so the step is held against
its aim with every frame allowed to discover, too. The probe's step (below) discovered in every frame. Sequences/s are
those of the default recipe."""
PREDICTION = """\
Of moving digits three frames are observed and ten predicted, in 20 futures each; of a model that was measured twice the
newer numbers. ± is the standard error of the mean over objects or sequences. *Perfect* is a model that knows the
digits, the rules and the observed places, and draws from what they leave open (`benchmarks/oracle.py`). Below it what
draws one thing in all futures: their mean, a blur; the one future that is nearest to that; black frames."""
ERRORS = {
    "position": "pixels between a digit and where it is predicted, the median over futures; constant velocity is that "
    "of the last two positions that the model above found, reflected as digits are.",
    "pixel": "squared error of a pixel, the median over futures.",
    "pixel_mean": "squared error of a pixel of the mean over futures.",
}
"""What is said of each error."""
SHOWN_HORIZONS = (1, 3, 5, 10)
RIVAL = "constant_velocity"


# --- aims


def aims(records: Sequence[Record], weights: Path) -> str:
    """The section that holds what was aimed at against what was measured last."""
    rows = [*speed_aims(records), *learning_aims(records)]
    for name, (log_p, kl, counting) in SHIPPED.items():
        card = weights / name / "config.json"
        found = evaluation_of(name, json.loads(card.read_text()), records)[0] if card.exists() else {}
        note = f" ({found.get('sequences')} sequences, K = {found.get('particles')})"
        for key, goal, up in (
            ("log_p", log_p, True),
            ("kl_weighted", kl, False),
            ("counting_weighted", counting, True),
            ("counting", 0.99, True),
        ):
            rows.append(aim(f"shipped {name}: {key}", goal, found.get(key), up, note))
    head = ["what", "aim", "measured", "reached"]
    text = (
        "On one H200, `sqair-mlp` on moving MNIST unless another model is named; the newest record of each counts, of "
        "populations the newest whose slots have the usual biases and prices."
    )
    return section("Aims", text, table(head, rows), STEP_AIM)


def aim(what: str, goal: float, value: float | None, up: bool, note: str = "") -> list[Any]:
    """A row: the goal, the value, and whether it is at least (or at most) the goal."""
    reached = "" if value is None else "yes" if (value >= goal if up else value <= goal) else "no"
    return [what, f"{'>=' if up else '<='} {goal:,g}", MISSING if value is None else shown(value) + note, reached]


def speed_aims(records: Iterable[Record]) -> list[list[Any]]:
    """Time at batch 32, as the recipe trains and with discovery at every frame; best throughput of any precision."""
    found = [r for r in of_kind(records, "speed") if r["results"]["preset"] == "sqair-mlp" and "H200" in r["device"]]
    newest = {}
    for results in (record["results"] for record in found):
        for row in results["rows"]:
            newest[results.get("precision", "tf32"), row["discovery_dropout"] > 0, row["batch"]] = row
    ms = [newest.get(("tf32", dropped, 32), {}).get("ms_per_step") for dropped in (True, False)]
    best = max((row["sequences_per_s"] for (_, dropped, _), row in newest.items() if dropped), default=None)
    return [
        aim("ms per train step, batch 32, default recipe", 12, ms[0], False),
        aim("ms per train step, batch 32, every frame may discover", 12, ms[1], False),
        aim("sequences/s at the best batch", 25_000, best, True),
    ]


def learning_aims(records: Iterable[Record]) -> list[list[Any]]:
    """Median minutes of the newest seeds trained alone, the share of the newest population, small digits in either."""
    usual = newest_seeds(records, digit_scale=1.0)
    median = None if not usual else middle([row["minutes_to_98"] for row in usual]) or math.inf
    members = newest_members(records, digit_scale=1.0)
    share = sum(map(has_reached, members)) / len(members) if members else None
    curves = [row["curve"] for row in newest_seeds(records, digit_scale=0.7)]
    ends = [curve[-1] for curve in curves] if all(curves) else []
    smaller = newest_members(records, digit_scale=0.7)
    small = [row["counting"] for row in smaller or ends]
    return [
        aim("minutes to counting .98, median of seeds", 10, median, False, f" ({len(usual)} seeds)"),
        aim("share of seeds that reach .98", 0.9, share, True, f" ({len(members)} seeds)"),
        aim(
            "counting with digits 30% smaller, the seed with the best validation bound",
            0.97,
            chosen(smaller),
            True,
            f" (of {len(smaller)})",
        ),
        aim(
            "counting with digits 30% smaller, lowest of seeds",
            0.97,
            min(small, default=None),
            True,
            f" ({len(small)} seeds, highest {max(small, default=0):.4f})",
        ),
    ]


def chosen(members: Sequence[dict[str, Any]]) -> float | None:
    """Counting of the member that `sqair train` takes: that with the best validation bound."""
    known = [row for row in members if row.get("validation_bound") is not None]
    return max(known, key=lambda row: row["validation_bound"])["counting"] if known else None


def newest_members(records: Iterable[Record], digit_scale: float) -> list[dict[str, Any]]:
    """The newest population of `sqair-mlp`, as it is, on an H200 with digits of this size."""
    found: list[dict[str, Any]] = []
    for record in of_kind(records, "population"):
        setting = record["results"]["setting"]
        model, data, train = (setting[part] for part in ("model", "data", "train"))
        is_mlp = (model["kind"], model["networks"]) == ("sqair", "mlp")
        is_usual = not train["sweep"] and not departures(setting)
        if is_mlp and is_usual and data["digit_scale"] == digit_scale and "H200" in record["device"]:
            found = record["results"]["rows"]
    return found


def newest_seeds(records: Iterable[Record], digit_scale: float) -> list[dict[str, Any]]:
    """The newest group of seeds of `sqair-mlp` on an H200 with digits of this size."""
    found: list[dict[str, Any]] = []
    for group in learning_groups(records):
        record, results = group[0][0], group[0][0]["results"]
        scale = results["setting"]["data"]["digit_scale"]
        if results["preset"] == "sqair-mlp" and "H200" in record["device"] and scale == digit_scale:
            found = [row for _, row in group]
    return found


# --- prediction


def prediction(records: Iterable[Record]) -> str:
    """The section about predicted frames: a table for each error, with what a perfect model could reach."""
    newest: dict[str, tuple[Record, dict[str, Any]]] = {}
    for kind in ("prediction", "oracle"):
        for record in of_kind(records, kind):
            for row in record["results"]["rows"]:
                newest[row["model"]] = record, row
    head, parts = ["horizon", *map(str, SHOWN_HORIZONS), "sequences", "record"], []
    for name, text in ERRORS.items():
        rows = [line for record, row in newest.values() for line in prediction_rows(record, row, name)]
        parts += [f"**{name}**: {text}", table(head, rows)] if rows else []
    return section("Prediction", PREDICTION, *(parts or [f"{MISSING}: `python -m benchmarks.prediction MODEL`"]))


def prediction_rows(record: Record, row: dict[str, Any], name: str) -> list[list[Any]]:
    """An error of a model at the shown horizons, and that of its rival; none where the model has no such thing."""
    lines = {row["model"]: name} | ({f"{row['model']}: constant velocity": RIVAL} if name == "position" else {})
    places = [row["horizons"].index(horizon) for horizon in SHOWN_HORIZONS]
    end = [row.get("sequences", record["results"].get("sequences")), link(record)]
    return [
        [label, *(f"{shown(row[key][at])} ± {shown(row[f'{key}_se'][at])}" for at in places), *end]
        for label, key in lines.items()
        if row.get(key) is not None
    ]


# --- the page


def page(records_folder: Path = RECORDS, weights: Path = WEIGHTS) -> str:
    """The whole page."""
    records = read_records(records_folder)
    head = ["record", "file", "device", "code", "command"]
    rows = [[link(r), r["file"], r["device"], r["code"], r["command"]] for r in records]
    every = section("Records", "All of them, oldest first.", table(head, rows) if rows else "none")
    parts = [INTRO, aims(records, weights), speed(records), growth(records), learning(records), seeds(records)]
    parts += [ablations(records), prediction(records), pedestrians(records), shipped(records, weights)]
    return "\n".join([*parts, every])


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())
    print("Results saved to", PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()

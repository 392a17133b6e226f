"""The page of a training: learning curves, alarms, what the model made of held-out sequences, settings."""

import base64
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import sqair
from sqair.config import UserError
from sqair.figures import COLOURS
from sqair.report.document import PAGE, write_page
from sqair.training.runs import METRICS, PICTURES, PRESET, read_metrics, read_run

PANELS = {
    "bound, nats per frame": {"validation_bound": "validation", "train_bound": "training"},
    "objects per frame": {"validation_objects": "present", "validation_propagated": "kept"},
    "discoveries": {
        "validation_discovered_first": "in the first frame",
        "validation_discovered_later": "per later frame",
    },
}
"""What is plotted: titles, then fields of metrics.jsonl and their names; the first is solid, the second dashed."""
FAILURES = "failures"
"""A folder of the run whose pictures are shown as failures, if it is there."""
MOST_BYTES = 20_000_000
"""Of pictures in a page; the newest are kept."""
ON_WHITE = [colour for colour in COLOURS if colour != "#F0E442"]
"""Colours of members: yellow is left out, since on white it is hardly seen."""
Line = dict[str, Any]


def train_page(run_folder: str | Path) -> Path:
    """Write index.html into the folder of a training, from the files there; returns its path.

    It shows what there is so far, so it can be written while the training goes on.
    """
    folder = Path(run_folder)
    lines = read_metrics(folder)
    if not lines:
        raise UserError(f"{folder / METRICS} holds no evaluation yet; train for longer")
    run, name = read_run(folder), folder.resolve().name
    members = by_member(lines)
    head = {
        "title": name,
        "facts": facts(run, members),
        "charts": [chart(title, fields, members) for title, fields in PANELS.items()],
        "alarms": [alarm(event, len(members)) for event in run.get("alarms") or [] if isinstance(event, dict)],
        "results": results(members[best_member(members)]),
        "settings": settings(folder / PRESET),
        "command": run.get("command") or "",
        "pictures": pictures(by_name((folder / PICTURES).glob("step-*.png"))),
        "failures": pictures(by_name((folder / FAILURES).glob("*.png"))),
        "version": sqair.__version__,
    }
    write_page(
        folder / PAGE, "train.html", ("common.js", "charts.js", "train.js"), title=f"{name} · sqair train", head=head
    )
    return folder / PAGE


def by_member(lines: Iterable[Line]) -> dict[int, list[Line]]:
    """Lines of metrics.jsonl for each member; a model trained alone is member 0."""
    members: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        members[line.get("member", 0)].append(line)
    return dict(sorted(members.items()))


def best_member(members: dict[int, list[Line]]) -> int:
    """The member with the highest validation bound."""
    bounds = {i: [line.get("validation_bound") for line in lines] for i, lines in members.items()}
    known = {i: max((bound for bound in found if bound is not None), default=-np.inf) for i, found in bounds.items()}
    return max(known, key=lambda i: known[i])


def member_colour(member: int) -> str:
    """The colour of a member; they repeat after the last."""
    return ON_WHITE[member % len(ON_WHITE)]


def limits(values: Sequence[float]) -> tuple[float, float] | None:
    """Where most of the values lie: the first ones of a run can be so low that nothing else would be seen."""
    if len(values) < 2:
        return None
    low, top = float(np.quantile(values, 0.05)), max(values)
    bottom = max(min(low, top - (top - float(np.median(values))) * 3), min(values))
    margin = 0.05 * (top - bottom) or 0.5
    return bottom - margin, top + margin


def chart(title: str, fields: dict[str, str], members: dict[int, list[Line]]) -> dict[str, Any]:
    """A panel of curves for the page: one curve for each field and member."""
    best = best_member(members)
    series = [
        {
            "field": name,
            "member": member,
            "colour": member_colour(member),
            "dashed": i > 0,
            "bold": member == best,
            "points": [[line["step"], line[field]] for line in lines if line.get(field) is not None],
        }
        for member, lines in members.items()
        for i, (field, name) in enumerate(fields.items())
    ]
    values = [value for each in series for _, value in each["points"]]
    ends = limits(values) or ((values[0] - 0.5, values[0] + 0.5) if values else (0.0, 1.0))
    named = [{"name": f"member {i}", "colour": member_colour(i)} for i in members] if len(members) > 1 else []
    return {"title": title, "fields": list(fields.values()), "members": named, "series": series, "limits": list(ends)}


def facts(run: dict[str, Any], members: dict[int, list[Line]]) -> list[list[str]]:
    """What stands on top of the page."""
    best = best_member(members)
    last = members[best][-1]
    found = {"steps": f"{last['step']:,}", "minutes": f"{last['seconds'] / 60:.1f}" if last.get("seconds") else None}
    found |= {"members": str(len(members)) if len(members) > 1 else None, "device": run.get("device")}
    found |= {"best": f"member {best}" if len(members) > 1 else None, "outcome": run.get("outcome") or "going on"}
    found |= {"started": str(run["started"])[:16].replace("T", " ") + " UTC" if run.get("started") else None}
    return [[name, str(value)] for name, value in found.items() if value is not None]


def alarm(event: dict[str, Any], members: int) -> dict[str, Any]:
    """A collapse in words, and when."""
    who = f"member {event.get('member')}" if members > 1 else "this run"
    words = {"warned": "warned", "afresh": "begun afresh", "copied": f"replaced by member {event.get('donor')}"}
    action = words.get(str(event.get("action")), str(event.get("action")))
    text = f"step {event.get('step')}: {who} collapsed ({event.get('failure')}); {action}"
    return {"step": event.get("step"), "text": text}


def results(lines: list[Line]) -> list[list[Any]]:
    """The last numbers of the best member."""
    return [[name.replace("_", " "), value] for name, value in lines[-1].items() if isinstance(value, int | float)]


def settings(path: Path) -> list[list[str]]:
    """All settings of a run, with dots; none if the file is missing or damaged."""
    try:
        table = json.loads(path.read_text())
    except (OSError, ValueError):
        return []
    return [[name, json.dumps(value)] for name, value in flat(table)] if isinstance(table, dict) else []


def flat(table: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Nested tables as pairs."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def by_name(paths: Iterable[Path]) -> list[Path]:
    """In their order; by length first: from a million steps on names are longer."""
    return sorted(paths, key=lambda path: (len(path.name), path.name))


def pictures(paths: Sequence[Path]) -> list[dict[str, str]]:
    """PNG files inside the page, the newest that fit."""
    kept: list[dict[str, str]] = []
    room = MOST_BYTES
    for path in reversed(paths):
        room -= path.stat().st_size
        if room < 0:
            break
        content = base64.b64encode(path.read_bytes()).decode()
        kept.append({"name": path.stem, "address": f"data:image/png;base64,{content}"})
    return kept[::-1]

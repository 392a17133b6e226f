"""Table 1 of the paper (sec. 4.1): its five rows, ours beside the paper's.

Bounds are in nats per sequence. The pair log p(x given z) and KL is the importance-weighted one, as in the authors'
program; single-sample numbers are in the JSON. Counting is weighted, addition given for digits that its classifier
knows and for those of the test set.
"""

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqair.config import DataConfig, ModelConfig
from sqair.data import open_data
from sqair.evaluation.addition import addition
from sqair.evaluation.evaluate import evaluate
from sqair.evaluation.fivo import fivo
from sqair.evaluation.returns import returns
from sqair.model import SequenceModel

IN_OUT = "moving-mnist-in-out"
FEW = 5
"""The most particles that returns are measured with: they ask where objects are, not how likely frames are."""


class PaperRow(NamedTuple):
    """A row of the paper's Table 1; None where it says n/a."""

    log_p: float
    reconstruction: float
    kl: float
    counting: float | None
    addition: float


PAPER = {
    "sqair-conv": PaperRow(6784.8, 6923.8, 134.6, 0.9974, 0.9990),
    "sqair-mlp": PaperRow(6617.6, 6786.5, 164.5, 0.9986, 0.9998),
    "air-mlp": PaperRow(6443.6, 6830.6, 352.6, 0.9058, 0.8644),
    "vrnn-conv": PaperRow(6561.9, 6737.8, 270.2, None, 0.8536),
    "vrnn-mlp": PaperRow(5959.3, 6108.7, 218.3, None, 0.8059),
}
"""In the paper's order, by the preset that each row belongs to."""

COLUMNS = {
    "log p": ("log_p", "log_p"),
    "FIVO": ("fivo", None),
    "log p(x given z)": ("reconstruction_weighted", "reconstruction"),
    "KL": ("kl_weighted", "kl"),
    "counting": ("counting_weighted", "counting"),
    "addition": ("addition_same", "addition"),
    "unseen": ("addition_unseen", None),
}
"""Headings, our keys and the paper's."""


def row_of(config: ModelConfig) -> str:
    """The row of the paper that a model belongs to."""
    return f"{config.kind}-{config.networks}"


def measure(
    model: SequenceModel, data: DataConfig, *, sequences: int, particles: int, seed: int, addition_sequences: int
) -> dict[str, Any]:
    """All numbers of a row; of addition None without `addition_sequences`, and for digits that come and go."""
    source = open_data(data, "test")
    asked: dict[str, Any] = {"sequences": sequences, "particles": particles, "seed": seed}
    numbers = evaluate(model, source, **asked) | fivo(model, source, **asked)
    numbers |= dict.fromkeys(("addition_same", "addition_same_se", "addition_unseen", "addition_unseen_se"))
    if addition_sequences and data.name != IN_OUT:
        numbers |= addition(model, data, sequences=addition_sequences, seed=seed)
    if data.name == IN_OUT and model.has_objects:
        few = min(particles, FEW)
        numbers |= returns(model, source, **asked | {"particles": few}) | {"returned_particles": few}
    return numbers | {"digits": data.digits}


def seeds(card: dict[str, Any]) -> dict[str, Any] | None:
    """How many seeds were trained with a model, and the median and the worst of them; None if its card does not tell.

    The key `seeds` of a card's `training` lists the numbers of every seed that was started, as `evaluate` names them.
    """
    rows = (card.get("training") or {}).get("seeds") or []
    results: dict[str, Any] = {"number": len(rows)}
    for name, worst in (("log_p", min), ("kl_weighted", max), ("counting_weighted", min)):
        values = [row[name] for row in rows if row.get(name) is not None]
        if values:
            results[name] = {"median": statistics.median(values), "worst": worst(values)}
    return results if rows else None


# --- text


def text(rows: Sequence[dict[str, Any]]) -> str:
    """The table in Markdown: each row of ours, then the paper's; what else is to be said of a row follows below."""
    head = ["model", *COLUMNS]
    lines = [head, ["---", *["---:"] * len(COLUMNS)]]
    notes = []
    for row in rows:
        paper = PAPER.get(row["row"])
        lines.append([row["model"], *(cell(row, key) for key, _ in COLUMNS.values())])
        if paper is not None and row["data"] != IN_OUT:
            theirs = paper._asdict()
            lines.append([f"{row['row']}, paper", *(shown(theirs.get(key or "")) for _, key in COLUMNS.values())])
        notes += notes_of(row)
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    table = "".join("| " + " | ".join(pad(line, widths)) + " |\n" for line in lines)
    return table + "".join(f"\n{note}" for note in notes) + ("\n" if notes else "")


def notes_of(row: dict[str, Any]) -> list[str]:
    """Sentences about a row that its cells cannot tell."""
    notes = [
        f"{row['model']}: {row['sequences']} sequences of {row['data']} ({row['digits']}), K = {row['particles']}."
    ]
    if row["digits"] == "strokes":
        notes[0] += " The paper's numbers are of MNIST: not to be compared."
    if (spread := row.get("seeds")) is not None:
        parts = [
            f"{name} {shown(two['median'])} / {shown(two['worst'])}" for name, two in spread.items() if name != "number"
        ]
        notes.append(f"{row['model']}: median / worst of {spread['number']} seeds: {', '.join(parts)}.")
    if row.get("returned_found") is not None:
        share, cases = shown(row["returned_found"]), row["returned"]
        few = f" (K = {row['returned_particles']})" if row.get("returned_particles") else ""
        notes.append(f"{row['model']}: {share} of {cases} digits that returned were found within two frames{few}.")
    return notes


def cell(row: dict[str, Any], key: str) -> str:
    """A number with its standard error, where there is one."""
    value, error = row.get(key), row.get(f"{key}_se")
    return shown(value) + (f" ± {shown(error)}" if value is not None and error is not None else "")


def shown(value: float | None) -> str:
    """Shares with four digits, nats with one, nothing for what has no meaning."""
    if value is None:
        return ""
    return f"{value:.4f}".lstrip("0") if abs(value) < 1 else f"{value:.1f}" if abs(value) > 1 else "1.0000"


def pad(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Cells of equal width: names to the left, numbers to the right."""
    if line[0] == "---":
        return ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return [line[0].ljust(widths[0]), *(word.rjust(width) for word, width in zip(line[1:], widths[1:], strict=True))]

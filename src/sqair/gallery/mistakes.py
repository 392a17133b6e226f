"""A gallery of failures (App. G), found automatically among test sequences."""

from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from sqair.data import Sequences
from sqair.evaluation.failures import KINDS, Failure, failures
from sqair.figures import Row
from sqair.gallery.asked import Asked, Made
from sqair.gallery.drawing import FONT, blank, strips
from sqair.gallery.looks import Look, infer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCH = 50
"""Sequences that are looked at at once."""
EACH = 2
"""Sequences shown of each kind, the worst ones."""


class Case(NamedTuple):
    """A failure, and where it happened."""

    failure: Failure
    frames: np.ndarray
    look: Look


def gallery(asked: Asked) -> Made:
    """The worst swaps, re-detections and wrong digits, and how many sequences have one."""
    model, source = asked.load("model"), asked.source("model")
    cases: dict[str, list[Case]] = {kind: [] for kind in KINDS}
    for first in range(0, asked.sequences, BATCH):
        data = jax.tree.map(np.asarray, source.fixed(min(BATCH, asked.sequences - first), asked.seed, first))
        frames = np.asarray(data.frames)
        padded = frames[np.arange(min(BATCH, asked.sequences)) % len(frames)]  # the same shape every time
        looks = infer(model, padded, asked.seed + first)[: len(frames)]
        for kind, case in worst_of_each(data, looks):
            cases[kind].append(case)
    numbers = {kind: len(found) for kind, found in cases.items()}
    return Made(picture(asked.sequences, cases), {"sequences": asked.sequences, **numbers})


def worst_of_each(data: Sequences, looks: list[Look]) -> list[tuple[str, Case]]:
    """The worst failure of each kind in each sequence."""
    assert data.boxes is not None
    assert data.visible is not None
    found = []
    for frames, boxes, visible, look in zip(data.frames, data.boxes, data.visible, looks, strict=True):
        every = failures(np.asarray(frames), look.canvas, look.boxes, look.ids, np.asarray(boxes), np.asarray(visible))
        for kind in KINDS:
            of_kind = [each for each in every if each.kind == kind]
            if of_kind:
                worst = max(of_kind, key=lambda each: each.extent)
                found.append((kind, Case(worst, np.asarray(frames), look)))
    return found


def picture(sequences: int, cases: dict[str, list[Case]]) -> "Figure":
    """Inputs and reconstructions of the worst cases, each sequence once; the title counts those of every kind."""
    rows: list[Row] = []
    seen: list[int] = []
    for kind, found in cases.items():
        fresh = [case for case in found if id(case.look) not in seen]
        for case in sorted(fresh, key=lambda each: -each.failure.extent)[:EACH]:
            seen.append(id(case.look))
            rows += [Row(f"{kind}\nframe {case.failure.frame + 1}", case.frames), case.look.row("inferred")]
    told = ", ".join(f"{kind}: {len(found)}" for kind, found in cases.items())
    title = f"of {sequences} sequences, {told}"
    if not rows:
        figure = blank(4.0, 0.5)
        figure.text(0.5, 0.5, title, ha="center", va="center", fontsize=FONT)
        return figure
    return strips(rows, title=title, breaks=range(0, len(rows), 2))

"""AIR against SQAIR (fig. 7, App. H): hard frames with glimpses, counting over overlap and visibility, consistency."""

from typing import Any

import jax
import numpy as np
from numpy import ndarray

from sqair.data import Sequences
from sqair.evaluation.consistency import consistency
from sqair.evaluation.overlap import counting_curves, covered_share, least_visible
from sqair.figures import COLOURS, Row
from sqair.gallery.asked import Asked, Made
from sqair.gallery.drawing import FONT, GAP, blank, enlarged, plain_axes, strips
from sqair.gallery.looks import Look, infer

SEARCHED = 200
"""Sequences among which the hardest are looked for."""
ZOOM = 2
"""Frames are enlarged, so that the glimpses of all slots fit below them."""
PARTICLES = 20


def partial(asked: Asked) -> Made:
    """A sequence with partly visible digits and one with heavy overlap: inputs, both models, their glimpses."""
    data = jax.tree.map(np.asarray, asked.source("model").fixed(SEARCHED, asked.seed))
    frames, chosen = np.asarray(data.frames), hardest(data)
    rows: list[Row] = []
    looks = {role: infer(asked.load(role), frames[chosen], asked.seed) for role in ("air", "model")}
    for i, number in enumerate(chosen):
        rows.append(Row("input", enlarged(frames[number], zoomed(frames.shape[2:4]))))
        for role, name in (("air", "AIR"), ("model", "SQAIR")):
            rows += with_glimpses(looks[role][i], name)
    title = "partly visible digits (above) and overlapping ones (below)"
    return Made(strips(rows, title=title, breaks=(5,), zoom=ZOOM), {"sequences": chosen.tolist()})


def hardest(data: Sequences) -> ndarray:
    """The numbers of a sequence in which digits are partly visible for long, and of one with much overlap."""
    assert data.boxes is not None
    assert data.counts is not None
    two = np.asarray(data.counts).min(1) >= 2
    share = least_visible(data)
    partly = ((share > 0.1) & (share < 0.6)).sum(1) * two
    overlap = np.where(share > 0.8, covered_share(np.asarray(data.boxes)), 0.0).sum(1) * two
    return np.array([partly.argmax(), overlap.argmax()])


def zoomed(size: tuple[int, ...]) -> tuple[int, int]:
    """Height and width of an enlarged frame."""
    return ZOOM * size[0], ZOOM * size[1]


def with_glimpses(look: Look, name: str) -> list[Row]:
    """The reconstruction, enlarged, with boxes, and below it the glimpses in frames of the same colours."""
    big = Row(name, enlarged(look.canvas, zoomed(look.canvas.shape[1:3])), ZOOM * look.boxes, look.ids)
    length, slots = look.ids.shape
    side = (big.frames.shape[2] - GAP * (slots - 1)) // slots
    cells = np.ones((length, side, *big.frames.shape[2:]))
    boxes = np.full((length, slots, 4), np.nan)
    for t, n in np.argwhere(look.ids >= 0):
        left = n * (side + GAP)
        cells[t, :, left : left + side] = enlarged(look.glimpses[t, n][None], (side, side))[0]
        boxes[t, n] = (left, 0, side, side)
    return [big, Row("glimpses", cells, boxes, look.ids)]


def curves(asked: Asked) -> Made:
    """Counting accuracy in frames with two digits over their overlap, and over the least visible share."""
    numbers: dict[str, Any] = {}
    figure = blank(6.4, 2.6)
    left = plain_axes(figure, (1, 2, 1), "share of a digit's box that the other covers", "counting accuracy")
    right = plain_axes(figure, (1, 2, 2), "visible share of the less visible digit", "counting accuracy")
    for role, name, colour in (("air", "AIR", COLOURS[4]), ("model", "SQAIR", COLOURS[6])):
        source = asked.source("model")
        found = counting_curves(
            asked.load(role), source, sequences=asked.sequences, particles=PARTICLES, seed=asked.seed
        )
        numbers[name] = found
        for axes, key in ((left, "overlap"), (right, "visible")):
            shares, values, errors = ([row[part] for row in found[key]] for part in ("share", "accuracy", "se"))
            axes.errorbar(shares, values, errors, color=colour, marker="o", markersize=3, capsize=2, label=name)
    for axes in (left, right):
        axes.set_ylim(-0.03, 1.03)
    lines, names = left.get_legend_handles_labels()
    figure.tight_layout()
    figure.legend(lines, names, frameon=False, fontsize=FONT - 1, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
    return Made(figure, numbers)


def consistent(asked: Asked) -> Made:
    """How much what changes from frame to frame of the same digit, beside how much digits differ."""
    numbers = {}
    for role, name in (("model", "SQAIR"), ("air", "AIR"), ("vrnn", "VRNN")):
        numbers[name] = consistency(asked.load(role), asked.source("model"), sequences=asked.sequences, seed=asked.seed)
    figure = blank(3.2, 2.4)
    axes = plain_axes(figure, (1, 1, 1), "", "change of what per frame,\n1 as between two digits")
    values = [each["what_change"] or 0.0 for each in numbers.values()]
    bars = axes.bar(list(numbers), values, 0.6, color=(COLOURS[6], COLOURS[4], COLOURS[2]))
    found = [each["what_change"] for each in numbers.values()]
    axes.bar_label(bars, ["nothing found" if value is None else f"{value:.3f}" for value in found], fontsize=FONT)
    figure.tight_layout()
    return Made(figure, numbers)

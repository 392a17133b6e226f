"""Drawings of one time-step (fig. 1 to 3): how SQAIR generates a frame, and how it infers one.

Round boxes are variables, square ones are networks or operations; blue belongs to propagation, orange to discovery.
"""

from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from sqair.figures import INK
from sqair.gallery.asked import Asked, Made
from sqair.gallery.drawing import FONT, blank

OLD, NEW, PLAIN = "#D6EAF8", "#FDEBD0", "#F2F2F2"
"""Propagation, discovery, both."""


class Node(NamedTuple):
    """A labelled box with its centre and size in a grid's units."""

    text: str
    x: float
    y: float
    width: float = 2.2
    height: float = 0.8
    colour: str = PLAIN
    round: bool = False


GENERATION = {
    "before": Node("objects at $t-1$\n$\\mathbf{z}_{t-1}$", 1.2, 3.0, round=True),
    "survive": Node("propagate $p^P$\nsurvive? then move", 4.3, 4.2, 2.6, colour=OLD),
    "old": Node("propagated\n$\\mathbf{z}^{\\mathcal{P}_t}_t$", 7.6, 4.2, colour=OLD, round=True),
    "birth": Node("discover $p^D$\n$D_t \\sim$ Categorical", 4.3, 1.8, 2.6, colour=NEW),
    "new": Node("discovered\n$\\mathbf{z}^{\\mathcal{D}_t}_t$", 7.6, 1.8, colour=NEW, round=True),
    "all": Node("objects at $t$\nwhat, where, pres", 10.6, 3.0, 2.4, round=True),
    "draw": Node("decode what\nplace at where, add", 13.6, 3.0, 2.6),
    "frame": Node("frame $\\mathbf{x}_t$", 16.4, 3.0, 1.8, round=True),
    "next": Node("time-step $t+1$", 10.6, 0.9, 2.4),
}
GENERATION_ARROWS = [
    ("before", "survive"),
    ("survive", "old"),
    ("old", "birth"),
    ("birth", "new"),
    ("old", "all"),
    ("new", "all"),
    ("all", "draw"),
    ("draw", "frame"),
    ("all", "next"),
]

INFERENCE = {
    "before": Node("objects, memory\n$\\mathbf{z}_{t-1}, \\mathbf{h}^T_{t-1}$", 1.2, 4.6, 2.4, round=True),
    "frame": Node("frame $\\mathbf{x}_t$", 1.2, 1.6, 1.8, round=True),
    "proposal": Node("proposal glimpse\nnear the old where", 4.5, 4.6, 2.7, colour=OLD),
    "relation": Node("relation RNN\nobject after object", 7.7, 4.6, 2.5, colour=OLD),
    "where": Node("where,\nthen a glimpse there", 10.9, 4.6, 2.7, colour=OLD),
    "temporal": Node("temporal RNN $\\mathbf{h}^T_t$\nwhat, pres", 14.2, 4.6, 2.7, colour=OLD),
    "old": Node("propagated $\\mathcal{P}_t$", 17.3, 4.6, 2.3, colour=OLD, round=True),
    "encode": Node("image encoder", 4.5, 1.6, 2.3, colour=NEW),
    "rnn": Node("discovery RNN\nstep after step", 7.7, 1.6, 2.5, colour=NEW),
    "find": Node("pres, where,\nthen a glimpse there", 10.9, 1.6, 2.7, colour=NEW),
    "what": Node("what", 14.2, 1.6, 1.6, colour=NEW),
    "new": Node("discovered $\\mathcal{D}_t$", 17.3, 1.6, 2.3, colour=NEW, round=True),
    "context": Node("set encoder $l_t$", 14.2, 3.1, 2.3, 0.6, colour=NEW),
    "all": Node("objects at $t$\n$\\mathbf{z}_t, \\mathbf{h}^T_t$", 20.3, 3.1, 2.2, round=True),
}
INFERENCE_ARROWS = [
    ("before", "proposal"),
    ("frame", "proposal"),
    ("proposal", "relation"),
    ("relation", "where"),
    ("where", "temporal"),
    ("temporal", "old"),
    ("frame", "encode"),
    ("encode", "rnn"),
    ("rnn", "find"),
    ("find", "what"),
    ("what", "new"),
    ("old", "context"),
    ("context", "rnn"),
    ("old", "all"),
    ("new", "all"),
]


def generation(asked: Asked) -> Made:
    """How a frame is generated."""
    del asked
    return _drawn(GENERATION, GENERATION_ARROWS, "generation: one time-step", (17.6, 5.2))


def inference(asked: Asked) -> Made:
    """How a frame is inferred."""
    del asked
    return _drawn(INFERENCE, INFERENCE_ARROWS, "inference: propagation first, then discovery", (21.6, 5.6))


def _drawn(nodes: dict[str, Node], arrows: list[tuple[str, str]], title: str, size: tuple[float, float]) -> Made:
    figure = blank(0.5 * size[0], 0.5 * size[1])
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-0.2, size[0]), ylim=(0.2, size[1] + 0.5), aspect="equal")
    axes.set_axis_off()
    for start, end in arrows:
        _arrow(axes, nodes[start], nodes[end])
    for node in nodes.values():
        _box(axes, node)
    axes.text(size[0] / 2, size[1] + 0.2, title, ha="center", fontsize=FONT + 2, color=INK)
    return Made(figure, {})


def _box(axes: Axes, node: Node) -> None:
    style = f"round,pad=0,rounding_size={node.height / 2 if node.round else 0.08}"
    corner = (node.x - node.width / 2, node.y - node.height / 2)
    axes.add_patch(
        FancyBboxPatch(
            corner, node.width, node.height, boxstyle=style, facecolor=node.colour, edgecolor=INK, linewidth=0.8
        )
    )
    axes.text(node.x, node.y, node.text, ha="center", va="center", fontsize=FONT - 1, color=INK, linespacing=1.3)


def _arrow(axes: Axes, start: Node, end: Node) -> None:
    """From border to border: sideways if the boxes are in one row, else up or down."""
    a, b = _border(start, end), _border(end, start)
    axes.add_patch(
        FancyArrowPatch(a, b, arrowstyle="-|>", mutation_scale=8, color=INK, linewidth=0.8, shrinkA=0, shrinkB=0)
    )


def _border(node: Node, towards: Node) -> tuple[float, float]:
    """Where the straight line to another box leaves this one."""
    dx, dy = towards.x - node.x, towards.y - node.y
    reach = min(node.width / 2 / abs(dx) if dx else 9.0, node.height / 2 / abs(dy) if dy else 9.0)
    return node.x + reach * dx, node.y + reach * dy

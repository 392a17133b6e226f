"""Figures that show sequences: reconstructions, samples, conditional generation, digits in and out, VRNN.

They are the counterparts of the paper's figures 4, 5, 6, 8 and of those in App. F, H and I. Reconstructions, samples
and conditional generation are made of any sequences, pedestrians too.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from sqair.figures import COLOURS, FAINT, Row
from sqair.gallery.asked import Asked, Made
from sqair.gallery.drawing import FONT, plain_axes, strips
from sqair.gallery.looks import continued, dream, infer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 4
"""Sequences in a figure."""
DREAMS = 300
"""Of which the numbers of objects are counted."""


def reconstructions(asked: Asked) -> Made:
    """Inputs, and reconstructions with the objects' boxes, coloured by identity."""
    return _pairs(asked, "model", "reconstructions; colours are identities")


def in_and_out(asked: Asked) -> Made:
    """Digits that come and go: inputs and reconstructions."""
    return _pairs(asked, "in_out", "digits come and go", name="moving-mnist-in-out")


def _pairs(asked: Asked, role: str, title: str, **changes: Any) -> Made:
    shown = asked.some(role, SHOWN, **changes)
    rows = []
    for frames, look in zip(shown.frames, infer(asked.load(role), np.asarray(shown.frames), asked.seed), strict=True):
        rows += [Row("input", np.asarray(frames)), look.row("inferred")]
    return Made(strips(rows, title=title, breaks=range(0, len(rows), 2)), {})


def samples(asked: Asked) -> Made:
    """Dreams from the prior, and how many objects their frames have beside the data's, where that is known."""
    model, counts = asked.load("model"), asked.counts("model", DREAMS)
    looks = dream(model, DREAMS, asked.data["model"].length, asked.seed)
    dreamt = np.array([look.ids >= 0 for look in looks]).sum(-1)
    known = {} if counts is None else {"data": counts}
    most = max(model.config.max_objects, *(values.max() for values in known.values()), 0)
    shares = {
        name: np.bincount(values.ravel(), minlength=most + 1) / values.size
        for name, values in {**known, "samples": dreamt}.items()
    }
    figure = strips([look.row(f"sample {i}") for i, look in enumerate(looks[:6], 1)], title="samples from the prior")
    _add_histogram(figure, shares)
    return Made(figure, {name: values.tolist() for name, values in shares.items()})


def _add_histogram(figure: "Figure", shares: dict[str, np.ndarray]) -> None:
    """Bars below the pictures; those are drawn first, so the paper grows downwards."""
    axes = plain_axes(figure, (1, 1, 1), "objects in a frame", "share of frames")
    axes.set_position((0.2, -0.42, 0.6, 0.32))
    for i, (name, values) in enumerate(shares.items()):
        place = np.arange(len(values)) + 0.38 * (i - 0.5)
        bars = axes.bar(place, values, 0.36, color=FAINT if name == "data" else COLOURS[6], label=name)
        axes.bar_label(bars, [f"{value:.3f}" for value in values], fontsize=FONT - 2)
    axes.set_xticks(range(len(shares["samples"])))
    axes.legend(frameon=False, fontsize=FONT - 1)


def conditional(asked: Asked) -> Made:
    """The first frames are observed, the rest is generated, beyond the end of the truth if that is wanted."""
    shown, observed = asked.some("model", SHOWN), asked.observe
    frames = np.asarray(shown.frames)
    later = asked.frames or frames.shape[1] - observed
    rows = []
    looks = continued(asked.load("model"), frames[:, :observed], later, asked.seed)
    for truth, look in zip(frames[:, : observed + later], looks, strict=True):
        rows += [Row("truth", truth), look.row("model")]
    title = f"the first {observed} frames are observed, the others generated"
    return Made(strips(rows, title=title, observed=observed, breaks=range(0, len(rows), 2)), {})


def vrnn(asked: Asked) -> Made:
    """VRNN: inputs and reconstructions, then samples from its prior."""
    model, shown = asked.load("vrnn"), asked.some("vrnn", 3)
    frames = np.asarray(shown.frames)
    rows = []
    for truth, look in zip(frames, infer(model, frames, asked.seed), strict=True):
        rows += [Row("input", truth), look.row("inferred")]
    dreams = dream(model, 4, frames.shape[1], asked.seed)
    rows += [look.row(f"sample {i}") for i, look in enumerate(dreams, 1)]
    return Made(strips(rows, title="VRNN: reconstructions and samples", breaks=(2, 4, 6)), {})

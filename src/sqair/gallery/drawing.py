"""What the figures share: rows of frames with boxes coloured by identity, one style, PNG and PDF.

A figure is made without matplotlib's global state, so nothing a caller has set changes it. Pixels are never blended.

Axes: T frames, Y, X frame, O objects.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray

from sqair.figures import COLOURS, FAINT, INK, Row, to_rgb
from sqair.files import written_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAP = 3
"""Pixels of a frame between frames."""
SCALE = 70.0
"""Pixels of a frame to an inch of paper."""
FONT = 8
"""Points."""
DPI = 200


def blank(width: float, height: float) -> "Figure":
    """An empty figure of this size in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def save(figure: "Figure", folder: Path, name: str) -> list[Path]:
    """Write NAME.png and NAME.pdf, each whole or not at all; the same figure gives the same bytes."""
    paths = []
    for kind, about in (("png", {"Software": None}), ("pdf", {"CreationDate": None, "Producer": None})):
        paths.append(folder / f"{name}.{kind}")
        with written_atomically(paths[-1]) as file:
            figure.savefig(file, format=kind, dpi=DPI, metadata=about, bbox_inches="tight", pad_inches=0.05)
    return paths


def strips(
    rows: Sequence[Row], *, title: str = "", observed: int = 0, breaks: Sequence[int] = (), zoom: int = 1
) -> "Figure":
    """Rows of frames of equal width, labelled on the left, frames numbered on top.

    A line is drawn after the first `observed` frames. A wider gap goes before the rows whose numbers are in `breaks`.
    `zoom` tells how many times frames were enlarged already.
    """
    images, tops = [to_rgb(row.frames) for row in rows], [0]
    for number, image in enumerate(images[:-1], 1):
        tops.append(tops[-1] + image.shape[1] + GAP * (3 if number in breaks else 1))
    width, length = images[0].shape[2] + GAP, max(map(len, images))
    shape = (tops[-1] + images[-1].shape[1], width * length - GAP)
    figure = blank(shape[1] / SCALE / zoom + 1.0, shape[0] / SCALE / zoom + 0.5)
    axes = bare(figure, shape)
    axes.imshow(composed(images, tops, width, shape), interpolation="nearest")
    for row, top, image in zip(rows, tops, images, strict=True):
        label = (-GAP, top + image.shape[1] / 2)
        axes.text(*label, row.label, ha="right", va="center", fontsize=FONT, color=INK)
        boxes_on(axes, row, top, width)
    for t in range(length):
        axes.text(t * width + width / 2, -GAP, str(t + 1), ha="center", va="bottom", fontsize=FONT - 2, color=FAINT)
    if observed:
        axes.axvline(observed * width - GAP / 2 - 0.5, color=COLOURS[4], linewidth=1.2)
    if title:
        axes.set_title(title, fontsize=FONT + 1, color=INK, pad=14)
    return figure


def composed(
    images: Sequence[UInt8[ndarray, "_ _ _ 3"]], tops: Sequence[int], width: int, shape: tuple[int, int]
) -> UInt8[ndarray, "height width 3"]:
    """All frames on white paper."""
    paper = np.full((*shape, 3), 255, np.uint8)
    for image, top in zip(images, tops, strict=True):
        for t, frame in enumerate(image):
            paper[top : top + frame.shape[0], t * width : t * width + frame.shape[1]] = frame
    return paper


def bare(figure: "Figure", shape: tuple[int, int]) -> "Axes":
    """Axes without lines, in pixels of frames, as large as the figure."""
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-0.5, shape[1] - 0.5), ylim=(shape[0] - 0.5, -0.5))
    axes.set_axis_off()
    return axes


def boxes_on(axes: "Axes", row: Row, top: int, width: int) -> None:
    """The boxes of a row in the colours of their identities."""
    from matplotlib.patches import Rectangle

    if row.boxes is None or row.ids is None:
        return
    for t, (boxes, ids) in enumerate(zip(row.boxes, row.ids, strict=True)):
        for (left, upper, across, down), identity in zip(boxes, ids, strict=True):
            if identity >= 0 and np.isfinite([left, upper, across, down]).all():
                corner = (t * width + left - 0.5, top + upper - 0.5)
                colour = COLOURS[int(identity) % len(COLOURS)]
                axes.add_patch(Rectangle(corner, across, down, fill=False, edgecolor=colour, linewidth=1.1))


def plain_axes(figure: "Figure", place: tuple[int, int, int], across: str, up: str) -> "Axes":
    """Axes for curves and bars: labelled, with lines on two sides only."""
    axes = figure.add_subplot(*place)
    axes.set_xlabel(across, fontsize=FONT, color=INK)
    axes.set_ylabel(up, fontsize=FONT, color=INK)
    axes.tick_params(labelsize=FONT - 1, colors=INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return axes


def enlarged(frames: Float[ndarray, "T Y X *C"], size: tuple[int, int]) -> Float[ndarray, "T H W *C"]:
    """Frames at another size, each pixel taken from the nearest one."""
    rows = (np.arange(size[0]) * frames.shape[1]) // size[0]
    columns = (np.arange(size[1]) * frames.shape[2]) // size[1]
    return frames[:, rows][:, :, columns]

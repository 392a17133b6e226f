"""What `sqair train` shows of a run while it goes on: reconstructions, learning curves, a page, TensorBoard files.

Training does not know of these; it gets them as callbacks, and they write at evaluations only. At the end the model's
card is completed.
"""

import contextlib
import importlib.util
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy import ndarray

from sqair.baselines.air import AIR
from sqair.commands.scenes import infer
from sqair.config import Preset, UserError
from sqair.data import FileSource, open_data
from sqair.figures import COLOURS, FAINT, INK, Row, strip
from sqair.files import written_atomically
from sqair.generation import scene
from sqair.image import as_frames
from sqair.model import SQAIR
from sqair.report.training import PANELS, by_member, limits, member_colour, train_page
from sqair.tracking.typical import typical, write_typical
from sqair.training.checkpoint import load_model
from sqair.training.loop import Callback, Progress
from sqair.training.runs import BEST, CURVES, PICTURES, TENSORBOARD, read_metrics
from sqair.training.validation import VALIDATION_SEED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

SHOWN = 4
"""Validation sequences in a picture, chosen out of ..."""
CHOICE = 32
"""... so many."""
DESCRIBED = 100
"""Training sequences that tell what is typical of them."""
KEPT = 10
"""Pictures that are kept."""
PARTICLES = 5
"""Inferences of which the most probable is shown."""
Dashes = Literal["-", "--"]
DASHES: tuple[Dashes, Dashes] = ("-", "--")
"""Of the two fields of a panel."""
GRID = "#E6E6E6"


@contextlib.contextmanager
def watchers(preset: Preset, *, tensorboard: bool) -> Iterator[list[Callback]]:
    """The callbacks of a run, while it goes on; when it has ended well, its model's card is completed."""
    events, page = TensorBoard(), Page()
    try:
        yield [Reconstructions(preset), draw_curves, page, *([events] if tensorboard else [])]
        if page.folder is not None:
            complete_cards(preset, page.folder)
    except BaseException:
        with contextlib.suppress(OSError):  # of a full disk, say: the error itself matters more
            events.close()
            page.close()
        raise
    events.close()
    page.close()


# --- reconstructions


class Reconstructions:
    """Writes reconstructions/step-<step>.png and latest.png: validation sequences, and what the best model finds."""

    def __init__(self, preset: Preset) -> None:
        self.frames = choose_sequences(preset)

    def __call__(self, progress: Progress) -> None:
        """Draw, at evaluations."""
        if progress.metrics is None:
            return
        folder = progress.out / PICTURES
        rows = [row for i, frames in enumerate(self.frames) for row in self.rows(progress, i, frames)]
        path = folder / f"step-{progress.step:06d}.png"
        strip(path, rows, zoom=max(1, round(100 / self.frames.shape[2])))
        with written_atomically(folder / "latest.png") as file:
            file.write(path.read_bytes())
        # by length first: from a million steps on names are longer
        for old in sorted(folder.glob("step-*.png"), key=lambda each: (len(each.name), each.name))[:-KEPT]:
            old.unlink()

    def rows(self, progress: Progress, i: int, frames: Float[ndarray, "T Y X C"]) -> list[Row]:
        """A sequence, and below it the reconstruction; boxes where the model has objects."""
        info = infer(progress.model, jax.random.key(i), jnp.asarray(frames), PARTICLES)
        frames = frames[..., : progress.model.config.channels]
        if not isinstance(progress.model, SQAIR | AIR):
            return [Row(f"{i + 1}  input", frames), Row("reconstruction", np.asarray(info.canvas))]
        found = scene(progress.model, info)
        return [Row(f"{i + 1}  input", frames), Row("found", found.frames, found.boxes, found.ids)]


def choose_sequences(preset: Preset) -> Float[ndarray, "S T Y X C"]:
    """Validation sequences with much to see: some of the brighter half, the brightest first."""
    source = open_data(preset.data, "validation")
    count = min(CHOICE, len(source)) if isinstance(source, FileSource) else CHOICE
    frames = np.asarray(jax.vmap(as_frames)(jnp.asarray(source.fixed(count, VALIDATION_SEED).frames)))
    seen = frames[..., : preset.model.channels]
    order = np.argsort(-seen.reshape(count, -1).mean(1), kind="stable")
    return frames[order[:: max(1, count // (2 * SHOWN))][:SHOWN]]


# --- learning curves


def draw_curves(progress: Progress) -> None:
    """Write curves.png from metrics.jsonl, at evaluations: of a population the best member in bold, the others pale."""
    if progress.metrics is None:
        return
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    members = by_member(read_metrics(progress.out))
    best = progress.metrics.get("member", 0)
    figure = Figure(figsize=(13, 4), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    for axes, (title, fields) in zip(figure.subplots(1, len(PANELS)), PANELS.items(), strict=True):
        for number in sorted(members, key=lambda i: i == best):
            draw_member(axes, fields, members[number], member_colour(number), number == best)
        finish_panel(axes, title, fields, members)
    if len(members) > 1:
        names = [f"member {i}, the best" if i == best else f"member {i}" for i in sorted(members)]
        keys = [stroke(member_colour(i), "-", i == best) for i in sorted(members)]
        figure.legend(keys, names, loc="outside right center", frameon=False, fontsize=9, ncols=1 + len(names) // 16)
    with written_atomically(progress.out / CURVES) as file:
        canvas.print_png(file)


def draw_member(axes: "Axes", fields: dict[str, str], lines: list[dict[str, Any]], colour: str, is_best: bool) -> None:
    """The fields of one member, the first solid, the second dashed; single numbers are dots."""
    for name, dashes in zip(fields, DASHES, strict=True):
        known = [(line["step"], line[name]) for line in lines if line.get(name) is not None]
        drawn = stroke(colour, dashes, is_best)
        drawn.set_data([step for step, _ in known], [value for _, value in known])
        drawn.set_marker("o" if len(known) == 1 else "")
        axes.add_line(drawn)


def finish_panel(axes: "Axes", title: str, fields: dict[str, str], members: dict[int, list[dict[str, Any]]]) -> None:
    """Title, ticks, limits, and what solid and dashed lines are."""
    from matplotlib.ticker import MaxNLocator

    axes.set_title(title, fontsize=11, color=INK)
    axes.set_xlabel("step", color=INK)
    axes.grid(color=GRID, linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=FAINT, labelcolor=INK)
    axes.autoscale_view()
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    values = [line.get(name) for lines in members.values() for line in lines for name in fields]
    set_limits(axes, [value for value in values if value is not None])
    colour = COLOURS[0] if len(members) == 1 else INK
    axes.legend([stroke(colour, dashes, True) for dashes in DASHES], list(fields.values()), frameon=False, fontsize=9)


def stroke(colour: str, dashes: Dashes, is_best: bool) -> "Line2D":
    """A line of the plots."""
    from matplotlib.lines import Line2D

    return Line2D(
        [], [], color=colour, linestyle=dashes, alpha=1.0 if is_best else 0.5, linewidth=2.2 if is_best else 1.1
    )


def set_limits(axes: "Axes", values: Sequence[float]) -> None:
    """Show where most of the values lie."""
    chosen = limits(values)
    if chosen is not None:
        axes.set_ylim(*chosen)


# --- the page


class Page:
    """Writes index.html, which shows all of the above: at evaluations, and when the run has ended, to say how."""

    def __init__(self) -> None:
        self.folder: Path | None = None

    def __call__(self, progress: Progress) -> None:
        """Write it, at evaluations."""
        if progress.metrics is not None:
            self.folder = progress.out
            train_page(self.folder)

    def close(self) -> None:
        """Write it once more."""
        if self.folder is not None:
            train_page(self.folder)


# --- the card


def complete_cards(preset: Preset, folder: Path) -> None:
    """Tell in the cards of a run's best model how its training data look, which `sqair track` compares clips with."""
    with contextlib.suppress(UserError):  # the data may have gone since training began, the weights be infinite
        model = load_model(folder)
        if model.has_objects:
            numbers = typical(model, open_data(preset.data, "train"), sequences=DESCRIBED)
            for each in (folder, folder / BEST):
                write_typical(each, numbers)


# --- TensorBoard


def check_tensorboard() -> None:
    """Refuse, before anything is done, to write files that nothing installed can write."""
    if importlib.util.find_spec("tensorboardX") is None:
        raise UserError("--tensorboard needs a package that is not installed; run `pip install 'sqair[log]'`")


class TensorBoard:
    """Writes the numbers of metrics.jsonl as event files into tensorboard/, one folder for each member."""

    def __init__(self) -> None:
        self.writers: dict[Path, Any] = {}

    def __call__(self, progress: Progress) -> None:
        """Write the lines of an evaluation; when this returns they are in the files."""
        for line in progress.lines:
            name = f"member-{line['member']}" if "member" in line else ""
            self.write(progress.out / TENSORBOARD / name, line)

    def write(self, folder: Path, line: dict[str, Any]) -> None:
        """Add the numbers of a line to the event file of a folder, which stays open."""
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboardX.summary import scalar

        if folder in self.writers and not folder.is_dir():  # the run was begun afresh
            self.writers.pop(folder).close()
        if folder not in self.writers:
            folder.mkdir(parents=True, exist_ok=True)
            self.writers[folder] = EventsWriter(str(folder / "events"))
        for field, value in line.items():
            if isinstance(value, float):
                group, _, rest = field.partition("_")
                tag = f"{group}/{rest}" if group in ("train", "validation") else f"speed/{field}"
                event = Event(wall_time=time.time(), step=line["step"], summary=scalar(tag, value))
                self.writers[folder].write_event(event)
        self.writers[folder].flush()

    def close(self) -> None:
        """Close all files."""
        for writer in self.writers.values():
            writer.close()

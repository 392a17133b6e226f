"""``sqair sample``: sequences that a model dreams, births and deaths included."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from sqair.commands.common import Command, choose_device, finish, name_of, optional
from sqair.config import UserError

if TYPE_CHECKING:
    from numpy import ndarray

    from sqair.commands.scenes import Scene

IN_VIDEO = 4
"""Sequences in the video at most."""


@dataclass(frozen=True, kw_only=True)
class Sample(Command):
    """Dream sequences from a model's prior, births and deaths included.

    Writes samples.png, samples.mp4 (of the first 4 sequences) and samples.npz (frames; of objects boxes, ids, counts).

    examples:
      sqair sample --model sqair-strokes
      sqair sample --model runs/train/mine --frames 30 --count 8 --seed 3 --out dreams
    """

    NAME: ClassVar[str] = "sample"

    model: str = "sqair-strokes"
    """A shipped model, a model's folder, or the folder of a run."""
    frames: int = 20
    """Length of a sequence."""
    count: int = 4
    """Number of sequences."""
    seed: int = 0
    """The same seed gives the same dreams."""
    out: Annotated[str | None, optional("DIR", "runs/sample/MODEL")] = None
    """Folder for results."""

    def run(self) -> None:
        """Dream, then write pictures and arrays."""
        if self.frames < 1 or self.count < 1:
            raise UserError(f"--frames and --count must be at least 1, not {self.frames} and {self.count}")
        choose_device(self.common)
        import jax
        import numpy as np

        from sqair.baselines.air import AIR
        from sqair.commands.scenes import dream, scene
        from sqair.model import SQAIR
        from sqair.training.checkpoint import load_model
        from sqair.training.runs import choose_folder

        out = Path(self.out) if self.out is not None else None
        folder = choose_folder(self.NAME, name_of(self.model), out, overwrite=self.common.overwrite)
        model = load_model(self.model)
        info = dream(model, jax.random.key(self.seed), self.count, self.frames)
        scenes = []
        if isinstance(model, SQAIR | AIR):
            scenes = [scene(model, jax.tree.map(lambda leaf, i=i: leaf[i], info)) for i in range(self.count)]
        write(folder, np.asarray(info.canvas), scenes)
        if self.count > IN_VIDEO:
            self.common.say(f"samples.mp4 shows the first {IN_VIDEO} of {self.count} sequences")
        finish(folder)


def write(folder: Path, canvases: "ndarray", scenes: "list[Scene]") -> None:
    """The three files, from canvases (S, T, Y, X, C) and the scenes on them; none if the model has no objects."""
    import numpy as np

    from sqair.data import Sequences, save_sequences
    from sqair.figures import Row, strip, video

    rows = [Row(str(i + 1), canvas) for i, canvas in enumerate(canvases)]
    truth = {}
    if scenes:
        rows = [row._replace(boxes=scene.boxes, ids=scene.ids) for row, scene in zip(rows, scenes, strict=True)]
        truth = {name: np.stack([getattr(scene, name) for scene in scenes]) for name in ("counts", "boxes", "ids")}
    frames = np.clip(canvases, 0.0, 1.0)
    frames = frames[..., 0] if frames.shape[-1] == 1 else frames
    save_sequences(folder / "samples.npz", Sequences(frames, **truth))
    strip(folder / "samples.png", rows)
    video(folder / "samples.mp4", rows[:IN_VIDEO])

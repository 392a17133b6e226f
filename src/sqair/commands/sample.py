"""``sqair sample``: sequences that a model dreams, births and deaths included."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from sqair.commands.common import Command, choose_device, finish, name_of, optional
from sqair.config import UserError

if TYPE_CHECKING:
    from sqair.generation import Scene

RESULTS = ("samples.png", "samples.mp4", "samples.gif", "samples.npz", "index.html", "page")
"""All that sampling may write."""


@dataclass(frozen=True, kw_only=True)
class Sample(Command):
    """Dream sequences from a model's prior, births and deaths included.

    Writes samples.png, samples.mp4 and samples.gif (of the first 4 sequences), samples.npz (frames; of objects boxes,
    ids, counts) and index.html, a page to play them.

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
        """Dream, then write pictures, arrays and the page."""
        if self.frames < 1 or self.count < 1:
            raise UserError(f"--frames and --count must be at least 1, not {self.frames} and {self.count}")
        self.common.say(f"dreaming with {self.model}")
        choose_device(self.common)
        from sqair.commands.publish import published
        from sqair.commands.scenes import IN_VIDEO
        from sqair.generation import sample
        from sqair.training.checkpoint import load_model
        from sqair.training.runs import choose_folder

        out = Path(self.out) if self.out is not None else None
        folder = choose_folder(self.NAME, name_of(self.model), out, overwrite=self.common.overwrite)
        model = load_model(self.model)
        self.common.say("compiling, about 10 s on two cores")
        scenes = sample(model, count=self.count, frames=self.frames, seed=self.seed)
        with published(folder, RESULTS) as part:
            self.write(part, scenes)
        if self.count > IN_VIDEO:
            self.common.say(f"samples.mp4 shows the first {IN_VIDEO} of {self.count} sequences")
        finish(folder)

    def write(self, folder: Path, scenes: "list[Scene]") -> None:
        """All files."""
        from sqair.commands.scenes import IN_VIDEO, rows_of, sequences_of, write_pictures
        from sqair.data import save_sequences

        rows = rows_of("dream", scenes)
        save_sequences(folder / "samples.npz", sequences_of(scenes))
        write_pictures(folder, "samples", rows, rows[:IN_VIDEO])
        self.write_page(folder, scenes[:IN_VIDEO])

    def write_page(self, folder: Path, scenes: "list[Scene]") -> None:
        """index.html, with a panel for each dream."""
        from sqair.commands.scenes import add_scenes
        from sqair.report import PageWriter

        with PageWriter(
            folder,
            title=f"dreams of {name_of(self.model)}",
            kind=self.NAME,
            rate=5,
            size=scenes[0].frames.shape[1:3],
            model=self.model,
            panels=[f"dream {i}" for i in range(1, len(scenes) + 1)],
            groups=list(range(len(scenes))),
        ) as page:
            add_scenes(page, scenes)
            page.close({"model": self.model, "sequences": self.count, "frames": self.frames, "seed": self.seed})

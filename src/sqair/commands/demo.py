"""``sqair demo``: a made clip of moving digits, tracked as `sqair track` does and continued as `sqair predict` does."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from sqair.commands.common import Command, choose_device, finish, name_of, optional
from sqair.commands.evaluate import trained_on
from sqair.commands.predict import Predict
from sqair.commands.track import Track
from sqair.config import DataConfig, UserError

if TYPE_CHECKING:
    from sqair.data import Sequences
    from sqair.tracks import Tracks

CHOICE = 20
"""Sequences of which one with as many digits as there can be is shown."""
LENGTH = 30
"""Frames of the clip."""
SHOWN = 10
"""Of these in overlay.png."""
CLIP, STRIP, FUTURES = "clip.npz", "overlay.png", "futures"


@dataclass(frozen=True, kw_only=True)
class Demo(Command):
    """See what a shipped model finds in a made clip of moving digits: no download, no GPU.

    Writes clip.npz, what `sqair track` writes of it (tracks, overlay.mp4, index.html and more), overlay.png, and in
    futures/ what `sqair predict` writes: how the clip may go on after three frames.

    examples:
      sqair demo
      sqair demo --seed 7 --out demo
    """

    NAME: ClassVar[str] = "demo"

    model: str = "sqair-strokes"
    """A shipped model, a model's folder, or the folder of a run."""
    seed: int = 0
    """Another seed makes another clip."""
    out: Annotated[str | None, optional("DIR", "runs/demo/MODEL")] = None
    """Folder for results."""

    def run(self) -> None:
        """Make a clip, track it, continue it."""
        self.common.say(f"tracking and continuing a made clip with {self.model}")
        choose_device(self.common)
        from sqair.commands.publish import published
        from sqair.commands.scenes import load_objects
        from sqair.commands.track_clip import RESULTS
        from sqair.tracks import Tracks
        from sqair.training.checkpoint import read_card
        from sqair.training.runs import choose_folder

        out = Path(self.out) if self.out is not None else None
        folder = choose_folder(self.NAME, name_of(self.model), out, overwrite=self.common.overwrite)
        model, card = load_objects(self.model), read_card(self.model)
        if model.frames_are_independent:
            raise UserError(f"{self.model} knows no time; give the demo a model of the kind sqair")
        made = make_clip(trained_on(card), self.seed)
        with published(folder, (*RESULTS, CLIP, STRIP, FUTURES)) as part:
            self.track_and_predict(part, made, model, card)
            found = Tracks.read(part / "tracks.json")
            draw(part / STRIP, made, found)
        print(describe(made, found, folder))
        finish(folder)

    def track_and_predict(self, part: Path, made: "Sequences", model: Any, card: dict[str, Any]) -> None:
        """Write the clip, and what both commands write of it."""
        from sqair.commands.track_clip import Job, track_clip
        from sqair.data import save_sequences
        from sqair.data.video import open_clips

        path = part / CLIP
        save_sequences(path, made)
        (clip,), (again,) = open_clips(path), open_clips(path)
        asked = {"model": self.model, "seed": self.seed, "common": self.common}
        track, predict = Track(sources=(str(path),), **asked), Predict(source=str(path), **asked)
        with ThreadPoolExecutor(1) as pool:  # most of the time goes into compilation: one core for each command
            futures = pool.submit(predict.make, part / FUTURES, again, model, card)
            track_clip(Job(track, model, card, stop=lambda: False), clip, part, None)
            futures.result()


def make_clip(config: DataConfig, seed: int) -> "Sequences":
    """One sequence of test digits, the first that shows as many as there can be, as numpy arrays."""
    import jax
    import numpy as np

    from sqair.data import open_data

    config = dataclasses.replace(config, name="moving-mnist", digits="strokes", length=LENGTH)
    clips = jax.tree.map(np.asarray, open_data(config, "test").fixed(CHOICE, seed))
    chosen = int(clips.counts[:, 0].argmax())
    return jax.tree.map(lambda leaf: leaf[chosen : chosen + 1], clips)


def draw(path: Path, made: "Sequences", found: "Tracks") -> None:
    """The first frames of the clip, and below them the boxes of what was found."""
    import numpy as np

    from sqair.figures import Row, strip

    frames = np.asarray(made.frames)[0, :SHOWN]
    shown = found.between(0, len(frames))
    boxes = np.full((len(frames), len(shown.ids), 4), np.nan, np.float32)
    ids = np.full(boxes.shape[:2], -1)
    columns = np.searchsorted(shown.ids, shown.id)
    boxes[shown.frame, columns], ids[shown.frame, columns] = shown.box, shown.id
    strip(path, [Row("clip", frames), Row("found", frames, boxes, ids)])


def describe(made: "Sequences", found: "Tracks", folder: Path) -> str:
    """What was found, and where to look, for people."""
    true: Any = made.counts
    right = float((true[0] == found.counts).mean())
    return (
        f"true number of digits in each frame:      {' '.join(map(str, true[0]))}\n"
        f"inferred number of objects in each frame: {' '.join(map(str, found.counts))}\n"
        f"{right:.0%} of {found.frames} frames counted right, {len(found.ids)} identities\n"
        f"how the clip may go on after three frames: {folder / FUTURES / 'index.html'}\n"
        f"open this first: {folder / 'index.html'}"
    )

"""``sqair demo``: what the shipped model finds in a clip of moving digits."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from sqair.commands.common import Command, choose_device, finish, name_of, optional
from sqair.commands.evaluate import trained_on
from sqair.config import DataConfig

if TYPE_CHECKING:
    from sqair.commands.scenes import Scene
    from sqair.data import Sequences

CHOICE = 20
"""Sequences of which one with as many digits as there can be is shown."""
PARTICLES = 10
"""Inferences of which the most probable is shown."""


@dataclass(frozen=True, kw_only=True)
class Demo(Command):
    """See what a shipped model finds in a made clip of moving digits: no download, no GPU.

    Writes overlay.png, overlay.mp4, tracks.txt (MOTChallenge) and summary.json.

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
        """Make a clip, infer, write."""
        choose_device(self.common)
        import jax
        import jax.numpy as jnp

        from sqair.commands.scenes import infer, load_objects, scene
        from sqair.image import as_frames
        from sqair.training.checkpoint import read_card
        from sqair.training.runs import choose_folder

        out = Path(self.out) if self.out is not None else None
        folder = choose_folder(self.NAME, name_of(self.model), out, overwrite=self.common.overwrite)
        model = load_objects(self.model)
        clip = make_clip(trained_on(read_card(self.model)), self.seed)
        self.common.say("looking for objects (compiles first, about 10 s)")
        info = infer(model, jax.random.key(self.seed), as_frames(jnp.asarray(clip.frames)), PARTICLES)
        found = scene(model, info)
        write(folder, clip, found, {"model": self.model, "seed": self.seed})
        print(describe(clip, found))
        finish(folder)


def make_clip(config: DataConfig, seed: int) -> "Sequences":
    """The first clip of the test digits that shows as many as there can be, as numpy arrays without sequence axis."""
    import jax
    import numpy as np

    from sqair.data import open_data

    source = open_data(dataclasses.replace(config, name="moving-mnist", digits="strokes"), "test")
    clips = jax.tree.map(np.asarray, source.fixed(CHOICE, seed))
    return jax.tree.map(lambda leaf: leaf[int(clips.counts[:, 0].argmax())], clips)


def write(folder: Path, clip: "Sequences", found: "Scene", about: dict[str, Any]) -> None:
    """The four files."""
    import numpy as np

    from sqair.figures import Row, strip, video
    from sqair.training.files import write_json, write_text

    frames = np.asarray(clip.frames)
    seen, overlay = Row("input", frames), Row("input, and what was found", frames, found.boxes, found.ids)
    drawn = Row("reconstruction", found.canvas, found.boxes, found.ids)
    write_json(folder / "summary.json", about | summary(clip, found))
    write_text(folder / "tracks.txt", motchallenge(found))
    strip(folder / "overlay.png", [seen, drawn])
    video(folder / "overlay.mp4", [overlay, drawn])


def summary(clip: "Sequences", found: "Scene") -> dict[str, Any]:
    """Counts per frame, and how often they agree."""
    true = [] if clip.counts is None else [int(count) for count in clip.counts]
    inferred = [int(count) for count in found.counts]
    right = sum(a == b for a, b in zip(true, inferred, strict=True))
    identities = len({int(i) for i in found.ids.flat if i >= 0})
    return {
        "frames": len(true),
        "true_counts": true,
        "inferred_counts": inferred,
        "counting": right / len(true),
        "identities": identities,
    }


def motchallenge(found: "Scene") -> str:
    """Lines of frame, id, left, top, width, height, confidence, -1, -1, -1; frames and ids start at 1."""
    lines = []
    for t, (boxes, ids) in enumerate(zip(found.boxes, found.ids, strict=True)):
        for box, identity in zip(boxes, ids, strict=True):
            if identity >= 0 and box[0] == box[0]:  # NaN: alive but out of sight
                left, top, width, height = (f"{value:g}" for value in box)
                lines.append(f"{t + 1},{identity + 1},{left},{top},{width},{height},1,-1,-1,-1\n")
    return "".join(lines)


def describe(clip: "Sequences", found: "Scene") -> str:
    """What was found, for people."""
    facts = summary(clip, found)
    return (
        f"true number of digits in each frame:      {' '.join(map(str, facts['true_counts']))}\n"
        f"inferred number of objects in each frame: {' '.join(map(str, facts['inferred_counts']))}\n"
        f"{facts['counting']:.0%} of {facts['frames']} frames counted right, {facts['identities']} identities\n"
        "look at overlay.png and overlay.mp4: boxes around what was found, coloured by identity"
    )

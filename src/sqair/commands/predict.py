"""``sqair predict``: how a clip may go on after its first frames."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

from sqair.commands.common import Command, choose_device, finish, optional
from sqair.config import UserError
from sqair.files import without_secrets

if TYPE_CHECKING:
    from sqair.data.video import Clip
    from sqair.generation import Prediction, Scene

RESULTS = ("future.mp4", "future.gif", "future.png", "future.npz", "summary.json", "index.html", "page")
"""All that predicting may write."""
MISSING = 96
"""Grey shown where a clip has no frame to compare a future with."""


@dataclass(frozen=True, kw_only=True)
class Predict(Command):
    """Observe the first frames of a clip and continue it, several futures side by side.

    A source is what `sqair track` takes. Writes future.mp4, future.gif, future.png, future.npz (frames; of objects
    boxes, ids, counts), summary.json (pixel error against the true continuation, positions) and index.html.

    examples:
      sqair predict clip.mp4 --observe 3 --frames 10
      sqair predict digits.npz --clip 7 --futures 8 --model runs/train/mine --out futures
    """

    NAME: ClassVar[str] = "predict"
    POSITIONAL: ClassVar[str | None] = "source"

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE", help_behavior_hint="")]
    """A video, a folder or glob of images, an .npy or .npz file, a camera or an address."""
    observe: int = 3
    """Frames that the model sees."""
    frames: int = 10
    """Frames to predict."""
    futures: int = 4
    """Number of futures."""
    clip: int = 1
    """Which clip of a source that holds several, from 1 on."""
    model: str = "sqair-strokes"
    """A shipped model, a model's folder, or the folder of a run."""
    invert: Literal["auto", "yes", "no"] = "auto"
    """Turn dark objects on light into light ones on dark; auto decides by the observed frames' brightness."""
    rate: float = 10.0
    """Frames a second of images and arrays, which have no rate of their own."""
    seed: int = 0
    """The same seed gives the same futures."""
    out: Annotated[str | None, optional("DIR", "runs/predict/SOURCE")] = None
    """Folder for results."""

    def check(self) -> None:
        """Refuse what no clip can be continued with, before anything heavy is imported."""
        super().check()
        for name in ("observe", "frames", "futures", "clip"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name} must be at least 1, not {getattr(self, name)}")
        if not 0 < self.rate < float("inf"):
            raise UserError(f"--rate must be a positive number, not {self.rate}")

    def run(self) -> None:
        """Predict, then write pictures, arrays and the page."""
        self.common.say(f"continuing {without_secrets(self.source)} with {self.model}")
        from sqair.commands.track import folder_name
        from sqair.training.checkpoint import load_model, read_card
        from sqair.training.runs import choose_folder

        out = Path(self.out) if self.out is not None else None
        folder = choose_folder(self.NAME, folder_name(self.source), out, overwrite=self.common.overwrite)
        clip = self._open()
        choose_device(self.common)
        model, card = load_model(self.model), read_card(self.model)
        self.common.say("compiling, about 20 s on two cores")
        print(describe(self.make(folder, clip, model, card)))
        finish(folder)

    def _open(self) -> "Clip":
        """The clip that is meant."""
        from sqair.data.video import open_clips

        clips, name = open_clips(self.source, rate=self.rate), without_secrets(self.source)
        if self.clip > len(clips):
            raise UserError(f"--clip {self.clip} is not there: {name} holds {len(clips)}")
        if len(clips) > 1:
            self.common.say(f"{name} holds {len(clips)} clips; this is number {self.clip} (--clip)")
        return clips[self.clip - 1]

    def make(self, folder: Path, clip: "Clip", model: Any, card: dict[str, Any]) -> dict[str, Any]:
        """Predict and write all files; returns the summary."""
        from sqair.commands.publish import published
        from sqair.commands.track_clip import warn
        from sqair.generation import continue_clip
        from sqair.tracking.typical import remarks

        predicted = continue_clip(
            model,
            clip,
            observe=self.observe,
            frames=self.frames,
            futures=self.futures,
            invert=self.invert,
            seed=self.seed,
        )
        if done := predicted.fit.describe():
            self.common.say(f"{clip.name}: {done}")
        said = [*clip.notes, *remarks(card, impression(predicted))]
        summary = self.about(clip) | {"remarks": said} | numbers(predicted)
        with published(folder, RESULTS) as part:
            self.write(part, clip, predicted, summary)
        warn(clip.name, said)
        return summary

    def write(self, folder: Path, clip: "Clip", predicted: "Prediction", summary: dict[str, Any]) -> None:
        """All files."""
        from sqair.commands.scenes import sequences_of
        from sqair.data import save_sequences
        from sqair.training.files import write_json

        save_sequences(folder / "future.npz", sequences_of(predicted.futures))
        write_json(folder / "summary.json", summary)
        draw(folder, predicted)
        self.write_page(folder, clip, predicted, summary)

    def about(self, clip: "Clip") -> dict[str, Any]:
        """What was asked for."""
        asked = {name: getattr(self, name) for name in ("model", "observe", "frames", "seed")}
        return {"source": clip.name, "size": list(clip.size), "rate": clip.rate} | asked

    def write_page(self, folder: Path, clip: "Clip", predicted: "Prediction", summary: dict[str, Any]) -> None:
        """index.html: the clip, and a panel for each future."""
        import numpy as np

        from sqair.commands.scenes import IN_VIDEO, add_scenes
        from sqair.report import PageWriter

        left, top, width, height = predicted.fit.content
        shown, scenes = padded(predicted, MISSING), predicted.futures[:IN_VIDEO]
        with PageWriter(
            folder,
            title=clip.name,
            kind=self.NAME,
            rate=min(clip.rate, 5),  # so few frames are over before one has looked
            size=clip.size,
            model=self.model,
            panels=["clip", *(f"future {i}" for i in range(1, len(scenes) + 1))],
            groups=[-1, *range(len(scenes))],
            observed=predicted.observed,
            content=predicted.fit.content,
        ) as page:
            add_scenes(page, scenes, np.ascontiguousarray(shown[:, top : top + height, left : left + width]))
            page.close({name: value for name, value in summary.items() if name != "futures"})


def padded(predicted: "Prediction", level: int) -> Any:
    """The clip's frames, and flat ones of this brightness where it has none."""
    import numpy as np

    missing = len(predicted.futures[0].frames) - len(predicted.clip)
    return np.pad(predicted.clip, ((0, missing), (0, 0), (0, 0), (0, 0)), constant_values=level)


def draw(folder: Path, predicted: "Prediction") -> None:
    """The strip, the video and the GIF: the clip with its true continuation, then the futures."""
    from sqair.commands.scenes import IN_VIDEO, rows_of, write_pictures
    from sqair.figures import Row

    futures = rows_of("future", predicted.futures)
    moving = [Row("clip", padded(predicted, MISSING)), *futures[:IN_VIDEO]]
    write_pictures(folder, "future", [Row("clip", predicted.clip), *futures], moving, predicted.observed)


# --- numbers


def impression(predicted: "Prediction") -> "dict[str, float | None]":
    """What the observed frames look like, as the futures explain them; compare it with the model's training data."""
    import numpy as np

    from sqair.tracking.typical import Impression

    gathered = Impression()
    for future in predicted.futures:
        for t in range(predicted.observed):
            error = float(np.square(future.frames[t] - predicted.clip[t] / 255.0).mean())
            gathered.add(predicted.clip[t], future.boxes[t], error)
    return gathered.numbers()


def numbers(predicted: "Prediction") -> dict[str, Any]:
    """Errors by horizon, the median over futures and of each, and where the objects of each future are."""
    import numpy as np

    errors = predicted.pixel_error
    return {
        "pixel_error": np.median(errors, axis=0).tolist() if errors.size else None,
        "futures": [
            {
                "pixel_error": error.tolist() if error.size else None,
                "counts": future.counts.tolist(),
                "positions": positions(future),
            }
            for future, error in zip(predicted.futures, errors, strict=True)
        ],
    }


def positions(scene: "Scene") -> dict[str, list[list[float] | None]]:
    """The centre of every identity in every frame, x and y in pixels of the clip; null where it is not in sight.

    Identities are numbered from 1 on, as on the page.
    """
    found: dict[str, list[list[float] | None]] = {}
    tracks = scene.tracks
    for frame, identity, (left, top, width, height) in zip(tracks.frame, tracks.id, tracks.box, strict=True):
        places = found.setdefault(str(identity + 1), [None] * tracks.frames)
        if left == left:
            places[frame] = [round(float(left + width / 2), 2), round(float(top + height / 2), 2)]
    return found


def describe(summary: dict[str, Any]) -> str:
    """What was predicted, for people."""
    lines = [f"{len(summary['futures'])} futures of {summary['frames']} frames after {summary['observe']} observed"]
    if errors := summary["pixel_error"]:
        first = f"pixel error {errors[0]:.4f} in the first predicted frame"
        lines.append(first + (f", {errors[-1]:.4f} {len(errors)} frames ahead" if len(errors) > 1 else ""))
    return "\n".join([*lines, "open index.html to look at them"])

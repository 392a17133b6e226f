"""What a model saw or dreamt, for pictures, files and pages; what commands that show it share.

Axes: T frames, K particles, Y, X, C frame.
"""

from collections.abc import Sequence
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt8
from numpy import ndarray

from sqair.baselines.air import AIR
from sqair.config import UserError
from sqair.data import Sequences
from sqair.figures import Row, strip, video
from sqair.generation import Scene
from sqair.model import SQAIR, Info, SequenceModel
from sqair.particles import draw_particles, run_particles
from sqair.report import PageObject, PageWriter
from sqair.training.checkpoint import load_model

IN_VIDEO = 4
"""Sequences side by side in a video, a GIF or a page at most."""


@eqx.filter_jit
def infer(model: SequenceModel, key: PRNGKeyArray, frames: Float[Array, "T Y X C"], particles: int) -> Info:
    """The most probable of K inferences of a sequence."""
    info = run_particles(model, draw_particles(model, key, particles, frames.shape[0]), frames)
    best = jnp.argmax(info.log_weight.sum(1))
    return jax.tree.map(lambda leaf: leaf[best], info)


def load_objects(name_or_folder: str) -> SQAIR | AIR:
    """A trained model whose latent variables are objects, which can be drawn."""
    model = load_model(name_or_folder)
    if not isinstance(model, SQAIR | AIR):
        raise no_objects(name_or_folder)
    return model


def no_objects(name_or_folder: str) -> UserError:
    """Why a model cannot be used where objects are to be shown."""
    return UserError(f"{name_or_folder} has no objects to show; use a model of the kinds sqair or air")


def rows_of(label: str, scenes: Sequence[Scene]) -> list[Row]:
    """A line of pictures for each scene: its frames and boxes, under the label and its number."""
    return [Row(f"{label} {i}", scene.frames, scene.boxes, scene.ids) for i, scene in enumerate(scenes, 1)]


def sequences_of(scenes: Sequence[Scene]) -> Sequences:
    """Scenes as `save_sequences` writes them: frames and, of a model that knows objects, counts, boxes and ids."""
    frames = np.stack([scene.frames for scene in scenes])
    frames = frames[..., 0] if frames.shape[-1] == 1 else frames
    if scenes[0].ids.shape[1] == 0:
        return Sequences(frames)
    truth = {name: np.stack([getattr(scene, name) for scene in scenes]) for name in ("counts", "boxes", "ids")}
    return Sequences(frames, **truth)


def write_pictures(folder: Path, stem: str, rows: Sequence[Row], moving: Sequence[Row], observed: int = 0) -> None:
    """stem.png with all rows; stem.mp4 and stem.gif with those that move, which are equally long."""
    strip(folder / f"{stem}.png", list(rows), observed=observed)
    for suffix in (".mp4", ".gif"):
        video(folder / f"{stem}{suffix}", list(moving), observed=observed)


def page_objects(scene: Scene, frame: int) -> list[PageObject]:
    """The objects of a frame as a page shows them."""
    now = scene.tracks.at(frame)
    slots = [int(np.flatnonzero(scene.ids[frame] == identity)[0]) for identity in now.id]
    return [
        PageObject(
            id=int(now.id[row]) + 1,
            box=now.box[row],
            where=now.where[row],
            presence=float(now.presence[row]),
            spread=float(now.spread[row]),
            glimpse=scene.glimpses[frame, slot],
            what=scene.what[frame, slot],
        )
        for row, slot in enumerate(slots)
    ]


def add_scenes(page: PageWriter, scenes: Sequence[Scene], clip: UInt8[ndarray, "T y x C"] | None = None) -> None:
    """All frames of equally long scenes onto a page, a panel and a group for each, the clip before them if given."""
    for t in range(len(scenes[0].frames)):
        pictures = [np.round(scene.frames[t] * 255).astype(np.uint8) for scene in scenes]
        first = [] if clip is None else [clip[t]]
        page.add_panels([*first, *pictures], [page_objects(scene, t) for scene in scenes])

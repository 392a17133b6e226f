"""Any source becomes tracks: the way that fits the model is chosen here."""

import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy import ndarray

from sqair.config import UserError
from sqair.data.camera import Camera, camera_of
from sqair.data.video import RATE, Clip, Frame, open_clips
from sqair.data.video_fit import Invert
from sqair.data.video_images import clip_of_array
from sqair.model import SequenceModel
from sqair.tracking.clips import PARTICLES, Watch, to_tracks
from sqair.tracking.full_frame import FullFrame
from sqair.tracks import Tracks
from sqair.tracks.checks import COLUMNS
from sqair.training.checkpoint import load_model, read_card


def watch(
    model: SequenceModel,
    clip: Clip,
    camera: Camera | None = None,
    *,
    particles: int = PARTICLES,
    lag: int | None = None,
    invert: Invert = "auto",
    seed: int = 0,
    show: Callable[[Frame], Frame] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Watch | FullFrame:
    """What follows a clip: the whole of it as one frame of the model, or, with a `camera`, its foreground in windows.

    With a camera, frames are told when it is known which tracks last, and its card tells what things look like; `lag`
    and `invert` are those of other models, and refused.
    """
    if camera is not None:
        if lag is not None or invert != "auto":
            raise UserError(
                "a model that was fitted to a camera brings its own lag, and sees things as it was fitted; leave --lag "
                "and --invert out"
            )
        return FullFrame(model, clip, camera, particles=particles, seed=seed, show=show, stop=stop)
    return Watch(model, clip, particles=particles, lag=lag, invert=invert, seed=seed, show=show, stop=stop)


def track(
    model: SequenceModel | str | Path,
    source: str | Path | Clip | ndarray,
    *,
    particles: int = PARTICLES,
    lag: int | None = None,
    invert: Invert = "auto",
    seed: int = 0,
    rate: float = RATE,
    camera: Camera | None = None,
) -> Tracks:
    """The tracks of one clip: a file, a folder or a glob of images, an address, an array (T,H,W) or (T,H,W,3).

    A model may be given by its name or folder; then one that `sqair fit` made brings its `camera` along.

    `particles` above 1 is a particle filter that looks `lag` frames ahead and tells uncertainty. `invert` turns dark
    things on light into what models know; auto decides by the first frames. `rate` is that of images and arrays. What
    had to be lived with, such as a missing end, comes as a warning.
    """
    clip = one_clip(source, rate)
    if isinstance(model, str | Path):
        camera = camera or camera_of(read_card(model))
        model = load_model(model)
    watched = watch(model, clip, camera, particles=particles, lag=lag, invert=invert, seed=seed)
    parts = [to_tracks(block, clip) for block in watched.blocks()]
    for note in clip.notes:
        warnings.warn(f"{clip.name}: {note}", stacklevel=2)
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS}
    return dataclasses.replace(parts[-1], **columns)


def one_clip(source: str | Path | Clip | ndarray, rate: float) -> Clip:
    """The clip that a source is; refuses one that holds several."""
    if isinstance(source, Clip):
        return source
    if isinstance(source, ndarray):
        return clip_of_array(source, "array", rate)
    clips = open_clips(source, rate=rate)
    if len(clips) > 1:
        raise UserError(
            f"{source} holds {len(clips)} clips; give one of those that sqair.data.video.open_clips returns"
        )
    return clips[0]

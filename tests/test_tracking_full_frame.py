"""Clips of a camera that a model was fitted to: subtracted, scaled, followed in windows, joined."""

import dataclasses

import jax
import numpy as np
import pytest

from sqair.config import ModelConfig, UserError
from sqair.data.background import Subtraction
from sqair.data.camera import Camera, Sizes
from sqair.data.cameras import Camera as MadeCamera
from sqair.tracking import FullFrame, track
from sqair.training.checkpoint import build, save_pretrained

FILM = MadeCamera("street", frames=11, size=(48, 64), seed=1)
CAMERA = Camera(Subtraction(), 24, FILM.size, (16, 16), 1, Sizes((3.0, 4.0, 5.0), (8.0, 9.0, 10.0)))
CONFIG = ModelConfig(image=(16, 16), glimpse=(8, 4), max_objects=2, what_size=3, width=8, discovery_bias=6.0)


@pytest.fixture(scope="module")
def model():
    """A model that has learnt nothing, and sees things everywhere; nobody doubts it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sqair.tracking.filter.MARGIN", np.inf)
        yield build(CONFIG, jax.random.key(0))


def test_every_frame_is_told_in_order_with_all_that_a_page_needs(model):
    """Frames wait for the joining, and none is lost; boxes lie in the clip's frame; pictures have the scaled size."""
    watched = FullFrame(model, FILM.clip(), CAMERA, show=lambda frame: frame)
    frames = [seen for block in watched.blocks() for seen in block]
    assert [seen.number for seen in frames] == list(range(FILM.frames))
    for number, seen in enumerate(frames):
        np.testing.assert_array_equal(seen.shown, FILM.frame(number))
        assert seen.fitted.shape == np.asarray(seen.found.canvas).shape == (24, 32, 1)
        assert len(seen.ids) == len(seen.box) == len(np.asarray(seen.found.glimpses)) == len(set(seen.ids.tolist()))
        assert (seen.box[:, :2] >= 0).all()
        assert (seen.box[:, :2] + seen.box[:, 2:] <= [64, 48]).all()
    assert sum(len(seen.ids) for seen in frames) > 0
    assert "windows of 16x16" in watched.describe()


def test_a_folder_brings_its_camera_along(model, tmp_path):
    """Given by name, a fitted model is tracked with as its card says: as with the camera given by hand."""
    save_pretrained(model, tmp_path / "fitted", training={"camera": CAMERA.to_card()})
    frames = np.stack([FILM.frame(number) for number in range(FILM.frames)])
    by_name, by_hand = track(tmp_path / "fitted", frames), track(model, frames, camera=CAMERA)
    assert by_name.frames == FILM.frames
    np.testing.assert_array_equal(by_name.box, by_hand.box)
    assert len(track(model, frames)) != len(by_name)  # the whole picture as one frame of the model


def test_a_clip_in_another_resolution_looks_the_same(model):
    """The picture has the height that the model was fitted with."""
    double = dataclasses.replace(FILM, size=(96, 128), frames=3)
    assert FullFrame(model, double.clip(), CAMERA).fit.image == (24, 32)


def test_stopping_tells_what_was_seen(model):
    """The frames before the stop, all of them."""
    asked = iter([False] * (FILM.frames - 1 + 4) + [True] * 100)  # the first reading asks, too
    watched = FullFrame(model, FILM.clip(), CAMERA, stop=lambda: next(asked))
    assert len(list(watched)) == 5


def test_many_particles_are_refused(model):
    """With one line."""
    with pytest.raises(UserError, match="one particle"):
        FullFrame(model, FILM.clip(), CAMERA, particles=3)

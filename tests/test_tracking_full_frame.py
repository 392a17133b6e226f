"""Clips of a camera that a model was fitted to: subtracted, scaled, followed in windows, joined."""

import dataclasses

import jax
import numpy as np
import pytest

from sqair.config import ModelConfig, UserError
from sqair.data.background import Subtraction
from sqair.data.camera import Camera, Sizes, scene_of
from sqair.data.cameras import Camera as MadeCamera
from sqair.tracking import FullFrame, track
from sqair.tracking.courses import WAIT
from sqair.tracking.things import CERTAIN
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


def test_boxes_end_where_the_foreground_of_the_clip_does(model):
    """In its own pixels, of which four are one of the picture; between two frames of the model there is none."""
    watched = FullFrame(model, FILM.clip(), CAMERA)
    foreground = np.zeros(FILM.size, bool)
    foreground[10:31, 7:16] = True
    outline = watched._outline(foreground)
    assert outline is not None
    np.testing.assert_allclose(outline(np.array([[4, 4, 4, 12]], np.float32)), [[3.5, 5, 4.5, 10.5]])
    assert watched._outline(None) is None


@pytest.mark.parametrize("background", ["none", "running"])
def test_the_foreground_of_every_frame_comes_along(background):
    """So that it is there when a frame is joined, of raw frames too: shadows are in their masks, but not in it."""
    drawn = build(dataclasses.replace(CONFIG, background=background), jax.random.key(0))
    watched = FullFrame(drawn, FILM.clip(), CAMERA)
    for _ in zip(range(3), watched._pictures(), strict=False):
        np.testing.assert_array_equal(watched._arrived[-1].foreground, watched.foreground.mask)
    first, *_, last = watched._arrived
    assert (first.foreground != last.foreground).any()


def test_a_clip_in_another_resolution_looks_the_same(model):
    """The picture has the height that the model was fitted with."""
    double = dataclasses.replace(FILM, size=(96, 128), frames=3)
    assert FullFrame(model, double.clip(), CAMERA).fit.image == (24, 32)


def test_a_small_clip_is_scaled_up(model):
    """So that things look as large as when the model was fitted; boxes are in the clip's own pixels."""
    small = dataclasses.replace(FILM, size=(18, 24), frames=3)
    watched = FullFrame(model, small.clip(), CAMERA)
    assert watched.fit.image == (24, 32)
    frames = list(watched)
    assert all(seen.fitted.shape == (24, 32, 1) for seen in frames)
    np.testing.assert_allclose(watched.fit.to_source(np.array([[0.0, 0.0, 32.0, 24.0]])), [[0, 0, 24, 18]])


def test_a_live_clip_does_not_wait_for_names(model):
    """Its frames are told as soon as it is known which tracks last."""
    live = dataclasses.replace(FILM.clip(), live=True)
    assert FullFrame(model, live, CAMERA).lag == CERTAIN - 1
    assert FullFrame(model, FILM.clip(), CAMERA).lag == CERTAIN - 1 + WAIT


def test_every_third_frame_is_followed_and_the_others_lie_between(model):
    """Boxes of those in both neighbours are interpolated; the last two frames have what the one before them had."""
    slow = dataclasses.replace(CAMERA, stride=3, subtraction=Subtraction(history=1, look="mask"))
    film = dataclasses.replace(FILM, frames=12)
    watched = FullFrame(model, film.clip(), slow, show=lambda frame: frame)
    frames = list(watched)
    assert watched.lag == (CERTAIN + WAIT) * 3 - 1
    assert [seen.number for seen in frames] == list(range(12))
    for number, seen in enumerate(frames):
        np.testing.assert_array_equal(seen.shown, film.frame(number))
    assert sum(len(seen.ids) for seen in frames) > 0
    for key in (0, 3, 6):
        before, after = frames[key], frames[key + 3]
        for step in (1, 2):
            mid = frames[key + step]
            assert set(mid.ids) == set(before.ids) & set(after.ids)
            for place, id in enumerate(mid.ids):
                old, new = before.box[before.ids == id][0], after.box[after.ids == id][0]
                np.testing.assert_allclose(mid.box[place], old + step / 3 * (new - old), rtol=1e-4, atol=1e-4)
    for last in frames[10:]:
        np.testing.assert_array_equal(np.sort(last.ids), np.sort(frames[9].ids))
    assert len(track(model, np.stack([film.frame(n) for n in range(12)]), camera=slow)) == sum(
        len(seen.ids) for seen in frames
    )


@pytest.mark.parametrize("given", [{"lag": 2}, {"invert": "no"}], ids=["lag", "invert"])
def test_what_a_camera_has_no_use_for_is_refused(model, given):
    """With one line."""
    with pytest.raises(UserError, match="leave --lag and --invert out"):
        track(model, FILM.clip(), camera=CAMERA, **given)


def test_a_clip_that_is_unlike_the_camera_is_remarked_upon(model):
    """Once, after the last reading began; not where the card does not know the scene, nor for the clip itself."""
    known = dataclasses.replace(CAMERA, scene=scene_of(FILM.frame(0)))

    def notes(film: MadeCamera, camera: Camera) -> list[str]:
        clip = dataclasses.replace(film, frames=3).clip()
        list(FullFrame(model, clip, camera))
        return clip.notes

    assert notes(FILM, known) == notes(FILM, CAMERA) == []
    other = "it shows another background than the clip that the model was fitted to; fit a model to this camera"
    assert notes(dataclasses.replace(FILM, scene="crossings", seed=2), known) == [other]
    double = dataclasses.replace(FILM, size=(96, 128))
    (note,) = notes(double, CAMERA)
    assert note.startswith("it shows 128x96 pixels, not the 64x48 of the clip that the model was fitted to; if it is")


def test_stopping_tells_what_was_seen(model):
    """The frames before the stop, all of them."""
    asked = iter([False] * (FILM.frames - 1 + 4) + [True] * 100)  # the first reading asks, too
    watched = FullFrame(model, FILM.clip(), CAMERA, stop=lambda: next(asked))
    assert len(list(watched)) == 5


def test_many_particles_are_refused(model):
    """With one line."""
    with pytest.raises(UserError, match="one particle"):
        FullFrame(model, FILM.clip(), CAMERA, particles=3)

"""The made cameras: the truth is where things are, and the same camera is the same everywhere."""

import dataclasses

import numpy as np
import pytest

from sqair.config import UserError
from sqair.data.cameras import NOISE, Camera, write_camera
from sqair.data.scenery import light, smooth_noise
from sqair.data.video import open_clips
from sqair.data.walkers import choose_looks, draw_walker
from sqair.evaluation.tracking import box_iou, tracking_metrics
from sqair.tracks import read_truth

SMALL = Camera(frames=40, size=(96, 128))
SCENES = pytest.mark.parametrize("camera", [SMALL, dataclasses.replace(SMALL, scene="crossings")], ids=["street", "x"])


@SCENES
def test_a_camera_is_what_its_values_say(camera):
    """Any frame can be made alone; another seed is another clip; colour and grey show the same."""
    again, other = (dataclasses.replace(camera, seed=seed) for seed in (0, 1))
    assert (again.frame(17) == camera.frame(17)).all()
    assert (other.frame(17) != camera.frame(17)).mean() > 0.9
    assert not (camera.frame(17) == camera.frame(18)).all()
    assert camera.frame(0).shape == (96, 128)
    coloured = dataclasses.replace(camera, colour=True).frame(17)
    assert coloured.shape == (96, 128, 3)
    grey = coloured @ np.array([0.299, 0.587, 0.114])
    assert np.abs(grey - camera.frame(17)).mean() < 2 * NOISE


@SCENES
def test_truth_is_where_the_picture_differs_from_the_empty_scene(camera):
    """Without noise and light: outside of boxes and their shadows all is scene; in every box somebody is."""
    scene = camera._ground @ np.array([0.299, 0.587, 0.114], np.float32)
    hidden = 0
    for number in range(0, camera.frames, 5):
        seen = camera.frame(number) / 255 / light(number, camera.seed)
        differs = np.abs(seen - scene) > 8 * NOISE / 255
        truth, rest = camera.boxes(number), differs.copy()
        for box, visible in zip(truth.boxes.astype(int), truth.visible, strict=True):
            left, top, width, height = box.tolist()
            hidden += visible >= 0.25 and differs[top : top + height, left : left + width].mean() < 0.2
            rest[max(0, top - 1) : top + height + 1, max(0, left - 1) : left + width + 1] = False
            rest[top + height * 4 // 5 : top + height + 3, left : left + 2 * height] = False  # its shadow
        assert rest.mean() < 0.002
    assert hidden <= 1


def test_boxes_are_amodal_and_tight():
    """A sprite's box holds all pixels that are half covered, touching one on each side, wherever the frame ends."""
    rng = np.random.default_rng(0)
    for x in (-3.2, 10.0, 25.7):
        sprite = draw_walker(choose_looks(rng, 30.0), x, 40.0, 5.0, 1.0)
        left, top, width, height = sprite.box
        rows, columns = np.nonzero(sprite.alpha >= 0.5)
        assert (columns.min() + sprite.left, rows.min() + sprite.top) == (left, top)
        assert (np.ptp(columns) + 1, np.ptp(rows) + 1) == (width, height)
        assert abs(left + width / 2 - x) < 6
        assert 24 < height < 36
        border = np.concatenate([sprite.alpha[[0, -1]].ravel(), sprite.alpha[:, [0, -1]].ravel()])
        assert border.max() == 0


@SCENES
def test_people_come_and_go(camera):
    """Identities are numbered in the order of coming, move smoothly, and never more are there than was asked for."""
    truth = dataclasses.replace(camera, frames=200).truth()
    tracks = truth.tracks
    usual = 4 if camera.scene == "street" else 8
    assert 1 <= tracks.counts.max() <= usual
    first = [tracks.of(int(id)).frame[0] for id in tracks.ids]
    assert max(first) > 0
    assert min(tracks.of(int(id)).frame[-1] for id in tracks.ids) < 199
    for id in tracks.ids:
        one = tracks.of(int(id))
        whole = ~truth.ignored[np.isin(tracks.id, [id])]
        centres = (one.box[:, :2] + one.box[:, 2:] / 2)[whole]
        assert (np.diff(one.frame) == 1).all()
        assert np.abs(np.diff(centres, axis=0)).max(initial=0) < 6


def test_crossings_are_crossed():
    """Boxes overlap far more often than on the street, and later ones are drawn over earlier ones."""
    shares = []
    for scene in ("street", "crossings"):
        camera = Camera(scene, frames=200)
        boxes = [camera.boxes(t).boxes for t in range(0, 200, 5)]
        overlaps = [box_iou(each, each) for each in boxes]
        shares.append(np.mean([(np.triu(each, 1) > 0.1).any() for each in overlaps]))
    assert shares[1] > 0.15
    assert shares[1] > shares[0]


def test_scale_is_the_size_of_people():
    heights = []
    for scale in (0.5, 1.0, 2.0):
        truth = Camera(frames=20, scale=scale).truth()
        heights.append(np.median(truth.tracks.box[~truth.ignored, 3]))
    assert heights[1] / heights[0] == pytest.approx(2, rel=0.2)
    assert heights[2] / heights[1] == pytest.approx(2, rel=0.2)


def test_truth_of_the_clip_is_perfect_by_our_own_metrics():
    truth = SMALL.truth()
    found = tracking_metrics(truth.tracks, truth.tracks.select(~truth.ignored), ignored=truth.ignored)
    assert (found["mota"], found["idf1"], found["id_switches"]) == (1.0, 1.0, 0)


def test_written_as_a_video_with_truth(tmp_path):
    """What is read back is the clip, up to what a codec loses, and the same truth."""
    camera = dataclasses.replace(SMALL, frames=8, colour=True)
    write_camera(camera, tmp_path)
    (clip,) = open_clips(tmp_path / "clip.mp4")
    assert (clip.size, clip.rate) == (camera.size, camera.rate)
    frames = list(clip)
    assert len(frames) == 8
    assert max(np.abs(frame.astype(int) - camera.frame(t)).mean() for t, frame in enumerate(frames)) < 5
    truth, written = camera.truth(), read_truth(tmp_path / "gt.txt")
    assert np.allclose(written.tracks.box, truth.tracks.box, atol=1e-3)
    assert (written.tracks.id == truth.tracks.id).all()
    assert (written.ignored == truth.ignored).all()


def test_the_light_drifts_slowly():
    values = np.array([light(t, 0) for t in range(2000)])
    assert np.ptp(values) > 0.05
    assert np.abs(np.diff(values)).max() < 0.001


def test_noise_is_smooth():
    """From pixel to pixel it changes by no more than the grid's slope."""
    noise = smooth_noise(np.random.default_rng(0), (40, 50), 10.0)
    assert noise.shape == (40, 50)
    assert max(np.abs(np.diff(noise, axis=axis)).max() for axis in (0, 1)) < 0.6
    assert noise.std() > 0.3


@pytest.mark.parametrize("wrong", [{"frames": 0}, {"size": (8, 100)}, {"scale": 0.0}])
def test_cameras_that_cannot_be(wrong):
    with pytest.raises(UserError):
        Camera(**wrong)


def test_a_video_needs_even_sides(tmp_path):
    with pytest.raises(UserError, match="even"):
        write_camera(Camera(frames=2, size=(33, 40)), tmp_path)
    assert list(tmp_path.iterdir()) == []

"""Windows over a picture, and one identity for what several of them see."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqair.data.cameras import Camera
from sqair.evaluation.tracking import tracking_metrics
from sqair.objects import Objects
from sqair.tracking.boxes import iou
from sqair.tracking.filter import Found
from sqair.tracking.full_frame import views_of
from sqair.tracking.joining import Joiner, Views, grouped
from sqair.tracking.things import CERTAIN, Track
from sqair.tracking.windows import Grid
from sqair.tracks import Tracks

SIDES = st.tuples(st.integers(8, 90), st.integers(8, 90))
WINDOWS = st.tuples(st.integers(8, 32), st.integers(8, 32))
NOTHING = Views(np.zeros(0, int), np.zeros(0, int), np.zeros((0, 4), np.float32), np.zeros(0), np.zeros(0, bool))


def one(box, window=0, identity=0):
    """A single view in the middle of its window."""
    return Views(np.array([window]), np.array([identity]), np.array([box], np.float32), np.ones(1), np.ones(1, bool))


def told(frames):
    """The tracks of each frame."""
    joiner = Joiner()
    early = [joiner.add(views) for views in frames]
    assert [telling is None for telling in early] == [number < CERTAIN - 1 for number in range(len(frames))]
    return [telling.track.tolist() for telling in [*early[CERTAIN - 1 :], *joiner.finish()]]


@pytest.mark.parametrize("speed", [2.0, 0.0])
def test_who_went_out_is_not_looked_for(speed):
    """Somebody vanishes at the edge, and another appears there: it is the same only if the first was not going out."""
    joiner = Joiner((40, 100))
    frames = [one((74 + speed * frame, 10, min(12, 26 - speed * frame), 20)) for frame in range(10)]
    later = one((74 + speed * 9, 10, min(12, 26 - speed * 9), 20), identity=7)
    told = [joiner.add(views) for views in [*frames, *[NOTHING] * 3, *[later] * 4]]
    numbers = [telling.track.tolist() for telling in [*told[CERTAIN - 1 :], *joiner.finish()]]
    assert numbers[0] == [0]
    assert numbers[-1] == [int(speed > 0)]


@given(SIDES, WINDOWS)
def test_windows_cover_the_picture_and_overlap_by_half(size, window):
    """Every pixel is in a window, and neighbours share half of one."""
    corners = Grid(size, window).corners
    for axis, side, part in ((1, size[0], window[0]), (0, size[1], window[1])):
        starts = np.unique(corners[:, axis])
        if side > part:
            assert starts[0] == 0
            assert starts[-1] == side - part
            assert np.diff(starts).max(initial=0) <= part / 2 + 1  # they lie on whole pixels
        else:
            assert len(starts) == 1
            assert starts[0] <= 0
            assert starts[0] + part >= side


@given(SIDES, WINDOWS)
def test_windows_that_draw_what_they_see_give_the_picture_back(size, window):
    """Cutting and assembling are inverse, also where a picture is smaller than a window."""
    frames = np.random.default_rng(0).integers(0, 256, (2, *size, 1), dtype=np.uint8)
    grid = Grid(size, window)
    cut = grid.cut(frames)
    assert cut.shape == (len(grid.corners), 2, *window, 1)
    np.testing.assert_array_equal(grid.assembled(cut[:, 1]), frames[1])


def test_overlap_in_closed_form():
    """A quarter of each of two equal squares is a seventh of their union."""
    np.testing.assert_allclose(iou(np.array([[0.0, 0, 2, 2]]), np.array([[1.0, 1, 2, 2]])), [[1 / 7]])


def test_boxes_of_one_window_are_never_one_thing():
    """However much they overlap; those of two windows are, and the best view leads."""
    box = np.array([[0, 0, 10, 20], [1, 0, 10, 20], [0.5, 0, 10, 20]], np.float32)
    views = Views(np.array([0, 0, 1]), np.array([0, 1, 0]), box, np.array([0.5, 0.6, 0.9]), np.ones(3, bool))
    groups = grouped(views)
    assert sorted(map(len, groups)) == [1, 2]
    assert max(groups, key=len)[0] == 2


def test_a_part_that_is_cut_off_belongs_to_the_whole():
    """A window that sees a tenth of a thing at its edge adds no second thing."""
    box = np.array([[10, 10, 20, 40], [28, 10, 2, 40]], np.float32)
    views = Views(np.array([0, 1]), np.array([0, 0]), box, np.array([0.9, 0.0]), np.array([True, False]))
    assert grouped(views) == [[0, 1]]


def test_what_flickers_is_not_told():
    """A thing of two frames has no track; one of three has, from its first frame on."""
    assert told([one((0, 0, 9, 9)), one((0, 0, 9, 9)), NOTHING, NOTHING]) == [[], [], [], []]
    assert told([one((0, 0, 9, 9))] * 3 + [NOTHING]) == [[0], [0], [0], []]


def test_identity_passes_from_window_to_window():
    """One frame in which both see it is enough."""
    box = [(x, 0, 10, 10) for x in range(0, 60, 4)]
    frames = [one(b, 0, 5) for b in box[:7]]
    both = Views(np.array([0, 1]), np.array([5, 2]), np.array([box[7]] * 2, np.float32), np.ones(2), np.ones(2, bool))
    assert told([*frames, both, *(one(b, 1, 2) for b in box[8:])]) == [[0]] * len(box)


def test_a_thing_that_no_window_knows_is_expected_where_it_was_going():
    """After a gap of four frames, and by a window that gives it another name; elsewhere it is another thing."""
    frames = [one((8 * t, 0, 10, 10), identity=0) for t in range(5)]
    later = [one((8 * t, 0, 10, 10), identity=9) for t in range(9, 14)]
    assert told([*frames, *[NOTHING] * 4, *later]) == [[0]] * 5 + [[]] * 4 + [[0]] * 5
    elsewhere = [one((8 * t, 50, 10, 10), identity=9) for t in range(9, 14)]
    assert told([*frames, *[NOTHING] * 4, *elsewhere]) == [[0]] * 5 + [[]] * 4 + [[1]] * 5


def several(*boxes, identities):
    """Views of one window, all in its middle."""
    count = len(boxes)
    box = np.array(boxes, np.float32)
    return Views(np.zeros(count, int), np.array(identities), box, np.ones(count), np.ones(count, bool))


def meeting(*, swapped: bool):
    """Two go towards each other, are one wide object for three frames, and part; the window may mix them up then."""
    way = [((4 * t, 0, 10, 20), (80 - 4 * t, 0, 10, 20)) for t in range(21)]
    apart, together = [0, 1], (36.0, 0, 18, 20)
    after = [1, 0] if swapped else [0, 1]
    before = [several(*boxes, identities=apart) for boxes in way[:9]]
    return [*before, *[one(together, identity=0)] * 3, *(several(*boxes, identities=after) for boxes in way[12:])]


@pytest.mark.parametrize("swapped", [False, True])
def test_two_who_meet_and_part_go_on_as_they_came(swapped):
    """In the order of views the first is always the one that goes right: it has one track, whatever its window says."""
    tracks = told(meeting(swapped=swapped))
    assert tracks == [[0, 1]] * 21


def test_a_box_of_two_things_changes_neither_size_nor_speed_much():
    track = Track(0, np.array([5.0, 10.0]), np.array([10.0, 20.0]))
    for t in range(6):
        track.seen(np.array([4 * t, 0, 10, 20], np.float32), set())
    np.testing.assert_allclose(track.expected, [29, 10], atol=0.5)
    track.seen(np.array([24, 0, 40, 20], np.float32), set())
    np.testing.assert_allclose(track.size, [10, 20], rtol=0.06)
    np.testing.assert_allclose(track.speed, [4, 0], atol=0.5)


def test_a_view_at_an_inner_edge_begins_nothing():
    """Another window sees it better, or it is none."""
    assert told([one((0, 0, 9, 9))._replace(born=np.zeros(1, bool))] * 5) == [[]] * 5


def seen_by_perfect_windows(boxes, ids, grid):
    """Of each true box what lies in a window, if that is a quarter of it; identities are those of the truth."""
    found = np.full((len(grid.corners), max(1, len(boxes)), 4), np.nan, np.float32)
    for m, corner in enumerate(grid.corners):
        low, high = (np.clip(b - corner, 0, grid.window[::-1]) for b in (boxes[:, :2], boxes[:, :2] + boxes[:, 2:]))
        enough = np.prod(high - low, 1) >= 0.25 * np.prod(boxes[:, 2:], 1)
        found[m, : len(boxes)] = np.where(enough[:, None], np.concatenate([low, high - low], 1), np.nan)
    there = np.asarray(np.isfinite(found).all(-1), np.float32)
    named = np.broadcast_to(np.append(ids, -1)[: found.shape[1]], there.shape)
    objects = Objects(*map(jnp.asarray, (np.zeros((*there.shape, 1)), np.zeros(found.shape), there, named)))
    return Found(objects, found, found, there, there, np.zeros(len(found)), None, None)


@pytest.mark.parametrize("window", [(64, 64), (48, 80)])
def test_perfect_windows_give_perfect_tracks(window):
    """At a crowded crossing boxes of windows, joined, are the truth again: nobody is lost, doubled or swapped."""
    camera = Camera("crossings", frames=80, size=(120, 160), seed=3)
    truth, grid, joiner = camera.truth(), Grid(camera.size, window), Joiner(camera.size)
    frames = [camera.boxes(number) for number in range(camera.frames)]
    views = [views_of(seen_by_perfect_windows(now.boxes, now.ids, grid), grid)[1] for now in frames]
    rows = [row for each in views if (row := joiner.add(each)) is not None] + joiner.finish()
    frame = np.repeat(np.arange(camera.frames), [len(row.track) for row in rows])
    box = np.concatenate([row.box for row in rows])
    ids = np.concatenate([row.track for row in rows])
    metrics = tracking_metrics(truth.tracks, Tracks.make(frame, ids, box, frames=camera.frames), ignored=truth.ignored)
    assert metrics["mota"] > 0.97
    assert metrics["idf1"] > 0.97
    assert metrics["id_switches"] == 0

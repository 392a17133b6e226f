"""Boxes from the foreground, boxes that several share, and boxes that do not jump."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqair.tracking.joining import HIDDEN, OWN, Joiner, Views, placed
from sqair.tracking.outlines import outlined
from sqair.tracking.things import INWARD, OUTWARD, PAST, steadied

SIZE = (60, 80)
WAY = [((5 + 1.5 * t, 10, 10, 24), (50 - 1.5 * t, 12, 10, 24)) for t in range(30)]
"""Two walkers in all frames."""


def rectangle(left, top, width, height):
    """Foreground of that box alone."""
    mask = np.zeros(SIZE, bool)
    mask[top : top + height, left : left + width] = True
    return mask


def disc(x, y, radius):
    """Foreground of all pixels whose centre is at most so far from a point."""
    rows, columns = np.mgrid[: SIZE[0], : SIZE[1]] + 0.5
    return np.hypot(columns - x, rows - y) <= radius


def outline(mask, *boxes):
    """Outlines as a list."""
    return outlined(np.array(boxes, np.float32), mask).tolist()


@given(st.floats(-2, 2), st.floats(-2, 2), st.floats(0.9, 1.25), st.floats(0.9, 1.25))
def test_a_box_that_is_about_right_becomes_exact(right, down, wider, taller):
    """A blurred glimpse is a little off and a little too large or too small; the rectangle has one box."""
    about = (30 + right - 8 * (wider - 1), 20 + down - 10 * (taller - 1), 16 * wider, 20 * taller)
    assert outline(rectangle(30, 20, 16, 20), about) == [[30, 20, 16, 20]]


def test_a_disc_has_the_box_of_its_pixels():
    assert outline(disc(40, 30, 8), (33, 21, 16, 18)) == [[32, 22, 16, 16]]


def test_two_objects_over_one_blob_share_it_where_both_are_as_near():
    """Equal ones in the middle; of two unequal ones each has its part, in units of its size."""
    blob = rectangle(20, 20, 24, 20)
    assert outline(blob, (20, 20, 12, 20), (32, 20, 12, 20)) == [[20, 20, 12, 20], [32, 20, 12, 20]]
    assert outline(blob, (20, 20, 16, 20), (36, 20, 8, 20)) == [[20, 20, 16, 20], [36, 20, 8, 20]]
    assert outline(blob, (20, 20, 12, 20)) == [[20, 20, 14, 20]]  # alone it may reach a little beyond, not farther


def test_where_there_is_no_foreground_the_object_knows_best():
    """Nothing at all, or a speck."""
    assert outline(np.zeros(SIZE, bool), (10, 10, 12, 20)) == [[10, 10, 12, 20]]
    assert outline(rectangle(12, 12, 2, 3), (10, 10, 12, 20)) == [[10, 10, 12, 20]]
    assert outline(rectangle(0, 0, 80, 60), (90, 10, 12, 20)) == [[90, 10, 12, 20]]  # beyond the frame


def test_pieces_beyond_the_box_are_somebody_elses():
    """One that only touches what lies around it, beside the thing itself; a piece within the box belongs to it."""
    thing, beside = rectangle(30, 20, 10, 20), rectangle(41, 20, 10, 20)
    assert outline(thing | beside, (30, 20, 10.5, 20)) == [[30, 20, 10, 20]]
    assert outline(rectangle(30, 20, 10, 12) | rectangle(33, 34, 4, 6), (30, 20, 10, 20)) == [[30, 20, 10, 20]]


@pytest.mark.parametrize(("blob", "box"), [((40, 20, 10, 20), (30, 20, 10, 20)), ((28, 40, 24, 10), (30, 10, 20, 30))])
def test_who_is_not_in_the_foreground_does_not_take_what_lies_beside(blob, box):
    assert outline(rectangle(*blob), box) == [list(box)]


def test_outlines_end_at_the_frame():
    assert outline(rectangle(0, 40, 9, 20), (-4, 38, 12, 30)) == [[0, 40, 9, 20]]


# --- shared boxes


@pytest.mark.parametrize("off", [-3.0, 0.0, 3.0])
def test_things_that_share_a_box_fill_it(off):
    """The left one begins where the box does and the right one ends there, wherever they were expected."""
    things = np.array([[10.0 + off, 0, 10, 20], [18 + off, 2, 10, 18]])
    places = placed(things, np.array([11, 0, 16, 20], np.float32))
    np.testing.assert_allclose(places, [[16, 10], [22, 11]])


def test_who_is_within_another_is_somewhere_in_its_box():
    """Where it is expected, if that is in it; one that is larger than the box has its middle."""
    things = np.array([[10.0, 0, 20, 30], [14, 5, 6, 10], [28, 5, 6, 10], [0, 0, 90, 90]])
    places = placed(things[:2], np.array([10, 0, 20, 30], np.float32))
    np.testing.assert_allclose(places, [[20, 15], [17, 10]])
    places = placed(things[[0, 3]], np.array([10, 0, 20, 30], np.float32))
    np.testing.assert_allclose(places, [[20, 15]] * 2)


def views(*boxes):
    """Those of one window that names them in their order."""
    count = len(boxes)
    box = np.array(boxes, np.float32).reshape(-1, 4)
    return Views(np.zeros(count, int), np.arange(count), box, np.ones(count), np.ones(count, bool))


def joined(frames):
    """What is told of all frames."""
    joiner = Joiner()
    early = [joiner.add(each) for each in frames]
    return [told for told in early if told is not None] + joiner.finish()


def passing(together):
    """Two who pass each other. A model draws one object around both while they touch, or it misses who is behind."""
    frames = []
    for first, second in WAY:
        if abs(first[0] - second[0]) >= (10 if together else 4):
            frames.append(views(first, second))
        else:
            low, high = min(first[0], second[0]), max(first[0], second[0]) + 10
            frames.append(views((low, 10, high - low, 26) if together else first))
    return frames


@pytest.mark.parametrize("together", [True, False])
def test_two_who_are_drawn_as_one_keep_their_boxes(together):
    """Both are told all the time under their names, each in its own size, near where it truly is."""
    frames = passing(together)
    assert sum(len(each.box) == 1 for each in frames) == (7 if together else 3)
    for truth, told in zip(np.array(WAY), joined(frames), strict=True):
        assert told.track.tolist() == [0, 1]
        np.testing.assert_allclose(told.box[:, 2:], truth[:, 2:], rtol=0.2)
        np.testing.assert_allclose(told.box[:, :2], truth[:, :2], atol=3)


def test_those_who_share_a_box_have_its_view():
    """So that a picture of them can be shown."""
    views_told = [told.view.tolist() for told in joined(passing(True))]
    assert [0, 0] in views_told
    assert [0, 1] in views_told


def test_a_part_of_a_thing_is_not_hidden_by_it():
    """An object inside another for all of its life is a part of it: it is told neither then nor when it is gone."""
    both, alone = views((0, 0, 20, 40), (5, 5, 10, 20)), views((0, 0, 20, 40))
    tracks = [told.track.tolist() for told in joined([both] * 8 + [alone] * 5)]
    assert tracks == [[0]] * 13


def test_who_was_apart_is_told_inside_another_too():
    """Two who were seen apart for long enough are two, however much one covers the other."""
    apart, inside = views((0, 0, 20, 40), (40, 5, 10, 20)), views((0, 0, 20, 40), (5, 5, 10, 20))
    between = [views((0, 0, 20, 40), (40 - 5 * step, 5, 10, 20)) for step in range(1, 7)]
    count = [len(told.track) for told in joined([apart] * OWN + between + [inside] * 5)]
    assert count == [2] * (OWN + 11)


def test_of_two_that_cover_each_other_one_is_told():
    """Nobody vanishes for being seen twice."""
    twice = views((0, 0, 20, 40), (1, 1, 20, 38))
    assert [told.track.tolist() for told in joined([twice] * 6)] == [[0]] * 6


def test_nobody_is_hidden_for_ever():
    """Two who stand side by side, one of whom vanishes behind the other."""
    apart, one = views((0, 0, 10, 24), (10, 0, 10, 24)), views((0, 0, 20, 24))
    count = [len(told.track) for told in joined([apart] * 8 + [one] * (HIDDEN + 5))]
    assert count == [2] * (8 + HIDDEN) + [1] * 5


# --- steady boxes


def moving(count=PAST + 1):
    """A box that moves and stays as large."""
    frames = np.arange(count)
    return frames, np.stack([10 + 3.0 * frames, 20 - frames, 0 * frames + 12, 0 * frames + 30], 1).astype(np.float32)


def test_what_moves_evenly_stays_as_it_is():
    frames, boxes = moving()
    for place in range(len(frames)):
        np.testing.assert_allclose(steadied(frames, boxes, place), boxes[place], rtol=1e-5)


def test_a_lost_head_and_an_arm_too_much_are_put_right():
    """As far as is allowed: heights hardly change, widths may."""
    frames, boxes = moving()
    wrong = boxes.copy()
    wrong[6] += (0, 8, 9, -8)
    slack = INWARD[0] * 12, OUTWARD[0] * 12
    left, top, width, height = steadied(frames, wrong, 6)
    assert abs(top - boxes[6, 1]) < 1
    assert abs(top + height - boxes[6, 1] - 30) < 1.6
    assert 12 <= width <= 12 + sum(slack) + 0.5
    assert abs(left - boxes[6, 0]) <= slack[0] + 0.5


def test_two_boxes_do_not_tell_which_is_wrong():
    frames, boxes = moving(2)
    boxes[1, 3] = 10
    np.testing.assert_array_equal(steadied(frames, boxes, 1), boxes[1])

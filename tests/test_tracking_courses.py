"""Who is who after a meeting."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqair.tracking.boxes import iou
from sqair.tracking.courses import AFTER, GONE, LIKE, WAIT, Course, Namer
from sqair.tracking.joining import Told

SIZE = (120, 200)


@pytest.fixture
def evenly(monkeypatch):
    """People are known to walk evenly, from the first frame on."""
    monkeypatch.setattr("sqair.tracking.courses.UNKNOWN", (0.001,) * 3)


def walker(x, y, speed, frames, width=12.0, height=30.0):
    """Boxes of somebody who goes straight on, cut off by the edges of the picture; None where nothing is left."""
    boxes = {}
    for frame in frames:
        left, right = np.clip([x + speed * frame, x + speed * frame + width], 0, SIZE[1])
        if right - left >= 1:
            boxes[frame] = np.array([left, y, right - left, height], np.float32)
    return boxes


def told(tracks):
    """What a joiner would tell, frame by frame, of tracks by number."""
    last = max(frame for boxes in tracks.values() for frame in boxes)
    frames = []
    for frame in range(last + 1):
        here = [(number, boxes[frame]) for number, boxes in tracks.items() if frame in boxes]
        numbers = np.array([number for number, _ in here], np.int64)
        boxes = np.array([box for _, box in here], np.float32).reshape(-1, 4)
        frames.append(Told(numbers, np.arange(len(here)), boxes))
    return frames


def named(frames, wait=WAIT):
    """What is told in the end; every frame but the last ones comes `wait` frames later."""
    namer = Namer(SIZE, wait)
    early = [namer.add(frame) for frame in frames]
    assert [telling is None for telling in early] == [number < wait for number in range(len(frames))]
    return [*(telling for telling in early if telling is not None), *namer.finish()]


def names_of(tellings, truth):
    """The names under which somebody goes, by the box that is nearest to its own in each frame."""
    found = {}
    for frame, box in truth.items():
        telling = tellings[frame]
        found[frame] = int(telling.track[np.abs(telling.box - box).sum(1).argmin()])
    return found


def exchanged(one, other, since):
    """Two tracks that were mixed up from a frame on."""
    return tuple(
        {frame: (a if frame < since else b)[frame] for frame in {**a, **b} if frame in (a if frame < since else b)}
        for a, b in ((one, other), (other, one))
    )


FRAMES = range(70)
RIGHT, LEFT = walker(10, 40, 1.5, FRAMES), walker(130, 44, -1.5, FRAMES)
"""They are in the same place in frame 40."""


@pytest.mark.usefixtures("evenly")
def test_each_goes_on_as_it_came():
    """Numbers are mixed up while the two cover each other: names are not, and not in the meeting either."""
    tellings = named(told(dict(enumerate(exchanged(RIGHT, LEFT, since=41)))))
    for truth in (RIGHT, LEFT):
        assert len(set(names_of(tellings, truth).values())) == 1


@pytest.mark.usefixtures("evenly")
def test_who_was_not_mixed_up_keeps_its_name():
    tellings = named(told({0: RIGHT, 1: LEFT}))
    assert [telling.track.tolist() for telling in tellings] == [[0, 1]] * len(FRAMES)
    for frame, telling in enumerate(tellings):
        np.testing.assert_array_equal(telling.box, [RIGHT[frame], LEFT[frame]])


@pytest.mark.usefixtures("evenly")
def test_who_walks_beside_another_keeps_its_name():
    """Both go the same way, one faster: they are told apart by their speeds."""
    slow, fast = walker(60, 40, 0.8, FRAMES), walker(10, 44, 2.2, FRAMES)
    tellings = named(told(dict(enumerate(exchanged(slow, fast, since=37)))))
    for truth in (slow, fast):
        assert len(set(names_of(tellings, truth).values())) == 1


@pytest.mark.usefixtures("evenly")
def test_misled_boxes_follow_the_course():
    """Where two cover each other a tracker has one box for both: each is told in its own size, where it should be."""
    mixed = {0: dict(RIGHT), 1: dict(LEFT)}
    together = [frame for frame in FRAMES if iou(RIGHT[frame][None], LEFT[frame][None])[0, 0] > 0]
    for frame in together:
        low = np.minimum(RIGHT[frame][:2], LEFT[frame][:2])
        high = np.maximum(RIGHT[frame][:2] + RIGHT[frame][2:], LEFT[frame][:2] + LEFT[frame][2:])
        mixed[0][frame] = mixed[1][frame] = np.concatenate([low, high - low])
    tellings = named(told(mixed))
    for frame in together:
        for truth in (RIGHT, LEFT):
            assert iou(truth[frame][None], tellings[frame].box).max() >= LIKE - 0.05


@pytest.mark.usefixtures("evenly")
def test_who_is_hidden_is_told_where_it_should_be():
    """One of two is not seen while they cover each other; it has the view of the other then."""
    hidden = [frame for frame in FRAMES if iou(RIGHT[frame][None], LEFT[frame][None])[0, 0] > 0.3]
    seen = {frame: box for frame, box in LEFT.items() if frame not in hidden}
    tellings = named(told({0: RIGHT, 1: seen}))
    for frame in hidden:
        assert tellings[frame].track.tolist() == [0, 1]
        assert tellings[frame].view.tolist() == [0, 0]
        np.testing.assert_allclose(tellings[frame].box[1], LEFT[frame], atol=0.5)


@pytest.mark.usefixtures("evenly")
def test_without_waiting_names_are_found_again_from_then_on():
    """A live clip is told at once; the two have their names again when they have been apart for a while."""
    tellings = named(told(dict(enumerate(exchanged(RIGHT, LEFT, since=41)))), wait=0)
    names = names_of(tellings, RIGHT)
    apart = next(frame for frame in range(41, 70) if iou(RIGHT[frame][None], LEFT[frame][None])[0, 0] == 0)
    assert {names[frame] for frame in range(30)} == {0}
    assert {names[frame] for frame in range(apart + AFTER, 70)} == {0}
    assert names[apart] == 1


@pytest.mark.usefixtures("evenly")
def test_who_vanished_in_a_meeting_comes_back():
    """A joiner has lost one of two, and found it again as somebody new."""
    gone = {frame: box for frame, box in LEFT.items() if frame < 38}
    back = {frame: box for frame, box in LEFT.items() if frame > 45}
    tellings = named(told({0: RIGHT, 1: gone, 2: back}))
    assert set(names_of(tellings, gone).values()) == set(names_of(tellings, back).values()) == {1}


@pytest.mark.usefixtures("evenly")
def test_who_comes_in_where_another_goes_out_is_another():
    """One track ends at an edge, the next begins there: the joiner took them for one."""
    out = walker(150, 40, 1.5, range(40))
    into = {frame: box for frame, box in walker(265, 40, -1.5, range(90)).items() if frame not in out}
    tellings = named(told({0: out | into}))
    assert set(names_of(tellings, {frame: out[frame] for frame in range(20)}).values()) == {0}
    assert set(names_of(tellings, {frame: into[frame] for frame in range(60, 90)}).values()) == {1}


@pytest.mark.usefixtures("evenly")
def test_who_walks_along_an_edge_stays():
    """The lower edge touches it for a while; it goes on as before."""
    boxes = walker(10, 88, 1.5, range(80))
    touching = {frame: box + np.array([0, 0, 0, 2 * (25 <= frame < 45)], np.float32) for frame, box in boxes.items()}
    assert {int(name) for telling in named(told({0: touching})) for name in telling.track} == {0}


@pytest.mark.usefixtures("evenly")
def test_who_stops_at_an_edge_stays():
    """A pixel of it is cut off, and it stands still from then on: it did not leave."""
    boxes = {}
    for frame in range(100):
        x = 40 + 1.5 * min(frame, 40)
        boxes[frame] = np.array([x, 88, 12, 30 + 2 * (30 <= frame < 50)], np.float32)
    assert {int(name) for telling in named(told({0: boxes})) for name in telling.track} == {0}


@pytest.mark.usefixtures("evenly")
@pytest.mark.parametrize("seed", range(5))
def test_where_no_course_fits_names_stay(seed):
    """Two meet and turn aside, upwards and downwards: neither goes on as anybody came."""
    noise = np.random.default_rng(seed).normal(0, 0.3, (2, 70, 2))
    tracks = {}
    for number, (start, speed, turned) in enumerate(((40, 1.5, -1.5), (120, -1.5, 1.5))):
        tracks[number] = {
            frame: np.array(
                [
                    start + speed * min(frame, 25) + noise[number, frame, 0],
                    45 + turned * max(0, frame - 30) / 1.2 + noise[number, frame, 1],
                    12,
                    20,
                ],
                np.float32,
            )
            for frame in range(70)
        }
    tellings = named(told(tracks))
    assert [tellings[-1].track.tolist(), tellings[0].track.tolist()] == [[0, 1], [0, 1]]


def test_where_people_do_not_walk_evenly_names_stay():
    """At first nothing is known of how people walk here, and a long meeting proves nothing."""
    tellings = named(told(dict(enumerate(exchanged(RIGHT, LEFT, since=41)))))
    assert [telling.track.tolist() for telling in tellings] == [[0, 1]] * len(FRAMES)


def test_how_people_walk_is_learnt():
    """One walks evenly, alone, before the others meet: then their courses tell."""
    first = walker(0, 80, 1.5, range(110), height=20)
    later = [{frame + 110: box for frame, box in boxes.items()} for boxes in exchanged(RIGHT, LEFT, since=41)]
    tellings = named(told({0: first, 1: later[0], 2: later[1]}))
    for truth in (RIGHT, LEFT):
        assert len(set(names_of(tellings, {frame + 110: box for frame, box in truth.items()}).values())) == 1


@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 6), st.integers(0, 180), st.integers(0, 90), st.integers(4, 30)),
            max_size=5,
            unique_by=lambda row: row[0],
        ),
        min_size=1,
        max_size=60,
    ),
    st.sampled_from([0, 3, WAIT]),
)
def test_nothing_is_lost_and_no_name_is_there_twice(frames, wait):
    """Whatever boxes come: all rows are told, with their views, and names are numbers in the order of being told.

    Who is hidden is told besides, with the view of who hides it.
    """
    given_frames = [
        Told(
            np.array([row[0] for row in rows], np.int64),
            np.arange(len(rows)),
            np.array([(x, y, side, side + 5) for _, x, y, side in rows], np.float32).reshape(-1, 4),
        )
        for rows in frames
    ]
    tellings = named(given_frames, wait) if len(given_frames) > wait else list(finished(given_frames, wait))
    assert len(tellings) == len(given_frames)
    seen = []
    for before, after in zip(given_frames, tellings, strict=True):
        rows = len(before.track)
        np.testing.assert_array_equal(before.view, after.view[:rows])
        assert set(after.view[rows:]) <= set(before.view)
        assert len(set(after.track.tolist())) == len(after.track)
        assert after.box.shape == (len(after.track), 4)
        seen += [name for name in after.track.tolist() if name not in seen]
    assert seen == sorted(seen)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0, 10, WAIT]))
def test_a_crowd_with_gaps_turns_and_mixed_up_numbers_has_each_name_once(seed, wait):
    """The same for people who walk, stop, turn, are missed for a while and take each other's numbers."""
    random = np.random.default_rng(seed)
    place, speed = random.uniform(20, 90, (5, 2)), random.normal(0, 1.5, (5, 2))
    numbers, away, frames = np.arange(5), np.zeros(5, int), []
    for _ in range(90):
        speed = np.where(random.random((5, 1)) < 0.05, random.normal(0, 1.5, (5, 2)), speed)
        place = np.clip(place + speed, 2, [190, 110])
        if random.random() < 0.1:
            i, j = random.choice(5, 2, replace=False)
            numbers[[i, j]] = numbers[[j, i]]
        numbers = np.where(random.random(5) < 0.01, numbers + 5, numbers)
        away = np.maximum(np.where(random.random(5) < 0.04, random.integers(1, 30, 5), away) - 1, 0)
        here = np.flatnonzero((away == 0) & [number not in numbers[:i] for i, number in enumerate(numbers)])
        boxes = np.concatenate([place - [6, 12], np.tile([12.0, 24.0], (5, 1))], 1).astype(np.float32)
        frames.append(Told(numbers[here].astype(np.int64), np.arange(len(here)), boxes[here]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sqair.tracking.courses.FAR", 1e9)  # all courses are trusted, so that names are exchanged often
        tellings = named(frames, wait)
    for before, after in zip(frames, tellings, strict=True):
        assert len(set(after.track.tolist())) == len(after.track) >= len(before.track)
        assert np.isfinite(after.box).all()


def finished(frames, wait):
    """The same for fewer frames than one waits for."""
    namer = Namer(SIZE, wait)
    assert [namer.add(frame) for frame in frames] == [None] * len(frames)
    return namer.finish()


def test_those_who_went_are_forgotten():
    """Memory does not grow with the number of people, but for the numbers of their names."""
    namer = Namer(SIZE)
    for number in range(40):
        for telling in told({number: walker(0, 40, 4.0, range(60))}):
            namer.add(telling)
    assert len(namer._names) <= 2 + GONE // 50
    assert len(namer._last) == len(namer._names)
    assert len(namer._meetings) <= 2 + GONE // 50


def test_a_course_is_straight():
    """Least squares are exact for somebody who goes straight on, and nothing fits it better than itself."""
    course, later = (Course.of([(f, RIGHT[f]) for f in span]) for span in (range(5, 15), range(30, 40)))
    np.testing.assert_allclose(course.speed, [1.5, 0.0], atol=1e-5)
    np.testing.assert_allclose(course.centre, [10 + 1.5 * 9.5 + 6, 55], atol=1e-4)
    assert course.unlike(later) == pytest.approx(0.0, abs=1e-6)
    other = Course.of([(f, LEFT[f]) for f in range(30, 40)])
    assert course.unlike(other) > 100
    np.testing.assert_allclose(course.between(later, 20), [10 + 1.5 * 20 + 6, 55], atol=1e-4)

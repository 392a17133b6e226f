"""Sequences put together from things that were seen alone: what is followed, what is laid over what, and where."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqair.data import crops
from sqair.data.background import Subtraction
from sqair.data.camera import Sizes
from sqair.data.compose import FULL, Alone, Patch, Tube, compose, composed, lay, no_larger_than_one
from sqair.data.crops import Cutting, cut_sequences
from sqair.data.video import Clip
from sqair.data.video_images import clip_of_array
from sqair.data.windows import Moment, cut_out

SIDE, SQUARE = 48, 8
PLAIN = Subtraction("mog2", shadow=1.0, opening=0.0, closing=0.0, look="mask")
SIZES = Sizes((8.0, 8.0, 8.0), (8.0, 8.0, 8.0))
CUTTING = Cutting(height=0, crop=(24, 24), length=4, sequences=60, max_objects=3)


def moment(*corners: tuple[int, int], side: int = SQUARE) -> Moment:
    """A frame with squares there, each a blob."""
    cover = np.zeros((SIDE, SIDE), np.float32)
    for left, top in corners:
        cover[top : top + side, left : left + side] = 1
    boxes = np.array([(left, top, side, side) for left, top in corners], np.float32).reshape(-1, 4)
    return Moment((200 * cover).astype(np.uint8), np.full(len(boxes), -1), boxes, None, cover)


def followed(moments: list[Moment], span: int = 3, stride: int = 1) -> list[Tube]:
    alone = Alone(SIZES, span, stride, 100, np.random.default_rng(0))
    for each in moments:
        alone.add(each)
    return alone.tubes.items


def film(length: int = 60) -> Clip:
    """A dark square that goes right over grey, in the upper half."""
    frames = np.full((length, SIDE, SIDE), 150, np.uint8)
    for t in range(length):
        left = 2 + t % (SIDE - SQUARE - 4)
        frames[t, 10 : 10 + SQUARE, left : left + SQUARE] = 20
    return clip_of_array(frames, "film", 10.0)


def square(value: int, left: int = 10, step: int = 0, length: int = 4) -> Tube:
    """A whole square of one brightness that goes right."""
    cover = np.full((SQUARE, SQUARE), FULL, np.uint8)
    return [Patch(left + step * t, 10, np.full((SQUARE, SQUARE), value, np.uint8), cover) for t in range(length)]


# --- what is followed


def test_what_is_alone_is_followed_for_as_long_as_a_sequence_lasts():
    """Once it went somewhere, which takes four frames."""
    (first, second) = followed([moment((10 + 2 * t, 20)) for t in range(5)])
    assert [patch.left for patch in first] == [11, 13, 15]
    assert [patch.left for patch in second] == [13, 15, 17]
    for patch in first:
        np.testing.assert_array_equal(patch.pixels[1:-1, 1:-1], 200)
        assert (patch.cover == FULL).sum() == SQUARE**2
        assert patch.pixels.shape == patch.cover.shape == (SQUARE + 2, SQUARE + 2)


def test_frames_that_a_stride_leaves_out_are_left_out():
    (tube,) = followed([moment((10 + t, 20)) for t in range(5)], span=5, stride=2)
    assert [patch.left for patch in tube] == [9, 11, 13]


def test_what_goes_nowhere_is_no_thing():
    assert followed([moment((10 + t % 2, 20)) for t in range(30)]) == []


@pytest.mark.parametrize(
    "other",
    [
        moment((18, 20), (26, 20)),  # touches another
        moment((0, 20)),  # at the frame's edge
        moment((18, 20), side=9),  # too large for one thing
        moment((18, 20), side=4),  # a piece of one
        moment(),  # gone
    ],
)
def test_what_is_not_one_whole_thing_for_once_begins_anew(other):
    """Five frames of which the last but one is other hold no three in a row that end after the fourth."""
    calm = [moment((10 + 2 * t, 20)) for t in range(10)]
    assert len(followed(calm[:6])) == 3
    assert len(followed([*calm[:4], other, calm[5]])) == 1
    assert len(followed([*calm[:4], other, *calm[5:]])) in (3, 4)


def test_a_choice_of_at_most_so_many_is_kept():
    alone = Alone(SIZES, 2, 1, 5, np.random.default_rng(0))
    for t in range(20):
        alone.add(moment((10 + t, 20), (10 + t, 34)))
    assert len(alone.tubes.items) == 5
    assert alone.tubes.offered == 34


# --- what is laid over what


@given(st.integers(-12, 30), st.integers(-12, 30), st.integers(0, 2**32 - 1), st.booleans())
def test_a_patch_is_laid_over_a_frame(left, top, seed, coloured):
    """As it would be over a larger frame, cut out of that, and never more than half a grey level off."""
    rng = np.random.default_rng(seed)
    tail = (3,) if coloured else ()
    bytes_ = rng.choice([0, 102, FULL], (6, 9)).astype(np.uint8)
    cover = bytes_ / FULL
    pixels = np.round(rng.uniform(0, 255, (6, 9, *tail)) * cover.reshape(6, 9, *(1,) * len(tail))).astype(np.uint8)
    frame = rng.integers(0, 256, (20, 24, *tail), np.uint8)
    large = np.zeros((60, 60, *tail))
    large[20:40, 20:44] = frame
    place = np.s_[20 + top : 26 + top, 20 + left : 29 + left]
    large[place] = pixels + (1 - cover.reshape(6, 9, *(1,) * len(tail))) * large[place]
    lay(frame, Patch(0, 0, pixels, bytes_), left, top)
    assert np.abs(frame - np.minimum(255, large[20:40, 20:44])).max() <= 0.501


def test_one_thing_moves_as_it_did():
    """Placed with its middle inside of the window in one frame at least."""
    for seed in range(20):
        piece = compose([square(200, step=2)], (24, 24), 1, np.random.default_rng(seed))
        columns = [np.flatnonzero(frame.any(0)) for frame in piece.frames]
        inner = [(at[0], at[-1]) for at in columns if len(at) == SQUARE]
        assert any(len(at) >= SQUARE // 2 for at in columns)
        assert all(right - left == SQUARE - 1 for left, right in inner)
        steps = {b[0] - a[0] for a, b in itertools.pairwise(inner)}
        assert steps <= {2}


def test_the_same_thing_is_in_front_in_all_frames():
    """Which of two is, changes from sequence to sequence; the one behind keeps what is not covered."""
    front = set()
    for seed in range(60):
        piece = compose([square(100), square(200)], (24, 24), 2, np.random.default_rng(seed))
        assert set(np.unique(piece.frames)) <= {0, 100, 200}
        whole = {value for value in (100, 200) if ((piece.frames == value).sum((1, 2)) == SQUARE**2).all()}
        both = (piece.frames > 0).sum((1, 2))
        if len(whole) == 1 and SQUARE**2 < both[0] < 2 * SQUARE**2 and (both == both[0]).all():
            front |= whole
        np.testing.assert_array_equal(piece.frames, piece.frames[:1].repeat(4, 0))  # neither moves
    assert front == {100, 200}


def test_it_is_known_how_many_are_in_the_window():
    """Those of whom at least a pixel lies in it, hidden or not, frame by frame."""
    told = set()
    for seed in range(40):
        piece = compose([square(100, step=9), square(200, step=-7)], (24, 24), 2, np.random.default_rng(seed))
        for frame, most in zip(piece.frames, piece.most_objects, strict=True):
            told.add((len(np.unique(frame)) - 1, int(most)))
    assert {(0, 0), (1, 1), (2, 2)} <= told <= {(0, 0), (1, 1), (2, 2), (1, 2)}  # the last where one hides the other
    assert compose([square(100)], (24, 24), 1, np.random.default_rng(0)).most_objects.tolist() == [1] * 4


def test_things_meet():
    """Half of them are laid so that their middles are at most their own sizes apart, which is rare elsewhere."""
    near, tubes = 0, [square(100), square(200)]
    for seed in range(300):
        piece = compose(tubes, (200, 200), 2, np.random.default_rng(seed))
        centres = [
            np.argwhere(piece.frames[0] == value).mean(0) for value in (100, 200) if (piece.frames == value).any()
        ]
        near += len(centres) == 2 and bool((np.abs(centres[0] - centres[1]) <= SQUARE + 1).all())
    assert 0.15 < near / 300 < 0.35  # half of all pairs, of which half are the same square twice


def test_sequences_have_up_to_as_many_things_as_asked():
    tubes = [square(value) for value in (60, 90, 120, 150, 180, 210)]
    pieces = composed(tubes, (200, 200), 3, 200, np.random.default_rng(0))
    counts = [len(np.unique(piece.frames)) - 1 for piece in pieces]
    assert set(counts) == {1, 2, 3}
    assert np.mean(counts) == pytest.approx(11 / 7, abs=0.15)  # less where a thing is there twice, or hides another


# --- in what is cut from a clip


def test_a_share_of_the_training_sequences_is_composed():
    """Those for validation stay as they are; a clip of one square then has sequences of several."""
    plain = cut_sequences(film(), PLAIN, CUTTING)
    made = cut_sequences(film(), PLAIN, dataclasses.replace(CUTTING, composed=0.5, sizes=SIZES))
    assert made.held_out == plain.held_out
    assert (plain.composed, made.composed) == (0, (len(plain.sequences.frames) - plain.held_out) // 2)
    assert made.sequences.frames.shape == plain.sequences.frames.shape
    np.testing.assert_array_equal(made.validation.frames, plain.validation.frames)
    most = SQUARE**2 + 1
    lit = (np.asarray(made.sequences.frames)[: -made.held_out] > 0).sum((2, 3)).max(1)
    assert ((np.asarray(plain.sequences.frames) > 0).sum((2, 3)) < most).all()
    assert 5 <= (lit > most).sum() <= made.composed
    assert plain.sequences.most_objects is None
    assert made.sequences.most_objects is not None
    told = np.asarray(made.sequences.most_objects)
    assert {1, 2, 3} <= set(np.unique(told)) <= {-1, 0, 1, 2, 3}
    np.testing.assert_array_equal(told == 0, ~np.asarray(made.sequences.frames).any((2, 3)))


def test_a_few_things_do_not_make_many_sequences(monkeypatch):
    monkeypatch.setattr(crops, "TUBES", 2)
    made = cut_sequences(film(), PLAIN, dataclasses.replace(CUTTING, composed=0.5, sizes=SIZES))
    assert len(made.sequences.frames) - made.held_out > 40
    assert made.composed == 2 * crops.EACH


def counts_in(*moments: Moment, corner: tuple[int, int], crop: int = 20) -> list[int]:
    seen = [each._replace(is_one=no_larger_than_one(each.boxes, SIZES)) for each in moments]
    return cut_out(seen, np.array([corner] * len(seen)), (crop, crop)).most_objects.tolist()


TWO, HEAP = (
    moment((10, 20), (30, 20)),
    moment((40, 40))._replace(boxes=np.array([(10, 20, 16, 8), (40, 40, 8, 8)], np.float32), ids=np.full(2, -1)),
)


@pytest.mark.parametrize(
    ("corner", "most"), [((0, 10), [1, -1]), ((17, 20), [2, -1]), ((26, 26), [1, 1]), ((30, 0), [0, 0])]
)
def test_where_no_blob_is_larger_than_one_thing_there_are_as_many(corner, most):
    """As far as blobs reach into a window; a blob that is larger may be several."""
    assert counts_in(TWO, HEAP, corner=corner) == most


def test_what_is_hidden_for_a_while_is_still_there():
    """Between frames that show more, or in which one blob may be several; not before it comes or after it has gone."""
    one, none = moment((10, 20)), moment()
    whole = {"corner": (0, 0), "crop": SIDE}
    assert counts_in(TWO, one, TWO, **whole) == [2, 2, 2]  # type: ignore[arg-type]
    assert counts_in(none, one, TWO, one, none, **whole) == [0, 1, 2, 1, 0]  # type: ignore[arg-type]
    assert counts_in(one, HEAP, one, HEAP, TWO, **whole) == [1, -1, -1, -1, 2]  # type: ignore[arg-type]


def test_without_sizes_nothing_is_known():
    assert cut_out([moment((10, 20))], np.array([(0, 10)]), (20, 20)).most_objects.tolist() == [-1]


def test_where_nothing_was_alone_nothing_is_composed():
    plain = cut_sequences(film(), PLAIN, CUTTING)
    large = Sizes((20.0, 20.0, 20.0), (20.0, 20.0, 20.0))
    made = cut_sequences(film(), PLAIN, dataclasses.replace(CUTTING, composed=0.5, sizes=large))
    assert made.composed == 0
    np.testing.assert_array_equal(made.sequences.frames, plain.sequences.frames)


@pytest.mark.parametrize("wrong", [{"sizes": None}, {"sizes": SIZES, "composed": 1.0}])
def test_what_cannot_be_composed(wrong):
    with pytest.raises(ValueError, match="only things whose size is known are put together"):
        Cutting(**({"composed": 0.5} | wrong))
    with pytest.raises(ValueError, match="where frames are raw"):
        Cutting(raw=True, sizes=SIZES)

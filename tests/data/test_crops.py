"""Sequences cut from clips: the truth follows, time is split, shares and numbers are as asked, memory is bounded."""

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sqair.config import DataConfig, UserError
from sqair.data import Sequences, load_sequences, save_sequences
from sqair.data.background import Subtraction
from sqair.data.crops import Cutting, cut_sequences
from sqair.data.frames import between, save_frames, scaled_size
from sqair.data.sequences import file_source
from sqair.data.video import Clip, open_clips
from sqair.data.video_images import clip_of_array
from sqair.data.windows import Moment, Reservoir, cut_out, draw_windows, inside, visible_share
from sqair.tracks import Tracks, Truth, read_truth

SIDE, SQUARE = 64, 8
PLAIN = Subtraction("mog2", shadow=1.0, opening=0.0, closing=0.0, look="mask")
PETS = Path(os.environ.get("SQAIR_DATA", "")) / "pets09-s2l1"


def film(length: int = 60, count: int = 1) -> tuple[Clip, Truth]:
    """Dark squares that move right over grey, one pixel a frame, each in a row of its own; with the truth."""
    frames = np.full((length, SIDE, SIDE), 150, np.uint8)
    rows = []
    for t in range(length):
        for id in range(count):
            left, top = (t + 20 * id) % (SIDE - SQUARE), 4 + 16 * id
            frames[t, top : top + SQUARE, left : left + SQUARE] = 20
            rows.append((t, id, [left, top, SQUARE, SQUARE]))
    frame, ids, boxes = (list(column) for column in zip(*rows, strict=True))
    tracks = Tracks.make(frame, ids, np.array(boxes, float), frames=length)
    return clip_of_array(frames, "film", 10.0), Truth(tracks, np.zeros(len(tracks), bool))


def drawn(sequences: Sequences) -> np.ndarray:
    """Pictures of the true boxes: what the frames should show."""
    frames = np.zeros(np.shape(sequences.frames), np.uint8)
    for index in zip(*np.nonzero(np.asarray(sequences.ids) >= 0), strict=True):
        left, top, width, height = np.round(np.asarray(sequences.boxes)[index]).astype(int)
        frames[index[0], index[1], max(0, top) : top + height, max(0, left) : left + width] = 255
    return frames


# --- what is cut


@pytest.mark.parametrize("moving", [False, True])
def test_the_truth_follows_through_windows(moving):
    """Where a box is, the window shows the square, exactly; a square whose centre lies outside is no object."""
    clip, truth = film(count=2)
    cutting = Cutting(height=0, crop=(24, 24), moving=moving, length=4, stride=2, sequences=60)
    cut = cut_sequences(clip, PLAIN, cutting, truth)
    sequences = cut.sequences
    assert sequences.frames.shape == (60, 4, 24, 24)
    assert (cut.held_out, cut.frames) == (6, 60)
    shown, wanted = np.asarray(sequences.frames), drawn(sequences)
    assert (shown[wanted == 255] == 255).all()
    whole = np.asarray(sequences.visible).min(2, where=np.asarray(sequences.ids) >= 0, initial=1.0) == 1
    assert whole.sum() > 20
    counts = np.asarray(sequences.counts)
    assert ((np.asarray(sequences.ids) >= 0).sum(2) == counts).all()
    assert counts.max() == 2
    extra = (shown > wanted).reshape(60, 4, -1).sum(2)
    assert extra.max() <= 2 * SQUARE * SQUARE / 2


def test_truth_of_frames_of_another_size():
    """Boxes from before frames were scaled down follow if their size is known, and are refused otherwise."""
    clip, truth = film(count=2)
    cutting = Cutting(height=0, crop=(24, 24), length=4, sequences=20)
    right = cut_sequences(clip, PLAIN, cutting, truth).sequences
    larger = dataclasses.replace(truth.tracks, box=3 * truth.tracks.box, size=(3 * SIDE, 3 * SIDE))
    again = cut_sequences(clip, PLAIN, cutting, Truth(larger, truth.ignored)).sequences
    np.testing.assert_array_equal(again.frames, right.frames)
    np.testing.assert_allclose(np.asarray(again.boxes), np.asarray(right.boxes), atol=1e-5)
    with pytest.raises(UserError, match=r"outside of frames of 64x64.*--video\.gt-size"):
        cut_sequences(clip, PLAIN, cutting, Truth(dataclasses.replace(larger, size=None), truth.ignored))


def test_a_moving_window_goes_along():
    """With the window moving at the square's pace, it stays about where it was; a still one sees it pass."""
    clip, truth = film()
    paths = []
    for moving in (False, True):
        cutting = Cutting(height=0, crop=(24, 24), moving=moving, length=5, stride=4, sequences=40, empty=0.0)
        sequences = cut_sequences(clip, PLAIN, cutting, truth).sequences
        left = np.asarray(sequences.boxes)[:, :, 0, 0]
        paths.append(left[~np.isnan(left).any(1)])
    still, along = (np.diff(path, axis=1) for path in paths)
    assert np.abs(still - 4).max() == 0
    assert along.mean() < 2
    assert (np.abs(np.diff(along, axis=1)) <= 1).all(), "the window moves in a straight line, up to whole pixels"


def test_without_truth_blobs_are_counted():
    clip, _ = film(count=3)
    for most in (1, 2):
        cutting = Cutting(height=0, crop=(44, 44), length=3, sequences=40, max_objects=most, empty=0.0)
        cut = cut_sequences(clip, PLAIN, cutting)
        assert cut.sequences.counts is None
        pixels = (np.asarray(cut.sequences.frames) > 0).sum((2, 3)) / SQUARE**2
        assert 0 < pixels.max() < most + 1.5


def test_scaling_down_takes_the_truth_along():
    clip, truth = film(count=2)
    cutting = Cutting(height=32, crop=(0, 0), length=2, sequences=20)
    sequences = cut_sequences(clip, PLAIN, cutting, truth).sequences
    assert sequences.frames.shape == (20, 2, 32, 32)
    assert (np.asarray(sequences.boxes)[..., 2:] == SQUARE / 2).all()
    frames = np.asarray(sequences.frames).astype(float)
    assert np.allclose(frames.sum((2, 3)), 255 * 2 * (SQUARE / 2) ** 2, rtol=0.05)


def test_validation_is_the_end_of_the_clip():
    """Frames carry the time as their brightness: no training sequence shows the last tenth, validation only that."""
    length = 100
    frames = np.full((length, SIDE, SIDE), 250, np.uint8)
    for t in range(length):
        frames[t, 10:40, (7 * t) % 50 : (7 * t) % 50 + 10] = t
    subtraction = dataclasses.replace(PLAIN, look="inverted", steady=False)
    cutting = Cutting(height=0, crop=(0, 0), length=3, sequences=50, empty=0.0)
    cut = cut_sequences(clip_of_array(frames, "clock", 10.0), subtraction, cutting)
    times = 255 - np.asarray(cut.sequences.frames).max((2, 3)).astype(int)
    assert cut.held_out == 5
    assert times[:-5].max() < 90 <= times[-5:].min()
    assert (np.diff(times, axis=1) == 1).all()
    assert (np.asarray(cut.validation.frames) == np.asarray(cut.sequences.frames)[-5:]).all()


def test_the_file_is_split_as_it_was_cut(tmp_path):
    """`sqair train` holds out exactly the sequences from the end of the clip."""
    clip, truth = film()
    for sequences in (20, 23, 31):
        cut = cut_sequences(clip, PLAIN, Cutting(height=0, crop=(24, 24), sequences=sequences), truth)
        save_sequences(tmp_path / "cut.npz", cut.sequences)
        config = DataConfig(name=str(tmp_path / "cut.npz"), length=5, size=(24, 24))
        source = file_source(load_sequences(config.name), config, "validation")
        assert len(source.sequences.frames) == cut.held_out
        assert (np.asarray(source.sequences.frames) == np.asarray(cut.validation.frames)).all()


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_empty_sequences_are_as_rare_as_asked(share):
    clip, truth = film()
    cut = cut_sequences(clip, PLAIN, Cutting(height=0, crop=(20, 20), sequences=100, empty=share), truth)
    found = (np.asarray(cut.sequences.counts).max(1) == 0).mean()
    assert found <= share
    assert found > share - 0.05 or share == 1.0


def test_the_same_seed_cuts_the_same():
    clip, _ = film()
    first, again, other = (
        np.asarray(
            cut_sequences(clip, PLAIN, Cutting(height=0, crop=(24, 24), sequences=20, seed=seed)).sequences.frames
        )
        for seed in (1, 1, 2)
    )
    assert (first == again).all()
    assert not np.array_equal(first, other)


def test_ignored_truth_is_no_object():
    clip, truth = film(count=2)
    half = truth._replace(ignored=truth.tracks.id == 1)
    cut = cut_sequences(clip, PLAIN, Cutting(height=0, crop=(0, 0), length=2, sequences=20), half)
    assert np.asarray(cut.sequences.counts).max() == 1


def test_colour_is_kept_or_not():
    frames = np.full((40, SIDE, SIDE, 3), 150, np.uint8)
    for t in range(40):
        frames[t, 10:20, t : t + 10] = (255, 40, 40)
    clip = clip_of_array(frames, "red", 10.0)
    subtraction = dataclasses.replace(PLAIN, look="inverted")
    for colour, shape in ((True, (10, 2, SIDE, SIDE, 3)), (False, (10, 2, SIDE, SIDE))):
        cutting = Cutting(height=0, crop=(0, 0), length=2, sequences=10, colour=colour)
        shown = np.asarray(cut_sequences(clip, subtraction, cutting).sequences.frames)
        assert shown.shape == shape
        assert set(np.unique(shown)) == ({0, 215} if colour else {0, 151})


def test_a_part_of_the_clip():
    """Frames before `start` and from `stop` on are not used, and the truth is that of the frames."""
    clip, truth = film(80)
    cutting = Cutting(height=0, crop=(0, 0), length=2, sequences=10, start=20, stop=60)
    cut = cut_sequences(clip, PLAIN, cutting, truth)
    assert cut.frames == 40
    assert (np.asarray(cut.sequences.frames) == drawn(cut.sequences)).all()
    assert len(list(between(clip, 75, 0))) == 5


# --- what cannot be


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"crop": (65, 20)}, "do not fit into frames of 64x64"),
        ({"length": 31}, "has 60 frames; sequences of 31 frames, 1 apart, need at least 62"),
        ({"max_objects": 0}, "shows 1 to 0 moving objects"),
        ({"beyond": 1.0}, "by less than their sides"),
        ({"beyond": 0.25, "raw": True}, "only windows of the foreground that stand still"),
        ({"beyond": 0.25, "moving": True}, "only windows of the foreground that stand still"),
        ({"beyond": 0.25}, "boxes are of the frame"),
        ({"stop": 8}, "need at least 10"),
    ],
)
def test_refusals(change, complaint):
    clip, truth = film()
    with pytest.raises(UserError, match=complaint):
        cut_sequences(clip, PLAIN, Cutting(**({"height": 0, "crop": (24, 24), "sequences": 20} | change)), truth)


def test_nothing_moves():
    still = clip_of_array(np.full((40, SIDE, SIDE), 150, np.uint8), "still", 10.0)
    with pytest.raises(UserError, match="no window of the first nine tenths of still shows 1 to 3 moving objects"):
        cut_sequences(still, PLAIN, Cutting(height=0, crop=(24, 24), sequences=20))


@pytest.mark.parametrize(
    "wrong",
    [{"crop": (-1, 4)}, {"empty": 1.5}, {"empty": float("nan")}, {"length": 0}, {"stride": 0}, {"sequences": 1}],
)
def test_cuttings_that_cannot_be(wrong):
    with pytest.raises(UserError):
        Cutting(**wrong)


def test_a_live_stream_cannot_be_read_twice():
    clip = dataclasses.replace(film()[0], live=True)
    with pytest.raises(UserError, match="film is a live stream"):
        cut_sequences(clip, PLAIN, Cutting())


# --- parts


def test_windows_lie_in_the_frame_and_anywhere_in_it():
    seen = [Moment(np.zeros((20, 30), np.uint8), np.zeros(1, np.int64), np.array([[12, 8, 4, 4]], np.float32))] * 3
    for moving in (False, True):
        windows = draw_windows(np.random.default_rng(0), seen, 500, (10, 12), moving)
        assert windows.shape == (500, 3, 2)
        assert windows.min() >= 0
        assert (windows.max((0, 1)) <= (18, 10)).all()
        assert inside(seen, windows, (10, 12)).max() == 1
    still = draw_windows(np.random.default_rng(0), seen, 500, (10, 12), False)
    assert set(still[:, 0, 0]) == set(range(19))
    assert set(still[:, 0, 1]) == set(range(11))


def test_windows_may_reach_beyond_the_frame_where_it_is_black():
    moment = Moment(np.full((20, 30), 9, np.uint8), np.arange(1), np.array([[0, 0, 4, 4]], np.float32))
    windows = draw_windows(np.random.default_rng(0), [moment] * 2, 500, (20, 30), False, 0.25)
    assert (windows[:, 0] == windows[:, 1]).all()
    assert set(windows[:, 0, 0]) == set(range(-7, 8))
    assert set(windows[:, 0, 1]) == set(range(-5, 6))
    piece = cut_out([moment], np.array([[-7, 5]]), (20, 30))
    expected = np.zeros((20, 30), np.uint8)
    expected[:15, 7:] = 9
    assert (piece.frames[0] == expected).all()
    assert not piece.objects[0][0].size  # its centre is above the window
    other = cut_out([moment], np.array([[7, -5]]), (20, 30))
    assert (other.frames[0] == expected[::-1, ::-1]).all()
    assert cut_out([moment], np.array([[-7, -5]]), (20, 30)).objects[0][1].tolist() == [[7, 5, 4, 4]]


def test_an_object_belongs_where_its_centre_is():
    moment = Moment(np.zeros((20, 30), np.uint8), np.arange(2), np.array([[8, 2, 4, 4], [9, 2, 4, 4]], np.float32))
    assert inside([moment], np.array([[[0, 0]], [[10, 0]], [[11, 0]]]), (10, 10)).tolist() == [[0], [2], [1]]
    piece = cut_out([moment], np.array([[11, 1]]), (10, 10))
    ids, boxes = piece.objects[0]
    assert ids.tolist() == [1]
    assert boxes.tolist() == [[-2, 1, 4, 4]]
    assert visible_share(boxes, (10, 10)).tolist() == [0.5]


def test_a_reservoir_is_uniform():
    """Each of twenty things is kept in a quarter of the cases, up to four standard deviations."""
    kept, rng = np.zeros(20), np.random.default_rng(0)
    for _ in range(2000):
        reservoir = Reservoir[int](5, rng)
        for thing in range(20):
            if (place := reservoir.place()) is not None:
                place(thing)
        kept[reservoir.items] += 1
    assert np.abs(kept / 2000 - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / 2000)


def test_memory_does_not_grow_with_the_clip(monkeypatch):
    """Five times as many frames take no more memory at the peak: only what is chosen is held."""
    import tracemalloc

    monkeypatch.setattr("sqair.data.crops.TRIES", 4)

    def endless(length: int) -> Clip:
        frames = np.stack(list(film(50)[0]))

        def read(notes: list[str]) -> Iterator[np.ndarray]:
            return (frames[t % 50].copy() for t in range(length))

        return Clip("long", (SIDE, SIDE), 10.0, length, read)

    peaks = []
    for length in (100, 500):
        tracemalloc.start()
        cut_sequences(endless(length), PLAIN, Cutting(height=0, crop=(32, 32), sequences=20))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


# --- decoded frames


@pytest.mark.parametrize("colour", [False, True])
def test_decoded_frames_are_a_clip(tmp_path, colour):
    clip, _ = film(12)
    assert save_frames(tmp_path / "frames.npz", clip, height=32, colour=colour) == 12
    (read,) = open_clips(tmp_path / "frames.npz")
    frames = np.stack(list(read))
    assert frames.shape == ((12, 32, 32, 3) if colour else (12, 32, 32))
    full = np.stack(list(clip))
    halves = full.reshape(12, 32, 2, 32, 2).mean((2, 4))
    assert np.abs((frames[..., 0] if colour else frames) - halves).max() <= 1
    save_frames(tmp_path / "own.npz", clip)
    assert (np.stack(list(open_clips(tmp_path / "own.npz")[0])) == full).all()


def test_frames_are_never_enlarged():
    assert scaled_size((576, 768), 175) == (175, 233)
    assert scaled_size((100, 50), 175) == (100, 50)
    assert scaled_size((100, 50), 0) == (100, 50)


# --- pedestrians


@pytest.mark.skipif(not PETS.is_dir(), reason="real pedestrians are cut where $SQAIR_DATA/pets09-s2l1 holds them")
def test_pedestrians():
    """120 frames of PETS09-S2L1: as many people as asked, and the foreground fills their boxes and little else."""
    (clip,) = open_clips(PETS / "vtest.avi")
    truth = read_truth(PETS / "gt.txt")
    cutting = Cutting(sequences=100, stop=120)
    sequences = cut_sequences(clip, Subtraction(look="mask"), cutting, truth).sequences
    assert sequences.frames.shape == (100, 5, 64, 64)
    assert 1 <= np.asarray(sequences.counts).max() <= 3
    shown, boxes = np.asarray(sequences.frames) > 127, drawn(sequences) > 0
    assert 0.4 < shown[boxes].mean() < 0.9
    assert shown[~boxes].mean() < 0.03

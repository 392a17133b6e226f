"""Background subtraction on squares over a known background: exact foreground, in constant memory."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest

from sqair.config import UserError
from sqair.data.background import Foreground, Subtraction, cleaned, find_blobs

SIZE = (60, 80)
SQUARE = (slice(20, 32), slice(30, 42))
METHODS = pytest.mark.parametrize("method", ["mog2", "knn"])


def ground(colour: bool = False, seed: int = 0) -> np.ndarray:
    """A texture between 100 and 180."""
    return np.random.default_rng(seed).integers(100, 180, (*SIZE, 3) if colour else SIZE).astype(np.uint8)


def empty(count: int = 40, colour: bool = False) -> Iterator[np.ndarray]:
    """The background with a little noise."""
    rng = np.random.default_rng(1)
    for _ in range(count):
        noise = rng.integers(-2, 3, ground(colour).shape)
        yield (ground(colour) + noise).astype(np.uint8)


def with_square(value: int, colour: bool = False) -> np.ndarray:
    frame = ground(colour)
    frame[SQUARE] = value
    return frame


@METHODS
@pytest.mark.parametrize("colour", [False, True])
def test_a_square_is_the_foreground(method, colour):
    """All of it and nothing else; what it shows is the inverted frame, and the background is known."""
    foreground = Foreground(Subtraction(method=method))
    assert foreground.warm(empty(colour=colour)) == 40
    shown = foreground.push(with_square(20, colour))
    truth = np.zeros(SIZE, bool)
    truth[SQUARE] = True
    assert (foreground.mask == truth).all()
    assert shown.shape == ground(colour).shape
    assert shown.dtype == np.float32
    assert (shown[~truth] == 0).all()
    assert np.allclose(shown[truth], 1 - 20 / 255)
    assert np.abs(foreground.background.astype(int) - ground(colour)).mean() < 2


@pytest.mark.parametrize(
    ("look", "value"),
    [("inverted", 1 - 20 / 255), ("mask", 1.0), ("mixed", 1 - 10 / 255)],
)
def test_looks(look, value):
    foreground = Foreground(Subtraction(look=look))
    foreground.warm(empty())
    assert np.allclose(foreground.push(with_square(20))[SQUARE], value)


def test_difference_is_a_share_of_what_is_possible():
    """From the background b the farthest a pixel can be is max(b, 255 - b): there the difference is 1."""
    flat = np.full(SIZE, 100, np.uint8)
    for value, share in ((255, 1.0), (0, 100 / 155), (178, 78 / 155)):
        foreground = Foreground(Subtraction(look="difference", shadow=1.0))
        foreground.warm([flat] * 30)
        frame = flat.copy()
        frame[SQUARE] = value
        assert np.allclose(foreground.push(frame)[SQUARE], share, atol=0.02)


@METHODS
def test_shadows_are_no_foreground(method):
    """A square that is 25% darker is a shadow; where shadows are not looked for it is foreground."""
    frame = ground(colour=True)
    frame[SQUARE] = np.round(0.75 * frame[SQUARE]).astype(np.uint8)
    for share, wanted in ((0.6, 0.0), (0.9, 1.0), (1.0, 1.0)):
        foreground = Foreground(Subtraction(method=method, shadow=share, threshold=9.0 if method == "mog2" else 100.0))
        foreground.warm(empty(colour=True))
        foreground.push(frame)
        assert foreground.mask[SQUARE].mean() == wanted


def test_without_a_first_look_the_first_frame_is_the_background():
    """A live stream: what is there at first is taken for background until it moves; two passes know better."""
    frames = [with_square(20), *empty(60)]
    live, twice = Foreground(Subtraction()), Foreground(Subtraction())
    twice.warm(frames)
    live.push(frames[0])
    twice.push(frames[0])
    assert not live.mask.any()
    assert twice.mask[SQUARE].all()


def test_who_stays_becomes_background():
    """After some of the frames that the background remembers, and not at once."""
    foreground = Foreground(Subtraction("mog2", history=30))
    foreground.warm(empty(60))
    frame, seen = with_square(20), []
    for _ in range(60):
        foreground.push(frame)
        seen.append(bool(foreground.mask[SQUARE].any()))
    assert seen[0]
    assert not seen[-1]
    assert seen == sorted(seen, reverse=True)


@METHODS
def test_light_that_changes_is_no_foreground(method):
    """All of the frame 15% darker at once: evened out, and with it the background that is told and the difference."""
    darker = np.round(0.85 * with_square(20)).astype(np.uint8)
    masks = []
    for steady in (True, False):
        foreground = Foreground(Subtraction(method, threshold=16.0, shadow=1.0, look="difference", steady=steady))
        foreground.warm(empty())
        shown = foreground.push(darker)
        masks.append(foreground.mask)
        if steady:
            assert np.abs(foreground.background - 0.85 * ground()).mean() < 4
            expected = np.abs(17 - 0.85 * ground()) / np.maximum(0.85 * ground(), 255 - 0.85 * ground())
            assert np.abs(shown - expected)[SQUARE].mean() < 0.03
    truth = np.zeros(SIZE, bool)
    truth[SQUARE] = True
    assert (masks[0] != truth).mean() < 0.01
    assert masks[1].mean() > 0.5


def test_cleaning_is_sized_to_the_frame():
    """The same share removes a speck of the same share at twice the size."""
    for scale in (1, 2):
        mask = np.zeros((100 * scale, 120 * scale), bool)
        mask[10 * scale : 11 * scale, 10 * scale : 11 * scale] = True
        mask[40 * scale : 60 * scale, 40 * scale : 60 * scale] = True
        mask[50 * scale : 51 * scale, 50 * scale : 51 * scale] = False
        cleared = cleaned(mask, 0.02, 0.02)
        assert not cleared[: 30 * scale].any()
        assert cleared[45 * scale : 55 * scale, 45 * scale : 55 * scale].all()
        assert (cleaned(mask, 0.0, 0.0) == mask).all()


def test_blobs():
    mask = np.zeros((20, 30), bool)
    mask[2:5, 3:9] = True
    mask[10:12, 20:21] = True
    mask[12, 21] = True  # touches the one before at a corner
    assert find_blobs(mask).tolist() == [[3, 2, 6, 3], [20, 10, 2, 3]]
    assert find_blobs(mask, 4).tolist() == [[3, 2, 6, 3]]
    assert find_blobs(np.zeros((4, 4), bool)).shape == (0, 4)


def test_nothing_before_the_first_frame():
    with pytest.raises(ValueError, match="first frame"):
        _ = Foreground(Subtraction()).mask


@pytest.mark.parametrize(
    "wrong",
    [
        {"history": 0},
        {"threshold": -1.0},
        {"threshold": float("nan")},
        {"shadow": 0.0},
        {"opening": 0.5},
        {"closing": -0.1},
    ],
)
def test_options_that_cannot_be(wrong):
    with pytest.raises(UserError):
        dataclasses.replace(Subtraction(), **wrong)

"""Frames into a model's size, and boxes back."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from sqair.data.video_fit import Fit, is_light


def test_a_frame_of_the_model_is_left_alone() -> None:
    frame = np.random.default_rng(0).integers(0, 255, (12, 10), np.uint8)
    fit = Fit((12, 10), (12, 10), 1)
    np.testing.assert_array_equal(fit(frame)[..., 0], frame)
    np.testing.assert_array_equal(Fit((12, 10), (12, 10), 1, inverted=True)(frame)[..., 0], 255 - frame)
    assert fit.describe() == ""


def test_letterboxed_on_black() -> None:
    """A wide white frame fills the width and the middle of the height; what is added is black, inverted or not."""
    for inverted in (False, True):
        fit = Fit((20, 40), (16, 16), 3, inverted)
        fitted = fit(np.full((20, 40, 3), 0 if inverted else 255, np.uint8))
        assert fitted.shape == (16, 16, 3)
        assert fit.content == (0, 4, 16, 8)
        assert (fitted[4:12] == 255).all()
        assert not fitted[:4].any()
        assert not fitted[12:].any()
    assert "40x20 are scaled to 16x8, set on black in 16x16" in fit.describe()
    assert "inverted" in fit.describe()


def test_grey_by_the_weights_of_rec_601() -> None:
    frame = np.zeros((1, 3, 3), np.uint8)
    frame[0, [0, 1, 2], [0, 1, 2]] = 255
    fitted = Fit((1, 3), (1, 3), 1)(frame)[0, :, 0]
    np.testing.assert_allclose(fitted / 255, [0.299, 0.587, 0.114], atol=0.004)


SIDES = st.tuples(st.integers(2, 3000), st.integers(2, 3000))


@given(SIDES, st.tuples(st.integers(8, 64), st.integers(8, 64)))
def test_the_whole_frame_comes_back(source: tuple[int, int], image: tuple[int, int]) -> None:
    fit = Fit(source, image, 1)
    left, top, width, height = fit.content
    assert left >= 0
    assert top >= 0
    assert width <= image[1]
    assert height <= image[0]
    box = fit.to_source(np.array([[left, top, width, height]], np.float32))
    np.testing.assert_allclose(box, [[0, 0, source[1], source[0]]], rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(fit.to_image(box), [[left, top, width, height]], rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("source", [(50, 50), (100, 100), (100, 200), (480, 270)])
def test_a_square_is_found_where_it_was(source: tuple[int, int]) -> None:
    """The box of the bright pixels in the fitted frame, brought back, lies around the square in the clip."""
    fit = Fit(source, (50, 50), 1)
    frame = np.zeros(source, np.uint8)
    top, left, side = source[0] // 4, source[1] // 2, min(source) // 3
    frame[top : top + side, left : left + side] = 255
    rows, columns = np.nonzero(fit(frame)[..., 0] > 100)
    tight = [columns.min(), rows.min(), np.ptp(columns) + 1, np.ptp(rows) + 1]
    box = fit.to_source(np.array(tight, np.float32))
    np.testing.assert_allclose(box, [left, top, side, side], atol=1.2 / fit.scale)


def test_boxes_are_clipped_to_the_frame() -> None:
    fit = Fit((20, 40), (16, 16), 1)
    boxes = np.array([[-5, -5, 10, 10], [30, 5, 20, 5], [50, 5, 5, 5], [np.nan] * 4], np.float32)
    clipped = fit.clipped(boxes)
    np.testing.assert_array_equal(clipped[:2], [[0, 0, 5, 5], [30, 5, 10, 5]])
    assert np.isnan(clipped[2:]).all()


def test_light_clips() -> None:
    """Two dark things on light are a light clip; two light things on dark, or one bright frame of many, are not."""
    dark = np.full((20, 20), 20, np.uint8)
    dark[2:8, 2:8] = 250
    assert is_light([255 - dark, 255 - dark])
    assert not is_light([dark, dark])
    assert not is_light([dark, np.full((20, 20), 255, np.uint8), dark])

"""benchmarks/oracle.py: its motions are those that the data would go on with, and it is right about what is certain."""

import functools
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import oracle as module
from benchmarks.oracle import (
    as_futures,
    calibration,
    digit_corners,
    drawn,
    drawn_motions,
    exists,
    main,
    nearest,
    observed_motions,
    oracle,
    ranks_of,
    same_in_all,
    true_corners,
)
from sqair.config import DataConfig
from sqair.data import Sequences, open_data
from sqair.data.digits import STROKES
from sqair.data.moving_digits import Bounds
from sqair.evaluation.prediction import FUTURES, OBSERVED, PREDICTED, object_errors, summary

DATA = DataConfig(digits="strokes", size=(30, 30), digit_scale=0.4, speed=6.0, length=OBSERVED + PREDICTED)
WIDE = Bounds(jnp.zeros(2), jnp.full(2, 1000.0), 10.0)
"""Bounds that nothing here gets to."""
SEEN = np.array([[500.0, 500.0], [502.0, 497.0], [504.0, 495.0]], np.float32)
"""Accelerations of 0 and 1 pixels per frame^2, or up to 1.5 more or less, as corners are rounded."""
DRAWS = 200_000


@pytest.fixture(autouse=True)
def few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STROKES, "test", (60, 3))


def sequences(count: int) -> Sequences:
    return jax.tree.map(np.asarray, open_data(DATA, "test").fixed(count, 1))


def largest(correlations: dict[str, list[float]]) -> float:
    return float(np.abs(list(correlations.values())).max())


def test_kept_motions_agree_with_what_was_observed() -> None:
    """Of p2 = r2 + u2 and p1 = r1 + u1, which are rounded, follow p3 - p2 = 2 p2 - 3 p1 + p0 and p1 = p2 - v + a."""
    motion, agreed = observed_motions(jax.random.key(0), SEEN, 500, WIDE, DRAWS)
    assert (agreed >= 500).all()
    np.testing.assert_array_equal(np.round(motion.position), np.broadcast_to(SEEN[2], (500, 2)))
    before = motion.position - motion.velocity + motion.acceleration
    jerk = 5 * module.JERK_STD
    assert np.abs(before - SEEN[1]).max() <= 0.5 + jerk
    apart = motion.velocity - (2 * SEEN[2] - 3 * SEEN[1] + SEEN[0])
    assert np.abs(apart).max() <= 2.5 + jerk
    assert (np.ptp(apart, 0) > 4.0).all(), "no part of the interval is left out"


def test_how_many_agree_is_as_the_prior_says() -> None:
    """Far from the bounds of velocity the prior is uniform in v + a and a, so 1 of (2 * 10) * (2 * 3) motions agrees.

    By symmetry: a reflection changes the sign of both v and a, and is as likely for v as for -v.
    """
    _, corners = drawn_motions(jax.random.key(2), SEEN[0], WIDE, DRAWS)
    agreed = (np.asarray(corners) == SEEN[1:, None]).all(0).sum(0)
    expected = DRAWS / 120
    assert (np.abs(agreed - expected) < 4 * np.sqrt(expected)).all()


def test_futures_have_the_spread_that_rounding_leaves() -> None:
    """Uniform u1 and u2 in whole pixels: p_n = p0 + n v + n (n - 1) / 2 a, with v = p1 - p0 and a = p2 - 2 p1 + p0."""
    seen = np.stack([SEEN[:, 0], 1000 - SEEN[:, 0]], 1)  # no acceleration: none of the limits is near
    corners, _ = digit_corners(jax.random.key(1), seen, 1000, WIDE, DRAWS)
    for h in (1, 2, 3):
        n = h + OBSERVED - 1
        first, second = -n * (n - 2), n * (n - 1) / 2
        spread = np.sqrt((first**2 + second**2 + 1) / 12)  # and they are rounded once more
        found = corners[:, h - 1]
        assert np.abs(found.mean(0) - (seen[0] + n * (seen[1] - seen[0]))).max() < 4 * spread / np.sqrt(1000)
        np.testing.assert_allclose(found.std(0), spread, rtol=0.08)
    assert (np.diff(corners.std(0), axis=0) > 0).all(), "the farther, the less is known"


def test_nearest() -> None:
    assert nearest(np.array([1.0, 0.0, 2.0, 0.0, 0.0]), 2).tolist() == [1, 3]
    assert nearest(np.array([1.0, 0.0, 2.0, 0.0]), 3).tolist() == [1, 3, 1]
    assert nearest(np.array([4.0, 3.0, 9.0]), 2).tolist() == [1, 1]


def test_what_cannot_be_is_counted() -> None:
    seen = SEEN + np.array([[0, 0], [0, 0], [0, 30]], np.float32)
    motion, agreed = observed_motions(jax.random.key(0), seen, 5, WIDE, 20_000)
    assert agreed[0] >= 5
    assert agreed[1] == 0
    assert (motion.position[:, 1] > SEEN[2, 1]).all()


def test_the_true_future_has_no_error() -> None:
    """With all futures as it was; and what is a triangle 3, 4, 5 away is 5 away."""
    truth = sequences(4)
    number = next(i for i in range(4) if exists(truth, i).all())
    true = np.broadcast_to(true_corners(truth, number)[OBSERVED:], (FUTURES, PREDICTED, 2, 2))
    right, wrong = (as_futures(truth, number, true + np.array(off, np.float32)) for off in ([0, 0], [3, -4]))
    np.testing.assert_allclose(object_errors(right, truth, number, DATA).position, 0, atol=1e-5)
    assert not np.any(right.pixels)
    np.testing.assert_allclose(right.mean, 0, atol=1e-12)
    away = object_errors(wrong, truth, number, DATA)
    np.testing.assert_allclose([away.position, away.middle], 5, atol=1e-4)
    assert (np.asarray(wrong.pixels) > 0).any()
    np.testing.assert_allclose(wrong.pixels, np.broadcast_to(wrong.mean, wrong.pixels.shape), rtol=1e-5)
    found = summary([away], *np.zeros((3, 1, PREDICTED)))
    assert found["objects"] == 2
    assert found["lost"] == [0] * PREDICTED


def test_frames_are_drawn_as_the_data_draws_them() -> None:
    truth = sequences(6)
    for i, frames in enumerate(truth.frames):
        there = exists(truth, i)
        corners = np.where(there[:, None], true_corners(truth, i), 0)
        np.testing.assert_array_equal(drawn(truth, i, corners[None])[0, ..., 0], frames)


def test_what_is_the_same_in_all_futures() -> None:
    """Three pictures of two pixels, whose mean is 1, 1: the second is nearest to it."""
    frames = np.array([[3.0, 0.0], [0.0, 1.0], [0.0, 2.0]], np.float32).reshape(3, 1, 1, 2, 1)
    found = same_in_all(frames, np.full((1, 1, 2, 1), 2, np.float32))
    assert list(found) == ["perfect, blurred", "perfect, one future", "black"]
    np.testing.assert_allclose(np.ravel(list(found.values())), [1.0, 2.5, 4.0])


def test_ranks_tell_a_wrong_spread_and_what_is_ignored() -> None:
    noise = np.random.default_rng(0)
    true = np.round(4 * noise.normal(size=(3, 300, 2)))
    seen = noise.normal(size=(3, 600))
    right, narrow = (np.round(scale * noise.normal(size=(200, 3, 300, 2))) for scale in (4, 2))
    ranks = ranks_of(right, true, noise)
    found = calibration(ranks, seen)
    assert found["coordinates"] == 600
    np.testing.assert_allclose(found["within_90"], 0.9, atol=0.05)
    np.testing.assert_allclose(found["within_50"], 0.5, atol=0.08)
    assert min(found["uniform_p"]) > 1e-3
    assert largest(found["correlations"]) < 4 * found["by_chance"]
    seen[2] += 2 * true[0].ravel()
    ignored = calibration(ranks, seen)["correlations"]
    assert min(ignored[name][0] for name in ignored) > 0.5
    found = calibration(ranks_of(narrow, true, noise), seen)
    assert max(found["within_90"]) < 0.75
    assert max(found["uniform_p"]) < 1e-6


measured = functools.cache(lambda: oracle(DATA, sequences=60, draws=20_000))


def test_the_truth_is_like_the_futures() -> None:
    found = measured()
    assert found["axes_with_none"] == 0
    calibrated = found["calibration"]
    np.testing.assert_allclose(calibrated["within_90"], 0.9, atol=0.1)
    assert min(calibrated["uniform_p"]) > 1e-3
    assert largest(calibrated["correlations"]) < 4 * calibrated["by_chance"]


def test_futures_that_ignore_what_was_observed_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any motion that begins where the digit did: its ranks are uniform, but they depend on what was observed."""
    monkeypatch.setattr(module, "nearest", lambda apart, count: np.arange(count))
    found = oracle(DATA, sequences=20, draws=1_000)
    assert found["calibration"]["uniform_p"][0] > 1e-3
    assert found["calibration"]["correlations"]["step"][0] > 0.6
    assert found["rows"][0]["position"][0] > 2 * measured()["rows"][0]["position"][0]


def test_futures_that_are_too_sure_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """One motion that agrees, for all futures."""
    monkeypatch.setattr(module, "nearest", lambda apart, count: np.full(count, apart.argmin()))
    found = oracle(DATA, sequences=20, draws=20_000)
    assert found["calibration"]["uniform_p"][2] < 1e-3
    assert found["calibration"]["within_90"][2] < 0.6


def test_a_blur_is_half_as_wrong_as_a_perfect_future() -> None:
    """Truth and future are two draws of one distribution, each off its mean; the blur is that mean.

    The future that is nearest to the mean is sharp, too, and lies between.
    """
    perfect, blurred, one, black = measured()["rows"]
    ratios = np.array(perfect["pixel_average"]) / np.array(blurred["pixel"])
    np.testing.assert_allclose(ratios, 2, rtol=0.2)
    assert perfect["lost"] == [0] * PREDICTED
    assert perfect["position"][0] < perfect["position"][2] < perfect["position"][9]
    assert perfect["middle"][0] < perfect["constant_velocity"][0]
    assert (np.array(perfect["pixel_mean"]) < perfect["pixel"]).all()
    assert blurred["position"] is None
    assert (np.array(blurred["pixel"]) < one["pixel"]).all()
    assert np.mean(one["pixel"]) < np.mean(perfect["pixel_average"])
    frames = sequences(60).frames[:, OBSERVED:]
    np.testing.assert_allclose(black["pixel"], np.square(frames).mean((0, 2, 3)), rtol=1e-4)


def test_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--digits", "strokes", "--sequences", "3", "--draws", "20000", "--record", "x", "--folder", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["oracle", *words])
    main()
    (path,) = tmp_path.glob("*_x.json")
    results = json.loads(path.read_text())["results"]
    assert results["kind"] == "oracle"
    assert results["data"]["digits"] == "strokes"
    assert [row["model"] for row in results["rows"]] == ["perfect", "perfect, blurred", "perfect, one future", "black"]
    assert results["calibration"]["coordinates"] == 2 * results["rows"][0]["objects"]

"""What a perfect model could reach in the prediction errors, as a record.

    python -m benchmarks.oracle --digits DIR --sequences 200 --record oracle_prediction

It knows the rules of the data, what the digits look like and at which whole pixels they were in the three observed
frames, in sight or not. So it draws futures from the exact posterior of the motion: of many motions that begin where
the digit did, those that were at its pixels later are kept, and go on by the rules. The axes are independent of each
other, and so are digits. The errors are those of sqair/evaluation/prediction.py, and `pixel_average` besides: the mean
over futures, where `pixel` is the median. As truth and futures are draws of one distribution, it is expected to be
twice the error of that distribution's mean.

Other rows are models that draw one thing in all futures: that mean, which is a blur; the one of many futures that is
nearest to it; nothing.
"""

import argparse
import json
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt8
from numpy import ndarray

from benchmarks.flags import add_record_flags
from benchmarks.prediction import named
from benchmarks.record import write_record
from sqair.config import DataConfig
from sqair.data import Sequences, open_data
from sqair.data.moving_digits import JERK_STD, Bounds, Motion, _render, move, set_off
from sqair.evaluation.prediction import (
    FUTURES,
    OBSERVED,
    PREDICTED,
    Futures,
    column,
    object_errors,
    pixel_errors,
    summary,
)
from sqair.settings import to_dict

MANY = 200
"""Futures of which the blur is the mean and one is nearest to it; the ranks of the truth are among these."""
CHUNKS = 5
"""Times that motions are drawn at most, until there are enough that agree with what was observed."""
STREAM = 2**32 - 1
"""Keeps the noise apart from that of the sequences, whose keys are folded with small numbers."""


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--digits", default="mnist", help="mnist, strokes or a folder")
    parser.add_argument("--sequences", type=int, default=200)
    parser.add_argument("--draws", type=int, default=200_000, help="motions drawn at once")
    parser.add_argument("--seed", type=int, default=1)
    add_record_flags(parser)
    arguments = parser.parse_args()
    began = time.perf_counter()
    data = DataConfig(digits=arguments.digits, length=OBSERVED + PREDICTED)
    found = oracle(data, sequences=arguments.sequences, draws=arguments.draws, seed=arguments.seed)
    about = {"kind": "oracle", "seeds": [arguments.seed], "data": named(to_dict(data))}
    results = about | found | {"seconds": round(time.perf_counter() - began, 1)}
    print(json.dumps(results), flush=True)
    if arguments.record:
        print("Record saved to", write_record(arguments.record, results, arguments.folder))


def oracle(data: DataConfig, *, sequences: int, draws: int, seed: int = 1) -> dict[str, Any]:
    """Errors of a perfect model on moving-mnist, of what it might draw instead, and whether its futures are right."""
    truth: Sequences = jax.tree.map(np.asarray, open_data(data, "test").fixed(sequences, seed))
    key, noise = jax.random.fold_in(jax.random.key(seed), STREAM), np.random.default_rng(seed)
    single, same, ranks, seen, agreed = [], [], [], [], []
    for i in range(sequences):
        corners, agree = sequence_corners(jax.random.fold_in(key, i), truth, i, data, draws)
        single.append(as_futures(truth, i, corners[:FUTURES]))
        same.append(same_in_all(drawn(truth, i, corners[FUTURES:]), later_frames(truth, i)))
        there = exists(truth, i)
        true = true_corners(truth, i)[:, there]
        ranks.append(ranks_of(corners[FUTURES:, :, there], true[OBSERVED:], noise))
        seen.append(true[:OBSERVED].reshape(OBSERVED, -1))
        agreed.append(agree[there])
    agreed = np.concatenate(agreed)
    return {
        "rows": rows(single, same, truth, data),
        "calibration": calibration(np.concatenate(ranks, 1), np.concatenate(seen, 1)),
        "sequences": sequences,
        "futures": FUTURES,
        "blurred": MANY,
        "agreeing_motions": {"median": float(np.median(agreed)), "fewest": int(agreed.min())},
        "axes_with_too_few": int((agreed < FUTURES + MANY).sum()),
        "axes_with_none": int((agreed == 0).sum()),
        "observed_out_of_sight": out_of_sight(truth),
    }


def rows(
    single: list[Futures], same: list[dict[str, ndarray]], truth: Sequences, data: DataConfig
) -> list[dict[str, Any]]:
    """The errors of futures, and of what is the same in all."""
    errors = [object_errors(each, truth, i, data) for i, each in enumerate(single)]
    pixels, mean, still = (np.stack([np.asarray(getattr(f, name)) for f in single]) for name in Futures._fields[2:])
    perfect = summary(errors, np.median(pixels, 1), mean, still) | column("pixel_average", list(pixels.mean(1).T))
    found = [{"model": "perfect", **perfect}]
    for name in same[0]:
        off = np.stack([each[name] for each in same])
        found.append({"model": name, **summary([], off, off, still)})
    return found


# --- the exact posterior of motions


def sequence_corners(
    key: PRNGKeyArray, truth: Sequences, number: int, data: DataConfig, draws: int
) -> tuple[Float[ndarray, "R H O 2"], Int[ndarray, "O 2"]]:
    """Corners of all digits in each future, 0 of those that are not there; how many motions agreed, per axis."""
    seen = true_corners(truth, number)[:OBSERVED]
    corners = np.zeros((FUTURES + MANY, PREDICTED, *seen.shape[1:]), np.float32)
    agreed = np.zeros(seen.shape[1:], int)
    bounds = Bounds(jnp.zeros(2), jnp.asarray(data.size, jnp.float32), data.speed)
    for o in np.flatnonzero(exists(truth, number)):
        each = jax.random.fold_in(key, o)
        corners[:, :, o], agreed[o] = digit_corners(each, seen[:, o], len(corners), bounds, draws)
    return corners, agreed


def digit_corners(
    key: PRNGKeyArray, seen: Float[ndarray, "T 2"], count: int, bounds: Bounds, draws: int
) -> tuple[Float[ndarray, "R H 2"], Int[ndarray, "2"]]:
    """Whole corners in `count` futures of a digit that was at `seen`, and how many motions agreed with that."""
    motion, agreed = observed_motions(key, seen, count, bounds, draws)
    jerks = JERK_STD * jax.random.normal(jax.random.fold_in(key, CHUNKS), (PREDICTED, count, 2))
    _, corners = moved_on(motion, jerks, bounds)
    return np.asarray(corners).swapaxes(0, 1), agreed


def observed_motions(
    key: PRNGKeyArray, seen: Float[ndarray, "T 2"], count: int, bounds: Bounds, draws: int
) -> tuple[Motion, Int[ndarray, "2"]]:
    """Motions (count, 2) in the last observed frame, and how many agreed.

    When fewer than `count` agree they are used again; when none does, those whose corners differ least.
    """
    parts, apart, agreed = [], [], np.zeros(2, int)
    for chunk in range(CHUNKS):
        motion, corners = drawn_motions(jax.random.fold_in(key, chunk), seen[0], bounds, draws)
        parts.append(motion)
        apart.append(np.abs(np.asarray(corners) - seen[1:, None]).sum(0))
        agreed = agreed + (apart[-1] == 0).sum(0)
        if agreed.min() >= count:
            break
    chosen = np.stack([nearest(each, count) for each in np.concatenate(apart).T], 1)
    motion = jax.tree.map(lambda *leaves: np.take_along_axis(np.concatenate(leaves), chosen, 0), *parts)
    return motion, agreed


def nearest(apart: Float[ndarray, " n"], count: int) -> Int[ndarray, " count"]:
    """The first `count` of those that are least apart, again from the beginning if there are fewer."""
    least = np.flatnonzero(apart == apart.min())
    return least[np.arange(count) % len(least)]


@partial(jax.jit, static_argnames="draws")
def drawn_motions(
    key: PRNGKeyArray, start: Float[Array | ndarray, "2"], bounds: Bounds, draws: int
) -> tuple[Motion, Float[Array, "T draws 2"]]:
    """Motions from `start` in the last observed frame, and their corners in all observed frames but the first."""
    key_jerk, key_first = jax.random.split(key)
    jerks = JERK_STD * jax.random.normal(key_jerk, (OBSERVED, draws, 2))
    first = set_off(key_first, jnp.broadcast_to(start, (draws, 2)), jerks[0], bounds)
    return moved_on(first, jerks[1:], bounds)


@jax.jit
def moved_on(motion: Motion, jerks: Float[Array, "T n 2"], bounds: Bounds) -> tuple[Motion, Float[Array, "T n 2"]]:
    """Motions after these jerks, and the whole corners on the way."""

    def step(motion: Motion, jerk: Array) -> tuple[Motion, Array]:
        motion = move(motion, jerk, bounds)
        return motion, jnp.round(motion.position)

    return jax.lax.scan(step, motion, jerks)


# --- their pixels


def as_futures(truth: Sequences, number: int, corners: Float[ndarray, "R H O 2"]) -> Futures:
    """Futures that have the true digits at these corners, and the true past."""
    assert truth.boxes is not None
    assert truth.ids is not None
    past = np.asarray(truth.boxes[number, OBSERVED - 2 : OBSERVED])
    past = np.broadcast_to(past, (len(corners), *past.shape))
    sizes = np.broadcast_to(past[:, :1, :, 2:], (*corners.shape[:-1], 2))
    found = np.concatenate([past, np.concatenate([corners[..., ::-1], sizes], -1)], 1)
    identity = np.broadcast_to(np.asarray(truth.ids[number, OBSERVED - 1]), found.shape[:-1])
    frames, later = drawn(truth, number, corners), later_frames(truth, number)
    still = np.broadcast_to(np.asarray(truth.frames[number, OBSERVED - 1])[..., None], later.shape)
    return Futures(found, identity, *(pixel_errors(each, later) for each in (frames, frames.mean(0), still)))


def same_in_all(frames: Float[ndarray, "R H Y X C"], later: Float[ndarray, "H Y X C"]) -> dict[str, ndarray]:
    """Errors at each horizon of the mean of futures, of the future that is nearest to it, and of black frames."""
    blur = frames.mean(0)
    one = frames[np.asarray(pixel_errors(frames, blur)).sum(1).argmin()]
    pictures = {"perfect, blurred": blur, "perfect, one future": one, "black": np.zeros_like(blur)}
    return {name: np.asarray(pixel_errors(each, later)) for name, each in pictures.items()}


def drawn(truth: Sequences, number: int, corners: Float[ndarray, "R H O 2"]) -> Float[ndarray, "R H Y X C"]:
    """Frames as the data has them, with the true digits at these corners."""
    images, there = true_images(truth, number), exists(truth, number)
    images = np.broadcast_to(images, (len(corners), *images.shape))
    alive = np.broadcast_to(there, (*corners.shape[:2], len(there)))
    height, width = truth.frames.shape[2:4]
    return np.asarray(render(images, corners.astype(np.int32), alive, (height, width)))[..., None]


render = jax.jit(_render, static_argnames="frame")


def later_frames(truth: Sequences, number: int) -> Float[ndarray, "H Y X C"]:
    """The true frames that are predicted."""
    return np.asarray(truth.frames[number, OBSERVED:])[..., None]


def true_images(truth: Sequences, number: int) -> UInt8[ndarray, "O C C"]:
    """The digits, each in the top-left corner, as they are in the first frame: there all are whole and apart."""
    assert truth.boxes is not None
    first = np.rint(np.asarray(truth.frames[number, 0]) * 255).astype(np.uint8)
    images = np.zeros((truth.boxes.shape[2], max(first.shape), max(first.shape)), np.uint8)
    for o in np.flatnonzero(exists(truth, number)):
        left, top, width, height = np.asarray(truth.boxes[number, 0, o]).astype(int)
        images[o, :height, :width] = first[top : top + height, left : left + width]
    return images


# --- the truth


def exists(truth: Sequences, number: int) -> ndarray:
    """Which digits there are."""
    assert truth.labels is not None
    return np.asarray(truth.labels[number]) >= 0


def true_corners(truth: Sequences, number: int) -> Float[ndarray, "T O 2"]:
    """Top and left."""
    assert truth.boxes is not None
    return np.asarray(truth.boxes[number])[..., 1::-1]


def out_of_sight(truth: Sequences) -> int:
    """Digits that cannot be seen at all in some observed frame, though the perfect model is told where they are."""
    assert truth.visible is not None
    assert truth.labels is not None
    hidden = (np.asarray(truth.visible)[:, :OBSERVED] == 0).any(1)
    return int((hidden & (np.asarray(truth.labels) >= 0)).sum())


def ranks_of(
    samples: Float[ndarray, "R H O 2"], true: Float[ndarray, "H O 2"], noise: np.random.Generator
) -> Float[ndarray, "H n"]:
    """The rank of each true coordinate among its samples, in 0 to 1, at random among equals: uniform when exact."""
    below, equal = (samples < true).sum(0), (samples == true).sum(0)
    ranks = (below + noise.uniform(size=true.shape) * (equal + 1)) / (len(samples) + 1)
    return ranks.reshape(len(true), -1)


def calibration(ranks: Float[ndarray, "H n"], seen: Float[ndarray, "T n"]) -> dict[str, Any]:
    """Whether ranks are uniform: shares of true coordinates within the central 90% and 50% of samples, and p-values.

    So they would be, too, if observations were ignored. But then ranks would depend on what was observed: hence their
    correlations with the last position, the last step and how it had changed, 0 plus or minus `by_chance`.
    """
    from scipy.stats import kstest

    inside = {f"within_{share}": (np.abs(ranks - 0.5) < share / 200).mean(1).tolist() for share in (90, 50)}
    features = {"position": seen[-1], "step": seen[-1] - seen[-2], "change": np.diff(seen, 2, 0)[-1]}
    return {
        "coordinates": ranks.shape[1],
        **inside,
        "uniform_p": [float(kstest(each, "uniform").pvalue) for each in ranks],
        "correlations": {
            name: [float(np.corrcoef(each, feature)[0, 1]) for each in ranks] for name, feature in features.items()
        },
        "by_chance": ranks.shape[1] ** -0.5,
    }


if __name__ == "__main__":
    main()

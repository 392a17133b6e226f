"""Prediction: a model observes three frames and dreams ten; how far are its objects and its pixels from the truth?

Particles observe the frames, and futures are drawn from them by weight. In each, the objects present in both of the
last two observed frames are matched to the true ones, one to one, by the distance of centres in the last; then each is
followed by its identity. An object's centre is that of the tight box of its glimpse, wherever in or out of the frame.
An error is the median over futures. A future that has lost the object counts as one infinitely wrong; an object that is
lost in half of its futures or more has no error at that horizon: such are left out, and `lost` is their share. Futures
scatter, the rival does not; so the error of the median of the futures' positions is given, too. Likewise in pixels that
of the mean of the futures' frames: a sharp digit in the wrong place is wrong twice, where it is and where it is not.

The rival moves the same objects on with the velocity between their last two posterior positions, reflected at the
bounds of the data's motion; it lives in the same particles, so both have the same objects and the same first error.

Axes: S sequences, T frames, K particles, R futures, H horizons, N slots, O true objects, Y, X, C frame, 2 is x, y.
"""

import dataclasses
import math
import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy import ndarray

from sqair.config import DataConfig, UserError
from sqair.data import MOTIONS, Sequences, open_data
from sqair.evaluation.evaluate import ROWS, check_frames
from sqair.image import as_frames, whole_boxes
from sqair.model import SQAIR, SequenceModel
from sqair.objects import Objects, State
from sqair.particles import draw_particles

OBSERVED, PREDICTED, FUTURES = 3, 10, 20
FARTHEST = 15.0
"""Pixels between the centres of an object and of its match at most."""


class Futures(NamedTuple):
    """What is known of the futures of one sequence."""

    boxes: Float[Array | ndarray, "*batch R T N 4"]
    """Unclipped tight boxes (left, top, width, height) of the last two observed frames and of all predicted ones."""
    identity: Int[Array | ndarray, "*batch R T N"]
    """-1 where absent."""
    pixels: Float[Array | ndarray, "*batch R H"]
    """Squared error per pixel of the mean of each predicted frame."""
    mean: Float[Array | ndarray, "*batch H"]
    """The same of the mean over all futures."""
    still: Float[Array | ndarray, "*batch H"]
    """The same of the last observed frame, repeated."""


def prediction(
    model: SequenceModel, data: DataConfig, *, sequences: int, particles: int = 50, seed: int = 1
) -> dict[str, Any]:
    """Errors per horizon, in pixels and in squared brightness, on test sequences of 13 frames.

    Keys: `position`, `constant_velocity` and `middle` with standard errors over objects, `lost`, `pixel` and
    `pixel_mean` with standard errors over sequences, `pixel_still` of a repeated last frame. VRNN has no positions:
    there they are None.
    """
    if model.frames_are_independent:
        raise UserError("AIR sees every frame by itself and predicts nothing; use a model of the kinds sqair or vrnn")
    if data.name not in MOTIONS or data.name == "moving-mnist-in-out":
        raise UserError(f"prediction needs digits that stay, which {data.name} has not; use moving-mnist")
    data = dataclasses.replace(data, length=OBSERVED + PREDICTED)
    source = open_data(data, "test")
    batch = max(1, min(sequences, ROWS.get(jax.default_backend(), ROWS["gpu"]) // particles))
    key, errors, pixels, means, still = jax.random.key(seed), [], [], [], []
    for first in range(0, sequences, batch):
        here = min(batch, sequences - first)
        truth = source.fixed(here, seed, first)
        check_frames(model, truth.frames)
        frames = jnp.asarray(truth.frames)[jnp.arange(batch) % here]
        with jax.default_matmul_precision("highest"):
            futures = batch_futures(model, key, frames, first + jnp.arange(batch), particles)
        futures = jax.tree.map(lambda leaf, here=here: np.asarray(leaf[:here]), futures)
        pixels.append(np.median(futures.pixels, 1))
        means.append(futures.mean)
        still.append(futures.still)
        if model.has_objects:
            errors += [object_errors(each, truth, i, data) for i, each in enumerate(by_sequence(futures))]
    return summary(errors, *map(np.concatenate, (pixels, means, still))) | {
        "sequences": sequences,
        "particles": particles,
        "futures": FUTURES,
    }


# --- the model's futures


@eqx.filter_jit
def batch_futures(
    model: SequenceModel,
    key: PRNGKeyArray,
    frames: Float[Array, "S T Y X"] | Float[Array, "S T Y X C"],
    index: Int[Array, " S"],
    particles: int,
) -> Futures:
    """The futures of each sequence of a batch; sequence i has noise of its own, whatever the batches."""

    def one(i: Int[Array, ""], frames: Array) -> Futures:
        return sequence_futures(model, jax.random.fold_in(key, i), as_frames(frames), particles)

    return jax.vmap(one)(index, frames)


def sequence_futures(
    model: SequenceModel, key: PRNGKeyArray, frames: Float[Array, "T Y X C"], particles: int
) -> Futures:
    """Observe with K particles, draw the futures' pasts by weight, dream each on."""
    seen, later = frames[:OBSERVED], frames[OBSERVED:]
    key_seen, key_choice, key_dream = jax.random.split(key, 3)
    noise = draw_particles(model, key_seen, particles, OBSERVED)
    states, past = jax.vmap(lambda each: model.observe(None, seen, noise=each))(noise)
    edges = jnp.cumsum(jax.nn.softmax(past.log_weight.sum(-1)))
    points = (jnp.arange(FUTURES) + jax.random.uniform(key_choice)) / FUTURES
    chosen = jnp.minimum(jnp.searchsorted(edges, points * edges[-1], side="right"), particles - 1)
    states, before = jax.tree.map(lambda leaf: leaf[chosen], (states, past.objects))

    def dream(state: State, key: PRNGKeyArray) -> tuple[Objects, Array]:
        _, info = model.imagine(key, PREDICTED, state=state)
        return info.objects, info.canvas

    after, canvases = jax.vmap(dream)(states, jax.random.split(key_dream, FUTURES))
    objects = jax.tree.map(lambda a, b: jnp.concatenate([a[:, -2:], b], 1), before, after)
    if isinstance(model, SQAIR):
        boxes = jax.vmap(lambda each: whole_boxes(model.image, each))(objects)
    else:
        boxes = jnp.zeros((*objects.identity.shape, 4))
    still = jnp.broadcast_to(seen[-1], later.shape)
    pixels = [pixel_errors(each, later) for each in (canvases, canvases.mean(0), still)]
    return Futures(boxes, objects.identity, *pixels)


# --- errors


def pixel_errors(
    frames: Float[Array | ndarray, "*R H Y X C"], true: Float[Array | ndarray, "H Y X C"]
) -> Float[Array, "*R H"]:
    """Squared errors per pixel."""
    return jnp.square(frames - true).mean((-3, -2, -1))


class Errors(NamedTuple):
    """Of the objects of one sequence at each horizon, in pixels; infinite where an object is lost."""

    position: Float[ndarray, "O H"]
    constant_velocity: Float[ndarray, "O H"]
    middle: Float[ndarray, "O H"]
    """Of the median position."""


def by_sequence(futures: Futures) -> list[Futures]:
    """The futures of each sequence of a batch."""
    return list(map(Futures._make, zip(*futures, strict=True)))


def object_errors(futures: Futures, truth: Sequences, number: int, data: DataConfig) -> Errors:
    """The errors of each true object of a sequence, medians over futures."""
    assert truth.boxes is not None
    boxes = np.asarray(truth.boxes[number])
    true = (boxes[..., :2] + (boxes[..., 2:] - 1) / 2)[OBSERVED - 1 :]  # centres, (1 + H, O, 2)
    exists = np.flatnonzero(np.isfinite(true[0, :, 0]))
    paths = np.full((2, len(exists), len(futures.identity), PREDICTED, 2), np.nan)
    for f, (found, identity) in enumerate(zip(futures.boxes, futures.identity, strict=True)):
        ours = found[..., :2] + (found[..., 2:] - 1) / 2
        for place, slot in matches(true[0, exists], ours, identity):
            name = identity[1, slot]
            before = ours[0, identity[0] == name][0]
            paths[1, place, f] = constant_velocity(ours[1, slot], ours[1, slot] - before, found[1, slot, 2:], data)
            frames, slots = np.nonzero(identity[2:] == name)
            paths[0, place, f, frames] = ours[2:][frames, slots]
    goal = true[1:, exists].swapaxes(0, 1)  # (O, H, 2)
    errors = np.linalg.norm(paths - goal[:, None], axis=-1)
    ours, rival = np.median(np.where(np.isnan(errors), np.inf, errors), 2)
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # an object may be lost in all futures
        middle = np.linalg.norm(np.nanmedian(paths[0], 1) - goal, axis=-1)
    return Errors(ours, rival, middle)


def matches(true: Float[ndarray, "O 2"], ours: Float[ndarray, "T N 2"], identity: Int[ndarray, "T N"]) -> Any:
    """Pairs of a true object and a slot of the last observed frame, nearest in sum and none too far."""
    from scipy.optimize import linear_sum_assignment

    slots = np.flatnonzero((identity[1] >= 0) & np.isin(identity[1], identity[0]))
    distance = np.linalg.norm(true[:, None] - ours[1, slots][None], axis=-1)
    rows, columns = linear_sum_assignment(np.minimum(distance, FARTHEST))
    near = distance[rows, columns] < FARTHEST
    return zip(rows[near], slots[columns[near]], strict=True)


def constant_velocity(
    centre: Float[ndarray, "2"], velocity: Float[ndarray, "2"], size: Float[ndarray, "2"], data: DataConfig
) -> Float[ndarray, "H 2"]:
    """Centres at each horizon; the top-left corner is reflected where that of the data's digits is."""
    low = -size if data.name == "moving-mnist-free" else np.zeros(2)
    high = np.array(data.size[::-1], float)
    start = centre - (size - 1) / 2 - low
    along = np.abs(start + velocity * np.arange(1, PREDICTED + 1)[:, None])
    around = along % (2 * (high - low))  # a straight line, folded back at both ends
    corner = low + np.where(around > high - low, 2 * (high - low) - around, around)
    return corner + (size - 1) / 2


def summary(
    errors: list[Errors], pixels: Float[ndarray, "S H"], means: Float[ndarray, "S H"], still: Float[ndarray, "S H"]
) -> dict[str, Any]:
    """Means over objects and sequences, with standard errors, for each horizon."""
    results: dict[str, Any] = {"horizons": list(range(1, PREDICTED + 1)), "objects": None, "lost": None}
    results |= {f"{name}{end}": None for name in Errors._fields for end in ("", "_se")}
    if errors:
        values = Errors(*(np.concatenate(each) for each in zip(*errors, strict=True)))
        kept = np.isfinite(values.position) & np.isfinite(values.constant_velocity)
        results |= {"objects": len(kept), "lost": (1 - kept.mean(0)).tolist()}
        for name, each in values._asdict().items():
            results |= column(name, [each[kept[:, h], h] for h in range(PREDICTED)])
    results |= column("pixel", list(pixels.T)) | column("pixel_mean", list(means.T))
    return results | {"pixel_still": [mean(each) for each in still.T]}


def column(name: str, values: list[Float[ndarray, " _"]]) -> dict[str, list[float | None]]:
    """Means and standard errors, one of each for every horizon."""
    return {name: [mean(each) for each in values], f"{name}_se": [standard_error(each) for each in values]}


def mean(values: Float[ndarray, " n"]) -> float | None:
    """The mean; None of nothing."""
    return float(values.mean()) if len(values) else None


def standard_error(values: Float[ndarray, " n"]) -> float | None:
    """Of the mean; None of fewer than two."""
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None

"""Boxes of a posterior sample, and how sure the posterior is of them.

DRAWS particles are drawn by their weights while particles come a chunk at a time: each draw keeps the particle whose
log weight plus Gumbel noise is the largest so far, which is a draw from all of them when the last chunk is through. The
first draw is the sample that is tracked. The others tell how far its boxes might lie: if the truth were one more draw,
it would lie between the least and the greatest of 19 with probability 18/20, so their range is a 90% interval.

Axes: T frames, N slots, R draws, C the particles of a chunk, 4 left, top, width, height.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy import ndarray

from sqair.baselines.air import AIR
from sqair.evaluation.tracking import box_iou
from sqair.image import tight_boxes
from sqair.model import SQAIR, SequenceModel
from sqair.objects import Objects, no_objects
from sqair.tracks import Truth

DRAWS = 19
"""Of which the range is a 90% interval."""
MATCH_IOU = 0.5
"""From this overlap on a box is that of a true object."""
APART = 2**31 - 1
"""A number that no particle has, for noise of its own."""


class Draws(NamedTuple):
    """Particles drawn so far; with AIR each frame has a draw of its own."""

    score: Float[Array, "R #T"]
    """Log weight plus noise."""
    objects: Objects
    """With leading axes (R, T)."""


class Sample(NamedTuple):
    """The boxes of the first draw, and intervals of their centres."""

    boxes: Float[Array | ndarray, "*batch T N 4"]
    """NaN where absent or out of sight."""
    identity: Int[Array | ndarray, "*batch T N"]
    """-1 where absent."""
    low: Float[Array | ndarray, "*batch T N 2"]
    high: Float[Array | ndarray, "*batch T N 2"]
    """x and y of the centre in pixels: least and greatest over the draws that have the object; NaN without a box."""


def no_draws(model: SequenceModel, length: int) -> Draws:
    """Before the first particle."""
    empty = no_objects(model.config.max_objects, model.config.what_size)
    objects = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (DRAWS, length, *leaf.shape)), empty)
    return Draws(jnp.full((DRAWS, length if model.frames_are_independent else 1), -jnp.inf), objects)


def add_draws(
    draws: Draws, key: PRNGKeyArray, index: Int[Array, " C"], log_w: Float[Array, "C T"], objects: Objects
) -> Draws:
    """Go on with a chunk of particles, whose numbers are `index`; the draws do not depend on the chunks.

    `log_w` is -inf where a particle only fills the chunk up, and the same in all frames unless frames have their own.
    """
    draw_noise = jax.vmap(lambda k: jax.random.gumbel(jax.random.fold_in(key, k), draws.score.shape))
    score = log_w[:, None, : draws.score.shape[1]] + draw_noise(index)
    best, top = score.argmax(0), score.max(0)
    best, better = (jnp.broadcast_to(each, (DRAWS, log_w.shape[1])) for each in (best, top > draws.score))

    def replace(new: Array, old: Array) -> Array:
        chosen = new[best, jnp.arange(new.shape[1])]
        return jnp.where(better.reshape(better.shape + (1,) * (chosen.ndim - 2)), chosen, old)

    return Draws(jnp.maximum(top, draws.score), jax.tree.map(replace, objects, draws.objects))


def sample_boxes(model: SQAIR | AIR, draws: Draws) -> Sample:
    """Boxes of the first draw, each with the range of the centres of the boxes that overlap it most in every draw."""
    frames = jax.tree.map(lambda leaf: leaf.reshape(-1, 1, *leaf.shape[2:]), draws.objects)
    boxes = jax.lax.map(lambda objects: tight_boxes(model.image, objects)[0], frames)  # one frame of one draw at a time
    boxes = boxes.reshape(DRAWS, -1, *boxes.shape[1:])
    overlap = jnp.nan_to_num(jax.vmap(jax.vmap(_overlaps, (0, 0)), (None, 0))(boxes[0], boxes))
    same, shared = overlap.argmax(-1), overlap.max(-1)
    centre = jnp.take_along_axis(boxes[..., :2] + boxes[..., 2:] / 2, same[..., None], 2)
    has = (shared > 0)[..., None]
    low, high = jnp.where(has, centre, jnp.inf).min(0), jnp.where(has, centre, -jnp.inf).max(0)
    seen = ~jnp.isnan(boxes[0, ..., :1])
    low, high = (jnp.where(seen, each, jnp.nan) for each in (low, high))
    return Sample(boxes[0], draws.objects.identity[0], low, high)


def _overlaps(boxes: Float[Array, "N 4"], others: Float[Array, "M 4"]) -> Float[Array, "N M"]:
    """Intersection over union of every pair; NaN where one of them is."""
    a, b = boxes[:, None], others[None]
    shared = jnp.minimum(a[..., :2] + a[..., 2:], b[..., :2] + b[..., 2:]) - jnp.maximum(a[..., :2], b[..., :2])
    inner = jnp.maximum(shared, 0).prod(-1)
    return inner / (a[..., 2:].prod(-1) + b[..., 2:].prod(-1) - inner)


def covered(sample: Sample, truth: Truth) -> tuple[int, int]:
    """Coordinates of centres of true boxes that lie in their intervals, and all that have one, in one sequence.

    A true box has an interval if it is not ignored and is matched to a box of the sample: one to one within a frame,
    by the largest sum of overlaps, none below 0.5.
    """
    from scipy.optimize import linear_sum_assignment

    inside = total = 0
    true = truth.tracks.select(truth.tracks.in_sight & ~truth.ignored)
    for frame in np.unique(true.frame):
        boxes = true.at(int(frame)).box
        overlap = np.nan_to_num(box_iou(boxes, np.asarray(sample.boxes[frame])))
        rows, slots = linear_sum_assignment(-np.where(overlap >= MATCH_IOU, overlap, 0.0))
        matched = overlap[rows, slots] >= MATCH_IOU
        rows, slots = rows[matched], slots[matched]
        centre = (boxes[:, :2] + boxes[:, 2:] / 2)[rows]
        within = (sample.low[frame, slots] <= centre) & (centre <= sample.high[frame, slots])
        inside, total = inside + int(within.sum()), total + within.size
    return inside, total

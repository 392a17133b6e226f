"""Temporal consistency of what: does the code of a digit stay the same from frame to frame (App. H)?

One number: the mean squared change of what between consecutive frames of the same digit, divided by the mean squared
distance between the whats of different digits. 0 is a code that never changes, 1 one that changes as if the digit had
been replaced by another. Codes are posterior means (evaluation/addition.py); a true digit, at least a quarter visible,
has the code of the object whose box overlaps its own with an IoU of 0.5 or more. VRNN has one code for the whole frame:
there the frame is the object, and frames of other sequences are the others.

Axes: S sequences, T frames, O objects, N slots, W what, Y, X frame.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy import ndarray

from sqair.baselines.air import AIR
from sqair.data import Source
from sqair.evaluation.addition import no_noise
from sqair.evaluation.evaluate import check_frames
from sqair.evaluation.matching import match
from sqair.image import as_frames, tight_boxes
from sqair.model import SQAIR, SequenceModel
from sqair.tracks.text import LEAST_VISIBLE


def consistency(model: SequenceModel, source: Source, *, sequences: int, seed: int = 1) -> dict[str, Any]:
    """`what_change`, the number above, and `pairs`, the pairs of frames that it is the mean of."""
    truth = source.fixed(sequences, seed)
    check_frames(model, truth.frames)
    what, boxes = (np.asarray(leaf) for leaf in _codes(model, jnp.asarray(truth.frames)))
    if not model.has_objects:
        codes, known = what, np.ones(what.shape[:3], bool)
    else:
        assert truth.boxes is not None
        seen = np.asarray(truth.visible) >= LEAST_VISIBLE
        codes, known = matched_codes(what, boxes, np.asarray(truth.boxes), seen, model.config.image)
    return change(codes, known)


@eqx.filter_jit
def _codes(model: SequenceModel, frames: Array) -> tuple[Float[Array, "S T N W"], Float[Array, "S T N 4"]]:
    """Posterior means of what and the boxes of the objects."""

    def one(frames: Array) -> tuple[Array, Array]:
        seen = as_frames(frames)
        noise = no_noise(model.noise(jax.random.key(0), seen.shape[0]))
        objects = model.observe(None, seen, noise=noise)[1].objects
        if isinstance(model, SQAIR | AIR):
            return objects.what, tight_boxes(model.image, objects)
        return objects.what, jnp.zeros((*objects.what.shape[:2], 4))

    return jax.lax.map(one, frames, batch_size=64)


def matched_codes(
    what: Float[ndarray, "S T N W"],
    boxes: Float[ndarray, "S T N 4"],
    true: Float[ndarray, "S T O 4"],
    seen: Bool[ndarray, "S T O"],
    size: tuple[int, int],
) -> tuple[Float[ndarray, "S T O W"], Bool[ndarray, "S T O"]]:
    """The codes of the true objects, and where they have one."""
    codes, known = np.zeros((*true.shape[:3], what.shape[-1])), np.zeros(true.shape[:3], bool)
    for s, t in np.ndindex(true.shape[:2]):
        for place, slot in match(true[s, t], boxes[s, t], size, seen[s, t]):
            codes[s, t, place], known[s, t, place] = what[s, t, slot], True
    return codes, known


def change(codes: Float[ndarray, "S T O W"], known: Bool[ndarray, "S T O"]) -> dict[str, Any]:
    """The mean squared change of codes over their mean squared distance from those of other objects."""
    both = known[:, 1:] & known[:, :-1]
    same = np.square(codes[:, 1:] - codes[:, :-1]).sum(-1)[both]
    first = known.argmax(1)  # one code of each object, the first
    some = np.take_along_axis(codes, first[:, None, :, None], 1)[:, 0][known.any(1)]
    if not len(same) or len(some) < 2:
        return {"what_change": None, "pairs": len(same)}
    # the mean over ordered pairs of different objects, without writing all pairs down
    apart = 2 * (np.square(some).sum(-1).mean() - np.square(some.mean(0)).sum()) * len(some) / (len(some) - 1)
    return {"what_change": float(same.mean() / apart), "pairs": len(same)}

"""The collapse alarm: it names how a training fails, from the frames and the model alone; it sees no labels.

`look` finds facts of some held-out frames once; `measure` takes a sample of a model's posterior on the same frames;
`name_failure` compares the two. A single answer may be a passing state of a healthy training: act on the same answer
twice in a row.

Axes: S sequences, T frames, N slots, Y, X, C frame, F frames of all sequences.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped
from numpy import ndarray

from sqair.baselines.air import AIR
from sqair.image import as_frames
from sqair.model import SQAIR, Info

FAILURES = {
    "divergence": "the bound fell apart; lower --train.learning-rate",
    "none used": "no objects although frames are not empty; lower --train.discovery-cost or --train.learning-rate",
    "re-detection": "objects are found anew in every frame, not propagated; raise --train.discovery-dropout and "
    "--train.stage, and start with --train.first-length 3 or less",
    "all slots used": "slots are filled whether or not there is something; raise --train.discovery-cost",
    "ghosts": "objects that explain nothing in their whole life; raise --train.discovery-cost, and see that "
    "--model.where-prior-mean lies inside the frame",
    "merged": "one object where there are several: it explains all of them, or the others are left out; lower "
    "--train.discovery-cost, or train other seeds with --members",
}
"""The failures in the order in which they are looked for, and what to do about each."""

INK = 0.2
"""Pixels brighter than this share of the brightest are ink."""
JOIN, APART = 1, 1
"""Blobs are joined where widening them by JOIN pixels makes them touch. They are clearly apart where widening them by
APART more makes no difference."""
SPECK = 0.2
"""A blob with less than this share of the usual energy is neither counted nor overlooked: its frame is no evidence."""

SKIPPED = 10
"""Non-finite steps in a row that are a divergence."""
FALL = 0.5
"""Divergence: the bound is this much below its best, as a share of what the ink is worth."""
BELOW_EMPTY = 1.0
"""Divergence: the bound is this much below that of an empty canvas, as a share of what the ink is worth."""
NONE = 0.1
"""None used: objects per frame with ink, at most."""
ANEW = 0.7
"""Re-detection: share of the objects in later frames that are new, at least."""
FULL = 0.85
"""All slots used: share of slots filled where fewer things can be seen, at least."""
NOTHING = 0.05
"""A ghost explains less than this share of what a single thing is worth, in each frame of its life."""
HAUNTED, BLIND = 0.65, 0.92
"""Ghosts: share of objects that are ghosts, at least, in a model that sees and in one that does not. The drawings of a
healthy model are blurred at first, and half of them or more explain nothing."""
SEEN = 0.3
"""A model sees when it explains this share of the ink in frames with a single thing, at least."""
FOUND = 0.6
"""Merged: objects per frame with a single thing, at least."""
ONE = 1.5
"""Merged: objects per frame with two things or more, at most: about one. More are something else, such as ghosts."""
EXTRA = 0.12
"""Merged: how many more objects there are in frames with two things or more, at most."""
BOTH = 0.7
"""Merged: the share of ink explained in frames with several things, at least, as a part of that with a single one: the
one object takes both."""
SHARP, LEFT_OUT = 0.55, 0.2
"""Merged, where the one object takes one thing: instead of BOTH, the share of ink explained in frames with a single
thing, at least, and how many more objects there are in frames with several, at most. Healthy trainings leave things out
as well, but only while all is blurred."""


class Scene(NamedTuple):
    """What frames show, found without a model."""

    inked: Bool[ndarray, "S T"]
    """Frames that are not empty."""
    blobs: Int[ndarray, "S T"]
    """How many separate things can be seen."""
    clear: Bool[ndarray, "S T"]
    """Frames in which that number is sure: blobs are clearly apart and none is a speck. Things that touch look like
    one; that happens in few frames, and the rules compare averages."""


def look(frames: Shaped[Array | ndarray, "S T Y X"] | Shaped[Array | ndarray, "S T Y X C"]) -> Scene:
    """The facts of frames; done once, on the host."""
    grey = np.asarray(frames, np.float32)
    grey = grey if grey.ndim == 4 else grey.max(-1)
    shape, grey = grey.shape[:2], grey.reshape(-1, *grey.shape[2:])
    mask, energy = grey > INK * max(float(grey.max()), 1e-6), np.square(grey)
    sizes, wide = blob_sizes(mask, energy, JOIN), blob_sizes(mask, energy, JOIN + APART)
    usual = np.median(sizes[sizes > 0]) if sizes.any() else 1.0
    blobs = (sizes >= SPECK * usual).sum(1)
    clear = ((sizes > 0).sum(1) == blobs) & ((wide > 0).sum(1) == blobs)
    return Scene(*(values.reshape(shape) for values in (np.any(mask, (1, 2)), blobs, clear)))


def blob_sizes(mask: Bool[ndarray, "F Y X"], weight: Float[ndarray, "F Y X"], width: int) -> Float[ndarray, "F blobs"]:
    """The weight of each blob of the mask, after widening it by `width` pixels; rows are filled up with zeros."""
    wide = mask
    for _ in range(width):
        wide = around(wide)
    labels = label(wide)[mask]
    names, index = np.unique(labels, return_inverse=True)
    totals = np.bincount(index, weight[mask], len(names))
    frame = (names - 1) // math.prod(mask.shape[1:])
    rank = np.arange(len(names)) - np.searchsorted(frame, frame)
    sizes = np.zeros((len(mask), int(rank.max(initial=0)) + 1))
    sizes[frame, rank] = totals
    return sizes


def label(mask: Bool[ndarray, "F Y X"]) -> Int[ndarray, "F Y X"]:
    """A number for each blob, equal on all of it: one more than the largest index of its pixels. 0 elsewhere."""
    labels = np.where(mask, np.arange(1, mask.size + 1).reshape(mask.shape), 0)
    while True:
        larger = np.where(mask, around(labels), 0)
        # A label names a pixel of the same blob; taking over that pixel's label lets labels travel far in few rounds.
        larger = np.where(mask, larger.reshape(-1)[larger - 1], 0)
        if (larger == labels).all():
            return labels
        labels = larger


def around(values: Shaped[ndarray, "F Y X"]) -> Shaped[ndarray, "F Y X"]:
    """The largest of each pixel and its eight neighbours."""
    padded = np.pad(values, ((0, 0), (1, 1), (0, 0)))
    rows = np.maximum(np.maximum(padded[:, :-2], padded[:, 1:-1]), padded[:, 2:])
    padded = np.pad(rows, ((0, 0), (0, 0), (1, 1)))
    return np.maximum(np.maximum(padded[:, :, :-2], padded[:, :, 1:-1]), padded[:, :, 2:])


class Signals(NamedTuple):
    """What one sample of the posterior says about each frame; log-likelihoods are in nats."""

    independent: Bool[Array | ndarray, ""]
    """Whether the model sees every frame by itself, as AIR does."""
    present: Float[Array | ndarray, "S T N"]
    identity: Int[Array | ndarray, "S T N"]
    """As in Objects."""
    discovered: Float[Array | ndarray, "S T"]
    explained: Float[Array | ndarray, "S T N"]
    """How much the log-likelihood falls when the object is left out; 0 where absent."""
    likelihood: Float[Array | ndarray, "S T"]
    """log p(x_t | z_t)."""
    empty: Float[Array | ndarray, "S T"]
    """The same for an empty canvas ..."""
    perfect: Float[Array | ndarray, "S T"]
    """... and for a perfect one."""


def measure(
    model: SQAIR | AIR, key: PRNGKeyArray, frames: Float[Array, "S T Y X"] | Float[Array, "S T Y X C"]
) -> Signals:
    """One sample per sequence, without training's restraint. It can be compiled, and vmapped over models."""

    def frame(x: Float[Array, "Y X C"], info: Info) -> tuple[Array, ...]:
        x = x[..., : model.config.channels]
        nothing = jnp.zeros_like(x) if info.background is None else info.background
        empty, perfect = model.image.log_prob(x, nothing), model.image.log_prob(x, x)
        return explained(model, x, info), info.log_likelihood, empty, perfect

    def sequence(key: PRNGKeyArray, frames: Float[Array, "T Y X C"]) -> tuple[Array, ...]:
        info = model.observe(key, frames)[1]
        return info.objects.pres, info.objects.identity, info.discovered, *jax.vmap(frame)(frames, info)

    keys = jax.random.split(key, frames.shape[0])
    told = jax.vmap(sequence)(keys, jax.vmap(as_frames)(frames))
    return Signals(jnp.array(model.frames_are_independent), *told)


def explained(model: SQAIR | AIR, x: Float[Array, "Y X C"], info: Info) -> Float[Array, " N"]:
    """What each object of a frame adds to its log-likelihood; 0 where absent."""
    objects = info.objects
    slots = jnp.arange(objects.pres.shape[0])

    def without(slot: Int[Array, ""]) -> Float[Array, ""]:
        rest = objects._replace(pres=jnp.where(slots == slot, 0.0, objects.pres))
        return model.image.log_prob(x, model.image.canvas(rest, info.background))

    return jnp.where(objects.pres > 0, info.log_likelihood - jax.vmap(without)(slots), 0.0)


class Evidence(NamedTuple):
    """The few numbers that the rules compare."""

    ink: float
    """What the ink of an average frame is worth in nats."""
    empty: float
    """The log-likelihood of an empty canvas, nats per frame."""
    objects: float
    """Objects per frame with ink; infinite where no frame has any."""
    anew: float
    """Share of the objects in later frames that are new."""
    filled: float
    """Share of slots filled in frames that clearly show fewer things than slots; 0 where there are none."""
    ghosts: float
    """Share of objects that are ghosts."""
    single: float
    """Objects per frame that clearly shows one thing; 0 where there is none."""
    several: float
    """Objects per frame that clearly shows more; infinite where there is none."""
    single_explained: float
    """Share of the ink of the former frames, in nats, that is explained; 0 where there is none ..."""
    several_explained: float
    """... and of the latter."""


def weigh(signals: Signals, scene: Scene, slots: int, length: int | None = None) -> Evidence:
    """The evidence of the first `length` frames, of all by default."""
    shape = np.shape(signals.discovered)  # for AIR the frames of the scene may have been taken as S T sequences of one
    scene = Scene(*(values.reshape(shape)[:, :length] for values in scene))
    signals = Signals(*(np.asarray(values)[:, :length] if np.ndim(values) else values for values in signals))
    objects = signals.present.sum(-1)
    worth = signals.perfect - signals.empty
    one, more = scene.clear & (scene.blobs == 1), scene.clear & (scene.blobs > 1)
    room = scene.clear & (scene.blobs < slots)
    gain = signals.likelihood - signals.empty
    return Evidence(
        ink=float(worth.mean()),
        empty=float(signals.empty.mean()),
        objects=_mean(objects[scene.inked], math.inf),
        anew=float(signals.discovered[:, 1:].sum() / max(objects[:, 1:].sum(), 1)),
        filled=_mean(objects[room], 0.0) / slots,
        ghosts=_ghosts(signals, NOTHING * _mean(worth[one], float(worth.mean()))),
        single=_mean(objects[one], 0.0),
        several=_mean(objects[more], math.inf),
        single_explained=float(gain[one].sum() / max(worth[one].sum(), 1e-6)),
        several_explained=float(gain[more].sum() / max(worth[more].sum(), 1e-6)),
    )


def _mean(values: Shaped[Array | ndarray, " _"], otherwise: float) -> float:
    """The mean, or `otherwise` of nothing."""
    return float(values.mean()) if values.size else otherwise


def _ghosts(signals: Signals, least: float) -> float:
    """The share of objects that explain less than `least` nats in every frame of their life; things may leave."""
    lives, ghosts = 0, 0
    for identity, explained in zip(np.asarray(signals.identity), np.asarray(signals.explained), strict=True):
        for name in np.unique(identity[identity >= 0]):
            lives += 1
            ghosts += bool(explained[identity == name].max() < least)
    return ghosts / max(lives, 1)


def name_failure(
    signals: Signals,
    scene: Scene,
    *,
    slots: int,
    best_bound: float | None,
    bound: float,
    skipped: int,
    length: int | None = None,
) -> str | None:
    """The first of FAILURES that fits, or None.

    `bound` is the validation bound in nats per frame and `best_bound` the best before, if any; `skipped` counts the
    last steps in a row that were not finite. Frames from `length` on, which the curriculum has not reached, are no
    evidence.
    """
    found = weigh(signals, scene, slots, length)
    rules = {
        "divergence": is_divergence(found, best_bound, bound, skipped),
        "none used": found.objects < NONE,
        "re-detection": found.anew > ANEW and not bool(signals.independent),
        "all slots used": found.filled > FULL,
        "ghosts": found.ghosts > (HAUNTED if found.single_explained > SEEN else BLIND),
        "merged": is_merged(found),
    }
    return next((name for name in FAILURES if rules[name]), None)


def is_divergence(found: Evidence, best_bound: float | None, bound: float, skipped: int) -> bool:
    """Steps or the bound are not finite, or the bound is far below its best or that of an empty canvas."""
    fell = best_bound is not None and bound < best_bound - FALL * found.ink
    return skipped >= SKIPPED or not math.isfinite(bound) or fell or bound < found.empty - BELOW_EMPTY * found.ink


def is_merged(found: Evidence) -> bool:
    """Single things are found and seen, but frames with several hold hardly more objects.

    Either several are seen no worse, so that one object takes them all, or one of them is seen well.
    """
    more = found.several - found.single
    is_one = found.single > FOUND and found.single_explained > SEEN and found.several < ONE
    if found.several_explained > BOTH * found.single_explained:
        return is_one and more < EXTRA
    return is_one and more < LEFT_OUT and found.single_explained > SHARP

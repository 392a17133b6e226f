"""All numbers that `sqair evaluate` prints: nats per sequence, accuracies, rates per frame.

Axes: S sequences, T frames, M possible counts, 0 to N, Y, X, C frame.
"""

import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from sqair.config import UserError
from sqair.data import FileSource, GeneratedSource, Sequences, Source
from sqair.data.backdrops import PLACE
from sqair.evaluation import counting
from sqair.evaluation.blocks import in_blocks
from sqair.evaluation.boxes import Sample, covered
from sqair.evaluation.likelihood import Posterior, posterior
from sqair.evaluation.tracking import Score, combine, score, sequence_tracks, truth_tracks
from sqair.image import as_frames
from sqair.model import SequenceModel
from sqair.tracks import Truth

ROWS = {"cpu": 512, "gpu": 8192}
"""Particles of all sequences that run side by side."""
MOST_SEQUENCES = 32
"""Sequences of a batch, unless there are few particles."""
PRODUCTS = "tensorfloat32"
"""Precision of matrix products where there are tensor cores, however a model was trained; elsewhere they have 32 bits.

On 512 test sequences of sqair-conv with K = 1000 it moves log p by 0.001 nats, where the standard error is 13, and
takes less than half the time (record 2026-11-16_sqair_conv)."""


def evaluate(
    model: SequenceModel, source: Source, *, sequences: int, particles: int, seed: int, batch: int | None = None
) -> dict[str, Any]:
    """The keys of `evaluate --json` in their order; None where there is no truth or no meaning.

    `sequences` of the source's fixed list with this seed are used, `batch` at a time. `model` is its kind and `data`
    the source's name: the caller may put better names in. Matrix products have the precision PRODUCTS.
    """
    if particles < 1:
        raise UserError(f"the number of particles must be at least 1, not {particles}")
    start = time.perf_counter()
    pairs, judged = [], []
    with ThreadPoolExecutor(1) as beside:  # it takes as long as the device's work, which must not wait for it
        for found, truth in infer(model, source, sequences=sequences, particles=particles, seed=seed, batch=batch):
            if found.sample is not None and truth.boxes is not None and truth.ids is not None:
                judged.append(beside.submit(judge, model, found.sample, truth))
            pairs.append((found._replace(sample=None), truth))
        verdicts = [each.result() for each in judged]
    scores, covers = [one for each, _ in verdicts for one in each], [one for _, each in verdicts for one in each]
    found, truth = jax.tree.map(lambda *leaves: np.concatenate(leaves), *pairs)
    found = in_doubles(found, particles)
    truth = truth if model.has_objects else truth._replace(counts=None, ids=None)
    results = {
        "model": model.config.kind,
        "data": source.path if isinstance(source, FileSource) else source.config.name,
        "sequences": sequences,
        "particles": particles,
        "seed": seed,
        "device": jax.devices()[0].device_kind if jax.default_backend() != "cpu" else "cpu",
        "seconds": round(time.perf_counter() - start, 3),
    }
    rest: dict[str, Any] = bounds(found) | counts(found, truth)
    may_appear = isinstance(source, GeneratedSource) and source.config.name == "moving-mnist-in-out"
    rest["rediscoveries_per_frame"] = None if may_appear else rediscoveries(model, found, truth)
    rest |= tracking(scores) | calibration(found, truth, covers)
    return results | rest | {"ess": float(found.ess.mean())}


def infer(
    model: SequenceModel, source: Source, *, sequences: int, particles: int, seed: int, batch: int | None = None
) -> Iterator[tuple[Posterior, Sequences]]:
    """The posterior of sequences and the truth about them, a batch after the other, as numpy arrays without frames.

    The device works on the next batch while the caller works on this one.
    """
    rows = ROWS.get(jax.default_backend(), ROWS["gpu"])
    batch = max(MOST_SEQUENCES, rows // particles) if batch is None else batch
    batch = evenly(sequences, batch)
    chunk = evenly(particles, rows // batch)
    key, ready = jax.random.key(seed), None
    for first in range(0, max(1, sequences), batch):
        data = source.fixed(min(batch, sequences - first), seed, first)
        check_frames(model, data.frames)
        count = len(data.frames)
        frames = jnp.asarray(data.frames)[jnp.arange(batch) % count]  # the last batch is filled up, so one shape serves
        with jax.default_matmul_precision(PRODUCTS):
            found = batch_posterior(model, key, frames, first + jnp.arange(batch), particles, chunk)
        pair = jax.tree.map(lambda leaf: leaf[:count], found), data._replace(frames=data.frames[:, :0])  # noqa: B023
        if ready is not None:
            yield jax.tree.map(np.asarray, ready)
        ready = pair
    yield jax.tree.map(np.asarray, ready)


def evenly(total: int, most: int) -> int:
    """The size of the fewest equal parts of `total` that do not exceed `most`; the last is filled up by the caller."""
    return math.ceil(total / math.ceil(total / max(1, most))) if total > 0 else 1


def in_doubles(found: Posterior, particles: int) -> Posterior:
    """The same in double precision, so that sums over sequences lose no digits; shares of particles are exact."""
    found = jax.tree.map(lambda leaf: leaf.astype(np.float64), found)
    numbers = ("counts", "discovered")
    exact = {name: np.rint(getattr(found.single, name) * particles) / particles for name in numbers}
    return found._replace(single=found.single._replace(**exact))


@eqx.filter_jit
def batch_posterior(
    model: SequenceModel,
    key: PRNGKeyArray,
    frames: Float[Array, "S T Y X"] | Float[Array, "S T Y X C"],
    index: Int[Array, " S"],
    particles: int,
    chunk: int,
) -> Posterior:
    """The posterior of each sequence of a batch; sequence i has noise of its own, whatever the batches."""

    model = in_blocks(model)

    def one(i: Int[Array, ""], frames: Array) -> Posterior:
        return posterior(model, jax.random.fold_in(key, i), as_frames(frames), particles, chunk)

    return jax.vmap(one)(index, frames)


def check_frames(model: SequenceModel, frames: Any) -> None:
    """Refuse frames that the model cannot see."""
    seen = (*model.config.image, model.config.channels)
    given = (*frames.shape[2:4], frames.shape[4] if frames.ndim == 5 else 1)
    if model.config.background != "none" and given[2] == 2 * seen[2] + PLACE:  # they bring their scene along
        given = seen
    if seen != given:
        wanted, found = ("x".join(map(str, shape)) for shape in (seen, given))
        raise UserError(f"the model sees frames of {wanted}, the data has {found}; choose data of that size")


def bounds(found: Posterior) -> dict[str, float | None]:
    """log_p with its standard error over sequences, and its parts; kl is reconstruction less the ELBO."""
    total = len(found.log_p)
    error = float(found.log_p.std(ddof=1) / math.sqrt(total)) if total > 1 else None
    return {
        "log_p": float(found.log_p.mean()),
        "log_p_se": error,
        "reconstruction": float(found.single.log_likelihood.sum(1).mean()),
        "kl": float(found.single.kl.sum(1).mean()),
        "reconstruction_weighted": float(found.weighted.log_likelihood.sum(1).mean()),
        "kl_weighted": float(found.weighted.kl.sum(1).mean()),
    }


def counts(found: Posterior, truth: Sequences) -> dict[str, float | None]:
    """Accuracies of counting; None where the true counts are not known."""
    names = ("counting", "counting_weighted", "counting_mode", "counting_visible")
    if truth.counts is None:
        return dict.fromkeys(names)
    true = np.asarray(truth.counts)
    single = counting.accuracy(np.asarray(found.single.counts), true)
    weighted = np.asarray(found.weighted.counts)
    sight = counting.all_in_sight(truth)
    visible = float(single[sight].mean()) if sight is not None and sight.any() else None
    values = single.mean(), counting.accuracy(weighted, true).mean(), counting.mode_accuracy(weighted, true).mean()
    return dict(zip(names, (*map(float, values), visible), strict=True))


def judge(model: SequenceModel, sample: Sample, truth: Sequences) -> tuple[list[Score], list[tuple[int, int]]]:
    """`tracking_scores`, of a model whose frames have to do with each other, and `coverages`."""
    size = model.config.image
    scores = [] if model.frames_are_independent else tracking_scores(sample, truth, size)
    return scores, coverages(sample, truth, size)


def tracking_scores(sample: Sample, truth: Sequences, size: tuple[int, int]) -> list[Score]:
    """How the tracks of a posterior sample fit the truth, for each sequence."""
    scores = []
    for number, each in enumerate(by_sequence(sample)):
        true = truth_of(truth, number, size)
        found = sequence_tracks(np.asarray(each.boxes), np.asarray(each.identity), size)
        scores.append(score(true.tracks, found, ignored=true.ignored))
    return scores


def coverages(sample: Sample, truth: Sequences, size: tuple[int, int]) -> list[tuple[int, int]]:
    """Coordinates in their intervals and all that have one, for each sequence."""
    return [covered(each, truth_of(truth, number, size)) for number, each in enumerate(by_sequence(sample))]


def by_sequence(sample: Sample) -> Iterator[Sample]:
    """The sample of each sequence."""
    return map(Sample._make, zip(*sample, strict=True))


def truth_of(truth: Sequences, number: int, size: tuple[int, int]) -> Truth:
    """The truth about one sequence as tracks."""
    visible = None if truth.visible is None else np.asarray(truth.visible[number])
    assert truth.boxes is not None
    assert truth.ids is not None
    return truth_tracks(np.asarray(truth.boxes[number]), np.asarray(truth.ids[number]), visible, size)


def tracking(scores: list[Score]) -> dict[str, float | int | None]:
    """mota, idf1 and hota of a posterior sample, drawn by weight, at an IoU of 0.5; id_switches over all sequences.

    None without true boxes, and for AIR, which gives every object of every frame an identity of its own.
    """
    names = ("mota", "idf1", "hota", "id_switches")
    found = combine(scores) if scores else {}
    return {name: found.get(name) for name in names}


def calibration(found: Posterior, truth: Sequences, covers: list[tuple[int, int]]) -> dict[str, float | None]:
    """presence_ece: `counting.presence_error` of the weighted posterior; box_coverage: .9 of a posterior that is right.

    The latter is the share of coordinates, x and y, of centres of true boxes that lie in the 90% interval of the
    centre of the object that is matched to them (evaluation/boxes.py).
    """
    error = None
    if truth.counts is not None:
        error = counting.presence_error(np.asarray(found.weighted.counts), np.asarray(truth.counts))
    inside, total = np.sum(covers, 0).tolist() if covers else (0, 0)
    return {"presence_ece": error, "box_coverage": inside / total if total else None}


def rediscoveries(model: SequenceModel, found: Posterior, truth: Sequences) -> float | None:
    """Objects discovered per frame after the first; None for AIR, which has no memory, and where objects may appear."""
    if model.frames_are_independent or found.single.discovered.shape[1] < 2 or not counting.all_from_the_start(truth):
        return None
    return float(found.single.discovered[:, 1:].mean())

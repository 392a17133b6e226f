"""Addition (App. D.4): what the latent variables of one frame tell about the sum of its digits.

The input of the classifier is the posterior mean of what times presence, slot after slot; of VRNN, which has neither,
the mean of its latent vector. Means are those along the most probable path: every Gaussian gives its mean to the next,
and an object is present if that is more probable than not. So the input is a function of the frames, without noise, and
the same few lines serve all models, as does the classifier. A sum does not depend on the order of what is added, so it
learns from each frame with its slots in a new order.

It learns from sequences of training digits. Two tests, never mixed: `same`, new sequences of the very digits that it
learnt from, and `unseen`, the test set. So that it has met every digit of the former, the digits are a pool of at most
a fifth as many as sequences: one is in five sequences on average, and in none with probability e^-5.

Axes: S sequences, T frames, N slots, W what, 19 sums, Y, X, C frame, B examples of a step.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy import ndarray

from sqair.config import DataConfig, UserError
from sqair.data import MOTIONS, Digits, GeneratedSource, Sequences, Source, open_data
from sqair.distributions import Noise
from sqair.evaluation.blocks import in_blocks
from sqair.evaluation.evaluate import PRODUCTS, ROWS, check_frames, evenly
from sqair.image import as_frames
from sqair.model import SequenceModel
from sqair.networks import MLP

SUMS = 19
"""0 to 18; no digit is the sum 0."""
HIDDEN = 256
"""Units of each of the two hidden layers."""
PER_DIGIT = 5
"""Sequences to learn from for each digit of the pool."""
MOST_TESTS = 10_000
"""Sequences to stop by, and to test on, at most: as many as the test set has."""
MANY = 300_000
"""Sequences from which on the classifier learns in larger steps, and is looked at less often."""
FIT, HELD_OUT, SAME = 101, 102, 103
"""Seeds of the lists of sequences to learn from, to stop by and to test on."""


@dataclasses.dataclass(frozen=True)
class Schooling:
    """How the classifier learns."""

    batch: int = 256
    """Frames per step."""
    every: int = 500
    """Steps between looks at the held-out sequences."""
    patience: int = 4
    """Looks without a better one after which it goes back to the best and on more slowly, or stops."""
    rounds: int = 200
    """Looks at most."""
    learning_rate: float = 1e-3
    """Of Adam at first; this and the rest are TensorFlow's defaults, as in the paper."""
    slower: float = 0.3
    """What is left of the rate then ..."""
    times: int = 2
    """... and how often."""


LONG = Schooling(batch=1024, every=1000, patience=6, rounds=120)
"""For many sequences, from which SQAIR's latent variables need about fifty rounds."""


class Lesson(NamedTuple):
    """Frames as the classifier sees them, and their sums."""

    features: Float[Array, "S T N W"]
    sums: Int[Array, "S T"]


def addition(
    model: SequenceModel,
    data: DataConfig,
    *,
    sequences: int,
    tests: int | None = None,
    seed: int = 1,
    schooling: Schooling | None = None,
) -> dict[str, Any]:
    """Train the classifier on `sequences` and test it on `tests` more by both protocols: a tenth, at most MOST_TESTS.

    `seed` is that of the test set and of the classifier. Accuracies are shares of frames; their standard errors are
    over sequences, whose frames are alike. `addition_chance` is reached by always naming the most frequent sum.
    """
    if data.name not in MOTIONS:
        raise UserError(f"addition needs digits of known classes, which {data.name} has not; use {', '.join(MOTIONS)}")
    if sequences < 10:
        raise UserError(f"addition needs at least 10 sequences to learn from, not {sequences}")
    tests = min(MOST_TESTS, max(1, sequences // 10)) if tests is None else tests
    schooling = schooling or (LONG if sequences >= MANY else Schooling())
    seen = pool(open_data(data, "train"), sequences)
    fit, held_out, same = (
        lesson(model, seen, count, number) for count, number in ((sequences, FIT), (tests, HELD_OUT), (tests, SAME))
    )
    unseen = lesson(model, open_data(data, "test"), tests, seed)
    classifier, steps = learn(jax.random.key(seed), fit, held_out, schooling)
    results: dict[str, Any] = {"addition_sequences": sequences, "addition_steps": steps}
    for name, test in (("same", same), ("unseen", unseen)):
        right = np.asarray(correct(classifier, test)).mean(1)
        error = float(right.std(ddof=1) / math.sqrt(tests)) if tests > 1 else None
        results |= {f"addition_{name}": float(right.mean()), f"addition_{name}_se": error}
    frequent = np.bincount(np.asarray(fit.sums).ravel(), minlength=SUMS).argmax()
    return results | {"addition_chance": float((np.asarray(unseen.sums) == frequent).mean())}


def pool(source: Source, sequences: int) -> GeneratedSource:
    """The source with the first digits only, so few that the classifier meets each of them."""
    assert isinstance(source, GeneratedSource)
    most = max(sequences // PER_DIGIT, source.config.max_digits)
    return GeneratedSource(Digits(*(leaf[:most] for leaf in source.digits)), source.config)


def lesson(model: SequenceModel, source: Source, count: int, seed: int) -> Lesson:
    """`count` sequences of a fixed list, encoded a batch after the other into one array: most of the memory."""
    batch = evenly(count, ROWS.get(jax.default_backend(), ROWS["gpu"]))
    gathered: ndarray | None = None
    sums = []
    for first in range(0, count, batch):
        here = min(batch, count - first)
        data = source.fixed(here, seed, first)
        check_frames(model, data.frames)
        frames = jnp.asarray(data.frames)[jnp.arange(batch) % here]  # the last batch is filled up: one shape serves
        with jax.default_matmul_precision(PRODUCTS):
            features = np.asarray(batch_features(model, frames)[:here])
        gathered = np.empty((count, *features.shape[1:]), features.dtype) if gathered is None else gathered
        gathered[first : first + here] = features
        sums.append(frame_sums(data))
    return Lesson(jnp.asarray(gathered), jnp.asarray(np.concatenate(sums)))


def frame_sums(data: Sequences) -> Int[ndarray, "S T"]:
    """The sum of the digits that are there in each frame, in sight or not."""
    assert data.labels is not None
    assert data.ids is not None
    return np.where(np.asarray(data.ids) >= 0, np.asarray(data.labels)[:, None], 0).sum(-1)


# --- features


@eqx.filter_jit
def batch_features(
    model: SequenceModel, frames: Float[Array, "S T Y X"] | Float[Array, "S T Y X C"]
) -> Float[Array, "S T N W"]:
    """What the classifier sees of each frame of each sequence."""
    model = in_blocks(model)
    return jax.vmap(lambda each: features(model, as_frames(each)))(frames)


def features(model: SequenceModel, frames: Float[Array, "T Y X C"]) -> Float[Array, "T N W"]:
    """The posterior mean of what times presence in every slot; of VRNN the mean of its latent vector."""
    noise = model.noise(jax.random.key(0), frames.shape[0])
    objects = model.observe(None, frames, noise=no_noise(noise))[1].objects
    return objects.pres[..., None] * objects.what if model.has_objects else objects.what


def no_noise(noise: Noise) -> Noise:
    """Noise with which every Gaussian gives its mean and every coin its more probable side."""
    return Noise(jnp.zeros_like(noise.what), jnp.zeros_like(noise.where), jnp.full_like(noise.pres, 0.5))


# --- the classifier


def learn(key: PRNGKeyArray, fit: Lesson, held_out: Lesson, schooling: Schooling) -> tuple[MLP, int]:
    """The classifier as it was when it was best on held-out sequences, and the steps until it stopped."""
    classifier, rounds = _learn(key, fit, held_out, schooling)
    return classifier, int(rounds) * schooling.every


class School(NamedTuple):
    """Where learning stands."""

    classifier: MLP
    optimiser: optax.OptState
    best: MLP
    right: Float[Array, ""]
    """Share of frames of held-out sequences that the best names right."""
    waited: Int[Array, ""]
    """Looks since the best, or since it went back to that."""
    slowed: Int[Array, ""]
    """How often it did."""
    rounds: Int[Array, ""]


@eqx.filter_jit
def _learn(key: PRNGKeyArray, fit: Lesson, held_out: Lesson, schooling: Schooling) -> tuple[MLP, Int[Array, ""]]:
    """All of it as one compiled program: rounds of steps, each followed by a look, until patience is at its end."""
    adam = optax.scale_by_adam()
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), fit)
    key_start, key_steps = jax.random.split(key)
    size = math.prod(fit.features.shape[-2:])
    first, rest = eqx.partition(MLP((size, HIDDEN, HIDDEN, SUMS), key=key_start, gain=0.1), eqx.is_array)

    def step(
        number: Int[Array, ""], now: tuple[MLP, optax.OptState, Float[Array, ""]]
    ) -> tuple[MLP, optax.OptState, Float[Array, ""]]:
        classifier, state, rate = now
        key_chosen, key_order = jax.random.split(jax.random.fold_in(key_steps, number))
        chosen = jax.random.randint(key_chosen, (schooling.batch,), 0, flat.sums.shape[0])
        seen, sums = reordered(key_order, flat.features[chosen]), flat.sums[chosen]
        slope = jax.grad(lambda it: loss(eqx.combine(it, rest), seen, sums))(classifier)
        updates, state = adam.update(slope, state)
        return eqx.apply_updates(classifier, jax.tree.map(lambda leaf: -rate * leaf, updates)), state, rate

    def go_on(school: School) -> Array:
        return (school.slowed <= schooling.times) & (school.rounds < schooling.rounds)

    def one_round(school: School) -> School:
        begin = school.rounds * schooling.every
        now = (school.classifier, school.optimiser, schooling.learning_rate * schooling.slower**school.slowed)
        classifier, optimiser, _ = jax.lax.fori_loop(begin, begin + schooling.every, step, now)
        right = correct(eqx.combine(classifier, rest), held_out).mean()
        better = right > school.right
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), classifier, school.best)
        waited = jnp.where(better, 0, school.waited + 1)
        tired = waited == schooling.patience
        again = (best, adam.init(best))
        classifier, optimiser = jax.tree.map(
            lambda old, new: jnp.where(tired, old, new), again, (classifier, optimiser)
        )
        slowed, waited = school.slowed + tired, jnp.where(tired, 0, waited)
        return School(classifier, optimiser, best, jnp.maximum(right, school.right), waited, slowed, school.rounds + 1)

    zero = jnp.array(0)
    start = School(first, adam.init(first), first, jnp.array(-1.0), zero, zero, zero)
    end = jax.lax.while_loop(go_on, one_round, start)
    return eqx.combine(end.best, rest), end.rounds


def reordered(key: PRNGKeyArray, features: Float[Array, "B N W"]) -> Float[Array, "B N W"]:
    """Each example's slots in an order of its own."""
    order = jnp.argsort(jax.random.uniform(key, features.shape[:2]), axis=1)
    return jnp.take_along_axis(features, order[..., None], 1)


def logits(classifier: MLP, features: Float[Array, "*batch N W"]) -> Float[Array, "*batch 19"]:
    """Of the sums, for any number of frames."""
    return jnp.vectorize(lambda what: classifier(what.reshape(-1)), signature="(n,w)->(c)")(features)


def loss(classifier: MLP, features: Float[Array, "*batch N W"], sums: Int[Array, "*batch"]) -> Float[Array, ""]:
    """Cross-entropy."""
    return optax.softmax_cross_entropy_with_integer_labels(logits(classifier, features), sums).mean()


@eqx.filter_jit
def correct(classifier: MLP, test: Lesson) -> Float[Array, "S T"]:
    """1 where the most probable sum is the true one."""
    return (logits(classifier, test.features).argmax(-1) == test.sums).astype(jnp.float32)

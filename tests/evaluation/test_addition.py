"""The addition experiment: the classifier on toys whose answer is known, and its input on every kind of model."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sqair.config import DataConfig, ModelConfig, UserError, VRNNConfig
from sqair.data import Sequences, load_digits, open_data
from sqair.data.digits import STROKES
from sqair.evaluation import addition as module
from sqair.evaluation.addition import Lesson, Schooling, addition, batch_features, correct, frame_sums, learn, pool
from sqair.training.checkpoint import build

QUICK = Schooling(batch=64, every=100, patience=3, rounds=40)
MODEL = ModelConfig(
    image=(16, 16), glimpse=(6, 6), max_objects=2, what_size=3, width=8, vrnn=VRNNConfig(latent_size=7, layers=1)
)
DATA = DataConfig(digits="strokes", length=3, size=(16, 16), max_digits=2, digit_scale=0.3, speed=2.0)


@pytest.fixture(autouse=True)
def few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing all stroke digits takes seconds."""
    monkeypatch.setitem(STROKES, "train", (60, 1))
    monkeypatch.setitem(STROKES, "test", (60, 3))


def toy(count: int, seed: int, shuffled: bool = False) -> Lesson:
    """Two digits as one-hot codes: their sum is a function of a linear map of the 20 numbers."""
    random = np.random.default_rng(seed)
    digits = random.integers(0, 10, (count, 4, 2))
    features = np.eye(10, dtype=np.float32)[digits]
    sums = digits.sum(-1)
    return Lesson(jnp.asarray(features), jnp.asarray(random.permutation(sums) if shuffled else sums))


def test_what_a_linear_map_tells_is_learnt() -> None:
    classifier, steps = learn(jax.random.key(0), toy(500, 1), toy(100, 2), QUICK)
    assert correct(classifier, toy(200, 3)).mean() > 0.99
    assert steps % QUICK.every == 0
    assert steps <= QUICK.every * QUICK.rounds


def test_shuffled_sums_are_guessed_at_chance_and_stopped_early() -> None:
    classifier, steps = learn(jax.random.key(0), toy(500, 1, shuffled=True), toy(100, 2, shuffled=True), QUICK)
    assert correct(classifier, toy(200, 3)).mean() < 0.2, "the most frequent of 19 sums has .1"
    assert steps < QUICK.every * QUICK.rounds, "what is learnt by heart does not help on held-out sequences"


def test_the_order_of_slots_does_not_matter() -> None:
    """What it learns from has the larger digit first, the test has it last."""
    random = np.random.default_rng(4)
    digits = -np.sort(-random.integers(0, 10, (600, 4, 2)))
    codes = np.eye(10, dtype=np.float32)[digits]
    ordered = Lesson(jnp.asarray(codes), jnp.asarray(digits.sum(-1)))
    fit, held_out, test = (jax.tree.map(lambda leaf, k=k: leaf[200 * k :][:200], ordered) for k in range(3))
    classifier, _ = learn(jax.random.key(0), fit, held_out, QUICK)
    assert correct(classifier, test).mean() > 0.98
    assert correct(classifier, test._replace(features=test.features[:, :, ::-1])).mean() > 0.98


@pytest.mark.parametrize("times", [0, 1, 2])
def test_it_slows_down_before_it_stops(times: int) -> None:
    """One sum for all is learnt by the first look; then patience ends once more than it slows down."""
    lesson = Lesson(jnp.zeros((8, 2, 1, 3)), jnp.full((8, 2), 4))
    classifier, steps = learn(jax.random.key(0), lesson, lesson, dataclasses.replace(QUICK, times=times))
    assert correct(classifier, lesson).mean() == 1
    assert steps == QUICK.every * (1 + QUICK.patience * (1 + times))


def test_slower_steps_mend_what_large_ones_cannot_learn() -> None:
    """With the rate at which it begins it never gets there, from the best on with a small one it does."""
    rough = dataclasses.replace(QUICK, batch=8, learning_rate=0.06, slower=0.03)
    found = [
        float(correct(learn(jax.random.key(0), toy(500, 1), toy(100, 2), school)[0], toy(200, 3)).mean())
        for school in (dataclasses.replace(rough, times=0), dataclasses.replace(rough, times=1))
    ]
    assert found[0] < 0.9 < 0.98 < found[1]


def test_the_sum_of_a_frame() -> None:
    """No digit is 0, a digit that is not there now does not count, one out of sight does."""
    ids = np.array([[[-1, -1], [-1, -1]], [[0, 1], [0, -1]]], np.int32)
    labels = np.array([[-1, -1], [4, 9]], np.int32)
    data = Sequences(
        np.zeros((2, 2, 4, 4), np.float32), ids=ids, labels=labels, visible=np.zeros((2, 2, 2), np.float32)
    )
    assert frame_sums(data).tolist() == [[0, 0], [13, 4]]


@pytest.mark.parametrize(("kind", "size"), [("sqair", (2, 3)), ("air", (2, 3)), ("vrnn", (1, 7))])
def test_features_are_means_and_zero_where_nothing_is(kind: str, size: tuple[int, int]) -> None:
    frames = jnp.asarray(open_data(DATA, "test").fixed(3).frames)
    for bias, present in ((9.0, True), (-9.0, False)):
        config = dataclasses.replace(MODEL, kind=kind, discovery_bias=bias)
        model = build(config, jax.random.key(1))
        found = np.asarray(batch_features(model, frames))
        assert found.shape == (3, 3, *size)
        assert (np.abs(found).sum() > 0) == (present or kind == "vrnn")
        if kind == "air" and present:  # frames are independent: each is encoded as if it were alone
            alone = np.asarray(batch_features(model, frames[:, 1:2]))
            np.testing.assert_allclose(found[:, 1:2], alone, atol=1e-5)


def test_the_pool_is_met_and_the_protocols_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = pool(open_data(DATA, "train"), 50)
    assert len(seen.digits.labels) == 10
    np.testing.assert_array_equal(seen.digits.labels, load_digits("strokes", "train").labels[:10])
    asked = []
    encode = module.lesson
    monkeypatch.setattr(module, "lesson", lambda *words: asked.append(words[1:]) or encode(*words))
    model = build(MODEL, jax.random.key(1))
    found = addition(model, DATA, sequences=40, tests=4, seed=1, schooling=dataclasses.replace(QUICK, rounds=1))
    sizes = [(len(source.digits.labels), count, seed) for source, count, seed in asked]
    assert sizes == [(8, 40, 101), (8, 4, 102), (8, 4, 103), (60, 4, 1)]
    assert list(found) == [
        *("addition_sequences", "addition_steps", "addition_same", "addition_same_se"),
        *("addition_unseen", "addition_unseen_se", "addition_chance"),
    ]
    assert 0 <= found["addition_unseen"] <= 1


def test_refusals() -> None:
    model = build(MODEL, jax.random.key(1))
    with pytest.raises(UserError, match="at least 10 sequences"):
        addition(model, DATA, sequences=5)
    with pytest.raises(UserError, match="digits of known classes"):
        addition(model, dataclasses.replace(DATA, name="mine.npz"), sequences=20)

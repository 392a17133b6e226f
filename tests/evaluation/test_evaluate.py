"""Evaluation against brute force: all particles at once, in numpy, from their log weights."""

import dataclasses
import threading
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sqair.config import DataConfig, ModelConfig, UserError
from sqair.data import FileSource, GeneratedSource, Sequences, load_digits
from sqair.evaluation import evaluate as module
from sqair.evaluation.evaluate import evaluate, infer, judge
from sqair.model import SequenceModel
from sqair.particles import run_particles
from sqair.training.checkpoint import build

MODEL = ModelConfig(
    image=(10, 10),
    glimpse=(4, 4),
    max_objects=2,
    what_size=3,
    width=8,
    output_std=0.8,
    discovery_bias=0.3,
    propagation_bias=1.0,
    nothing_new_bias=1.0,
)
SEQUENCES, FRAMES, PARTICLES, SEED = 5, 3, 7, 3
BOXES = ["mota", "idf1", "hota", "id_switches", "presence_ece", "box_coverage"]
KEYS = [
    *("model", "data", "sequences", "particles", "seed", "device", "seconds"),
    *("log_p", "log_p_se", "reconstruction", "kl", "reconstruction_weighted", "kl_weighted"),
    *("counting", "counting_weighted", "counting_mode", "counting_visible", "rediscoveries_per_frame", *BOXES, "ess"),
]


def truth(**changes: Any) -> Sequences:
    """Frames of noise with made-up truth: one to two objects from the first frame on, now and then hardly visible."""
    random = np.random.default_rng(0)
    number = np.array([0, 1, 2, 2, 1])
    absent = np.arange(2)[None, None] >= number[:, None, None]
    shape = (SEQUENCES, FRAMES, 2)
    values = Sequences(
        frames=random.integers(0, 256, (SEQUENCES, FRAMES, 10, 10), np.uint8),
        counts=np.tile(number[:, None], (1, FRAMES)).astype(np.int32),
        ids=np.where(np.broadcast_to(absent, shape), -1, np.arange(2)).astype(np.int32),
        boxes=np.where(absent[..., None], np.nan, random.uniform(1, 8, (*shape, 4))).astype(np.float32),
        visible=np.where(absent, 0.0, random.uniform(0, 1, shape)).astype(np.float32),
    )
    return values._replace(**changes)


def source(**changes: Any) -> FileSource:
    return FileSource(jax.tree.map(jnp.asarray, truth(**changes)), "made.npz")


class Brute(NamedTuple):
    """Every particle of every sequence, with axes (S, K, T)."""

    log_likelihood: np.ndarray
    log_weight: np.ndarray
    present: np.ndarray
    discovered: np.ndarray


@pytest.fixture(scope="module", params=["sqair", "air"])
def model(request: pytest.FixtureRequest) -> SequenceModel:
    return build(dataclasses.replace(MODEL, kind=request.param), jax.random.key(1))


@pytest.fixture(scope="module")
def found(model: SequenceModel) -> dict[str, Any]:
    return evaluate(model, source(), sequences=SEQUENCES, particles=PARTICLES, seed=SEED)


@pytest.fixture(scope="module")
def brute(model: SequenceModel) -> Brute:
    @jax.jit
    def run(i: jax.Array, frames: jax.Array) -> Any:
        key = jax.random.fold_in(jax.random.key(SEED), i)
        noise = jax.vmap(lambda k: model.noise(jax.random.fold_in(key, k), FRAMES))(jnp.arange(PARTICLES))
        return run_particles(model, noise, frames)

    frames = source().fixed(SEQUENCES).frames
    infos = [run(jnp.array(i), frames[i]) for i in range(SEQUENCES)]
    info = jax.tree.map(lambda *leaves: np.stack(leaves).astype(np.float64), *infos)
    log_weight = info.log_likelihood + info.log_p - info.log_q
    return Brute(info.log_likelihood, log_weight, info.objects.pres.sum(-1), info.discovered)


@pytest.fixture(scope="module")
def weights(model: SequenceModel, brute: Brute) -> np.ndarray:
    """Self-normalised weights with axes (S, K, T)."""
    log_w = brute.log_weight
    log_w = log_w if model.config.kind == "air" else np.broadcast_to(log_w.sum(2, keepdims=True), log_w.shape)
    w = np.exp(log_w - log_w.max(1, keepdims=True))
    return w / w.sum(1, keepdims=True)


def test_keys_are_those_of_the_contract(model: SequenceModel, found: dict[str, Any]) -> None:
    assert list(found) == KEYS
    assert found["data"] == "made.npz"
    tracked = model.config.kind == "sqair"
    assert [found[key] is not None for key in BOXES[:5]] == [tracked] * 4 + [True], "AIR has no tracks"


def test_log_p(model: SequenceModel, found: dict[str, Any], brute: Brute) -> None:
    if model.config.kind == "air":
        bounds = np.log(np.exp(brute.log_weight).mean(1)).sum(1)
    else:
        bounds = np.log(np.exp(brute.log_weight.sum(2)).mean(1))
    assert found["log_p"] == pytest.approx(bounds.mean(), rel=1e-5)
    assert found["log_p_se"] == pytest.approx(bounds.std(ddof=1) / np.sqrt(SEQUENCES), rel=1e-4)


def test_reconstruction_and_kl(found: dict[str, Any], brute: Brute, weights: np.ndarray) -> None:
    elbo = brute.log_weight.sum(2).mean()
    reconstruction = brute.log_likelihood.sum(2).mean()
    assert found["reconstruction"] == pytest.approx(reconstruction, rel=1e-5)
    assert found["kl"] == pytest.approx(reconstruction - elbo, rel=1e-4), "kl = reconstruction - ELBO"
    assert found["reconstruction"] - found["kl"] <= found["log_p"], "ELBO <= log p"
    kl = brute.log_likelihood - brute.log_weight
    for name, values in (("reconstruction_weighted", brute.log_likelihood), ("kl_weighted", kl)):
        assert found[name] == pytest.approx((weights * values).sum((1, 2)).mean(), rel=1e-4)


def test_counting(found: dict[str, Any], brute: Brute, weights: np.ndarray) -> None:
    true = truth()
    assert true.counts is not None
    assert true.visible is not None
    assert true.ids is not None
    right = brute.present == true.counts[:, None]
    assert 0 < right.mean() < 1, "a test on chance would prove nothing"
    assert found["counting"] == pytest.approx(right.mean(), abs=1e-12), "a share, free of float32's rounding"
    assert found["counting_weighted"] == pytest.approx((weights * right).sum(1).mean(), abs=1e-5)
    votes = np.stack([(weights * (brute.present == n)).sum(1) for n in range(3)])
    assert found["counting_mode"] == pytest.approx((votes.argmax(0) == true.counts).mean())
    seen = ((true.visible >= 0.25) | (true.ids < 0)).all(2)
    assert 0 < seen.mean() < 1
    assert found["counting_visible"] == pytest.approx(right.mean(1)[seen].mean(), abs=1e-6)


def test_rediscoveries(model: SequenceModel, found: dict[str, Any], brute: Brute) -> None:
    expected = None if model.config.kind == "air" else pytest.approx(brute.discovered[:, :, 1:].mean(), abs=1e-12)
    assert found["rediscoveries_per_frame"] == expected


def test_ess(found: dict[str, Any], weights: np.ndarray) -> None:
    assert found["ess"] == pytest.approx((1 / (weights**2).sum(1)).mean() / PARTICLES, rel=1e-4)


def test_any_batches_and_chunks_give_the_same(
    model: SequenceModel, found: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROWS", {"cpu": 6, "gpu": 6})
    small = evaluate(model, source(), sequences=SEQUENCES, particles=PARTICLES, seed=SEED, batch=2)
    for key in KEYS[KEYS.index("log_p") :]:
        assert small[key] == (None if found[key] is None else pytest.approx(found[key], rel=1e-5, abs=1e-6)), key


def test_scores_made_beside_are_those_made_here(model: SequenceModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other in this thread, and in one other thread, in the order of the batches."""
    asked = {"sequences": SEQUENCES, "particles": PARTICLES, "seed": SEED, "batch": 2}
    sample = jax.tree.map(
        lambda *leaves: np.concatenate(leaves), *(s.sample for s, _ in infer(model, source(), **asked))
    )
    off = np.arange(SEQUENCES)[:, None, None, None].astype(np.float32) % 3  # so sequences have scores of their own
    judged = source(boxes=sample.boxes + 2 * off, ids=sample.identity, counts=None, visible=None)
    seen: list[tuple[threading.Thread, Any]] = []

    def noted(*arguments: Any) -> Any:
        seen.append((threading.current_thread(), judge(*arguments)))
        return seen[-1][1]

    monkeypatch.setattr(module, "judge", noted)
    found = evaluate(model, judged, **asked)
    here = [judge(model, s.sample, true) for s, true in infer(model, judged, **asked) if s.sample is not None]
    assert len(here) == len(seen) == 3
    assert len({thread for thread, _ in seen} - {threading.current_thread()}) == 1
    np.testing.assert_equal([verdict for _, verdict in seen], here)
    scores, covers = ([one for each in column for one in each] for column in zip(*here, strict=True))
    assert len(scores) == (0 if model.config.kind == "air" else SEQUENCES)
    inside, total = np.sum(covers, 0)
    assert inside > 0
    expected = module.tracking(scores) | {"box_coverage": inside / total}
    assert {key: found[key] for key in expected} == expected
    assert found["mota"] is None or found["mota"] < 1


def test_what_goes_wrong_beside_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("no boxes today")

    monkeypatch.setattr(module, "judge", fail)
    with pytest.raises(ValueError, match="no boxes today"):
        evaluate(build(MODEL, jax.random.key(1)), source(), sequences=1, particles=2, seed=0)


def test_what_is_not_known_is_null() -> None:
    model = build(MODEL, jax.random.key(1))
    none = dict.fromkeys(("counts", "ids", "visible"))
    none |= {"boxes": None}
    blind = evaluate(model, source(**none), sequences=1, particles=2, seed=0)
    unknown = {key for key in KEYS if blind[key] is None}
    counting = {"counting", "counting_weighted", "counting_mode", "counting_visible"}
    assert unknown == {"log_p_se", "rediscoveries_per_frame", *counting, *BOXES}


def test_refusals() -> None:
    model = build(MODEL, jax.random.key(1))
    with pytest.raises(UserError, match="particles must be at least 1"):
        evaluate(model, source(), sequences=1, particles=0, seed=0)
    with pytest.raises(UserError, match="sequences must be at least 1"):
        evaluate(model, source(), sequences=0, particles=2, seed=0)
    with pytest.raises(UserError, match="has only 5 sequences"):
        evaluate(model, source(), sequences=6, particles=2, seed=0)
    other = source(frames=np.zeros((SEQUENCES, FRAMES, 12, 10), np.uint8))
    with pytest.raises(UserError, match="sees frames of 10x10x1, the data has 12x10x1"):
        evaluate(model, other, sequences=1, particles=2, seed=0)


def test_a_sample_held_against_itself_is_perfect(model: SequenceModel, found: dict[str, Any]) -> None:
    """The posterior sample as the truth: every box is matched, keeps its name and lies in its interval."""
    asked = {"sequences": SEQUENCES, "particles": PARTICLES, "seed": SEED}
    samples = [each.sample for each, _ in infer(model, source(), **asked)]
    sample = jax.tree.map(lambda *leaves: np.concatenate(leaves), *samples)
    seen = np.isfinite(sample.boxes[..., 0])
    assert 0 < seen.sum() < seen.size
    itself = {"boxes": sample.boxes, "ids": sample.identity, "counts": (sample.identity >= 0).sum(-1, dtype=np.int32)}
    perfect = evaluate(model, source(**itself, visible=None), **asked)
    expected = (None, None, None, None) if model.config.kind == "air" else (1, 1, 1, 0)
    assert tuple(perfect[key] for key in BOXES[:4]) == expected
    assert perfect["box_coverage"] == 1
    assert perfect["log_p"] == pytest.approx(found["log_p"])


def test_presence_error(found: dict[str, Any], brute: Brute, weights: np.ndarray) -> None:
    counts = truth().counts
    assert counts is not None
    pairs = [
        (probability, true >= n)
        for n in (1, 2)
        for probability, true in zip((weights * (brute.present >= n)).sum(1).ravel(), counts.ravel(), strict=True)
    ]
    gaps = dict.fromkeys(range(10), 0.0)
    for probability, happened in pairs:
        gaps[min(9, int(probability * 10))] += probability - happened
    assert found["presence_ece"] == pytest.approx(sum(map(abs, gaps.values())) / len(pairs), abs=1e-4)


def test_generated_data() -> None:
    """Digits in and out: counts are known, but rediscoveries have no meaning, even if nothing appears by chance."""
    config = DataConfig(name="moving-mnist-in-out", digits="strokes", length=4, size=(32, 32), digit_scale=0.3)
    digits = jax.tree.map(jnp.asarray, load_digits("strokes", "test"))
    model = build(dataclasses.replace(MODEL, image=(32, 32)), jax.random.key(1))
    found = evaluate(model, GeneratedSource(digits, config), sequences=4, particles=2, seed=1)
    assert found["data"] == "moving-mnist-in-out"
    assert found["rediscoveries_per_frame"] is None
    assert 0 <= found["counting"] <= 1

"""Draws by weight in any chunks, the intervals they give, and which truth lies in them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sqair.config import ModelConfig
from sqair.evaluation.boxes import DRAWS, Draws, Sample, add_draws, covered, no_draws, sample_boxes
from sqair.evaluation.counting import presence_error
from sqair.evaluation.tracking import box_iou, truth_tracks
from sqair.image import tight_boxes
from sqair.objects import Objects
from sqair.training.checkpoint import build

CONFIG = ModelConfig(image=(16, 20), glimpse=(4, 4), max_objects=2, what_size=3, width=8)
PARTICLES, FRAMES = 6, 2


@pytest.fixture(scope="module")
def sqair():
    return build(CONFIG, jax.random.key(0))


def particles() -> Objects:
    """Particle k has k everywhere."""
    shape = (PARTICLES, FRAMES, 2)
    number = jnp.broadcast_to(jnp.arange(PARTICLES, dtype=jnp.float32)[:, None, None], shape)[..., None]
    return Objects(number.repeat(3, -1), number.repeat(4, -1), jnp.ones(shape), jnp.ones(shape, int))


@pytest.mark.parametrize("kind", ["sqair", "air"])
def test_draws_follow_the_weights_in_any_chunks(kind: str) -> None:
    """The last particle only fills up. With AIR frames have weights of their own, and draws that are independent."""
    model = build(dataclasses.replace(CONFIG, kind=kind), jax.random.key(0))
    share = np.array([[0.1, 0.4, 0.0, 0.3, 0.2, 0], [0.3, 0.1, 0.2, 0.0, 0.4, 0]])
    share = share if kind == "air" else share[[0, 0]]
    log_w, objects = jnp.log(jnp.asarray(share.T)) + 700.0, particles()

    def draw(key: jax.Array, chunk: int) -> jax.Array:
        draws = no_draws(model, FRAMES)
        for start in range(0, PARTICLES, chunk):
            part = jax.tree.map(lambda leaf: leaf[start : start + chunk], (jnp.arange(PARTICLES), log_w, objects))  # noqa: B023
            draws = add_draws(draws, key, *part)
        return draws.objects.what[..., 0, 0]

    keys = jax.random.split(jax.random.key(1), 200)
    at_once, in_parts = (np.asarray(jax.jit(jax.vmap(lambda key: draw(key, chunk)))(keys)) for chunk in (6, 2))  # noqa: B023
    assert np.array_equal(at_once, in_parts)
    drawn = at_once.reshape(-1, FRAMES).astype(int)
    for t in range(FRAMES):
        found = np.bincount(drawn[:, t], minlength=PARTICLES) / len(drawn)
        assert np.all(np.abs(found - share[t]) <= 4.5 * np.sqrt(share[t] * (1 - share[t]) / len(drawn)))
    same = (drawn[:, 0] == drawn[:, 1]).mean()
    assert same == 1 if kind == "sqair" else abs(same - (share[0] * share[1]).sum()) < 0.05


def test_intervals(sqair) -> None:
    """Against a loop over draws; in some the two objects stand the other way round, or one is missing."""
    random = np.random.default_rng(0)
    where = np.array([[0.0, 0.0, -0.6, 0.0], [0.0, 0.0, 0.6, 0.1]]) + random.normal(0, 0.1, (DRAWS, FRAMES, 2, 4))
    where[::3] = where[::3, :, ::-1]
    pres = np.ones((DRAWS, FRAMES, 2))
    pres[4, 1, 0] = 0
    what = random.normal(0, 0.1, (DRAWS, FRAMES, 2, 3))
    what, where, pres = (jnp.asarray(values, jnp.float32) for values in (what, where, pres))
    objects = Objects(what, where, pres, jnp.zeros((DRAWS, FRAMES, 2), int))
    sample = jax.jit(sample_boxes)(sqair, Draws(jnp.zeros((DRAWS, 1)), objects))
    boxes = np.asarray(jax.vmap(lambda o: tight_boxes(sqair.image, o))(objects))
    assert np.array_equal(sample.boxes, boxes[0])
    assert np.isnan(boxes[4, 1, 0]).all()
    for t, n in np.ndindex(FRAMES, 2):
        centres = []
        for r in range(DRAWS):
            overlap = np.nan_to_num(box_iou(boxes[0, t, n : n + 1], boxes[r, t]))[0]
            if overlap.max() > 0:
                centres.append(boxes[r, t, overlap.argmax(), :2] + boxes[r, t, overlap.argmax(), 2:] / 2)
        assert len(centres) >= DRAWS - 1
        assert np.array_equal(sample.low[t, n], np.min(centres, 0))
        assert np.array_equal(sample.high[t, n], np.max(centres, 0))
    assert np.all(np.asarray(sample.high - sample.low)[..., 0] < 8), "the two objects are ten pixels apart"


def test_what_is_covered() -> None:
    """Of two matched boxes one centre is inside, one is outside in y; the ignored and the unmatched do not count."""
    boxes = np.array([[[0, 0, 4, 4], [10, 0, 4, 4], [np.nan] * 4]])
    true = np.array([[[10, 1, 4, 4], [0, 0, 4, 4], [5, 10, 4, 4], [19, 0, 10, 4]]], float)
    centre = boxes[..., :2] + boxes[..., 2:] / 2
    sample = Sample(boxes, np.array([[0, 1, -1]]), centre - 0.5, centre + 0.5)
    assert covered(sample, truth_tracks(true, np.arange(4)[None], None, (16, 20))) == (3, 4)
    assert covered(sample, truth_tracks(true, np.full((1, 4), -1), None, (16, 20))) == (0, 0)


def test_presence_error_by_hand() -> None:
    distribution = np.array([[[0.0, 0.25, 0.75]], [[1.0, 0.0, 0.0]], [[0.26, 0.5, 0.24]]])
    counts = np.array([[1], [0], [2]])
    # At least one: 1, 0, .74; it was so, not so, so. At least two: .75, 0, .24; it was not so, not so, so.
    expected = (abs(1 - 1) + abs(0 - 0) + abs((0.74 - 1) + (0.75 - 0)) + abs(0.24 - 1)) / 6
    assert presence_error(distribution, counts) == pytest.approx(expected)
    assert presence_error(np.array([[[0.0, 1.0, 0.0]]]), np.array([[1]])) == 0

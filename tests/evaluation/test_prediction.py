"""Prediction: errors of made-up futures that are known in advance, and the models that can predict."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sqair.config import DataConfig, ModelConfig, UserError, VRNNConfig
from sqair.data import Sequences
from sqair.data.digits import STROKES
from sqair.evaluation import prediction as module
from sqair.evaluation.prediction import Futures, constant_velocity, object_errors, prediction, sequence_futures
from sqair.image import ImageModel, tight_boxes, whole_boxes
from sqair.objects import Objects
from sqair.training.checkpoint import build

DATA = DataConfig(digits="strokes", size=(20, 20), max_digits=1, digit_scale=0.3, speed=2.0)
MODEL = ModelConfig(
    image=(20, 20), glimpse=(6, 6), max_objects=2, what_size=3, width=8, vrnn=VRNNConfig(latent_size=5, layers=1)
)


def boxes_at(centres: np.ndarray, side: float = 5.0) -> np.ndarray:
    return np.concatenate([centres - (side - 1) / 2, np.full_like(centres, side)], -1)


def line(start: float, steps: int) -> np.ndarray:
    """Centres that move by 1 in x from `start`, in a row; (T, 2)."""
    return np.stack([start + np.arange(steps), np.full(steps, 6.0)], -1)


def made(offsets: list[float], lost: int = 0) -> tuple[Futures, Sequences]:
    """One true digit that moves 1 to the right; futures that follow it `offset` below, some losing it at horizon 4."""
    true = np.full((1, 13, 2, 4), np.nan, np.float32)
    true[0, :, 1] = boxes_at(line(3.0, 13))
    boxes = np.zeros((len(offsets), 12, 2, 4), np.float32)
    identity = np.full((len(offsets), 12, 2), -1)
    for f, offset in enumerate(offsets):
        boxes[f, :, 0] = boxes_at(line(4.0, 12) + np.array([0, offset]))
        identity[f, :, 0] = 7
        if f < lost:
            identity[f, 5:, 0] = 8
    pixels = np.zeros((len(offsets), 10), np.float32)
    futures = Futures(boxes, identity, pixels, pixels[0], pixels[0])
    return futures, Sequences(np.zeros((1, 13, 20, 20), np.float32), boxes=true)


def test_errors_are_medians_over_futures() -> None:
    errors = object_errors(*made([0.0, 1.0, 4.0]), 0, DATA)
    np.testing.assert_allclose(errors.position, np.full((1, 10), 1.0), atol=1e-5)
    np.testing.assert_allclose(errors.middle, np.full((1, 10), 1.0), atol=1e-5)
    np.testing.assert_allclose(errors.constant_velocity, np.full((1, 10), 1.0), atol=1e-5)
    spread = object_errors(*made([-2.0, 0.0, 2.0]), 0, DATA)
    np.testing.assert_allclose(spread.position, np.full((1, 10), 2.0), atol=1e-5)
    np.testing.assert_allclose(spread.middle, np.zeros((1, 10)), atol=1e-5)


def test_a_lost_object_is_infinitely_wrong() -> None:
    few, most = (object_errors(*made([0.0, 0.0, 0.0], lost), 0, DATA) for lost in (1, 2))
    np.testing.assert_allclose(few.position, np.zeros((1, 10)), atol=1e-5)
    np.testing.assert_array_equal(np.isinf(most.position[0]), [False] * 3 + [True] * 7)
    np.testing.assert_allclose(most.constant_velocity, np.zeros((1, 10)), atol=1e-5)
    found = module.summary([few, most], *np.zeros((3, 2, 10)))
    assert found["lost"] == [0, 0, 0] + [0.5] * 7


def test_what_is_far_away_is_no_match() -> None:
    errors = object_errors(*made([module.FARTHEST + 1.0]), 0, DATA)
    assert np.isinf(errors.position).all()
    assert np.isinf(errors.constant_velocity).all()


def test_constant_velocity_is_reflected_where_the_data_is() -> None:
    size = np.array([5.0, 5.0])
    path = constant_velocity(np.array([16.0, 4.0]), np.array([3.0, -1.5]), size, DATA)
    np.testing.assert_allclose(path[:4, 0] - 2, [17, 20, 17, 14])  # corners: left at 14, reflected at 20
    np.testing.assert_allclose(path[:4, 1] - 2, [0.5, 1.0, 2.5, 4.0])  # and at 0
    free = constant_velocity(
        np.array([4.0, 4.0]), np.array([-3.0, 0.0]), size, dataclasses.replace(DATA, name="moving-mnist-free")
    )
    np.testing.assert_allclose(free[:4, 0] - 2, [-1, -4, -3, 0])  # minus the digit's size


def test_whole_boxes_are_tight_boxes_inside_the_frame() -> None:
    image = ImageModel(MODEL, key=jax.random.key(3))
    where = image.transformer.where_of_boxes(jnp.array([[6.0, 4.0, 6.0, 6.0], [17.0, 3.0, 6.0, 6.0]]))
    what = 20 * jax.random.normal(jax.random.key(0), (1, 2, 3))
    objects = Objects(what, where[None], jnp.ones((1, 2)), jnp.array([[0, 1]]))
    tight, whole = tight_boxes(image, objects)[0], whole_boxes(image, objects)[0]
    np.testing.assert_allclose(whole[0], tight[0], atol=1.0)  # a glimpse's pixel is a frame's pixel
    assert whole[1, 0] + whole[1, 2] > 20 >= tight[1, 0] + tight[1, 2], "the frame cuts the other one off"
    share = float(tight[1, 2:].prod() / whole[1, 2:].prod())
    assert 0.2 < share < 0.8
    for least in (0.9 * share, 1.1 * share):
        boxes = tight_boxes(image, objects, least)[0]
        np.testing.assert_array_equal(boxes[0], tight[0])
        assert bool(np.isnan(boxes[1]).all()) == (least > share)


@pytest.mark.parametrize("kind", ["sqair", "vrnn"])
def test_models_that_predict(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STROKES, "test", (60, 3))
    monkeypatch.setattr(module, "FUTURES", 3)
    model = build(dataclasses.replace(MODEL, kind=kind), jax.random.key(1))
    found = prediction(model, DATA, sequences=3, particles=4)
    assert len(found["pixel"]) == len(found["pixel_still"]) == 10
    assert all(value > 0 for value in found["pixel"])
    assert len(found["pixel_mean"]) == len(found["pixel_mean_se"]) == 10
    assert (found["position"] is None) == (kind == "vrnn")
    assert found["futures"] == 3


def test_the_mean_of_futures_is_never_farther_off_than_they_are_on_average(monkeypatch: pytest.MonkeyPatch) -> None:
    """In squares; and it is nearer wherever they differ. Of one future it is that future."""
    frames = jax.random.uniform(jax.random.key(4), (13, *MODEL.image, 1))
    futures = sequence_futures(build(MODEL, jax.random.key(1)), jax.random.key(2), frames, 8)
    average = np.asarray(futures.pixels).mean(0)
    assert (futures.mean <= average * (1 + 1e-6)).all()
    assert (futures.mean < average).any()
    monkeypatch.setattr(module, "FUTURES", 1)
    one = sequence_futures(build(MODEL, jax.random.key(1)), jax.random.key(2), frames, 8)
    np.testing.assert_array_equal(one.mean, one.pixels[0])


def test_refusals() -> None:
    air = build(dataclasses.replace(MODEL, kind="air"), jax.random.key(1))
    with pytest.raises(UserError, match="AIR sees every frame by itself"):
        prediction(air, DATA, sequences=2)
    vrnn = build(dataclasses.replace(MODEL, kind="vrnn"), jax.random.key(1))
    with pytest.raises(UserError, match="needs digits that stay"):
        prediction(vrnn, dataclasses.replace(DATA, name="moving-mnist-in-out"), sequences=2)

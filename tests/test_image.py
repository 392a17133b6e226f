"""Image generation: the canvas is the sum of written glimpses, the likelihood scipy's Gaussian."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from sqair.config import ModelConfig
from sqair.image import ImageModel, as_frames
from sqair.objects import Objects

SIZES = {"image": (8, 11), "glimpse": (5, 4), "channels": 3, "what_size": 3, "width": 6, "max_objects": 3}
canvas = eqx.filter_jit(lambda model, objects: model.canvas(objects))


def make(**switches):
    config = ModelConfig(**SIZES, **switches)
    return eqx.filter_jit(lambda key: ImageModel(config, key=key))(jax.random.key(0))


@pytest.fixture(scope="module")
def model():
    return make()


@pytest.fixture(scope="module")
def objects():
    what, where = jax.random.normal(jax.random.key(1), (3, 3)), jax.random.normal(jax.random.key(2), (3, 4))
    return Objects(what, where, jnp.array([1.0, 0.0, 1.0]), jnp.array([4, -1, 7]))


def test_the_canvas_is_the_sum_over_present_objects(model, objects):
    glimpses = model.glimpses(objects.what)
    assert glimpses.shape == (3, 5, 4, 3)
    assert np.all((glimpses > 0) & (glimpses < 1))
    expected = sum(model.transformer.write(glimpses[i], objects.where[i]) for i in (0, 2))
    np.testing.assert_allclose(canvas(model, objects), expected, atol=1e-6)


def test_no_objects_leave_the_canvas_black(model, objects):
    assert not np.any(canvas(model, objects._replace(pres=jnp.zeros(3))))


@pytest.mark.parametrize("broken", [jnp.nan, jnp.inf])
def test_a_broken_absent_what_cannot_reach_the_canvas(model, objects, broken):
    spoilt = objects._replace(what=objects.what.at[1].set(broken))
    assert np.array_equal(canvas(model, spoilt), canvas(model, objects))


def test_the_likelihood_is_scipys(model):
    rng = np.random.default_rng(0)
    x, y = rng.random((8, 11, 3)), rng.random((8, 11, 3))
    found = model.log_prob(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32))
    np.testing.assert_allclose(found, scipy.stats.norm.logpdf(x, y, 0.3).sum(), rtol=1e-5)


def test_a_learned_std_starts_where_the_fixed_one_is_and_is_in_the_density():
    """Its gradient is that of scipy's density, too, and it stays above the smallest std."""
    model = make(learn_output_std=True)
    x, y = np.random.default_rng(0).random((2, 8, 11, 3)).astype(np.float32)
    np.testing.assert_allclose(model.pixels.std, 0.3, rtol=1e-6)
    wider = eqx.tree_at(lambda it: it.pixels.log_std, model, jnp.log(0.49))
    value, gradient = eqx.filter_value_and_grad(lambda model: model.log_prob(jnp.asarray(x), jnp.asarray(y)))(wider)
    np.testing.assert_allclose(value, scipy.stats.norm.logpdf(x, y, 0.5).sum(), rtol=1e-5)
    ends = [scipy.stats.norm.logpdf(x.astype(float), y, 0.49 * np.exp(h) + 0.01).sum() for h in (-1e-4, 1e-4)]
    np.testing.assert_allclose(gradient.pixels.log_std, (ends[1] - ends[0]) / 2e-4, rtol=1e-3)
    collapsed = eqx.tree_at(lambda it: it.pixels.log_std, model, jnp.array(-100.0))
    np.testing.assert_allclose(collapsed.pixels.std, 0.01)
    np.testing.assert_allclose(wider.sample(jnp.ones((1, 1, 3)), jnp.zeros((1, 1, 3))), 0.5, rtol=1e-6)


def test_a_sampled_frame_is_the_canvas_and_noise(model):
    y, noise = jnp.full((8, 11, 3), 0.5), jnp.ones((8, 11, 3))
    np.testing.assert_allclose(model.sample(noise, y), 0.8, rtol=1e-6)


def test_scaled_glimpses_are_the_decoder_times_a_scale(objects):
    model = make(glimpse_output="scaled")
    glimpses = model.glimpses(objects.what)
    np.testing.assert_allclose(glimpses[0], 0.25 * model.decoder(objects.what[0]), atol=1e-6)
    assert np.any(glimpses < 0)


def test_the_mean_image_shows_under_present_glimpses_only(objects):
    model = make(mean_image=True)
    painted = eqx.tree_at(lambda it: it.mean_image, model, jnp.ones((8, 11, 3)))
    shown = canvas(painted, objects) - canvas(model, objects)
    ones = jnp.ones((5, 4, 3))
    covered = sum(model.transformer.write(ones, objects.where[i]) for i in (0, 2))
    assert np.all(shown[np.asarray(covered) > 0.9] > 0.99)
    assert np.all(shown[np.asarray(covered) < 0.1] < 1e-3)
    assert np.any(covered > 0.9)
    assert np.any(covered < 0.1)


def test_grey_frames_may_leave_out_the_channel():
    assert as_frames(jnp.zeros((2, 3, 4))).shape == (2, 3, 4, 1)
    assert as_frames(jnp.zeros((2, 3, 4, 3))).shape == (2, 3, 4, 3)

"""Distributions against closed forms: densities, total mass, sampling by inversion, and gradients at the extremes."""

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit

from sqair.distributions import Bernoulli, Count, Gaussian, Noise, OnesThenZero, draw_noise, masked

N = 4
STRINGS = jnp.array(list(itertools.product([0.0, 1.0], repeat=N)))
"""All 2^N presence strings."""

logits = st.floats(-8, 8, width=32)
ones_log_prob = jax.jit(lambda logits, limit, pres: OnesThenZero(logits, limit).log_prob(pres))
ones_of_strings = jax.jit(jax.vmap(ones_log_prob, in_axes=(None, None, 0)))
ones_of_uniforms = jax.jit(jax.vmap(lambda x, limit, u: OnesThenZero(x, limit).sample(u), in_axes=(None, None, 0)))
count_log_probs = jax.jit(jax.vmap(lambda x, limit, n: Count(x, limit).log_prob(n), in_axes=(None, None, 0)))
count_samples = jax.jit(jax.vmap(lambda x, limit, u: Count(x, limit).sample(u), in_axes=(None, None, 0)))


def is_admissible(string, limit):
    """Ones, at most `limit` of them, then zeros."""
    number = int(np.sum(string))
    return number <= limit and bool(np.all(string[:number] == 1))


# --- noise


def test_noise_has_its_shapes_and_depends_on_the_key_alone():
    noise = draw_noise(jax.random.key(3), (5, 2), slots=3, what_size=7)
    assert noise.what.shape == (5, 2, 3, 7)
    assert noise.where.shape == (5, 2, 3, 4)
    assert noise.pres.shape == (5, 2, 3)
    assert noise.forced is None
    again = draw_noise(jax.random.key(3), (5, 2), slots=3, what_size=7)
    other = draw_noise(jax.random.key(4), (5, 2), slots=3, what_size=7)
    for a, b, c in zip(noise[:3], again[:3], other[:3], strict=True):
        assert np.array_equal(a, b)
        assert not np.array_equal(a, c)


def test_noise_follows_its_distributions():
    noise = draw_noise(jax.random.key(0), (500,), slots=3, what_size=4)
    normals = np.concatenate([noise.what.ravel(), noise.where.ravel()])
    assert scipy.stats.kstest(normals, "norm").pvalue > 1e-3
    assert scipy.stats.kstest(noise.pres.ravel(), "uniform").pvalue > 1e-3
    assert noise.pres.min() >= 0
    assert noise.pres.max() < 1
    correlation = np.corrcoef(np.concatenate([noise.what, noise.where], -1).reshape(500, -1).T)
    assert np.abs(correlation - np.eye(24)).max() < 0.2


def test_a_phase_of_noise_keeps_what_is_forced():
    noise = Noise(jnp.zeros((2, 3, 5)), jnp.zeros((2, 3, 4)), jnp.zeros((2, 3)), jnp.arange(6.0).reshape(2, 3))
    assert np.array_equal(jax.tree.leaves(noise.phase(1))[3], [3, 4, 5])
    assert noise.phase(0).what.shape == (3, 5)


# --- Gaussian


def some_gaussian(seed, correlated):
    rng = np.random.default_rng(seed)
    mean, std, x = rng.normal(size=4), rng.uniform(0.2, 2, 4), rng.normal(size=4)
    mix = np.eye(4) + np.tril(rng.normal(size=(4, 4)), -1) if correlated else None
    return mean, std, mix, x


@pytest.mark.parametrize("seed", range(3))
def test_a_factorised_gaussian_is_scipys(x64, seed):
    mean, std, _, x = map(jnp.asarray, some_gaussian(seed, True))
    expected = scipy.stats.norm.logpdf(x, mean, std).sum()
    np.testing.assert_allclose(Gaussian(mean, std).log_prob(x), expected, rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_a_correlated_gaussian_is_scipys(x64, seed):
    mean, std, mix, x = map(jnp.asarray, some_gaussian(seed, True))
    factor = np.diag(std) @ mix
    covariance: Any = factor @ factor.T  # scipy's stub says int
    expected = scipy.stats.multivariate_normal.logpdf(x, mean, covariance)
    np.testing.assert_allclose(Gaussian(mean, std, mix).log_prob(x), expected, rtol=1e-10)


@pytest.mark.parametrize("correlated", [False, True])
def test_a_gaussian_sample_is_a_linear_map_of_noise(x64, correlated):
    """So its covariance is that of the density above: the map's matrix times its transpose."""
    mean, std, mix, _ = some_gaussian(0, correlated)
    gaussian = Gaussian(jnp.asarray(mean), jnp.asarray(std), None if mix is None else jnp.asarray(mix))
    np.testing.assert_allclose(gaussian.sample(jnp.zeros(4)), mean, rtol=1e-12)
    matrix = jax.jacobian(gaussian.sample)(jnp.zeros(4))
    np.testing.assert_allclose(matrix, np.diag(std) @ (np.eye(4) if mix is None else mix), rtol=1e-12)


def test_a_correlated_gaussian_takes_leading_axes(x64):
    mean, std, mix, x = map(jnp.asarray, some_gaussian(1, True))
    many = Gaussian(jnp.stack([mean, x]), jnp.stack([std, 2 * std]), mix)
    noise = jnp.asarray(np.random.default_rng(0).normal(size=(2, 4)))
    one = Gaussian(x, 2 * std, mix)
    np.testing.assert_allclose(many.sample(noise)[1], one.sample(noise[1]), rtol=1e-12)
    np.testing.assert_allclose(many.log_prob(noise)[1], one.log_prob(noise[1]), rtol=1e-12)


# --- Bernoulli


@given(values=st.lists(logits, min_size=N, max_size=N), allowed=st.lists(st.booleans(), min_size=N, max_size=N))
def test_a_coin_is_fair_to_its_logit_where_allowed_and_zero_elsewhere(values, allowed):
    coins = Bernoulli(jnp.array(values), jnp.array(allowed))
    heads, tails = np.exp(coins.log_prob(jnp.ones(N))), np.exp(coins.log_prob(jnp.zeros(N)))
    np.testing.assert_allclose(heads, np.where(allowed, expit(values), 0), rtol=1e-5)
    np.testing.assert_allclose(heads + tails, 1, rtol=1e-5)
    assert np.all(tails[~np.array(allowed)] == 1)


def test_coins_land_as_often_as_they_should():
    grid, probability = (jnp.arange(1000) + 0.5) / 1000, jnp.array([0.0, 0.123, 0.5, 1.0])
    coins = Bernoulli(jnp.array(logit(probability), dtype=jnp.float32), jnp.array([True] * 4))
    frequency = jax.vmap(coins.sample)(jnp.tile(grid[:, None], 4)).mean(0)
    np.testing.assert_allclose(frequency, probability, atol=1e-6)
    assert np.all(coins._replace(allowed=jnp.array([False] * 4)).sample(jnp.zeros(4)) == 0)


# --- ones, then a zero


@pytest.mark.parametrize("limit", range(N + 1))
@given(values=st.lists(logits, min_size=N, max_size=N))
def test_strings_of_ones_then_a_zero_have_all_the_mass(limit, values):
    mass = np.exp(ones_of_strings(jnp.array(values), jnp.array(float(limit)), STRINGS))
    admissible = np.array([is_admissible(string, limit) for string in STRINGS])
    assert admissible.sum() == limit + 1
    assert np.all(mass[~admissible] == 0)
    np.testing.assert_allclose(mass.sum(), 1, rtol=1e-5)


def test_ones_then_a_zero_is_eq_2():
    """Each one is a won coin, the zero a lost one; at the limit no coin is thrown."""
    heads = np.array([0.9, 0.4, 0.7, 0.2])
    values = jnp.array(logit(heads), dtype=jnp.float32)
    cases = {(1, 1, 0, 0): 0.9 * 0.4 * 0.3, (0, 0, 0, 0): 0.1, (1, 1, 1, 0): 0.9 * 0.4 * 0.7}
    for string, expected in cases.items():
        limit = 3.0
        found = math.exp(ones_log_prob(values, jnp.array(limit), jnp.array(string, dtype=jnp.float32)))
        assert found == pytest.approx(expected, rel=1e-5), string


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
def test_ones_then_a_zero_is_sampled_exactly(limit):
    """Over a grid that divides every probability, frequencies are the probabilities themselves."""
    cells = 10
    heads = np.array([0.9, 0.4, 0.7])
    values, room = jnp.array(logit(heads), dtype=jnp.float32), jnp.array(float(limit))
    axis = (np.arange(cells) + 0.5) / cells
    samples = ones_of_uniforms(values, room, jnp.array(list(itertools.product(axis, repeat=3)), dtype=jnp.float32))
    strings = jnp.array(list(itertools.product([0.0, 1.0], repeat=3)))
    frequency = (np.asarray(samples)[:, None] == np.asarray(strings)).all(-1).mean(0)
    expected = np.exp(ones_of_strings(values, room, strings))
    np.testing.assert_allclose(frequency, expected, atol=1e-6)


# --- count


@pytest.mark.parametrize("limit", range(N + 1))
@given(values=st.lists(logits, min_size=N + 1, max_size=N + 1))
def test_counts_up_to_the_limit_have_all_the_mass(limit, values):
    mass = np.exp(count_log_probs(jnp.array(values), jnp.array(float(limit)), jnp.arange(N + 1.0)))
    expected = np.exp(np.array(values) - max(values)) * (np.arange(N + 1) <= limit)
    np.testing.assert_allclose(mass, expected / expected.sum(), rtol=2e-5)
    assert np.all(mass[limit + 1 :] == 0)


@pytest.mark.parametrize("limit", range(N + 1))
@given(values=st.lists(st.one_of(logits, st.just(-1e3)), min_size=N + 1, max_size=N + 1))
def test_counts_are_sampled_by_inversion(limit, values):
    cells = 2000
    values, room = jnp.array(values), jnp.array(float(limit))
    uniforms = (jnp.arange(cells) + 0.5) / cells
    samples = np.asarray(count_samples(values, room, uniforms))
    assert samples.max() <= limit
    assert np.all(np.diff(samples) >= 0)
    expected = np.exp(count_log_probs(values, room, jnp.arange(N + 1.0)))
    np.testing.assert_allclose(np.bincount(samples, minlength=N + 1) / cells, expected, atol=1.1 / cells)


def test_a_count_never_exceeds_its_limit_at_the_ends_of_the_unit_interval():
    ends = jnp.array([0.0, 1 - 2**-24])
    for limit in range(N + 1):
        low, high = count_samples(jnp.zeros(N + 1), jnp.array(float(limit)), ends)
        assert (int(low), int(high)) == (0, limit)


# --- gradients


extremes = st.sampled_from([-1e3, -50.0, 0.0, 50.0, 1e3])


def is_finite(*trees):
    return all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(trees))


ones_gradient = jax.jit(jax.grad(ones_log_prob))
count_gradient = jax.jit(jax.grad(lambda logits, limit, n: Count(logits, limit).log_prob(n)))
coin_gradient = jax.jit(jax.grad(lambda logit, allowed, pres: Bernoulli(logit, allowed).log_prob(pres).sum()))


@given(
    values=st.lists(extremes, min_size=N + 1, max_size=N + 1),
    limit=st.integers(0, N),
    pres=st.lists(st.sampled_from([0.0, 1.0]), min_size=N, max_size=N),
    allowed=st.lists(st.booleans(), min_size=N, max_size=N),
)
def test_gradients_are_finite_for_extreme_logits_and_masked_entries(values, limit, pres, allowed):
    """Also for strings that have no mass: a particle of weight zero must not spoil the others' gradient."""
    values, room, string = jnp.array(values), jnp.array(float(limit)), jnp.array(pres)
    by_string = ones_gradient(values[:N], room, string)
    by_coin = coin_gradient(values[:N], jnp.array(allowed), string)
    by_count = count_gradient(values, room, string.sum())
    assert is_finite(by_string, by_coin, by_count)
    assert np.all(by_coin[~np.array(allowed)] == 0)
    assert np.all(by_string[limit:] == 0)
    assert np.all(by_count[limit + 1 :] == 0)


def test_log_probs_of_extreme_logits_are_finite():
    for value, pres in itertools.product([-1e3, 1e3], [0.0, 1.0]):
        coin = Bernoulli(jnp.array(value), jnp.array(True))
        expected = 0.0 if (value > 0) == (pres > 0) else -1e3
        assert float(coin.log_prob(jnp.array(pres))) == pytest.approx(expected)


@pytest.mark.parametrize("broken", [jnp.nan, jnp.inf, -jnp.inf])
def test_masking_stops_what_is_broken(broken):
    """In the sum and in its gradient with respect to the log-probabilities."""
    log_prob, pres = jnp.array([1.0, broken, 2.0]), jnp.array([1.0, 0.0, 1.0])
    value, gradient = jax.value_and_grad(masked)(log_prob, pres)
    assert value == 3.0
    assert np.array_equal(gradient, [1, 0, 1])

"""Bounds against the evidence itself, estimated from the prior alone.

`imagine` never touches q, so the mean likelihood of its samples is p(x) whatever the inference does. A weight is an
unbiased estimate of the same number if, and only if, q and p are the densities of what was really sampled: every mask,
every survival term and every resampling step has to be right. Weights are compared, not their logarithms.
"""

import dataclasses
import itertools
import math
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import TINY, build, film, paths
from hypothesis import given
from hypothesis import strategies as st

from sqair import propagation
from sqair.baselines.air import AIR
from sqair.config import AUTHORS_SWITCHES, ModelConfig
from sqair.distributions import Bernoulli, Gaussian, masked
from sqair.image import ImageModel
from sqair.model import SQAIR, no_restraint
from sqair.objective import elbo, iwae
from sqair.particles import draw_particles, particle_filter, resample, run_batch, run_particles
from sqair.propagation import Expected, PropagationPosterior, PropagationPrior

Model = TypeVar("Model", SQAIR, AIR)

FRAMES = film(2)
FAST = {"xla_backend_optimization_level": 3}
"""For the one program that runs longer than it compiles."""

# q a little wider than p, so that a finite number of particles has a mean weight that means something
WIDE = dataclasses.replace(
    TINY,
    where_prior_mean=(0.0, 0.0, 0.0, 0.0),
    where_prior_std=(0.6, 0.6, 0.6, 0.6),
    prior_std_bias=-3.0,
    propagation_where_std_bias=-2.7,
    propagation_what_std_bias=-2.7,
)


# the authors' program but for initial values, and for its p^P that forgets where things were: q does not, so too few of
# its particles would be effective. Correlations make q(where) narrow in some directions; it is a little wider for that
AUTHORS = dataclasses.replace(
    WIDE,
    **{
        name: value
        for name, value in AUTHORS_SWITCHES.items()
        if isinstance(value, str | bool) or name == "shift_limit"
    }
    | {"prior_update": "residual", "propagation_where_std_bias": -2.5, "propagation_what_std_bias": -2.25},
)


def wide(kind: type[Model], config: ModelConfig = WIDE) -> Model:
    """A model with small weights whose q(what) of discovery is about as wide as p's."""
    model = build(kind, config, scale=0.01)
    model = jax.tree.map(lambda leaf: 0.5 * leaf if eqx.is_inexact_array(leaf) and leaf.ndim == 2 else leaf, model)
    bias = model.encoders.to_what.bias.at[WIDE.what_size :].add(0.7)
    return eqx.tree_at(lambda it: it.encoders.to_what.bias, model, bias)


# --- estimates of the evidence


def from_prior(model: Model, key: jax.Array, count: int) -> jax.Array:
    """log p(x_t | z_t) of the frames for samples of the prior, (sample, T)."""

    def one(key):
        canvas = model.imagine(key, len(FRAMES))[1].canvas
        return jax.vmap(model.image.log_prob)(FRAMES, canvas)

    return jax.vmap(one)(jax.random.split(key, count))


def from_particles(model: Model, key: jax.Array, count: int) -> jax.Array:
    """Log weights of the time-steps, (particle, T)."""
    return run_particles(model, draw_particles(model, key, count, len(FRAMES)), FRAMES).log_weight


def in_chunks(function, model: Model, total: int, seed: int, options: dict | None = None) -> np.ndarray:
    """`total` samples of one of the two functions above, in float64."""
    chunk = 20_000
    arrays, static = eqx.partition(model, eqx.is_array)
    run = jax.jit(lambda arrays, key: function(eqx.combine(arrays, static), key, chunk), compiler_options=options)
    keys = jax.random.split(jax.random.key(seed), total // chunk)
    return np.concatenate([np.asarray(run(arrays, key)) for key in keys]).astype(np.float64)


def z_score(log_a: np.ndarray, log_b: np.ndarray) -> float:
    """The difference of the means of exp(log a) and exp(log b), in its standard errors."""
    a, b = np.exp(log_a - log_b.mean()), np.exp(log_b - log_b.mean())
    return float((a.mean() - b.mean()) / math.hypot(a.std() / math.sqrt(len(a)), b.std() / math.sqrt(len(b))))


def ess(log_w: np.ndarray) -> float:
    """Effective sample size, as a share."""
    w = np.exp(log_w - log_w.max())
    return float(w.sum() ** 2 / (w**2).sum() / len(w))


@pytest.fixture(scope="module")
def model() -> SQAIR:
    return wide(SQAIR)


@pytest.fixture(scope="module")
def truth(model) -> np.ndarray:
    """log p(x | z) of a million samples of the prior."""
    return in_chunks(from_prior, model, 1_000_000, seed=2, options=FAST).sum(1)


def test_mean_weight(model, truth):
    log_w = in_chunks(from_particles, model, 100_000, seed=3).sum(1)
    assert ess(log_w) > 0.01
    assert abs(z_score(log_w, truth)) < 4
    # not because all weights are alike: the ELBO lies well below the evidence
    assert log_w.mean() < np.log(np.exp(truth - truth.mean()).mean()) + truth.mean() - 0.3


@pytest.mark.parametrize("threshold", [0.5, 2.0], ids=["when the weights are uneven", "at every time-step"])
def test_fivo(model, truth, threshold):
    """50 particle filters: the mean of p-hat is p(x), whenever they resample."""
    count = 1000

    @eqx.filter_jit
    def run(model, key):
        noise_key, filter_key = jax.random.split(key)
        noise = draw_particles(model, noise_key, count, len(FRAMES))
        filtered = particle_filter(model, filter_key, noise, FRAMES, threshold=threshold)
        return filtered.log_increment.sum(), filtered.resampled[0]

    runs = [run(model, key) for key in jax.random.split(jax.random.key(4), 50)]
    log_p, resampled = (np.array(part) for part in zip(*runs, strict=True))
    assert resampled.any()
    assert abs(z_score(log_p.astype(np.float64), truth)) < 4


class Unmasked(eqx.Module):
    """q^P that, where `fault` is set, counts what and where of all objects of O_{t-1}, vanished ones included."""

    posterior: PropagationPosterior
    fault: jax.Array

    def __call__(self, noise, x, objects, *rest):
        def unmasked(log_prob, pres):
            return masked(log_prob, jnp.where(self.fault, objects.pres, pres))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(propagation, "masked", unmasked)
            return self.posterior(noise, x, objects, *rest)


class Forgetful(eqx.Module):
    """p^P in which the factor of those that live on, or of those that vanish, can be forgotten."""

    prior: PropagationPrior
    no_survival: jax.Array
    no_death: jax.Array

    def expect(self, *inputs) -> Expected:
        outer = self

        class Survival(Bernoulli):
            def log_prob(self, pres):
                forgotten = jnp.where(pres > 0, outer.no_survival, outer.no_death)
                return jnp.where(forgotten, 0.0, super().log_prob(pres))

        expected = self.prior.expect(*inputs)
        return expected._replace(survival=Survival(*expected.survival))


@pytest.fixture(scope="module")
def mutant_z(model, truth):
    """The z score of a mutant with the three faults switched on or off, all in one compiled program."""

    @eqx.filter_jit
    def run(model, faults, key):
        parts = Unmasked(model.propagation, faults[0]), Forgetful(model.propagation_prior, faults[1], faults[2])
        mutant = eqx.tree_at(lambda it: (it.propagation, it.propagation_prior), model, parts)
        return from_particles(mutant, key, 50_000).sum(1)

    return lambda *faults: z_score(np.asarray(run(model, jnp.array(faults), jax.random.key(3)), np.float64), truth)


def test_mutations_are_noticed(mutant_z):
    """A dropped mask, eq. 9 without its death factor (as printed, a product over P_t) and without survival."""
    assert abs(mutant_z(False, False, False)) < 4
    assert abs(mutant_z(True, False, False)) > 5
    assert abs(mutant_z(False, True, False)) > 5
    assert abs(mutant_z(False, False, True)) > 5


def test_the_authors_switches(monkeypatch):
    """Correlated where, gates, masks and all; log q without the correlations is noticed."""
    model = wide(SQAIR, AUTHORS)
    gates = jnp.repeat(jnp.array([5.0, 4.0, 0.0]), AUTHORS.what_size)  # keep what was, hardly look, remember half
    mix = jnp.full((4, 4), 0.4)
    model = eqx.tree_at(lambda it: (it.propagation.what_update.gates.bias, it.propagation.mix), model, (gates, mix))
    log_p = in_chunks(from_prior, model, 100_000, seed=5).sum(1)
    log_w = in_chunks(from_particles, model, 100_000, seed=6).sum(1)
    assert ess(log_w) > 0.01
    assert abs(z_score(log_w, log_p)) < 4

    log_prob = Gaussian.log_prob
    monkeypatch.setattr(Gaussian, "log_prob", lambda self, x: log_prob(self._replace(mix=None), x))
    assert abs(z_score(in_chunks(from_particles, model, 100_000, seed=6).sum(1), log_p)) > 5


def test_air():
    """AIR's frames are independent: the mean weight of each is its own evidence."""
    model = wide(AIR)
    log_p = in_chunks(from_prior, model, 100_000, seed=5)
    log_w = in_chunks(from_particles, model, 100_000, seed=6)
    for t in range(len(FRAMES)):
        assert ess(log_w[:, t]) > 0.01
        assert abs(z_score(log_w[:, t], log_p[:, t])) < 4


# --- the order of the bounds


def expected_bound(bound, log_w: np.ndarray, log_q: np.ndarray, particles: int) -> float:
    """The exact mean of a bound whose K particles each take path i with probability q(i): a sum over multisets."""
    chosen = np.array(list(itertools.combinations_with_replacement(range(len(log_w)), particles)))
    counts = (chosen[:, :, None] == np.arange(len(log_w))).sum(1)
    ways = math.lgamma(particles + 1) - np.vectorize(math.lgamma)(counts + 1.0).sum(1)
    return float((np.exp(ways + counts @ log_q) * jax.vmap(bound)(jnp.asarray(log_w[chosen]))).sum())


def test_more_particles_give_a_tighter_bound():
    """ELBO <= IWAE(K) <= IWAE(10 K) <= log p: with one noise for all particles, these are finite sums."""
    model = build(SQAIR, scale=0.3)
    noise, forced = model.noise(jax.random.key(7), 2), jnp.asarray(paths(2, 2))

    @eqx.filter_jit
    def observe(model, noise, forced):
        return jax.vmap(lambda path: model.observe(None, FRAMES, noise=noise._replace(forced=path))[1])(forced)

    info = observe(model, noise, forced)
    log_w, log_q = (np.asarray(part, np.float64) for part in (info.log_weight, info.log_q_presence))
    _, first = np.unique(forced[:, 0], axis=0, return_index=True)
    cases = (
        (log_w[first, 0], log_q[first, 0], (1, 2, 10, 20, 100)),  # the 3 paths of the first frame
        (log_w.sum(1), log_q.sum(1), (1, 2, 3, 4)),  # the 16 paths of both
    )
    for log_w, log_q, numbers in cases:
        assert np.exp(log_q).sum() == pytest.approx(1, abs=1e-6)
        lowest, evidence = (np.exp(log_q) * log_w).sum(), np.logaddexp.reduce(log_w + log_q)
        bounds = [expected_bound(iwae, log_w, log_q, k) for k in numbers]
        assert bounds[0] == pytest.approx(lowest, abs=1e-4)
        assert expected_bound(elbo, log_w, log_q, 2) == pytest.approx(lowest, abs=1e-4)
        assert (np.diff([*bounds, evidence]) > 1e-3).all()


def test_ceiling():
    """No bound on a 50x50 frame at std 0.3 can exceed 712.586 nats, the density of a perfect canvas."""
    image = ImageModel(ModelConfig(width=8), key=jax.random.key(0))
    frame = jax.random.uniform(jax.random.key(1), (50, 50, 1))
    assert float(image.log_prob(frame, frame)) == pytest.approx(712.586, abs=5e-4)
    assert float(image.log_prob(frame, frame + 0.3)) == pytest.approx(712.586 - 1250, abs=0.01)


# --- particles and the filter


def test_filter_without_resampling(model):
    """A filter that never resamples gives the IWAE bound of the same noise."""
    noise = draw_particles(model, jax.random.key(8), 6, 3)
    run = eqx.filter_jit(particle_filter)(model, jax.random.key(9), noise, film(3), threshold=0.0)
    assert not run.resampled.any()
    log_w = eqx.filter_jit(run_particles)(model, noise, film(3)).log_weight
    np.testing.assert_allclose(run.info.log_weight.T, log_w, rtol=1e-5)
    assert float(run.log_increment.sum()) == pytest.approx(float(iwae(log_w.sum(1))), rel=1e-6)


def test_frames_beyond_the_length_change_nothing_in_training(model):
    """With and without resampling; what they would weigh is zero."""
    noise = jax.tree.map(lambda leaf: leaf[None], draw_particles(model, jax.random.key(8), 6, 3))
    frames = film(3).at[2].set(jnp.nan)[None]
    run = eqx.filter_jit(run_batch)
    for uniforms in (None, jax.random.uniform(jax.random.key(9), (1, 3))):
        found = run(model, noise, frames, no_restraint(3), jnp.array(2), uniforms=uniforms).log_weight
        cut = (jax.tree.map(lambda leaf: leaf[:, :, :2], noise), frames[:, :2], no_restraint(2), jnp.array(2))
        wanted = run(model, *cut, uniforms=None if uniforms is None else uniforms[:, :2]).log_weight
        np.testing.assert_allclose(found[:, :, :2], wanted, rtol=1e-5)
        assert not found[:, :, 2].any()


@given(
    st.lists(st.floats(-12, 3, width=32) | st.just(-math.inf), min_size=5, max_size=5).filter(lambda x: max(x) > -12)
)
def test_resampling_is_fair(log_weight):
    """Over all uniform numbers a particle has K w offspring on average; for each, K w rounded up or down."""
    points = 4000
    uniforms = (jnp.arange(points) + 0.5) / points
    ancestors = jax.jit(jax.vmap(resample, (0, None)))(uniforms, jnp.asarray(log_weight, jnp.float32))
    offspring = (np.asarray(ancestors)[:, :, None] == np.arange(5)).sum(1)
    wanted = 5 * np.asarray(jax.nn.softmax(jnp.asarray(log_weight)))
    np.testing.assert_allclose(offspring.mean(0), wanted, atol=2 / points)
    assert (offspring >= np.floor(wanted - 1e-4)).all()
    assert (offspring <= np.ceil(wanted + 1e-4)).all()


def test_resampling_needs_little_memory():
    """Not an array of K times K: a hundred thousand particles in a few bytes each."""
    count = 100_000
    shapes = (jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((count,), jnp.float32))
    memory = jax.jit(resample).lower(*shapes).compile().memory_analysis()
    assert memory is not None
    assert memory.temp_size_in_bytes < 100 * count

"""Gradient estimators against exact gradients, by enumeration, through the function that training calls.

Given the noise of what and where, a tiny SQAIR is a discrete model: particle k takes path i with probability q_k(i) and
then has the weight w_k(i). So the expected bound is a finite sum over tuples of paths, and so is the expected gradient
of a surrogate. Both are differentiated with respect to the tables of log w and log q, and one pullback of the model
turns these into gradients of all parameters; it carries the gradients that pass through what and where as well.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import build, cast, film, paths, scatter

from sqair.config import TrainConfig, UserError
from sqair.model import SQAIR, Restraint
from sqair.objective import Baseline, Estimator, Moments, Surplus, batch_loss, check_objective, elbo, iwae, surrogate
from sqair.particles import draw_particles, resample, run_particles

OF_P = ("image", "discovery_prior", "propagation_prior", "first_prior")
OF_Q = ("encoders", "set_encoder", "discovery", "propagation", "first_temporal")


# --- expectations over tuples


def tuples(log_w: jax.Array, log_q: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """From tables (K, path): the probability of every tuple of K paths, and its log w and log q, (tuple, K)."""
    count, number = log_w.shape
    index = np.stack(np.meshgrid(*[np.arange(number)] * count), -1).reshape(-1, count)
    particle = np.arange(count)
    w, q = log_w[particle, index], log_q[particle, index]
    return jnp.exp(q.sum(-1)), w, q


def expected_bound(bound):
    def value(log_w, log_q):
        probability, w, _ = tuples(log_w, log_q)
        return (probability * jax.vmap(bound)(w)).sum()

    return value


def expected_surrogate(estimator: Estimator, *nvil: float):
    def value(log_w, log_q):
        probability, w, q = tuples(log_w, log_q)
        constants = [jnp.asarray(number, log_w.dtype) for number in nvil]
        each = jax.vmap(lambda w, q: surrogate(estimator, w, q, *constants))(w, q)
        return (jax.lax.stop_gradient(probability) * each).sum()

    return value


OBJECTIVES = {
    "iwae": expected_bound(iwae),
    "elbo": expected_bound(elbo),
    "vimco": expected_surrogate("vimco"),
    "vimco-authors": expected_surrogate("vimco-authors"),
    "reinforce": expected_surrogate("reinforce"),
    "nvil": expected_surrogate("nvil", -150.0),
    "nvil, normalised": expected_surrogate("nvil", -150.0, 4.0),
}


# --- a tiny SQAIR


def tables(model, noise, forced, frames) -> tuple[jax.Array, jax.Array]:
    """log w and log q(pres) of all paths for the noise of each particle, (K, path)."""

    def one(noise, path):
        info = model.observe(None, frames, noise=noise._replace(forced=path))[1]
        return info.log_weight.sum(), info.log_q_presence.sum()

    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(noise, forced)


def unstack(tree, count: int) -> list:
    """The entries along a leading axis."""
    return [jax.tree.map(lambda leaf, i=i: leaf[i], tree) for i in range(count)]


@eqx.filter_jit
def gradients(model, noise, forced, frames) -> dict:
    """Of every objective, with respect to all parameters."""
    parameters, static = eqx.partition(model, eqx.is_inexact_array)
    table, pullback = jax.vjp(lambda it: tables(eqx.combine(it, static), noise, forced, frames), parameters)
    pushed = [jax.grad(objective, (0, 1))(*table) for objective in OBJECTIVES.values()]
    (stacked,) = jax.vmap(pullback)(jax.tree.map(lambda *leaves: jnp.stack(leaves), *pushed))
    return dict(zip(OBJECTIVES, unstack(stacked, len(OBJECTIVES)), strict=True))


def enumerated(particles: int, length: int) -> dict:
    """The gradients on a film, in the precision that is switched on."""
    dtype = jnp.zeros(()).dtype
    model = build(SQAIR, scale=0.3)
    noise = draw_particles(model, jax.random.key(2), particles, length)
    inputs = (model, noise, jnp.asarray(paths(2, length)), film(length))
    return gradients(*cast(inputs, dtype))


def flat(gradient, fields: tuple[str, ...]) -> np.ndarray:
    leaves = jax.tree.leaves([getattr(gradient, field) for field in fields])
    return np.concatenate([np.ravel(leaf) for leaf in leaves])


def distance(found: np.ndarray, exact: np.ndarray) -> float:
    """Relative, in the Euclidean norm."""
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


@pytest.fixture(scope="module", params=[(2, 3), (3, 2)], ids=["K=2, 95 paths", "K=3, 16 paths"])
def exact64(request) -> dict:
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, enumerated(*request.param))


@pytest.mark.parametrize("fields", [OF_P, OF_Q], ids=["p", "q"])
def test_unbiased(exact64, fields):
    """VIMCO's expected gradient is the IWAE bound's; those of REINFORCE and plain NVIL are the ELBO's."""
    assert exact64["iwae"].encoders.to_what.weight.dtype == np.float64
    for estimator, bound in (("vimco", "iwae"), ("reinforce", "elbo"), ("nvil", "elbo")):
        exact = flat(exact64[bound], fields)
        assert np.linalg.norm(exact) > 0.1
        assert distance(flat(exact64[estimator], fields), exact) < 1e-9, estimator


def test_biased(exact64):
    """The authors' VIMCO, and NVIL's division by the deviation of its signal, have other expectations."""
    assert distance(flat(exact64["vimco-authors"], OF_Q), flat(exact64["iwae"], OF_Q)) > 0.01
    assert distance(flat(exact64["nvil, normalised"], OF_Q), flat(exact64["elbo"], OF_Q)) > 0.01
    # what they estimate is not the other bound's gradient either
    assert distance(flat(exact64["vimco-authors"], OF_Q), flat(exact64["elbo"], OF_Q)) > 0.01
    assert distance(flat(exact64["iwae"], OF_Q), flat(exact64["elbo"], OF_Q)) > 0.01


def test_all_parameters_take_part(exact64):
    """No parameter of the tiny model is left out of the comparison by a gradient that is zero."""
    for leaf in jax.tree.leaves(exact64["iwae"]):
        assert np.linalg.norm(leaf) > 0


def test_float32():
    result = enumerated(2, 2)
    for fields in (OF_P, OF_Q):
        assert flat(result["iwae"], fields).dtype == np.float32
        assert distance(flat(result["vimco"], fields), flat(result["iwae"], fields)) < 1e-4


# --- a toy with closed forms


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("particles", [2, 3])
def test_one_coin(particles):
    """One latent coin, q(1) = sigmoid(a), p(1) = sigmoid(b), two likelihoods: the IWAE bound is a binomial sum."""
    a, b, likelihood = jnp.array(0.4), jnp.array(-0.7), jnp.array([-1.3, 0.5])

    def log_weights(a, b):
        log_q = jax.nn.log_sigmoid(jnp.stack([-a, a]))
        return likelihood + jax.nn.log_sigmoid(jnp.stack([-b, b])) - log_q, log_q

    def closed_iwae(a, b):
        log_w, log_q = log_weights(a, b)
        terms = []
        for ones in range(particles + 1):
            share = jnp.array([particles - ones, ones]) / particles
            probability = math.comb(particles, ones) * jnp.exp(particles * (share * log_q).sum())
            terms.append(probability * jnp.log((share * jnp.exp(log_w)).sum()))
        return sum(terms)

    def expected(name, a, b):
        log_w, log_q = (jnp.tile(table, (particles, 1)) for table in log_weights(a, b))
        return OBJECTIVES[name](log_w, log_q)

    gradient = jax.jit(jax.grad(expected, (1, 2)), static_argnums=0)
    exact = {"iwae": jax.jit(jax.grad(closed_iwae, (0, 1)))(a, b)}
    q, p = jax.nn.sigmoid(a), jax.nn.sigmoid(b)
    exact["elbo"] = (q * (1 - q) * (likelihood[1] - likelihood[0] + b - a), q - p)
    for name, bound in (("vimco", "iwae"), ("reinforce", "elbo"), ("nvil", "elbo")):
        found = gradient(name, a, b)
        np.testing.assert_allclose(found, exact[bound], rtol=1e-11, err_msg=name)
    assert abs(gradient("vimco-authors", a, b)[0] / exact["iwae"][0] - 1) > 0.01


# --- training uses these surrogates


BATCH, PARTICLES, LENGTH, TOTAL = 2, 5, 2, 3
BOUND_OF: dict[Any, Any] = {"vimco": "iwae", "vimco-authors": "iwae", "reinforce": "elbo", "nvil": "elbo"}
MOMENTS = Moments(jnp.array(-20.0), jnp.array(9.0))
FRAMES = jnp.stack([film(TOTAL), 0.5 * film(TOTAL)[:, ::-1]])


class Trained(eqx.Module):
    """All that has gradients, as a point or as a direction in which to differentiate."""

    model: SQAIR
    baseline: Baseline


@pytest.fixture(scope="module")
def point() -> Trained:
    return Trained(build(SQAIR, scale=0.3), scatter(Baseline(64, key=jax.random.key(5)), jax.random.key(6), 0.3))


def restrained() -> Restraint:
    return Restraint(jnp.array([1.0, 0.0, 1.0]), jnp.full(TOTAL, 0.7), jnp.full(TOTAL, 0.3), jnp.ones(TOTAL))


@pytest.fixture(scope="module")
def direction(point) -> Trained:
    zeros = jax.tree.map(jnp.zeros_like, eqx.filter(point, eqx.is_inexact_array))
    return scatter(zeros, jax.random.key(8), 0.1)


@eqx.filter_jit
def slope(function, point: Trained, direction: Trained, *rest) -> tuple:
    """The value of a function of parameters, and its derivative in a direction: quicker to compile than a gradient."""
    parameters, static = eqx.partition(point, eqx.is_inexact_array)
    return jax.jvp(lambda it: function(eqx.combine(it, static), *rest), (parameters,), (direction,))


@eqx.filter_jit
def slope_of_loss(bound: Any, estimator: Any, point: Trained, direction: Trained) -> tuple:
    """The same of `loss`, whose time loop can be differentiated backwards only."""
    value, gradient = eqx.filter_value_and_grad(loss(bound, estimator))(point)
    products = jax.tree.map(lambda a, b: (a * b).sum(), gradient, direction)
    return value, sum(jax.tree.leaves(products))


def loss(bound: Any, estimator: Any):
    """What training minimises, as a function of all that has gradients."""
    config = TrainConfig(particles=PARTICLES, bound=bound, estimator=estimator)

    def value(at: Trained) -> jax.Array:
        inputs = (jax.random.key(4), FRAMES, restrained(), jnp.array(LENGTH), config, at.baseline, MOMENTS)
        return batch_loss(at.model, *inputs)[0]

    return value


def sequences() -> list[tuple]:
    """The key and the frames of each sequence of that batch."""
    return list(zip(jax.random.split(jax.random.key(4), BATCH), FRAMES, strict=True))


def per_particle(at: Trained, noise, frames, restraint) -> tuple:
    """What a surrogate is made of: log w and log q of the presences of each particle, and the learned baseline."""
    info = run_particles(at.model, noise, frames, restraint)
    return info.log_weight.sum(1), info.log_q_presence.sum(1), at.baseline(frames, jnp.array(LENGTH))


@pytest.fixture(scope="module")
def particles(point, direction) -> list[tuple]:
    """That of each sequence, cut to its length by hand, with the derivatives."""
    found = []
    for key, frames in sequences():
        noise = draw_particles(point.model, jax.random.split(key)[0], PARTICLES, TOTAL)
        noise = jax.tree.map(lambda leaf: leaf[:, :LENGTH], noise)
        restraint = jax.tree.map(lambda leaf: leaf[:LENGTH], restrained())
        found.append(slope(per_particle, point, direction, noise, frames[:LENGTH], restraint))
    return found


@pytest.mark.parametrize("estimator", BOUND_OF)
def test_training_differentiates_the_surrogate(point, direction, particles, estimator):
    """`batch_loss`, batched by vmap, cut by `length`, with training's restraint: the mean of what is made by hand."""

    def by_hand(log_w, log_q, expected):
        if estimator != "nvil":
            return surrogate(estimator, log_w, log_q) / LENGTH
        expected = expected + MOMENTS.mean
        miss = 0.5 * jnp.square((jax.lax.stop_gradient(log_w) - expected) / LENGTH).mean()
        return surrogate("nvil", log_w, log_q, expected, jnp.sqrt(MOMENTS.variance)) / LENGTH - miss

    wanted = np.mean([jax.jvp(by_hand, *tables) for tables in particles], axis=0)
    assert abs(wanted[1]) > 0.01
    np.testing.assert_allclose(slope_of_loss(BOUND_OF[estimator], estimator, point, direction), -wanted, 1e-4, 1e-5)


@pytest.mark.parametrize("most", [[[0, 1, 0], [-1, 0, 0]], [[-1, -1, -1], [9, 9, 9]]])
def test_training_prices_objects_that_are_too_many(point, most):
    """Off the weight of its particle, in frames that are used and of which the number is known; else nothing."""
    cost, weights, surplus = 1.7, [], 0.0
    for (key, frames), limits in zip(sequences(), most, strict=True):
        noise = draw_particles(point.model, jax.random.split(key)[0], PARTICLES, TOTAL)
        noise = jax.tree.map(lambda leaf: leaf[:, :LENGTH], noise)
        restraint = jax.tree.map(lambda leaf: leaf[:LENGTH], restrained())
        info = run_particles(point.model, noise, frames[:LENGTH], restraint)
        count = np.asarray(info.objects.pres).sum(2)
        over = sum(np.maximum(0, count[:, t] - limits[t]) for t in range(LENGTH) if limits[t] >= 0)
        weights.append(np.mean(info.log_weight.sum(1) - cost * over))
        surplus += np.sum(over)
    assert (surplus > 0) == (most[0][0] == 0)
    config = TrainConfig(particles=PARTICLES, bound="elbo", estimator="reinforce")
    inputs = (jax.random.key(4), FRAMES, restrained(), jnp.array(LENGTH), config)
    _, (diagnostics, _) = batch_loss(point.model, *inputs, surplus=Surplus(jnp.array(most), jnp.array(cost)))
    np.testing.assert_allclose(diagnostics.bound, np.mean(weights) / LENGTH, 1e-4)
    free = batch_loss(point.model, *inputs)[1][0].bound
    np.testing.assert_allclose(free - diagnostics.bound, cost * surplus / (BATCH * PARTICLES * LENGTH), 1e-4, 1e-5)


def test_training_differentiates_fivo(point, direction):
    """`batch_loss` with the bound FIVO: VIMCO of one frame's particles after another, resampled between frames."""

    def step(at, state, noise, frame, restraint):
        """One frame of all particles: their states, log w and log q of the presences."""

        def one(state, noise):
            now = jax.tree.map(lambda leaf: leaf[None], (noise, restraint))
            return at.model.observe(None, frame[None], state=state, noise=now[0], restraint=now[1])

        state, info = jax.vmap(one)(state, noise)
        return state, info.log_weight[:, 0], info.log_q_presence[:, 0]

    def by_hand(at, uniforms, noise, frames, restraint):
        state = jax.tree.map(lambda leaf: jnp.stack([leaf] * PARTICLES), at.model.initial())
        total = jnp.zeros(())
        for t in range(LENGTH):
            noise_t = jax.tree.map(lambda leaf, t=t: leaf[:, t], noise)
            restraint_t = jax.tree.map(lambda leaf, t=t: leaf[t], restraint)
            state, log_w, log_q = step(at, state, noise_t, frames[t], restraint_t)
            total = total + surrogate("vimco", log_w, log_q)
            ancestors = resample(uniforms[t], log_w)
            state = jax.tree.map(lambda leaf, chosen=ancestors: leaf[chosen], state)
        return total / LENGTH

    wanted = []
    for key, frames in sequences():
        key_noise, key_filter = jax.random.split(key)
        noise = draw_particles(point.model, key_noise, PARTICLES, TOTAL)
        uniforms = jax.random.uniform(key_filter, (TOTAL,))
        wanted.append(slope(by_hand, point, direction, uniforms, noise, frames, restrained()))
    wanted = np.mean(wanted, axis=0)
    assert abs(wanted[1]) > 0.01
    np.testing.assert_allclose(slope_of_loss("fivo", "vimco", point, direction), -wanted, 1e-4, 1e-5)


@pytest.mark.parametrize("bound", ["iwae", "fivo"])
def test_what_is_switched_off_teaches_the_prior_nothing(point, bound):
    """Where discovery is off after the first frame, the prior of how many objects appear later has gradient 0."""
    config = TrainConfig(particles=PARTICLES, bound=bound)

    @jax.jit
    def gradient(discover):
        def value(count):
            model = eqx.tree_at(lambda it: it.discovery_prior.count, point.model, count)
            restraint = Restraint(discover, jnp.full(TOTAL, 0.7), jnp.zeros(TOTAL), jnp.ones(TOTAL))
            return batch_loss(model, jax.random.key(4), FRAMES, restraint, jnp.array(TOTAL), config)[0]

        return jax.grad(value)(point.model.discovery_prior.count)

    off, on = gradient(jnp.zeros(TOTAL).at[0].set(1.0)), gradient(jnp.ones(TOTAL))
    assert (off.later == 0).all()
    assert float(jnp.linalg.norm(off.first)) > 0.01
    assert float(jnp.linalg.norm(on.later)) > 0.01


# --- what is refused


@pytest.mark.parametrize("estimator", ["vimco", "vimco-authors", "reinforce"])
def test_one_particle_is_refused(estimator):
    with pytest.raises(UserError, match="at least 2 particles"):
        surrogate(estimator, jnp.zeros(1), jnp.zeros(1))
    with pytest.raises(UserError, match="at least 2 particles"):
        check_objective(TrainConfig(particles=1, bound=BOUND_OF[estimator], estimator=estimator))


def test_a_bound_with_an_estimator_of_another_is_refused():
    with pytest.raises(UserError, match="goes with the estimators reinforce, nvil"):
        check_objective(TrainConfig(bound="elbo", estimator="vimco"))
    for estimator, bound in BOUND_OF.items():
        check_objective(TrainConfig(bound=bound, estimator=estimator))


def test_a_price_that_resampling_does_not_know_is_refused():
    with pytest.raises(UserError, match=r"leave --train\.surplus-cost at 0"):
        check_objective(TrainConfig(bound="fivo", surplus_cost=1.0))

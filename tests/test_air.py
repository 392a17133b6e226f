"""AIR: SQAIR's discovery on each frame alone, with a geometric prior of the count."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sqair.baselines.air import AIR
from sqair.config import ModelConfig
from sqair.discovery import GeometricPrior
from sqair.model import SQAIR, Restraint

T, N = 5, 3
CONFIG = ModelConfig(kind="air", image=(6, 7), glimpse=(4, 3), max_objects=N, what_size=2, width=5)


@functools.cache
def make(kind=AIR):
    """A model whose every parameter is random."""
    config = dataclasses.replace(CONFIG, kind="air" if kind is AIR else "sqair")
    shapes = eqx.filter_eval_shape(kind, config, key=jax.random.key(0))
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: jnp.asarray(0.5 * rng.normal(size=leaf.shape), leaf.dtype), shapes)


def frames():
    return jnp.asarray(np.random.default_rng(1).random((T, 6, 7, 1), np.float32))


@eqx.filter_jit
def observe(model, frames, noise, discover=None, cost=0.0, rent=0.0):
    total = frames.shape[0]
    ones = jnp.ones(total)
    restraint = Restraint(ones if discover is None else discover, cost * ones, rent * ones, ones)
    return model.observe(None, frames, noise=noise, restraint=restraint)


@pytest.fixture(scope="module")
def noise():
    return make().noise(jax.random.key(2), T)


def test_frames_are_independent(noise):
    """Frames in another order give the same results in that order; only names tell who came first."""
    order = np.array([3, 0, 4, 1, 2])
    _, info = observe(make(), frames(), noise)
    _, permuted = observe(make(), frames()[order], jax.tree.map(lambda leaf: leaf[order], noise))
    nameless = [it._replace(objects=it.objects._replace(identity=it.objects.pres)) for it in (info, permuted)]
    for a, b in zip(*map(jax.tree.leaves, nameless), strict=True):
        assert np.array_equal(a[order], b)
    assert len(set(info.discovered.tolist())) > 1


def test_every_object_pays_its_price_and_its_rent(noise):
    """In AIR all objects of a frame are discovered in it."""
    free = observe(make(), frames(), noise)[1]
    dear = observe(make(), frames(), noise, None, 2.0, 0.5)[1]
    assert np.allclose(free.log_p - dear.log_p, 2.5 * free.discovered, atol=1e-3)
    assert free.discovered.sum() > 0


def test_identities_are_never_given_again(noise):
    state, info = observe(make(), frames(), noise)
    here = np.asarray(info.objects.pres) > 0
    names = np.asarray(info.objects.identity)
    assert np.array_equal(names[here], np.arange(here.sum()))
    assert np.all(names[~here] == -1)
    assert not np.any(info.objects.what[~here])
    assert not np.any(info.objects.where[~here])
    assert not np.any(info.propagated)
    assert np.array_equal(info.discovered, here.sum(1))
    assert (int(state.born), int(state.time)) == (here.sum(), T)


def as_first_frame(sqair):
    """AIR with the weights of a SQAIR; what its RNN makes of l_t is left out."""
    width = sqair.config.width
    weight = sqair.discovery.rnn.weight
    without_context = jnp.concatenate([weight[:, :width], weight[:, 2 * width :]], 1)
    rnn = eqx.tree_at(lambda it: it.weight, make().discovery.rnn, without_context)
    rnn = eqx.tree_at(lambda it: it.bias, rnn, sqair.discovery.rnn.bias)
    posterior = eqx.tree_at(
        lambda it: (it.rnn, it.initial, it.where_head, it.pres_head),
        make().discovery,
        (rnn, sqair.discovery.initial, sqair.discovery.where_head, sqair.discovery.pres_head),
    )
    return eqx.tree_at(
        lambda it: (it.encoders, it.image, it.discovery, it.discovery_prior.where),
        make(),
        (sqair.encoders, sqair.image, posterior, sqair.discovery_prior.where),
    )


def test_a_frame_of_air_is_the_first_frame_of_sqair(noise):
    """With the same weights and noise, and SQAIR's table of the first count set to the geometric prior."""
    air = as_first_frame(make(SQAIR))
    table = jax.nn.log_sigmoid(air.discovery_prior.count.logit) * jnp.arange(N + 1)
    sqair = eqx.tree_at(lambda it: it.discovery_prior.count.first, make(SQAIR), table)
    both_phases = jax.tree.map(lambda leaf: jnp.concatenate([jnp.zeros_like(leaf), leaf], 1), noise)
    single = [jax.tree.map(lambda leaf, t=t: leaf[t : t + 1], (frames(), noise, both_phases)) for t in range(T)]
    found = 0
    for frame, noise_air, noise_sqair in single:
        ours, theirs = observe(air, frame, noise_air)[1], observe(sqair, frame, noise_sqair)[1]
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
        found += int(ours.discovered[0])
    assert found > 2


@pytest.mark.parametrize("logit", [-3.0, 0.0, 2.0, 30.0])
def test_the_geometric_prior_is_truncated_and_normalised(logit):
    """theta^n (1 - theta) / (1 - theta^(N+1)), which is uniform at theta = 1."""
    prior = eqx.tree_at(lambda it: it.logit, GeometricPrior(CONFIG), jnp.array(logit))
    count = prior(jnp.zeros(()), jnp.array(float(N)), jnp.array(True))
    mass = np.exp([count.log_prob(jnp.array(float(n))) for n in range(N + 1)])
    theta = 1 / (1 + np.exp(-logit))
    powers = theta ** np.arange(N + 1)
    np.testing.assert_allclose(mass, powers / powers.sum(), rtol=1e-5)
    if logit < 10:
        np.testing.assert_allclose(mass, powers * (1 - theta) / (1 - theta ** (N + 1)), rtol=1e-5)
    np.testing.assert_allclose(mass.sum(), 1, rtol=1e-6)


def test_dreams_follow_the_geometric_prior():
    model = eqx.tree_at(lambda it: it.discovery_prior.count.logit, make(), jnp.array(0.0))
    cells = 1500
    noise = model.noise(jax.random.key(0), cells)
    grid = jnp.tile(((jnp.arange(cells) + 0.5) / cells)[:, None, None], (1, 1, N))
    _, info = eqx.filter_jit(lambda model, noise: model.imagine(None, cells, noise=noise))(
        model, noise._replace(pres=grid)
    )
    frequency = np.bincount(np.asarray(info.discovered, int), minlength=N + 1) / cells
    np.testing.assert_allclose(frequency, np.array([8, 4, 2, 1]) / 15, atol=1.1 / cells)
    assert np.array_equal(info.objects.identity[info.objects.pres > 0], np.arange(int(info.discovered.sum())))


def test_discovery_of_air_is_never_switched_off(noise):
    """AIR has nothing else; so the device that trains SQAIR to propagate leaves it alone."""
    on, off = (jax.tree.leaves(observe(make(), frames(), noise, discover)) for discover in (jnp.ones(T), jnp.zeros(T)))
    for a, b in zip(on, off, strict=True):
        assert np.array_equal(a, b)


def test_every_parameter_has_a_finite_gradient(noise):
    def objective(model):
        info = model.observe(None, frames(), noise=noise._replace(forced=jnp.ones((T, 1, N))))[1]
        return info.log_weight.sum() + 3 * info.log_q_presence.sum()

    for path, leaf in jax.tree_util.tree_leaves_with_path(eqx.filter_jit(eqx.filter_grad(objective))(make())):
        assert np.all(np.isfinite(leaf)), jax.tree_util.keystr(path)
        assert np.any(leaf), jax.tree_util.keystr(path)

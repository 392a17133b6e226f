"""A VRNN that is linear and Gaussian: a Kalman filter knows its evidence, and algebra the moments of its dreams.

An LSTM is linear in small numbers and ELU in positive ones, so weights can be chosen with which the real model, gates
and all, is a linear system. Every network and every place where one frame or z acts on the next has its part in it.
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import build
from scipy.stats import multivariate_normal, norm

from sqair.baselines.vrnn import VRNN
from sqair.config import ModelConfig, VRNNConfig
from sqair.networks import MLP
from sqair.particles import draw_particles, particle_filter, run_particles

SMALL, SHIFT = 2e-3, 30.0
"""What the LSTM's numbers are multiplied by, and what is added before ELU."""
CONFIG = ModelConfig(kind="vrnn", image=(2, 2), width=8, output_std=0.7, vrnn=VRNNConfig(latent_size=2, layers=1))
MEMORY = 3
"""Units of the LSTM that are used; m_t is the vector of their states."""


class Affine(NamedTuple):
    """x -> matrix x + offset."""

    matrix: np.ndarray
    offset: np.ndarray


class System(NamedTuple):
    """m_1 = start, m_{t+1} = keep m_t + from_x psi^x(x_t) + from_z psi^z(z_t) + start."""

    keep: np.ndarray
    from_x: np.ndarray
    from_z: np.ndarray
    start: np.ndarray
    psi_x: Affine
    psi_z: Affine
    dec: Affine
    """Of psi^z(z_t), then m_t."""
    prior: Affine
    """Of m_t."""
    prior_std: np.ndarray
    posterior: Affine
    """Of m_t, then psi^x(x_t)."""
    posterior_std: np.ndarray


def make_system(seed: int) -> System:
    """Random numbers, but for q: it has the moments of p(z_t | m_t, x_t), only that it takes z_t as uncorrelated."""
    rng = np.random.default_rng(seed)

    def matrix(size_out: int, size_in: int, scale: float) -> np.ndarray:
        return scale * rng.normal(size=(size_out, size_in)) / math.sqrt(size_in)

    psi_z = Affine(matrix(2, 2, 1.0), 0.3 * rng.normal(size=2))
    dec = Affine(matrix(4, 2 + MEMORY, 1.0), 0.3 * rng.normal(size=4))
    prior, prior_std = Affine(matrix(2, MEMORY, 1.0), 0.3 * rng.normal(size=2)), np.array([0.8, 1.1])
    see = dec.matrix[:, :2] @ psi_z.matrix
    information = see.T / CONFIG.output_std**2
    cov = np.linalg.inv(np.diag(prior_std**-2) + information @ see)
    from_memory = prior_std[:, None] ** -2 * prior.matrix - information @ dec.matrix[:, 2:]
    offset = prior_std**-2 * prior.offset - information @ (dec.offset + dec.matrix[:, :2] @ psi_z.offset)
    return System(
        keep=0.5 * np.eye(MEMORY) + matrix(MEMORY, MEMORY, 0.3),
        from_x=matrix(MEMORY, 2, 0.1),
        from_z=matrix(MEMORY, 2, 0.5),
        start=0.5 * rng.normal(size=MEMORY),
        psi_x=Affine(information, np.zeros(2)),
        psi_z=psi_z,
        dec=dec,
        prior=prior,
        prior_std=prior_std,
        posterior=Affine(cov @ np.concatenate([from_memory, np.eye(2)], 1), cov @ offset),
        posterior_std=np.sqrt(np.diag(cov)),
    )


def apply(function: Affine, *inputs: np.ndarray) -> np.ndarray:
    return function.matrix @ np.concatenate(inputs) + function.offset


def move(system: System, m: np.ndarray, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """m_{t+1}."""
    fed = system.from_x @ apply(system.psi_x, x) + system.from_z @ apply(system.psi_z, z)
    return system.keep @ m + fed + system.start


def simulate(system: System, length: int, seed: int) -> np.ndarray:
    """Frames of the system, (T, 2, 2, 1)."""
    rng, m, frames = np.random.default_rng(seed), system.start, []
    for _ in range(length):
        z = apply(system.prior, m) + system.prior_std * rng.normal(size=2)
        x = apply(system.dec, apply(system.psi_z, z), m) + CONFIG.output_std * rng.normal(size=4)
        frames.append(x.reshape(2, 2, 1))
        m = move(system, m, x, z)
    return np.stack(frames).astype(np.float32)


def kalman(system: System, frames: np.ndarray) -> float:
    """log p(x_1, ..., x_T): a filter of m_t and z_t, to which the frames that are fed back are known."""
    mean, cov, total = system.start, np.zeros((MEMORY, MEMORY)), 0.0
    see = np.concatenate([system.dec.matrix[:, 2:], system.dec.matrix[:, :2] @ system.psi_z.matrix], 1)
    step = np.concatenate([system.keep, system.from_z @ system.psi_z.matrix], 1)
    lift = np.concatenate([np.eye(MEMORY), system.prior.matrix])
    for x in frames.reshape(len(frames), 4).astype(np.float64):
        mean, cov = np.concatenate([mean, apply(system.prior, mean)]), lift @ cov @ lift.T
        cov[MEMORY:, MEMORY:] += np.diag(system.prior_std**2)
        expected = apply(system.dec, apply(system.psi_z, mean[MEMORY:]), mean[:MEMORY])
        spread = see @ cov @ see.T + CONFIG.output_std**2 * np.eye(4)
        total += multivariate_normal.logpdf(x, expected, spread)  # pyright: ignore[reportArgumentType]
        gain = np.linalg.solve(spread, see @ cov).T
        mean, cov = mean + gain @ (x - expected), cov - gain @ see @ cov
        mean, cov = move(system, mean[:MEMORY], x, mean[MEMORY:]), step @ cov @ step.T
    return float(total)


# --- the system as a VRNN


def replaced(module, where, *values: np.ndarray):
    return eqx.tree_at(where, module, tuple(jnp.asarray(value, jnp.float32) for value in values))


def as_mlp(mlp: MLP, function: Affine) -> MLP:
    """The function as an MLP with one hidden layer, in which ELU sees positive numbers only."""
    rows = len(function.matrix)
    into, out = (np.zeros(layer.weight.shape) for layer in mlp.layers)
    into[:rows], out[:, :rows] = function.matrix, np.eye(rows)
    return replaced(
        mlp,
        lambda it: (it.layers[0].weight, it.layers[0].bias, it.layers[1].weight, it.layers[1].bias),
        *(into, np.full(len(into), SHIFT), out, function.offset - SHIFT),
    )


def as_head(mlp: MLP, function: Affine, std: np.ndarray) -> MLP:
    """The function as the mean of a Gaussian with a constant std."""
    raw = np.log(np.expm1(std - CONFIG.min_std))
    rows = np.concatenate([function.matrix, np.zeros_like(function.matrix)])
    return as_mlp(mlp, Affine(rows, np.concatenate([function.offset, raw])))


def of_output(function: Affine, first: int) -> Affine:
    """A function of m_t as one of o_t, which has it in small in its first units; m_t begins at column `first`."""
    before, memory, after = np.split(function.matrix, [first, first + MEMORY], axis=1)
    unused = np.zeros((len(memory), CONFIG.width - MEMORY))
    return Affine(np.concatenate([before, memory / SMALL, unused, after], 1), function.offset)


def as_lstm(lstm: eqx.nn.LSTMCell, system: System) -> eqx.nn.LSTMCell:
    """Input and output gates open, the forget gate half open; psi^x comes before psi^z."""
    width = CONFIG.width
    cell = slice(2 * width, 2 * width + MEMORY)
    weight_ih, weight_hh = np.zeros(lstm.weight_ih.shape), np.zeros(lstm.weight_hh.shape)
    weight_ih[cell] = SMALL * np.concatenate([system.from_x, system.from_z], 1)
    weight_hh[cell, :MEMORY] = system.keep - 0.5 * np.eye(MEMORY)
    bias = np.repeat([30.0, 0.0, 0.0, 30.0], width)
    bias[cell] = SMALL * system.start
    return replaced(lstm, lambda it: (it.weight_ih, it.weight_hh, it.bias), weight_ih, weight_hh, bias)


def as_vrnn(system: System) -> VRNN:
    model = build(VRNN, CONFIG)
    parts = (
        as_mlp(model.psi_x.mlp, system.psi_x),
        as_mlp(model.psi_z, system.psi_z),
        as_mlp(model.psi_dec.mlp, of_output(system.dec, 2)),
        as_lstm(model.lstm, system),
        as_head(model.prior, of_output(system.prior, 0), system.prior_std),
        as_head(model.posterior, of_output(system.posterior, 0), system.posterior_std),
    )
    return eqx.tree_at(
        lambda it: (it.psi_x.mlp, it.psi_z, it.psi_dec.mlp, it.lstm, it.prior, it.posterior), model, parts
    )


SYSTEM = make_system(1)
FRAMES = simulate(SYSTEM, 4, 5)


@pytest.fixture(scope="module")
def model() -> VRNN:
    return as_vrnn(SYSTEM)


# --- the evidence


def z_score(log_w: np.ndarray, log_p: float) -> float:
    """How far the mean of w lies from p, in standard errors."""
    w = np.exp(np.asarray(log_w, np.float64) - log_p)
    return float((w.mean() - 1) / (w.std(ddof=1) / math.sqrt(len(w))))


@pytest.fixture(scope="module")
def log_weights(model) -> np.ndarray:
    """Whole-sequence log weights of 100,000 particles."""
    run = eqx.filter_jit(lambda model, noise: run_particles(model, noise, jnp.asarray(FRAMES)).log_weight.sum(1))
    return np.asarray(run(model, draw_particles(model, jax.random.key(6), 100_000, len(FRAMES))), np.float64)


def test_the_mean_weight_is_the_evidence(log_weights):
    truth = kalman(SYSTEM, FRAMES)
    weights = np.exp(log_weights - truth)
    assert weights.sum() ** 2 / (weights**2).sum() > 0.01 * len(weights)
    assert abs(z_score(log_weights, truth)) < 3
    assert log_weights.mean() < truth - 0.3, "not because all weights are alike"


@pytest.mark.parametrize(
    "wrong",
    [
        SYSTEM._replace(prior_std=1.1 * SYSTEM.prior_std),
        SYSTEM._replace(from_x=0 * SYSTEM.from_x),
        SYSTEM._replace(from_z=0 * SYSTEM.from_z),
        SYSTEM._replace(keep=0.5 * np.eye(MEMORY)),
        SYSTEM._replace(dec=Affine(SYSTEM.dec.matrix * [1, 1, 0, 0, 0], SYSTEM.dec.offset)),
    ],
    ids=["prior too wide", "x not fed back", "z not fed back", "h not fed back", "decoder without o"],
)
def test_the_evidence_of_another_system_is_another(log_weights, wrong):
    assert abs(z_score(log_weights, kalman(wrong, FRAMES))) > 5


@pytest.fixture(scope="module")
def filters(model):
    """log p-hat of 60 particle filters for a threshold, and in how many frames they resampled."""

    @eqx.filter_jit
    def run(model, key, threshold):
        key_noise, key_filter = jax.random.split(key)
        noise = draw_particles(model, key_noise, 300, len(FRAMES))
        filtered = particle_filter(model, key_filter, noise, jnp.asarray(FRAMES), threshold=threshold)
        return filtered.log_increment.sum(), filtered.resampled.sum()

    keys = jax.random.split(jax.random.key(7), 60)
    return lambda threshold: map(np.array, zip(*(run(model, key, threshold) for key in keys), strict=True))


@pytest.mark.parametrize(("threshold", "least", "most"), [(0.5, 0.1, 3.9), (2.0, 4, 4)])
def test_fivo_estimates_the_evidence(filters, threshold, least, most):
    """The mean of p-hat is p(x), whether particles are resampled now and then or in every frame."""
    log_p, resampled = filters(threshold)
    assert least <= resampled.mean() <= most
    assert abs(z_score(log_p, kalman(SYSTEM, FRAMES))) < 3


# --- dreams


def test_dreams_have_the_moments_of_the_prior(model):
    """z_1 and z_2 are jointly Gaussian; between them the LSTM sees the mean of the first frame."""
    count = 40_000
    dream = eqx.filter_jit(lambda model, keys: jax.vmap(lambda key: model.imagine(key, 2)[1])(keys))
    info = dream(model, jax.random.split(jax.random.key(10), count))
    found = np.asarray(info.objects.what[:, :, 0], np.float64).reshape(count, 4)
    first = apply(SYSTEM.prior, SYSTEM.start)

    def second(z: np.ndarray) -> np.ndarray:
        canvas = apply(SYSTEM.dec, apply(SYSTEM.psi_z, z), SYSTEM.start)
        return apply(SYSTEM.prior, move(SYSTEM, SYSTEM.start, canvas, z))

    slope = np.stack([second(first + unit) - second(first) for unit in np.eye(2)], 1)
    assert np.abs(slope).max() > 0.3, "the second depends on the first"
    own = np.diag(SYSTEM.prior_std**2)
    cov = np.block([[own, own @ slope.T], [slope @ own, slope @ own @ slope.T + own]])
    deviation = found.mean(0) - np.concatenate([first, second(first)])
    assert np.all(np.abs(deviation) < 4 * np.sqrt(np.diag(cov) / count))
    error = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / count)
    assert np.all(np.abs(np.cov(found.T) - cov) < 4 * error)
    np.testing.assert_allclose(
        info.log_p[:, 0], norm.logpdf(found[:, :2], first, SYSTEM.prior_std).sum(1), rtol=1e-3, atol=1e-3
    )
    assert not np.any(info.log_q)
    assert not np.any(info.log_likelihood)

"""q and p are normalised: with one noise for all of them, the probabilities of all presence paths sum to 1.

What and where are recomputed along each path from the same noise, so a coin thrown at a node of the tree of paths has
the same odds for every path through it. The sums prove the bound on births, the stop of discovery, the delta of eq. 10
and 13 and the count prior of eq. 8; the controls at the end show that they would notice.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import TINY, build, film, paths, strings

from sqair import discovery
from sqair.baselines.air import AIR
from sqair.config import AUTHORS_SWITCHES
from sqair.distributions import Count, OnesThenZero
from sqair.model import SQAIR

NOISES = 3
UNDER = ("q", "p along q", "p along p")
MORTAL = {name: getattr(TINY, name) for name in ("propagation_bias", "survival_bias", "nothing_new_bias")}
"""Initial values of presence under which objects come and go; with the authors' own they hardly ever do."""


def tiny(kind: type[SQAIR] | type[AIR] = SQAIR, **changes) -> SQAIR | AIR:
    """A tiny model in which every presence depends visibly on the what and where before it."""
    return build(kind, dataclasses.replace(TINY, **changes))


def log_probabilities(model, noise, forced, frames) -> tuple[jax.Array, ...]:
    """Of one presence path: log q, log p along q's samples, and log p along p's own samples."""
    noise = noise._replace(forced=forced)
    seen = model.observe(None, frames, noise=noise)[1]
    dreamt = model.imagine(None, frames.shape[0], noise=noise)[1]
    return seen.log_q_presence.sum(), seen.log_p_presence.sum(), dreamt.log_p_presence.sum()


def probabilities(model: SQAIR | AIR, forced: np.ndarray, shared_noise: bool = True) -> dict[str, np.ndarray]:
    """The probabilities of the paths, with axes (noise, path), or (path,) where each path has another noise."""
    length = forced.shape[1]
    each = jax.vmap(log_probabilities, in_axes=(None, None if shared_noise else 0, 0, None))
    function = jax.vmap(each, in_axes=(None, 0, None, None)) if shared_noise else each
    keys = jax.random.split(jax.random.key(2), NOISES if shared_noise else len(forced))
    noise = jax.vmap(lambda key: model.noise(key, length))(keys)
    # a fresh wrapper, so that a control that replaces a part of the model is traced anew
    run = eqx.filter_jit(lambda model, noise, forced: function(model, noise, forced, film(length)))
    values = run(model, noise, jnp.asarray(forced))
    return {name: np.exp(value) for name, value in zip(UNDER, values, strict=True)}


def test_numbers_of_paths():
    assert [len(paths(2, length)) for length in (1, 2, 3)] == [3, 16, 95]
    assert len(np.unique(paths(2, 3), axis=0)) == 95


@pytest.mark.parametrize("length", [1, 3])
def test_all_paths_sum_to_one(length):
    result = probabilities(tiny(), paths(2, length))
    for name in UNDER:
        np.testing.assert_allclose(result[name].sum(-1), 1.0, atol=1e-5, err_msg=name)
    # the sums are no accident of numbers that do not depend on the noise, or of one path that has all the probability
    assert (result["q"] > 0).all()
    assert result["q"].max() < 0.9
    assert result["q"].std(0).max() > 0.05


@pytest.mark.parametrize(("length", "number"), [(2, 16), (3, 95)])
def test_every_other_string_is_impossible(length, number):
    """All 256 strings of N=2, T=2 and all 4,096 of T=3: q gives the paths everything and the others exactly nothing."""
    every = strings(2, length)
    assert len(every) == 2 ** (4 * length)
    admissible = {path.tobytes() for path in paths(2, length)}
    is_path = np.array([string.tobytes() in admissible for string in every])
    assert is_path.sum() == number
    result = probabilities(tiny(), every)
    assert (result["q"][:, ~is_path] == 0).all()
    for name in UNDER:
        np.testing.assert_allclose(result[name][:, is_path].sum(-1), 1.0, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    "changes",
    [{"max_objects": 3}, AUTHORS_SWITCHES | MORTAL],
    ids=["three slots", "the authors' switches"],
)
def test_other_models(changes):
    model = tiny(**changes)
    result = probabilities(model, paths(model.config.max_objects, 2))
    for name in UNDER:
        assert (result[name] > 1e-3).sum(-1).min() > 8, name  # no few paths have all the probability
        np.testing.assert_allclose(result[name].sum(-1), 1.0, atol=1e-5, err_msg=name)


def test_air():
    """N + 1 paths for each frame, whatever the other frames have; nothing else is possible."""
    every = strings(2, 2, phases=1)
    is_path = (np.diff(every[:, :, 0], axis=-1) <= 0).all((1, 2))
    assert is_path.sum() == 3**2
    result = probabilities(tiny(AIR), every)
    for name in UNDER:
        np.testing.assert_allclose(result[name][:, is_path].sum(-1), 1.0, atol=1e-5, err_msg=name)
    assert (result["q"][:, ~is_path] == 0).all()


def test_control_no_bound_on_births(monkeypatch):
    """Births as if every slot were free: the paths that O_t cannot hold take their share, and the sums fall short."""

    def unbounded(kind):
        return lambda logits, limit: kind(logits, jnp.full_like(limit, TINY.max_objects))

    monkeypatch.setattr(discovery, "OnesThenZero", unbounded(OnesThenZero))
    monkeypatch.setattr(discovery, "Count", unbounded(Count))
    result = probabilities(tiny(), paths(2, 2))
    for name in UNDER:
        assert (result[name].sum(-1) < 0.95).all(), name


def test_control_another_noise_for_each_path():
    """Odds that differ between the paths through one node: only the shared noise makes the sums exact."""
    result = probabilities(tiny(), paths(2, 2), shared_noise=False)
    for name in UNDER:
        assert abs(result[name].sum() - 1) > 1e-3, name  # a hundred times what the proofs allow

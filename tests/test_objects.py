"""Slots: compaction against plain Python lists, names of newborns, and emptiness of absent slots."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqair.objects import FEW, Objects, front, initial_state, name_newborns, no_objects, scan_slots, unite

N, W = 3, 2

name = jax.jit(name_newborns)
unite_in = jax.jit(unite, static_argnames="slots")


def candidates(seed, pres_old, pres_new):
    """Objects with random contents in all slots, also the absent ones."""
    rng = np.random.default_rng(seed)

    def some(pres, names):
        what, where, pres = (
            jnp.asarray(x, jnp.float32) for x in (rng.normal(size=(N, W)), rng.normal(size=(N, 4)), pres)
        )
        return Objects(what, where, pres, jnp.asarray(names, jnp.int32))

    return some(pres_old, rng.permutation(50)[:N]), some(pres_new, 50 + np.arange(N))


def compact(old, new, slots):
    """What `unite` does, on lists: present ones first, in order, and zeros after them."""
    both = [np.concatenate([a, b]) for a, b in zip(old, new, strict=True)]
    chosen = [m for m in range(len(both[2])) if both[2][m] > 0]
    rows = []
    for values in both:
        kept = [values[m] for m in chosen]
        rows.append(np.stack(kept + [np.zeros_like(values[0])] * (slots - len(kept))))
    return Objects(*rows)


presences = st.lists(st.sampled_from([0.0, 1.0]), min_size=N, max_size=N)


@given(seed=st.integers(0, 2**31), pres_old=presences, pres_new=presences)
def test_compaction_keeps_the_order(seed, pres_old, pres_new):
    old, new = candidates(seed, pres_old, pres_new)
    united = unite_in(old, new, jnp.array(pres_old + pres_new), slots=2 * N)
    for found, expected in zip(united, compact(old, new, 2 * N), strict=True):
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected)


@given(seed=st.integers(0, 2**31), pres_old=presences, pres_new=presences)
def test_fewer_slots_take_the_first(seed, pres_old, pres_new):
    old, new = candidates(seed, pres_old, pres_new)
    pres = jnp.array(pres_old + pres_new)
    roomy, tight = unite_in(old, new, pres, slots=2 * N), unite_in(old, new, pres, slots=N)
    for all_slots, some_slots in zip(roomy, tight, strict=True):
        assert np.array_equal(all_slots[:N], some_slots)


@given(pres=presences)
def test_every_present_candidate_gets_one_slot(pres):
    chosen = np.asarray(front(jnp.array(pres), N))
    assert np.array_equal(chosen.sum(0), pres)
    assert np.array_equal(chosen.sum(1), np.arange(N) < sum(pres))


@given(pres=presences, born=st.integers(0, 10_000))
def test_newborns_get_the_next_names_in_order(pres, born):
    names = np.asarray(name(jnp.array(pres), jnp.array(born)))
    here = np.array(pres) > 0
    assert np.array_equal(names[here], born + np.arange(here.sum()))
    assert np.all(names[~here] == -1)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_broken_absent_candidate_cannot_spread(broken):
    """Neither into a value nor into a gradient."""
    old, new = candidates(0, [1, 0, 1], [0, 1, 0])
    pres = jnp.array([1.0, 0, 1, 0, 1, 0])
    absent_old, absent_new = jnp.array([[False], [True], [False]]), jnp.array([[True], [False], [True]])
    spoilt = [
        it._replace(what=jnp.where(absent, broken, it.what), where=jnp.where(absent, broken, it.where))
        for it, absent in [(old, absent_old), (new, absent_new)]
    ]

    def energy(old_what, new_what, old, new):
        united = unite(old._replace(what=old_what), new._replace(what=new_what), pres, N)
        return jnp.square(united.what).sum() + united.where.sum(), united

    value_and_gradient = jax.value_and_grad(energy, argnums=(0, 1), has_aux=True)
    (clean, united), gradient = value_and_gradient(old.what, new.what, old, new)
    (value, spoilt_united), spoilt_gradient = value_and_gradient(spoilt[0].what, spoilt[1].what, *spoilt)
    assert np.isfinite(clean)
    assert value == clean
    for a, b in zip(
        jax.tree.leaves((united, gradient)), jax.tree.leaves((spoilt_united, spoilt_gradient)), strict=True
    ):
        assert np.array_equal(a, b)
    assert np.array_equal(gradient[0], np.where(absent_old, 0, 2 * old.what))


def test_nothing_is_empty():
    objects = no_objects(N, W)
    assert objects.what.shape == (N, W)
    assert objects.where.shape == (N, 4)
    assert not np.any(objects.pres)
    assert np.all(objects.identity == -1)
    state = initial_state(N, W, width=5)
    assert state.temporal.shape == state.prior.shape == (N, 5)
    assert (int(state.born), int(state.time)) == (0, 0)


@pytest.mark.parametrize("slots", [1, FEW, FEW + 2])
def test_a_loop_over_slots_is_a_scan(slots):
    """Written out or not: the same carry, and the same results of every slot."""

    def step(carry, slot):
        carry = jnp.tanh(carry + slot["x"])
        return carry, (carry.sum(), {"y": carry * slot["z"]})

    rng = np.random.default_rng(slots)
    inputs = {"x": jnp.asarray(rng.normal(size=(slots, W))), "z": jnp.asarray(rng.normal(size=slots))}
    found, expected = scan_slots(step, jnp.ones(W), inputs), jax.lax.scan(step, jnp.ones(W), inputs)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)

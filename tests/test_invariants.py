"""What must hold for every frame, every sample and every content of the slots: tiny models of 1, 2 and 4 slots."""

import functools

import equinox as eqx
import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import cast
from hypothesis import given
from hypothesis import strategies as st

from sqair.config import ModelConfig
from sqair.distributions import Noise
from sqair.model import SQAIR, Restraint
from sqair.objects import Objects, State

T, W, H = 5, 2, 5
SLOTS = [1, 2, 4]


@functools.cache
def model(slots):
    """A model whose every parameter is random, so that births, deaths and stays are all likely."""
    config = ModelConfig(image=(6, 7), glimpse=(4, 3), max_objects=slots, what_size=W, width=H)
    shapes = eqx.filter_eval_shape(SQAIR, config, key=jax.random.key(0))
    rng = np.random.default_rng(slots)
    return jax.tree.map(lambda leaf: jnp.asarray(0.5 * rng.normal(size=leaf.shape), leaf.dtype), shapes)


@eqx.filter_jit
def observe(model, frames, noise, restraint):
    return model.observe(None, frames, noise=noise, restraint=restraint)


@eqx.filter_jit
def imagine(model, noise):
    return model.imagine(None, T, noise=noise)


def frames_and_noise(slots, seed, uniforms):
    """Frames and normal noise from a seed; the uniform numbers, which decide presence, are given."""
    rng = np.random.default_rng(seed)
    normals = jnp.asarray(rng.normal(size=(T, 2, slots, W + 4)), jnp.float32)
    noise = Noise(normals[..., :W], normals[..., W:], jnp.asarray(uniforms))
    return jnp.asarray(rng.random((T, 6, 7, 1), np.float32)), noise


def uniforms(slots, length=T):
    values = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1 - 2**-24])
    return hnp.arrays(np.float32, (length, 2, slots), elements=values, fill=st.nothing())


seeds = st.integers(0, 2**31 - 1)
bits = st.sampled_from([0.0, 1.0])


# --- a history of objects, against plain Python


def check_history(info, slots):
    """Walk through the frames with a list of who is alive; return how many were born late, and how many died."""
    alive, born, late, died = [], 0, 0, 0
    for t in range(T):
        objects = jax.tree.map(lambda leaf, t=t: np.asarray(leaf[t]), info.objects)
        number = int(objects.pres.sum())
        assert np.array_equal(objects.pres, np.arange(slots) < number)  # present ones in front
        for values in (objects.what, objects.where, objects.identity + 1):
            assert not np.any(values[number:])
        now = objects.identity[:number].tolist()
        kept = [one for one in alive if one in now]
        new = list(range(born, born + number - len(kept)))
        assert now == kept + new  # survivors keep their order, newborns follow with names never given before
        assert (len(kept), len(new)) == (int(info.propagated[t]), int(info.discovered[t]))
        late, died = late + (len(new) if t else 0), died + len(alive) - len(kept)
        alive, born = now, born + len(new)
    return late, died


@pytest.mark.parametrize("slots", SLOTS)
@given(data=st.data(), seed=seeds)
def test_observed_objects_live_as_they_must(slots, data, seed):
    frames, noise = frames_and_noise(slots, seed, data.draw(uniforms(slots)))
    state, info = observe(model(slots), frames, noise, everywhere())
    check_history(info, slots)
    assert np.all(np.isfinite(info.log_weight))
    for final, last in zip(state.objects, info.objects, strict=True):
        assert np.array_equal(final, last[-1])
    assert (int(state.born), int(state.time)) == (int(info.discovered.sum()), T)


@pytest.mark.parametrize("slots", SLOTS)
@given(data=st.data(), seed=seeds)
def test_imagined_objects_live_as_they_must(slots, data, seed):
    _, noise = frames_and_noise(slots, seed, data.draw(uniforms(slots)))
    _, info = imagine(model(slots), noise)
    check_history(info, slots)
    assert np.all(np.isfinite(info.log_p))
    assert not np.any(info.log_q)


@pytest.mark.parametrize("slots", SLOTS)
def test_the_histories_hold_births_and_deaths(slots):
    """Without them the two properties above would say little."""
    rng = np.random.default_rng(0)
    for run in ("observe", "imagine"):
        late, died, fullest = 0, 0, 0
        for seed in range(10):
            frames, noise = frames_and_noise(slots, seed, rng.random((T, 2, slots), np.float32))
            made = (
                observe(model(slots), frames, noise, everywhere()) if run == "observe" else imagine(model(slots), noise)
            )
            counts = check_history(made[1], slots)
            late, died = late + counts[0], died + counts[1]
            fullest = max(fullest, int(made[1].objects.pres.sum(-1).max()))
        assert late > 3, run
        assert died > 3, run
        assert fullest == slots, run


# --- forced presences


def path_of(info, slots):
    """The presences of both phases, told from who survived and how many were born."""
    path, alive = np.zeros((T, 2, slots), np.float32), []
    for t in range(T):
        now = info.objects.identity[t].tolist()
        path[t, 0, : len(alive)] = [one in now for one in alive]
        path[t, 1, : int(info.discovered[t])] = 1
        alive = [one for one in now if one >= 0]
    return jnp.asarray(path)


@given(data=st.data(), seed=seeds)
def test_forcing_what_was_sampled_changes_nothing(data, seed):
    """The two are different programs, whose last bits are the compiler's choice: hence float64 and its tolerance."""
    frames, noise = frames_and_noise(2, seed, data.draw(uniforms(2)))
    with jax.enable_x64(True):
        network, frames, noise, restraint = cast((model(2), frames, noise, everywhere()))
        sampled = observe(network, frames, noise, restraint)
        other_coins = noise._replace(pres=1 - noise.pres, forced=cast(path_of(sampled[1], 2)))
        forced = observe(network, frames, other_coins, restraint)
    for a, b in zip(jax.tree.leaves(sampled), jax.tree.leaves(forced), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


# --- absent slots


def some_state(slots, seed, pres, time):
    """Objects with random contents; absent slots are empty."""
    rng = np.random.default_rng(seed)

    def contents(size):
        return jnp.asarray(rng.normal(size=(slots, size)) * pres[:, None], jnp.float32)

    names = jnp.asarray(np.where(pres > 0, rng.permutation(slots), -1), jnp.int32)
    objects = Objects(contents(W), contents(4), jnp.asarray(pres), names)
    return State(objects, contents(H), contents(H), jnp.array(slots), jnp.array(time))


def spoil(state, contents):
    """The same state with `contents` in the absent slots: what, where, identity and both hidden states."""
    absent = state.objects.pres[:, None] == 0
    numbers = jnp.asarray(contents)

    def fill(leaf, columns):
        return jnp.where(absent, numbers[:, columns], leaf)

    identity = jnp.where(absent[:, 0], 77, state.objects.identity)
    what, where = fill(state.objects.what, slice(0, W)), fill(state.objects.where, slice(W, W + 4))
    objects = state.objects._replace(what=what, where=where, identity=identity)
    temporal, prior = fill(state.temporal, slice(W + 4, W + 4 + H)), fill(state.prior, slice(W + 4 + H, None))
    return state._replace(objects=objects, temporal=temporal, prior=prior)


def projection(outputs):
    """A scalar that depends on every number of the outputs, each in its own way."""
    leaves = [leaf.ravel() for leaf in jax.tree.leaves(outputs) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    flat = jnp.concatenate(leaves)
    return (jnp.cos(1.0 + jnp.arange(flat.size)) * flat).sum()


@functools.cache
def differentiated(kind):
    """Outputs of one step, and the gradients of a projection of them to parameters and to the contents of slots."""

    @eqx.filter_jit
    def run(model, state, x, noise):
        def scalar(inputs):
            model, what, where, temporal, prior = inputs
            objects = state.objects._replace(what=what, where=where)
            now = state._replace(objects=objects, temporal=temporal, prior=prior)
            if kind == "step":
                encoding = model.encode(x[None])[0]
                outputs = model.step(
                    now, x, encoding, noise, Restraint(jnp.ones(()), jnp.zeros(()), jnp.zeros(()), jnp.ones(()))
                )
            else:
                outputs = model.dream_step(now, noise)
            return projection(outputs), outputs

        inputs = (model, state.objects.what, state.objects.where, state.temporal, state.prior)
        return eqx.filter_value_and_grad(scalar, has_aux=True)(inputs)

    return run


@eqx.filter_jit
def stepped(model, state, x, noise):
    """The outputs of inference and of dreaming, and the hidden states that propagation and its prior give each slot."""
    encoding, objects = model.encode(x[None])[0], state.objects
    observed = model.step(
        state, x, encoding, noise, Restraint(jnp.ones(()), jnp.zeros(()), jnp.zeros(()), jnp.ones(()))
    )
    given = (noise.phase(0), x, objects, state.temporal)
    parts = (*given, model.encoders, model.image.transformer, encoding, jnp.ones(()))
    hidden = model.propagation(*parts)[1], model.propagation_prior.expect(objects, state.prior).hidden
    return (observed, model.dream_step(state, noise)), hidden


def assert_same(left, right):
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert np.array_equal(a, b)


presences = hnp.arrays(np.float32, 4, elements=bits)
junk = hnp.arrays(np.float32, (4, W + 4 + 2 * H), elements=st.floats(-1e3, 1e3, width=32))


@pytest.mark.parametrize("kind", ["step", "dream_step"])
@given(seed=seeds, pres=presences, contents=junk, coins=uniforms(4, 1), time=st.sampled_from([0, 3]))
def test_absent_slots_influence_nothing(kind, seed, pres, contents, coins, time):
    """Not a bit of any output or gradient changes, whatever they hold."""
    frames, noise = frames_and_noise(4, seed, np.repeat(coins, T, 0))
    noise, state = jax.tree.map(lambda leaf: leaf[0], noise), some_state(4, seed, pres, time)
    run = differentiated(kind)
    (clean, outputs), gradients = run(model(4), state, frames[0], noise)
    (value, spoilt_outputs), spoilt_gradients = run(model(4), spoil(state, contents), frames[0], noise)
    assert np.isfinite(clean)
    assert value == clean
    assert_same(outputs, spoilt_outputs)
    assert_same(gradients, spoilt_gradients)
    for leaf in gradients[1:]:
        assert not np.any(leaf[pres == 0])
    assert not np.any(pres) or all(np.any(leaf[pres > 0]) for leaf in gradients[4:])


@given(seed=seeds, pres=presences, coins=uniforms(4, 1), broken=st.sampled_from([np.nan, np.inf, -1e30]))
def test_broken_numbers_in_absent_slots_reach_no_output(seed, pres, coins, broken):
    frames, noise = frames_and_noise(4, seed, np.repeat(coins, T, 0))
    noise, state = jax.tree.map(lambda leaf: leaf[0], noise), some_state(4, seed, pres, 3)
    spoilt = spoil(state, np.full((4, W + 4 + 2 * H), broken, np.float32))
    assert_same(stepped(model(4), state, frames[0], noise)[0], stepped(model(4), spoilt, frames[0], noise)[0])


@given(seed=seeds, pres=presences, coins=uniforms(4, 1))
def test_hidden_states_go_where_their_objects_go(seed, pres, coins):
    """Survivors take theirs along, newborns have the first ones, absent slots none; dreaming leaves h^T as it was."""
    frames, noise = frames_and_noise(4, seed, np.repeat(coins, T, 0))
    noise, state = jax.tree.map(lambda leaf: leaf[0], noise), some_state(4, seed, pres, 3)
    ((observed, _), (dreamt, _)), (temporal, prior) = stepped(model(4), state, frames[0], noise)
    before = state.objects.identity.tolist()
    first = model(4).first_temporal, model(4).first_prior
    for after, hidden in [(observed, (temporal, prior)), (dreamt, (state.temporal, prior))]:
        for slot, who in enumerate(after.objects.identity.tolist()):
            for found, old, new in zip((after.temporal, after.prior), hidden, first, strict=True):
                expected = jnp.zeros(H) if who < 0 else old[before.index(who)] if who in before else new
                np.testing.assert_allclose(found[slot], expected, rtol=1e-6)


# --- discovery switched off


def everywhere():
    return Restraint(jnp.ones(T), jnp.zeros(T), jnp.zeros(T), jnp.ones(T))


@given(seed=seeds, data=st.data(), discover=hnp.arrays(np.float32, T, elements=bits))
def test_where_discovery_is_off_nothing_is_discovered_and_q_pays_nothing(seed, data, discover):
    frames, noise = frames_and_noise(2, seed, data.draw(uniforms(2)))
    restraint = everywhere()._replace(discover=jnp.asarray(discover))
    _, info = observe(model(2), frames, noise, restraint)
    check_history(info, 2)
    off = discover == 0
    assert not np.any(info.discovered[off])
    other = jax.tree.map(
        lambda leaf: jnp.where(off.reshape(-1, *[1] * (leaf.ndim - 2)), leaf[:, 1] / 2, leaf[:, 1]), noise
    )
    changed = jax.tree.map(lambda leaf, new: leaf.at[:, 1].set(new), noise, other)
    assert_same(info, observe(model(2), frames, changed, restraint)[1])


@given(seed=seeds, data=st.data())
def test_without_discovery_there_is_never_anything(seed, data):
    """All that is left of q and p is the propagation of no objects, with log-probability 0: p learns nothing."""
    frames, noise = frames_and_noise(2, seed, data.draw(uniforms(2)))
    _, info = observe(model(2), frames, noise, everywhere()._replace(discover=jnp.zeros(T)))
    for values in (info.log_p, info.log_q, info.log_q_presence, info.objects.pres, info.canvas):
        assert not np.any(values)


def test_the_price_of_discovery_is_taken_off_the_weight():
    """cost nats for each object and nothing else: q, the prior's own probabilities and the objects stay as they are."""
    frames, noise = frames_and_noise(2, 0, np.zeros((T, 2, 2), np.float32))
    free = observe(model(2), frames, noise, everywhere())[1]
    dear = observe(model(2), frames, noise, everywhere()._replace(cost=jnp.full(T, 3.0, jnp.float32)))[1]
    same = ("log_q", "objects", "log_p_presence", "log_likelihood")
    assert_same([getattr(free, name) for name in same], [getattr(dear, name) for name in same])
    np.testing.assert_allclose(free.log_p - dear.log_p, 3 * free.discovered, rtol=1e-4, atol=1e-4)
    assert int(free.discovered[0]) == 2


def test_the_rent_of_presence_is_taken_off_the_weight():
    """rent nats in every frame for each object that is there, found in it or before."""
    frames, noise = frames_and_noise(2, 0, np.zeros((T, 2, 2), np.float32))
    free = observe(model(2), frames, noise, everywhere())[1]
    rented = observe(model(2), frames, noise, everywhere()._replace(rent=jnp.full(T, 0.5, jnp.float32)))[1]
    same = ("log_q", "objects", "log_p_presence", "log_likelihood")
    assert_same([getattr(free, name) for name in same], [getattr(rented, name) for name in same])
    np.testing.assert_allclose(free.log_p - rented.log_p, 0.5 * free.objects.pres.sum(-1), rtol=1e-4, atol=1e-4)
    assert float(free.propagated.sum()) > 0, "objects that were there before pay, too"


def test_presence_that_is_not_learned_has_its_values_but_no_gradient():
    frames, noise = frames_and_noise(2, 0, np.zeros((T, 2, 2), np.float32))

    def presence(found, learned):
        restraint = everywhere()._replace(learned=jnp.full(T, learned, jnp.float32))
        info = observe(found, frames, noise, restraint)[1]
        return info.log_q_presence.sum(), info

    (value, info), grad = eqx.filter_value_and_grad(presence, has_aux=True)(model(2), 1.0)
    (same_value, same_info), none = eqx.filter_value_and_grad(presence, has_aux=True)(model(2), 0.0)
    assert_same([value, info], [same_value, same_info])
    assert float(info.propagated.sum()) > 0
    for phase in (grad.discovery, grad.propagation):
        assert max(float(abs(leaf).max()) for leaf in jax.tree.leaves(phase.pres_head)) > 0
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(none))


# --- nothing at all


def test_no_frames_leave_the_state_as_it_was():
    made, noise = model(2), model(2).noise(jax.random.key(0), 0)
    state = some_state(2, 0, np.array([1, 0], np.float32), 3)
    for after, info in [
        made.observe(None, jnp.zeros((0, 6, 7, 1)), noise=noise, state=state),
        made.imagine(None, 0, noise=noise, state=state),
    ]:
        assert_same(after, state)
        assert info.log_p.shape == (0,)
        assert info.canvas.shape == (0, 6, 7, 1)

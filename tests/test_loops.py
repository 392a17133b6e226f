"""The scan of loops/ is `lax.scan`: values and gradients are compared with jax's own; and it does what it is for."""

import functools
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import ClosedJaxpr, Jaxpr

from sqair import loops

T, B, H, X = 5, 3, 4, 2


class Weights(NamedTuple):
    inner: jax.Array
    bias: jax.Array
    side: jax.Array
    scale: jax.Array
    gate: jax.Array


def weights(seed: int = 0) -> Weights:
    draw = np.random.default_rng(seed)
    shapes = ((H, H + X), (H,), (H, H), (H,), (H, H))
    return Weights(*(jnp.asarray(0.5 * draw.normal(size=shape)) for shape in shapes))


class Carry(NamedTuple):
    hidden: jax.Array
    steps: jax.Array
    last: jax.Array


def step(w: Weights, carry: Carry, x: jax.Array, datum: tuple) -> tuple[Carry, dict]:
    """One of everything: products, a chain of them, a conditional, whole numbers, something of parameters alone."""
    use_side, noise = datum
    seen = jnp.concatenate([carry.hidden, x])
    hidden = jnp.tanh(w.inner @ seen + w.bias)
    hidden = jax.nn.elu(w.gate @ (w.gate @ hidden))  # a product of a product
    width = jax.nn.softplus(w.scale) + 0.1
    hidden, cost = jax.lax.cond(
        use_side > 0,
        lambda: (hidden + jax.nn.sigmoid(hidden @ w.side.T) * noise, (hidden**2).sum() / (1 + noise[0] ** 2)),
        lambda: (hidden, jnp.zeros(())),
    )
    count = carry.steps + (hidden.sum() > 0)
    hidden = jnp.where(count > 2, hidden / width, hidden)
    return Carry(hidden, count, hidden[0]), {"cost": cost + jnp.log(width).sum() * hidden[1], "hidden": hidden}


def body(w: Weights, carry: Carry, x: jax.Array, datum: tuple) -> tuple[Carry, dict]:
    """A batch of them; which side is taken is the same for all."""
    return jax.vmap(step, in_axes=(None, 0, 0, (None, 0)))(w, carry, x, datum)


def reference(body: Any, parameters: Any, carry: Any, xs: Any, data: Any, length: jax.Array) -> tuple:
    """What `loops.scan` promises, written with `lax.scan`."""

    def iteration(carry: Any, now: tuple) -> tuple:
        time, x, datum = now
        after, y = body(parameters, carry, x, datum)
        live = time < length
        kept = jax.tree.map(lambda new, old: jnp.where(live, new, old), after, carry)
        return kept, jax.tree.map(lambda leaf: jnp.where(live, leaf, 0), y)

    return jax.lax.scan(iteration, carry, (jnp.arange(T), xs, data))


def start() -> Carry:
    return Carry(jnp.full((B, H), 0.3), jnp.zeros(B, int), jnp.zeros(B))


def inputs(seed: int = 1) -> tuple[jax.Array, jax.Array]:
    draw = np.random.default_rng(seed)
    return jnp.asarray(draw.normal(size=(T, B, X))), jnp.asarray(draw.normal(size=(T, B, H)))


def objective(scan: Any, w: Weights, hidden: jax.Array, xs: jax.Array, sides: jax.Array, length: jax.Array) -> tuple:
    """A number that depends on all results, with those results."""
    carry, ys = scan(body, w, start()._replace(hidden=hidden), xs, (sides, inputs()[1]), length)
    value = (carry.hidden**2).sum() + carry.last.sum() + (ys["cost"] * jnp.arange(1, T + 1)[:, None]).sum()
    return value + (ys["hidden"] ** 3).sum(), (carry, ys)


@functools.cache
def gradient(scan: Any) -> Any:
    return jax.jit(jax.value_and_grad(functools.partial(objective, scan), argnums=(0, 1, 2), has_aux=True))


def assert_close(left: Any, right: Any, rtol: float = 1e-10) -> None:
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-12)


@pytest.mark.usefixtures("x64")
@given(length=st.integers(0, T), sides=st.lists(st.integers(0, 1), min_size=T, max_size=T), seed=st.integers(0, 99))
def test_values_and_gradients_are_those_of_lax_scan(length, sides, seed):
    arguments = (weights(seed), start().hidden, inputs(seed)[0], jnp.array(sides), jnp.array(length))
    assert_close(gradient(loops.scan)(*arguments), gradient(reference)(*arguments))


@pytest.mark.usefixtures("x64")
def test_without_a_gradient_nothing_changes():
    arguments = (weights(), start().hidden, inputs()[0], jnp.array([1, 0, 1, 1, 0]), jnp.array(4))
    plain = [jax.jit(functools.partial(objective, scan))(*arguments) for scan in (loops.scan, reference)]
    assert_close(*plain)


@pytest.mark.usefixtures("x64")
def test_members_of_a_population():
    """Weights with a leading axis under vmap: each member has its own gradient."""
    members = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(weights(seed) for seed in range(3)))
    rest = (start().hidden, inputs()[0], jnp.array([1, 0, 1, 1, 0]), jnp.array(4))
    found = jax.vmap(gradient(loops.scan), in_axes=(0, None, None, None, None))(members, *rest)
    for seed in range(3):
        assert_close(jax.tree.map(lambda leaf, s=seed: leaf[s], found), gradient(reference)(weights(seed), *rest))


# --- bodies of many shapes


class Case(NamedTuple):
    """A body, its parameters and its data; carry and xs are always vectors of H."""

    body: Any
    parameters: Any
    data: Any


def cases() -> dict[str, Case]:
    draw = np.random.default_rng(3)
    w, b = draw.normal(size=(H, H)), draw.normal(size=H)
    d, rows, mask = draw.normal(size=(T, H)), draw.normal(size=(T, B, H)), draw.random((T, H)) < 0.5
    both, lower, tanh = {"w": w, "b": b}, np.tril(np.ones((H, H))), jnp.tanh
    cond, switch, plus = jax.lax.cond, jax.lax.switch, jax.nn.softplus
    return {
        "plain": Case(lambda p, c, x, d: (tanh(p @ c + x), c.sum()), w, d),
        "a parameter is a result": Case(lambda p, c, x, d: (tanh(p @ c + x), p), w, d),
        "something of parameters alone is a result": Case(lambda p, c, x, d: (tanh(p @ c + x), plus(p)), w, d),
        "... that is used, too": Case(lambda p, c, x, d: (tanh(plus(p) @ c + x), plus(p)), w, d),
        "a parameter is the next carry": Case(lambda p, c, x, d: (p["b"], tanh(p["w"] @ c + x)), both, d),
        "data are a result": Case(lambda p, c, x, d: (tanh(p @ c + x), (d, x)), w, d),
        "masked weights": Case(lambda p, c, x, d: (tanh((d + p["b"]) @ (p["w"] * lower) + x + c), c.sum()), both, d),
        "weights chosen by themselves": Case(
            lambda p, c, x, d: (tanh((d + p["b"]) @ jnp.where(p["w"] > 0, p["w"], 0) + x + c), c.sum()), both, d
        ),
        "a constant factor": Case(lambda p, c, x, d: (tanh(jnp.ones(B) @ (d + p) + x + c), c.sum()), b, rows),
        "masks in the data": Case(
            lambda p, c, x, d: (tanh(p @ jnp.where(~d[0] & (d[1] > 0), d[1], 0.5) + x + c), c.sum()), w, (mask, d)
        ),
        "whole numbers as results": Case(lambda p, c, x, d: (tanh(p @ c + x), (c.sum() > 0).astype(int)), w, d),
        "a condition on parameters": Case(
            lambda p, c, x, d: (cond(p[0, 0] > 0, lambda: tanh(p @ c + x), lambda: c), c.sum()), w, d
        ),
        "a condition that is constant": Case(
            lambda p, c, x, d: (cond(True, lambda: tanh(p @ c + x), lambda: c), c.sum()), w, d
        ),
        "three sides": Case(
            lambda p, c, x, d: (
                switch((3 * d[0]).astype(int), [lambda: tanh(p @ c + x), lambda: c, lambda: jnp.sin(p @ p @ c)]),
                c.sum(),
            ),
            w,
            d,
        ),
        "a condition in a condition": Case(
            lambda p, c, x, d: (
                cond(d[0] > 0, lambda: cond(d[1] > 0, lambda: tanh(p @ c + x), lambda: c * p[0]), lambda: c),
                c.sum(),
            ),
            w,
            d,
        ),
        "a loop in the loop": Case(
            lambda p, c, x, d: (jax.lax.scan(lambda a, y: (tanh(p @ a + y * x), None), c, d)[0], c.sum()), w, d
        ),
        "no data and no results": Case(lambda p, c, x, d: (tanh(p @ c + x), ()), w, ()),
        "no parameters": Case(lambda p, c, x, d: (tanh(c + d + x), c.sum()), (), d),
    }


def weighted(tree: Any) -> jax.Array:
    """A number that depends differently on each number in a tree."""
    leaves = [leaf * jnp.arange(1.0, 1 + leaf.size).reshape(leaf.shape) for leaf in jax.tree.leaves(tree)]
    return jnp.stack([leaf.sum() for leaf in leaves]).sum()


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", cases())
def test_other_bodies(name):
    case = cases()[name]
    xs = np.random.default_rng(4).normal(size=(T, H))

    def value(scan: Any, parameters: Any, carry: jax.Array, xs: jax.Array, length: jax.Array) -> jax.Array:
        data = jax.tree.map(jnp.asarray, case.data)
        return weighted(scan(case.body, parameters, carry, xs, data, length))

    arguments = jax.tree.map(jnp.asarray, (case.parameters, np.ones(H), xs))
    run = [jax.jit(jax.value_and_grad(functools.partial(value, scan), (0, 1, 2))) for scan in (loops.scan, reference)]
    for length in (3, T, T + 2):
        assert_close(run[0](*arguments, jnp.array(length)), run[1](*arguments, jnp.array(length)))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("batched", ["sides", "length", "weights, sides and length"])
@pytest.mark.parametrize("inside", [True, False])
def test_branches_that_differ_within_a_batch(batched, inside):
    """Under vmap a choice or a length may differ; the gradient may be taken inside the vmap or outside."""
    members = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(weights(seed) for seed in range(3)))
    sides, lengths = jnp.array([[1, 0, 1, 1, 0], [0] * 5, [1] * 5]), jnp.array([0, 3, 5])
    w = members if "weights" in batched else weights()
    rest = (sides if "sides" in batched else sides[0], lengths if "length" in batched else lengths[2])
    axes = (0 if "weights" in batched else None, 0 if "sides" in batched else None, 0 if "length" in batched else None)

    def value(scan: Any, w: Weights, sides: jax.Array, length: jax.Array) -> jax.Array:
        return objective(scan, w, start().hidden, inputs()[0], sides, length)[0]

    found = []
    for scan in (loops.scan, reference):
        one = functools.partial(value, scan)
        of_batch = (
            jax.vmap(jax.grad(one), axes) if inside else jax.grad(lambda *all, f=one: jax.vmap(f, axes)(*all).sum())
        )
        found.append(jax.jit(of_batch)(w, *rest))
    assert_close(*found)


@pytest.mark.usefixtures("x64")
def test_large_arrays_are_saved_by_themselves(monkeypatch):
    """The gradient is the same wherever arrays begin to be large: all, some, or none of those here."""
    arguments = (weights(), start().hidden, inputs()[0], jnp.array([1, 0, 1, 1, 0]), jnp.array(4))
    for bytes_ in (0, B * H * 8, 2**30):
        monkeypatch.setattr(sys.modules["sqair.loops.packing"], "LARGE", bytes_)
        fresh = jax.jit(jax.value_and_grad(functools.partial(objective, loops.scan), argnums=(0, 1, 2), has_aux=True))
        assert_close(fresh(*arguments), gradient(reference)(*arguments))


@pytest.mark.usefixtures("x64")
def test_what_memory_held_before_does_not_matter(monkeypatch):
    """Stacks begin with what is not zeroed, except on a CPU: so here they begin with what would spoil everything."""

    def spoiled(shape: tuple[int, ...], dtype: Any) -> jax.Array:
        return jnp.full(shape, jnp.nan if jnp.issubdtype(dtype, jnp.inexact) else 1, dtype)

    monkeypatch.setattr(jax.lax, "empty", spoiled)
    fresh = jax.jit(jax.value_and_grad(functools.partial(objective, loops.scan), argnums=(0, 1, 2), has_aux=True))
    for length in (0, 3, T):
        arguments = (weights(), start().hidden, inputs()[0], jnp.array([1, 0, 1, 1, 0]), jnp.array(length))
        assert_close(fresh(*arguments), gradient(reference)(*arguments))


def test_what_is_saved_can_be_halved():
    """Values are the same; gradients have as many digits as bfloat16 leaves them; half of the bytes are saved."""
    arguments = (weights(), start().hidden, inputs()[0], jnp.array([1, 0, 1, 1, 0]), jnp.array(4))
    halved = functools.partial(loops.scan, halved=True)
    (value, others), gradients = gradient(halved)(*arguments)
    (expected, others_expected), gradients_expected = gradient(reference)(*arguments)
    assert_close((value, others), (expected, others_expected), rtol=1e-5)
    for found, wanted in zip(jax.tree.leaves(gradients), jax.tree.leaves(gradients_expected), strict=True):
        error = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
        assert 0 < error < 0.02
    kinds = {
        str(var.aval.dtype)
        for equation, _ in equations(jax.make_jaxpr(gradient(halved).__wrapped__)(*arguments).jaxpr)
        if equation.primitive.name == "while"
        for var in equation.outvars
        if var.aval.ndim == 2 and var.aval.shape[0] == T
    }
    assert "bfloat16" in kinds


# --- what it is for


def equations(jaxpr: Jaxpr, in_loop: bool = False) -> Iterator[tuple[Any, bool]]:
    """All equations, and whether they stand in a loop."""
    for equation in jaxpr.eqns:
        yield equation, in_loop
        for value in jax.tree.leaves(dict(equation.params), is_leaf=lambda it: isinstance(it, Jaxpr | ClosedJaxpr)):
            inner = value.jaxpr if isinstance(value, ClosedJaxpr) else value
            if isinstance(inner, Jaxpr):
                yield from equations(inner, in_loop or equation.primitive.name in ("while", "scan"))


def products(scan: Any) -> tuple[int, int]:
    """How many products a gradient has in loops, and outside."""
    arguments = (weights(), start().hidden, inputs()[0], jnp.ones(T, int), jnp.array(T))
    traced = jax.make_jaxpr(gradient(scan).__wrapped__)(*arguments)
    found = [in_loop for equation, in_loop in equations(traced.jaxpr) if equation.primitive.name == "dot_general"]
    return sum(found), len(found) - sum(found)


def test_weight_gradients_leave_the_loop():
    """Four products forwards and four that pull back stay in the loops; the four for weights follow them."""
    assert products(reference) == (12, 0)
    assert products(loops.scan) == (8, 4)


def test_no_weight_is_saved():
    """An iteration saves less than one weight matrix, although its gradient needs it in every iteration."""
    size = 40

    def value(w: jax.Array) -> jax.Array:
        return loops.scan(lambda w, c, x, d: (jnp.tanh(w @ c), x), w, jnp.ones(size), jnp.ones(T), (), jnp.array(T))[
            0
        ].sum()

    traced = jax.make_jaxpr(jax.grad(value))(jnp.eye(size))
    stacked = [
        var.aval for equation, _ in equations(traced.jaxpr) for var in equation.outvars if T in var.aval.shape[:1]
    ]
    assert 0 < max(aval.size for aval in stacked) // T < size**2


def test_a_product_that_grows_is_made_again():
    """An iteration saves the small product of two things that differ from row to row, and not the large one."""
    small, large = 3, 11

    def one(c: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        grown = jnp.exp(c @ x)  # (small, large)
        return jnp.tanh(grown @ x.T), c.sum()  # (small, small)

    def value(xs: jax.Array) -> jax.Array:
        carry = jnp.ones((B, small, small))
        carry, ys = loops.scan(lambda w, c, x, d: jax.vmap(one)(c, x), (), carry, xs, (), jnp.array(T))
        return carry.sum() + ys.sum()

    traced = jax.make_jaxpr(jax.grad(value))(jnp.ones((T, B, small, large)))
    saved = [
        var.aval.size // T // B
        for equation, _ in equations(traced.jaxpr)
        if equation.primitive.name == "while"
        for var in equation.outvars
        if var.aval.shape[:1] == (T,)
    ]
    assert min(saved) == 1  # ys
    assert small * large in saved  # the gradient of xs
    assert max(saved) == small * large, "with the large product saved as well it would be more"


def test_what_has_a_name_is_saved():
    """A cheap result is made again, unless it has a name: then the iterations' stacks hold it."""

    def stacks(result: Any) -> int:
        def one(w: tuple, c: jax.Array, x: jax.Array, d: tuple) -> tuple[jax.Array, tuple]:
            return c * jnp.tanh(result(jnp.exp(c + x))), ()

        def value(xs: jax.Array) -> jax.Array:
            return loops.scan(one, (), jnp.array(0.5), xs, (), jnp.array(T))[0]

        loop, *_ = [
            equation
            for equation, _ in equations(jax.make_jaxpr(jax.grad(value))(jnp.ones(T)).jaxpr)
            if equation.primitive.name == "while" and len(equation.outvars) > 2
        ]
        return sum(var.aval.size // T for var in loop.outvars if var.aval.shape[:1] == (T,))

    assert stacks(lambda x: checkpoint_name(x, "kept")) == stacks(lambda x: x) + 1


def test_what_is_passed_over_is_not_run():
    """Not-a-number beyond the length, and on the side not taken, reaches neither values nor gradients."""
    xs, noise = inputs()
    xs, noise = xs.at[3:].set(jnp.nan), noise.at[1].set(jnp.nan)
    sides = jnp.array([1, 0, 1, 1, 1])

    def value(w: Weights, xs: jax.Array) -> jax.Array:
        carry, ys = loops.scan(body, w, start(), xs, (sides, noise), jnp.array(3))
        return carry.hidden.sum() + ys["cost"].sum() + ys["hidden"].sum()

    found, gradients = jax.jit(jax.value_and_grad(value, argnums=(0, 1)))(weights(), xs)
    assert np.isfinite(found)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
    assert not np.any(gradients[1][3:])


def test_a_saved_zero_is_never_divided_by():
    """A weight's factor that is a quotient: in iterations passed over, its parts are zeros."""

    def body(w: jax.Array, carry: jax.Array, x: jax.Array, datum: jax.Array) -> tuple:
        product = w @ x
        return w @ (product / (product**2).sum()), carry.sum()

    def value(w: jax.Array) -> jax.Array:
        carry, ys = loops.scan(body, w, jnp.ones(H), jnp.ones((T, H)), jnp.zeros(T), jnp.array(2))
        return carry.sum() + ys.sum()

    assert np.isfinite(jax.jit(jax.grad(value))(jnp.eye(H))).all()


# --- gradients through time


def chain(limit: float, carry: jax.Array) -> jax.Array:
    """A carry that grows tenfold in every iteration, and with it the gradient."""

    def body(_: tuple, carry: tuple, x: tuple, datum: tuple) -> tuple:
        value, count = jax.vmap(lambda carry: loops.limited(carry, limit))(carry)
        return (10 * value, count + 1), value.sum()

    (value, _), ys = loops.scan(body, (), (carry, jnp.zeros(len(carry), int)), (), jnp.zeros(T), jnp.array(T))
    return value.sum() + 0 * ys.sum()


@pytest.mark.usefixtures("x64")
def test_a_gradient_through_time_is_limited_for_each_row():
    """Every iteration passes on ten times what it got, but no more than the limit; values stay as they are."""
    carry = jnp.array([[1.0, 0.0], [2.0, 3.0]])
    full = jax.grad(lambda c: chain(0.0, c))(carry)
    np.testing.assert_allclose(full, 10.0**T)
    limit = jax.jit(jax.value_and_grad(chain, argnums=1))
    for most in (50.0, jnp.array(50.0)):
        value, gradient = (
            limit(most, carry) if isinstance(most, jax.Array) else jax.value_and_grad(chain, 1)(most, carry)
        )
        np.testing.assert_allclose(value, chain(0.0, carry))
        np.testing.assert_allclose(gradient, np.full((2, 2), 50.0 / np.sqrt(2)))
    np.testing.assert_allclose(limit(jnp.array(0.0), carry)[1], full, err_msg="a limit of 0 is none")
    np.testing.assert_allclose(limit(jnp.array(1e9), carry)[1], full)


def test_a_gradient_of_zero_stays_zero_under_a_limit():
    gradient = jax.grad(lambda x: 0.0 * loops.limited({"a": x, "n": jnp.arange(2)}, 1.0)["a"].sum())(jnp.ones(3))
    np.testing.assert_array_equal(gradient, np.zeros(3))

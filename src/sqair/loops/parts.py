"""Equations of a traced function: runs of them as functions, cut at conditionals, and questions about them."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, DebugInfo, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

CHEAP = {
    *("add", "add_any", "sub", "mul", "div", "neg", "abs", "sign", "floor", "max", "min", "clamp"),
    *("square", "integer_pow", "pow", "sqrt", "rsqrt", "one_minus_square"),
    *("exp", "expm1", "log", "log1p", "logistic", "tanh"),
    *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "is_finite", "select_n"),
    *("reduce_precision", "convert_element_type", "copy", "custom_jvp_call", "jit", "pjit"),
    *("broadcast_in_dim", "concatenate", "expand_dims", "gather", "iota", "pad", "reshape"),
    *("slice", "split", "squeeze", "stack", "transpose", "unstack"),
}
"""Operations on single numbers, and rearrangements: a compiler fuses them with their neighbours."""


def is_costly(primitive: Any, *factors: Any, **params: Any) -> bool:
    """Whether the result of an operation is saved for the backward pass (a policy of `jax.checkpoint`).

    A product of two things that both differ from row to row of a batch is quickly made again: it is saved only if it
    is smaller than both. What has a name (`jax.ad_checkpoint.checkpoint_name`) is saved whatever it is.
    """
    if primitive.name == "dot_general" and params["dimension_numbers"][1][0]:
        left, right = factors
        return product_size(left, right, params["dimension_numbers"]) < min(left.size, right.size)
    return primitive.name not in CHEAP


def product_size(left: Any, right: Any, numbers: Any) -> int:
    """How many numbers a `dot_general` makes."""
    (over, _), (batch, _) = numbers
    summed, shared = (math.prod(left.shape[axis] for axis in axes) for axes in (over, batch))
    return left.size * right.size // (summed**2 * shared)


class Part(NamedTuple):
    """A run of a body's equations, or one of its conditionals."""

    sides: tuple[Callable[..., list], ...]
    """What it computes from its inputs: one function, or one for each side of the conditional."""
    choice: Var | None
    """Which side is taken; None if there is only one."""
    inputs: tuple[Var, ...]
    outputs: tuple[Var, ...]


def cut(equations: Sequence[JaxprEqn], results: Iterable[Any]) -> list[Part]:
    """The parts of a body, in order, each with only those outputs that are results or that a later part needs."""
    groups: list[list[JaxprEqn]] = [[]]
    for equation in equations:
        if is_choice(equation):
            groups += [[equation], []]
        else:
            groups[-1].append(equation)
    needed, parts = variables(results), []
    for group in reversed([group for group in groups if group]):
        made = dict.fromkeys(var for equation in group for var in equation.outvars)
        used = (var for equation in group for var in equation.invars if isinstance(var, Var))
        inputs = tuple(dict.fromkeys(var for var in used if var not in made))
        outputs = tuple(var for var in made if var in needed)
        needed = needed.difference(made).union(inputs)
        parts.append(as_part(group, inputs, outputs))
    return parts[::-1]


def is_choice(equation: JaxprEqn) -> bool:
    """Whether it is a conditional; one that always takes the same side is an operation like others."""
    return equation.primitive.name == "cond" and isinstance(equation.invars[0], Var)


def as_part(group: list[JaxprEqn], inputs: tuple[Var, ...], outputs: tuple[Var, ...]) -> Part:
    """A group of equations, or a single conditional, as functions of its inputs."""
    if not is_choice(group[0]):
        return Part((function_of(group, inputs, outputs),), None, inputs, outputs)
    choice, *operands = group[0].invars
    assert isinstance(choice, Var)
    kept = [place for place, var in enumerate(group[0].outvars) if var in outputs]

    def as_side(branch: Callable[..., list]) -> Callable[..., list]:
        def side(*values: Any) -> list:
            known = dict(zip(inputs, values, strict=True))
            results = branch(*(read(known, var) for var in operands))
            return [results[place] for place in kept]

        return side

    sides = tuple(as_side(jaxpr_as_fun(branch)) for branch in group[0].params["branches"])
    return Part(sides, choice, inputs, outputs)


def function_of(equations: Sequence[JaxprEqn], inputs: Sequence[Var], outputs: Sequence[Any]) -> Callable[..., list]:
    """Equations as a function."""
    jaxpr = Jaxpr((), inputs, outputs, equations, debug_info=DebugInfo("scan", "sqair.loops", None, None))
    return jaxpr_as_fun(ClosedJaxpr(jaxpr, ()))


def read(known: dict[Var, Any], var: Any) -> Any:
    """The value of a variable or a literal."""
    return var.val if isinstance(var, Literal) else known[var]


def inlined(function: Callable, *arguments: list) -> tuple[Jaxpr, dict[Var, Any]]:
    """A function of lists of arrays as one flat list of equations, and the constants in it."""

    def run(traced: ClosedJaxpr, *values: Any) -> list:
        jaxpr = traced.jaxpr
        known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*traced.consts, *values], strict=True))
        for equation in jaxpr.eqns:
            inner = equation.params[INLINED[equation.primitive.name]] if equation.primitive.name in INLINED else None
            names = list(dict.fromkeys(var for var in equation.invars if isinstance(var, Var)))
            if inner is None:
                made = function_of([equation], names, equation.outvars)(*(known[var] for var in names))
            else:
                closed = ClosedJaxpr(inner, ()) if isinstance(inner, Jaxpr) else inner
                made = run(closed, *(read(known, var) for var in equation.invars))
            known |= zip(equation.outvars, made, strict=True)
        return [read(known, var) for var in jaxpr.outvars]

    traced = jax.make_jaxpr(function)(*arguments)
    flat = jax.make_jaxpr(lambda *values: run(traced, *values))(*jax.tree.leaves(arguments))
    return flat.jaxpr, dict(zip(flat.jaxpr.constvars, flat.consts, strict=True))


INLINED = {"jit": "jaxpr", "pjit": "jaxpr", "checkpoint": "jaxpr", "remat2": "jaxpr", "custom_jvp_call": "call_jaxpr"}
"""Operations that hold equations of their own, to be opened, and under which name they hold them."""


def variables(names: Iterable[Any]) -> set[Var]:
    """The variables among variables and literals."""
    return {var for var in names if isinstance(var, Var)}


def is_float(value: Any) -> bool:
    """Whether a value, or a value of such a type, can have a gradient."""
    return jnp.issubdtype(value.dtype, jnp.inexact)


def dependent(sources: Iterable[Var], equations: Iterable[JaxprEqn]) -> set[Var]:
    """The variables that depend on the sources, and those themselves."""
    found = set(sources)
    for equation in equations:
        if found & variables(equation.invars):
            found.update(equation.outvars)
    return found


def unchanging(given: Iterable[Var], equations: Iterable[JaxprEqn]) -> tuple[list[JaxprEqn], list[JaxprEqn]]:
    """The equations that make floating-point numbers of `given` alone, and the others."""
    known, before, others = set(given), [], []
    for equation in equations:
        used = variables(equation.invars)
        if used and used <= known and all(is_float(var.aval) for var in equation.outvars):
            before.append(equation)
            known.update(equation.outvars)
        else:
            others.append(equation)
    return before, others

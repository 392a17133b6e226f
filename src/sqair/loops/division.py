"""A pullback divided: what must stay in the loop, and the weight gradients that can follow it.

Axes: T iterations.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from typing import Literal as OneOf

import jax
from jax.extend.core import JaxprEqn, Literal, Var
from jaxtyping import Array

from sqair.loops.parts import CHEAP, dependent, function_of, inlined, variables

LINEAR = frozenset(["dot_general", "reduce_sum", "transpose", "add_any", "reshape", "squeeze", "convert_element_type"])
"""Operations on cotangents that may follow the loop: linear in every argument, and zero where one of them is."""
UNSAFE = frozenset(["div", "log", "log1p", "pow", "integer_pow", "sqrt", "rsqrt"])
"""Cheap operations that can make a number that is not finite of the zeros that iterations passed over have saved."""


class Division(NamedTuple):
    """A pullback in two: `early` runs in the loop, `late` makes of its factors the cotangents of parameters."""

    residuals: list[Var]
    cotangents: list[Var]
    constants: dict[Var, Any]
    in_loop: list[JaxprEqn]
    after: list[JaxprEqn]
    results: list[Any]
    """The cotangents of inputs that are no parameters ..."""
    totals: list[Any]
    """... and of those that are."""
    factors: list[Var]
    """What `late` needs besides the residuals."""

    def early(self, residuals: list, cotangents: list) -> tuple[list, list]:
        """The results and the factors of one iteration."""
        names = [*self.constants, *self.residuals, *self.cotangents]
        run = function_of(self.in_loop, names, [*self.results, *self.factors])
        values = run(*self.constants.values(), *residuals, *cotangents)
        return values[: len(self.results)], values[len(self.results) :]

    def late(self, residuals: list["Summand"], factors: list[Array]) -> list:
        """The totals over all iterations."""
        known = {var: Summand(value, "same") for var, value in self.constants.items()}
        known |= zip(self.residuals, residuals, strict=True)
        known |= zip(self.factors, [Summand(factor, "each") for factor in factors], strict=True)
        for equation in self.after:
            known |= zip(equation.outvars, over_iterations(equation, known), strict=True)
        return [var.val if isinstance(var, Literal) else known[var].total() for var in self.totals]


def divide(
    pullback: Callable, residuals: list, cotangents: list, is_parameter: Sequence[bool], is_constant: Sequence[bool]
) -> Division:
    """Trace a pullback and divide it; `is_parameter` is told of its results, `is_constant` of its residuals.

    Backwards through the equations, one that leads to parameters alone follows the loop if it is `LINEAR`, or if it is
    cheap and makes a residual's value again. A product of sums is not the sum of products: so no product follows
    whose result is multiplied later, and none with a factor that is constant over iterations.
    """
    jaxpr, constants = inlined(pullback, residuals, cotangents)
    names, given = jaxpr.invars[: len(residuals)], jaxpr.invars[len(residuals) :]
    pulled = dependent(given, jaxpr.eqns)
    varying = dependent([*given, *split(is_constant, names)[1]], jaxpr.eqns)
    totals, results = split(is_parameter, jaxpr.outvars)
    needed, wanted, multiplied = variables(results), variables(totals), set[Var]()
    in_loop: list[JaxprEqn] = []
    after: list[JaxprEqn] = []
    for equation in reversed(jaxpr.eqns):
        name, made, used = equation.primitive.name, set(equation.outvars), variables(equation.invars)
        is_linear = name in LINEAR and len(used) == len(equation.invars) and used <= varying and not made & needed
        is_linear &= not (name == "dot_general" and made & multiplied)
        is_repeated = name in CHEAP - UNSAFE and not made & pulled
        if made & wanted and (is_linear or is_repeated):
            after.append(equation)
            wanted |= used
            multiplied |= used if name == "dot_general" or is_repeated or made & multiplied else set()
        elif made & wanted:
            needed |= made
        if made & needed:
            in_loop.append(equation)
            needed |= used
    known_later = {*names, *constants, *(var for equation in after for var in equation.outvars)}
    missing = wanted - known_later
    factors = [var for var in (*(var for equation in jaxpr.eqns for var in equation.outvars), *given) if var in missing]
    return Division(names, given, constants, in_loop[::-1], after[::-1], results, totals, factors)


class Summand(NamedTuple):
    """What is to be summed over iterations."""

    value: Array
    kind: OneOf["each", "same", "sum"]
    """One for each iteration, stacked; the same for all; or summed already."""

    def total(self) -> Array:
        """The sum."""
        return self.value.sum(0) if self.kind == "each" else self.value


def over_iterations(equation: JaxprEqn, known: dict[Var, Summand]) -> list[Summand]:
    """One late operation on all iterations at once; a product of stacked factors sums over them."""
    names = list(dict.fromkeys(var for var in equation.invars if isinstance(var, Var)))
    run, kinds = function_of([equation], names, equation.outvars), [known[var].kind for var in names]
    if "sum" in kinds:
        return [Summand(value, "sum") for value in run(*(known[var].total() for var in names))]
    if equation.primitive.name == "dot_general":
        return [
            Summand(
                product_over_iterations(
                    equation, *(known[var].value for var in equation.invars if isinstance(var, Var))
                ),
                "sum",
            )
        ]
    axes = [0 if kind == "each" else None for kind in kinds]
    values = [known[var].value for var in names]
    if "each" not in kinds:
        return [Summand(value, "same") for value in run(*values)]
    return [Summand(value, "each") for value in jax.vmap(run, in_axes=axes)(*values)]


def product_over_iterations(equation: JaxprEqn, left: Array, right: Array) -> Array:
    """The sum over the leading axis of the products that the equation makes."""
    over, batch = equation.params["dimension_numbers"]
    over = tuple((0, *(axis + 1 for axis in axes)) for axes in over)
    batch = tuple(tuple(axis + 1 for axis in axes) for axes in batch)
    if not batch[0] and over[0] == over[1] == tuple(range(len(over[0]))):
        left, right = (value.reshape(-1, *value.shape[len(over[0]) :]) for value in (left, right))
        over = ((0,), (0,))
    return equation.primitive.bind(left, right, **equation.params | {"dimension_numbers": (over, batch)})


def split(flags: Sequence[bool], values: Sequence[Any]) -> tuple[list, list]:
    """The values whose flag is set, and the others."""
    pairs = list(zip(flags, values, strict=True))
    return [value for flag, value in pairs if flag], [value for flag, value in pairs if not flag]


def merge(flags: Sequence[bool], some: Sequence[Any], others: Sequence[Any]) -> list:
    """The inverse of `split`."""
    some_left, others_left = iter(some), iter(others)
    return [next(some_left if flag else others_left) for flag in flags]

"""The loop: forwards with what must be saved, backwards with the divided pullbacks.

Axes: T iterations.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Var
from jaxtyping import Array, Int, PyTree

from sqair.loops.division import Division, Summand, divide, merge, split
from sqair.loops.packing import Packing, like, zeros
from sqair.loops.parts import Part, cut, dependent, function_of, is_costly, is_float, read, unchanging, variables


def scan(
    body: Callable[[PyTree, PyTree, PyTree, PyTree], tuple[PyTree, PyTree]],
    parameters: PyTree,
    carry: PyTree,
    xs: PyTree,
    data: PyTree,
    length: Int[Array, ""],
    *,
    halved: bool = False,
) -> tuple[PyTree, PyTree]:
    """`lax.scan` of body(parameters, carry, x, datum) -> (carry, y) over the leading axes of `xs` and `data`.

    From iteration `length` on the carry stays and y is zero. Gradients flow to parameters, carry and xs, not to data;
    parameters and xs hold floating-point arrays only, and the body closes over nothing that is differentiated. With
    `halved` what the gradient needs is kept in bfloat16: half the memory, and gradients to two or three digits.
    """
    inputs, trees = zip(*(jax.tree.flatten(tree) for tree in (parameters, carry, xs, data)), strict=True)
    loop = Loop(body, inputs, trees, Packing(halved))

    @jax.custom_vjp
    def run(inputs: list[list], length: Int[Array, ""]) -> tuple[list, list]:
        carry, ys, _ = loop.forward(inputs, length, save=False)
        return carry, ys

    def forward(inputs: list[list], length: Int[Array, ""]) -> tuple[tuple[list, list], tuple]:
        carry, ys, saved = loop.forward(inputs, length, save=True)
        parameters, _, xs, data = inputs
        return (carry, ys), ([parameters, xs, data], saved, length)

    def backward(kept: tuple, cotangents: tuple[list, list]) -> tuple:
        groups, saved, length = kept
        return [*loop.backward(groups, saved, length, *cotangents), [None] * len(inputs[3])], None

    run.defvjp(forward, backward)
    carry, ys = run([loop.prepare(*inputs[0]), *inputs[1:]], length)
    return jax.tree.unflatten(trees[1], carry), jax.tree.unflatten(loop.y_tree, ys)


def scan_until(length: Array, step: Callable, carry: list, xs: PyTree, *, reverse: bool = False) -> tuple[list, PyTree]:
    """`lax.scan` of step(carry, *x) that ends, or with `reverse` begins, at `length`; what lies beyond is zero."""
    shapes = jax.eval_shape(step, carry, *jax.tree.map(lambda leaf: like(leaf, stacked=True), xs))[1]
    total = jax.tree.leaves(xs)[0].shape[0]
    length = jnp.minimum(length, total)

    def iteration(count: Array, state: tuple[list, PyTree]) -> tuple[list, PyTree]:
        carry, ys = state
        time = length - 1 - count if reverse else count
        carry, y = step(carry, *jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, time, keepdims=False), xs))
        return carry, stored(ys, y, time)

    return jax.lax.fori_loop(0, length, iteration, (carry, zero_from(length, total, shapes)))


def zero_from(length: Array, total: int, shapes: PyTree) -> PyTree:
    """Stacks of `total` arrays each, of which those from `length` on are zero; what the others hold is not defined.

    Mostly all of them are about to be stored, and zeros in many large stacks cost as much as what is stored. Whole
    numbers begin as zeros: some tell which side of a conditional is taken, and under `jax.vmap` some versions of jax
    take empty memory for something that differs between its members.
    """
    stacks = jax.tree.map(
        lambda leaf: (jax.lax.empty if is_float(leaf) else jnp.zeros)((total, *leaf.shape), leaf.dtype), shapes
    )
    nothing = jax.tree.map(zeros, shapes)
    return jax.lax.fori_loop(length, total, lambda time, stacks: stored(stacks, nothing, time), stacks)


def stored(stacks: PyTree, values: PyTree, time: Array) -> PyTree:
    """The stacks with these values at `time`."""
    write = jax.lax.dynamic_update_index_in_dim
    return jax.tree.map(lambda stack, value: write(stack, value, time, 0), stacks, values)


def choose(index: Array | None, sides: Iterable[Callable[[], PyTree]]) -> PyTree:
    """What the chosen side gives; without an index there is only one."""
    sides = list(sides)
    return sides[0]() if index is None else jax.lax.switch(index, sides)


# --- the loop


class Source(NamedTuple):
    """Where a residual lies: among the parameters (0), xs (1) or data (2), or on a shelf (from SHELVES on)."""

    group: int
    place: int


SHELVES = 3


class Shelf:
    """Collects residuals while an iteration is traced. What lies elsewhere anyway is not collected."""

    def __init__(self, number: int, elsewhere: dict[int, Source]) -> None:
        self.number, self.sources = number, dict(elsewhere)
        self.values: list[Any] = []

    def keep(self, residual: Any) -> Source:
        """Where `residual` will be found."""
        if id(residual) not in self.sources:
            self.sources[id(residual)] = Source(SHELVES + self.number, len(self.values))
            self.values.append(residual)
        return self.sources[id(residual)]


class Pullback(NamedTuple):
    """How cotangents pass back through one side of a part: what `jax.vjp` gave, its residuals kept elsewhere."""

    structure: Any
    residuals: list[Source]

    def __call__(self, residuals: list, cotangents: list) -> list:
        """The cotangents of the moving inputs, from those of the floating-point outputs."""
        return jax.tree.unflatten(self.structure, residuals)(cotangents)[0]


class Cotangents:
    """Cotangents by variable, added up as they come."""

    def __init__(self) -> None:
        self.known: dict[Var, Array] = {}

    def add(self, names: Sequence[Any], values: Sequence[Any]) -> None:
        """Count `values` in; literals and whole numbers have no cotangent."""
        for var, value in zip(names, values, strict=True):
            if isinstance(var, Var) and is_float(var.aval):
                self.known[var] = self.known[var] + value if var in self.known else value

    def take(self, names: Sequence[Var]) -> list:
        """The cotangents of variables; zeros where none came."""
        return [self.known[var] if var in self.known else zeros(like(var.aval)) for var in names]


class Loop:
    """A body in parts, run over all iterations forwards and backwards."""

    y_tree: Any
    """The structure of what an iteration gives."""

    def __init__(self, body: Callable, inputs: Sequence[Sequence[Any]], trees: Sequence[Any], packing: Packing) -> None:
        self.packing = packing

        def flat(*inputs: list) -> tuple[list, list]:
            carry, y = body(*(jax.tree.unflatten(tree, leaves) for tree, leaves in zip(trees, inputs, strict=True)))
            ys, self.y_tree = jax.tree.flatten(y)
            return jax.tree.leaves(carry), ys

        parameters, carry, xs, data = inputs
        one = [[like(leaf, stacked=True) for leaf in leaves] for leaves in (xs, data)]
        traced = jax.make_jaxpr(flat)(list(parameters), list(carry), *one)
        names = iter(traced.jaxpr.invars)
        given, self.carry, self.xs, self.data = [[next(names) for _ in group] for group in inputs]
        self.constants = dict(zip(traced.jaxpr.constvars, traced.consts, strict=True))
        self.next_carry, self.ys = traced.jaxpr.outvars[: len(carry)], traced.jaxpr.outvars[len(carry) :]
        before, equations = unchanging(given, traced.jaxpr.eqns)
        self.parts = cut(equations, traced.jaxpr.outvars)
        used = {var for part in self.parts for var in part.inputs} | variables(traced.jaxpr.outvars)
        made = [*given, *(var for equation in before for var in equation.outvars)]
        self.parameters = [var for var in made if var in used]
        self.shown = [var for var in self.parameters if var in variables(traced.jaxpr.outvars)]
        """Parameters that are themselves results of the body."""
        self.prepare = function_of(before, given, self.parameters)
        sources = [var for var in (*self.parameters, *self.carry, *self.xs) if is_float(var.aval)]
        self.moving = {var for var in dependent(sources, equations) if is_float(var.aval)}
        # What follows is found forwards and used backwards; a key is the number of a part and of its side.
        self.choices: dict[int, Source] = {}
        self.pullbacks: dict[tuple[int, int], Pullback] = {}
        self.shelves: list[list[jax.ShapeDtypeStruct]] = []

    # forwards

    def forward(self, inputs: list[list], length: Array, *, save: bool) -> tuple[list, list, list]:
        """The last carry, the ys, and with `save` the shelves of all iterations."""
        parameters, carry, xs, data = inputs

        def iteration(carry: list, x: list, datum: list) -> tuple[list, tuple[list, list]]:
            names = [*self.parameters, *self.carry, *self.xs, *self.data]
            known = self.constants | dict(zip(names, [*parameters, *carry, *x, *datum], strict=True))
            groups = enumerate((parameters, x, datum))
            common = Shelf(0, {id(value): Source(g, place) for g, group in groups for place, value in enumerate(group)})
            others: list[list] = []
            self.shelves = [[]]
            for number, part in enumerate(self.parts):
                values = [known[var] for var in part.inputs]
                index = None if part.choice is None else known[part.choice]
                if not save:
                    outputs = choose(index, (lambda side=side, v=values: side(*v) for side in part.sides))
                elif index is None:
                    outputs = self._linearise(number, 0, values, common)
                else:
                    outputs, shelves = self._linearise_sides(number, index, values, common)
                    others += shelves
                known |= zip(part.outputs, outputs, strict=True)
            self.shelves[0] = [like(value) for value in common.values]
            ys = [jnp.asarray(read(known, var)) for var in self.ys]
            return [read(known, var) for var in self.next_carry], (ys, [self.packing.pack(common.values), *others])

        carry, (ys, saved) = scan_until(length, iteration, carry, (xs, data))
        return carry, ys, saved

    def _linearise(self, number: int, side: int, values: list, shelf: Shelf) -> list:
        """The outputs of one side of a part; its residuals go on the shelf, its pullback into `pullbacks`."""
        part = self.parts[number]
        moves = [var in self.moving for var in part.inputs]
        floats = [is_float(var.aval) for var in part.outputs]
        moved, still = split(moves, values)

        def run(moved: list) -> tuple[list, list]:
            return split(floats, part.sides[side](*merge(moves, moved, still)))

        saving = jax.checkpoint(run, policy=is_costly, prevent_cse=False)
        outputs, pullback, others = jax.vjp(saving, moved, has_aux=True)
        residuals, structure = jax.tree.flatten(pullback)
        self.pullbacks[number, side] = Pullback(structure, [shelf.keep(residual) for residual in residuals])
        return merge(floats, outputs, others)

    def _linearise_sides(self, number: int, index: Array, values: list, common: Shelf) -> tuple[list, list[list]]:
        """The outputs of the chosen side of a conditional, and a packed shelf for each side, empty but for that one."""
        self.choices[number] = common.keep(index)
        count, first = len(self.parts[number].sides), len(self.shelves)

        def run(side: int) -> tuple[list, list]:
            shelf = Shelf(first + side, common.sources)
            outputs = self._linearise(number, side, values, shelf)
            return outputs, shelf.values

        def packed(side: int) -> tuple[list, list[list]]:
            outputs, residuals = run(side)
            shelves = self.shelves[first : first + count]
            packing = self.packing
            sides = enumerate(shelves)
            return outputs, [packing.pack(residuals) if s == side else packing.zeros(shapes) for s, shapes in sides]

        self.shelves += [
            [like(leaf) for leaf in jax.eval_shape(lambda side=side: run(side))[1]] for side in range(count)
        ]
        return choose(index, (lambda side=side: packed(side) for side in range(count)))

    # backwards

    def backward(
        self, kept: list[list], saved: list[list], length: Array, of_carry: list, of_ys: list
    ) -> tuple[list, list, list]:
        """The cotangents of parameters, carry and xs. `kept` are parameters, xs and data, `saved` the shelves."""
        floats = [is_float(var.aval) for var in self.carry]
        divisions = {key: self._divide(*key, kept) for key in sorted(self.pullbacks)}

        def iteration(
            of_carry: list, of_y: list, x: list, datum: list, saved: list
        ) -> tuple[list, tuple[list, list, list]]:
            now = [kept[0], x, datum, *map(self.packing.unpack, saved, self.shelves)]
            cotangents, factors = Cotangents(), []
            cotangents.add(split(floats, self.next_carry)[0], of_carry)
            cotangents.add(self.ys, of_y)
            for number in reversed(range(len(self.parts))):
                factors = self._pass_back(number, divisions, now, cotangents) + factors
            direct = cotangents.take(self.shown)
            return cotangents.take(split(floats, self.carry)[0]), (cotangents.take(self.xs), direct, factors)

        of_carry, others = split(floats, of_carry)
        of_carry, (of_xs, direct, factors) = scan_until(
            length, iteration, of_carry, (of_ys, *kept[1:], saved), reverse=True
        )
        of_parameters = self._finish(
            divisions, [*kept, *map(self.packing.unpack, saved, self.shelves)], factors, direct, length
        )
        return of_parameters, merge(floats, of_carry, [None] * len(others)), of_xs

    def _divide(self, number: int, side: int, kept: list[list]) -> Division:
        """The pullback of one side of a part, divided into what stays in the loop and what follows it."""
        part, pullback = self.parts[number], self.pullbacks[number, side]
        groups = [kept[0], *([like(leaf, stacked=True) for leaf in group] for group in kept[1:]), *self.shelves]
        residuals = [like(groups[group][place]) for group, place in pullback.residuals]
        cotangents = [like(var.aval) for var in part.outputs if is_float(var.aval)]
        is_parameter = [var in self.parameters for var in self._moving(part)]
        return divide(pullback, residuals, cotangents, is_parameter, [group == 0 for group, _ in pullback.residuals])

    def _pass_back(self, number: int, divisions: dict, now: list[list], cotangents: Cotangents) -> list[list]:
        """Move cotangents from the outputs of a part to its inputs; returns the packed factors of each side."""
        part, choice = self.parts[number], self.choices.get(number)
        given = cotangents.take([var for var in part.outputs if is_float(var.aval)])
        own = [divisions[number, side] for side in range(len(part.sides))]
        shapes = [[like(var.aval) for var in division.factors] for division in own]

        def pulled(side: int) -> tuple[list, list[list]]:
            residuals = [now[group][place] for group, place in self.pullbacks[number, side].residuals]
            results, factors = own[side].early(residuals, given)
            packing, sides = self.packing, enumerate(shapes)
            return results, [packing.pack(factors) if s == side else packing.zeros(shape) for s, shape in sides]

        index = None if choice is None else now[choice.group][choice.place]
        results, factors = choose(index, (lambda side=side: pulled(side) for side in range(len(own))))
        cotangents.add([var for var in self._moving(part) if var not in self.parameters], results)
        return factors

    def _finish(
        self,
        divisions: dict[tuple[int, int], Division],
        kept: list[list],
        factors: list[list],
        direct: list,
        length: Array,
    ) -> list:
        """The cotangents of the parameters, summed over iterations, parts and sides."""
        cotangents = Cotangents()
        cotangents.add(self.shown, [value.sum(0) for value in direct])
        for (key, division), own in zip(divisions.items(), factors, strict=True):
            residuals = [self._stack(key, source, kept, length) for source in self.pullbacks[key].residuals]
            results = division.late(residuals, self.packing.unpack(own, [like(var.aval) for var in division.factors]))
            cotangents.add([var for var in self._moving(self.parts[key[0]]) if var in self.parameters], results)
        return cotangents.take(self.parameters)

    def _stack(self, key: tuple[int, int], source: Source, kept: list[list], length: Array) -> Summand:
        """A residual of all iterations. Of xs and data, what was passed over counts as zero: it may be anything."""
        value, choice = kept[source.group][source.place], self.choices.get(key[0])
        if source.group == 0:
            return Summand(value, "same")
        if source.group >= SHELVES:
            return Summand(value, "each")
        was_run = jnp.arange(value.shape[0]) < length
        if choice is not None:
            was_run &= kept[choice.group][choice.place] == key[1]
        return Summand(jnp.where(was_run.reshape(-1, *[1] * (value.ndim - 1)), value, jnp.zeros_like(value)), "each")

    def _moving(self, part: Part) -> list[Var]:
        """The inputs of a part that depend on something differentiable."""
        return [var for var in part.inputs if var in self.moving]

"""What a training step computes and sends, and what that lets one expect of many GPUs: the numbers of docs/scaling.md.

    python -m benchmarks.scaling [PRESET]

Measured step times are arguments, so that the tables can be made anew when there are better records. Everything about
networks is an assumption, named below; nothing here was measured on more than one GPU.
"""

import argparse
import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sqair.config import Preset, preset
from sqair.training.checkpoint import build, named_arrays
from sqair.training.curriculum import restraint_at
from sqair.training.step import gradients


class Step(NamedTuple):
    """A step on one GPU takes `fixed + each * batch` seconds."""

    fixed: float
    each: float

    def seconds(self, batch: float) -> float:
        """With so many sequences."""
        return self.fixed + self.each * batch


class Network(NamedTuple):
    """A link of GPUs: bytes a second that each can send and take at once, and seconds until the first arrives."""

    bandwidth: float
    latency: float


WITHIN = Network(300e9, 5e-6)
"""Assumed of NVLink within a node of 8 GPUs."""
BETWEEN = Network(40e9, 20e-6)
"""Assumed of one 400 Gbit/s adapter per GPU between nodes."""
NODE = 8


def fit(points: list[tuple[int, float]]) -> Step:
    """The line through two measurements of (batch, seconds)."""
    (small, first), (large, last) = points
    each = (last - first) / (large - small)
    return Step(first - each * small, each)


def all_reduce(size: float, gpus: int) -> float:
    """Seconds of a sum of `size` bytes: a ring, whose slowest link counts, and a tree of first bytes."""
    if gpus == 1:
        return 0.0
    slowest = WITHIN if gpus <= NODE else BETWEEN
    first = WITHIN.latency * math.log2(min(gpus, NODE)) + BETWEEN.latency * math.log2(max(gpus / NODE, 1))
    return 2 * (gpus - 1) / gpus * size / slowest.bandwidth + 2 * first


def weak(step: Step, size: float, batch: int, gpus: int) -> float:
    """Efficiency where every GPU has `batch` sequences: one's time over theirs."""
    return step.seconds(batch) / (step.seconds(batch) + all_reduce(size, gpus))


def strong(step: Step, size: float, total: int, gpus: int) -> float:
    """Efficiency where `total` sequences are shared out."""
    return step.seconds(total) / gpus / (step.seconds(total / gpus) + all_reduce(size, gpus))


def count_flops(chosen: Preset) -> float:
    """Operations of the matrix products of a step at full length, with discovery in every frame."""
    config = dataclasses.replace(chosen.train, discovery_dropout=0.0)
    total = chosen.data.length
    shape = (config.batch, total, *chosen.model.image, chosen.model.channels)

    def step(key: jax.Array, frames: jax.Array) -> Any:
        model = build(chosen.model, key)
        restraint = restraint_at(jnp.array(0), config, total)
        return gradients((model, None), key, frames, restraint, jnp.array(total), None, config, None)[0]

    traced = jax.make_jaxpr(step)(jax.random.key(0), jax.ShapeDtypeStruct(shape, jnp.float32))
    return _flops(traced.jaxpr, total)


def _flops(jaxpr: Any, trips: int) -> float:
    """Of all products in it; loops of unknown length, which are those over frames, are taken `trips` times."""
    found = 0.0
    for equation in jaxpr.eqns:
        name, inner = equation.primitive.name, [_flops(each, trips) for each in _jaxprs(equation.params)]
        if name == "dot_general":
            (over, _), _ = equation.params["dimension_numbers"]
            summed = math.prod(equation.invars[0].aval.shape[axis] for axis in over)
            found += 2 * summed * math.prod(equation.outvars[0].aval.shape)
        elif name == "conv_general_dilated":
            kernel = equation.invars[1].aval.shape
            found += 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(kernel) / max(kernel[0], 1)
        elif inner:
            times = equation.params["length"] if name == "scan" else trips if name == "while" else 1
            found += times * (max(inner) if name == "cond" else sum(inner))
    return found


def _jaxprs(params: dict[str, Any]) -> list[Any]:
    values = [each for value in params.values() for each in (value if isinstance(value, tuple | list) else [value])]
    return [getattr(value, "jaxpr", value) for value in values if hasattr(getattr(value, "jaxpr", value), "eqns")]


def main() -> None:
    """Print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", nargs="?", default="sqair-mlp")
    parser.add_argument("--small", nargs=2, type=float, default=(32, 10.9), metavar=("BATCH", "MS"))
    parser.add_argument("--large", nargs=2, type=float, default=(1024, 92.6), metavar=("BATCH", "MS"))
    words = parser.parse_args()
    chosen = preset(words.preset)
    shapes = jax.eval_shape(lambda key: named_arrays(build(chosen.model, key)), jax.random.key(0))
    size = 4.0 * sum(math.prod(leaf.shape) for leaf in shapes.values())
    flops = count_flops(chosen) / chosen.train.batch
    (small, first), (large, last) = words.small, words.large
    step = fit([(int(small), first / 1e3), (int(large), last / 1e3)])
    print(f"{words.preset}: {size / 4:.0f} parameters, {size / 2**20:.2f} MiB sent per step and GPU")
    print(f"{flops / 1e9:.3f} GFLOP per sequence and step, forwards and backwards, matrix products only")
    print(f"one GPU: {1e3 * step.fixed:.2f} ms + {1e6 * step.each:.1f} us per sequence\n")
    print("| GPUs | sum of gradients | weak, 32 each | weak, 1024 each | strong, 1024 in all |\n|---|---|---|---|---|")
    for gpus in (1, 2, 8, 64, 256):
        shares = [weak(step, size, 32, gpus), weak(step, size, 1024, gpus), strong(step, size, 1024, gpus)]
        cells = [f"{1e3 * all_reduce(size, gpus):.2f} ms", *(f"{100 * share:.1f}%" for share in shares)]
        print(f"| {gpus} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

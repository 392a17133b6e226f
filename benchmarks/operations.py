"""How many operations a train step launches on a GPU, counted without one: compiled here for the card, then read.

    python -m benchmarks.operations --target h200.txtpb [--preset sqair-mlp] [--batch 32] [--record NAME]

At small batches a step's time is the number of its operations, each about two microseconds, so this is what to watch
while changing `loops/` or the model. It needs jax's CUDA plugin (`pip install "sqair[cuda13]"`), no GPU and no driver;
`--target` is a description of the card as XLA's repository keeps them (`target_config/specs/*.txtpb`). Autotuning needs
a card, so it is off, and matrix products are cuBLAS's: compare counts with each other, not with a profile.

The table has a row for the program, for each loop in it and for each side of a conditional: operations in one run of
it, without what is in rows of its own. The outer loop is over train steps; in it are one over frames that makes the
data, one forwards and one backwards through the frames of the model, each with the sides of discovery: off, on.
"""

import argparse
import collections
import dataclasses
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.flags import add_record_flags

FLAGS = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"
FREE = {
    *("parameter", "constant", "bitcast", "get-tuple-element", "tuple", "after-all", "opt-barrier", "add-dependency"),
    *("call", "while", "conditional", "copy-done", "fusion-done", "custom-call-done", "async-done", "async-update"),
    *("partition-id", "replica-id"),
}
"""Instructions that launch nothing."""


class Instruction(NamedTuple):
    """One line of a computation: what it is, and what it says."""

    operation: str
    text: str

    def launches(self) -> bool:
        """Whether it is work for the card; memory that is only set aside is not."""
        return self.operation not in FREE and "AllocateBuffer" not in self.text

    def calls(self) -> list[str]:
        """The loop body or the sides of a conditional that it runs."""
        found = re.findall(r"(?:body|true_computation|false_computation)=%?([\w.\-]+)", self.text)
        sides = re.search(r"branch_computations=\{([^}]*)\}", self.text)
        return found + ([name.strip().lstrip("%") for name in sides[1].split(",")] if sides else [])


def read_program(text: str) -> tuple[dict[str, list[Instruction]], str]:
    """The computations of an optimised program, and the name of the first."""
    computations: dict[str, list[Instruction]] = {}
    entry = name = ""
    for line in text.splitlines():
        if head := re.match(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$", line):
            name = head[2]
            entry = name if head[1] else entry
            computations[name] = []
        elif found := re.match(r"^\s+(?:ROOT )?%?[\w.\-]+ = (?:\(.*?\)|\S+) ([\w\-]+)\((.*)$", line):
            computations[name].append(Instruction(found[1], found[2]))
    return computations, entry


def count(text: str) -> list[dict[str, Any]]:
    """A row for the program, each loop body and each side of a conditional, outermost first."""
    computations, entry = read_program(text)
    rows, waiting = [], collections.deque([("program", entry)])
    while waiting:
        label, name = waiting.popleft()
        instructions = computations[name]
        kinds = collections.Counter(each.operation for each in instructions if each.launches())
        rows.append({"what": label, "operations": sum(kinds.values()), "kinds": dict(kinds.most_common())})
        for each in instructions:
            if each.operation == "while":
                waiting.append((f"{label} > loop", each.calls()[0]))
            elif each.operation == "conditional":
                waiting.extend((f"{label} > side {side}", called) for side, called in enumerate(each.calls()))
    return rows


def compile_step(preset_name: str, batch: int, target: Path) -> str:
    """The optimised program of `train_steps` at full sequence length, for the card that `target` describes."""
    os.environ["JAX_PLATFORMS"] = "cpu"  # the plugin is used as a compiler only
    os.environ["XLA_FLAGS"] = FLAGS
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    from jax.experimental import topologies

    from sqair.config import Preset, preset
    from sqair.data import open_data
    from sqair.training.step import first_state, seed_keys, train_steps

    card = topologies.get_topology_desc(platform="cuda", topology="1x1x1", target_config=target.read_text())
    there = jax.sharding.SingleDeviceSharding(card.devices[0])
    chosen, keys = preset(preset_name), seed_keys(0)
    train = dataclasses.replace(chosen.train, batch=batch, first_length=chosen.data.length)
    setting = Preset(chosen.model, dataclasses.replace(chosen.data, digits="strokes"), train)
    state = eqx.filter_eval_shape(first_state, setting, keys.weights)
    inputs = (state, open_data(setting.data, "train"), keys.steps, train, jax.ShapeDtypeStruct((), jnp.int32))
    arrays, rest = eqx.partition(inputs, lambda leaf: eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct))
    arrays = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=there), arrays)

    def program(arrays: Any) -> Any:
        return eqx.filter(train_steps(*eqx.combine(arrays, rest)), eqx.is_array)

    return jax.jit(program).lower(arrays).compile().as_text() or ""


def main() -> None:
    """Compile, count, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, required=True, help="a description of the card")
    parser.add_argument("--preset", default="sqair-mlp")
    parser.add_argument("--batch", type=int, default=32)
    add_record_flags(parser)
    arguments = parser.parse_args()
    if not arguments.target.is_file():
        parser.error(f"there is no file {arguments.target}")
    rows = count(compile_step(arguments.preset, arguments.batch, arguments.target))
    print("operations  what")
    for row in rows:
        print(f"{row['operations']:10d}  {row['what']}")
    if arguments.record:
        from benchmarks.record import write_record  # it imports jax, which compile_step must set up first

        results = {"preset": arguments.preset, "batch": arguments.batch, "target": arguments.target.name, "rows": rows}
        print("Record saved to", write_record(arguments.record, results, arguments.folder))


if __name__ == "__main__":
    main()

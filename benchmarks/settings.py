"""Which settings learn: several of them trained side by side under `vmap`, for the price of little more than one.

    python -m benchmarks.settings --seconds 400 --member '{}' --member '{"learning_rate": 6e-4}' --member '{"seed": 1}'

Each member is a table of training knobs that differ from the preset's (those in KNOBS, and the seed). All share the
data set, the batch size and the curriculum. At the end every member is evaluated on held-out training digits: it is a
tool for choosing settings, so it never sees the test digits.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from benchmarks.record import write_record
from sqair.config import Preset, preset
from sqair.data import Source, open_data
from sqair.evaluation.evaluate import evaluate
from sqair.settings import from_dict, to_dict
from sqair.training.checkpoint import save_model
from sqair.training.step import TrainState, first_state, seed_keys, train_step

KNOBS = ("learning_rate", "discovery_dropout", "discovery_cost", "rediscovery_cost")
"""Fields of TrainConfig that are numbers inside the compiled step, so that members may differ in them."""


@eqx.filter_jit
def advance(
    states: TrainState,
    source: Source,
    keys: PRNGKeyArray,
    knobs: dict[str, Array],
    setting: Preset,
    count: Int[Array, ""],
) -> TrainState:
    """`count` steps of all members."""

    def member(state: TrainState, key: PRNGKeyArray, knobs: dict[str, Array]) -> TrainState:
        return train_step(state, source, key, dataclasses.replace(setting.train, **knobs))

    arrays, rest = eqx.partition(states, eqx.is_array)

    def step(_: Int[Array, ""], arrays: TrainState) -> TrainState:
        moved = eqx.filter_vmap(member)(eqx.combine(arrays, rest), keys, knobs)
        return eqx.filter(moved, eqx.is_array)

    return eqx.combine(jax.lax.fori_loop(0, count, step, arrays), rest)


def race(setting: Preset, members: list[dict[str, Any]], seconds: float, chunk: int) -> tuple[TrainState, float]:
    """Train all members for the preset's steps, or until time is up; returns their states and the seconds used."""
    source = open_data(setting.data, "train")
    seeds = [seed_keys(int(member.get("seed", setting.train.seed))) for member in members]
    weights, keys = (jnp.stack([getattr(seed, name) for seed in seeds]) for name in ("weights", "steps"))
    knobs = {name: jnp.array([float(m.get(name, getattr(setting.train, name))) for m in members]) for name in KNOBS}
    states = eqx.filter_vmap(lambda key: first_state(setting, key))(weights)
    begin, done = time.time(), 0
    while done < setting.train.steps and time.time() - begin < seconds:
        states = jax.block_until_ready(advance(states, source, keys, knobs, setting, jnp.array(chunk)))
        done += chunk
        means = jax.tree.map(jnp.divide, states.totals, type(states.totals)(*[states.counted] * len(states.totals)))
        states = states._replace(totals=jax.tree.map(jnp.zeros_like, means), counted=jnp.zeros_like(states.counted))
        print(f"step {done}, {time.time() - begin:.0f} s", flush=True)
        for index, member in enumerate(members):
            values = "  ".join(f"{name} {float(leaf[index]):.4g}" for name, leaf in means._asdict().items())
            print(f"  {json.dumps(member)}: {values}", flush=True)
    return states, time.time() - begin


def main() -> None:
    """Train, evaluate, print and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="sqair-mlp")
    parser.add_argument("--config", default="{}", help="JSON of preset fields to change, as in config.json")
    parser.add_argument("--member", action="append", type=json.loads, default=[])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--chunk", type=int, default=500, help="steps between two lines of output")
    parser.add_argument("--sequences", type=int, default=256)
    parser.add_argument("--particles", type=int, default=100)
    parser.add_argument("--models", type=Path, help="save each member's weights here")
    parser.add_argument("--record", default="")
    parser.add_argument("--folder", type=Path, help="where the record goes instead of benchmarks/records")
    arguments = parser.parse_args()
    changes, base = json.loads(arguments.config), to_dict(preset(arguments.preset))
    setting = from_dict(Preset, {part: {**fields, **changes.get(part, {})} for part, fields in base.items()})
    members = arguments.member or [{}]
    states, seconds = race(setting, members, arguments.seconds, arguments.chunk)
    source, rows = open_data(setting.data, "validation"), []
    for index, member in enumerate(members):
        model = jax.tree.map(lambda leaf, i=index: leaf[i] if eqx.is_array(leaf) else leaf, states.model)
        scores = evaluate(model, source, sequences=arguments.sequences, particles=arguments.particles, seed=1)
        rows.append({"member": member, **scores})
        print(json.dumps(rows[-1]), flush=True)
        if arguments.models is not None:
            save_model(arguments.models / f"member{index}", model, {"data": to_dict(setting.data)})
    if arguments.record:
        results = {
            "setting": to_dict(setting),
            "steps": int(states.step[0]),
            "seconds": round(seconds, 1),
            "rows": rows,
        }
        print("Record saved to", write_record(arguments.record, results, arguments.folder))


if __name__ == "__main__":
    main()

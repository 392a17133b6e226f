"""Time of one train step: `python -m benchmarks.step_time [--preset sqair-mlp] [--batch 32 256] [--record NAME]`.

Absolute times mean something on a GPU only; on two shared cores compare ratios within one run. The step is the one
that training runs: data made on the device, the whole sequence, gradient and update, at the curriculum's full length.
"""

import argparse
import dataclasses
import time

import jax
import jax.numpy as jnp

from benchmarks.record import write_record
from sqair.config import Preset, preset
from sqair.data import open_data
from sqair.training.step import first_state, seed_keys, train_steps


def step_time(setting: Preset, steps: int, repeats: int) -> dict[str, float]:
    """Seconds until the first call returned, and the median milliseconds of a step after it."""
    source = open_data(setting.data, "train")
    keys = seed_keys(0)
    state = first_state(setting, keys.weights)
    begin = time.perf_counter()
    state = jax.block_until_ready(train_steps(state, source, keys.steps, setting.train, jnp.array(1)))
    first = time.perf_counter() - begin
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        state = jax.block_until_ready(train_steps(state, source, keys.steps, setting.train, jnp.array(steps)))
        times.append((time.perf_counter() - begin) / steps)
    middle = sorted(times)[len(times) // 2]
    batch = setting.train.batch
    return {
        "batch": batch,
        "first_call_s": round(first, 2),
        "ms_per_step": round(1000 * middle, 2),
        "ms_per_step_all": [round(1000 * value, 2) for value in times],
        "sequences_per_s": round(batch / middle, 1),
    }


def main() -> None:
    """Measure each batch size and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="sqair-mlp")
    parser.add_argument("--batch", type=int, nargs="+", default=[32])
    parser.add_argument("--particles", type=int, default=5)
    parser.add_argument("--digits", default="strokes")
    parser.add_argument("--steps", type=int, default=2, help="steps per timed call")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--record", default="", help="write benchmarks/records/<date>_<RECORD>.json")
    arguments = parser.parse_args()
    chosen = preset(arguments.preset)
    rows = []
    print("batch  first call, s  ms/step  sequences/s")
    for batch in arguments.batch:
        data = dataclasses.replace(chosen.data, digits=arguments.digits)
        train = dataclasses.replace(
            chosen.train, batch=batch, particles=arguments.particles, first_length=chosen.data.length
        )
        row = step_time(Preset(chosen.model, data, train), arguments.steps, arguments.repeats)
        rows.append(row)
        print(f"{batch:5d}  {row['first_call_s']:13.1f}  {row['ms_per_step']:7.1f}  {row['sequences_per_s']:11.0f}")
    if arguments.record:
        print("Record saved to", write_record(arguments.record, {"preset": arguments.preset, "rows": rows}))


if __name__ == "__main__":
    main()

"""How long a train step takes, at the full length of its sequences: `sqair bench` and benchmarks/ measure with this.

The step is the one that training runs: data made on the device, every frame, gradient and update. The state goes on
from call to call as in training, and a call has ended when its results are there.
"""

import contextlib
import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sqair.config import Preset
from sqair.data import GeneratedSource, Source, open_data
from sqair.training.step import first_state, seed_keys, train_steps

FIRST_BATCH = 32
"""Where the search for the best batch begins when no other batch was measured."""
GAIN = 1.03
"""A batch twice as large must give so many times the sequences per second, or the search ends."""
MOST_STEPS = 1000
"""Steps of a timed call at most."""
GROWTH = {"N": (1, 2, 3, 4, 5, 6), "T": (5, 10, 15, 20), "K": (2, 5, 10, 20)}
"""Numbers of slots, frames and particles at which the step is timed; VIMCO needs two particles at least."""

Say = Callable[[str], None]


class OutOfMemory(Exception):
    """The device has not enough memory."""


class Effort(NamedTuple):
    """How carefully to measure."""

    calls: int
    """Timed calls, of which the median counts."""
    seconds: float
    """How long a call should last at least."""


FULL, QUICK = Effort(5, 0.5), Effort(3, 0.1)


class Timing(NamedTuple):
    """The time of a train step with one batch size."""

    batch: int
    discovery_dropout: float
    """Share of later frames that are without discovery; 0 lets every frame discover."""
    first_call_s: float
    """Seconds of the first call, which compiles and makes one step."""
    ms_per_step: float
    """Median over the timed calls, in milliseconds ..."""
    ms_per_step_all: list[float]
    """... which were these ..."""
    steps_per_call: int
    """... of so many steps each."""
    sequences_per_s: float
    peak_memory_mib: float | None
    """The most that was in use; None if the device does not tell, or if something before had needed as much."""


def time_step(preset: Preset, source: Source, effort: Effort) -> Timing:
    """Time the train step of a preset on sequences of full length; raises OutOfMemory."""
    config = dataclasses.replace(preset.train, first_length=preset.data.length)
    keys, before = seed_keys(config.seed), peak_memory()
    with memory_watched():
        state = first_state(preset, keys.weights)

        def call(count: int) -> float:
            nonlocal state
            begin = time.perf_counter()
            state = jax.block_until_ready(train_steps(state, source, keys.steps, config, jnp.array(count)))
            return time.perf_counter() - begin

        first = call(1)
        count = min(MOST_STEPS, max(1, math.ceil(effort.seconds / call(1))))
        times = [call(count) / count for _ in range(effort.calls)]
    middle, peak = statistics.median(times), peak_memory()
    return Timing(
        batch=config.batch,
        discovery_dropout=config.discovery_dropout,
        first_call_s=round(first, 2),
        ms_per_step=round(1000 * middle, 3),
        ms_per_step_all=[round(1000 * value, 3) for value in times],
        steps_per_call=count,
        sequences_per_s=round(config.batch / middle, 1),
        peak_memory_mib=None if peak is None or peak == before else round(peak / 2**20, 1),
    )


def peak_memory() -> int | None:
    """The most bytes that this process has had in use on the device; None where the backend does not tell."""
    stats = jax.devices()[0].memory_stats() or {}
    return stats.get("peak_bytes_in_use")


@contextlib.contextmanager
def memory_watched() -> Iterator[None]:
    """Turn what jax raises when memory ends into OutOfMemory."""
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
            raise OutOfMemory from error
        raise


# --- batches


def time_batches(preset: Preset, batches: Sequence[int], best: bool, effort: Effort, say: Say) -> dict[str, Any]:
    """Time the step at each of `batches` and, with `best`, at larger ones up to where sequences/s are most.

    Each is timed as the preset trains it; those asked for and the best one with every frame allowed to discover too.
    Returns `rows`, a table of each Timing; `best_batch` and `best_because`, how its search ended, or None;
    `out_of_memory`, those of `batches` that were too large.
    """
    source, too_large = open_data(preset.data, "train"), []

    def measure(batch: int, dropout: float = preset.train.discovery_dropout) -> Timing:
        say(f"batch {batch}, every frame may discover" if dropout == 0 else f"batch {batch}")
        train = dataclasses.replace(preset.train, batch=batch, discovery_dropout=dropout)
        return time_step(dataclasses.replace(preset, train=train), source, effort)

    rows, because = [], None
    for batch in sorted(set(batches or [FIRST_BATCH])):
        try:
            rows.append(measure(batch))
        except OutOfMemory:
            say(f"out of memory at batch {batch}")
            too_large.append(batch)
    if best and rows:
        more, because = search(rows[-1], measure)
        say(because)
        rows += more
    top = max(rows, key=lambda row: row.sequences_per_s).batch if best and rows else None
    if preset.train.discovery_dropout > 0:
        rows += _every_frame(sorted({*batches, top} - {None, *too_large}), measure, say)
    return {
        "rows": [row._asdict() for row in sorted(rows, key=lambda row: (row.batch, -row.discovery_dropout))],
        "best_batch": top,
        "best_because": because,
        "out_of_memory": too_large,
    }


def search(start: Timing, measure: Callable[[int], Timing]) -> tuple[list[Timing], str]:
    """Double the batch until sequences/s stop growing or memory ends; what was measured, and which it was."""
    found = [start]
    while True:
        batch = 2 * found[-1].batch
        try:
            found.append(measure(batch))
        except OutOfMemory:
            return found[1:], f"out of memory at batch {batch}"
        if found[-1].sequences_per_s < GAIN * found[-2].sequences_per_s:
            return found[1:], f"sequences/s stopped growing at batch {batch}"


def _every_frame(batches: Sequence[int], measure: Callable[[int, float], Timing], say: Say) -> list[Timing]:
    """The same with every frame allowed to discover."""
    found = []
    for batch in batches:
        try:
            found.append(measure(batch, 0.0))
        except OutOfMemory:
            say(f"out of memory at batch {batch} when every frame may discover")
    return found


# --- growth with N, T and K


def time_growth(
    preset: Preset, batch: int, effort: Effort, say: Say, *, ends_only: bool = False
) -> list[dict[str, Any]]:
    """How the step's time grows with slots, frames and particles, each alone.

    One table for each: `knob`; `batch`; `default`, the preset's value; `values`; `ms_per_step`; `ratio` to the
    default's time, None where memory did not suffice; `exponent`, the p of the best fit by value^p.
    """
    preset = dataclasses.replace(preset, train=dataclasses.replace(preset.train, batch=batch))
    source, tables = open_data(preset.data, "train"), []
    for knob, default in sizes(preset).items():
        if default is None:
            continue
        usual = GROWTH[knob]
        values = sorted({default, *((usual[0], usual[-1]) if ends_only else usual)})
        times = []
        for value in values:
            say(f"{knob} = {value}")
            changed = with_size(preset, knob, value)
            try:
                times.append(time_step(changed, with_config(source, changed), effort).ms_per_step)
            except OutOfMemory:
                say(f"out of memory at {knob} = {value}")
                times.append(None)
        tables.append({"knob": knob, "batch": batch, "default": default, **relate(values, times, default)})
    return tables


def sizes(preset: Preset) -> dict[str, int | None]:
    """N, T and K of a preset; N is None for a model without slots."""
    slots = None if preset.model.kind == "vrnn" else preset.model.max_objects
    return {"N": slots, "T": preset.data.length, "K": preset.train.particles}


def with_size(preset: Preset, knob: str, value: int) -> Preset:
    """The preset with N, T or K changed."""
    part, name = {"N": ("model", "max_objects"), "T": ("data", "length"), "K": ("train", "particles")}[knob]
    return dataclasses.replace(preset, **{part: dataclasses.replace(getattr(preset, part), **{name: value})})


def with_config(source: Source, preset: Preset) -> Source:
    """The source with the data config of `preset`; its digits are not made again."""
    return GeneratedSource(source.digits, preset.data) if isinstance(source, GeneratedSource) else source


def relate(values: Sequence[int], times: Sequence[float | None], default: int) -> dict[str, Any]:
    """Ratios to the time of `default`, and the exponent of the power law that fits best."""
    usual = times[list(values).index(default)]
    known = [(value, took) for value, took in zip(values, times, strict=True) if took is not None]
    return {
        "values": list(values),
        "ms_per_step": list(times),
        "ratio": [None if took is None or usual is None else round(took / usual, 3) for took in times],
        "exponent": exponent(known) if len(known) > 1 else None,
    }


def exponent(points: Sequence[tuple[int, float]]) -> float:
    """The slope of a line through the logarithms of values and times."""
    values, times = np.log(np.array(points)).T
    return round(float(np.polyfit(values, times, 1)[0]), 3) + 0.0  # never -0.0

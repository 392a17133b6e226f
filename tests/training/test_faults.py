"""Faults: spikes are skipped, bad steps in a row lead back, memory and disk are named; runs stay exact and intact."""

import dataclasses
import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sqair import files
from sqair.config import Preset, UserError
from sqair.training import faults, loop, pace, population, runs
from sqair.training.loop import Progress, Stopped, train
from sqair.training.optimiser import GuardState, guarded
from sqair.training.resume import checkpoints, newest
from sqair.training.step import TrainState

# --- spikes


def walk(norms: list[float], spike: float = 10.0) -> tuple[list[bool], GuardState]:
    """Which steps were taken, of gradients with these norms."""
    rule = guarded(optax.sgd(1.0), 0.0, spike)
    state, taken = cast(GuardState, rule.init(jnp.zeros(1))), []
    for norm in norms:
        moved, after = rule.update(jnp.array([norm]), state)
        state = cast(GuardState, after)
        assert bool(state.last_finite) == bool(jnp.any(jnp.asarray(moved) != 0))
        taken.append(bool(state.last_finite))
    return taken, state


def test_a_spike_is_skipped_and_a_usual_gradient_is_not() -> None:
    taken, state = walk([1.0, 2.0, 9.0, 50.0, 1.0])
    assert taken == [True, True, True, False, True]
    assert int(state.total_notfinite) == 1


def test_no_gradient_is_a_spike_where_none_is_to_be() -> None:
    assert walk([1.0, 1e6], spike=0.0)[0] == [True, True]
    assert walk([1e6, 1.0])[0] == [True, True], "the first has nothing to be compared with"


def test_gradients_that_stay_large_are_soon_taken() -> None:
    taken = walk([1.0, *[1e4] * 100], spike=100.0)[0]
    assert taken[1:4] == [False] * 3
    assert all(taken[10:])


def test_a_gradient_that_is_not_finite_does_not_touch_the_mean() -> None:
    taken, state = walk([2.0, np.nan, np.inf])
    assert taken == [True, False, False]
    assert float(state.norm) == 2.0


def test_a_lower_rate_makes_smaller_steps() -> None:
    rule = guarded(optax.sgd(1.0), 0.0)
    state = rule.init(jnp.zeros(1))
    assert isinstance(state, GuardState)
    moved, _ = rule.update(jnp.array([3.0]), state._replace(rate=jnp.array(0.5)))
    assert jnp.asarray(moved) == -1.5


# --- going back


@pytest.fixture(scope="module")
def quick(small: Preset) -> Preset:
    """One slot and few steps, with an evaluation every ten."""
    model = dataclasses.replace(small.model, max_objects=1)
    config = dataclasses.replace(small.train, steps=40, evaluate_every=10, batch=4, stage=10)
    return dataclasses.replace(small, model=model, train=config)


def bad_from(step: int, rate: float) -> Callable[..., TrainState]:
    """Training whose steps are all bad from `step` on while the learning rate is at least `rate` times its own."""
    real = population.train_steps

    def steps(state: TrainState, source: Any, key: Any, config: Any, count: Any) -> TrainState:
        left = int(count)
        if float(state.optimiser.rate) < rate:
            return real(state, source, key, config, count)
        good = max(min(left, step - int(state.step)), 0)
        state = real(state, source, key, config, jnp.array(good)) if good else state
        skipped = int(state.optimiser.notfinite_count)
        bad = min(left - good, loop.MOST_SKIPPED + 1 - skipped)
        guard = state.optimiser._replace(notfinite_count=jnp.array(skipped + bad, jnp.int32))
        return state._replace(step=state.step + bad, optimiser=guard)

    return steps


def test_after_several_bad_steps_it_goes_back_with_a_lower_rate_and_says_so(
    quick: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(population, "train_steps", bad_from(13, rate=0.5))
    long = dataclasses.replace(quick, train=dataclasses.replace(quick.train, evaluate_every=40))
    train(long, tmp_path / "long")
    events = runs.read_run(tmp_path / "long")["rollbacks"]
    assert [event["to"] for event in events] == [0, 0]
    assert [event["rate"] for event in events] == [0.5, 0.25]
    assert "step 34: 21 steps in a row had gradients" in (said := capsys.readouterr().err)
    assert "back to step 0, with 0.25 times the learning rate" in said
    assert runs.read_run(tmp_path / "long")["outcome"] == "finished"


def test_a_run_that_went_back_is_exact(quick: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped by a signal among its bad steps, or after it went back, it ends as one that was never stopped."""
    monkeypatch.setattr(pace, "MOST_STEPS", 3)
    monkeypatch.setattr(loop, "MOST_SKIPPED", 8)
    monkeypatch.setattr(population, "train_steps", bad_from(23, rate=1.0))
    every = dataclasses.replace(quick, train=dataclasses.replace(quick.train, evaluate_every=20, keep=1))
    train(every, tmp_path / "whole", quiet=True)
    out = tmp_path / "stopped"
    for stop in (25, 30, 35):
        with pytest.raises(Stopped):
            train(every, out, quiet=True, resume=out.exists(), callbacks=[kill_at(stop)])
    train(every, out, quiet=True, resume=True)
    for name in ("model", "state"):
        files = [run / f"checkpoints/00000040/{name}.safetensors" for run in (out, tmp_path / "whole")]
        assert files[0].read_bytes() == files[1].read_bytes(), name
    told = [runs.read_run(run)["rollbacks"] for run in (out, tmp_path / "whole")]
    assert told[0] == told[1] == [{"step": 32, "to": 20, "rate": 0.5}]


def kill_at(step: int) -> Callable[[Progress], None]:
    def callback(progress: Progress) -> None:
        if progress.step >= step:
            os.kill(os.getpid(), signal.SIGTERM)

    return callback


def test_steps_end_where_too_many_were_skipped(quick: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With real gradients that are not finite: weights that are no numbers."""
    monkeypatch.setattr(loop.Population, "first", poisoned(loop.Population.first))
    monkeypatch.setattr(loop, "is_check", lambda *_: False)
    long = dataclasses.replace(quick, train=dataclasses.replace(quick.train, evaluate_every=40))
    with pytest.raises(UserError, match=r"diverged: the last 21 steps up to 21 .*lowered 3 times; lower --train"):
        train(long, tmp_path)
    events = runs.read_run(tmp_path)["rollbacks"]
    assert [(event["step"], event["to"], event["rate"]) for event in events] == [
        (21, 0, 0.5),
        (21, 0, 0.25),
        (21, 0, 0.125),
    ]


def poisoned(first: Callable[..., TrainState]) -> Callable[..., TrainState]:
    def call(self: Any) -> TrainState:
        state = first(self)
        return state._replace(model=jax.tree.map(lambda leaf: leaf * jnp.nan, state.model))

    return call


# --- memory


def test_too_little_memory_suggests_a_smaller_batch(
    quick: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> TrainState:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.")

    monkeypatch.setattr(population, "train_steps", refuse)
    with pytest.raises(faults.OutOfMemory, match=r"with 4 sequences; try --train.batch 2, or have --fit-memory"):
        train(quick, tmp_path, quiet=True)


def test_a_batch_that_fits_is_found(quick: Preset, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def steps(state: TrainState, _: Any, __: Any, config: Any, ___: Any) -> TrainState:
        asked.append(config.batch)
        if config.batch > smallest[0]:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.")
        return state

    smallest = [1]
    monkeypatch.setattr(population, "train_steps", steps)
    assert faults.fitting(quick, lambda _: None).train.batch == 1
    assert asked == [4, 2, 1]
    smallest[0] = 0
    with pytest.raises(faults.OutOfMemory):
        faults.fitting(quick, lambda _: None)


def test_a_process_that_is_gone_is_named(quick: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> None:
        with faults.explained(quick.train, tmp_path):
            raise ValueError("UNKNOWN: Gloo AllGather failed: Connection closed by peer")

    with pytest.raises(ValueError, match="Gloo"):
        lost()
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(faults.LostContact, match="start all of them again with --resume"):
        lost()


# --- disk


class Disk:
    """A disk that is full from some write, sync or rename on; it counts them, and `left` says how many still work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, left: int) -> None:
        self.left = left
        for module, name in ((os, "fsync"), (os, "replace"), (files.os, "chmod"), (Path, "rename")):
            monkeypatch.setattr(module, name, self.limited(getattr(module, name)))

    def limited(self, real: Callable) -> Callable:
        def call(*arguments: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*arguments, **named)

        return call


def test_a_full_disk_stops_with_all_that_was_saved_intact(quick: Preset, tmp_path: Path) -> None:
    """At some file operation of a run, soak tests do it at all: what is there resumes and ends as if nothing was."""
    short = dataclasses.replace(quick, train=dataclasses.replace(quick.train, evaluate_every=20))
    whole = train(short, tmp_path / "whole", quiet=True)
    expected = (whole / "checkpoints/00000040/state.safetensors").read_bytes()
    found = []
    for left in (0, 20, 50, 77, 95):
        out = tmp_path / str(left)
        with pytest.MonkeyPatch.context() as patch:
            Disk(patch, left)
            with pytest.raises(UserError, match="full; what was saved before is intact: make room and continue with"):
                train(short, out, quiet=True)
        found.append(newest(out).notes.step if checkpoints(out) else None)
        train(short, out, quiet=True, resume=found[-1] is not None)
        assert (out / "checkpoints/00000040/state.safetensors").read_bytes() == expected
    assert found[0] is None, "nothing was written, so nothing is in the way of a new run"
    assert {0, 20} <= set(found)

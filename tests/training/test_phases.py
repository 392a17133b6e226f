"""A first phase with digits of another size: where it ends, what is compiled and looked at, and that it resumes."""

import dataclasses
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from sqair.commands.train import Train
from sqair.config import DataConfig, Preset, TrainConfig, UserError
from sqair.data import GeneratedSource, Source, open_data, open_first
from sqair.settings import check
from sqair.training import health, loop, pace, population
from sqair.training.checkpoint import load_model
from sqair.training.faults import fitting
from sqair.training.health import Watch
from sqair.training.loop import Progress, Stopped, train
from sqair.training.manifest import write_manifest
from sqair.training.phases import Phases, open_phases
from sqair.training.population import Population, essential
from sqair.training.resume import check_resumable, checkpoints, newest
from sqair.training.runs import read_metrics, read_run
from sqair.training.step import seed_keys, train_steps
from sqair.training.validation import Validation

SWITCH, STEPS = 7, 80
FIRST, LATER = 10, 6
"""The largest digits of both phases in pixels: strokes of 20, scaled by .5 and .3."""
TIMES = ("seconds", "sequences_per_second")


@pytest.fixture(scope="module")
def phased(small: Preset) -> Preset:
    """Small digits after larger ones. Checks come every two steps, evaluations every five: none at the switch."""
    data = DataConfig(digits="strokes", length=3, size=(12, 12), max_digits=1, digit_scale=0.3, speed=2.0)
    changes = {"steps": STEPS, "warm_up": 2, "stage": 10, "evaluate_every": 5, "keep": 100, "batch": 4}
    return Preset(
        dataclasses.replace(small.model, max_objects=1),
        dataclasses.replace(data, first_scale=0.5),
        dataclasses.replace(small.train, **changes, first_scale_steps=SWITCH),
    )


def changed(preset: Preset, **changes: Any) -> Preset:
    return dataclasses.replace(preset, train=dataclasses.replace(preset.train, **changes))


@dataclasses.dataclass
class Seen:
    """What a whole run did: its folder, its calls for steps, its checks, and how often its step was compiled."""

    out: Path
    calls: list[tuple[int, int, Source]]
    """The step, how many steps, and their source."""
    bests: list[float | None]
    """The best bound that each check compares with."""
    compiled: int


@pytest.fixture(scope="module")
def seen(phased: Preset, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    calls, bests, advance, name = [], [], Population.advance, health.alarm.name_failure

    def advanced(self: Population, state: Any, source: Source, count: int) -> Any:
        calls.append((int(state.step), count, source))
        return advance(self, state, source, count)

    def named(*arguments: Any, **rest: Any) -> str | None:
        bests.append(rest["best_bound"])
        return name(*arguments, **rest)

    before = programs()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Population, "advance", advanced)
        patch.setattr(health.alarm, "name_failure", named)
        out = train(phased, tmp_path_factory.mktemp("runs") / "whole", quiet=True)
    return Seen(out, calls, bests, programs() - before)


def programs() -> int:
    """How many programs `train_steps` was compiled into."""
    return train_steps._cached._cache_size()  # type: ignore[attr-defined]


@eqx.filter_jit
def boxes_of(source: Source) -> Any:
    return source.batch(jax.random.key(1), 200).boxes


def largest(source: Source) -> float:
    """The longest side of any digit in many sequences."""
    return float(np.nanmax(np.asarray(boxes_of(source))[..., 2:]))


# --- the data


def test_images_of_both_sizes_are_alike(phased: Preset) -> None:
    """A program that was compiled for one source takes the other: form, shapes, types and settings are the same."""
    first, later = open_first(phased.data, "train"), open_data(phased.data, "train")
    assert isinstance(first, GeneratedSource)
    assert isinstance(later, GeneratedSource)
    assert (first.digits.images.shape[1:], largest(first), largest(later)) == ((FIRST, FIRST), FIRST, LATER)
    for of in (jax.tree.structure, lambda tree: jax.tree.map(jax.typeof, tree)):
        assert of(first) == of(later)


def test_the_room_in_images_does_not_show_in_sequences(phased: Preset) -> None:
    plain = open_data(dataclasses.replace(phased.data, first_scale=0.0), "validation")
    roomy = open_data(phased.data, "validation")
    assert isinstance(plain, GeneratedSource)
    assert isinstance(roomy, GeneratedSource)
    assert (plain.digits.images.shape[1], roomy.digits.images.shape[1]) == (LATER, FIRST)
    assert all(map(np.array_equal, plain.fixed(50).frames, roomy.fixed(50).frames))


def test_without_a_first_phase_there_is_one_source(phased: Preset) -> None:
    data = dataclasses.replace(phased.data, first_scale=0.0)
    sources = open_phases(changed(dataclasses.replace(phased, data=data), first_scale_steps=0), "train")
    assert sources.first is sources.later
    both = sources.map(lambda _: object())
    assert both.first is both.later


def test_what_has_no_room_at_first_is_refused(phased: Preset) -> None:
    crowded = dataclasses.replace(phased.data, first_scale=0.7)
    assert open_data(crowded, "train")
    with pytest.raises(UserError, match="lower max_digits or first_scale"):
        open_first(crowded, "train")


@pytest.mark.parametrize(
    ("data", "train", "line"),
    [
        ({}, {"first_scale_steps": 3}, r"train\.first_scale_steps needs .* give data\.first_scale, too"),
        ({"first_scale": 1.0}, {}, r"data\.first_scale needs .* give train\.first_scale_steps, too, or leave both 0"),
        ({"name": "x.npz"}, {"first_scale_steps": 3}, r"are for generated digits, not for x\.npz; leave both 0"),
        ({"name": "x.npz", "first_scale": 1.0}, {}, r"are for generated digits, not for x\.npz; leave both 0"),
        ({"first_scale": -1.0}, {"first_scale_steps": 3}, r"data\.first_scale must be between 0 and 16, not -1\.0"),
        ({"first_scale": 17.0}, {"first_scale_steps": 3}, r"data\.first_scale must be between 0 and 16, not 17\.0"),
        ({"first_scale": 1.0}, {"first_scale_steps": 31, "steps": 30}, r"must be at most train\.steps, 30, not 31"),
        ({"first_scale": 1.0}, {"first_scale_steps": -3}, r"train\.first_scale_steps must be at least 0, not -3"),
    ],
)
def test_phases_that_cannot_be(data: dict, train: dict, line: str) -> None:
    with pytest.raises(UserError, match=line):
        check(Preset(data=DataConfig(**data), train=TrainConfig(**train)))


# --- the run


def test_digits_change_at_the_switch_and_nowhere_else(seen: Seen) -> None:
    steps = [step for step, _, _ in seen.calls]
    assert [step + count for step, count, _ in seen.calls] == [*steps[1:], STEPS]
    assert SWITCH in steps
    sources = {id(source): source for _, _, source in seen.calls}
    sizes = {name: largest(source) for name, source in sources.items()}
    assert [sizes[id(source)] for _, _, source in seen.calls] == [FIRST if step < SWITCH else LATER for step in steps]


def test_both_phases_are_one_program(seen: Seen) -> None:
    assert seen.compiled == 1


def test_a_batch_that_fits_memory_was_compiled_for_the_run(phased: Preset, seen: Seen) -> None:
    before = programs()
    assert fitting(phased, lambda _: None) == phased
    assert programs() == before


def test_the_switch_is_no_part_of_the_program(phased: Preset) -> None:
    assert essential(phased.train) == essential(dataclasses.replace(phased.train, first_scale_steps=0))


@pytest.mark.parametrize("step", [5, 70])
def test_the_bound_is_always_that_of_the_digits_wanted(phased: Preset, seen: Seen, step: int) -> None:
    plain = dataclasses.replace(phased.data, first_scale=0.0)
    validation, only = Validation(open_data(plain, "validation"), phased), Population(phased)
    (folder,) = [folder for folder in checkpoints(seen.out) if int(folder.name) == step]
    (found,) = validation(only, load_model(folder), seed_keys(phased.train.seed).validation)
    (line,) = [line for line in read_metrics(seen.out) if line["step"] == step]
    assert line["validation_bound"] == found["validation_bound"]


@pytest.mark.parametrize("stop", [3, SWITCH, 9])
def test_stopped_on_either_side_of_the_switch_it_ends_the_same(
    phased: Preset, seen: Seen, tmp_path: Path, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "MOST_STEPS", 1)

    def end(progress: Progress) -> None:
        if progress.step == stop:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped):
        train(phased, tmp_path, quiet=True, callbacks=[end])
    assert newest(tmp_path).notes.step == stop
    monkeypatch.undo()
    train(phased, tmp_path, quiet=True, resume=True)
    assert numbers(tmp_path) == numbers(seen.out)
    assert newest(tmp_path).notes.members == newest(seen.out).notes.members, "what checks remember"
    for folder in (f"checkpoints/{STEPS:08d}", "best", ""):
        assert tensors(tmp_path / folder) == tensors(seen.out / folder), folder


def numbers(run: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without what a clock tells."""
    return [{k: v for k, v in line.items() if k not in TIMES} for line in read_metrics(run)]


def tensors(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def test_resuming_refuses_another_switch(phased: Preset, seen: Seen) -> None:
    with pytest.raises(UserError, match=r"cannot resume .*: train\.first_scale_steps differs"):
        train(changed(phased, first_scale_steps=9), seen.out, quiet=True, resume=True)


def test_a_resumed_run_keeps_its_phases(phased: Preset, seen: Seen, tmp_path: Path) -> None:
    """Also one of an older program, which trained small digits from the start and knew of no first ones."""
    assert Train.parse(["tiny", "--resume", "--out", str(seen.out)]).resolved() == phased
    old = shutil.copytree(seen.out, tmp_path / "old")
    for folder in checkpoints(old):
        notes = json.loads((folder / "state.json").read_text())
        del notes["preset"]["data"]["first_scale"], notes["preset"]["train"]["first_scale_steps"]
        (folder / "state.json").write_text(json.dumps(notes))
        write_manifest(folder)
    data = dataclasses.replace(phased.data, first_scale=0.0)
    plain = changed(dataclasses.replace(phased, data=data), first_scale_steps=0)
    assert Train.parse(["tiny", "--resume", "--out", str(old)]).resolved() == plain
    assert check_resumable(old, plain).notes.step == STEPS


def test_the_first_phase_is_not_a_lack_of_progress(
    phased: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds only fall, but evaluations at 2, 4 and 6 do not count: those at 8 and 10 exhaust the patience."""
    bounds = iter(range(0, -100, -1))
    monkeypatch.setattr(loop.Validation, "__call__", lambda *_: [{"validation_bound": float(next(bounds))}])
    monkeypatch.setattr(loop, "is_check", lambda *_: False)
    train(changed(phased, evaluate_every=2, patience=2), tmp_path, quiet=True)
    assert read_run(tmp_path)["outcome"] == "stopped early"
    assert read_metrics(tmp_path)[-1]["step"] == 10


# --- the alarm


def test_the_alarm_looks_at_digits_as_they_are_trained(phased: Preset, monkeypatch: pytest.MonkeyPatch) -> None:
    """After step 7 the last digits that the model has seen are large, after step 8 they are small."""
    told: list[Any] = []

    def validated(self: Validation, *_: Any) -> list[dict[str, float]]:
        told.append(self.frames)
        return [{"validation_bound": 0.0}]

    def mapped(function: Any, model: Any, key: Any, frames: Any) -> jax.Array:
        assert function is health.alarm.measure
        told.append(frames)
        return jnp.zeros(1)

    def named(_: Any, scene: Any, **__: Any) -> None:
        told.append(scene)

    sources = open_phases(phased, "validation")
    large, little = (np.asarray(source.fixed(12, 1).frames) for source in (sources.first, sources.later))
    assert large.sum() > 1.5 * little.sum()
    only = Population(phased)
    state = only.first()
    watch = Watch(only, sources.map(lambda source: Validation(source, phased)), jax.random.key(0))
    monkeypatch.setattr(Validation, "__call__", validated)
    monkeypatch.setattr(only, "map", mapped)
    monkeypatch.setattr(health.alarm, "name_failure", named)
    for step, expected in ((1, large), (SWITCH, large), (SWITCH + 1, little), (STEPS, little)):
        told.clear()
        watch.check(state._replace(step=jnp.array(step)))
        bound, measured, scene = told
        assert np.array_equal(bound, expected)
        assert np.array_equal(measured, expected)
        assert all(map(np.array_equal, scene, health.alarm.look(expected)))


def test_bounds_of_other_digits_are_no_measure(seen: Seen) -> None:
    """Checks come after steps 2, 4 and 6, and again from 8 on."""
    assert [best is None for best in seen.bests] == [True, False, False, True] + [False] * (STEPS // 2 - 4)


# --- many devices


def test_data_is_placed_anew_at_the_switch(phased: Preset, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[Any] = []

    def steps(state: Any, source: Any, *_: Any) -> Any:
        used.append(source)
        return state

    monkeypatch.setattr(population, "place", lambda mesh, tree, **_: jax.tree.map(lambda leaf: leaf, tree))
    monkeypatch.setattr(population, "collect", lambda mesh, tree: tree)
    monkeypatch.setattr(population, "train_steps", steps)
    many = Population(phased, Mesh(np.array(jax.devices()[:1]), ("batch",)))
    phases = Phases(open_first(phased.data, "train"), open_data(phased.data, "train"), SWITCH)
    for step in (0, 3, SWITCH, 3):
        many.advance(many.blank(), phases.at(step), 1)
    large = largest(phases.first)
    assert [largest(source) == large for source in used] == [True, True, False, True]
    assert used[0] is used[1], "it stays there between calls"

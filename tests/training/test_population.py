"""Populations: many members in one program, each as if it were alone; the best is chosen by its bound; restarts."""

import dataclasses
import inspect
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sqair.config import Preset
from sqair.data import open_data
from sqair.training import health, population
from sqair.training.checkpoint import load_model, named_arrays, read_card
from sqair.training.loop import Progress, Stopped, train
from sqair.training.population import Population, catch_up, train_members
from sqair.training.resume import checkpoints, newest
from sqair.training.runs import read_metrics, read_run
from sqair.training.step import Nvil, TrainState, first_state, seed_keys, train_steps

RATES = (3e-3, 1e-3)
TIMES = ("seconds", "sequences_per_second")


@pytest.fixture(scope="module")
def four(small: Preset) -> Preset:
    """Two learning rates with two seeds each, in half the steps, with one slot. All tests share its compiled step."""
    sweep = (f"learning_rate={','.join(map(str, RATES))}",)
    small = dataclasses.replace(small, model=dataclasses.replace(small.model, max_objects=1))
    return changed(small, batch=4, steps=120, stage=30, evaluate_every=40, members=2, sweep=sweep)


def changed(preset: Preset, **changes: Any) -> Preset:
    return dataclasses.replace(preset, train=dataclasses.replace(preset.train, **changes))


class Named:
    """Stands for the alarm: names what it is told for each member, in the order of the checks."""

    def __init__(self, failures: Callable[[int, int], str | None]) -> None:
        self.failures, self.calls = failures, 0

    def __call__(self, *_: Any, **__: Any) -> str | None:
        check, member = divmod(self.calls, 4)
        self.calls += 1
        return self.failures(check, member)


@pytest.fixture
def alarm(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable], None]:
    """Replace the alarm by one that names what a function of (check, member) says."""

    def set_alarm(failures: Callable[[int, int], str | None]) -> None:
        monkeypatch.setattr(health.alarm, "measure", no_signals)
        monkeypatch.setattr(health.alarm, "name_failure", Named(failures))

    return set_alarm


def no_signals(*_: Any) -> jax.Array:
    return jnp.zeros(())


@pytest.fixture(scope="module")
def finished(four: Preset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A population from start to end; its third member fails at all checks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(health.alarm, "measure", no_signals)
        patch.setattr(health.alarm, "name_failure", Named(failing))
        out = tmp_path_factory.mktemp("runs") / "whole"
        return train(changed(four, restart_collapsed=True), out, quiet=True)


def failing(_: int, member: int) -> str | None:
    return "ghosts" if member == 2 else None


def numbers(run: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if k not in TIMES} for line in read_metrics(run)]


def tensors(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def member_of(tree: Any, i: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[i], eqx.filter(tree, eqx.is_array))


def assert_equal(a: Any, b: Any) -> None:
    left, right = (named_arrays(eqx.filter(tree, eqx.is_array)) for tree in (a, b))
    assert left.keys() == right.keys()
    for name, array in left.items():
        assert np.array_equal(array, right[name]), name


# --- the program


def test_a_member_is_what_it_would_be_alone(four: Preset) -> None:
    """The second seed with the first learning rate: same weights at first, and the same steps but for rounding."""
    source, many = open_data(four.data, "train"), Population(four)
    states = many.first()
    alone = changed(four, members=1, sweep=(), seed=1)
    keys = seed_keys(1)
    start = first_state(alone, keys.weights)
    assert_equal(member_of(states.model, 1), start.model)
    states = many.advance(states, source, 4)
    state = train_steps(start, source, keys.steps, population.essential(alone.train), jnp.array(4))
    assert (int(states.step), int(state.step)) == (4, 4)
    bounds, bound = np.asarray(states.totals.bound), float(state.totals.bound)
    assert np.isclose(bounds, bound, rtol=1e-5).tolist() == [False, True, False, False]
    moved, apart = (
        distance(state.model, start.model),
        [distance(state.model, many.take(states.model, i)) for i in (1, 3)],
    )
    assert apart[0] < 0.02 * moved
    assert apart[1] > 0.2 * moved, "another learning rate"


def distance(a: Any, b: Any) -> float:
    """The mean difference of the parameters of two models."""
    pairs = zip(named_arrays(a).values(), named_arrays(b).values(), strict=True)
    return float(np.mean(np.concatenate([np.abs(x - y).ravel() for x, y in pairs])))


def test_the_step_is_shared_so_that_branches_on_it_stay_branches(four: Preset, monkeypatch) -> None:
    def step(state: TrainState, *_: Any) -> TrainState:
        moved = jax.lax.cond(state.step < 2, lambda bound: bound + 1, lambda bound: bound, state.totals.bound)
        return state._replace(step=state.step + 1, totals=state.totals._replace(bound=moved))

    monkeypatch.setattr(population, "train_step", step)
    many = Population(four)
    states = eqx.filter_eval_shape(many.first)
    assert states.step.shape == ()
    assert all(leaf.shape[0] == 4 for leaf in jax.tree.leaves(eqx.filter(states._replace(step=None), eqx.is_array)))
    states = many.first()
    source, keys = open_data(four.data, "train"), jnp.stack([jax.random.key(0)] * 4)
    raw = inspect.unwrap(train_members)
    program, _, _ = eqx.filter_make_jaxpr(raw)(states, source, keys, many.knobs(), four.train, jnp.array(3))
    assert "cond[" in str(program)


def conds(program: Any) -> int:
    """Branches in a program and in the programs inside it."""

    def inside(value: Any) -> int:
        if isinstance(value, tuple | list):
            return sum(map(inside, value))
        return conds(getattr(value, "jaxpr", value)) if hasattr(value, "eqns") or hasattr(value, "jaxpr") else 0

    return sum((step.primitive.name == "cond") + inside(tuple(step.params.values())) for step in program.eqns)


def test_no_branch_of_the_step_is_lost_to_a_population(small: Preset) -> None:
    """Under vmap a branch on something that members do not share becomes a choice between both results."""
    source, key = open_data(small.data, "train"), jax.random.key(0)
    states = [eqx.filter_eval_shape(Population(changed(small, members=members)).first) for members in (1, 2)]
    steps, members = (eqx.filter_make_jaxpr(inspect.unwrap(function)) for function in (train_steps, train_members))
    alone, _, _ = steps(states[0], source, key, small.train, jnp.array(1))
    both, _, _ = members(states[1], source, jnp.stack([key, key]), {}, small.train, jnp.array(1))
    assert conds(both.jaxpr) == conds(alone.jaxpr) > 0


def test_validation_and_checks_are_exact(four: Preset) -> None:
    seen: list[Any] = []

    def look(_: Any) -> jax.Array:
        seen.append(jax.config.jax_default_matmul_precision)  # pyright: ignore[reportAttributeAccessIssue]
        return jnp.zeros(())

    many = Population(four)
    many.map(look, many.first().model)
    assert seen == ["highest"]


def test_only_what_differs_is_an_array(four: Preset) -> None:
    knobs = Population(four).knobs()
    assert list(knobs) == ["learning_rate"]
    assert np.allclose(knobs["learning_rate"], [3e-3, 3e-3, 1e-3, 1e-3])


def test_a_value_that_all_members_share_is_swept_too(four: Preset, monkeypatch) -> None:
    seen: list[tuple] = []

    def noted(state: TrainState, *arguments: Any) -> TrainState:
        seen.append(arguments)
        return state

    monkeypatch.setattr(population, "train_members", noted)
    many = Population(changed(four, sweep=("learning_rate=0.5", "discovery_cost=1,2")))
    many.advance(many.first(), open_data(four.data, "train"), 1)
    *_, knobs, config, _ = seen[0]
    assert list(knobs) == ["discovery_cost"]
    assert config.learning_rate == 0.5


def test_members_are_taken_and_replaced(four: Preset) -> None:
    many = Population(four)
    states = many.first()
    states = states._replace(counted=jnp.arange(4), step=jnp.array(9))
    copied = many.copied(states, 0, 3)
    assert_equal(member_of(copied._replace(step=None), 0), member_of(states._replace(step=None), 3))
    assert_equal(member_of(copied._replace(step=None), 1), member_of(states._replace(step=None), 1))
    many.members[2].restart()
    afresh = many.afresh(states, 2)
    assert (int(copied.step), int(afresh.step)) == (9, 9)
    assert_equal(member_of(afresh.model, 2), first_state(four, seed_keys(1000).weights).model)
    assert_equal(many.take(states.model, 1), member_of(states.model, 1))
    assert many.without_totals(states).counted.tolist() == [0] * 4


def test_a_restarted_members_learning_rate_catches_up(four: Preset) -> None:
    states = Population(four).first()._replace(step=jnp.array(60))

    def counts(optimiser: Any) -> list[Any]:
        parts = jax.tree.leaves(optimiser, is_leaf=lambda part: isinstance(part, optax.ScaleByScheduleState))
        return [np.asarray(part.count).tolist() for part in parts if isinstance(part, optax.ScaleByScheduleState)]

    warm = jnp.array([60, 5, 10, 40], jnp.int32)
    aged = jax.tree.map(
        lambda part: part._replace(count=warm) if isinstance(part, optax.ScaleByScheduleState) else part,
        states.optimiser,
        is_leaf=lambda part: isinstance(part, optax.ScaleByScheduleState),
    )
    caught = catch_up(states._replace(optimiser=aged, nvil=Nvil(None, aged, None)), 10)  # type: ignore[arg-type]
    assert counts(caught.optimiser) == [[60, 5, 60, 60]]
    assert counts(caught.nvil) == [[60, 5, 60, 60]], "that of NVIL's baseline too"


# --- the run


def test_every_member_has_its_lines_and_its_model(four: Preset, finished: Path) -> None:
    lines = read_metrics(finished)
    assert [(line["step"], line["member"]) for line in lines] == [(s, m) for s in (40, 80, 120) for m in range(4)]
    for member in range(4):
        own = [line["validation_bound"] for line in lines if line["member"] == member]
        card = read_card(finished / "members" / str(member))["training"]
        assert card["validation_bound"] == max(own)
        assert card["member"] == member
        assert (card["train"]["members"], card["train"]["sweep"]) == (1, [])
        assert card["train"]["learning_rate"] == RATES[member // 2]
        assert card["train"]["seed"] == member % 2 + (3000 if member == 2 else 0)
        assert named_arrays(load_model(finished / "members" / str(member)))
    rates = {member: [line["validation_bound"] for line in lines if line["member"] == member][-1] for member in (0, 1)}
    assert rates[0] != rates[1]


def test_the_best_member_is_the_runs_model(finished: Path) -> None:
    bounds = {m: read_card(finished / "members" / str(m))["training"]["validation_bound"] for m in range(4)}
    best = max(bounds, key=lambda m: bounds[m])
    assert read_card(finished)["training"]["member"] == best
    assert tensors(finished) == tensors(finished / "best") == tensors(finished / "members" / str(best))
    assert newest(finished).notes.best == bounds[best]
    assert read_run(finished)["outcome"] == "finished"


def test_it_learns(finished: Path) -> None:
    bounds = {(line["step"], line["member"]): line["validation_bound"] for line in numbers(finished)}
    assert all(bounds[120, m] > bounds[40, m] for m in range(4))
    assert bounds[120, 0] > bounds[40, 0] + 5


def test_collapsed_members_are_replaced_three_times(finished: Path) -> None:
    """Checks come every 3 steps from step 6 on; the second in a row that names a failure is a collapse."""
    events = read_run(finished)["alarms"]
    assert [(event["step"], event["action"]) for event in events] == [
        (9, "afresh"),
        (15, "copied"),
        (21, "copied"),
        (27, "warned"),
    ]
    assert all(event["member"] == 2 and event["failure"] == "ghosts" for event in events)
    assert [event["seed"] for event in events] == [1000, 2000, 3000, 3000]
    assert [event["donor"] is None for event in events] == [True, False, False, True]
    named = {(line["step"], line["member"]): line["alarm"] for line in read_metrics(finished)}
    assert named == {(s, m): "ghosts" if m == 2 else None for s in (40, 80, 120) for m in range(4)}


def test_stopped_and_resumed_it_ends_the_same(
    four: Preset, finished: Path, tmp_path: Path, alarm, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(progress: Progress) -> None:
        if progress.step >= 10:  # after the member was begun afresh, before it was copied
            os.kill(os.getpid(), signal.SIGTERM)

    alarm(failing)
    with pytest.raises(Stopped):
        train(changed(four, restart_collapsed=True), tmp_path, quiet=True, callbacks=[stop])
    assert named_arrays(load_model(checkpoints(tmp_path)[-1])), "a checkpoint is a model, the best member's"
    train(changed(four, restart_collapsed=True), tmp_path, resume=True)
    assert numbers(tmp_path) == numbers(finished)
    assert read_run(tmp_path)["alarms"] == read_run(finished)["alarms"]
    for folder in ("checkpoints/00000120", "best", "", *(f"members/{m}" for m in range(4))):
        assert tensors(tmp_path / folder) == tensors(finished / folder), folder
    said = capsys.readouterr().err
    assert "healthy 3/4" in said
    assert "step 15: member 2 has collapsed (ghosts): replaced by a copy of member" in said


def test_one_diverged_member_does_not_stop_the_others(four: Preset, tmp_path: Path, alarm, monkeypatch) -> None:
    def poisoned(state: TrainState, *_: Any) -> TrainState:
        count = jnp.array([0, 50, 0, 0])
        return state._replace(step=state.step + 120, optimiser=state.optimiser._replace(notfinite_count=count))

    alarm(lambda *_: None)
    monkeypatch.setattr(population, "train_members", poisoned)
    train(four, tmp_path, quiet=True)
    assert read_run(tmp_path)["outcome"] == "finished"

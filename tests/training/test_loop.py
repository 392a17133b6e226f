"""Training: it learns, it resumes bit for bit from wherever it was stopped, and it says why it cannot go on."""

import dataclasses
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sqair.config import Preset, UsageError, UserError
from sqair.data import open_data
from sqair.objective import iwae
from sqair.particles import draw_particles, run_particles
from sqair.training import loop, pace, population, resume
from sqair.training.checkpoint import load_model, named_arrays, read_card
from sqair.training.loop import Progress, Stopped, check_preset, train
from sqair.training.population import Population
from sqair.training.resume import Notes, check_resumable, checkpoints, load_state, newest, save_state
from sqair.training.runs import read_metrics, read_run
from sqair.training.step import TrainState, first_state, model_frames, seed_keys, without_totals

TIMES = ("seconds", "sequences_per_second")


class Crash(Exception):
    """Stands for a program that dies without saving."""


def at(step: int, act: Callable[[Progress], Any]) -> Callable[[Progress], None]:
    """A callback that acts once this step is reached."""
    return lambda progress: act(progress) if progress.step >= step else None


def crash(_: Progress) -> None:
    raise Crash


def numbers(run: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without what a clock tells."""
    return [{k: v for k, v in line.items() if k not in TIMES} for line in read_metrics(run)]


def tensors(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


@pytest.fixture(scope="module")
def finished(small: Preset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from start to end."""
    return train(small, tmp_path_factory.mktemp("runs") / "whole", quiet=True, command="sqair train small")


def test_it_learns(finished: Path) -> None:
    bounds = [line["validation_bound"] for line in numbers(finished)]
    assert bounds[-1] > bounds[0] + 5, bounds
    ceiling = 144 * -(np.log(0.3) + 0.5 * np.log(2 * np.pi))
    blank = ceiling - 16 * 0.5 / 0.3**2
    assert blank < bounds[-1] < ceiling, "better than an empty canvas"


def test_what_a_run_leaves(small: Preset, finished: Path) -> None:
    lines = numbers(finished)
    assert [line["step"] for line in lines] == [80, 160, 240]
    assert sorted(path.name for path in finished.iterdir()) == [
        *("best", "checkpoints", "config.json", "metrics.jsonl", "model.safetensors", "preset.json", "run.json")
    ]
    assert [folder.name for folder in checkpoints(finished)] == ["00000160", "00000240"]
    assert read_run(finished)["outcome"] == "finished"
    best = max(lines, key=lambda line: line["validation_bound"])
    card = read_card(finished)["training"]
    assert (card["step"], card["validation_bound"]) == (best["step"], best["validation_bound"])
    assert tensors(finished) == tensors(finished / "best")
    assert newest(finished).notes.preset == small


def test_the_validation_bound_is_the_models_own(small: Preset, finished: Path) -> None:
    """Recomputed from the paper's definition, particle by particle, without restraint."""
    model = load_model(finished)
    frames = model_frames(jnp.asarray(open_data(small.data, "validation").fixed(12).frames), model)
    key = seed_keys(small.train.seed).validation

    @jax.jit
    def bound(i: jax.Array, frames: jax.Array) -> jax.Array:
        noise = draw_particles(model, jax.random.split(jax.random.fold_in(key, i), 1)[0], 2, 4)
        return iwae(run_particles(model, noise, frames).log_weight.sum(-1))

    expected = np.mean([float(bound(jnp.array(i), frames[i])) for i in range(12)]) / 4
    assert read_card(finished)["training"]["validation_bound"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("step", [1, 130])
def test_stopped_anywhere_and_resumed_it_ends_the_same(
    small: Preset, finished: Path, tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "MOST_STEPS", 7)  # other calls than the whole run's: they must not matter
    number, code = [(signal.SIGINT, 130), (signal.SIGTERM, 143)][step % 2]
    before = signal.getsignal(number)
    with pytest.raises(Stopped, match="--resume") as caught:
        train(small, tmp_path / "run", quiet=True, callbacks=[at(step, lambda _: os.kill(os.getpid(), number))])
    assert caught.value.code == code
    assert signal.getsignal(number) == before
    assert read_run(tmp_path / "run")["outcome"] == "stopped"
    stopped = int(checkpoints(tmp_path / "run")[-1].name)
    assert step <= stopped < 240
    taken = newest(tmp_path / "run").notes.seconds
    assert taken > 0
    train(small, tmp_path / "run", quiet=True, resume=True)
    assert numbers(tmp_path / "run") == numbers(finished)
    seconds = [line["seconds"] for line in read_metrics(tmp_path / "run") if line["step"] > stopped]
    assert seconds == sorted(seconds)
    assert seconds[0] > taken, "the clock goes on"
    for folder in ("checkpoints/00000240", "best", ""):
        assert tensors(tmp_path / "run" / folder) == tensors(finished / folder), folder


def test_a_crash_loses_only_what_came_after_the_last_checkpoint(
    small: Preset, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        pace, "MOST_STEPS", 7
    )  # on a fast machine one call would go from 160 past the checkpoint of 240
    with pytest.raises(Crash):
        train(small, tmp_path, quiet=True, callbacks=[at(170, crash)])
    with (tmp_path / "metrics.jsonl").open("a") as file:  # a line of a step whose checkpoint was never finished
        file.write(json.dumps({"step": 200, "validation_bound": 0.0}) + "\n")
    (tmp_path / "checkpoints/00000200").mkdir()
    assert read_run(tmp_path)["outcome"] == "failed"
    train(small, tmp_path, quiet=True, resume=True)
    assert numbers(tmp_path) == numbers(finished)
    assert tensors(tmp_path / "best") == tensors(finished / "best")


def test_new_and_loaded_states_are_typed_alike(small: Preset, finished: Path) -> None:
    """Otherwise a resumed run would compile its step anew."""
    new = first_state(small, seed_keys(0).weights)
    loaded = load_state(newest(finished), Population(small), new)
    for state in (new, loaded, without_totals(loaded)):
        assert not any(leaf.weak_type for leaf in named_arrays(state).values())


def test_callbacks_are_told_of_evaluations(small: Preset, tmp_path: Path) -> None:
    told: list[Progress] = []
    with pytest.raises(Crash):
        train(small, tmp_path, quiet=True, callbacks=[told.append, at(80, crash)])
    assert told[-1].metrics is not None
    assert (told[-1].step, told[-1].metrics["step"], told[-1].out) == (80, 80, tmp_path)
    assert told[-1].lines == [told[-1].metrics]
    assert all(progress.metrics is None and progress.lines == [] for progress in told[:-1])


def test_resuming_refuses_another_recipe(small: Preset, finished: Path, tmp_path: Path) -> None:
    other = dataclasses.replace(small, train=dataclasses.replace(small.train, learning_rate=1e-3))
    before = tensors(finished)
    with pytest.raises(UserError, match=r"cannot resume .*: train\.learning_rate differs"):
        train(other, finished, quiet=True, resume=True)
    for name in ("steps", "validation_sequences"):
        more = dataclasses.replace(small, train=dataclasses.replace(small.train, **{name: 300}))
        with pytest.raises(UserError, match=f"cannot resume .*{name.partition('_')[0]}.*start a new run"):
            train(more, finished, quiet=True, resume=True)
    with pytest.raises(UserError, match=r"no run in .* to resume"):
        train(small, tmp_path / "none", quiet=True, resume=True)
    (tmp_path / "x").write_text("")
    with pytest.raises(UserError, match="no checkpoint to resume from"):
        train(small, tmp_path, quiet=True, resume=True)
    assert (tensors(finished), os.listdir(tmp_path)) == (before, ["x"])


def test_a_folder_in_use_is_refused_and_kept(small: Preset, finished: Path) -> None:
    with pytest.raises(UsageError, match="not empty"):
        train(small, finished, quiet=True)
    assert len(numbers(finished)) == 3


def test_overwriting_starts_anew(
    small: Preset, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "MOST_STEPS", 7)  # a call up to the next evaluation would be past it
    with pytest.raises(Crash):
        train(small, tmp_path, quiet=True, callbacks=[at(161, crash)])
    with pytest.raises(Crash):
        train(small, tmp_path, quiet=True, overwrite=True, callbacks=[at(81, crash)])
    assert numbers(tmp_path) == numbers(finished)[:1]


def test_divergence_ends_with_advice(small: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def poisoned(*arguments: Any) -> Any:
        state = real(*arguments)
        return state._replace(optimiser=state.optimiser._replace(notfinite_count=jnp.array(21)))

    real = population.train_steps
    monkeypatch.setattr(population, "train_steps", poisoned)
    with pytest.raises(UserError, match=r"diverged.*lower --train\.learning-rate or --train\.clip, and start again"):
        train(small, tmp_path, quiet=True)
    assert read_run(tmp_path)["outcome"] == "failed"


def test_an_early_divergence_is_a_collapse_that_can_be_mended(
    small: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Gradients are not finite from the first step on, in as many calls as `bad` says: no check comes before that."""
    bad = [1]

    def poisoned(*arguments: Any) -> Any:
        state = real(*arguments)
        if bad[0] <= 0:
            return state
        bad[0] -= 1
        return state._replace(optimiser=state.optimiser._replace(notfinite_count=jnp.array(21)))

    real = population.train_steps
    monkeypatch.setattr(population, "train_steps", poisoned)
    monkeypatch.setattr(loop, "is_check", lambda *_: False)
    mended = dataclasses.replace(small, train=dataclasses.replace(small.train, restart_collapsed=True))
    with pytest.raises(Crash):
        train(mended, tmp_path / "mended", callbacks=[at(80, crash)])
    (event,) = read_run(tmp_path / "mended")["alarms"]
    assert (event["failure"], event["action"], event["seed"]) == ("divergence", "afresh", 1000)
    assert [line["alarm"] for line in read_metrics(tmp_path / "mended")] == ["divergence"]
    assert read_card(tmp_path / "mended" / "best")["training"]["train"]["seed"] == 1000
    assert "this run has collapsed (divergence): begun afresh with seed 1000" in capsys.readouterr().err
    bad[0] = 100
    with pytest.raises(UserError, match="training diverged"):
        train(mended, tmp_path / "never", quiet=True)
    assert [event["seed"] for event in read_run(tmp_path / "never")["alarms"]] == [1000, 2000, 3000]


def test_a_late_divergence_is_the_end(small: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(state: TrainState, *_: Any) -> TrainState:
        skipped = state.optimiser._replace(notfinite_count=jnp.array(21))
        return state._replace(step=jnp.array(25), optimiser=skipped)

    monkeypatch.setattr(population, "train_steps", late)
    mended = dataclasses.replace(small, train=dataclasses.replace(small.train, restart_collapsed=True))
    with pytest.raises(UserError, match="training diverged"):
        train(mended, tmp_path, quiet=True)
    assert read_run(tmp_path)["alarms"] == []


def test_advice_without_clipping(small: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(population, "train_steps", lambda state, *_: bad(state))

    def bad(state: TrainState) -> TrainState:
        return state._replace(optimiser=state.optimiser._replace(notfinite_count=jnp.array(21)))

    free = dataclasses.replace(small, train=dataclasses.replace(small.train, clip=0.0))
    with pytest.raises(UserError, match=r"or set --train\.clip to 10"):
        train(free, tmp_path, quiet=True)


def test_a_complete_checkpoint_is_not_written_again(small: Preset, finished: Path, monkeypatch) -> None:
    monkeypatch.setattr(resume, "folder_written_atomically", None)
    only = Population(small)
    found = newest(finished)
    state = load_state(found, only, only.first())
    before = (finished / "checkpoints/00000240").stat().st_mtime_ns
    assert save_state(finished, only, state, found.notes) == finished / "checkpoints/00000240"
    assert (finished / "checkpoints/00000240").stat().st_mtime_ns == before


def test_steps_may_change_where_the_learning_rate_does_not_depend_on_them(small: Preset, finished: Path) -> None:
    free = dataclasses.replace(small, train=dataclasses.replace(small.train, final_decay=0.0))
    more = dataclasses.replace(free, train=dataclasses.replace(free.train, steps=300, keep=3, patience=2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resume, "read_notes", lambda folder: Notes(free, 240, None, 1.0))
        assert check_resumable(finished, more).notes.seconds == 1.0


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"steps": 0}, "train.steps must be at least 1"),
        ({"stage": 0}, "train.stage must be at least 1"),
        ({"final_decay": 1.5}, "train.final_decay"),
        ({"particles": 1}, "at least 2 particles"),
        ({"estimator": "nvil"}, "goes with the estimators"),
    ],
)
def test_recipes_that_cannot_work(small: Preset, tmp_path: Path, changes: dict, line: str) -> None:
    wrong = dataclasses.replace(small, train=dataclasses.replace(small.train, **changes))
    with pytest.raises(UserError, match=line):
        train(wrong, tmp_path / "new", quiet=True)
    assert not (tmp_path / "new").exists()


def test_data_that_does_not_fit_the_model(small: Preset, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="sees frames of 16x16, the data has 12x12"):
        check_preset(dataclasses.replace(small, model=dataclasses.replace(small.model, image=(16, 16))))
    colour = dataclasses.replace(small, model=dataclasses.replace(small.model, channels=3))
    with pytest.raises(UserError, match="1 channels, the model 3"):
        train(colour, tmp_path / "new", quiet=True)
    assert not (tmp_path / "new").exists()


def test_it_stops_early_when_the_validation_bound_stands(
    small: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bounds = iter([1.0, 3.0, 2.0, 2.9, 4.0])
    monkeypatch.setattr(loop.Validation, "__call__", lambda *_: [{"validation_bound": next(bounds)}])
    monkeypatch.setattr(loop, "is_check", lambda *_: False)
    patient = dataclasses.replace(small, train=dataclasses.replace(small.train, evaluate_every=20, patience=2))
    train(patient, tmp_path)
    assert [line["step"] for line in read_metrics(tmp_path)] == [20, 40, 60, 80]
    assert read_run(tmp_path)["outcome"] == "stopped early"
    assert read_card(tmp_path)["training"]["step"] == 40
    assert "step 80: no new best in 2 evaluations; stopped early" in capsys.readouterr().err
    train(patient, tmp_path, resume=True)
    assert len(read_metrics(tmp_path)) == 4, "resumed, it is still at its end"


def test_weights_of_a_stopped_run_load(small: Preset, tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        train(small, tmp_path, quiet=True, callbacks=[at(2, lambda _: os.kill(os.getpid(), signal.SIGTERM))])
    assert named_arrays(load_model(tmp_path))

"""When checks come, what two of them make of a member, and what a run of one member does about it."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

from sqair.config import Preset, TrainConfig
from sqair.training import health
from sqair.training.checkpoint import read_card
from sqair.training.health import Event, count_healthy, find_donor, is_check, is_early, note
from sqair.training.loop import Progress, train
from sqair.training.members import Member
from sqair.training.runs import read_metrics, read_run


@pytest.mark.parametrize(("steps", "warm_up"), [(20_000, 500), (3_000, 500), (240, 10), (30, 0), (2, 500)])
def test_checks_come_often_enough_to_name_a_failure_in_the_first_tenth(steps: int, warm_up: int) -> None:
    config = TrainConfig(steps=steps, warm_up=warm_up)
    checks = [step for step in range(steps + 1) if is_check(step, config)]
    assert checks[0] > 0
    assert len(checks) <= 40 or steps < 40
    if steps >= 40:
        assert sum(is_early(step, config) for step in checks) >= 2


def test_the_same_failure_twice_in_a_row_is_a_collapse() -> None:
    member = Member(Preset())
    story = [("ghosts", None), (None, None), ("ghosts", None), ("merged", None), ("merged", "merged"), (None, None)]
    for failure, collapsed in story:
        note(member, failure, 1.0)
        assert member.collapsed == collapsed
    assert member.alarm == "merged", "until an evaluation has told it"


def test_the_best_bound_of_checks_is_kept() -> None:
    member = Member(Preset())
    for bound, best in ((float("nan"), None), (-3.0, -3.0), (-5.0, -3.0), (float("-inf"), -3.0)):
        note(member, None, bound)
        assert member.checked == best


def test_only_members_in_which_nothing_is_wrong_are_copied() -> None:
    members = [Member(Preset()) for _ in range(4)]
    assert find_donor(members) is None
    for member, bound in zip(members, (1.0, 9.0, 2.0, float("nan")), strict=True):
        note(member, "ghosts" if bound == 9.0 else None, bound)
    assert find_donor(members) == 2
    note(members[1], "ghosts", 9.0)
    assert count_healthy(members) == 3


def test_an_event_says_what_to_do() -> None:
    assert "raise --train.discovery-cost" in Event(5, 0, "all slots used", "warned", 0).line(1)
    assert Event(5, 2, "merged", "copied", 1002, 7).line(8) == (
        "step 5: member 2 has collapsed (merged): replaced by a copy of member 7"
    )


class Enough(Exception):
    """Ends a run that has shown what it was to show."""


def until(step: int) -> Callable[[Progress], None]:
    """A callback that ends the run at this step."""

    def end(progress: Progress) -> None:
        if progress.step >= step:
            raise Enough

    return end


@pytest.fixture
def broken_until(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The alarm names a failure at so many checks; the list holds that number."""
    left = [0]

    def name(*_: Any, **__: Any) -> str | None:
        left[0] -= 1
        return "none used" if left[0] >= 0 else None

    monkeypatch.setattr(health.alarm, "measure", lambda *_: jnp.zeros(()))
    monkeypatch.setattr(health.alarm, "name_failure", name)
    return left


def test_a_run_of_one_member_is_warned(small: Preset, tmp_path: Path, broken_until, capsys) -> None:
    broken_until[0] = 100
    with pytest.raises(Enough):
        train(small, tmp_path, callbacks=[until(80)])
    (event,) = read_run(tmp_path)["alarms"]
    assert (event["step"], event["failure"], event["action"]) == (18, "none used", "warned")
    assert [line["alarm"] for line in read_metrics(tmp_path)] == ["none used"]
    assert "member" not in read_metrics(tmp_path)[0]
    said = capsys.readouterr().err
    assert said.count("this run has collapsed (none used)") == 1
    assert "lower --train.discovery-cost" in said


@pytest.mark.parametrize(
    ("failure", "step"), [("none used", 48), ("all slots used", 48), ("ghosts", 48), ("merged", 18)]
)
def test_presence_that_is_not_learnt_is_no_collapse(
    small: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str, step: int
) -> None:
    """Checks come every 6 steps, and two of them in a row tell: after the delay, or at once for what else is wrong."""
    monkeypatch.setattr(health.alarm, "measure", lambda *_: jnp.zeros(()))
    monkeypatch.setattr(health.alarm, "name_failure", lambda *_, **__: failure)
    with pytest.raises(Enough):
        train(changed(small, presence_delay=40), tmp_path, callbacks=[until(80)], quiet=True)
    (event,) = read_run(tmp_path)["alarms"]
    assert (event["step"], event["failure"]) == (step, failure)


def changed(preset: Preset, **changes: Any) -> Preset:
    return dataclasses.replace(preset, train=dataclasses.replace(preset.train, **changes))


def test_a_run_of_one_member_restarts_from_the_first_step(
    small: Preset, tmp_path: Path, broken_until: list[int]
) -> None:
    broken_until[0] = 2
    calls: list[int] = []

    def write_events(progress: Progress) -> None:
        calls.append(progress.step)
        (progress.out / "tensorboard").mkdir(exist_ok=True)
        (progress.out / "tensorboard" / str(len(calls))).touch()

    runs = {"restarted": changed(small, restart_collapsed=True), "other": changed(small, seed=1000)}
    for name, preset in runs.items():
        with pytest.raises(Enough):
            train(preset, tmp_path / name, quiet=True, callbacks=[write_events, until(80)])
    files = (tmp_path / "restarted/tensorboard").iterdir()
    assert min(int(path.name) for path in files) == calls.index(0) + 1, "of the run that began again only"
    weights = [(tmp_path / name / "checkpoints/00000080/model.safetensors").read_bytes() for name in runs]
    assert weights[0] == weights[1], "as a run that began with the new seed"
    assert [line["step"] for line in read_metrics(tmp_path / "restarted")] == [80]
    (event,) = read_run(tmp_path / "restarted")["alarms"]
    assert (event["action"], event["seed"]) == ("afresh", 1000)
    assert read_card(tmp_path / "restarted")["training"]["train"]["seed"] == 1000


def test_late_a_run_of_one_member_is_only_warned(
    small: Preset, tmp_path: Path, broken_until: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "EARLY", 0.0)
    broken_until[0] = 2
    with pytest.raises(Enough):
        train(changed(small, restart_collapsed=True), tmp_path, quiet=True, callbacks=[until(24)])
    assert [event["action"] for event in read_run(tmp_path)["alarms"]] == ["warned"]


def test_a_restart_can_be_resumed_at_once(small: Preset, tmp_path: Path, broken_until: list[int]) -> None:
    broken_until[0] = 2
    whole = changed(small, restart_collapsed=True)

    def crash(progress: Progress) -> None:
        if progress.step == 0:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        train(whole, tmp_path, quiet=True, callbacks=[crash])
    with pytest.raises(Enough):
        train(whole, tmp_path, quiet=True, resume=True, callbacks=[until(80)])
    assert read_card(tmp_path)["training"]["train"]["seed"] == 1000
    assert [event["action"] for event in read_run(tmp_path)["alarms"]] == ["afresh"]

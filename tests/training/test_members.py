"""Which models `members` and `sweep` ask for, and which they refuse."""

import dataclasses

import pytest

from sqair.config import Preset, TrainConfig, UsageError, UserError
from sqair.training.members import Member, leader, member_configs, new_members


def test_one_member_is_the_config_itself() -> None:
    config = TrainConfig(seed=5)
    assert member_configs(config) == [config]


def test_members_are_seeds_in_a_row() -> None:
    assert [config.seed for config in member_configs(TrainConfig(seed=5, members=3))] == [5, 6, 7]


def test_a_sweep_is_the_product_of_its_values_and_the_seeds() -> None:
    config = TrainConfig(members=2, sweep=("learning-rate=1e-3,1e-4", "train.discovery_cost=0,5.5"))
    found = [(each.learning_rate, each.discovery_cost, each.seed) for each in member_configs(config)]
    assert found == [(rate, cost, seed) for rate in (1e-3, 1e-4) for cost in (0.0, 5.5) for seed in (0, 1)]
    assert all(each.members == 1 and each.sweep == () for each in member_configs(config))


def test_seeds_may_be_swept_too() -> None:
    configs = member_configs(TrainConfig(sweep=("seed=3,9",)))
    assert [config.seed for config in configs] == [3, 9]
    assert all(isinstance(config.seed, int) for config in configs)


@pytest.mark.parametrize(("members", "sweep"), [(2, "seed=1,2"), (1, "learning_rate=1e-3,1e-3")])
def test_no_member_is_trained_twice(members: int, sweep: str) -> None:
    with pytest.raises(UsageError, match="same settings and seed twice"):
        member_configs(TrainConfig(members=members, sweep=(sweep,)))


@pytest.mark.parametrize(
    ("sweep", "line"),
    [
        (("batch=8,16",), r"cannot vary 'batch'; it takes learning_rate, .*, presence_delay, seed, such as"),
        (("model.width=8",), "cannot vary 'model.width'"),
        (("learning_rate",), "wants numbers, such as learning_rate=1,2, not 'learning_rate'"),
        (("learning_rate=1e-3,fast",), "wants numbers"),
        (("seed=1.5",), "wants numbers"),
        (("presence_delay=0.5",), "wants numbers"),
        (("seed=1", "seed=2"), "names seed twice"),
    ],
)
def test_what_cannot_be_swept(sweep: tuple[str, ...], line: str) -> None:
    with pytest.raises(UsageError, match=line):
        member_configs(TrainConfig(sweep=sweep))


def test_swept_values_have_the_ranges_of_settings() -> None:
    with pytest.raises(UserError, match=r"train\.seed must be between 0"):
        member_configs(TrainConfig(seed=2**32 - 1, members=2))
    with pytest.raises(UserError, match=r"train\.discovery_dropout must be between 0 and 1, not 2\.0"):
        member_configs(TrainConfig(sweep=("discovery_dropout=0.5,2",)))


def test_a_restart_takes_another_seed_and_forgets() -> None:
    member = Member(Preset(train=TrainConfig(seed=7)), best=1.0, checked=1.0, failure="ghosts", collapsed="ghosts")
    member.restart()
    assert (member.seed, member.trained.train.seed) == (1007, 1007)
    assert (member.best, member.checked, member.failure, member.collapsed) == (None, None, None, None)
    copy = dataclasses.replace(Member(member.preset), **member.notes())
    assert copy == member, "a checkpoint tells all of it"


def test_the_leader_has_the_best_bound() -> None:
    members = new_members(Preset(train=TrainConfig(members=3)))
    assert leader(members) == 0
    members[1].best, members[2].best = -5.0, -4.0
    assert leader(members) == 2

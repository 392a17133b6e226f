"""When members are checked for collapse, and what is done about it. The signs themselves are in alarm.py.

Checks come at a fixed number of moments, so that a failure is named within the first tenth of training. A member is
collapsed when two checks in a row name the same failure. Labels are never looked at.
"""

import math
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from sqair.config import TrainConfig
from sqair.training import alarm
from sqair.training.curriculum import length_at
from sqair.training.members import Member
from sqair.training.phases import Phases
from sqair.training.population import Population
from sqair.training.step import TrainState
from sqair.training.validation import Validation

CHECKS = 40
"""Moments of a whole training at which members are checked, beginning with the end of warm-up, at 5% at the latest."""
EARLY = 0.1
"""The first part of training, in which a collapsed member is begun afresh; later it is replaced by a copy."""
MOST_RESTARTS = 3
"""Of each member."""
CHECKED = 64
"""Validation sequences that a check looks at, at most."""


class Event(NamedTuple):
    """A collapse, as run.json tells it."""

    step: int
    member: int
    failure: str
    action: str
    """warned, afresh or copied."""
    seed: int
    """The member's seed after it."""
    donor: int | None = None
    """Which member was copied."""

    def repeats(self, past: dict[str, Any]) -> bool:
        """Whether an earlier event says the same, but for the time."""
        return self._asdict() | {"step": past["step"]} == past

    def line(self, of: int) -> str:
        """The event in one line; `of` is the number of members."""
        who = f"member {self.member}" if of > 1 else "this run"
        done = {
            "warned": alarm.FAILURES[self.failure],
            "afresh": f"begun afresh with seed {self.seed}",
            "copied": f"replaced by a copy of member {self.donor}",
        }[self.action]
        return f"step {self.step}: {who} has collapsed ({self.failure}): {done}"


def check_every(config: TrainConfig) -> int:
    """Steps between two checks."""
    return max(1, config.steps // CHECKS)


def is_check(step: int, config: TrainConfig) -> bool:
    """Whether members are checked after this step."""
    return step % check_every(config) == 0 and step >= min(config.warm_up, config.steps // 20) and step > 0


def is_early(step: int, config: TrainConfig) -> bool:
    """Whether a collapsed member is begun afresh, rather than copied."""
    return step <= EARLY * config.steps


def can_begin_afresh(members: list[Member], step: int, config: TrainConfig) -> bool:
    """Whether one of the members, collapsed after this step, would be begun afresh."""
    is_left = any(member.restarts < MOST_RESTARTS for member in members)
    return config.restart_collapsed and is_early(step, config) and is_left


OF_PRESENCE = ("all slots used", "none used", "ghosts")
"""What is no collapse while presence is not learnt."""


class Look(NamedTuple):
    """What checks look at."""

    validation: Validation
    scene: alarm.Scene


class Watch:
    """Checks the members of a population on a few validation sequences, in each phase on digits as it trains them.

    Models without objects cannot collapse.
    """

    def __init__(self, population: Population, validations: Phases[Validation], key: PRNGKeyArray) -> None:
        self.population, self.key = population, key
        parts = validations.map(lambda validation: validation.part(CHECKED))
        self.looks = parts.map(lambda part: Look(part, alarm.look(np.asarray(part.frames))))

    def forget_bounds(self) -> None:
        """Have the next check not compare bounds with earlier ones, which were those of other digits."""
        for member in self.population.members:
            member.checked = None

    def check(self, state: TrainState) -> list[int]:
        """Look at every member; returns those that have collapsed."""
        population, preset = self.population, self.population.preset
        if not state.model.has_objects:
            return []
        validation, scene = self.looks.at(int(state.step) - 1)
        bounds = [line["validation_bound"] for line in validation(population, state.model, self.key)]
        signals = population.map(alarm.measure, state.model, self.key, validation.frames)
        skipped = np.atleast_1d(np.asarray(state.optimiser.notfinite_count))
        length = int(length_at(int(state.step), preset.train, preset.data.length))
        for i, (member, bound) in enumerate(zip(population.members, bounds, strict=True)):
            failure = alarm.name_failure(
                jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), signals),
                scene,
                slots=preset.model.max_objects,
                best_bound=member.checked,
                bound=bound,
                skipped=int(skipped[i]),
                length=length,
            )
            is_held = int(state.step) <= member.preset.train.presence_delay and failure in OF_PRESENCE
            note(member, None if is_held else failure, bound)
        return [i for i, member in enumerate(population.members) if member.collapsed is not None]


def note(member: Member, failure: str | None, bound: float) -> None:
    """Remember what a check named: the same twice in a row is a collapse."""
    member.bound = bound if math.isfinite(bound) else None
    if member.bound is not None:
        member.checked = bound if member.checked is None else max(member.checked, bound)
    member.collapsed = failure if failure == member.failure else None
    member.failure = failure
    member.alarm = member.collapsed or member.alarm


def count_healthy(members: list[Member]) -> int:
    """How many members have not collapsed."""
    return sum(member.collapsed is None for member in members)


def find_donor(members: list[Member]) -> int | None:
    """The member with the best bound among those in which the last check found nothing wrong."""
    bounds = {i: m.bound for i, m in enumerate(members) if m.failure is None and m.bound is not None}
    return max(bounds, key=lambda i: bounds[i]) if bounds else None


def replace_member(population: Population, state: TrainState, event: Event) -> tuple[TrainState, Event]:
    """Begin a collapsed member afresh, or later make it a copy of a healthy one; where neither can be, nothing changes.

    Alone, a member begins afresh at the first step, and later it has none to be copied from.
    """
    i, member = event.member, population.members[event.member]
    if member.restarts >= MOST_RESTARTS:
        return state, event
    if is_early(event.step, population.preset.train):
        member.restart()
        state = population.first() if population.is_alone else population.afresh(state, i)
        return state, event._replace(action="afresh", seed=member.seed)
    donor = find_donor(population.members)
    if donor is None or population.is_alone:
        return state, event
    member.restart()
    return population.copied(state, i, donor), event._replace(action="copied", seed=member.seed, donor=donor)

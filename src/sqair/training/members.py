"""Who is trained side by side: the seeds of `members`, the settings of `sweep`, and how each of them fares."""

import dataclasses
import itertools
import math
from dataclasses import dataclass
from typing import Any

from sqair.config import Preset, TrainConfig, UsageError
from sqair.settings import check

KNOBS = (
    "learning_rate",
    "clip_frame",
    "discovery_dropout",
    "discovery_cost",
    "rediscovery_cost",
    "presence_cost",
    "surplus_cost",
    "presence_delay",
)
"""Fields of TrainConfig that are numbers inside the compiled step, so that members may differ in them.

Frames without discovery are cheap because all members pass over them together: a sweep of discovery_dropout costs more.
"""
SWEPT = (*KNOBS, "seed")
"""What `sweep` may name."""
SEED_STRIDE = 1_000
"""A member that is restarted for the n-th time has its seed raised by n times this."""


@dataclass
class Member:
    """One member: how it is trained, and how it fares. All but `preset` changes while training goes on."""

    preset: Preset
    """Its own, as if it were trained alone; the seed is the one it began with."""
    restarts: int = 0
    best: float | None = None
    """Its best validation bound since its last restart."""
    bound: float | None = None
    """Its bound at the last check, None if that was not finite ..."""
    checked: float | None = None
    """... and its best at any."""
    failure: str | None = None
    """What the last check named ..."""
    collapsed: str | None = None
    """... and the one before it too."""
    alarm: str | None = None
    """The collapse since the last evaluation, be it mended or not."""

    @property
    def seed(self) -> int:
        """The seed of its present weights and noise."""
        return (self.preset.train.seed + SEED_STRIDE * self.restarts) % 2**32

    @property
    def trained(self) -> Preset:
        """Its preset with its present seed."""
        return dataclasses.replace(self.preset, train=dataclasses.replace(self.preset.train, seed=self.seed))

    def restart(self) -> None:
        """Forget how it fared; the next seed is its own."""
        self.restarts += 1
        self.best = self.bound = self.checked = self.failure = self.collapsed = None

    def notes(self) -> dict[str, Any]:
        """What a checkpoint tells about it."""
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(self) if item.name != "preset"}


def new_members(preset: Preset) -> list[Member]:
    """The members that a preset asks for, before the first step."""
    configs = member_configs(preset.train)
    return [Member(dataclasses.replace(preset, train=config)) for config in configs]


def member_configs(config: TrainConfig) -> list[TrainConfig]:
    """How each member is trained: all combinations of what is swept, each with `members` seeds in a row."""
    values = [_parse(setting) for setting in config.sweep]
    names = [name for name, _ in values]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--sweep names {name} twice; give all its values at once")
    configs = []
    for combination in itertools.product(*(numbers for _, numbers in values)):
        chosen = dataclasses.replace(config, members=1, sweep=(), **dict(zip(names, combination, strict=True)))
        configs += [dataclasses.replace(chosen, seed=chosen.seed + i) for i in range(config.members)]
    for each in configs:
        check(each, "train.")
    if len(set(configs)) < len(configs):
        raise UsageError("--sweep and --members ask for the same settings and seed twice; name other values or seeds")
    return configs


def _parse(setting: str) -> tuple[str, list[float | int]]:
    """The name and the numbers of FIELD=V1,V2,..."""
    name, _, text = setting.partition("=")
    name = name.strip().removeprefix("train.").replace("-", "_")
    if name not in SWEPT:
        raise UsageError(f"--sweep cannot vary {name!r}; it takes {', '.join(SWEPT)}, such as {KNOBS[0]}=1e-4,3e-4")
    number = type(getattr(TrainConfig, name))  # of its default: int or float
    try:
        return name, [number(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(f"--sweep wants numbers, such as {name}=1,2, not {setting!r}") from None


def leader(members: list[Member]) -> int:
    """The member with the best validation bound; the first while there is none."""
    return max(range(len(members)), key=lambda i: -math.inf if (best := members[i].best) is None else best)

"""Two phases of one training: the first `train.first_scale_steps` see digits of `data.first_scale`, then all is usual.

Digits that are small from the start are left out by some seeds, which never find them again. A model that has learnt
larger ones goes on with small ones. Both phases run the same compiled program.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from sqair.config import Preset
from sqair.data import Source, Split, open_data, open_first

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class Phases(Generic[T]):
    """What the steps before `switch` use, and what those from it on use."""

    first: T
    later: T
    switch: int = 0
    """At 0 there is no first phase, and `first` is `later`."""

    def at(self, step: int) -> T:
        """What this step uses."""
        return self.first if step < self.switch else self.later

    def map(self, function: Callable[[T], U]) -> "Phases[U]":
        """The same of a function, which is called once where there is one phase."""
        later = function(self.later)
        return Phases(later if self.first is self.later else function(self.first), later, self.switch)


def open_phases(preset: Preset, split: Split) -> Phases[Source]:
    """The data of both phases; one source for both where there is no first size of digits."""
    later, switch = open_data(preset.data, split), preset.train.first_scale_steps
    return Phases(open_first(preset.data, split) if switch else later, later, switch)

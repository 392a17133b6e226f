"""What `sqair train` says before it begins: what follows steps, digits and pixels, and what may go wrong."""

from collections.abc import Collection, Iterator

from sqair.config import Preset
from sqair.training.recipe import FIRST_STEPS, SMALL, for_digits


def recipe_lines(chosen: Preset, own: Preset, left_open: Collection[str], *, follows_digits: bool) -> Iterator[str]:
    """Of a new training with the preset `own`, where it is not that: `left_open` are the settings that were decided."""
    steps = [name for name in left_open if name != FIRST_STEPS]
    if steps and chosen.train.steps != own.train.steps:
        values = ", ".join(f"{name} {getattr(chosen.train, name)}" for name in steps)
        yield f"the recipe for {chosen.train.steps} steps: {values}"
    if follows_digits and (changed := for_these_digits(chosen, own)):
        yield f"the recipe for these digits and pixels: {', '.join(changed)}"
    if is_risky(chosen, own):
        yield "digits this small may be left out, by one seed in three; --members 3 trains three and takes the best"


def is_risky(chosen: Preset, own: Preset) -> bool:
    """Whether a single SQAIR is to learn, from the start, digits that are smaller than the preset's."""
    train = chosen.train
    if train.start or train.members > 1 or train.sweep or train.first_scale_steps:
        return False
    return chosen.model.kind == "sqair" and chosen.data.digit_scale < SMALL * own.data.digit_scale


def for_these_digits(chosen: Preset, own: Preset) -> list[str]:
    """What follows the size of digits and the output std, where that is not the preset's own."""
    fitting = for_digits(own, chosen.data.digit_scale, chosen.model.output_std, chosen.data.first_scale)
    before, wanted, found = in_words(own), in_words(fitting), in_words(chosen)
    said = [f"{name} {value}" for name, value in found.items() if before[name] != value == wanted[name]]
    if chosen.train.first_scale_steps:
        said.insert(0, f"first_scale {chosen.data.first_scale:g} for {chosen.train.first_scale_steps} steps")
    return said


def in_words(chosen: Preset) -> dict[str, str]:
    """The values of what follows the size of digits."""
    limits = " ".join(f"{limit:g}" for limit in chosen.model.scale_limits)
    return {"scale_limits": limits, "discovery_cost": f"{chosen.train.discovery_cost:g}"}

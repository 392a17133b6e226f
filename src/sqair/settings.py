"""Configs in and out: checked, written as plain tables, read back, compared. Standard library only."""

import dataclasses
import math
import sys
import typing
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeVar

from sqair.config import ModelConfig, Preset, UserError, nearest

T = TypeVar("T")


class Range(NamedTuple):
    """Finite numbers from `low` to `high`; `above` leaves `low` itself out."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False

    def holds(self, value: int | float) -> bool:
        """Whether a number lies within; NaN does not."""
        finite = -math.inf < value < math.inf  # of integers of any size, which math.isfinite is not
        return finite and self.low <= value <= self.high and not (self.above and value == self.low)

    def __str__(self) -> str:
        if self.high < math.inf:
            return f"between {self.low:g} and {self.high:g}"
        return f"{'more than' if self.above else 'at least'} {self.low:g}" if self.low > -math.inf else "finite"


RANGES: dict[str, Range] = {
    name: allowed
    for allowed, names in {
        Range(0): "speed warm_up decay clip clip_frame discovery_cost_steps rediscovery_cost patience "
        "presence_cost surplus_cost presence_delay spike output_std_steps background_size width_limits sequences "
        "first_scale_steps",
        Range(0, above=True): "output_std scale_limits shift_limit where_prior_std min_std digit_scale learning_rate",
        Range(0, 1): "background_rate final_decay discovery_dropout",
        Range(0, 16): "first_scale",
        Range(0, 2**32 - 1): "seed",
        Range(1): "max_objects what_size width latent_size layers features strides decoder_hidden decoder_maps "
        "decoder_features decoder_strides length max_digits steps batch particles first_length stage evaluate_every "
        "validation_sequences keep members",
        Range(2): "image glimpse size",
    }.items()
    for name in names.split()
}
"""What the numbers of a config may be, by the names of their fields; the others need only be finite."""


def check(config: Any, where: str = "") -> None:
    """Refuse a number out of its range, and numbers that do not fit each other, by name; `where` precedes the name."""
    for item in dataclasses.fields(config):
        value, name = getattr(config, item.name), where + item.name
        if dataclasses.is_dataclass(value):
            check(value, name + ".")
        allowed = RANGES.get(item.name, Range())
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int | float) and not allowed.holds(number):
                raise UserError(f"{name} must be {allowed}, not {number}")
    if isinstance(config, ModelConfig):
        _check_model(config, where)
    if isinstance(config, Preset):
        _check_phases(config)


def _check_phases(config: Preset) -> None:
    """Refuse a first size of digits without its steps, or the other way round, and both where there are no digits."""
    scale, steps, name = config.data.first_scale, config.train.first_scale_steps, config.data.name
    if (scale or steps) and name.endswith(".npz"):
        raise UserError(
            f"data.first_scale and train.first_scale_steps are for generated digits, not for {name}; leave both 0"
        )
    if steps and not scale:
        raise UserError("train.first_scale_steps needs a size of digits for those steps; give data.first_scale, too")
    if scale and not steps:
        raise UserError("data.first_scale needs a number of steps; give train.first_scale_steps, too, or leave both 0")
    if steps > config.train.steps:
        raise UserError(f"train.first_scale_steps must be at most train.steps, {config.train.steps}, not {steps}")


def _check_model(config: ModelConfig, where: str) -> None:
    """Refuse numbers of a model that do not fit each other."""
    if config.scale_limits[0] >= config.scale_limits[1]:
        raise UserError(f"{where}scale_limits must be a smaller and a larger number, not {config.scale_limits}")
    if any(config.width_limits) and not 0 < config.width_limits[0] < config.width_limits[1]:
        raise UserError(
            f"{where}width_limits must be a smaller and a larger number, or 0 0 for those of {where}scale_limits, "
            f"not {config.width_limits}"
        )
    if config.learn_output_std and config.output_std <= config.min_std:
        raise UserError(f"{where}output_std must be more than {where}min_std, which is {config.min_std}")
    if min(config.where_prior_std) <= config.min_std:
        raise UserError(f"{where}where_prior_std must be more than {where}min_std, which is {config.min_std}")
    if config.background != "none" and (config.kind != "sqair" or config.mean_image):
        raise UserError(f"{where}background goes with the kind sqair, and without {where}mean_image")
    conv, vrnn = config.conv, config.vrnn
    layers = {
        "conv.": (conv.features, conv.strides),
        "conv.decoder_": (conv.decoder_features, conv.decoder_strides),
        "vrnn.": (vrnn.features, vrnn.strides),
    }
    for kind, (features, strides) in layers.items():
        if not 0 < len(features) == len(strides):
            raise UserError(f"{where}{kind}features and {where}{kind}strides need one number per layer")


def to_dict(config: Any) -> dict[str, Any]:
    """A dataclass as plain lists, dicts and numbers, ready for JSON or TOML."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, tuple | list) else value

    return plain(dataclasses.asdict(config))


def from_dict(cls: type[T], values: Any, where: str = "") -> T:
    """The inverse of `to_dict`; an unknown key or a value of the wrong type is refused by name."""
    if not isinstance(values, Mapping):
        raise UserError(f"{where.rstrip('.') or cls.__name__} must be a table of keys and values")
    hints = typing.get_type_hints(cls)
    for key in values:
        if key not in hints:
            raise UserError(f"unknown key {where + str(key)!r}; {nearest(str(key), hints)}")
    return cls(**{key: _value(hints[key], item, where + key) for key, item in values.items()})


def _value(hint: Any, value: Any, name: str) -> Any:
    """`value` as the type `hint`, or a refusal that names the key."""
    if dataclasses.is_dataclass(hint):
        return from_dict(typing.cast(type, hint), value, name + ".")
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if value in arguments and type(value) in {type(argument) for argument in arguments}:
            return value
        raise UserError(f"{name} must be one of {', '.join(map(str, arguments))}, not {value!r}")
    if origin is tuple and isinstance(value, list | tuple):
        kinds = [arguments[0]] * len(value) if arguments[-1] is ... else list(arguments)
        if len(kinds) == len(value):
            return tuple(_value(kind, item, name) for kind, item in zip(kinds, value, strict=True))
        raise UserError(f"{name} must have {len(kinds)} numbers, not {len(value)}")
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value) if abs(value) < sys.float_info.max else math.inf  # which `check` refuses by name
    if isinstance(hint, type) and type(value) is hint:
        return value
    wanted = "a list" if origin is tuple else hint.__name__
    raise UserError(f"{name} must be {wanted}, not {value!r}")


def differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    """Dotted names of the fields in which two configs differ."""
    names = []
    for item in dataclasses.fields(old):
        a, b = getattr(old, item.name), getattr(new, item.name)
        if dataclasses.is_dataclass(a):
            names += differences(a, b, f"{prefix}{item.name}.")
        elif a != b:
            names.append(prefix + item.name)
    return names

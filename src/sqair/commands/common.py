"""What every command shares: common flags, settings to and from TOML, the device, and where results go."""

import abc
import dataclasses
import difflib
import json
import os
import shlex
import sys
import tomllib
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import tyro

from sqair.config import UsageError, UserError
from sqair.files import without_secrets
from sqair.settings import RANGES, to_dict

T = TypeVar("T")
C = TypeVar("C", bound="Command")

Flag = tyro.conf.FlagCreatePairsOff[bool]
"""A switch that is off unless given."""


def optional(metavar: str, default: str = "") -> Any:
    """How a flag that may be left out reads in the help; `default` says what happens then."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})" if default else "")


@dataclass(frozen=True)
class Common:
    """Every command has these."""

    device: Literal["auto", "cpu", "gpu"] = "auto"
    """Where to compute; auto takes a GPU when jax finds one."""
    config: Annotated[str | None, optional("FILE.toml")] = None
    """Settings from a file, as --print-config writes them; flags on the command line win."""
    print_config: Annotated[Flag, optional("")] = False
    """Print the settings as TOML and stop."""
    overwrite: Annotated[Flag, optional("")] = False
    """Replace results that are already there."""
    quiet: Annotated[Flag, optional("")] = False
    """Print results and errors only."""
    debug: Annotated[Flag, optional("")] = False
    """Show the traceback of an error."""

    def say(self, message: str) -> None:
        """A line for the person who waits; stdout is kept for results."""
        if not self.quiet:
            print(message, file=sys.stderr, flush=True)


@dataclass(frozen=True, kw_only=True)
class Command(abc.ABC):
    """A command: its fields are flags, its docstring is the help."""

    NAME: ClassVar[str]
    POSITIONAL: ClassVar[str | None] = None
    """The field that is given without a flag."""
    common: tyro.conf.OmitArgPrefixes[Common] = field(default_factory=Common)

    @abc.abstractmethod
    def run(self) -> None:
        """Do it."""

    @classmethod
    def parse(cls: type[C], arguments: Sequence[str]) -> C:
        """The command that `arguments` describe. Wrong ones, and --help, leave with SystemExit."""
        return parse_as(cls, arguments)

    def check(self) -> None:
        """Refuse values that no command can use."""
        seed = getattr(self, "seed", None)
        if seed is not None and not RANGES["seed"].holds(seed):
            raise UserError(f"--seed must be {RANGES['seed']}, not {seed}")

    def settings(self) -> dict[str, Any]:
        """What --print-config prints: all that decides the result, without what was left open or off."""
        left_out = {"common", self.POSITIONAL}
        given = {k: v for k, v in to_dict(self).items() if k not in left_out and v is not None and v is not False}
        return {"device": self.common.device} | given


def parse_as(cls: type[C], arguments: Sequence[str], default: C | None = None) -> C:
    """`arguments` as the command `cls`, with the values of `default` where they say nothing."""
    given: dict[str, Any] = {} if default is None else {"default": default}
    command, unknown = tyro.cli(cls, prog=f"sqair {cls.NAME}", args=arguments, return_unknown_args=True, **given)
    if unknown:
        raise UsageError(refusal(cls, unknown))
    return command


def refusal(cls: type[Command], unknown: Sequence[str]) -> str:
    """What to say about words that are no flags of a command."""
    flag = next((word.partition("=")[0] for word in unknown if word.startswith("-")), None)
    if flag is None:
        return f"unexpected {without_secrets(unknown[0])!r}; see `sqair {cls.NAME} --help`"
    known = flags_of(cls)
    names = {name.rpartition(".")[2].lstrip("-"): name for name in known} | {name.lstrip("-"): name for name in known}
    close = difflib.get_close_matches(flag.lstrip("-"), names, n=1)
    advice = f"did you mean {names[close[0]]}?" if close else f"see `sqair {cls.NAME} --help`"
    return f"unknown flag {flag}; {advice}"


def flags_of(cls: type, prefix: str = "") -> list[str]:
    """The flags of a command, those of its configs with dots."""
    hints = typing.get_type_hints(cls)
    names: list[str] = []
    for item in dataclasses.fields(cls):
        dotted = "" if item.name == "common" else f"{prefix}{item.name.replace('_', '-')}."
        nested = dataclasses.is_dataclass(hints[item.name])
        names += flags_of(hints[item.name], dotted) if nested else [f"--{dotted[:-1]}"]
    return names


def command_line(words: Sequence[str]) -> str:
    """A command as one may type it again, and as it may be printed and kept: addresses lose their passwords."""
    parts = [word.partition("=") if word.startswith("--") else ("", "", word) for word in words]
    return shlex.join(["sqair", *(name + sign + without_secrets(value) for name, sign, value in parts)])


# --- settings as TOML


def with_config_files(arguments: Sequence[str]) -> list[str]:
    """`arguments` with the settings of every --config file put before them as flags, so that the last one wins.

    The file's own --config flag follows its settings: without it, a list at the end would swallow what comes next.
    """
    before: list[str] = []
    rest = list(arguments)
    for i, word in enumerate(arguments):
        name, _, path = word.partition("=")
        if name == "--config" and (path or i + 1 < len(arguments)):
            path = path or arguments[i + 1]
            before += [*to_flags(read_toml(Path(path))), "--config", path]
    return before + rest


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; --print-config writes such a file") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not TOML: {error}") from None


def to_flags(table: Mapping[str, Any], prefix: str = "") -> list[str]:
    """A TOML table as flags: `[model] width = 8` becomes --model.width 8."""
    flags: list[str] = []
    for key, value in table.items():
        name = key.replace("_", "-")
        if isinstance(value, dict):
            flags += to_flags(value, f"{prefix}{name}.")
        elif isinstance(value, bool):
            flags.append(f"--{prefix}{name}" if value else f"--{prefix}no-{name}")
        else:
            flags += [f"--{prefix}{name}", *map(str, value if isinstance(value, list) else [value])]
    return flags


def to_toml(table: Mapping[str, Any], prefix: str = "") -> str:
    """A table of plain values as TOML."""
    tables = {key: value for key, value in table.items() if isinstance(value, dict)}
    lines = [f"{key.replace('_', '-')} = {json.dumps(value)}" for key, value in table.items() if key not in tables]
    text = "".join(line + "\n" for line in lines)
    for key, value in tables.items():
        text += f"\n[{prefix}{key}]\n" + to_toml(value, f"{prefix}{key}.")
    return text


# --- the device


def choose_device(common: Common) -> str:
    """Tell jax where to compute, before it computes anything; returns the kind of device it took."""
    launch_whole_loops()
    import jax

    if common.device != "auto":
        jax.config.update("jax_platforms", {"cpu": "cpu", "gpu": "cuda,cpu"}[common.device])
    try:
        kind = jax.devices("gpu" if common.device == "gpu" else None)[0].platform
    except RuntimeError as error:
        if common.device != "gpu":
            raise
        raise UserError(
            'no GPU that jax can use; install its support with `pip install ".[cuda13]"`, or use --device cpu'
        ) from error
    common.say(f"device: {kind}")
    return kind


def launch_whole_loops() -> None:
    """Have XLA launch loops and conditionals on a GPU as one graph, unless XLA_FLAGS says something about graphs.

    It must be called before jax first looks for devices.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_gpu_enable_command_buffer" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_enable_command_buffer=+CONDITIONAL,+WHILE".strip()


# --- results


def refuse_taken(path: Path, common: Common) -> None:
    """Refuse to write over a file, unless that is wanted."""
    if path.exists() and not common.overwrite:
        raise UsageError(f"{path} exists; choose another --out, or replace it with --overwrite")


def name_of(model: str) -> str:
    """What to call the results of a model: its folder's name, and that of the run for a folder inside a run."""
    path = Path(model).expanduser().resolve()
    if path.name == "best":
        path = path.parent
    elif path.parent.name == "checkpoints":
        path = path.parent.parent
    return path.name or "model"


def finish(path: Path, *, aside: bool = False) -> None:
    """The last line of every command, on stdout unless that is for a program to read."""
    print(f"Results saved to {path}", file=sys.stderr if aside else sys.stdout)


def replaced(config: T, **changes: Any) -> T:
    """A dataclass with those `changes` that are not None."""
    return dataclasses.replace(typing.cast(Any, config), **{k: v for k, v in changes.items() if v is not None})

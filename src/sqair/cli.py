"""The ``sqair`` command: finds the subcommand, runs it, and turns what goes wrong into one line and an exit code.

0 done; 1 an error that the user can mend, or a bug; 2 wrong usage; 130 and 143 after Ctrl-C and SIGTERM. stdout carries
results only. Nothing here imports jax, so that every --help is instant.
"""

import contextlib
import os
import signal
import sys
import textwrap
import threading
import traceback
from collections.abc import Iterator, Sequence
from types import FrameType

import sqair
from sqair.commands import (
    Ablate,
    Bench,
    Command,
    Data,
    Demo,
    Evaluate,
    Figures,
    Fit,
    Predict,
    Report,
    Sample,
    Table,
    Track,
    Train,
)
from sqair.commands.common import command_line, to_toml, with_config_files
from sqair.commands.side_by_side import any_unfinished
from sqair.config import UsageError, UserError, nearest

COMMANDS: dict[str, type[Command]] = {
    command.NAME: command
    for command in (Demo, Data, Train, Fit, Track, Predict, Evaluate, Table, Figures, Ablate, Sample, Report, Bench)
}

USAGE = """\
usage: sqair COMMAND [OPTIONS]

Sequential Attend, Infer, Repeat: finds, tracks, counts and simulates moving objects in video without labels.

commands:
{commands}

options:
  -h, --help  show this help message and exit
  --version   show the version and exit

examples:
  sqair demo
  sqair track clip.mp4
  sqair train tiny --steps 1000 --out runs/train/mine

`sqair COMMAND --help` explains a command.
"""


class Terminated(KeyboardInterrupt):
    """SIGTERM: handled wherever Ctrl-C is, with another exit code."""


def program() -> int:
    """The whole process: `main`, and an end at once where a task was left behind that computes outside of Python."""
    code = main()
    if any_unfinished():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``sqair`` with these arguments, those of the process by default; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = f"sqair {words[0]}" if words and words[0] in COMMANDS else "sqair"
    try:
        with terminable():
            run(words)
            sys.stdout.flush()
        return 0
    except SystemExit as stop:  # tyro has printed its help, or what is wrong with the flags
        return stop.code if isinstance(stop.code, int) else 0
    except BrokenPipeError:
        # The reader of our stdout has left. Python must not find out once more when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt as stop:
        return report(f"{name}: stopped", 143 if isinstance(stop, Terminated) else 130)
    except UserError as error:
        return report(f"{name}: {one_line(error)}", 2 if isinstance(error, UsageError) else 1, "--debug" in words)
    except OSError as error:
        what = f"{error.strerror}: {error.filename}" if error.filename else one_line(error)
        return report(f"{name}: {what}", 1, "--debug" in words)
    except Exception as error:
        kind = f"{type(error).__name__}: {one_line(error)}"
        advice = "" if "--debug" in words else "; run again with --debug"
        return report(f"{name}: internal error: {kind}{advice}", 1, "--debug" in words)


def run(words: list[str]) -> None:
    """Do what the command line says."""
    if not words:
        print(usage(), end="", file=sys.stderr)
        raise SystemExit(2)
    if words[0] in ("-h", "--help"):
        print(usage(), end="")
    elif words[0] == "--version":
        print(f"sqair {sqair.__version__}")
    elif words[0] not in COMMANDS:
        kind = "option" if words[0].startswith("-") else "command"
        raise UsageError(f"unknown {kind} {words[0]!r}; {nearest(words[0], [*COMMANDS, '--help', '--version'])}")
    else:
        command = COMMANDS[words[0]].parse(with_config_files(words[1:]))
        if command.common.print_config:
            print(f"# {command_line(words)}\n{to_toml(command.settings())}", end="")
        else:
            command.check()
            command.run()


def usage() -> str:
    """The text of ``sqair --help``."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {summary(command)}" for name, command in COMMANDS.items()]
    return USAGE.format(commands="\n".join(lines))


def summary(command: type[Command]) -> str:
    """The first sentence of a command's help."""
    return (command.__doc__ or "").partition("\n")[0]


def one_line(error: Exception) -> str:
    """The message of an error on one line, and not a long one."""
    return textwrap.shorten(str(error) or "no message", 500, placeholder=" ...")


def report(message: str, code: int, debug: bool = False) -> int:
    """Print a message on stderr, after the traceback if that is wanted; returns the exit code."""
    if debug:
        traceback.print_exc()
    print(message, file=sys.stderr)
    return code


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that a run can save before it ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

"""What the README tells people to type works."""

import re
import shlex
from pathlib import Path

import pytest

from sqair.cli import main

README = (Path(__file__).parents[1] / "README.md").read_text()
COMMANDS = re.findall(r"^\$ sqair (.+)$", README, re.MULTILINE)
PROGRAMS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_understood(command, capsys):
    """Each command line parses, its model and preset exist, and its settings can be printed."""
    assert main([*shlex.split(command), "--print-config"]) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_run(program, capsys):
    """The lines of Python run as they stand and print the identities of ten frames."""
    exec(program, {})
    assert len(capsys.readouterr().out.splitlines()) == 10


def test_there_is_something_to_test():
    """The patterns above still find what they look for."""
    assert len(COMMANDS) >= 4
    assert len(PROGRAMS) == 1

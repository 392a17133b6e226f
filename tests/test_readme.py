"""What the README tells people to type works."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from sqair.cli import main
from sqair.figures import write_video

README = (Path(__file__).parents[1] / "README.md").read_text()
COMMANDS = re.findall(r"^\$ sqair (.+)$", README, re.MULTILINE)
PROGRAMS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_understood(command, capsys):
    """Each command line parses, its model and preset exist, and its settings can be printed."""
    assert main([*shlex.split(command), "--print-config"]) == 0
    assert capsys.readouterr().out


@pytest.fixture
def clip(tmp_path, monkeypatch):
    """A working folder with a clip.mp4 of three frames."""
    monkeypatch.chdir(tmp_path)
    write_video(tmp_path / "clip.mp4", np.zeros((3, 50, 50, 3), np.uint8), 5)


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_run(program, clip, capsys):
    """The lines of Python run as they stand; the program that prints tells the identities of ten frames."""
    names = {}
    exec(program, names)
    assert len(capsys.readouterr().out.splitlines()) == (10 if "print" in program else 0)
    assert "tracks" not in names or names["tracks"].frames == 3


def test_there_is_something_to_test():
    """The patterns above still find what they look for."""
    assert len(COMMANDS) >= 4
    assert len(PROGRAMS) == 2

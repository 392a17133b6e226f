"""What training shows: on stderr only, lines in a pipe, a bar on a terminal, nothing when quiet."""

import io

import pytest
from rich.console import Console

from sqair.training import console
from sqair.training.console import Display

MEANS = {"bound": 12.34, "objects": 1.5, "discovered_first": 1.0, "discovered_later": 0.25, "propagated": 1.25}


def show(display: Display) -> None:
    with display:
        display.update(50, [MEANS], 160.0, 1)
        display.evaluated(50, [11.0], True, 1)


def test_lines_in_a_pipe(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "LINE_EVERY", 0.0)
    show(Display(100, 0, batch=32))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "step 50/100  bound 12.3  objects 1.50  found 1.00+0.25  kept 1.25  160 sequences/s  0:00:10 left",
        "step 50/100  validation bound 11.00 (best)",
    ]


def test_lines_are_not_too_many(capsys: pytest.CaptureFixture) -> None:
    display = Display(100, 0, batch=32)
    for step in range(50):
        display.update(step, [MEANS], 160.0, 1)
    assert capsys.readouterr().err == ""


def test_quiet(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "LINE_EVERY", 0.0)
    show(Display(100, 0, batch=32, quiet=True))
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""


def test_a_bar_on_a_terminal() -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=160)
    show(Display(100, 10, batch=32, console=terminal))
    text = screen.getvalue()
    assert "step 50/100" in text
    assert "objects 1.50" in text
    assert "validation bound 11.00 (best)" in text


def test_time_left_is_not_guessed_before_the_speed_is_known() -> None:
    display = Display(100, 0, batch=32, quiet=True)
    assert display.remaining(1, 0.0) == "?"
    assert display.remaining(0, 32 / 36.61) == "1:01:01"


def test_a_population_shows_its_spread(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "LINE_EVERY", 0.0)
    means = [MEANS | {"bound": bound, "objects": bound} for bound in (1.0, 3.0, float("nan"))]
    with Display(100, 0, batch=32) as display:
        display.update(50, means, 160.0, 2)
        display.evaluated(50, [1.0, 3.0, float("nan")], True, 2)
    assert capsys.readouterr().err.splitlines() == [
        "step 50/100  bound 3.0 (member 1), median 1.0, worst -inf  healthy 2/3  objects 3.00  found 1.00+0.25  "
        "kept 1.25  160 sequences/s  0:00:10 left",
        "step 50/100  validation bound 3.00 (member 1), median 1.00, worst -inf, a new best  healthy 2/3",
    ]

"""docs/tutorial.py runs from its first cell to its last, shows what its text says, and reads as a page."""

import re
import runpy
from pathlib import Path

import numpy as np

PAGE = Path(__file__).parents[1] / "docs" / "tutorial.py"


def test_the_tutorial_runs(capsys):
    names = runpy.run_path(str(PAGE))
    truth = names["sequences"].counts.max(0)[0]
    assert names["info"].objects.pres[0].sum() == truth == len(names["tracks"].ids) == 2
    assert [len(future.counts) for future in names["prediction"].futures] == [7, 7]
    assert names["found"]["counting"] is not None
    assert np.all(np.diff(names["losses"]) < 0)
    assert names["pupil"].image.pixels.std != 0.3
    assert "nan" not in capsys.readouterr().out


def test_it_reads_as_a_page():
    """Cells of text and of code take turns, and what the text names exists."""
    cells = re.findall(r"^# %%( \[markdown\])?\n(.*?)(?=^# %%|\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert [bool(kind) for kind, _ in cells] == [True, False] * (len(cells) // 2)
    for kind, cell in cells:
        assert not kind or all(line.startswith("#") for line in cell.strip().splitlines())
    for target in re.findall(r"\]\(([^)]+)\)", PAGE.read_text()):
        assert (PAGE.parent / target).exists()

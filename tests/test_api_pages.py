"""docs/api says what the docstrings say, of every public name."""

import importlib.util
from pathlib import Path

import pytest

import sqair

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def make_api():
    spec = importlib.util.spec_from_file_location("make_api", DOCS / "make_api.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(make_api) -> None:
    assert make_api.PAGE.read_text(encoding="utf-8") == make_api.page(), "run `python docs/make_api.py`"


def test_every_public_name_has_a_section_and_a_docstring(make_api) -> None:
    page = make_api.page()
    for name in sqair.__all__:
        assert f"\n## `sqair.{name}`\n" in page
        assert make_api.prose(make_api.definition(name)).strip(), f"{name} has no docstring"


def test_signatures_are_as_written_and_numbers_have_no_names(make_api) -> None:
    page = make_api.page()
    assert "sample(model: SequenceModel, *, count: int = 4, frames: int = 20, seed: int = 0) -> list[Scene]" in page
    assert "    rate: float = 10.0,\n) -> Prediction" in page
    assert '- `box: Float32[ndarray, "n 4"]`: The tight box of what is seen;' in page
    assert "merge(*ids: int) -> " in page
    assert "SQAIR(config: ModelConfig, *, key: PRNGKeyArray)\n" in page
    places = make_api.anchors(["preset", "Preset"])
    assert places == {"preset": "sqairpreset", "Preset": "sqairpreset-1"}

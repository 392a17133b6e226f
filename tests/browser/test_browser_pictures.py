"""The page that `sqair track` makes of moving digits with the shipped model, and its pictures for docs."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import keep_picture, pixels
from playwright.sync_api import expect

from sqair.cli import main
from sqair.commands.evaluate import trained_on
from sqair.data import open_data
from sqair.figures import COLOURS
from sqair.training.checkpoint import read_card

MODEL, FRAMES, SEED = "sqair-strokes", 60, 3


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a track run on a clip with two digits."""
    folder = tmp_path_factory.mktemp("digits")
    data = dataclasses.replace(trained_on(read_card(MODEL)), name="moving-mnist", digits="strokes", length=FRAMES)
    clips = open_data(data, "test").fixed(20, SEED)
    chosen = np.asarray(clips.frames[int(np.asarray(clips.counts).sum(1).argmax())])
    np.save(folder / "digits.npy", chosen)
    words = ["track", folder / "digits.npy", "--model", MODEL, "--particles", "5", "--out", folder / "run", "--quiet"]
    assert main([str(word) for word in words]) == 0
    return folder / "run"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("page-light", {"color_scheme": "light"}),
        ("page-dark", {"color_scheme": "dark"}),
        ("page-phone", {"viewport": {"width": 390, "height": 844}}),
    ],
)
def test_what_the_shipped_model_found_is_on_the_page(visit: Any, digits: Path, name: str, options: Any) -> None:
    options = {"viewport": {"width": 1320, "height": 900}} | options
    with visit(digits, **options) as page:
        expect(page.locator("#clock")).to_have_text(f"1 / {FRAMES}")
        page.evaluate("show(33)")
        expect(page.locator("#clock")).to_have_text(f"34 / {FRAMES}")
        page.keyboard.press("n")
        expect(page.locator("#detail-facts")).to_contain_text("in sight")
        shown = pixels(page, ".panel canvas")[..., :3]
        for colour in COLOURS[:2]:
            rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
            assert (shown == rgb).all(-1).sum() > 100, "a box and its label"
        keep_picture(page, name)

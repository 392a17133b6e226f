"""The page of a training: curves and their values, alarms, pictures."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import SHOWN_RUN, keep_picture
from PIL import Image
from playwright.sync_api import expect

from sqair.report import remake, train_page

FIELDS = ("bound", "objects", "propagated", "discovered_first", "discovered_later")
NAME = "it's a <b>run & more"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two members, four evaluations, an alarm, two pictures and a failure."""
    folder = tmp_path_factory.mktemp("train") / NAME
    for name in ("reconstructions", "failures"):
        (folder / name).mkdir(parents=True)
    lines = [
        {"step": step, "member": member, "seconds": 60.0, "alarm": None}
        | {
            f"{kind}_{name}": step / 100 + member + i
            for i, name in enumerate(FIELDS)
            for kind in ("train", "validation")
        }
        for step in (100, 200, 300, 400)
        for member in (0, 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    alarm = {"step": 200, "member": 1, "failure": "ghosts", "action": "copied", "seed": 3, "donor": 0}
    (folder / "run.json").write_text(json.dumps({"command": "sqair train <i>", "alarms": [alarm], "device": "cpu"}))
    (folder / "preset.json").write_text(json.dumps({"model": {"width": 8}, "train": {"steps": 400}}))
    for i, path in enumerate(
        ("reconstructions/step-000100.png", "reconstructions/step-000400.png", "failures/one.png")
    ):
        Image.fromarray(np.full((20, 30 + i, 3), 80 * i, np.uint8)).save(folder / path)
    train_page(folder)
    return folder


def test_curves_are_drawn_and_read(visit: Any, run: Path) -> None:
    with visit(run) as page:
        expect(page.locator("h1")).to_have_text(NAME)
        expect(page.locator(".chart")).to_have_count(3)
        expect(page.locator(".chart").first.locator("svg[role=img] g path")).to_have_count(4)
        chart = page.get_by_role("img", name="bound, nats per frame")
        chart.focus()
        page.keyboard.press("End")
        said = "step 400: validation 4 (0), 5 (1) · training 4 (0), 5 (1)"
        expect(page.locator(".readout").first).to_have_text(said)
        box = chart.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 60, box["y"] + 80)
        expect(page.locator(".readout").first).to_contain_text("step 100: validation 1 (0), 2 (1)")


def test_alarms_pictures_and_settings(visit: Any, run: Path) -> None:
    with visit(run) as page:
        expect(page.locator("#alarms")).to_have_text("step 200: member 1 collapsed (ghosts); replaced by member 0")
        assert page.locator("#pictures img").evaluate("image => image.naturalWidth") == 31
        page.locator("#moment").fill("0")
        expect(page.locator("#moment-name")).to_have_text("step 100")
        assert page.locator("#pictures img").evaluate("image => image.naturalWidth") == 30
        expect(page.locator("#failures figcaption")).to_have_text("one")
        expect(page.locator("#command")).to_have_text("sqair train <i>")
        page.get_by_text("All settings").click()
        expect(page.get_by_role("row", name="model.width")).to_contain_text("8")


def test_picture_of_a_training(visit: Any, run: Path) -> None:
    folder = Path(SHOWN_RUN).resolve() if SHOWN_RUN else run
    remake(folder)
    with visit(folder, viewport={"width": 1320, "height": 1000}) as page:
        expect(page.locator(".chart svg[role=img] path")).not_to_have_count(0)
        keep_picture(page, "page-train", full=False)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_and_labels_of_a_training(visit: Any, run: Path, scheme: str) -> None:
    with visit(run, color_scheme=scheme, viewport={"width": 390, "height": 800}) as page:
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()

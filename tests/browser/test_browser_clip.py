"""The page of a clip as people use it: playing, stepping, choosing, keys, a phone, the dark, a screen reader."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import SIZE, make_clip, picture, pixels, until
from playwright.sync_api import Page, expect

from sqair.figures import COLOURS
from sqair.report import PageWriter

PHONE = {"width": 375, "height": 740}


def shows(page: Page, number: int, of: int = 40) -> None:
    """Wait until the page shows a frame, counted from 1."""
    expect(page.locator("#clock")).to_have_text(f"{number} / {of}")


def click_object(page: Page, x: float, y: float) -> None:
    """Click into the first picture, at a place of the source's frame."""
    box = page.locator(".panel canvas").first.bounding_box()
    assert box is not None
    zoom = box["width"] / 60
    page.mouse.click(box["x"] + x * zoom, box["y"] + y * zoom)


def test_it_loads_and_tells_what_it_is(visit: Any, clip: Path) -> None:
    with visit(clip) as page:
        shows(page, 1)
        expect(page).to_have_title("a clip · sqair track")
        expect(page.locator("h1")).to_have_text("a clip")
        expect(page.locator("#facts")).to_contain_text("identities2")
        assert page.locator(".panel canvas").count() == 2
        assert page.locator("#bars [role=option]").count() == 2


def test_pictures_are_exact_in_every_frame(visit: Any, clip: Path) -> None:
    with visit(clip) as page:
        for number in (1, 2, 3, 30, 29, 40):
            page.evaluate("number => show(number - 1)", number)
            shows(page, number)
            t = number - 1
            assert pixels(page, ".panel canvas")[2, 2].tolist() == [t * 5, 255 - t * 5, 77, 255]


def test_play_pause_and_the_end(visit: Any, clip: Path) -> None:
    with visit(clip) as page:
        page.locator("#loop").uncheck()
        page.locator("#speed").select_option("4")
        page.get_by_role("button", name="Play", exact=True).click()
        expect(page.get_by_role("button", name="Pause")).to_be_visible()
        shows(page, 40)
        expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
        page.locator("#speed").select_option("0.1")
        page.get_by_role("button", name="Play", exact=True).click()  # from the start again
        expect(page.locator("#clock")).to_have_text(re.compile(r"^[12] / 40"))
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Pause").click()


def test_steps_and_scrubbing(visit: Any, clip: Path) -> None:
    with visit(clip) as page:
        page.get_by_label("One frame on").click()
        page.get_by_label("One frame on").click()
        shows(page, 3)
        page.get_by_label("One frame back").click()
        shows(page, 2)
        page.locator("#scrub").fill("19")
        shows(page, 20)
        assert page.locator("#scrub").get_attribute("aria-valuetext") == "frame 20 of 40, objects: 2"
        box = page.locator("#count").bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + box["width"] * 0.51, box["y"] + 10)
        shows(page, 21)


def test_keys(visit: Any, clip: Path) -> None:
    with visit(clip) as page:
        shows(page, 1)
        for key, number in [
            ("ArrowRight", 2),
            ("Shift+ArrowRight", 12),
            ("ArrowLeft", 11),
            ("End", 40),
            ("ArrowRight", 40),
            ("Home", 1),
        ]:
            page.keyboard.press(key)
            shows(page, number)
        page.keyboard.press("n")
        expect(page.locator("#detail-title")).to_have_text("Object 1")
        page.keyboard.press("Escape")
        expect(page.locator("#detail-title")).to_have_text("No object chosen")
        page.keyboard.press(" ")
        expect(page.locator("body")).to_have_class("playing")
        page.keyboard.press(" ")
        expect(page.locator("body")).not_to_have_class("playing")
        page.keyboard.press("b")
        expect(page.locator("[data-show=boxes]")).not_to_be_checked()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).not_to_be_visible()


def test_everything_is_reached_by_tab_and_seen_there(visit: Any, clip: Path) -> None:
    with visit(clip) as page:
        reached = []
        for _ in range(24):
            page.keyboard.press("Tab")
            name, ring = page.evaluate(
                """() => {
                    const at = document.activeElement;
                    const seen = at.matches(".toggles input") ? at.nextElementSibling : at;
                    return [at.id || at.dataset.show || at.tagName, getComputedStyle(seen).outlineStyle];
                }"""
            )
            reached.append(name)
            assert ring == "solid" or name in ("A", "BODY"), name
        wanted = ["back", "play", "forward", "scrub", "speed", "boxes", "ids", "trails", "where", "uncertainty", "loop"]
        wanted += ["help-button", "zoom-out", "zoom-in", "zoom-all", "bars"]
        assert [name for name in reached if name in wanted][: len(wanted)] == wanted


def test_bars_by_keyboard(visit: Any, clip: Path) -> None:
    with visit(clip) as page:
        page.locator("#bars").focus()
        page.keyboard.press("ArrowDown")
        expect(page.locator("#bars")).to_have_attribute("aria-activedescendant", "bar-0:2")
        page.keyboard.press("Enter")
        expect(page.locator("#detail-title")).to_have_text("Object 2")
        shows(page, 6)  # the frame of its birth
        expect(page.locator("#bars [aria-selected=true]")).to_have_attribute(
            "aria-label", "Object 2, frames 6 to 30, out of sight in 6"
        )


def test_choosing_an_object_in_the_picture(visit: Any, clip: Path) -> None:
    with visit(clip) as page:
        page.evaluate("show(7)")
        shows(page, 8)
        click_object(page, 26, 32)
        expect(page.locator("#detail-title")).to_have_text("Object 2")
        expect(page.locator("#detail-facts")).to_contain_text("frames 6\u201330")
        expect(page.locator("#detail-facts")).to_contain_text("26.0, 32.5")
        for name in ("glimpses", "what", "path"):
            assert len(np.unique(pixels(page, f"#{name}").reshape(-1, 4), axis=0)) > 3, name
        page.evaluate("show(12)")
        expect(page.locator("#detail-facts")).to_contain_text("alive, out of sight")
        click_object(page, 57, 37)
        expect(page.locator("#detail-title")).to_have_text("No object chosen")


def test_choosing_a_bar(visit: Any, clip: Path) -> None:
    with visit(clip) as page:
        page.locator("#bars .bar-name").nth(1).click()
        expect(page.locator("#detail-title")).to_have_text("Object 2")
        shows(page, 6)


def test_toggles_draw_and_take_away(visit: Any, clip: Path) -> None:
    orange = [int(COLOURS[0][i : i + 2], 16) for i in (1, 3, 5)]

    def drawn(page: Page) -> int:
        return int((pixels(page, ".panel canvas")[..., :3] == orange).all(-1).sum())

    with visit(clip) as page:
        page.evaluate("show(20)")
        shows(page, 21)
        for name in ("boxes", "ids", "trails"):
            before = drawn(page)
            page.locator(f"[data-show={name}]").uncheck()
            assert drawn(page) < before or name == "trails", name  # trails are drawn half transparent
        assert drawn(page) == 0
        for name in ("uncertainty", "where"):
            before = page.locator(".panel canvas").first.screenshot()
            page.locator(f"[data-show={name}]").check()
            assert page.locator(".panel canvas").first.screenshot() != before, name


def test_timeline_zooms(visit: Any, clip: Path) -> None:
    with visit(clip) as page:
        page.get_by_label("Show less time").click()
        assert page.evaluate("timeline.end - timeline.start") == 20
        page.keyboard.press("End")
        shows(page, 40)
        assert page.evaluate("timeline.end") == 40
        expect(page.locator("#bars [role=option]")).to_have_count(2 if page.evaluate("timeline.start") < 30 else 1)
        page.get_by_role("button", name="All").click()
        assert page.evaluate("[timeline.start, timeline.end]") == [0, 40]


def test_facts_and_remarks(visit: Any, tmp_path: Path) -> None:
    facts = {"objects_per_frame": 1.5, "metrics": {"mota": 0.97}, "remarks": ["the clip is <dark>"]}
    with visit(make_clip(tmp_path / "remarked", **facts)) as page:
        expect(page.locator("#remarks")).to_have_text("the clip is <dark>")
        expect(page.locator("header")).to_contain_text("objects per frame1.5")
        page.get_by_text("All facts").click()
        expect(page.locator("#all-facts")).to_contain_text("metrics mota0.97")
        assert Axe().run(page).violations_count == 0
    with visit(make_clip(tmp_path / "plain")) as page:
        expect(page.locator("#remarks")).not_to_be_visible()


def test_tracks_as_a_table(visit: Any, clip: Path) -> None:
    with visit(clip) as page:
        page.get_by_text("Tracks as a table").click()
        expect(page.get_by_role("row", name="Object 2")).to_have_text("Object 2630" + "25" + "11\u201316")


def test_the_live_region_speaks_at_rest_only(visit: Any, clip: Path) -> None:
    with visit(clip) as page:
        page.keyboard.press("ArrowRight")
        expect(page.locator("#live")).to_have_text("Frame 2 of 40, 1 object")
        page.locator("#speed").select_option("0.5")
        page.locator("body").press(" ")
        page.wait_for_timeout(900)
        expect(page.locator("#live")).to_have_text("Frame 2 of 40, 1 object")
        page.locator("body").press(" ")


@pytest.mark.parametrize("options", [{}, {"viewport": PHONE, "has_touch": True}], ids=["wide", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_and_labels(visit: Any, clip: Path, scheme: str, options: dict[str, Any]) -> None:
    with visit(clip, color_scheme=scheme, **options) as page:
        shows(page, 1)
        page.keyboard.press("n")
        page.get_by_text("Tracks as a table").click()
        expect(page.locator("#detail-title")).to_have_text("Object 1")
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        page.keyboard.press("?")
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()


def test_a_phone_shows_one_column_and_takes_touches(visit: Any, clip: Path) -> None:
    with visit(clip, viewport=PHONE, has_touch=True, is_mobile=True, device_scale_factor=2) as page:
        shows(page, 1)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        tops = page.evaluate("[...document.querySelectorAll('section')].map(s => s.getBoundingClientRect().left)")
        assert len(set(tops)) == 1
        page.locator("#forward").tap()
        shows(page, 2)
        page.locator("#bars .bar").first.tap()
        expect(page.locator("#detail-title")).to_have_text("Object 1")
        small = page.evaluate(
            "[...document.querySelectorAll('button, select, .toggles label')]"
            ".filter(e => e.offsetParent && Math.min(e.offsetHeight, e.offsetWidth) < 24).length"
        )
        assert small == 0


def test_the_dark_is_dark(visit: Any, clip: Path) -> None:
    with visit(clip, color_scheme="dark") as page:
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
        assert page.evaluate("theme.ink") == "#eceff2"
        page.emulate_media(color_scheme="light")
        until(page, "theme.ink === '#1b1f24'")


def test_reduced_motion(visit: Any, clip: Path) -> None:
    with visit(clip) as page:
        assert page.locator("#loop").is_checked()
    with visit(clip, reduced_motion="reduce") as page:
        assert not page.locator("#loop").is_checked()
        assert page.evaluate("getComputedStyle(document.querySelector('button')).transitionDuration") == "0s"


@pytest.mark.parametrize("count", [0, 1])
def test_hardly_a_clip(visit: Any, tmp_path: Path, count: int) -> None:
    with PageWriter(tmp_path, title="short", kind="track", rate=10, size=SIZE, model="m") as writer:
        for _ in range(count):
            writer.add(picture(0, []), picture(0, []), [])
        writer.close({})
    with visit(tmp_path) as page:
        expect(page.locator("h1")).to_have_text("short")
        page.keyboard.press("End")
        page.keyboard.press("n")
        page.keyboard.press(" ")
        page.wait_for_timeout(200)
        page.keyboard.press(" ")
        expect(page.locator("#clock")).to_have_text("1 / 1" if count else "")
        assert page.locator("[data-show=uncertainty]").is_disabled(), "nothing is known of it"


def test_futures_side_by_side(visit: Any, futures: Path) -> None:
    with visit(futures) as page:
        shows(page, 1, of=12)
        expect(page.locator(".panel")).to_have_count(3)
        expect(page.locator(".panel").nth(1)).to_contain_text("observed")
        page.keyboard.press("End")
        expect(page.locator(".panel").nth(1)).to_contain_text("predicted")
        expect(page.locator(".panel").first.locator("figcaption")).to_have_text("clip")
        expect(page.locator("#bars .bar-name")).to_have_text(["future 1 · object 1", "future 2 · object 1"])
        expect(page.locator("#bars [role=option]")).to_have_count(2)
        shows(page, 12, of=12)
        page.keyboard.press("n")
        page.keyboard.press("n")
        expect(page.locator("#detail-title")).to_have_text("Object 1, future 2")
        assert Axe().run(page).violations_count == 0

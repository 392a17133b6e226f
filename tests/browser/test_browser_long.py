"""A clip that is too long for one file: it plays a video, loads its tracks in parts and keeps few of them."""

import re
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from conftest import until
from playwright.sync_api import expect


def test_it_loads_parts_when_they_are_needed(visit: Any, hour: Path) -> None:
    assert (hour / "index.html").stat().st_size < 1_000_000
    with visit(hour) as page:
        expect(page.locator("#clock")).to_have_text("1 / 20000")
        assert page.evaluate("[...rowCache.ready.keys()]") == [0]
        page.evaluate("show(12345)")
        expect(page.locator("#clock")).to_have_text("12346 / 20000")
        assert page.evaluate("rowsAt(12345).map(row => row.id)") == [12345 // 30 + 1, 100_000]
        for frame in range(0, 20_000, 700):
            page.evaluate("frame => show(frame)", frame)
        assert page.evaluate("rowCache.ready.size") <= page.evaluate("KEPT_PARTS")


def test_rows_exist_only_where_they_are_seen(visit: Any, hour: Path) -> None:
    with visit(hour) as page:
        page.get_by_role("button", name="All").click()
        assert page.evaluate("timeline.rows.length") == 668
        assert page.locator("#bars [role=option]").count() < 20
        page.locator("#bars").focus()
        for _ in range(30):
            page.keyboard.press("PageDown")
        active = page.locator("#bars .active")
        expect(active).to_be_visible()
        page.keyboard.press("Enter")
        assert int(str(active.get_attribute("aria-posinset"))) > 200
        expect(page.locator("#detail-title")).to_have_text(re.compile(r"Object \d{3}"))


def test_the_video_plays_and_frames_follow(visit: Any, hour: Path) -> None:
    with visit(hour) as page:
        until(page, "film.video.readyState >= 2")
        assert page.evaluate("film.video.error") is None
        page.evaluate("show(100)")
        until(page, "!film.video.seeking && film.video.readyState >= 2")
        assert page.evaluate("film.frame()") == 100
        page.keyboard.press(" ")
        until(page, "state.frame > 104")
        page.keyboard.press(" ")
        assert page.evaluate("film.video.paused")
        page.evaluate("show(100)")
        until(page, "!film.video.seeking")
        box = page.locator(".screen canvas").bounding_box()
        assert box is not None
        zoom = box["width"] / 120 * 2  # the video shows two pixels for one of the source
        page.mouse.click(box["x"] + 24 * zoom, box["y"] + 32 * zoom)
        expect(page.locator("#detail-title")).to_have_text("Object 100000")
        expect(page.locator("#detail-facts")).to_contain_text("frames 1\u201320000")


def test_a_long_life_is_told_around_the_present(visit: Any, hour: Path) -> None:
    with visit(hour) as page:
        page.evaluate("show(9000); select('0:100000')")
        until(page, "story && story.first > 8000")
        first, last = page.evaluate("[story.first, story.last]")
        assert first <= 9000 <= last
        assert last - first < 300


def test_a_missing_part_or_video_is_said(visit: Any, hour: Path, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_bytes((hour / "index.html").read_bytes())
    with visit(tmp_path, quiet=False) as page:
        expect(page.locator("#live")).to_have_text("page/rows-00000.js is missing")
        expect(page.locator(".badge")).to_contain_text("overlay.mp4 cannot be played")


def test_contrast_and_labels_of_a_long_clip(visit: Any, hour: Path) -> None:
    with visit(hour) as page:
        expect(page.locator("#clock")).to_have_text("1 / 20000")
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()

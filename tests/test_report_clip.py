"""The page of a clip: what is in the file, what is beside it, and what is left behind. No browser is needed here."""

import base64
import io
import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sqair.config import UserError
from sqair.report import PageObject, PageWriter, remake
from sqair.report.clip import PART, Video
from sqair.report.document import read_blocks, safe_json
from sqair.report.pictures import layout_of, sheet

SIZE = (6, 8)


def at(t: int) -> list[PageObject]:
    """Object 1 from frame 2 to 7, out of sight in 4 and 5; object 9 in frames 0 and 3 only."""
    found = []
    glimpse, what = np.full((3, 2, 1), 7 * t % 256, np.uint8), np.array([-9.0, 0.0, 4.0])
    if 2 <= t <= 7:
        box = [np.nan] * 4 if t in (4, 5) else [t, 1.0, 2.0, 3.0]
        found.append(PageObject(1, np.array(box), [t - 1, 0, 4, 5], 0.5, float("nan"), glimpse, what))
    if t in (0, 3):
        found.append(PageObject(9, np.arange(4.0), np.zeros(4), 0.25, 0.125, glimpse, what))
    return found


def frame(t: int) -> np.ndarray:
    return np.random.default_rng(t).integers(0, 256, (*SIZE, 3), np.uint8)


def write(folder: Path, count: int = 10, summary: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """Write a page; returns its blocks."""
    options = {"title": "t", "kind": "track", "rate": 10, "size": SIZE, "model": "m"} | options
    with PageWriter(folder, **options) as page:
        for t in range(count):
            page.add(frame(t), frame(t)[::2, ::2, :1], at(t))
        page.close(summary or {})
    return blocks(folder)


def blocks(folder: Path) -> dict[str, Any]:
    return {name: json.loads(content) for name, content in read_blocks(folder / "index.html")}


def numbers(text: str, kind: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), kind)


def image(address: str) -> np.ndarray:
    head, _, content = address.partition(",")
    assert head == "data:image/webp;base64"
    with Image.open(io.BytesIO(base64.b64decode(content))) as picture:
        return np.asarray(picture.convert("RGB"))


def test_the_head_tells_lives_and_counts(tmp_path: Path) -> None:
    head = write(tmp_path)["head"]
    assert head["lives"] == [
        {"group": 0, "id": 9, "first": 0, "last": 3, "out": [[1, 2]]},
        {"group": 0, "id": 1, "first": 2, "last": 7, "out": [[4, 5]]},
    ]
    assert numbers(head["counts"][0], "u1").tolist() == [1, 0, 1, 2, 1, 1, 1, 1, 0, 0]
    assert (head["frames"], head["parts"], head["inOne"], head["video"]) == (10, 1, True, None)
    assert head["hasSpread"]


def test_rows_are_what_was_added(tmp_path: Path) -> None:
    rows = write(tmp_path)["rows-00000"]
    assert numbers(rows["offsets"], "<u4").tolist() == [0, 1, 1, 2, 4, 5, 6, 7, 8, 8, 8]
    assert numbers(rows["ids"], "<i4").tolist() == [9, 1, 1, 9, 1, 1, 1, 1]
    table = numbers(rows["numbers"], "<f4").reshape(-1, 10)
    assert table[0].tolist() == [0, 1, 2, 3, 0, 0, 0, 0, 0.25, 0.125]
    assert table[1, :9].tolist() == [2, 1, 2, 3, 1, 0, 4, 5, 0.5]
    assert np.isnan(table[4, :4]).all()
    assert np.isnan(table[1, 9])
    assert numbers(rows["what"], "u1").reshape(-1, 3)[0].tolist() == [0, 128, 255]
    glimpses = image(rows["glimpses"])
    assert glimpses.shape == (9, 6, 3)  # 8 glimpses of 3 x 2 in rows of 3
    assert abs(int(glimpses[4, 3, 0]) - 28) < 12  # the fifth is that of frame 4


def test_small_frames_are_exact(tmp_path: Path) -> None:
    written = write(tmp_path)
    layout = written["head"]["panels"][0]
    (first,), (second,) = written["frames-00000"]
    columns, whole = layout["columns"], image(first)
    for t in range(10):
        y, x = t // columns * SIZE[0], t % columns * SIZE[1]
        assert np.array_equal(whole[y : y + SIZE[0], x : x + SIZE[1]], frame(t))
    assert np.array_equal(image(second)[:3, :4, 0], frame(0)[::2, ::2, 0])


def test_large_frames_are_scaled_and_come_one_by_one() -> None:
    layout = layout_of((2160, 3840, 3), PART)
    assert (layout.size, layout.per_sheet, layout.exact) == ((540, 960), 2, False)
    grey = np.full((540, 960, 3), 100, np.uint8)
    assert np.abs(image(sheet([grey], layout.columns, exact=False)).astype(int) - 100).max() < 4


def test_a_long_clip_has_its_parts_beside_it(tmp_path: Path) -> None:
    count = 2 * PART + 3
    written = write(tmp_path, count, video=Video("it's.mp4", zoom=2.0), limit=30_000)
    assert list(written) == ["head"]
    head = written["head"]
    assert (head["inOne"], head["frames"], head["parts"]) == (False, count, 3)
    assert head["video"] == {"name": "it's.mp4", "left": 0.0, "top": 0.0, "zoom": 2.0}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html", "page"]
    assert sorted(path.name for path in (tmp_path / "page").iterdir()) == [f"rows-0000{i}.js" for i in range(3)]
    script = (tmp_path / "page" / "rows-00002.js").read_text()
    assert script.startswith('deliver("rows-00002", {"offsets":')
    assert "script-src 'sha256-" in (tmp_path / "index.html").read_text()
    assert re.search(r"script-src [^;]* 'self';.*media-src 'self';", (tmp_path / "index.html").read_text())


def test_without_a_video_the_frames_stay_beside_the_page(tmp_path: Path) -> None:
    head = write(tmp_path, PART + 1, limit=30_000)["head"]
    assert (head["video"], head["inOne"]) == (None, False)
    names = {path.name for path in (tmp_path / "page").iterdir()}
    assert names == {f"{kind}-0000{i}.js" for kind in ("rows", "frames") for i in (0, 1)}


def test_a_shorter_clip_replaces_the_parts_of_a_longer_one(tmp_path: Path) -> None:
    write(tmp_path, PART, limit=1)
    write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with PageWriter(tmp_path, title="t", kind="track", rate=1, size=SIZE, model="m") as page:
            page.add(frame(0), frame(0), [])
            raise OSError("the source vanished")

    with pytest.raises(OSError, match="vanished"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_clip_without_objects_and_one_without_frames(tmp_path: Path) -> None:
    with PageWriter(tmp_path, title="t", kind="track", rate=1, size=SIZE, model="m") as page:
        page.add(frame(0)[..., 0], frame(0), [])
        page.close({})
    assert blocks(tmp_path)["rows-00000"]["glimpses"] is None
    assert write(tmp_path, 0)["head"]["frames"] == 0


def test_little_is_held_however_long_the_clip(tmp_path: Path) -> None:
    with PageWriter(tmp_path, title="t", kind="track", rate=1, size=SIZE, model="m", limit=10**9) as page:
        for t in range(3 * PART + PART // 2):
            page.add(frame(0), frame(0), at(t % 10))
        held = [page.ids, page.numbers, page.whats, page.glimpses, *(reel.waiting for reel in page.reels)]
        assert max(map(len, held)) <= 2 * PART
        assert sum(len(reel.sheets) for reel in page.reels) == 0
        assert len(page.lives.lives) == 2


def test_futures_have_objects_of_their_own(tmp_path: Path) -> None:
    options = {"title": "t", "kind": "predict", "rate": 5, "size": SIZE, "model": "m", "observed": 1}
    with PageWriter(tmp_path, panels=["clip", "a", "b"], groups=[-1, 0, 1], **options) as page:
        for t in range(3):
            page.add_panels([frame(t)] * 3, [at(3), at(2)])
        page.close({})
    head = blocks(tmp_path)["head"]
    assert [(panel["name"], panel["group"]) for panel in head["panels"]] == [("clip", -1), ("a", 0), ("b", 1)]
    assert [(life["group"], life["id"]) for life in head["lives"]] == [(0, 1), (0, 9), (1, 1)]
    assert head["observed"] == 1
    with pytest.raises(ValueError, match="2 panels need as many groups"):
        PageWriter(tmp_path, panels=["a", "b"], groups=[0], **options)


def test_letterboxed_pictures_are_cut_on_all_panels_but_the_first(tmp_path: Path) -> None:
    panels = write(tmp_path, content=(0.0, 0.5, 4.0, 2.0))["head"]["panels"]
    assert [panel["content"] for panel in panels] == [[0, 0, 8, 6], [0.0, 0.5, 4.0, 2.0]]


NASTY = '</script><script>alert(1)</script> <!-- "it\'s" & \u2028\u2029 \U0001f600 \udcff'


def test_json_stays_json_in_a_page() -> None:
    text = safe_json({NASTY: [NASTY, float("nan"), 1.5]})
    assert not set("<>&\u2028\u2029").intersection(text)
    (name, (value, nothing, number)), *_ = json.loads(text).items()
    assert name == value == NASTY
    assert (nothing, number) == (None, 1.5)


def test_names_of_users_are_never_markup(tmp_path: Path) -> None:
    head = write(tmp_path, title=NASTY, model=NASTY, summary={NASTY: NASTY})["head"]
    assert (head["title"], head["model"], head["summary"]) == (NASTY, NASTY, {NASTY: NASTY})
    text = (tmp_path / "index.html").read_text()
    assert "alert(1)" in text
    assert "<script>alert" not in text


def test_the_policy_names_all_that_is_there_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path)
    text = (tmp_path / "index.html").read_text()
    found = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert found is not None
    rules = dict(rule.split(" ", 1) for rule in found[1].split("; "))
    for name, tag in (("script-src", "script"), ("style-src", "style")):
        contents = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        hashes = [f"'sha256-{base64.b64encode(sha256(each.encode()).digest()).decode()}'" for each in contents]
        assert rules.pop(name) == " ".join(hashes)
    assert rules == {
        "default-src": "'none'",
        "img-src": "data:",
        "media-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    shell = re.sub(r"<script.*?</script>|<style>.*?</style>", "", text, flags=re.DOTALL)
    assert not re.search(r"\son\w+=|\sstyle=|https?://|javascript:", shell)


def test_programs_never_write_markup() -> None:
    assets = Path(__file__).parents[1] / "src/sqair/report/assets"
    for path in assets.glob("*.js"):
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", path.read_text()
        )


def test_a_page_is_made_again_from_itself(tmp_path: Path) -> None:
    write(tmp_path / "one")
    write(tmp_path / "many", PART + 1, limit=1)
    for folder in (tmp_path / "one", tmp_path / "many"):
        before = (folder / "index.html").read_bytes()
        (folder / "index.html").write_bytes(before.replace(b"--accent", b"--older"))
        assert remake(folder) == folder / "index.html"
        assert (folder / "index.html").read_bytes() == before


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("<p>hello</p>", "was not made by sqair"),
        ('<script type="application/json" id="head">{"a":1}</script>', "was not made by sqair"),
        ('<script type="application/json" id="head">[1]</script>', "was not made by sqair"),
        ('<script type="application/json" id="head">{"format":9}</script>', "has format 9, this version reads 1"),
        ('<script type="application/json" id="head">{"format":1}</script>', "not the page of a clip"),
    ],
)
def test_another_page_is_refused(tmp_path: Path, content: str, line: str) -> None:
    (tmp_path / "index.html").write_text(content)
    with pytest.raises(UserError, match=line):
        remake(tmp_path)
    assert (tmp_path / "index.html").read_text() == content

"""One Chromium for all tests, and made clips as pages. `make browser` installs what they need and runs them.

With SQAIR_WRITE_PICTURES=RUN, the folder of a training, the pictures of docs/pictures are written anew.
"""

import base64
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from sqair.figures import write_video
from sqair.report import PageObject, PageWriter
from sqair.report.clip import Video

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
SHOWN_RUN = os.environ.get("SQAIR_WRITE_PICTURES")
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
MOST_BYTES = 300_000
"""Of a picture in docs."""
SIZE = (40, 60)
FRAMES = 40
HIDDEN = range(10, 16)
"""Frames in which the second object is out of sight."""
Open = Callable[..., Any]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    assert CHROMIUM, "no Chromium; `make browser` installs it"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser: Browser) -> Open:
    """Open a page from disk; leaving it fails if it wrote to the console or asked for anything beyond its folder."""

    @contextmanager
    def open_page(folder: Path, quiet: bool = True, **options: Any) -> Iterator[Page]:
        context = browser.new_context(viewport=options.pop("viewport", {"width": 1280, "height": 900}), **options)
        page = context.new_page()
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.on("request", lambda request: asked.append(request.url))
        page.on("requestfailed", lambda request: request.failure == "csp" and asked.remove(request.url))
        page.goto((folder / "index.html").as_uri())
        page.wait_for_load_state()
        yield page
        context.close()
        if quiet:
            assert said == []
        base = folder.as_uri()
        assert [url for url in asked if not url.startswith((base, "data:"))] == []

    return open_page


def until(page: Page, expression: str) -> None:
    """Wait for an expression to hold. Playwright's own wait evaluates text in the page, which the policy forbids."""
    for _ in range(200):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(25)
    raise AssertionError(f"never came true: {expression}")


def pixels(page: Page, canvas: str) -> np.ndarray:
    """What is drawn on a canvas (a selector), as an array (y, x, 4)."""
    width, height, data = page.evaluate(
        """selector => {
            const shown = document.querySelector(selector);
            const copy = Object.assign(document.createElement("canvas"), { width: shown.width, height: shown.height });
            const context = copy.getContext("2d", { willReadFrequently: true });
            context.drawImage(shown, 0, 0);
            const data = context.getImageData(0, 0, copy.width, copy.height).data;
            return [copy.width, copy.height, btoa(Array.from(data, (byte) => String.fromCharCode(byte)).join(""))];
        }""",
        canvas,
    )
    return np.frombuffer(base64.b64decode(data), np.uint8).reshape(height, width, 4)


def keep_picture(page: Page, name: str, full: bool = True) -> None:
    """Take a picture of the page, `full` or what is seen at once, and keep it if that is wanted."""
    with Image.open(io.BytesIO(page.screenshot(full_page=full))) as picture:
        file = io.BytesIO()
        picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    assert file.tell() < MOST_BYTES
    if SHOWN_RUN:
        (PICTURES / f"{name}.png").write_bytes(file.getvalue())


def moving(t: int, identity: int, hidden: bool = False) -> PageObject:
    """An object on its way through the frame."""
    left, top = 2.0 + 1.2 * t * (identity == 1) + 20 * (identity == 2), 4.0 + 12 * identity
    box = np.full(4, np.nan) if hidden else np.array([left, top, 8.0, 9.0])
    glimpse = np.full((6, 6, 1), 40 * identity + t, np.uint8)
    what = np.sin(np.arange(5) + t / 9.0 + identity)
    return PageObject(identity, box, np.array([left - 2, top - 2, 12, 13]), 0.9, 0.7, glimpse, what)


def objects_at(t: int) -> list[PageObject]:
    """The first lives always, the second is born in frame 5 (counted from 0) and dies after 29."""
    present = [moving(t, 1)]
    if 5 <= t < 30:
        present.append(moving(t, 2, t in HIDDEN))
    return present


def picture(t: int, objects: list[PageObject]) -> np.ndarray:
    """A dark frame with bright boxes; its top left pixel tells which frame it is."""
    frame = np.full((*SIZE, 3), 20, np.uint8)
    for each in objects:
        if np.isfinite(each.box).all():
            left, top, width, height = (round(float(value)) for value in each.box)
            frame[top : top + height, left : left + width] = (200, 180, 160)
    frame[0, 0] = (t * 5, 255 - t * 5, 77)
    return frame


def make_clip(folder: Path, *, title: str = "a clip", model: str = "a model", **summary: Any) -> Path:
    """A page in one file."""
    with PageWriter(folder, title=title, kind="track", rate=10, size=SIZE, model=model) as page:
        for t in range(FRAMES):
            objects = objects_at(t)
            page.add(picture(t, objects), picture(t, objects)[::2, ::2, :1], objects)
        page.close({"source": title, **summary})
    return folder


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_clip(tmp_path_factory.mktemp("clip"))


@pytest.fixture(scope="session")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page in parts: 20,000 frames, a new identity every 30, and a video of the first ten seconds."""
    folder = tmp_path_factory.mktemp("hour")
    black, options = np.zeros((*SIZE, 1), np.uint8), {"rate": 25, "size": SIZE, "model": "m", "limit": 100_000}
    with PageWriter(folder, title="long", kind="track", video=Video(zoom=2.0), **options) as page:
        for t in range(20_000):
            first = moving(t % 30, 1)._replace(id=t // 30 + 1)
            page.add(black, black, [first, moving(0, 2)._replace(id=100_000)])
        page.close({})
    film = np.zeros((250, 80, 120, 3), np.uint8)
    film[:] = (np.arange(250) % 250)[:, None, None, None]
    write_video(folder / "overlay.mp4", film, 25)
    return folder


@pytest.fixture(scope="session")
def futures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `sqair predict` will show: a clip and two futures of it, after five observed frames."""
    folder = tmp_path_factory.mktemp("futures")
    panels, groups = ["clip", "future 1", "future 2"], [-1, 0, 1]
    options = {"rate": 5, "size": SIZE, "model": "m", "observed": 5}
    with PageWriter(folder, title="futures", kind="predict", panels=panels, groups=groups, **options) as page:
        for t in range(12):
            found = [[moving(t, 1)], [moving(max(0, t - 2), 1)]]
            page.add_panels([picture(t, each) for each in ([], *found)], found)
        page.close({})
    return folder

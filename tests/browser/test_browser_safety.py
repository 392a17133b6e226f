"""What a page must not do: run what it did not bring, reach a network, or take a name for markup."""

from pathlib import Path
from typing import Any

import pytest
from conftest import make_clip
from playwright.sync_api import Page, expect

from sqair.report import evaluate_page

NASTY = """</script><script>alert(1)</script><img src=x onerror=alert(1)> "it's" & ünï😀 \u2028 ${x} $title"""
INJECT = {
    "inline": "add('script', { textContent: 'window.hacked = 1' })",
    "handler": "document.body.insertAdjacentHTML('beforeend', '<img src=data:, onerror=\"window.hacked = 1\">')",
    "data": "add('script', { src: 'data:text/javascript,window.hacked=1' })",
    "network": "add('script', { src: 'http://127.0.0.1:9/x.js' })",
    "style": "add('style', { textContent: 'body { opacity: 0.5 }' })",
    "picture": "add('img', { src: 'http://127.0.0.1:9/x.png' })",
    "frame": "add('iframe', { src: 'http://127.0.0.1:9/' })",
    "eval": "setTimeout('window.hacked = 1')",
}
ADD = "const add = (tag, what) => document.body.append(Object.assign(document.createElement(tag), what));"


def violations(page: Page, program: str) -> list[str]:
    """What the policy forbade while a program ran."""
    page.evaluate(
        "window.seen = []; document.addEventListener('securitypolicyviolation', e => seen.push(e.effectiveDirective))"
    )
    page.evaluate(program)
    page.wait_for_timeout(200)
    return page.evaluate("seen")


@pytest.mark.parametrize("name", INJECT)
@pytest.mark.parametrize("kind", ["clip", "hour"])
def test_nothing_injected_runs_or_loads(visit: Any, request: pytest.FixtureRequest, kind: str, name: str) -> None:
    with visit(request.getfixturevalue(kind), quiet=False) as page:
        assert violations(page, f"{{ {ADD} {INJECT[name]} }}"), "refused"
        assert page.evaluate("window.hacked") is None
        assert page.evaluate("getComputedStyle(document.body).opacity") == "1"


@pytest.mark.parametrize("kind", ["clip", "hour"])
def test_no_request_leaves_the_page(visit: Any, request: pytest.FixtureRequest, kind: str) -> None:
    with visit(request.getfixturevalue(kind), quiet=False) as page:
        assert violations(page, "fetch('http://127.0.0.1:9/x').catch(() => {})") == ["connect-src"]
    with visit(request.getfixturevalue(kind), quiet=False) as page:
        assert violations(page, "navigator.sendBeacon('http://127.0.0.1:9/x', 'x')") == ["connect-src"]


def test_names_are_text(visit: Any, tmp_path: Path) -> None:
    folder = make_clip(tmp_path / 'it\'s <b>a</b> "folder" ü#?', title=NASTY, model=NASTY, **{NASTY: NASTY})
    with visit(folder) as page:
        expect(page.locator("#clock")).to_have_text("1 / 40")
        assert page.locator("h1").inner_text().startswith("</script><script>alert(1)")
        assert page.locator("h1").text_content() == NASTY
        assert page.title().startswith("</script>")
        assert page.locator("header img, header script, header b").count() == 0


def test_names_are_text_in_an_evaluation(visit: Any, tmp_path: Path) -> None:
    tmp_path = tmp_path / "evaluation"
    evaluate_page(tmp_path, {"model": NASTY, "data": NASTY, "log_p": 12345.678, "counting": 0.5})
    with visit(tmp_path) as page:
        assert page.locator("h1").text_content() == NASTY
        expect(page.get_by_role("row", name="log p")).to_contain_text("12,345.68")
        assert page.locator("img").count() == 0

"""A page as one file: its style, its programs and its data inside, and a policy that lets nothing else in.

Everything that comes from users is data: JSON that no parser of HTML can take for markup, put on the page as text.
"""

import base64
import hashlib
import html
import json
import re
import shutil
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, BinaryIO

from sqair.config import UserError
from sqair.files import written_atomically
from sqair.training.files import finite

PAGE = "index.html"
FORMAT = 1
"""Of the data in a page; another one cannot be shown by these programs."""
BLOCK = re.compile(rb'<script type="application/json" id="([a-z0-9-]+)">(.*?)</script>', re.DOTALL)
MARK = "<!-- data -->"
"""Where the data stands in a page's template."""


def asset(name: str) -> str:
    """A file of assets/."""
    return resources.files("sqair.report").joinpath("assets", name).read_text(encoding="utf-8")


def safe_json(value: Any) -> str:
    """JSON that stays JSON inside a script element and a script file; what is not finite becomes null."""
    text = json.dumps(finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text.encode("utf-8", "backslashreplace").decode()  # a file's name may hold bytes that are no text


def plain(text: str) -> str:
    """Text of a user as HTML."""
    return html.escape(text.encode("utf-8", "backslashreplace").decode())


def policy(style: str, scripts: Iterable[str], *, parts: bool) -> str:
    """The content-security policy: this style, these programs, pictures inside the page, and nothing else.

    A page whose data lies in `parts` beside it also plays a video and runs scripts from there.
    """
    hashes = " ".join(digest(script) for script in scripts)
    rules = {
        "default-src": "'none'",
        "script-src": hashes + (" 'self'" if parts else ""),
        "style-src": digest(style),
        "img-src": "data:",
        "media-src": "'self'" if parts else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def digest(text: str) -> str:
    """How a policy names a style or a program inside the page."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def write_page(
    path: Path,
    template: str,
    scripts: Iterable[str],
    *,
    title: str,
    head: dict[str, Any],
    blocks: Iterable[tuple[str, Path]] = (),
    parts: bool = False,
    **more: str,
) -> None:
    """Write a page from assets: a template of what is in its body, the common head and style, and programs.

    `head` is the data that the programs begin with; `blocks` are further ones, each the name of the element and the
    file with its JSON, copied one after the other. `more` fills the template's other places with HTML.
    """
    style, programs = asset("page.css"), [asset(name) for name in scripts]
    text = Template(asset("page.html").replace("$body", asset(template))).substitute(
        more,
        title=plain(title),
        policy=policy(style, programs, parts=parts),
        style=style,
        scripts="\n".join(f"<script>{program}</script>" for program in programs),
    )
    before, _, after = text.partition(MARK)
    with written_atomically(path) as file:
        file.write(before.encode())
        file.write(opening("head") + safe_json({"format": FORMAT} | head).encode() + b"</script>\n")
        for name, source in blocks:
            copy_block(file, name, source)
        file.write(after.encode())


def opening(name: str) -> bytes:
    """The first tag of a block of data."""
    return f'<script type="application/json" id="{name}">'.encode()


def copy_block(file: BinaryIO, name: str, source: Path) -> None:
    """Append a file of JSON as a block."""
    file.write(opening(name))
    with source.open("rb") as content:
        shutil.copyfileobj(content, file)
    file.write(b"</script>\n")


def read_blocks(path: Path) -> Iterator[tuple[str, bytes]]:
    """The blocks of a page, the head first; refuses a file that is no page of ours."""
    found = ((match[1].decode(), match[2]) for match in BLOCK.finditer(path.read_bytes()))
    try:
        name, content = next(found)
        version = json.loads(content)["format"] if name == "head" else None
    except (StopIteration, ValueError, TypeError, KeyError):
        raise UserError(f"{path} was not made by sqair; give the folder of a run") from None
    if version != FORMAT:
        raise UserError(f"{path} has format {version}, this version reads {FORMAT}; use the version that made it")
    yield name, content
    yield from found

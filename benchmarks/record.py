"""What every record says besides its numbers: when, where, with what code and by which command."""

import datetime
import hashlib
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax

import sqair
from sqair.training.files import write_json

RECORDS = Path(__file__).parent / "records"


def circumstances() -> dict[str, Any]:
    """Date, time (UTC), device, versions, code and command of this process."""
    device, now = jax.devices()[0], datetime.datetime.now(datetime.UTC)
    return {
        "date": now.date().isoformat(),
        "time": now.time().isoformat(timespec="seconds"),
        "device": f"{device.platform}: {device.device_kind}",
        "python": platform.python_version(),
        "jax": jax.__version__,
        "code": code_version(),
        "command": command_line(),
    }


def code_version() -> str:
    """The commit, where git can tell, and the hash of the package's sources, which tells the same everywhere."""
    words = ["git", "describe", "--always", "--dirty"]
    try:
        answer = subprocess.run(words, capture_output=True, text=True, check=False, cwd=RECORDS).stdout.strip()
    except OSError:
        answer = ""
    return f"{answer or 'commit unknown'}, sources {source_hash()}"


def source_hash() -> str:
    """The first twelve digits of the SHA-256 of all Python files of the package, in the order of their names."""
    folder, total = Path(sqair.__file__).parent, hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        total.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()[:12]


def command_line() -> str:
    """The command of this process, with the last part only of paths that are this machine's own."""
    spec = sys.modules["__main__"].__spec__
    program = ["-m", spec.name] if spec is not None else [Path(sys.argv[0]).name]
    return " ".join(["python", *program, *(Path(word).name if word.startswith("/") else word for word in sys.argv[1:])])


def write_record(name: str, results: Any, folder: Path | None = None, about: dict[str, Any] | None = None) -> Path:
    """Write `<date>_<name>.json`, all of it or nothing, and return its path; `about` is as `circumstances` gives it."""
    about = about or circumstances()
    path = (folder or RECORDS) / f"{about['date']}_{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {**about, "results": results})
    return path

"""What every record says besides its numbers: when, where, with what code and by which command."""

import datetime
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax

RECORDS = Path(__file__).parent / "records"


def circumstances() -> dict[str, Any]:
    """Date, device, versions, code and command of this process."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False, cwd=RECORDS
    )
    device = jax.devices()[0]
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": f"{device.platform}: {device.device_kind}",
        "python": platform.python_version(),
        "jax": jax.__version__,
        "code": described.stdout.strip() or "unknown",
        "command": " ".join(["python", *sys.argv]),
    }


def write_record(name: str, results: Any, folder: Path | None = None) -> Path:
    """Write `<date>_<name>.json` and return its path."""
    about = circumstances()
    path = (folder or RECORDS) / f"{about['date']}_{name}.json"
    path.write_text(json.dumps({**about, "results": results}, indent=1) + "\n")
    return path

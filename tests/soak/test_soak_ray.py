"""Many videos and ablations on a local Ray cluster whose workers are killed: all are done once, bad ones named."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from sqair.cluster import Died, Outcome, run_items
from sqair.commands import ablate
from sqair.config import ModelConfig
from sqair.evaluation.ablations import COLUMNS
from sqair.training.checkpoint import build, save_model

VIDEOS = int(os.environ.get("SQAIR_VIDEOS", "60"))
"""How many, the broken ones included."""
BROKEN = ("broken-1.mp4", "broken-2.npy", "broken-3.npy", "broken-4.npy", "broken-5.npz")
KILLS = 3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    config = ModelConfig(image=(16, 16), glimpse=(6, 6), max_objects=2, what_size=4, width=8)
    save_model(folder, build(config, jax.random.key(0)), {})
    return folder


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    """Clips of three frames; of the broken ones two can be opened, and fail while they are read."""
    folder, random = tmp_path / "videos", np.random.default_rng(0)
    folder.mkdir()
    for number in range(VIDEOS - len(BROKEN)):
        np.save(folder / f"clip-{number:03d}.npy", random.integers(0, 120, (3, 16, 16), np.uint8))
    (folder / BROKEN[0]).write_text("no video")
    (folder / BROKEN[1]).write_bytes((folder / "clip-000.npy").read_bytes()[:-100])
    for name in BROKEN[2:4]:
        np.save(folder / name, np.stack([np.zeros((16, 16)), np.full((16, 16), np.nan)]))
    (folder / BROKEN[4]).write_bytes(b"PK\3\4 no archive")
    return folder


def track(videos: Path, model: Path, out: Path, *more: str) -> subprocess.Popen:
    words = [sys.executable, "-m", "sqair", "track", str(videos), "--model", str(model), "--out", str(out), *more]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def parents() -> Iterator[tuple[int, int, bytes]]:
    """Every process with its parent and its command line."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            yield int(folder.name), int(parent), (folder / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue


def busy_workers(process: subprocess.Popen) -> list[int]:
    """The workers of a command's cluster that have an item."""
    found = list(parents())
    family = {process.pid}
    for _ in range(3):  # the command's own processes, theirs, and theirs
        family |= {pid for pid, parent, _ in found if parent in family}
    return [pid for pid, _, words in found if pid in family and words.startswith(b"ray::sqair")]


def finished(out: Path) -> dict[str, tuple[int, int]]:
    """The clips that are done, and which file tells so, made when."""
    stats = {path.parent.name: path.stat() for path in out.glob("*/summary.json")}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items()}


def kill_workers(process: subprocess.Popen, out: Path) -> None:
    """kill -9 a worker with an item, so often, each some clips after the last."""
    for number in range(KILLS):
        while process.poll() is None and len(finished(out)) < VIDEOS * (number + 1) // (KILLS + 3):
            time.sleep(0.01)
        busy: list[int] = []
        while process.poll() is None and not busy:
            busy = busy_workers(process)
        os.kill(busy[0], signal.SIGKILL)


def test_many_videos_with_workers_killed(
    videos: Path, model: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    out, began = tmp_path / "out", time.monotonic()
    first = track(videos, model, out, "--ray", "local")
    kill_workers(first, out)
    while first.poll() is None and len(finished(out)) < VIDEOS * 4 // 5:
        time.sleep(0.01)
    first.send_signal(signal.SIGTERM)
    said = first.communicate(timeout=300)
    assert first.returncode == 143, said
    done, rows = finished(out), json.loads((out / "results.json").read_text())["clips"]
    assert any(row.get("tries", 1) > 1 for row in rows), "clips of killed workers are tried again"
    assert len(done) < VIDEOS - len(BROKEN), "some must be left"

    second = track(videos, model, out, "--ray", "local", "--resume")
    printed, said = second.communicate(timeout=1800)
    assert second.returncode == 1, said
    assert said.splitlines()[-1].startswith(f"sqair track: {len(BROKEN)} of {VIDEOS} clips failed: ")
    assert printed.splitlines()[-1] == f"Results saved to {out}"
    after = finished(out)
    assert len(after) == VIDEOS - len(BROKEN)
    assert {name: after[name] for name in done} == done, "what was finished is not done again"
    rows = json.loads((out / "results.json").read_text())["clips"]
    assert sorted(row["clip"] for row in rows if row["state"] == "tracked") == sorted(after)
    assert sorted(Path(row["source"]).name for row in rows if row["state"] == "failed") == sorted(BROKEN)
    assert len({row["clip"] for row in rows}) == len(rows) == VIDEOS
    assert {path.name for path in out.iterdir()} == {*after, "results.json", "results.csv"}, "nothing is left behind"

    third = track(videos, model, out, "--resume", "--quiet")
    said = third.communicate(timeout=300)
    assert third.returncode == 1, said
    assert finished(out) == after
    found = {"videos": VIDEOS, "results": len(after), "named_failures": len(BROKEN), "workers_killed": KILLS}
    found |= {"finished_when_stopped_and_resumed": len(done), "seconds_of_tracking": round(time.monotonic() - began)}
    for name, value in found.items():
        record_property(name, value)


def test_an_item_that_kills_its_workers_is_given_up() -> None:
    """It is tried three times, while the others are done."""
    assert in_own_process("give_up()") == ""


def in_own_process(call: str) -> str:
    """What a call of a function of this file prints; in another process, since Ray leaves traces in one."""
    program = f"import {Path(__file__).stem} as here; here.{call}"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def give_up() -> None:
    """What the test above runs."""

    def work(number: int) -> int:
        if number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 2:
            raise ValueError("two")
        return 10 * number

    outcomes: dict[int, Outcome] = {}
    run_items(range(4), work, address="local", retries=2, on_done=outcomes.__setitem__)
    assert isinstance(outcomes[1].error, Died)
    assert outcomes[1].tries == 3
    assert repr(outcomes[2].error) == "ValueError('two')"
    assert (outcomes[0], outcomes[3]) == (Outcome(0), Outcome(30))


def test_ablations_on_a_cluster(tmp_path: Path) -> None:
    """The second command finds both finished."""
    words = ["width-32", "particles-2", "--digits", "strokes", "--out", str(tmp_path / "out"), "--ray", "local"]
    first = in_own_process(f"ablations({words!r})")
    found = {path.parent.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*/ablation.json")}
    assert set(found) == {"width-32", "particles-2"}
    assert "| width-32 " in first
    assert in_own_process(f"ablations({[*words, '--resume']!r})") == first
    assert {path.parent.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*/ablation.json")} == found


class Quick(ablate.Work):
    """Trains nothing: the rest is the real thing."""

    def __call__(self, item: ablate.Item) -> dict[str, Any]:
        row = dict.fromkeys(("seed", *COLUMNS), float(os.getpid()))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sqair.evaluation.ablations.ablate", lambda *_, say, **asked: {**asked, "rows": [row]})
            return super().__call__(item)


def ablations(words: list[str]) -> None:
    """What the test above runs."""
    ablate.Work = Quick  # pyright: ignore[reportAttributeAccessIssue]
    command = ablate.Ablate.parse(words)
    command.check()
    command.run()

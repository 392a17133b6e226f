"""Many videos and ablations on a local Ray cluster whose workers are killed: all are done once, bad ones named."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image

from sqair.cluster import Died, Outcome, connected, run_items
from sqair.commands import ablate
from sqair.config import ModelConfig, UserError
from sqair.data.video import open_clips
from sqair.evaluation.ablations import COLUMNS
from sqair.training.checkpoint import build, save_model

VIDEOS = int(os.environ.get("SQAIR_VIDEOS", "60"))
"""How many, the broken ones included."""
DAMAGED = f"clip-{VIDEOS // 4:03d}-damaged.npy"
"""Whole when the command looks at it, and no longer when a worker does."""
IN_WORKERS = ("frames-1", "frames-2", DAMAGED)
BROKEN = ("broken-1.mp4", "broken-2.npz", *IN_WORKERS)
KILLS = 3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    config = ModelConfig(image=(16, 16), glimpse=(6, 6), max_objects=2, what_size=4, width=8)
    save_model(folder, build(config, jax.random.key(0)), {})
    return folder


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    """Clips of three frames; of the broken ones all can be opened but two, and fail while they are read."""
    random = np.random.default_rng(0)
    frames = [tmp_path / name for name in IN_WORKERS[:2]]
    for folder in frames:
        folder.mkdir()
        Image.fromarray(random.integers(0, 120, (16, 16), np.uint8)).save(folder / "1.png")
        (folder / "2.png").write_text("no picture")
        assert len(open_clips(folder)) == 1
    videos = tmp_path / "videos"
    videos.mkdir()
    for name in (DAMAGED, *(f"clip-{number:03d}.npy" for number in range(VIDEOS - len(BROKEN)))):
        np.save(videos / name, random.integers(0, 120, (3, 16, 16), np.uint8))
    (videos / BROKEN[0]).write_text("no video")
    (videos / BROKEN[1]).write_bytes(b"PK\3\4 no archive")
    return [*frames, videos]


def track(sources: list[Path], model: Path, out: Path, *more: str) -> subprocess.Popen:
    words = [*map(str, sources), "--model", str(model), "--out", str(out), *more]
    return subprocess.Popen(
        [sys.executable, "-m", "sqair", "track", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def described(pid: int) -> tuple[str, int, bytes] | None:
    """The state of a process, its parent and its command line; None when it has ended."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        return None if state in "ZX" else (state, int(parent), Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return None


def family(process: subprocess.Popen) -> set[int]:
    """A command and all processes that it, or those that it started, have started."""
    every = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
    parents = {pid: about[1] for pid in every if (about := described(pid))}
    found, more = set[int](), {process.pid}
    while more:
        found |= more
        more = {pid for pid, parent in parents.items() if parent in found} - found
    return found


def is_busy(pid: int) -> bool:
    """Whether a process is a worker with an item: Ray has it bear the name of its task until it has answered."""
    about = described(pid)
    return about is not None and about[2].startswith(b"ray::sqair")


def kill_a_busy_worker(process: subprocess.Popen) -> None:
    """kill -9 a worker that has an item for certain: one that stands still does not finish it first."""
    while process.poll() is None:
        for pid in filter(is_busy, family(process)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                while (about := described(pid)) and about[0] != "T":
                    time.sleep(0.001)
                busy = is_busy(pid)
                os.kill(pid, signal.SIGKILL if busy else signal.SIGCONT)
                if busy:
                    return


def finished(out: Path) -> dict[str, tuple[int, int]]:
    """The clips that are done, and which file tells so, made when."""
    stats = {path.parent.name: path.stat() for path in out.glob("*/summary.json")}
    return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items()}


def wait_for(process: subprocess.Popen, ready: Callable[[], bool]) -> None:
    """Wait while a command runs."""
    while process.poll() is None and not ready():
        time.sleep(0.01)


def rows_of(out: Path, sources: list[Path]) -> list[dict[str, Any]]:
    """The table, in which every source is, once, and in which every worker that was killed is counted."""
    rows = json.loads((out / "results.json").read_text())["clips"]
    expected = [*sources[:2], *sources[2].iterdir()]
    assert sorted(row["source"] for row in rows) == sorted(map(str, expected))
    assert len({row["clip"] for row in rows}) == len(rows) == VIDEOS
    assert sum(row.get("tries", 1) - 1 for row in rows) == KILLS
    return rows


def test_many_videos_with_workers_killed(
    sources: list[Path], model: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    out, began = tmp_path / "out", time.monotonic()
    first = track(sources, model, out, "--ray", "local")
    wait_for(first, (out / "results.json").exists)  # it has looked at all clips
    os.truncate(sources[2] / DAMAGED, 300)
    for number in range(KILLS):
        wait_for(first, lambda number=number: len(finished(out)) >= VIDEOS * (number + 1) // (KILLS + 3))
        kill_a_busy_worker(first)
    wait_for(first, lambda: len(finished(out)) >= VIDEOS * 4 // 5)
    first.send_signal(signal.SIGTERM)
    said = first.communicate(timeout=300)
    assert first.returncode == 143, said
    done, rows = finished(out), {row["clip"]: row for row in rows_of(out, sources)}
    assert len(done) < VIDEOS - len(BROKEN), "some must be left"
    assert {name for name, row in rows.items() if row["state"] == "tracked"} <= set(done)
    for name, why in zip(IN_WORKERS, ("as an image", "as an image", "not an intact .npy"), strict=True):
        row = rows[name.removesuffix(".npy")]
        assert row["state"] == "failed"
        assert why in row["error"]

    second = track(sources, model, out, "--ray", "local", "--resume")
    printed, said = second.communicate(timeout=1800)
    assert second.returncode == 1, said
    assert said.splitlines()[-1].startswith(f"sqair track: {len(BROKEN)} of {VIDEOS} clips failed: ")
    assert printed.splitlines()[-1] == f"Results saved to {out}"
    after = finished(out)
    assert len(after) == VIDEOS - len(BROKEN)
    assert {name: after[name] for name in done} == done, "what was finished is not done again"
    rows = rows_of(out, sources)
    assert sorted(row["clip"] for row in rows if row["state"] == "tracked") == sorted(after)
    assert sorted(Path(row["source"]).name for row in rows if row["state"] == "failed") == sorted(BROKEN)
    assert {path.name for path in out.iterdir()} == {*after, "results.json", "results.csv"}, "nothing is left behind"

    third = track(sources, model, out, "--ray", "local", "--resume", "--quiet")
    said = third.communicate(timeout=300)
    assert third.returncode == 1, said
    assert finished(out) == after
    assert rows_of(out, sources) == rows
    found = {"videos": VIDEOS, "results": len(after), "named_failures": len(BROKEN), "workers_killed": KILLS}
    found |= {"failed_in_workers": len(IN_WORKERS), "tries_more_than_one_each": sum(row["tries"] - 1 for row in rows)}
    found |= {"finished_when_stopped_and_resumed": len(done), "seconds_of_tracking": round(time.monotonic() - began)}
    for name, value in found.items():
        record_property(name, value)


def test_the_death_of_a_command_ends_its_workers(model: Path, tmp_path: Path) -> None:
    """kill -9 while they are busy: no process of its cluster is left, and what it began can be gone on with."""
    out, videos = tmp_path / "out", tmp_path / "videos"
    videos.mkdir()
    for number in range(4):
        np.save(videos / f"{number}.npy", np.full((3, 16, 16), 40 * number, np.uint8))
    process = track([videos], model, out, "--ray", "local")
    wait_for(process, lambda: any(map(is_busy, family(process))))
    others = family(process) - {process.pid}
    assert any(map(is_busy, others)), process.communicate()
    process.kill()
    process.wait()
    last = time.monotonic() + 120
    while (left := [pid for pid in others if described(pid)]) and time.monotonic() < last:
        time.sleep(0.1)
    assert not left, [described(pid) for pid in left]
    process.communicate()
    again = track([videos], model, out, "--resume")
    said = again.communicate(timeout=300)
    assert again.returncode == 0, said
    assert {path.name for path in out.iterdir()} == {*"0123", "results.json", "results.csv"}


def test_what_is_not_ray_is_given_up(model: Path, tmp_path: Path) -> None:
    """Something takes connections, and says nothing: one line, and no folder is left behind."""
    np.save(tmp_path / "1.npy", np.zeros((3, 16, 16), np.uint8))
    np.save(tmp_path / "2.npy", np.zeros((3, 16, 16), np.uint8))
    with socket.create_server(("", 0)) as server:  # Ray asks the machine's own address when it is told this one
        address = f"127.0.0.1:{server.getsockname()[1]}"
        process = track([tmp_path], model, tmp_path / "out", "--quiet", "--ray", address)
        printed, said = process.communicate(timeout=300)
    assert process.returncode == 1
    assert printed == ""
    assert said == f"sqair track: cannot use the Ray cluster at {address}: it did not answer within 30 seconds\n"
    assert not (tmp_path / "out").exists()


def test_a_cluster_that_runs_already() -> None:
    """It is used through its address by whoever knows its token, and by nobody else."""
    token, other = in_own_process("serve()").splitlines()
    assert token == "[0, 10, 20]"
    assert other.startswith("cannot use the Ray cluster at ")


def serve() -> None:
    """What the test above runs: a cluster, and two commands that would use it."""
    with connected("local") as ray:
        address = ray.get_runtime_context().gcs_address
        programs = [f"import {__name__} as here; here.ask({address!r})"] * 2
        told = ({}, {"RAY_AUTH_TOKEN": "0" * 64})
        answers = [
            subprocess.run([sys.executable, "-c", program], env=os.environ | more, capture_output=True, text=True)
            for program, more in zip(programs, told, strict=True)
        ]
    for each in answers:
        print(each.stdout.strip() or each.stderr)


def ask(address: str) -> None:
    """Have a cluster do three things."""
    outcomes: dict[int, Outcome] = {}
    try:
        run_items(range(3), lambda number: 10 * number, address=address, on_done=outcomes.__setitem__)
        print([outcomes[number].value for number in range(3)])
    except UserError as error:
        print(error)


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
    """The first worker of one is killed: it is tried again. The second command finds both finished."""
    out = tmp_path / "out"
    words = ["width-32", "particles-2", "--digits", "strokes", "--out", str(out), "--ray", "local"]
    first = in_own_process(f"ablations({words!r})")
    found = {path.parent.name: path.stat().st_mtime_ns for path in out.glob("*/ablation.json")}
    assert set(found) == {"width-32", "particles-2"}
    rows = json.loads((out / "results.json").read_text())["ablations"]
    assert [(row["ablation"], row["state"], row["tries"]) for row in rows] == [
        ("width-32", "finished", 2),
        ("particles-2", "finished", 1),
    ]
    assert all(row[name] is not None for row in rows for name in COLUMNS)
    assert [line.split()[1] for line in first.splitlines()[2:4]] == ["width-32", "particles-2"]
    assert in_own_process(f"ablations({[*words, '--resume']!r})") == first
    assert {path.parent.name: path.stat().st_mtime_ns for path in out.glob("*/ablation.json")} == found


class Quick(ablate.Work):
    """Trains nothing: the rest is the real thing."""

    def __call__(self, item: ablate.Item) -> dict[str, Any]:
        killed = item.folder.parent / ".killed"
        if item.name == "width-32" and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
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

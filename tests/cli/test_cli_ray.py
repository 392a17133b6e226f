"""Clips and ablations on workers: what Ray needs, what it is asked, and what becomes of what it says.

Ray itself is an extra, so that here something stands for it; tests/soak has the real one.
"""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax
import pytest

from sqair import cluster
from sqair.cli import main
from sqair.cluster import Outcome, run_items
from sqair.config import UserError


class FakeRay:
    """A cluster by its resources, which does each task as it is sent, in this process."""

    class exceptions:
        class RayError(Exception): ...

        class RayTaskError(RayError): ...

    __spec__ = object()  # it counts as installed

    def __init__(self, *nodes: dict[str, float], init: Any = None, deaths: tuple[str, ...] = ()) -> None:
        self.resources, self.deaths = nodes, deaths
        self.init = init or (lambda **_: None)

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": each} for each in self.resources]

    def cluster_resources(self) -> dict[str, float]:
        return {name: sum(each.get(name, 0) for each in self.resources) for name in ("CPU", "GPU")}

    def shutdown(self) -> None:
        """It leaves nothing."""

    def remote(self, task: Any) -> Any:
        def send(item: Any) -> Any:
            name = str(getattr(item, "name", item))
            outcome = None if name in self.deaths else task(item)
            return lambda: outcome

        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=send))

    def wait(self, references: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        return references[:num_returns], references[num_returns:]

    def get(self, reference: Any) -> Outcome:
        if reference() is None:
            raise self.exceptions.RayError("the worker died\nof something")
        return reference()


def test_nothing_left_needs_no_cluster() -> None:
    """No item, no Ray: this would fail where none is installed."""
    run_items([], str, address="localhost:1", on_done=lambda item, outcome: None)


def test_ray_is_asked_for_and_checked(refused, models: Path, videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("track", "videos", "--model", models / "tiny", "--ray")
    for command in (words, ("ablate", "default", "--ray")):
        with monkeypatch.context() as patch:
            patch.setattr(importlib.util, "find_spec", lambda name: None)
            assert "pip install 'sqair[cluster]'" in refused(1, *command, "local")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert "must be local, auto or HOST:PORT" in refused(2, *words, "locl")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert "no Ray cluster answers at" in refused(1, *words, f"127.0.0.1:{closed.getsockname()[1]}")
    assert "give one of them" in refused(2, *words[:-1], "--resume", "--overwrite")


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of something that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_cluster_that_cannot_be_used(
    refused, models: Path, videos: Path, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written, not even a folder, and nothing waits for ever."""
    hangs = threading.Event()
    words = ("track", "videos", "--model", models / "tiny", "--out", "new/out", "--ray", silent)
    monkeypatch.setattr(cluster, "PATIENCE", 0.1)
    monkeypatch.setitem(sys.modules, "ray", FakeRay(init=lambda **_: hangs.wait()))
    expected = f"sqair track: cannot use the Ray cluster at {silent}: "
    assert refused(1, *words) == f"{expected}it did not answer within 0.1 seconds"
    hangs.set()

    def init(**_: Any) -> None:
        raise FakeRay.exceptions.RayError("a token is wanted\nmore")

    monkeypatch.setattr(cluster, "PATIENCE", 30.0)
    monkeypatch.setitem(sys.modules, "ray", FakeRay(init=init))
    assert refused(1, *words) == f"{expected}a token is wanted"
    ablation = ("ablate", "nvil", "reinforce", "--digits", "strokes", *words[-4:])
    assert refused(1, *ablation) == f"sqair ablate: {expected.partition(': ')[2]}a token is wanted"


def test_addresses_of_ipv6_have_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def create_connection(address: Any, timeout: float) -> socket.socket:
        asked.append(address)
        return socket.socket()

    monkeypatch.setitem(sys.modules, "ray", FakeRay())
    monkeypatch.setattr(socket, "create_connection", create_connection)
    cluster.check_ray("[fd00::7]:6379")
    cluster.check_ray("ray://[::1]:10001")
    assert asked == [("fd00::7", 6379), ("::1", 10001)]


def test_what_ended_before_a_stop_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """All four are done when the first is told, which stops all; one of them died, and is not tried again."""
    monkeypatch.setitem(sys.modules, "ray", FakeRay({"CPU": 2}, deaths=("3",)))
    outcomes: dict[int, Outcome] = {}
    died: list[tuple[int, int]] = []
    told: Any = {"on_done": outcomes.__setitem__, "on_died": lambda *each: died.append(each)}
    run_items(range(4), str, address="local", stop=lambda: bool(outcomes), **told)
    assert outcomes == {0: Outcome("0"), 1: Outcome("1"), 2: Outcome("2")}
    assert died == [(3, 1)]


def test_tries_are_counted_over_commands(sqair, models: Path, videos: Path, here: Path, monkeypatch) -> None:
    """One worker died; the command was stopped before it tried again, and resumed."""
    words = ("track", "videos/clip-0.npy", "videos/clip-1.npy", "--model", models / "tiny", "--out", "out")
    ray, stopped = FakeRay({"CPU": 1}, deaths=("clip-1.npy",)), threading.Event()

    def get(reference: Any, real: Any = ray.get) -> Outcome:
        if not stopped.is_set():
            stopped.set()
            os.kill(os.getpid(), signal.SIGTERM)
        return real(reference)

    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setitem(sys.modules, "ray", ray)
    assert sqair(*words, "--ray", "local").code == 143
    rows = json.loads((here / "out/results.json").read_text())["clips"]
    assert [(row["state"], row["tries"]) for row in rows] == [("tracked", 1), ("open", 2)]
    assert sqair(*words, "--resume").code == 0
    rows = json.loads((here / "out/results.json").read_text())["clips"]
    assert [(row["state"], row["tries"]) for row in rows] == [("tracked", 1), ("tracked", 2)]


def test_a_command_with_workers_leaves_jax_asleep(models: Path, videos: Path, here: Path) -> None:
    """It would hold a GPU's memory, and have threads when Ray forks it."""
    words = ["track", str(videos), "--model", str(models / "tiny"), "--out", str(here / "out"), "--ray", "local"]
    ablation = ["ablate", "nvil", "--digits", "strokes", "--out", str(here / "ablations"), "--ray", "local"]
    program = f"import {Path(__file__).stem} as here; here.drive({words!r}, {ablation!r})"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "4 of 4 clips failed" in done.stderr
    assert done.stderr.splitlines()[-1] == "sqair ablate: not here"


def drive(*commands: list[str]) -> None:
    """What the test above runs: commands whose workers are elsewhere, after which jax has looked for no device."""
    ray = FakeRay({"CPU": 1})
    sys.modules["ray"] = cast(Any, ray)
    real, away = ray.remote, Outcome(error=UserError("not here"))
    ray.remote = lambda task: real(lambda item: away)
    for words in commands:
        assert main(words) == 1
    jax.config.update("jax_num_cpu_devices", 2)  # an error once jax has looked for devices
    assert len(jax.devices("cpu")) == 2


@pytest.mark.parametrize(
    ("ray", "count", "device", "cpus", "gpus"),
    [
        (FakeRay({"CPU": 2}), 500, "auto", 1, 0),
        (FakeRay({"CPU": 8}), 2, "auto", 4, 0),
        (FakeRay({"CPU": 8}, {"CPU": 8}), 1, "cpu", 8, 0),
        (FakeRay({"CPU": 8, "GPU": 2}, {}), 16, "auto", 1, 1),
        (FakeRay({"CPU": 8, "GPU": 2}), 16, "cpu", 1, 0),
    ],
)
def test_parts_of_workers(ray: FakeRay, count: int, device: str, cpus: int, gpus: int) -> None:
    options = cluster._options(ray, count, device, {"A": "b"})
    assert (options["num_cpus"], options["num_gpus"]) == (cpus, gpus)
    assert options["runtime_env"] == {"env_vars": {"NPROC": str(cpus), "A": "b"}}

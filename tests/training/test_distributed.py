"""Many devices: who does what, and that the gradient of a batch does not depend on how many share it."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from sqair.config import TrainConfig, UsageError, UserError
from sqair.training import hosts
from sqair.training.distributed import Shares, choose_shares, make_mesh
from sqair.training.hosts import Job, agreed, find_job, is_writer, join

CONFIG = TrainConfig(batch=32, particles=5)


@pytest.mark.parametrize(
    ("devices", "members", "shares"),
    [(1, 1, Shares()), (8, 1, Shares(1, 8)), (8, 4, Shares(4, 2)), (6, 4, Shares(2, 1)), (5, 1, Shares())],
)
def test_all_devices_are_used_where_shares_are_even(devices: int, members: int, shares: Shares) -> None:
    assert choose_shares("auto", CONFIG, members, devices) == shares


def test_a_mesh_can_be_chosen() -> None:
    assert choose_shares("members=2,batch=4", CONFIG, 2, 8) == Shares(2, 4, 1)
    assert choose_shares("particles=5", CONFIG, 1, 8) == Shares(1, 1, 5)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("batch", "--mesh is auto, or such as batch=8"),
        ("bacth=8", "with members, batch, particles"),
        ("batch=0", "--mesh is auto"),
        ("batch=5", "32 batch cannot be shared out evenly"),
        ("members=2", "1 members cannot be shared out evenly"),
        ("batch=32", "asks for 32 devices, there are 8"),
    ],
)
def test_meshes_that_cannot_be(text: str, line: str) -> None:
    with pytest.raises(UsageError, match=line):
        choose_shares(text, CONFIG, 1, 8)


def test_resampled_particles_stay_together() -> None:
    with pytest.raises(UsageError, match="share out the batch instead"):
        choose_shares("particles=5", TrainConfig(bound="fivo"), 1, 8)


def test_one_device_has_no_mesh() -> None:
    assert make_mesh(Shares()) is None
    assert is_writer()
    assert agreed(7) == 7


@pytest.mark.parametrize(
    ("shares", "change", "devices"),
    [("batch=4,particles=2", "surplus_cost=0.7", 8), ("members=2,batch=2", "sweep=('surplus_cost=0.5,5.0',)", 4)],
)
def test_a_gradient_does_not_depend_on_how_many_share_it(
    tmp_path: Path, shares: str, change: str, devices: int
) -> None:
    """One step on devices with a part of the batch and of the particles or members each.

    Adam's moments tell the gradient; there is a price on objects, since the file says that there are none.
    """
    words = [sys.executable, str(Path(__file__).with_name("sharing.py")), str(tmp_path / "none.npz"), shares, "1"]
    done = subprocess.run([*words, "clip_frame=0.5", change], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["devices"] == devices
    assert found["differences"]["optimiser.inner_state.0.mu"] < 1e-5
    assert all(value < 1e-5 for name, value in found["differences"].items() if "totals" in name)


# --- hosts

SLURM = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "2", "SLURM_STEP_NODELIST": "node[1-4]"}
KUBERNETES = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "3"}


def test_who_is_who(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_job(None, None, None, {}) is None
    assert find_job(None, None, None, SLURM | {"SLURM_NTASKS": "1"}) is None
    assert find_job(None, None, None, SLURM) == Job()
    assert find_job("a:1", 2, 1, {}) == Job("a:1", 2, 1)
    assert find_job("a:1", None, None, SLURM) == Job("a:1", 4, 2)
    assert find_job("a:1", 4, None, KUBERNETES) == Job("a:1", 4, 3)
    monkeypatch.setattr(hosts.importlib.util, "find_spec", lambda _: object())
    assert find_job(None, None, None, KUBERNETES) == Job()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((None, 2, None), "need --coordinator HOST:PORT"),
        (("a:1", 2, None), "needs --processes N and --process I"),
        (("a:1", None, 0), "needs --processes N and --process I"),
        (("a:1", 2, 2), "between 0 and 1, not 2"),
        (("a:1", 0, 0), "at least 1, not 0"),
        (("a", 2, 0), "must be HOST:PORT, such as 10.0.0.1:5000, not a"),
        (("a:b", 2, 0), "must be HOST:PORT"),
        ((":1", 2, 0), "must be HOST:PORT"),
        (("a:99999", 2, 0), "must be HOST:PORT"),
    ],
)
def test_jobs_that_cannot_be(words: tuple[str | None, int | None, int | None], line: str) -> None:
    with pytest.raises(UsageError, match=line):
        find_job(*words, {})


@pytest.mark.parametrize(
    ("coordinator", "environment", "line"),
    [
        (None, KUBERNETES, "run `pip install kubernetes`"),
        (None, SLURM | {"SLURM_NTASKS": "4(x2)"}, r"SLURM_NTASKS is '4\(x2\)', which is no number"),
        ("a:1", SLURM | {"SLURM_PROCID": "-1"}, "SLURM_PROCID is '-1', which is no number"),
        ("a:1", KUBERNETES | {"JOB_COMPLETION_INDEX": ""}, "JOB_COMPLETION_INDEX is '', which is no number"),
    ],
)
def test_what_a_cluster_tells_wrongly(
    coordinator: str | None, environment: dict[str, str], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a process would train alone, or not at all, and not say why."""
    monkeypatch.setattr(hosts.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=line):
        find_job(coordinator, None, None, environment)


def test_a_job_that_does_not_come_about(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("DEADLINE_EXCEEDED\nmore")

    monkeypatch.setattr(jax.distributed, "initialize", refuse)
    with pytest.raises(UserError, match=r"cannot join the job of a:1: DEADLINE_EXCEEDED$"):
        join(Job("a:1", 2, 0))

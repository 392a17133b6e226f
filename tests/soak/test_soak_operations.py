"""A fault at each file operation of a run: the process dies there, or the disk is full from there on.

Steps and validation are replaced by a little arithmetic on the state, so that hundreds of runs take seconds each; what
is written, and what is read again, is the real thing.
"""

import contextlib
import dataclasses
import errno
import io
import math
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from driver import EVERY
from driver import preset as tiny_preset
from peace import assert_same

from sqair.config import Preset, UserError
from sqair.training import loop, population
from sqair.training.loop import train
from sqair.training.resume import checkpoints, newest
from sqair.training.runs import read_metrics
from sqair.training.step import TrainState

STEPS = 2 * EVERY
MAKING = ("mkdir", "replace", "rename", "fsync", "ftruncate", "pwrite")
UNMAKING = ("unlink", "rmdir", "chmod")


class Killed(BaseException):
    """The process is dead from here on: it does not even tidy up."""


class Disk:
    """Counts file operations; after `left` of them all fail: by death, or those that need room for lack of it."""

    def __init__(self, patch: pytest.MonkeyPatch, left: float, how: str) -> None:
        self.left, self.done, self.how = left, 0, how
        for name in (*MAKING, *(UNMAKING if how == "die" else ())):
            patch.setattr(os, name, self.limited(getattr(os, name)))
        self.fdopen, self.open = os.fdopen, io.open
        patch.setattr(os, "fdopen", lambda handle, mode: Torn(self.fdopen(handle, mode), self))
        patch.setattr(io, "open", self.open_torn)

    def fail(self) -> None:
        """Count an operation; it may be the one that fails."""
        self.done += 1
        if self.done > self.left:
            raise Killed if self.how == "die" else OSError(errno.ENOSPC, "No space left on device")

    def limited(self, real: Callable) -> Callable:
        def call(*arguments: Any, **named: Any) -> Any:
            self.fail()
            return real(*arguments, **named)

        return call

    def open_torn(self, file: Any, mode: str = "r", *rest: Any, **named: Any) -> Any:
        opened = self.open(file, mode, *rest, **named)
        return Torn(opened, self) if "a" in mode else opened


class Torn:
    """A file of which a failing write leaves half."""

    def __init__(self, file: Any, disk: Disk) -> None:
        self.file, self.disk = file, disk

    def write(self, content: Any) -> int:
        try:
            self.disk.fail()
        except BaseException:
            self.file.write(content[: len(content) // 2])
            self.file.flush()
            raise
        return self.file.write(content)

    def __enter__(self) -> "Torn":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


@pytest.fixture(scope="module")
def preset(squares: Path) -> Preset:
    chosen = tiny_preset(str(squares))
    return dataclasses.replace(chosen, train=dataclasses.replace(chosen.train, steps=STEPS, keep=1))


@pytest.fixture(scope="module", autouse=True)
def _arithmetic_for_training() -> Iterator[None]:
    def advance(self: Any, state: TrainState, source: Any, count: int) -> TrainState:
        number = float(np.float32(math.sin(int(state.step))))
        step = state.step + count
        return state._replace(step=step, model=jax.tree.map(lambda leaf: 0.5 * leaf + number, state.model))

    def bound(self: Any, _: Any, model: Any, __: Any) -> list[dict[str, float]]:
        return [{"validation_bound": float(jnp.sum(model.first_prior))}]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(population.Population, "advance", advance)
        patch.setattr(loop.Validation, "__call__", bound)
        patch.setattr(loop, "is_check", lambda *_: False)
        patch.setattr(loop, "check_every", lambda _: STEPS)
        patch.setattr(loop.Pace, "steps", lambda _, ahead: min(ahead, 7))
        patch.setattr(loop.runs, "git_commit", lambda: None)
        yield


@pytest.fixture(scope="module")
def left_in_peace(preset: Preset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(preset, tmp_path_factory.mktemp("runs") / "whole", quiet=True)


@contextlib.contextmanager
def disk(left: float, how: str) -> Iterator[Disk]:
    with pytest.MonkeyPatch.context() as patch:
        yield Disk(patch, left, how)


def lost(run: Path) -> int:
    """How many steps a run that was seen at some step has lost."""
    reached = max((line["step"] for line in read_metrics(run)), default=0)
    return max(reached - newest(run).notes.step, 0)


@pytest.mark.parametrize("how", ["die", "full"])
def test_a_fault_at_every_file_operation(preset: Preset, left_in_peace: Path, tmp_path: Path, how: str) -> None:
    with disk(math.inf, how) as counting:
        train(preset, tmp_path / "counted", quiet=True)
    assert counting.done > 100
    for left in range(counting.done):
        run = tmp_path / str(left)
        with disk(left, how), pytest.raises(Killed if how == "die" else UserError) as caught:
            train(preset, run, quiet=True)
        if how == "full":
            assert "make room and continue with --resume" in str(caught.value), left
        begun = bool(checkpoints(run))
        assert not begun or lost(run) <= EVERY
        train(preset, run, quiet=True, resume=begun, overwrite=not begun)
        assert_same(run, left_in_peace, STEPS)
        assert not list(run.rglob(".*")), "nothing is left behind"
        shutil.rmtree(run)


def test_a_fault_while_a_run_is_resumed(preset: Preset, left_in_peace: Path, tmp_path: Path) -> None:
    """Death at every operation of a resumed run, whose newest checkpoint is damaged too."""
    with disk(math.inf, "die") as counting:
        train(preset, tmp_path / "counted", quiet=True)
    with disk(counting.done * 0.8, "die"), pytest.raises(Killed):
        train(preset, tmp_path / "half", quiet=True)
    damage(tmp_path / "half")
    left, ended = 0, False
    while not ended:
        run = shutil.copytree(tmp_path / "half", tmp_path / str(left))
        with disk(left, "die"), contextlib.suppress(Killed):
            train(preset, run, quiet=True, resume=True)
            ended = True
        train(preset, run, quiet=True, resume=True)
        assert_same(run, left_in_peace, STEPS)
        shutil.rmtree(run)
        left += 1
    assert left > 30


def damage(run: Path) -> None:
    """Spoil the newest checkpoint, if there is one before it."""
    found = checkpoints(run)
    if len(found) > 1:
        (found[-1] / "state.json").write_bytes(b"{")

"""What a run shows of itself: reconstructions, learning curves, TensorBoard files."""

import errno
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sqair.commands import watch
from sqair.commands.watch import Reconstructions, TensorBoard, draw_curves
from sqair.config import DataConfig, Preset, UserError
from sqair.data import Sequences, save_sequences
from sqair.figures import Row
from sqair.training.loop import Progress


def told(out: Path, step: int, lines: list[dict[str, Any]]) -> Progress:
    """What callbacks are told at an evaluation; the model is not looked at here."""
    return Progress(step, None, lines[0] if lines else None, lines, out)  # type: ignore[arg-type]


def line(step: int, **more: Any) -> dict[str, Any]:
    names = ("bound", "objects", "propagated", "discovered_first", "discovered_later")
    numbers = {f"{kind}_{name}": step / 10 + len(name) for kind in ("train", "validation") for name in names}
    return {"step": step, **numbers, "skipped_steps": 0, "alarm": None, "seconds": 1.5, **more}


def write(out: Path, lines: list[dict[str, Any]]) -> None:
    (out / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))


def colours(path: Path) -> set[tuple[int, int, int]]:
    with Image.open(path) as picture:
        return set(map(tuple, np.asarray(picture.convert("RGB")).reshape(-1, 3).tolist()))


@pytest.fixture
def two(tmp_path: Path) -> Preset:
    """Data of twenty sequences, of which the last two are for validation; the first of these is darker."""
    frames = np.zeros((20, 3, 8, 8), np.uint8)
    frames[-2, :, 2:4, 2:4], frames[-1, :, 1:6, 1:6] = 255, 255
    save_sequences(tmp_path / "two.npz", Sequences(frames))
    return Preset(data=DataConfig(name=str(tmp_path / "two.npz"), length=3, size=(8, 8)))


def test_the_brightest_sequences_are_shown(two: Preset) -> None:
    shown = Reconstructions(two).frames
    assert shown.shape == (2, 3, 8, 8, 1)
    assert (shown[0].sum(), shown[1].sum()) == (75.0, 12.0)


def test_a_page_that_cannot_be_written_does_not_hide_why_training_ended(
    two: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(watch, "train_page", full)
    monkeypatch.setattr(watch.Page, "__call__", lambda self, progress: setattr(self, "folder", progress.out))

    def end() -> None:
        with watch.watchers(two, tensorboard=False) as callbacks:
            next(each for each in callbacks if isinstance(each, watch.Page))(told(tmp_path, 1, [line(1)]))
            raise UserError("the disk is full")

    with pytest.raises(UserError, match="the disk is full"):
        end()


def test_the_last_ten_pictures_are_kept(two: Preset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(self: Reconstructions, progress: Progress, i: int, frames: np.ndarray) -> list[Row]:
        boxes = np.full((3, 1, 4), 2.0) + progress.step % 2
        return [Row("input", frames), Row("found", frames, boxes, np.zeros((3, 1), int))]

    monkeypatch.setattr(Reconstructions, "rows", rows)
    draw = Reconstructions(two)
    draw(told(tmp_path, 5, []))
    assert not (tmp_path / "reconstructions").exists(), "between evaluations nothing is drawn"
    steps = range(999_000, 1_000_200, 100)  # their names are of two lengths
    for step in steps:
        draw(told(tmp_path, step, [line(step)]))
    folder = tmp_path / "reconstructions"
    assert {path.name for path in folder.iterdir()} == {"latest.png", *(f"step-{step:06d}.png" for step in steps[-10:])}
    assert (folder / "latest.png").read_bytes() == (folder / f"step-{steps[-1]}.png").read_bytes()
    assert (230, 159, 0) in colours(folder / "latest.png"), "a box in the colour of the first identity"


def test_curves_of_one_run_and_of_a_population(tmp_path: Path) -> None:
    draw_curves(told(tmp_path, 5, []))
    assert not (tmp_path / "curves.png").exists()
    write(tmp_path, [line(10)])
    draw_curves(told(tmp_path, 10, [line(10)]))
    first = (tmp_path / "curves.png").read_bytes()
    write(tmp_path, [{"step": 5}, line(10, validation_bound=None), line(20), line(30)])
    draw_curves(told(tmp_path, 30, [line(30)]))
    assert (tmp_path / "curves.png").read_bytes() != first
    lines = [line(step, member=member) for step in (10, 20) for member in range(3)]
    write(tmp_path, lines)
    draw_curves(told(tmp_path, 20, lines[3:]))
    assert (230, 159, 0) in colours(tmp_path / "curves.png"), "the best member in full colour"


def test_low_beginnings_do_not_hide_the_rest() -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    watch.set_limits(axes, [-1e6, *np.linspace(0, 10, 39)])
    bottom, top = axes.get_ylim()
    assert -30 < bottom < 0
    assert 10 < top < 15


def events(folder: Path) -> dict[tuple[str, int], float]:
    """The scalars of all event files in a folder: records of a length, its checksum, the content and its checksum."""
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]

    found = {}
    for path in folder.glob("events*"):
        content, start = path.read_bytes(), 0
        while start < len(content):
            (size,) = struct.unpack("<Q", content[start : start + 8])
            event = Event.FromString(content[start + 12 : start + 12 + size])
            found |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
            start += size + 16
    return found


def test_tensorboard_files_tell_what_metrics_tell(tmp_path: Path) -> None:
    alone, many = TensorBoard(), TensorBoard()
    alone(told(tmp_path / "alone", 5, []))
    for step in (10, 20):
        alone(told(tmp_path / "alone", step, [line(step)]))
    many(told(tmp_path / "many", 10, [line(10, member=0), line(10, member=1, validation_bound=-1.0)]))
    for writer in (alone, many):
        writer.close()
    found = events(tmp_path / "alone/tensorboard")
    assert found["validation/bound", 20] == pytest.approx(line(20)["validation_bound"])
    assert found["train/objects", 10] == pytest.approx(line(10)["train_objects"])
    assert found["speed/seconds", 10] == 1.5
    assert {step for _, step in found} == {10, 20}
    assert events(tmp_path / "many/tensorboard/member-1")["validation/bound", 10] == -1.0
    assert events(tmp_path / "many/tensorboard/member-0")["validation/bound", 10] == pytest.approx(6.0)


def test_tensorboard_files_of_a_run_that_is_begun_afresh(tmp_path: Path) -> None:
    writer = TensorBoard()
    writer(told(tmp_path, 20, [line(20)]))
    shutil.rmtree(tmp_path / "tensorboard")
    writer(told(tmp_path, 10, [line(10)]))
    writer.close()
    assert {step for _, step in events(tmp_path / "tensorboard")} == {10}

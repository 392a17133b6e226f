"""Many clips or ablations in one command: folders with bad files, going on after a stop, one command to a folder."""

import csv
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sqair.cluster import Outcome, run_items
from sqair.commands import track_clip, track_many
from sqair.commands.publish import published
from sqair.commands.track import Track
from sqair.commands.track_many import Item, check_same, deaths_of, decisive, identity, places_of
from sqair.evaluation import ablations
from sqair.training.lock import locked


def stamps(out: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob("*/summary.json")}


def test_a_stopped_command_goes_on(sqair, models: Path, videos: Path, here: Path, monkeypatch) -> None:
    """SIGTERM while the second clip is tracked: it is saved, and tracked anew; the first is not, nor is it lost."""
    words = ("track", "videos", "--model", models / "tiny", "--out", "out")
    real = track_clip.follow

    def follow(job: Any, clip: Any, *rest: Any) -> dict[str, Any]:
        if clip.name == "clip-1.npy":
            os.kill(os.getpid(), signal.SIGTERM)
        return real(job, clip, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(track_clip, "follow", follow)
        stopped = sqair(*words)
    assert stopped.code == 143, stopped.err
    rows = {row["clip"]: row["state"] for row in json.loads((here / "out/results.json").read_text())["clips"]}
    assert rows == {"bad": "failed", "clip-0": "tracked", "clip-1": "tracked", "clip-2": "open"}
    before = stamps(here / "out")
    assert "not empty" in sqair(*words).err
    assert "begun with another --particles, --seed" in sqair(*words, "--resume", "--particles", "3", "--seed", "1").err
    done = sqair(*words, "--resume")
    assert done.code == 1
    assert done.err.splitlines()[-1] == "sqair track: 1 of 4 clips failed: videos/bad.mp4"
    assert "1 of 4 clips are finished" in done.err
    after = stamps(here / "out")
    assert {name for name in after if after[name] != before.get(name)} == {"clip-1", "clip-2"}
    assert done.out.splitlines()[-1] == "Results saved to out"


def test_a_folder_for_another_source_is_not_reused(refused, sqair, models: Path, videos: Path, here: Path) -> None:
    (here / "more").mkdir()
    np.save(here / "more" / "clip-0.npy", np.zeros((2, 16, 16), np.uint8))
    words = ("--model", models / "tiny", "--out", "out")
    assert sqair("track", "videos/clip-0.npy", "videos/clip-1.npy", *words).code == 0
    line = refused(2, "track", "more/clip-0.npy", "videos/clip-1.npy", *words, "--resume")
    assert "out/clip-0 is for videos/clip-0.npy, not more/clip-0.npy" in line


def test_only_what_is_the_same_and_whole_is_finished(sqair, models: Path, videos: Path, here: Path) -> None:
    """Resuming one clip: files that were lost, and a clip that has changed, are tracked anew; other flags refused."""
    words = ("track", "videos/clip-0.npy", "--model", models / "tiny", "--out", "out", "--resume")
    stamp = (here / "out/summary.json").stat

    def again(*more: str) -> bool:
        before = stamp().st_mtime_ns
        assert sqair(*words, *more).code == 0
        return stamp().st_mtime_ns != before

    assert sqair(*words[:-1]).code == 0
    assert not again()
    assert again("--export", "coco")
    assert (here / "out/coco.json").exists()
    assert again()  # the page and all else without it, as asked
    (here / "out/tracks.json").write_text("")
    assert again()
    assert (here / "out/tracks.json").stat().st_size > 0
    (here / "out/summary.json").write_text('{"source": "clip-0.npy"}')
    assert again()
    assert "begun with another --particles" in sqair(*words, "--particles", "2").err
    np.save(here / "videos" / "clip-0.npy", np.full((5, 16, 16), 9, np.uint8))
    assert again()
    assert json.loads((here / "out/summary.json").read_text())["frames"] == 5
    assert "out is for clip-0.npy" in sqair("track", "videos/clip-1.npy", *words[2:]).err


def test_what_was_to_be_replaced_is_not_finished(sqair, models: Path, videos: Path, here: Path, monkeypatch) -> None:
    """--overwrite with other flags, killed before the last clip: going on tracks that one with the new flags."""
    words = ("track", "videos/clip-0.npy", "videos/clip-1.npy", "--model", models / "tiny", "--out", "out")
    assert sqair(*words).code == 0
    real = track_clip.follow

    def follow(job: Any, clip: Any, *rest: Any) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGTERM)
        return real(job, clip, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(track_clip, "follow", follow)
        assert sqair(*words, "--seed", "7", "--overwrite").code == 143
    assert sqair(*words, "--seed", "7", "--resume").code == 0
    for name in ("clip-0", "clip-1"):
        assert json.loads((here / "out" / name / "summary.json").read_text())["made"]["seed"] == 7


def test_items_one_after_another() -> None:
    """A failure stops nothing; `stop` is asked before each."""
    outcomes: dict[int, Outcome] = {}
    run_items(range(-2, 9), lambda n: 10 // n, address=None, on_done=outcomes.__setitem__, stop=lambda: 3 in outcomes)
    assert list(outcomes) == [-2, -1, 0, 1, 2, 3]
    assert isinstance(outcomes.pop(0).error, ZeroDivisionError)
    assert [outcome.value for outcome in outcomes.values()] == [-5, -10, 10, 5, 3]


def test_two_commands_do_not_share_a_folder(sqair, models: Path, videos: Path, here: Path) -> None:
    """One clip or many: the second command is refused, and touches nothing of the first."""
    for sources in (["videos/clip-0.npy"], ["videos/clip-0.npy", "videos/clip-1.npy"]):
        with locked(here / "out"):
            done = sqair("track", *sources, "--model", models / "tiny", "--out", "out", "--quiet")
            assert done.code == 1
            assert f"out is in use by process {os.getpid()}" in done.err
            assert [path.name for path in (here / "out").iterdir()] == [".lock"]


def test_a_folder_taken_meanwhile_is_kept(sqair, models: Path, videos: Path, here: Path, monkeypatch) -> None:
    """Another command came, and ended, while this one looked at its sources."""

    def find_items(*given: Any, real: Any = track_many.find_items) -> Any:
        (here / "out").mkdir()
        (here / "out/summary.json").write_text("another's")
        return real(*given)

    monkeypatch.setattr(track_many, "find_items", find_items)
    done = sqair("track", "videos/clip-0.npy", "--model", models / "tiny", "--out", "out", "--quiet")
    assert done.code == 2
    assert "out is not empty" in done.err
    assert (here / "out/summary.json").read_text() == "another's"
    assert len(list((here / "out").iterdir())) == 1


def test_images_that_were_changed_are_another_clip(here: Path) -> None:
    """In a folder and in a glob: one more, or another content."""
    images = here / "images"
    images.mkdir()
    (images / "0.png").write_bytes(b"0")
    for source in (str(images), str(images / "*.png")):
        before = identity(source)
        assert identity(source) == before
        (images / "1.png").write_bytes(b"1")
        more = identity(source)
        (images / "0.png").write_bytes(b"other")
        assert len({str(each) for each in (before, more, identity(source))}) == 3
        (images / "1.png").unlink()


@pytest.mark.parametrize("clips", ["7", "[3, null, {}]", '[{"clip": [], "tries": 2}]'])
def test_a_damaged_table_tells_nothing(clips: str, here: Path) -> None:
    command = Track(sources=("a", "b"))
    settings = json.dumps({"settings": decisive(command)})
    (here / "results.json").write_text(f'{settings[:-1]}, "clips": {clips}}}')
    items = [Item(name, 0, name, here / name, None, None) for name in ("a", "b")]
    check_same(command, here, items)
    assert deaths_of(here) == {}


def test_names_of_folders_differ(here: Path) -> None:
    names = ["a.mp4", "a.avi", "a-2.mp4", "results.json.npy", "b/a.mov"]
    found = [path.name for path in places_of(here, names)]
    assert found == ["a", "a-2", "a-2-2", "results.json-2", "a-3"]


def test_the_last_name_tells_that_all_files_are_there(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old results vanish beginning with it; new ones end with it."""
    seen: list[list[str]] = []
    for method in ("unlink", "rename"):
        real = getattr(Path, method)

        def spy(self: Path, *rest: Any, real: Any = real, **named: Any) -> Any:
            seen.append(sorted(path.name for path in (here / "out").iterdir()))
            return real(self, *rest, **named)

        monkeypatch.setattr(Path, method, spy)
    for _ in range(2):
        with published(here / "out", ["b", "c", "a"]) as part:
            for name in "abc":
                (part / name).touch()
        seen.append(sorted(path.name for path in (here / "out").iterdir()))
    assert all(names == ["a", "b", "c"] for names in seen if "a" in names)
    assert seen.count(["a", "b", "c"]) >= 3


def write_digits(folder: Path, ink: int) -> None:
    """Twenty digits in MNIST's form."""
    folder.mkdir()
    images, labels = np.full((20, 28, 28), ink, np.uint8), np.arange(20, dtype=np.uint8) % 10
    for name, values in {"train-images-idx3-ubyte": images, "train-labels-idx1-ubyte": labels}.items():
        head = bytes([0, 0, 8, values.ndim]) + b"".join(size.to_bytes(4, "big") for size in values.shape)
        (folder / name).write_bytes(head + values.tobytes())


def test_an_ablation_of_other_digits_is_not_resumed(
    sqair, refused, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders are told apart by what is in them, not by their names."""
    row = dict.fromkeys(("seed", *ablations.COLUMNS), 0.5)
    monkeypatch.setattr(ablations, "ablate", lambda *_, say, **asked: {**asked, "rows": [row]})
    for name, ink in {"some": 1, "others": 2, "copied": 1}.items():
        write_digits(here / name, ink)
    words = ("ablate", "nvil", "--out", "out", "--digits")
    assert sqair(*words, "some").code == 0
    line = refused(2, *words, "others", "--resume")
    assert "out was made with other digits; give the same --digits" in line
    stamp = (here / "out/ablation.json").stat().st_mtime_ns
    assert sqair(*words, "copied", "--resume").code == 0
    assert (here / "out/ablation.json").stat().st_mtime_ns == stamp


def test_several_ablations(sqair, refused, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One fails, the other is saved; going on runs the one that is missing, with the same settings only."""
    run: list[str] = []
    row = dict.fromkeys(("seed", *ablations.COLUMNS), 0.5)

    def ablate(chosen: Any, *, sequences: int, particles: int, say: Any) -> dict[str, Any]:
        run.append(chosen.train.estimator)
        if chosen.train.estimator == "nvil" and len(run) < 3:
            raise ValueError("no luck")
        return {"minutes": 0.1, "sequences": sequences, "particles": particles, "rows": [row]}

    monkeypatch.setattr(ablations, "ablate", ablate)
    words = ("ablate", "nvil", "reinforce", "--digits", "strokes", "--out", "out")
    first = sqair(*words)
    assert first.code == 1
    assert first.err.splitlines()[-1] == "sqair ablate: 1 of 2 ablations failed: nvil"
    assert "nvil failed: internal error: ValueError: no luck" in first.err
    rows = {row.pop("ablation"): row for row in json.loads((here / "out/results.json").read_text())["ablations"]}
    assert rows["nvil"] == {"state": "failed", "tries": 1, "error": "internal error: ValueError: no luck"}
    assert rows["reinforce"] == {"state": "finished", "tries": 1, "seeds": 1, **dict.fromkeys(ablations.COLUMNS, 0.5)}
    assert "other settings" in refused(2, *words, "--resume", "--steps", "7")
    again = sqair(*words, "--resume", "--json")
    assert again.code == 0, again.err
    assert [each["name"] for each in json.loads(again.out)["ablations"]] == ["nvil", "reinforce"]
    assert run == ["nvil", "reinforce", "nvil"]
    table = list(csv.DictReader((here / "out/results.csv").read_text().splitlines()))
    assert [(row["ablation"], row["state"], row["log_p"]) for row in table] == [
        ("nvil", "finished", "0.5"),
        ("reinforce", "finished", "0.5"),
    ]
    with locked(here / "out/nvil"):
        assert f"out/nvil is in use by process {os.getpid()}" in sqair(*words, "--resume").err
    assert "name each ablation once" in refused(2, "ablate", "nvil", "nvil")

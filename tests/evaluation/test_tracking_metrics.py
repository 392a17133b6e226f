"""Tracking metrics: by hand, and against trackeval's own reader of files and its own treatment of what is ignored."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trackeval

from sqair.evaluation.tracking import (
    box_iou,
    combine,
    ghost_ids,
    score,
    sequence_tracks,
    tracking_metrics,
    truth_tracks,
)
from sqair.tracks import Tracks, read_truth

FRAMES = 8
SIZE = (40, 60)


def line(id: int, top: float, frames: Any = range(FRAMES), shift: float = 0.0) -> list[tuple]:
    """Rows of a 10x10 box that moves right by two pixels a frame."""
    return [(frame, id, (2.0 * frame + shift, top, 10.0, 10.0)) for frame in frames]


def tracks(*rows: tuple) -> Tracks:
    frame, id, box = zip(*rows, strict=True) if rows else ((), (), ())
    return Tracks.make(np.array(frame, int), np.array(id, int), np.array(box), frames=FRAMES, size=SIZE)


TRUTH = tracks(*line(0, 0), *line(1, 20))


def test_perfect() -> None:
    found = tracking_metrics(TRUTH, tracks(*line(9, 0), *line(4, 20)))
    assert (found["hota"], found["mota"], found["idf1"]) == pytest.approx((1, 1, 1))
    assert (found["id_switches"], found["ghosts"], found["missed"], found["false_positives"]) == (0, 0, 0, 0)
    assert (found["counting"], found["counting_in_sight"], found["frames"], found["truth_boxes"]) == (1, 1, 8, 16)


def test_a_swap_in_the_middle() -> None:
    """Two switches; each truth is half covered by each track: AssA = 4 / (8 + 8 - 4)."""
    swapped = tracks(*line(0, 0, range(4)), *line(1, 20, range(4)), *line(1, 0, range(4, 8)), *line(0, 20, range(4, 8)))
    found = tracking_metrics(TRUTH, swapped)
    assert found["id_switches"] == 2
    assert found["id_switches_per_1000_frames"] == 250
    assert found["mota"] == pytest.approx(1 - 2 / 16)
    assert found["idf1"] == pytest.approx(0.5)
    assert found["hota"] == pytest.approx(np.sqrt(1 * 4 / 12))


def test_missed_and_false_boxes() -> None:
    """An object never found; a ghost that overlaps nothing; a track that has truth in exactly half of its frames."""
    half = [*line(5, 0, range(4)), *line(5, 30, range(4, 8))]
    found = tracking_metrics(tracks(*line(0, 0), *line(1, 20, range(4))), tracks(*line(3, 30, range(2)), *half))
    assert (found["missed"], found["false_positives"]) == (4 + 4, 2 + 4)
    assert found["mota"] == pytest.approx(1 - 14 / 12)
    assert found["idf1"] == pytest.approx(4 / (4 + 0.5 * 6 + 0.5 * 8))
    assert (found["ghosts"], found["ghosts_per_1000_frames"]) == (1, 125)
    assert found["counting"] == 2 / 8 + 4 / 8, "right in the first two frames by chance, and in the last four"


def test_ghosts_need_more_than_half_of_their_frames() -> None:
    truth = tracks(*line(0, 0))
    near = tracks(*line(1, 8.0), *line(2, 8.3), *line(3, 0, range(3)), *line(3, 30, range(3, 6)), *line(4, 30, [7]))
    overlap = box_iou(np.array([[0.0, 0, 10, 10]]), np.array([[0.0, 8, 10, 10], [0, 8.3, 10, 10]]))
    np.testing.assert_allclose(overlap, [[20 / 180, 17 / 183]])
    assert ghost_ids(truth, near).tolist() == [2, 4]


def test_nothing_found_and_nothing_true() -> None:
    nothing = tracks()
    blind = tracking_metrics(TRUTH, nothing)
    assert (blind["hota"], blind["mota"], blind["idf1"], blind["missed"]) == (0, 0, 0, 16)
    dream = tracking_metrics(nothing, TRUTH)
    assert (dream["hota"], dream["mota"], dream["idf1"]) == (None, None, None)
    assert (dream["false_positives"], dream["ghosts"], dream["counting"]) == (16, 2, 0)
    peace = tracking_metrics(nothing, nothing)
    assert (peace["mota"], peace["counting"], peace["ghosts"]) == (None, 1, 0)


def test_the_threshold_is_an_argument() -> None:
    shifted = tracks(*line(0, 0, shift=5), *line(1, 20, shift=5))
    assert tracking_metrics(TRUTH, shifted)["mota"] == -1, "an IoU of a third is no match"
    loose = tracking_metrics(TRUTH, shifted, iou=0.3)
    assert (loose["mota"], loose["idf1"]) == (1, 1)
    assert loose["hota"] == pytest.approx(6 / 19), "perfect at .05 to .3, nothing above"


def test_out_of_sight_is_no_box_but_counts() -> None:
    rows = [(frame, id, box if frame < 6 else (np.nan,) * 4) for frame, id, box in line(0, 0)]
    found = tracking_metrics(tracks(*rows), tracks(*line(0, 0, range(6))))
    assert (found["mota"], found["truth_boxes"]) == (1, 6)
    assert (found["counting"], found["counting_in_sight"]) == (0.75, 1)


def test_ignored_truth_takes_its_boxes_with_it() -> None:
    ignored = TRUTH.frame >= 5
    perfect = tracks(*line(0, 0), *line(1, 20, range(5)))
    found = tracking_metrics(TRUTH, perfect, ignored=ignored)
    assert (found["mota"], found["idf1"], found["truth_boxes"]) == (1, 1, 10), "neither missed nor false"
    beside = tracks(*line(0, 0, range(5)), *line(1, 20, range(5)), *line(2, 5, [6]))
    assert tracking_metrics(TRUTH, beside, ignored=ignored)["false_positives"] == 1, "an IoU of a third is false"
    other = tracks(*line(0, 0), *line(1, 20), *line(2, 20, [6], shift=1))
    assert tracking_metrics(TRUTH, other, ignored=ignored)["false_positives"] == 1, "only one box is matched to it"


def test_truth_of_sequences() -> None:
    """Clipped; ignored under a quarter; out of sight without a box; absent without a row."""
    boxes = np.array(
        [[[50, 0, 10, 10], [0, 0, 4, 4]], [[57.6, 0, 10, 10], [np.nan] * 4], [[60, 0, 10, 10], [-3, 0, 4, 4]]]
    )
    ids = np.array([[5, 2], [5, -1], [5, 2]])
    tracks, ignored = truth_tracks(boxes, ids, None, SIZE)
    assert tracks.id.tolist() == [2, 5, 5, 2, 5]
    assert ignored.tolist() == [False, False, True, False, True]
    assert tracks.in_sight.tolist() == [True, True, True, True, False]
    np.testing.assert_allclose(tracks.box[3], [0, 0, 1, 4])
    visible = np.array([[0.2, 1], [0.3, 0], [0, 0.2]])
    assert truth_tracks(boxes, ids, visible, SIZE).ignored.tolist() == [False, True, False, True, True]


def random_clip(seed: int) -> tuple[Tracks, Tracks]:
    """Truth and tracks that fit it now and then."""
    random = np.random.default_rng(seed)
    frames, objects = np.meshgrid(np.arange(FRAMES), np.arange(4), indexing="ij")
    boxes = np.stack([4 * frames, 9 * objects, 0 * frames + 8, 0 * frames + 9], -1) + random.normal(
        0, 0.7, (FRAMES, 4, 4)
    )
    there = random.random((FRAMES, 4)) < 0.85
    found = boxes + random.normal(0, 0.8, boxes.shape)
    ids = np.where(random.random((FRAMES, 4)) < 0.8, objects, 4 + objects)
    return (
        sequence_tracks(boxes, np.where(there, objects, -1), SIZE),
        sequence_tracks(found, np.where(random.random((FRAMES, 4)) < 0.9, ids, -1), SIZE),
    )


class Official(trackeval.datasets.MotChallenge2DBox):
    """trackeval's reader of MOTChallenge folders, told where they are."""

    def __init__(self, folder: Path, clips: dict[str, int | None]) -> None:
        config = {"GT_FOLDER": str(folder / "gt"), "TRACKERS_FOLDER": str(folder / "trackers"), "SKIP_SPLIT_FOL": True}
        super().__init__(config | {"PRINT_CONFIG": False, "SEQ_INFO": clips, "TRACKERS_TO_EVAL": ["sqair"]})


@pytest.mark.parametrize("iou", [0.5, 0.3])
def test_files_give_the_same_numbers_in_trackeval(tmp_path: Path, iou: float) -> None:
    """tracks.txt as it is, through trackeval's reader; a class that it ignores stands for truth hardly visible."""
    clips = {f"clip{seed}": random_clip(seed) for seed in range(4)}
    scores = []
    for name, (truth, found) in clips.items():
        (tmp_path / "gt" / name / "gt").mkdir(parents=True)
        path = tmp_path / "gt" / name / "gt/gt.txt"
        truth.write(path)
        classes = np.where(np.arange(len(truth)) % 5 == 0, 8, 1)
        lines = zip(path.read_text().splitlines(), classes, strict=True)
        path.write_text("".join(f"{','.join(line.split(',')[:6])},{int(kind == 1)},{kind},1\n" for line, kind in lines))
        found.write(tmp_path / "trackers/sqair/data" / f"{name}.txt")
        true = read_truth(path, frames=FRAMES)
        assert true.ignored.tolist() == (classes == 8).tolist()
        scores.append(
            score(
                true.tracks,
                Tracks.read(tmp_path / "trackers/sqair/data" / f"{name}.txt"),
                iou=iou,
                ignored=true.ignored,
            )
        )
    ours = combine(scores)
    dataset = Official(tmp_path, dict.fromkeys(clips, FRAMES))
    config = {"THRESHOLD": iou, "PRINT_CONFIG": False}
    metrics = trackeval.metrics.HOTA(), trackeval.metrics.CLEAR(config), trackeval.metrics.Identity(config)
    data = {
        name: dataset.get_preprocessed_seq_data(dataset.get_raw_seq_data("sqair", name), "pedestrian") for name in clips
    }
    hota, clear, identity = (
        metric.combine_sequences({name: metric.eval_sequence(each) for name, each in data.items()})
        for metric in metrics
    )
    assert 0.2 < ours["mota"] < 0.95, "a test on perfect tracks would prove little"
    assert ours["id_switches"] == clear["IDSW"] > 0
    assert ours["hota"] == pytest.approx(hota["HOTA"].mean(), abs=1e-6)
    assert ours["mota"] == pytest.approx(clear["MOTA"], abs=1e-12)
    assert ours["idf1"] == pytest.approx(identity["IDF1"], abs=1e-12)


def printed_with(trackeval: Path, program: str) -> str:
    """Stdout of a process that finds this trackeval."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(trackeval.parent), *sys.path])}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def slow_trackeval(tmp_path: Path) -> Path:
    """Where a package is missing it prints so when it is imported, which takes a while."""
    folder = tmp_path / "trackeval"
    folder.mkdir()
    (folder / "__init__.py").write_text("import time\nprint('Error importing something')\ntime.sleep(0.5)")
    (folder / "metrics.py").write_text("CLEAR = HOTA = Identity = lambda *config: None")
    return folder


def test_what_trackeval_prints_is_no_result(slow_trackeval: Path) -> None:
    program = "from sqair.evaluation.tracking import _metrics; _metrics(0.5); print('done')"
    assert printed_with(slow_trackeval, program) == "done\n"


def test_nor_is_it_when_two_threads_ask_at_once(slow_trackeval: Path) -> None:
    """And stdout is there again for both, and afterwards."""
    program = """
import sys, threading
from sqair.evaluation.tracking import _metrics

real, together, after = sys.stdout, threading.Barrier(2), []

def ask(iou):
    together.wait()
    assert _metrics(iou) == (None, None, None)
    after.append(sys.stdout is real)

threads = [threading.Thread(target=ask, args=(iou,)) for iou in (0.3, 0.5)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print(after, sys.stdout is real)
"""
    assert printed_with(slow_trackeval, program) == "[True, True] True\n"

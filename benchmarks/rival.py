"""What people use today: blobs of background subtraction, followed by SORT. As a record:

    python -m benchmarks.rival pets street crossings --record rival

KNN and MOG2 of OpenCV, SORT of the package `trackers` (`uv pip install --group rival`). The rival has an advantage: its
settings are chosen with the labels of the training part, one after the other in rounds until none gets better, by the
mean of MOTA, IDF1 and HOTA. Then it runs over the clip from its beginning, and the frames of the test part count.
pets: PETS09-S2L1 in $SQAIR_DATA/pets09-s2l1, settings from frames 20-500, test on 501-795, truth with conf 0 dropped.
"""

import argparse
import dataclasses
import functools
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np

from benchmarks.flags import add_record_flags
from benchmarks.record import write_record
from sqair.config import UserError
from sqair.data.background import Foreground, Subtraction
from sqair.data.cameras import Camera
from sqair.data.video import Clip, open_clips
from sqair.data.video_images import clip_of_array
from sqair.evaluation.tracking import tracking_metrics
from sqair.tracks import Tracks, Truth, read_truth

METHODS = ("mog2", "knn")
CHOSEN_BY = ("mota", "idf1", "hota")
SHOWN = (*CHOSEN_BY, "id_switches", "ghosts_per_1000_frames", "counting", "counting_in_sight")
LARGE = 400
"""Frames of so many rows are halved while settings are tried; in the end those settings are tried on whole frames."""
LATTICE: dict[str, tuple[Any, ...]] = {
    "threshold": (0.5, 0.75, 1.0, 1.5, 2.5, 4.0),
    "history": (100, 200, 500, 1000, 2000),
    "shadow": (0.4, 0.5, 0.6, 0.7, 1.0),
    "blur": (0.0, 0.7, 1.5),
    "opening": (0, 1, 2, 3),
    "closing": (0, 1, 2, 3, 5),
    "upright": (1.0, 1.5, 2.5, 4.0),
    "least": (0.0002, 0.0004, 0.0006, 0.001, 0.0015, 0.002),
    "pad": (0.95, 1.0, 1.05, 1.1, 1.15, 1.2),
    "patience": (3, 6, 15, 30, 60, 100),
    "confirm": (1, 2, 3, 5),
    "overlap": (0.01, 0.05, 0.1, 0.2, 0.3),
}
"""The values that are tried of each setting."""


@dataclass(frozen=True)
class Rival:
    """All settings of the rival."""

    method: str
    threshold: float = 1.0
    """In units of OpenCV's own, 16 for mog2 and 400 for knn."""
    history: int = 500
    shadow: float = 0.6
    blur: float = 0.7
    """Standard deviation of the blur before the subtraction, in pixels."""
    opening: int = 1
    """Radius in pixels."""
    closing: int = 1
    """Radius in pixels; `upright` times as much from top to bottom, since people are upright."""
    upright: float = 1.5
    least: float = 0.001
    """Share of the frame below which a blob is a speck."""
    pad: float = 1.0
    """Boxes are made larger by this factor."""
    patience: int = 30
    """Frames for which SORT keeps who is not seen."""
    confirm: int = 2
    """Frames in a row after which SORT believes in an object."""
    shrink: int = 1
    """Frames are made so many times smaller first; radii are in pixels of those."""
    overlap: float = 0.1
    """IoU from which on SORT takes a blob for the predicted one."""

    @property
    def subtraction(self) -> Subtraction:
        threshold = self.threshold * {"mog2": 16.0, "knn": 400.0}[self.method]
        return Subtraction(
            method=self.method,  # type: ignore[arg-type]
            history=self.history,
            threshold=threshold,
            shadow=self.shadow,
            opening=0.0,
            closing=0.0,
            look="mask",
        )


class Case(NamedTuple):
    """A clip with truth, and which frames serve what: [start, stop) from 0."""

    name: str
    clip: Clip
    truth: Truth
    train: tuple[int, int]
    test: tuple[int, int]


Look = tuple[Subtraction, float, int]
"""What decides about masks: the subtraction, the blur before it, and how much smaller frames are made."""


# --- the rival


class Blobs:
    """Boxes of a clip's blobs under any settings; what is slow to make is kept for the next call."""

    def __init__(self, clip: Clip, frames: int) -> None:
        self.clip, self.frames = clip, frames
        self.masks = functools.lru_cache(2)(self._masks)
        self.pieces = functools.lru_cache(8)(self._pieces)

    def __call__(self, rival: Rival) -> list[np.ndarray]:
        """Of each frame the boxes (n, 4) as left, top, right, bottom, padded."""
        area = self.clip.size[0] * self.clip.size[1] / rival.shrink**2
        look = (rival.subtraction, rival.blur, rival.shrink)
        pieces = self.pieces(look, rival.opening, rival.closing, rival.upright)
        return [padded(rival.shrink * boxes[sizes >= rival.least * area], rival.pad) for boxes, sizes in pieces]

    def _masks(self, look: Look) -> list[np.ndarray]:
        """Foreground of each frame as bits."""
        subtraction, blur, shrink = look
        foreground, masks = Foreground(subtraction), []
        for frame in islice(self.clip, self.frames):
            if shrink > 1:
                frame = cv2.resize(frame, None, fx=1 / shrink, fy=1 / shrink, interpolation=cv2.INTER_AREA)
            mask = foreground.find(cv2.GaussianBlur(frame, (0, 0), blur) if blur else frame)
            masks.append(np.packbits(mask, axis=1))
        return masks

    def _pieces(self, look: Look, opening: int, closing: int, upright: float) -> list[tuple[np.ndarray, np.ndarray]]:
        """Boxes and numbers of pixels of the connected pieces of each frame, after opening and closing."""
        found = []
        for bits in self.masks(look):
            mask = np.unpackbits(bits, axis=1, count=self.clip.size[1] // look[2])
            if opening:
                mask = cv2.morphologyEx(mask, cv2.MORPH_OPEN, disc(opening, opening))
            if closing:
                mask = cv2.morphologyEx(mask, cv2.MORPH_CLOSE, disc(closing, round(upright * closing)))
            pieces = cv2.connectedComponentsWithStats(mask, connectivity=8)[2][1:]
            found.append((pieces[:, :4].astype(np.float32), pieces[:, cv2.CC_STAT_AREA]))
        return found


def disc(across: int, down: int) -> np.ndarray:
    """An ellipse with these radii."""
    return cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * across + 1, 2 * down + 1))


def padded(boxes: np.ndarray, factor: float) -> np.ndarray:
    """Boxes (left, top, width, height) made larger around their middles, as corners."""
    middle, half = boxes[:, :2] + boxes[:, 2:] / 2, boxes[:, 2:] / 2 * factor
    return np.concatenate([middle - half, middle + half], 1)


def follow(rival: Rival, blobs: list[np.ndarray], size: tuple[int, int]) -> Tracks:
    """The tracks that SORT makes of blobs."""
    import supervision
    from trackers import SORTTracker

    sort = SORTTracker(
        lost_track_buffer=rival.patience,
        frame_rate=30.0,  # the buffer is given in frames at this rate
        minimum_consecutive_frames=rival.confirm,
        minimum_iou_threshold=rival.overlap,
    )
    rows: list[tuple[int, int, np.ndarray]] = []
    for number, corners in enumerate(blobs):
        given = supervision.Detections(
            xyxy=corners, confidence=np.ones(len(corners)), class_id=np.zeros(len(corners), int)
        )
        told = sort.update(given)
        rows += [
            (number, int(id), box) for id, box in zip(np.asarray(told.tracker_id), told.xyxy, strict=True) if id >= 0
        ]
    low = np.clip([box[:2] for *_, box in rows], 0, None).reshape(-1, 2)
    sides = np.clip([box[2:] for *_, box in rows], None, size[::-1]).reshape(-1, 2) - low
    frame, ids = ([row[place] for row in rows] for place in (0, 1))
    return Tracks.make(frame, ids, np.concatenate([low, sides], 1), frames=len(blobs), size=size)


# --- choosing and testing


def choose(case: Case, method: str, say: Callable[[str], None] = print) -> tuple[Rival, dict[str, Any], int]:
    """The best settings by the labels of the training part, their metrics there, and how many were tried."""
    blobs, tried = Blobs(case.clip, case.train[1]), dict[Rival, dict[str, Any]]()

    def quality(rival: Rival) -> float:
        if rival not in tried:
            tried[rival] = measured(case, follow(rival, blobs(rival), case.clip.size), case.train)
        return sum(tried[rival][name] for name in CHOSEN_BY)

    shrink = 1 + case.clip.size[0] // LARGE
    best, before = dataclasses.replace(Rival(method), shrink=shrink), None
    while best != before:
        before = best
        for name, values in LATTICE.items():
            best = max([best, *(dataclasses.replace(best, **{name: value}) for value in values)], key=quality)
        say(f"{case.name} {method}: {len(tried)} tried, mean {quality(best) / 3:.3f}")
    full = {"opening": best.opening * shrink, "closing": best.closing * shrink, "blur": best.blur * shrink, "shrink": 1}
    best = max(best, dataclasses.replace(best, **full), key=quality)
    return best, tried[best], len(tried)


def measured(case: Case, found: Tracks, part: tuple[int, int], iou: float = 0.5) -> dict[str, Any]:
    """Metrics of some frames."""
    rows = (case.truth.tracks.frame >= part[0]) & (case.truth.tracks.frame < part[1])
    truth = shifted(case.truth.tracks, part)
    return tracking_metrics(truth, shifted(found, part), iou=iou, ignored=case.truth.ignored[rows])


def shifted(tracks: Tracks, part: tuple[int, int]) -> Tracks:
    """Some frames as a clip of their own."""
    cut = tracks.between(*part)
    return dataclasses.replace(cut, frame=cut.frame - part[0], frames=part[1] - part[0])


def compete(case: Case, method: str, say: Callable[[str], None] = print) -> dict[str, Any]:
    """What a record says about the rival with one method on one clip."""
    began = time.perf_counter()
    best, train, tried = choose(case, method, say)
    found = follow(best, Blobs(case.clip, case.test[1])(best), case.clip.size)
    row = {
        "settings": dataclasses.asdict(best),
        "tried": tried,
        "train": shown(train),
        **{f"test_iou_{iou}": shown(measured(case, found, case.test, iou)) for iou in (0.5, 0.3)},
        "seconds": round(time.perf_counter() - began, 1),
    }
    say(f"{case.name} {method}: {json.dumps(row)}")
    return row


def better(rows: dict[str, dict[str, Any]]) -> str:
    """The method that the labels of the training part prefer."""
    return max(rows, key=lambda method: sum(rows[method]["train"][name] for name in CHOSEN_BY))


def shown(metrics: dict[str, Any]) -> dict[str, Any]:
    return {name: metrics[name] for name in SHOWN}


# --- clips


def pets() -> Case:
    """The pedestrian clip, where the machine has it."""
    folder = Path(os.environ.get("SQAIR_DATA", "")) / "pets09-s2l1"
    if not folder.is_dir():
        raise UserError("PETS09-S2L1 is needed: set SQAIR_DATA to a folder that holds pets09-s2l1/vtest.avi and gt.txt")
    (clip,) = open_clips(folder / "vtest.avi")
    truth = read_truth(folder / "gt.txt", frames=795, size=clip.size)
    kept = truth.tracks.select(~truth.ignored)
    return Case("pets", clip, Truth(kept, np.zeros(len(kept), bool)), (19, 500), (500, 795))


def made(camera: Camera) -> Case:
    """A made camera: the first five eighths to choose settings with, the rest to test on."""
    border = camera.frames * 5 // 8
    clip = clip_of_array(np.stack(list(camera.clip())), camera.scene, camera.rate)  # drawn once
    return Case(camera.scene, clip, camera.truth(), (min(19, border - 1), border), (border, camera.frames))


def job(name: str, method: str, frames: int) -> dict[str, Any]:
    """One clip and one method, in a process of its own."""
    cv2.setNumThreads(1)
    case = pets() if name == "pets" else made(Camera(name, frames))  # type: ignore[arg-type]
    return compete(case, method, functools.partial(print, flush=True))


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clips", nargs="+", choices=("pets", "street", "crossings"))
    parser.add_argument("--frames", type=int, default=800, help="of a made camera")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    add_record_flags(parser)
    given = parser.parse_args()
    asked = [(name, method) for name in given.clips for method in METHODS]
    with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("spawn")) as pool:
        rows = list(pool.map(job, *zip(*asked, strict=True), [given.frames] * len(asked)))
    results: dict[str, Any] = {}
    for (name, method), row in zip(asked, rows, strict=True):
        results.setdefault(name, {})[method] = row
    for name, both in results.items():
        both["chosen"] = better(both)
        print(name, both["chosen"], json.dumps(both[both["chosen"]]))
    if given.record:
        about = {"kind": "rival", "frames": given.frames, "seeds": [0], "clips": results}
        print("Record saved to", write_record(given.record, about, given.folder))


if __name__ == "__main__":
    main()

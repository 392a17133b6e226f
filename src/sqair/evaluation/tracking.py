"""How well tracks fit the truth: HOTA, MOTA, IDF1 and identity switches by trackeval, ghosts, counting.

Only boxes are compared: an object alive but out of sight has none. Truth of which too little is visible is neither to
be found nor a mistake to find: as MOTChallenge does with what it ignores, boxes are first matched to all of the truth
at an IoU of 0.5, and those that are matched to ignored truth are left out with it.

Axes: n, m boxes, T frames, O objects, 4 left, top, width, height in pixels.
"""

import contextlib
import functools
import io
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from sqair.tracks import Tracks, Truth
from sqair.tracks.text import LEAST_VISIBLE

IGNORE_IOU = 0.5
"""From this overlap on a box is matched to ignored truth."""
GHOST_IOU = 0.1
"""A box that overlaps every truth less than this has no truth."""
_IMPORTING = threading.Lock()


class Score(NamedTuple):
    """What the tracks of one clip add to the metrics of many."""

    hota: dict[str, Any]
    clear: dict[str, Any]
    identity: dict[str, Any]
    """Results of trackeval."""
    frames: int
    truth_boxes: int
    ghosts: int
    right_counts: int
    """Frames in which as many objects are alive as the truth says."""
    right_counts_in_sight: int
    """The same of objects in sight."""


def tracking_metrics(
    truth: Tracks, found: Tracks, *, iou: float = 0.5, ignored: Bool[ndarray, " n"] | None = None
) -> dict[str, Any]:
    """The metrics of one clip; `iou` is the overlap from which on boxes match in MOTA and IDF1, `ignored` truth rows.

    hota: geometric mean of detection and association accuracy, averaged over overlaps of .05 to .95. mota: 1 less the
    share of truth boxes that are missed, false or switched. idf1: F1 of boxes under the best one-to-one naming of
    tracks. None where the truth has no box. id_switches: how often the track that covers an object is another one than
    that which covered it last. ghosts: tracks with no truth overlapping them in more than half of the frames in which
    they have a box. counting: share of frames with the right number of objects alive, counting_in_sight of boxes.
    """
    return combine([score(truth, found, iou=iou, ignored=ignored)])


def score(truth: Tracks, found: Tracks, *, iou: float = 0.5, ignored: Bool[ndarray, " n"] | None = None) -> Score:
    """Compare the tracks of one clip with the truth about it."""
    hota, clear, identity = _metrics(iou)
    ignored = np.zeros(len(truth), bool) if ignored is None else ignored
    data = _trackeval_data(truth, found, ignored)
    return Score(
        hota=hota.eval_sequence(data),
        clear=clear.eval_sequence(data),
        identity=identity.eval_sequence(data),
        frames=data["num_timesteps"],
        truth_boxes=data["num_gt_dets"],
        ghosts=len(ghost_ids(truth, found)),
        right_counts=_right_counts(truth, found),
        right_counts_in_sight=_right_counts(_seen(truth), _seen(found)),
    )


def combine(scores: Iterable[Score]) -> dict[str, Any]:
    """The metrics of many clips together, from sums over clips as trackeval combines sequences."""
    scores = list(scores)
    hota, clear, identity = (
        metric.combine_sequences({number: getattr(each, name) for number, each in enumerate(scores)})
        for name, metric in zip(("hota", "clear", "identity"), _metrics(0.5), strict=True)
    )
    frames, boxes, ghosts = (
        sum(getattr(each, name) for each in scores) for name in ("frames", "truth_boxes", "ghosts")
    )
    counts, in_sight = (sum(each.right_counts for each in scores), sum(each.right_counts_in_sight for each in scores))
    meaning = boxes > 0
    return {
        "frames": frames,
        "truth_boxes": boxes,
        "hota": float(np.mean(hota["HOTA"])) if meaning else None,
        "mota": float(clear["MOTA"]) if meaning else None,
        "idf1": float(identity["IDF1"]) if meaning else None,
        "id_switches": int(clear["IDSW"]),
        "id_switches_per_1000_frames": _per_1000(int(clear["IDSW"]), frames),
        "missed": int(clear["CLR_FN"]),
        "false_positives": int(clear["CLR_FP"]),
        "ghosts": ghosts,
        "ghosts_per_1000_frames": _per_1000(ghosts, frames),
        "counting": counts / frames if frames else None,
        "counting_in_sight": in_sight / frames if frames else None,
    }


def ghost_ids(truth: Tracks, found: Tracks) -> Int[ndarray, " m"]:
    """Identities of ghosts, held against all of the truth that has a box."""
    truth, found = _seen(truth), _seen(found)
    alone = np.ones(len(found), bool)
    for mine, theirs in _by_frame(found, truth):
        if mine.stop > mine.start and theirs.stop > theirs.start:
            alone[mine] = box_iou(found.box[mine], truth.box[theirs]).max(1) < GHOST_IOU
    ids, place = np.unique(found.id, return_inverse=True)
    boxes, lonely = (np.bincount(place, weights, len(ids)) for weights in (None, alone))
    return ids[lonely > boxes / 2]


def box_iou(boxes: Float[ndarray, "n 4"], others: Float[ndarray, "m 4"]) -> Float[ndarray, "n m"]:
    """Intersection over union of every pair."""
    a, b = boxes[:, None].astype(np.float64), others[None].astype(np.float64)
    shared = np.minimum(a[..., :2] + a[..., 2:], b[..., :2] + b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    inner = np.maximum(shared, 0).prod(-1)
    return inner / (a[..., 2:].prod(-1) + b[..., 2:].prod(-1) - inner)


# --- truth of sequences


def truth_tracks(
    boxes: Float[ndarray, "T O 4"],
    ids: Int[ndarray, "T O"],
    visible: Float[ndarray, "T O"] | None,
    size: tuple[int, int],
) -> Truth:
    """The truth about a sequence: boxes clipped to the frame, and ignored where under 25% of an object is visible."""
    low = np.clip(boxes[..., :2], 0, size[::-1])
    sides = np.clip(boxes[..., :2] + boxes[..., 2:], 0, size[::-1]) - low
    share = sides.prod(-1) / boxes[..., 2:].prod(-1) if visible is None else visible
    seen = (sides > 0).all(-1, keepdims=True)
    tracks = sequence_tracks(np.where(seen, np.concatenate([low, sides], -1), np.nan), ids, size)
    frame, place = np.nonzero(ids >= 0)
    order = np.lexsort((ids[frame, place], frame))
    return Truth(tracks, ~(share[frame, place] >= LEAST_VISIBLE)[order])


def sequence_tracks(boxes: Float[ndarray, "T O 4"], ids: Int[ndarray, "T O"], size: tuple[int, int]) -> Tracks:
    """Tracks from arrays: a box that is NaN is out of sight, an id of -1 is no object."""
    frame, place = np.nonzero(ids >= 0)
    return Tracks.make(frame, ids[frame, place], boxes[frame, place], frames=len(ids), size=size)


# --- trackeval


def _metrics(iou: float) -> tuple[Any, Any, Any]:
    """HOTA, CLEAR and Identity of trackeval."""
    config = {"THRESHOLD": iou, "PRINT_CONFIG": False}
    with _IMPORTING:  # of two threads that set stdout aside, the second would bring the first's back
        hota, clear, identity = _kinds()
    return hota(), clear(config), identity(config)


@functools.cache
def _kinds() -> tuple[Any, Any, Any]:
    """The classes of these metrics; trackeval takes a second to import and prints what it misses."""
    with contextlib.redirect_stdout(io.StringIO()):  # stdout is for results
        from trackeval.metrics import CLEAR, HOTA, Identity

    return HOTA, CLEAR, Identity


def _trackeval_data(truth: Tracks, found: Tracks, ignored: Bool[ndarray, " n"]) -> dict[str, Any]:
    """What trackeval's metrics take: ids from 0 without gaps and similarities, frame by frame."""
    from scipy.optimize import linear_sum_assignment

    keep, ignored = truth.in_sight, ignored[truth.in_sight]
    truth, found = truth.select(keep), _seen(found)
    left = np.ones(len(found), bool)
    similarities = []
    for mine, theirs in _by_frame(truth, found):
        similarity = box_iou(truth.box[mine], found.box[theirs])
        if ignored[mine].any():
            matched = np.where(similarity >= IGNORE_IOU - np.finfo(float).eps, similarity, 0.0)
            rows, columns = linear_sum_assignment(-matched)
            gone = columns[(matched[rows, columns] > 0) & ignored[mine][rows]]
            left[theirs.start + gone] = False
        similarities.append(similarity[~ignored[mine]][:, left[theirs]])
    truth, found = truth.select(~ignored), found.select(left)
    frames = max(truth.frames, found.frames)
    return {
        "gt_ids": _ids_by_frame(truth, frames),
        "tracker_ids": _ids_by_frame(found, frames),
        "similarity_scores": similarities,
        "num_timesteps": frames,
        "num_gt_dets": len(truth),
        "num_tracker_dets": len(found),
        "num_gt_ids": len(truth.ids),
        "num_tracker_ids": len(found.ids),
    }


def _ids_by_frame(tracks: Tracks, frames: int) -> list[ndarray]:
    """Identities of each frame, numbered from 0 without gaps."""
    _, place = np.unique(tracks.id, return_inverse=True)
    return np.split(place, np.searchsorted(tracks.frame, np.arange(1, frames))) if frames else []


def _by_frame(tracks: Tracks, others: Tracks) -> Iterable[tuple[slice, slice]]:
    """The rows of both, frame by frame."""
    edges = np.arange(max(tracks.frames, others.frames) + 1)
    starts, ends = (np.searchsorted(each.frame, edges).tolist() for each in (tracks, others))
    return zip(map(slice, starts, starts[1:]), map(slice, ends, ends[1:]), strict=True)


def _seen(tracks: Tracks) -> Tracks:
    return tracks.select(tracks.in_sight)


def _right_counts(truth: Tracks, found: Tracks) -> int:
    """Frames with as many rows as the truth has."""
    frames = max(truth.frames, found.frames)
    true, counted = (np.bincount(each.frame, minlength=frames) for each in (truth, found))
    return int((true == counted).sum())


def _per_1000(number: int, frames: int) -> float | None:
    return 1000 * number / frames if frames else None

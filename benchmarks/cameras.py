"""Models that `sqair fit` makes of cameras, beside the rival's record. One command fits and tests:

    python -m benchmarks.cameras street crossings pets --minutes 5 --record cameras

A model is learnt from the training part of a clip without labels (flags that are not known here, such as --background,
go to `sqair fit`), or taken from a folder (--model, one for each clip), and follows the clip from its beginning; the
frames of the test part count. Parts and truth are those of benchmarks/rival.py. Where PyAV is not, pets needs its
decoded frames, $SQAIR_DATA/pets09-s2l1/frames.npz, which another machine makes:

    python -m benchmarks.cameras --export frames.npz --height 240

--scale makes the walkers of made cameras larger or smaller, and --true-sizes tells `sqair fit` the sizes that the truth
of the training part has, instead of those that it sees: what it loses by having to see them. Of a fit with several
members (--train.members 3) all follow the clip, and a clip's row is that of the one with the best validation bound.

Counting on crops: people whose box has its centre in a window of 64x64 pixels, of the frame at the height of App. E.
"""

import argparse
import dataclasses
import importlib.util
import json
import math
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.flags import add_record_flags
from benchmarks.population import members_of, number_of
from benchmarks.record import RECORDS, write_record
from benchmarks.rival import SHOWN, Case, made, measured, shown
from sqair.cli import main as sqair
from sqair.commands.fit import Background
from sqair.commands.fit_proposal import Wishes, propose
from sqair.config import UserError
from sqair.data import Camera, save_frames
from sqair.data.camera import Sizes, camera_of
from sqair.data.frames import between
from sqair.data.survey import LEVELS, survey
from sqair.data.video import Clip, open_clips
from sqair.settings import to_dict
from sqair.tracking import track
from sqair.tracks import Tracks, Truth, read_truth
from sqair.training.checkpoint import read_card
from sqair.training.runs import MEMBERS

FOLDER, FRAMES = "pets09-s2l1", "frames.npz"
SIZE = (576, 768)
"""Of the pedestrian clip, and so of its truth."""
LENGTH, BORDER = 795, 500
"""Frames of that clip, and of its training part."""
IOUS = (0.5, 0.3)
CROP, HEIGHT = 64, 175
"""A side of a window, and the height of the frame that it is cut from (App. E)."""
SIZED = ("glimpse", "scale_limits", "width_limits", "where_prior_mean", "where_prior_std")
"""What of a model follows from how large things are."""
TOLD = {"--crop", "--networks", "--background", "--train.discovery-cost", "--model.max-objects"}
TOLD |= {f"--model.{name.replace('_', '-')}" for name in SIZED}
"""Flags of `sqair fit` that --true-sizes gives, or that it would have to follow."""
WINDOWS = 20
"""Windows of a frame in which people are counted."""


# --- clips


def pets(folder: Path) -> Case:
    """The pedestrian clip: decoded frames of any size, or the video itself."""
    decoded = folder / FRAMES
    if not decoded.exists() and importlib.util.find_spec("av") is None:
        raise UserError(f"there is no PyAV to decode the clip; put {FRAMES} into {folder}, made with --export")
    (clip,) = open_clips(decoded if decoded.exists() else folder / "vtest.avi")
    truth = read_truth(folder / "gt.txt", frames=LENGTH, size=SIZE)
    kept = scaled_tracks(truth.tracks.select(~truth.ignored), clip.size)
    return Case("pets", clip, Truth(kept, np.zeros(len(kept), bool)), (0, BORDER), (BORDER, LENGTH))


def scaled_tracks(tracks: Tracks, size: tuple[int, int]) -> Tracks:
    """Boxes of the pedestrian clip in a frame of another size."""
    ratio = np.array([size[1] / SIZE[1], size[0] / SIZE[0]] * 2, np.float32)
    return dataclasses.replace(tracks, box=tracks.box * ratio, where=tracks.where * ratio, size=size)


def open_case(name: str, frames: int, data: Path, scale: float = 1.0) -> Case:
    """A clip by its name."""
    if name == "pets":
        return pets(data / FOLDER)
    case = made(Camera(name, frames, scale=scale))  # type: ignore[arg-type]
    return case._replace(train=(0, case.train[1]))


# --- fitting and testing


def fit(case: Case, folder: Path, flags: list[str]) -> float:
    """Learn a model of the training part; returns the seconds that it took."""
    with tempfile.TemporaryDirectory() as there:
        file = Path(there) / f"{case.name}.npz"
        save_frames(file, between(case.clip, *case.train), colour=is_coloured(case.clip))
        began = time.perf_counter()
        code = sqair(["fit", str(file), "--out", str(folder), "--overwrite", *flags])
        if code:
            raise UserError(f"`sqair fit` of {case.name} ended with {code}")
    return time.perf_counter() - began


def true_sizes(case: Case) -> Sizes:
    """Of those whom the training part shows whole: they touch no edge."""
    box = case.truth.tracks.select(~case.truth.ignored).between(*case.train).box
    low, high = box[:, :2], box[:, :2] + box[:, 2:]
    whole = (low > 1).all(1) & (high < np.array(case.clip.size[::-1]) - 1).all(1)
    width, height = (tuple(np.quantile(box[whole, axis], LEVELS).tolist()) for axis in (2, 3))
    return Sizes(width, height)


def sizes_given(case: Case) -> list[str]:
    """The flags of `sqair fit` that it would have proposed had it seen the true sizes."""
    subtraction = Background().subtraction()
    seen = dataclasses.replace(survey(case.clip, subtraction, *case.train), objects=true_sizes(case))
    proposal = propose(seen, subtraction, Wishes(), on_cpu=jax.default_backend() == "cpu")
    camera, model = proposal.camera, proposal.model
    said = {"height": [camera.height], "crop": camera.crop, "train.discovery-cost": [proposal.train.discovery_cost]}
    said |= {f"model.{name.replace('_', '-')}": getattr(model, name) for name in SIZED}
    said |= {"model.max-objects": [model.max_objects]}
    return [word for name, values in said.items() for word in (f"--{name}", *(f"{value:g}" for value in values))]


def is_coloured(clip: Clip) -> bool:
    """Whether its frames have colours."""
    return next(iter(clip)).ndim == 3


def tested(case: Case, folder: Path) -> dict[str, Any]:
    """What a record says of a model on one clip."""
    began = time.perf_counter()
    found = track(folder, case.clip)
    seconds = time.perf_counter() - began
    card = read_card(folder)
    camera = camera_of(card)
    return {
        **{f"test_iou_{iou}": shown(measured(case, found, case.test, iou)) for iou in IOUS},
        "counting_on_crops": crop_counting(case, found),
        "track_seconds": round(seconds, 1),
        "seed": card["training"].get("train", {}).get("seed", 0),
        "step": card["training"].get("step"),
        "validation_bound": card["training"].get("validation_bound"),
        "camera": None if camera is None else to_dict(camera),
        "true_sizes": to_dict(true_sizes(case)),
        "curve": curve(folder),
        "model": card["model"],
    }


def all_tested(case: Case, folder: Path) -> dict[str, Any]:
    """What a record says of a fit: the member with the best bound, and in `members` what is measured of each."""
    found = [tested(case, each) for each in members_of(folder)]
    bounds = [row.get("validation_bound") for row in found]
    best = max(zip(found, bounds, strict=True), key=lambda pair: -math.inf if pair[1] is None else pair[1])[0]
    same = ("camera", "true_sizes", "model")
    return best | {"members": [{name: row[name] for name in row if name not in same} for row in found]}


def curve(model: Path) -> list[dict[str, Any]]:
    """The bounds of a run, or of a member of it, at its evaluations; none where there is but a model."""
    member = number_of(model)
    file = (model.parent.parent if model.parent.name == MEMBERS else model) / "metrics.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    names = ("step", "train_bound", "validation_bound")
    return [{name: row[name] for name in names} for row in rows if row.get("member", 0) == member]


def crop_counting(case: Case, found: Tracks) -> float:
    """Share of windows of the test part in which the right number of boxes has its centre."""
    ratio = HEIGHT / case.clip.size[0]
    limits = np.maximum(0, np.array([case.clip.size[1] * ratio, HEIGHT]) - CROP)
    corners = np.random.default_rng(1).uniform(0, 1, (case.test[1] - case.test[0], WINDOWS, 2)) * limits
    truth = case.truth.tracks.select(~case.truth.ignored)
    right = [
        inside(found, frame, ratio, windows) == inside(truth, frame, ratio, windows)
        for frame, windows in zip(range(*case.test), corners, strict=True)
    ]
    return float(np.mean(right))


def inside(tracks: Tracks, frame: int, ratio: float, corners: np.ndarray) -> np.ndarray:
    """How many boxes of a frame have their centre in each window."""
    box = tracks.between(frame, frame + 1).box
    box = box[np.isfinite(box).all(1)] * ratio
    place = box[None, :, :2] + box[None, :, 2:] / 2 - corners[:, None]
    return ((place >= 0) & (place < CROP)).all(-1).sum(1)


# --- records


def rival_of(name: str, records: Path = RECORDS) -> dict[str, Any] | None:
    """What the newest record of the rival says of a clip; None where there is none."""
    for path in sorted(records.glob("*.json"), reverse=True):
        results = json.loads(path.read_text())["results"]
        if results.get("kind") == "rival" and name in results["clips"]:
            both = results["clips"][name]
            return both[both["chosen"]]
    return None


def lines(name: str, row: dict[str, Any], rival: dict[str, Any] | None) -> list[str]:
    """Ours and the rival's, as a table."""
    said = [f"{name:<22}" + "".join(f"{column.removesuffix('_per_1000_frames'):>18}" for column in SHOWN)]
    for who, numbers in (("ours", row), ("rival", rival)):
        for key in (f"test_iou_{iou}" for iou in IOUS):
            if numbers is not None:
                cells = "".join(f"{numbers[key][column]:>18.3f}" for column in SHOWN)
                said.append(f"{who + ' at IoU ' + key[-3:]:<22}{cells}")
    return [*said, f"counting on {CROP}x{CROP} crops {row['counting_on_crops']:.4f}"]


def export(path: Path, data: Path, height: int) -> None:
    """Write the decoded frames of the pedestrian clip in grey, small enough to travel."""
    (clip,) = open_clips(data / FOLDER / "vtest.avi")
    save_frames(path, clip, height=height, dense=True)
    print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB; put it into {FOLDER} as {FRAMES}")


def parse() -> argparse.Namespace:
    """The flags of this program, and as `flags` those of `sqair fit`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clips", nargs="*", metavar="{pets,street,crossings}")
    parser.add_argument("--frames", type=int, default=800, help="of a made camera")
    parser.add_argument("--scale", type=float, default=1.0, help="of the walkers of a made camera")
    parser.add_argument("--true-sizes", action="store_true", help="tell `sqair fit` how large things are")
    parser.add_argument("--minutes", type=float, help="of training, each; as `sqair fit` has it")
    parser.add_argument("--model", nargs="+", type=Path, default=[], help="folders of fitted models, one for each clip")
    parser.add_argument("--out", type=Path, help="keep the fitted models in this folder")
    parser.add_argument("--export", type=Path, metavar="FILE.npz", help="only write the decoded frames of pets")
    parser.add_argument("--height", type=int, default=240, help="of exported frames")
    add_record_flags(parser)
    given, given.flags = parser.parse_known_args()
    given.clips += [word for word in given.flags if word in ("pets", "street", "crossings")]
    given.flags = [word for word in given.flags if word not in given.clips]
    if unknown := set(given.clips) - {"pets", "street", "crossings"}:
        parser.error(f"there is no clip {', '.join(sorted(unknown))}; choose from pets, street, crossings")
    if given.export is None and not given.clips:
        parser.error("name a clip: pets, street, crossings")
    if given.model and len(given.model) != len(given.clips):
        parser.error("give one folder of a model for each clip")
    if given.model and given.true_sizes:
        parser.error("--true-sizes is for a fit; leave --model out")
    if given.true_sizes and (clash := TOLD & {word.partition("=")[0] for word in given.flags}):
        parser.error(f"--true-sizes decides {', '.join(sorted(clash))}; leave one of them out")
    if given.scale != 1 and "pets" in given.clips:
        parser.error("--scale is for made cameras; people of pets have the size that they have")
    if given.minutes is not None:
        given.flags += [f"--minutes={given.minutes:g}"]
    return given


def main() -> None:
    """Fit, track, print and record."""
    given, data = parse(), Path(os.environ.get("SQAIR_DATA", "../shared/data"))
    if given.export is not None:
        return export(given.export, data, given.height)
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as there:
        for place, name in enumerate(given.clips):
            case = open_case(name, given.frames, data, given.scale)
            folder = given.model[place] if given.model else (given.out or Path(there)) / name
            told = sizes_given(case) if given.true_sizes else []
            seconds = None if given.model else round(fit(case, folder, [*told, *given.flags]), 1)
            rows[name] = {"fit_seconds": seconds, "sizes_given": told, **all_tested(case, folder)}
            print("\n".join(lines(name, rows[name], rival_of(name) if given.scale == 1 else None)), flush=True)
            if given.record:  # after each, so that a time limit loses little
                asked = {word: getattr(given, word) for word in ("frames", "scale", "true_sizes", "flags")}
                seeds = sorted({each.get("seed", 0) for row in rows.values() for each in row["members"]})
                about = {"kind": "cameras", **asked, "seeds": seeds, "clips": rows}
                write_record(given.record, about, given.folder)
    print("device", jax.devices()[0].device_kind)


if __name__ == "__main__":
    main()

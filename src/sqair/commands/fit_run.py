"""The run of `sqair fit`: the ordinary training on sequences of a camera, whose card tells of that camera.

Besides what every run has, its folder holds sequences.npz, which it is trained on, so that it can go on where the clip
is not, and fit.json: what was seen in the clip, and the camera.
"""

import json
import math
import sys
import time
from pathlib import Path
from typing import NamedTuple

from jax.sharding import Mesh

from sqair.commands.common import command_line
from sqair.commands.watch import watchers
from sqair.config import FORMAT_VERSION, Preset, UserError
from sqair.data.camera import Camera
from sqair.data.survey import Survey
from sqair.files import written_atomically
from sqair.settings import to_dict
from sqair.training.checkpoint import CONFIG, read_card
from sqair.training.files import write_json
from sqair.training.loop import Progress, Stopped, train
from sqair.training.manifest import checksum
from sqair.training.resume import newest
from sqair.training.runs import BEST, MEMBERS, check_folder

SEQUENCES, NOTES = "sequences.npz", "fit.json"
TIMED = 10
"""Steps after which the time that training takes is told."""


class Fitted(NamedTuple):
    """What is trained, and the camera it is for."""

    preset: Preset
    camera: Camera


def write_fitted(folder: Path, sequences: Path, fitted: Fitted, seen: Survey, *, overwrite: bool) -> None:
    """Put the sequences and what is known of the camera into the folder of a new run."""
    check_folder(folder, overwrite=overwrite)
    with written_atomically(folder / SEQUENCES) as file:
        file.write(sequences.read_bytes())
    told = {"format_version": FORMAT_VERSION, "camera": fitted.camera.to_card(), "survey": to_dict(seen)}
    write_json(folder / NOTES, told)


def read_fitted(folder: Path) -> Fitted:
    """What a run in a folder was begun with."""
    try:
        told = json.loads((folder / NOTES).read_bytes())
        camera = Camera.from_card(told["camera"])
    except FileNotFoundError as error:
        raise UserError(f"{folder} holds no run of `sqair fit`: it has no {NOTES}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder / NOTES} is damaged; copy it again, or start anew with --overwrite") from error
    return Fitted(newest(folder).notes.preset, camera)


def train_fitted(fitted: Fitted, folder: Path, *, resume: bool, quiet: bool, tells_time: bool) -> None:
    """Train as `sqair train` does, and leave with 130 or 143 where a signal ended it."""
    preset, label = fitted.preset, Label(fitted.camera)
    own = [label, Estimate(preset.train.steps)] if tells_time else [label]
    try:
        with watchers(preset, tensorboard=False) as callbacks:
            train(
                preset,
                folder,
                resume=resume,
                overwrite=not resume,  # its own files lie there already
                quiet=quiet,
                command=command_line(sys.argv[1:]),
                callbacks=[*own, *callbacks],
                mesh=mesh_of(preset),
            )
            label.write(folder)
    except Stopped as stop:
        print(f"sqair fit: {stop}", file=sys.stderr)
        raise SystemExit(stop.code) from stop
    told = read_card(folder)["training"]
    if not quiet and told.get("validation_bound") is not None:
        bound, step = told["validation_bound"], told["step"]
        print(f"validation bound {bound:.1f} nats per frame, at step {step}", file=sys.stderr)


def mesh_of(preset: Preset) -> Mesh | None:
    """All devices there are; None for one."""
    import jax

    from sqair.training.distributed import choose_shares, make_mesh
    from sqair.training.members import member_configs

    members = len(member_configs(preset.train))
    return make_mesh(choose_shares("auto", preset.train, members, jax.device_count()))


class Label:
    """Tells of the camera in the cards of a run's best models, whenever there are new ones."""

    def __init__(self, camera: Camera) -> None:
        self.values = camera.to_card()

    def __call__(self, progress: Progress) -> None:
        """Complete the cards, at evaluations."""
        if progress.metrics is not None:
            self.write(progress.out)

    def write(self, out: Path) -> None:
        """Complete the cards in a run's folder."""
        for folder in (out, out / BEST, *(out / MEMBERS).glob("*")):
            if (folder / CONFIG).is_file():
                card = read_card(folder)
                if (card.get("training") or {}).get("camera") != self.values:
                    card |= {"training": (card.get("training") or {}) | {"camera": self.values}}
                    card["sha256"] = card.get("sha256", {}) | {"training.camera": checksum(self.values)}
                    write_json(folder / CONFIG, card)


class Estimate:
    """Says once how long training will take, by the pace of its first steps; the very first compiles."""

    def __init__(self, steps: int) -> None:
        self.steps, self.first, self.told = steps, (0, 0.0), False

    def __call__(self, progress: Progress) -> None:
        """Say it when enough steps are made."""
        now, (step, then) = time.perf_counter(), self.first
        if then == 0:
            self.first = progress.step, now
        elif not self.told and progress.step >= step + TIMED:
            self.told = True
            minutes = (self.steps - progress.step) * (now - then) / (progress.step - step) / 60
            print(
                f"training will take about {max(1, math.ceil(minutes))} minutes, more as sequences grow longer",
                file=sys.stderr,
            )

"""The run that soak tests kill: `python driver.py DATA.npz OUT` begins it, or goes on with it if it was begun."""

import sys
from pathlib import Path

from sqair.config import DataConfig, ModelConfig, Preset, TrainConfig

STEPS, EVERY = 400, 20


def preset(data: str) -> Preset:
    """A model and a run so small that a process trains it in seconds, once its program is in the compilation cache."""
    model = ModelConfig(image=(8, 8), glimpse=(4, 4), max_objects=1, what_size=2, width=8)
    train = TrainConfig(
        steps=STEPS, batch=2, particles=2, warm_up=10, stage=20, evaluate_every=EVERY, validation_sequences=4
    )
    return Preset(model, DataConfig(name=data, length=3, size=(8, 8)), train)


def main(data: str, out: str) -> None:
    """Train."""
    from sqair.training.loop import train
    from sqair.training.resume import checkpoints

    begun = bool(checkpoints(Path(out)))
    train(preset(data), Path(out), resume=begun, overwrite=not begun, quiet=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

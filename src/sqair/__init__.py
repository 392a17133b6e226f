"""SQAIR: finds, tracks, counts and simulates moving objects in video without labels (Kosiorek et al., 2018).

The names below are imported when they are first used, so that ``import sqair`` is instant.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqair.baselines.air import AIR
    from sqair.baselines.vrnn import VRNN
    from sqair.config import DataConfig, ModelConfig, Preset, TrainConfig, UserError, preset
    from sqair.data import open_data
    from sqair.evaluation.evaluate import evaluate
    from sqair.generation import Prediction, Scene, predict, sample
    from sqair.model import SQAIR, SequenceModel
    from sqair.tracking.sources import track
    from sqair.tracks.table import Tracks
    from sqair.training.checkpoint import from_pretrained, save_pretrained
    from sqair.training.checkpoint import load_model as load
    from sqair.training.checkpoint import save_model as save
    from sqair.training.loop import train

__version__ = "0.1.0"

__all__ = [
    "AIR",
    "SQAIR",
    "VRNN",
    "DataConfig",
    "ModelConfig",
    "Prediction",
    "Preset",
    "Scene",
    "SequenceModel",
    "Tracks",
    "TrainConfig",
    "UserError",
    "evaluate",
    "from_pretrained",
    "load",
    "open_data",
    "predict",
    "preset",
    "sample",
    "save",
    "save_pretrained",
    "track",
    "train",
]

_HOMES = {
    "AIR": "baselines.air",
    "SQAIR": "model",
    "VRNN": "baselines.vrnn",
    "Prediction": "generation",
    "Scene": "generation",
    "SequenceModel": "model",
    "evaluate": "evaluation.evaluate",
    "from_pretrained": "training.checkpoint",
    "load": "training.checkpoint",
    "open_data": "data",
    "predict": "generation",
    "sample": "generation",
    "save": "training.checkpoint",
    "save_pretrained": "training.checkpoint",
    "track": "tracking.sources",
    "Tracks": "tracks.table",
    "train": "training.loop",
}
"""The modules of the names that do not come from config.py."""
_LONGER = {"load": "load_model", "save": "save_model"}
"""What a name is called at home, where that differs."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sqair' has no attribute {name!r}")
    module = importlib.import_module(f"sqair.{_HOMES.get(name, 'config')}")
    return getattr(module, _LONGER.get(name, name))


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

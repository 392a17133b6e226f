"""Models and train states as files: safetensors and JSON, never pickle."""

from pathlib import Path
from typing import Any

from jaxtyping import PRNGKeyArray

from sqair.config import ModelConfig
from sqair.model import SequenceModel


def build(config: ModelConfig, key: PRNGKeyArray) -> SequenceModel:
    """A new model of the kind that `config` names, with random weights."""
    raise NotImplementedError


def shipped_models() -> list[str]:
    """Names of the models that come with the package."""
    raise NotImplementedError


def save_model(folder: Path, model: SequenceModel, extra: dict[str, Any], half: bool = False) -> None:
    """Write config.json (its key `training` is `extra`) and model.safetensors into `folder`, which may exist."""
    raise NotImplementedError


def load_model(name_or_folder: str | Path) -> SequenceModel:
    """A shipped model by its name, a model's folder, or a run's folder (its best, else its newest checkpoint)."""
    raise NotImplementedError


def read_card(name_or_folder: str | Path) -> dict[str, Any]:
    """The config.json of the model that `load_model` would load: format_version, kind, version, model, training."""
    raise NotImplementedError

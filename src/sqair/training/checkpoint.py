"""Models as files: config.json and model.safetensors, never pickle, so that loading a stranger's file runs nothing.

A tensor's name is its path in the model, such as `propagation.relation.rnn.weight`. Weights may lie on disk in half
precision; in memory they are float32. Everything that does not fit, is too large, or is not what its checksum in
config.json says (its key `sha256`, which older files do not have) is refused with one line, before it is used.
"""

import importlib.resources
import json
from collections.abc import Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import PRNGKeyArray
from numpy import ndarray

import sqair
from sqair.baselines.air import AIR
from sqair.baselines.vrnn import VRNN
from sqair.config import FORMAT_VERSION, ModelConfig, UserError, nearest
from sqair.files import written_atomically
from sqair.model import SQAIR, SequenceModel
from sqair.settings import check, from_dict, to_dict
from sqair.training.files import write_json
from sqair.training.manifest import Damaged, changed_entry, checksum

T = TypeVar("T")

CONFIG, WEIGHTS = "config.json", "model.safetensors"
LARGEST_CARD, LARGEST_HEADER = 2**20, 2**20
"""Bytes of a config.json, and of what a safetensors file has besides its numbers, at most."""
READ = 2**24
"""Bytes that are read at once."""


@eqx.filter_jit
def build(config: ModelConfig, key: PRNGKeyArray) -> SequenceModel:
    """A new model of the kind that `config` names, with random weights. Compiled: op by op it takes twice as long."""
    kind = VRNN if config.kind == "vrnn" else AIR if config.kind == "air" else SQAIR
    model = kind(config, key=key)
    # Numbers given in Python are weakly typed; loaded ones are not, and would make jax compile every program anew.
    return jax.tree.map(lambda leaf: leaf.astype(leaf.dtype) if eqx.is_array(leaf) else leaf, model)


# --- tensors by name


def named_arrays(tree: Any) -> dict[str, Any]:
    """The arrays of a pytree by their dotted paths."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, _is_tensor))
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def save_tensors(path: Path, tree: Any, *, half: bool = False, metadata: dict[str, str] | None = None) -> None:
    """Write the arrays of a pytree into a safetensors file, all of it or nothing; `half` writes floats as float16."""
    arrays = {name: np.asarray(leaf) for name, leaf in named_arrays(tree).items()}
    if half:
        arrays = {
            name: array.astype(np.float16) if array.dtype.kind == "f" else array for name, array in arrays.items()
        }
    with written_atomically(path) as file:
        file.write(safetensors.numpy.save(arrays, metadata))


def load_tensors(path: Path | Traversable, like: T, added: Sequence[str] = ()) -> T:
    """`like`, whose arrays may be shapes only, with the arrays of a file; every name, shape and type must fit.

    `added` names arrays that the file may lack: those stay as they are.
    """
    wanted = named_arrays(like)
    arrays = _parse_tensors(path, _read(path, LARGEST_HEADER + sum(_nbytes(leaf) for leaf in wanted.values())))
    arrays = {name: np.asarray(wanted[name]) for name in added if name in wanted} | arrays
    for name in [*wanted, *arrays]:
        if name not in arrays or name not in wanted:
            lacks = "has no" if name not in arrays else "has a surplus"
            raise UserError(f"{path} is not a file of this model: it {lacks} tensor {name!r}")
    filled = [jnp.asarray(_fitting(path, name, arrays[name], leaf)) for name, leaf in wanted.items()]
    tensors, rest = eqx.partition(like, _is_tensor)
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(tensors), filled), rest)


def _fitting(path: Path | Traversable, name: str, array: ndarray, leaf: Any) -> ndarray:
    """The array of a file as the dtype of `leaf`, whose shape it must have."""
    half = array.dtype == np.float16 and leaf.dtype == np.float32
    if array.shape != leaf.shape or not (half or array.dtype == leaf.dtype):
        found, wanted = f"{array.dtype} {array.shape}", f"{leaf.dtype} {leaf.shape}"
        raise UserError(f"{path} is not a file of this model: tensor {name!r} is {found}, not {wanted}")
    return array.astype(leaf.dtype)


def _parse_tensors(path: Path | Traversable, content: bytes) -> dict[str, ndarray]:
    try:
        return safetensors.numpy.load(content)
    except (safetensors.SafetensorError, KeyError, ValueError, TypeError) as error:
        raise Damaged(f"{path} is not an intact safetensors file; copy it again") from error


def _read(path: Path | Traversable, most: int) -> bytes:
    """The content of a file of at most so many bytes; no more than it has is asked for."""
    content = b""
    try:
        with path.open("rb") as file:
            while len(content) <= most and (piece := file.read(READ)):
                content += piece
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; the model is incomplete, copy it again") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    if len(content) > most:
        raise UserError(f"{path} is not a file of this model: it is larger than {most} bytes")
    return content


def _nbytes(leaf: Any) -> int:
    return leaf.size * leaf.dtype.itemsize


def _is_tensor(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


# --- models


def save_model(folder: Path, model: SequenceModel, extra: dict[str, Any], half: bool = False) -> None:
    """Write model.safetensors, then config.json, into `folder`, which may exist. `extra` is its key `training`."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = model.config.kind
    card = {"format_version": FORMAT_VERSION, "kind": kind, "version": sqair.__version__}
    # One key only: safetensors writes several in random order, and equal models should be equal files.
    save_tensors(folder / WEIGHTS, model, half=half, metadata={"sqair": json.dumps(card)})
    card |= {"model": to_dict(model.config), "training": extra}
    sums = {"kind": checksum(kind), "model": checksum(card["model"])}
    sums |= {f"training.{name}": checksum(value) for name, value in extra.items()}  # of each: entries may be added
    write_json(folder / CONFIG, card | {"sha256": {WEIGHTS: checksum((folder / WEIGHTS).read_bytes())} | sums})


def load_model(name_or_folder: str | Path) -> SequenceModel:
    """A shipped model by its name, a model's folder, or a run's folder (its best, else its newest checkpoint)."""
    folder = find_model(name_or_folder)
    card = _read_card(folder)
    config = from_dict(ModelConfig, card["model"], "model.")
    check(config, "model.")
    try:
        shapes = eqx.filter_eval_shape(build, config, jax.random.key(0))
    except Exception as error:  # a stranger's sizes can fail in any way; none of them is worth a traceback
        raise UserError(f"{folder / CONFIG} describes no model that can be built: {_first_line(error)}") from error
    model = load_tensors(folder / WEIGHTS, shapes)
    wanted = card.get("sha256", {}).get(WEIGHTS)
    if wanted is not None and checksum((folder / WEIGHTS).read_bytes()) != wanted:
        raise Damaged(f"{folder / WEIGHTS} is damaged: it is not what {CONFIG} says; copy the model again")
    for name, array in named_arrays(model).items():
        if not np.isfinite(array).all():
            raise UserError(f"{folder / WEIGHTS} holds a number that is not finite in {name!r}; use another checkpoint")
    return model


def save_pretrained(
    model: SequenceModel, folder: str | Path, *, training: dict[str, Any] | None = None, half: bool = False
) -> None:
    """Write a model into `folder` as config.json and model.safetensors, which `from_pretrained` reads.

    `training` tells where it comes from, as `read_card(name)["training"]` of a loaded one does; `half` writes float16.
    """
    save_model(Path(folder), model, training or {}, half)


def from_pretrained(name_or_folder: str | Path) -> SequenceModel:
    """A trained model: shipped ones by their names, others by the folder of a model or of a run. Same as `load`."""
    return load_model(name_or_folder)


def read_card(name_or_folder: str | Path) -> dict[str, Any]:
    """The config.json of the model that `load_model` would load: format_version, kind, version, model, training."""
    return _read_card(find_model(name_or_folder))


def _read_card(folder: Path | Traversable) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        card = json.loads(_read(path, LARGEST_CARD))
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{path} is not intact JSON; copy the model again") from error
    if not isinstance(card, dict) or card.get("format_version") != FORMAT_VERSION:
        version = card.get("format_version") if isinstance(card, dict) else None
        raise UserError(f"{path} has format_version {version}, this program reads {FORMAT_VERSION}; update sqair")
    if "model" not in card:
        raise UserError(f"{path} has no key 'model'; it is no model of sqair")
    sums = card.get("sha256", {})
    if not isinstance(sums, dict):
        raise Damaged(f"{path} is damaged: its key 'sha256' is no table; copy the model again")
    changed = changed_entry(card, {name: value for name, value in sums.items() if name != WEIGHTS})
    if changed is not None:
        raise Damaged(f"{path} is damaged, or {changed!r} was edited: copy it again, or delete its key 'sha256'")
    return card


# --- where models are


def shipped_models() -> list[str]:
    """Names of the models that come with the package."""
    weights = _shipped()
    return sorted(item.name for item in weights.iterdir() if (item / CONFIG).is_file()) if weights.is_dir() else []


def find_model(name_or_folder: str | Path) -> Path | Traversable:
    """The folder with the config.json that is meant by a folder, a run's folder or a shipped name."""
    path = Path(name_or_folder).expanduser()
    if path.is_dir():
        checkpoints = sorted((path / "checkpoints").glob("[0-9]*"), reverse=True)
        for folder in (path / "best", path, *checkpoints):
            if (folder / CONFIG).is_file():
                return folder
        raise UserError(f"{path} holds no model: it has no {CONFIG}")
    if path.is_file():
        raise UserError(f"{path} is a file; give the folder that holds {CONFIG} and {WEIGHTS}")
    known = shipped_models()
    if str(name_or_folder) in known:
        return _shipped() / str(name_or_folder)
    hint = nearest(str(name_or_folder), known) if known else "no models are shipped"
    raise UserError(f"no model {str(name_or_folder)!r}: neither a folder nor a shipped model; {hint}")


def _shipped() -> Traversable:
    return importlib.resources.files("sqair") / "weights"


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]

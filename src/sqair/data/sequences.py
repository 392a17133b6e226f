"""Sequences from a generator or from a file, behind one interface; and the .npz files that hold them.

A source has two ways to give sequences. ``batch`` draws at random and is meant to run inside a compiled train step:
pass the source itself as an argument of the compiled function, so that its arrays are not baked into the program.
``fixed`` gives a numbered list that never changes: sequence i is the same whatever else is asked for.

A file is an .npz with `frames` uint8 (S,T,H,W) or (S,T,H,W,3) and, if the truth is known, `counts` (S,T), `boxes`
(S,T,O,4), `ids` (S,T,O), `labels` (S,O) and `visible` (S,T,O), as in `Sequences`. Its last tenth is "validation", the
rest is "train", and "test" is all of it: a model that was trained on the file is tested on "validation". A file of raw
frames also has `scene` uint8 (S,H,W) or (S,H,W,3) and `corners` (S,2); then frames bring them along (backdrops.py).
One that `sqair fit` cut has `most_objects` (S,T): no more things than so many are there, -1 where that is not known.
"""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray
from numpy import ndarray

from sqair.config import FORMAT_VERSION, DataConfig, UserError, nearest
from sqair.data.backdrops import surroundings, with_surroundings
from sqair.data.digits import Digits, Split, load_digits, rescale, rescaled_side, widened
from sqair.data.moving_digits import MOTIONS, Sequences, check_fits, make_sequences
from sqair.files import written_atomically
from sqair.settings import check

CHUNK = 100
"""Sequences of a fixed list that share a key; part of what defines the list."""
TRUTH_AXES = {
    **{"counts": "ST", "boxes": "STO4", "ids": "STO", "labels": "SO", "visible": "STO"},
    **{"corners": "S2", "most_objects": "ST"},
}
INTEGERS = ("counts", "ids", "labels", "corners", "most_objects")
TIMELESS = ("labels", "scene", "corners")
KNOWN = ("format_version", *Sequences._fields)
BROKEN = (
    *(OSError, ValueError, EOFError, KeyError, TypeError, AttributeError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, MemoryError, SyntaxError),
)
"""What a file of another kind, or half of one, makes numpy and zipfile raise."""


class GeneratedSource(eqx.Module):
    """Moving digits of one split, as many as one likes."""

    digits: Digits
    config: DataConfig = eqx.field(static=True)

    def batch(self, key: PRNGKeyArray, count: int) -> Sequences:
        """`count` new sequences."""
        return make_sequences(key, self.digits, self.config, count)

    def fixed(self, count: int, seed: int = 1, start: int = 0) -> Sequences:
        """Sequences `start` to `start + count` of the list with this seed."""
        _check_count(count)
        key = jax.random.key(seed)
        numbers = range(start // CHUNK, (start + count - 1) // CHUNK + 1)
        chunks = [_make(jax.random.fold_in(key, n), self.digits, self.config, CHUNK) for n in numbers]
        skip = start - numbers[0] * CHUNK
        return jax.tree.map(lambda *parts: jnp.concatenate(parts)[skip : skip + count], *chunks)


class FileSource(eqx.Module):
    """Sequences of one split of a file; the frames stay on the device as bytes."""

    sequences: Sequences
    path: str = eqx.field(static=True)
    first: Int[Array, ""] | None = None
    """Only the first so many are used, all if None. What is compiled for a number serves for others."""

    def batch(self, key: PRNGKeyArray, count: int) -> Sequences:
        """`count` sequences drawn uniformly, with replacement."""
        index = jax.random.randint(key, (count,), 0, len(self.sequences.frames) if self.first is None else self.first)
        return _to_floats(jax.tree.map(lambda values: jnp.asarray(values)[index], self.sequences))

    def fixed(self, count: int, seed: int = 1, start: int = 0) -> Sequences:
        """Sequences `start` to `start + count` in the file's order; a file needs no seed."""
        del seed
        _check_count(count)
        available = len(self)
        if start + count > available:
            raise UserError(
                f"{self.path} has only {available} sequences for this use; ask for no more with --sequences"
            )
        return _to_floats(jax.tree.map(lambda values: jnp.asarray(values)[start : start + count], self.sequences))

    def __len__(self) -> int:
        """How many sequences are used."""
        return len(self.sequences.frames) if self.first is None else int(self.first)


Source = GeneratedSource | FileSource

_make = jax.jit(make_sequences, static_argnames=("config", "count"))


def open_data(config: DataConfig, split: Split) -> Source:
    """The source that `config` names, a generator or a file; everything that cannot work is refused here."""
    if config.name in MOTIONS:
        return _generated(config, split, "digit_scale")
    if not config.name.endswith(".npz"):
        known = nearest(config.name, MOTIONS)
        raise UserError(f"unknown data {config.name!r}; {known} (a file of sequences must end in .npz)")
    return file_source(load_sequences(config.name), config, split)


def open_first(config: DataConfig, split: Split) -> Source:
    """The same with digits of first_scale, which must not be 0; a program compiled for one source takes the other."""
    return _generated(config, split, "first_scale")


def _generated(config: DataConfig, split: Split, size: Literal["digit_scale", "first_scale"]) -> GeneratedSource:
    """A generator with digits of the size that this setting says, in images that have room for either size."""
    if config.sequences:
        raise UserError(f"data.sequences is for files of sequences; of {config.name} there is no end, so leave it 0")
    check(config, "data.")
    digits = load_digits(config.digits, split)
    scales = [scale for scale in (config.digit_scale, config.first_scale) if scale]
    scaled = rescale(digits, getattr(config, size))
    scaled = widened(scaled, max(rescaled_side(digits, scale) for scale in scales))
    check_fits(scaled, config, size)
    return GeneratedSource(jax.tree.map(jnp.asarray, scaled), config)


def file_source(sequences: Sequences, config: DataConfig, split: Split) -> FileSource:
    """A source of the content of the file `config.name`, as `load_sequences` gives it."""
    _check_frames(sequences.frames, config)
    cut = _split(_cut(sequences, config.length), split, config.name)
    first = _first(len(cut.frames), config) if split == "train" and config.sequences else None
    return FileSource(jax.tree.map(jnp.asarray, cut), config.name, first)


def collect(source: Source, count: int, seed: int = 1) -> Sequences:
    """The first `count` of the fixed list as numpy arrays, with frames as bytes: a quarter of the floats' size."""
    _check_count(count)
    pieces = [
        jax.tree.map(np.asarray, to_bytes(source.fixed(min(CHUNK, count - start), seed, start)))
        for start in range(0, count, CHUNK)
    ]
    return jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)


def to_bytes(sequences: Sequences) -> Sequences:
    """The same with frames as uint8; bytes stay as they are."""
    frames = sequences.frames
    if frames.dtype == np.uint8:
        return sequences
    return sequences._replace(frames=np.asarray(jnp.clip(jnp.round(frames * 255.0), 0, 255).astype(jnp.uint8)))


def save_sequences(path: str | Path, sequences: Sequences) -> None:
    """Write an .npz file, all of it or nothing. `frames` may be floats in [0, 1] or bytes."""
    arrays: dict[str, Any] = {
        name: np.asarray(values) for name, values in to_bytes(sequences)._asdict().items() if values is not None
    }
    _check_arrays(arrays, str(path))
    try:
        with written_atomically(Path(path)) as file:
            np.savez_compressed(file, format_version=np.int32(FORMAT_VERSION), **arrays)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


def load_sequences(path: str | Path) -> Sequences:
    """Read an .npz file into numpy arrays, frames as bytes; nothing in it is run. Anything malformed is refused."""
    arrays = _read_arrays(Path(path).expanduser())
    version = arrays.pop("format_version", np.int32(FORMAT_VERSION))
    if version.shape != () or version.dtype.kind not in "iu" or version != FORMAT_VERSION:
        raise UserError(
            f"{path} has format {version}, this program reads {FORMAT_VERSION}; write it again with `sqair data`"
        )
    _check_arrays(arrays, str(path))
    frames, scene = arrays.pop("frames"), arrays.pop("scene", None)
    truth = {name: values.astype(np.int32 if name in INTEGERS else np.float32) for name, values in arrays.items()}
    return Sequences(frames, **truth, scene=scene)


def _read_arrays(path: Path) -> dict[str, ndarray]:
    """The arrays of an .npz file that we know; the rest of it is not read."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in KNOWN if name in archive.files}
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; make it with `sqair data --out {path.name}`") from error
    except IsADirectoryError as error:
        raise UserError(f"{path} is a folder, not an .npz file of sequences") from error
    except PermissionError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except BROKEN as error:
        raise UserError(f"{path} is not an intact .npz file of sequences; make it again") from error
    for name, values in arrays.items():
        if not isinstance(values, ndarray):  # numpy hands over members that are no arrays as they are
            raise UserError(f"`{name}` of {path} is not an array; make the file again")
    return arrays


def _check_arrays(arrays: Mapping[str, ndarray], path: str) -> None:
    """Refuse wrong shapes and types, and zero sequences."""
    if "frames" not in arrays:
        raise UserError(f"{path} has no array `frames`; a file of sequences needs it")
    frames = arrays["frames"]
    if frames.dtype != np.uint8 or frames.ndim not in (4, 5) or (frames.ndim == 5 and frames.shape[4] != 3):
        raise UserError(
            f"`frames` of {path} are {frames.dtype} {frames.shape}; they must be uint8 "
            "(sequences, frames, height, width), with a last axis of 3 for colour"
        )
    if 0 in frames.shape:
        raise UserError(f"{path} holds no sequences: `frames` are {frames.shape}")
    sizes = {"S": frames.shape[0], "T": frames.shape[1], "4": 4, "2": 2}
    for name, axes in TRUTH_AXES.items():
        if name in arrays:
            _check_truth(name, arrays[name], axes, sizes, path)
    if "scene" in arrays or "corners" in arrays:
        _check_scene(arrays, path)


def _check_scene(arrays: Mapping[str, ndarray], path: str) -> None:
    """Refuse an empty scene that does not fit the frames, or whose place is not known."""
    frames, scene = arrays["frames"], arrays.get("scene")
    wanted = (frames.shape[0], *frames.shape[2:])
    if scene is None or "corners" not in arrays or scene.dtype != np.uint8 or scene.shape != wanted:
        raise UserError(f"{path} must have both `corners` and `scene`, uint8 {wanted}, or neither; make it again")
    if not 0 <= arrays["corners"].min() <= arrays["corners"].max() < 2**16:
        raise UserError(f"`corners` of {path} must lie from 0 to {2**16 - 1}; make it again")


def _check_truth(name: str, values: ndarray, axes: str, sizes: dict[str, int], path: str) -> None:
    """Refuse truth that does not fit the frames; the first array with objects fixes their number in `sizes`."""
    kinds, kind = ("iu", "integers") if name in INTEGERS else ("f", "floats")
    if values.dtype.kind not in kinds:
        raise UserError(f"`{name}` of {path} are {values.dtype}; they must be {kind}")
    if values.ndim == len(axes) and "O" in axes:
        sizes.setdefault("O", values.shape[axes.index("O")])
    expected = tuple(sizes.get(axis, 0) for axis in axes)
    if values.shape != expected:
        raise UserError(f"`{name}` of {path} are {values.shape}; beside the other arrays they must be {expected}")


def _check_frames(frames: Any, config: DataConfig) -> None:
    """Refuse a file whose frames are too few or of another size than `config` says."""
    length, size = frames.shape[1], frames.shape[2:4]
    if length < config.length:
        raise UserError(
            f"{config.name} has sequences of {length} frames; set length to {length} or less, not {config.length}"
        )
    if size != config.size:
        raise UserError(
            f"{config.name} has frames of {size[0]}x{size[1]}; set size to that, not {config.size[0]}x{config.size[1]}"
        )


def _check_count(count: int) -> None:
    if count < 1:
        raise UserError(f"the number of sequences must be at least 1, not {count}")


def _cut(sequences: Sequences, length: int) -> Sequences:
    """The first `length` frames."""
    timed = {
        name: values[:, :length]
        for name, values in sequences._asdict().items()
        if values is not None and name not in TIMELESS
    }
    return sequences._replace(**timed)


def _split(sequences: Sequences, split: Split, path: str) -> Sequences:
    """The part of a file that serves as `split`."""
    total = len(sequences.frames)
    if split != "test" and total < 2:
        raise UserError(f"{path} has one sequence; training needs at least two, one of them for validation")
    held_out = -(-total // 10)
    part = {"train": slice(None, total - held_out), "validation": slice(total - held_out, None), "test": slice(None)}[
        split
    ]
    return jax.tree.map(lambda values: values[part], sequences)


def _first(available: int, config: DataConfig) -> Int[Array, ""]:
    """How many training sequences are wanted."""
    if config.sequences > available:
        raise UserError(
            f"{config.name} has {available} sequences for training; set data.sequences to no more, "
            f"not {config.sequences}, or 0 for all"
        )
    return jnp.array(config.sequences)


def _to_floats(sequences: Sequences) -> Sequences:
    """The same with frames in [0, 1], which bring along what is behind them, if that is known."""
    frames = jnp.asarray(sequences.frames).astype(jnp.float32) / 255.0
    if sequences.scene is None or sequences.corners is None:
        return sequences._replace(frames=frames)
    scenes = jnp.asarray(sequences.scene)
    frames, scenes = (
        pixels if pixels.shape[-1] == 3 and frames.ndim == 5 else pixels[..., None] for pixels in (frames, scenes)
    )
    frames = with_surroundings(frames, surroundings(scenes, sequences.corners))
    return sequences._replace(frames=frames, scene=None, corners=None)

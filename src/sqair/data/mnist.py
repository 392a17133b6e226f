"""The MNIST files: found in a folder, in ``$SQAIR_DATA/mnist`` or in the cache, else downloaded once.

Files may be gzipped (``train-images-idx3-ubyte.gz``) or plain (the same name without ``.gz``). What we download, and
every .gz file in ``$SQAIR_DATA/mnist`` or the cache, must have the checksum of the original; in a folder that the user
names, any well-formed file is accepted, so that other digits may take MNIST's place.
"""

import gzip
import hashlib
import http.client
import math
import os
import time
import urllib.request
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray

from sqair.config import UserError
from sqair.files import written_atomically

CHECKSUMS = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
"""sha256 of the four original files."""

MIRRORS = (
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
)
"""Where the files are downloaded from, in this order."""

ELSEWHERE = "give a folder with --digits DIR, or use --digits strokes, which needs no download"
SILENCE_S = 15.0
"""A mirror that sends nothing for so many seconds is given up."""
LONGEST_S = 300.0
"""A file that takes longer is given up."""
LARGEST = 64 * 2**20
"""No MNIST file is larger, in bytes."""


def load_mnist(
    part: Literal["train", "t10k"],
    folder: Path | None = None,
    mirrors: Sequence[str] = MIRRORS,
    checksums: dict[str, str] = CHECKSUMS,
) -> tuple[UInt8[ndarray, "n 28 28"], UInt8[ndarray, " n"]]:
    """Images and labels of the 60,000 training digits or the 10,000 test digits, from `folder` only if it is given."""
    image_file, label_file = f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"
    image_path = find_file(image_file, folder, mirrors, checksums)
    label_path = find_file(label_file, folder, mirrors, checksums)
    images, labels = read_idx(image_path, axes=3), read_idx(label_path, axes=1)
    if images.shape[1:] != (28, 28):
        raise UserError(f"{image_path} holds images of {images.shape[1]}x{images.shape[2]} pixels; MNIST's are 28x28")
    if len(images) != len(labels) or len(images) == 0:
        raise UserError(
            f"{image_path} holds {len(images)} images but {label_path.name} {len(labels)} labels; replace both"
        )
    if labels.max() > 9:
        raise UserError(f"{label_path} holds a label {labels.max()}; digits are 0 to 9")
    return images, labels


def find_file(
    name: str,
    folder: Path | None = None,
    mirrors: Sequence[str] = MIRRORS,
    checksums: dict[str, str] = CHECKSUMS,
) -> Path:
    """The path of the file called `name` or `name`.gz; downloaded into the cache if it is nowhere else."""
    if folder is not None:
        found = _in_folder(folder, name)
        if found is None:
            raise UserError(
                f"{folder} has no {name} or {name}.gz; name a folder with the four MNIST files, or use strokes"
            )
        return found
    for known in _known_folders():
        found = _in_folder(known, name)
        if found is not None:
            _verify(found, checksums)
            return found
    return _download(f"{name}.gz", cache_folder(), mirrors, checksums[f"{name}.gz"])


def cache_folder() -> Path:
    """Where downloaded files are kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "sqair" / "mnist"


def _known_folders() -> list[Path]:
    data = os.environ.get("SQAIR_DATA")
    return ([Path(data) / "mnist"] if data else []) + [cache_folder()]


def _in_folder(folder: Path, name: str) -> Path | None:
    paths = (folder / f"{name}.gz", folder / name)
    return next((path for path in paths if path.is_file()), None)


def _verify(path: Path, checksums: dict[str, str]) -> None:
    """Refuse a gzipped file that is not the original."""
    if path.name not in checksums:
        return
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != checksums[path.name]:
        raise UserError(f"{path} is damaged (wrong checksum); delete it to download it again, or {ELSEWHERE}")


def _download(name: str, folder: Path, mirrors: Sequence[str], checksum: str) -> Path:
    """Fetch one file from the first mirror that has it intact; it appears in `folder` complete or not at all."""
    reasons = []
    for mirror in mirrors:
        try:
            content = _fetch(mirror + name)
        except (OSError, ValueError, http.client.HTTPException) as error:
            reasons.append(str(getattr(error, "reason", error)) or type(error).__name__)
            continue
        if hashlib.sha256(content).hexdigest() != checksum:
            reasons.append("wrong checksum")
            continue
        try:
            with written_atomically(folder / name) as file:
                file.write(content)
        except OSError as error:
            raise UserError(f"cannot write {folder / name}: {error.strerror}; {ELSEWHERE}") from error
        return folder / name
    why = " ".join("; ".join(dict.fromkeys(reasons)).split())
    raise UserError(f"could not download MNIST's {name} ({why}); {ELSEWHERE}")


def _fetch(url: str) -> bytes:
    """The content of `url`, given up when it is too slow or too large."""
    deadline = time.monotonic() + LONGEST_S
    pieces, size = [], 0
    with urllib.request.urlopen(url, timeout=SILENCE_S) as response:
        while piece := response.read1(2**16):
            pieces.append(piece)
            size += len(piece)
            if size > LARGEST:
                raise OSError("the file is too large")
            if time.monotonic() > deadline:
                raise TimeoutError("the mirror is too slow")
    return b"".join(pieces)


def read_idx(path: Path, axes: int) -> UInt8[ndarray, "..."]:
    """The bytes of an idx file with so many axes; anything malformed is refused."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is truncated or not a gzip file; replace it, or {ELSEWHERE}") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; {ELSEWHERE}") from error
    start = 4 + 4 * axes
    if content[:4] != bytes([0, 0, 8, axes]) or len(content) < start:
        raise UserError(f"{path} is not an idx file of bytes with {axes} axes; replace it, or {ELSEWHERE}")
    shape = tuple(int(n) for n in np.frombuffer(content, ">u4", axes, 4))
    if len(content) - start != math.prod(shape):
        raise UserError(
            f"{path} is truncated or damaged: {len(content) - start} bytes of data, not {math.prod(shape)}; "
            f"replace it, or {ELSEWHERE}"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)

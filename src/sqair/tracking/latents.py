"""latents.npz: the latent variables of every object in every frame, written as they come in constant memory.

Arrays with one row for each object and frame: `frame` from 0, `id` as in tracks.csv, `what` (n, W) and `where` (n, 4),
as the model has them. `numpy.load` reads the file; it holds no objects of Python.
"""

import contextlib
import shutil
import tempfile
import zipfile
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
from numpy import ndarray

from sqair.config import FORMAT_VERSION

KINDS = {"frame": "<i8", "id": "<i8", "what": "<f4", "where": "<f4"}


class Latents:
    """Writes the file when the block ends well; until then rows wait in files without names."""

    def __init__(self, path: Path, what_size: int) -> None:
        self.path = path
        self.widths = {"frame": (), "id": (), "what": (what_size,), "where": (4,)}
        self.rows = 0
        self._stack = contextlib.ExitStack()
        self._files: dict[str, BinaryIO] = {}

    def __enter__(self) -> "Latents":
        for name in KINDS:
            file = tempfile.TemporaryFile(dir=self.path.parent)
            self._files[name] = self._stack.enter_context(file)
        return self

    def add(self, number: int, ids: ndarray, what: ndarray, where: ndarray) -> None:
        """The objects of a frame."""
        columns = {"frame": np.full(len(ids), number), "id": ids, "what": what, "where": where}
        for name, values in columns.items():
            self._files[name].write(np.ascontiguousarray(values, KINDS[name]).tobytes())
        self.rows += len(ids)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            if error is None:
                self._write()

    def _write(self) -> None:
        """All columns as one .npz file, copied piece by piece."""
        with zipfile.ZipFile(self.path, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as archive:
            with archive.open("format_version.npy", "w") as member:
                np.lib.format.write_array(member, np.int32(FORMAT_VERSION), allow_pickle=False)  # type: ignore
            for name, file in self._files.items():
                header = {"descr": KINDS[name], "fortran_order": False, "shape": (self.rows, *self.widths[name])}
                file.seek(0)
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array_header_1_0(member, header)  # type: ignore[arg-type]
                    shutil.copyfileobj(file, member)

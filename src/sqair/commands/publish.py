"""Results that appear in their folder all at once, or not at all."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from sqair.files import sync_folder as sync


@contextlib.contextmanager
def published(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """A hidden folder beside `folder`, whose files move there when the block ends well, and vanish when it does not.

    `names` are those of all files and folders that a command may write: what an earlier run left under them is
    removed, nothing else in the folder is touched. The last of them goes first and comes last: where it is, all are.
    """
    made = [path for path in folder.absolute().parents if not path.exists()]
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".part", dir=folder.parent))
    try:
        yield part
        for path in part.rglob("*"):
            sync(path)  # a name must not outlive a power cut that its content does not
        folder.mkdir(exist_ok=True)
        for name in reversed(names):
            remove(folder / name)
        for path in sorted(part.iterdir(), key=lambda each: each.name == names[-1]):
            path.rename(folder / path.name)
        sync(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        for path in made:  # those that hold results stay
            with contextlib.suppress(OSError):
                path.rmdir()


def remove(path: Path) -> None:
    """Delete a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

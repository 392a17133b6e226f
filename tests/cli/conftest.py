"""Commands run inside the test's process, in a folder of their own, so that start-up is paid once."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest


class Done(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


Sqair = Callable[..., Done]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, a terminal of fixed width, and no data of the user's."""
    monkeypatch.chdir(tmp_path)
    for name, value in {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "JAX_PLATFORMS": "cpu"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-cache"))
    monkeypatch.delenv("SQAIR_DATA", raising=False)
    return tmp_path


@pytest.fixture
def sqair(here: Path, capsys: pytest.CaptureFixture[str]) -> Sqair:
    """Run a command line: ``sqair("train", "tiny")``."""
    from sqair.cli import main

    def run(*words: str | Path) -> Done:
        capsys.readouterr()
        code = main([str(word) for word in words])
        printed = capsys.readouterr()
        return Done(code, printed.out, printed.err)

    return run


@pytest.fixture
def is_video() -> Callable[[Path, int], bool]:
    """Whether a file is H.264 that browsers play, with even sides and so many frames."""
    import av

    def check(path: Path, frames: int) -> bool:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            codec = stream.codec_context
            shown = sum(1 for _ in container.decode(stream))
            plays = (codec.name, codec.pix_fmt, shown) == ("h264", "yuv420p", frames)
            return plays and not (codec.width | codec.height) & 1

    return check


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file and folder below, with size and time of change."""
    stats = {str(path.relative_to(folder)): path.stat() for path in folder.rglob("*")}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}


@pytest.fixture
def refused(sqair: Sqair, here: Path) -> Callable[..., str]:
    """Run a command that must fail with one line on stderr, print nothing else and write nothing; returns that line."""

    def run(code: int, *words: str | Path) -> str:
        before = listing(here)
        done = sqair(*words, "--quiet")
        assert done.code == code, done.err
        assert done.out == ""
        assert listing(here) == before
        (line,) = done.err.splitlines()
        assert line.startswith("sqair")
        return line

    return run


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two untrained models, `tiny` and `wider`, and `large.npz`, whose frames fit neither."""
    import dataclasses

    import jax
    import numpy as np

    from sqair.config import DataConfig, ModelConfig
    from sqair.data import Sequences, save_sequences
    from sqair.settings import to_dict
    from sqair.training.checkpoint import build, save_model

    folder = tmp_path_factory.mktemp("models")
    data = DataConfig(digits="strokes", length=3, size=(16, 16), max_digits=1, digit_scale=0.4, speed=2.0)
    model = ModelConfig(image=(16, 16), glimpse=(6, 6), max_objects=2, what_size=4, width=8)
    for name, config in {"tiny": model, "wider": dataclasses.replace(model, width=9)}.items():
        save_model(folder / name, build(config, jax.random.key(0)), {"data": to_dict(data)})
    save_sequences(folder / "large.npz", Sequences(np.zeros((2, 3, 20, 20), np.uint8)))
    return folder


@pytest.fixture
def videos(here: Path) -> Path:
    """A folder of three clips and a bad one."""
    import numpy as np

    (here / "videos").mkdir()
    for number in range(3):
        np.save(here / "videos" / f"clip-{number}.npy", np.full((2, 16, 16), 40 * number, np.uint8))
    (here / "videos" / "bad.mp4").write_text("no video")
    return here / "videos"

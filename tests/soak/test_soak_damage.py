"""Bytes flipped or cut in each file of a run: a clear error or a fall-back, never a traceback or a wrong load."""

import contextlib
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from driver import preset as tiny_preset

from sqair.config import Preset, UserError
from sqair.training.checkpoint import load_model, named_arrays, read_card
from sqair.training.population import Population
from sqair.training.resume import check_resumable, load_state, newest, restore
from sqair.training.runs import read_metrics, read_run

TIMES = 1_000


@pytest.fixture(scope="module")
def preset(squares: Path) -> Preset:
    return tiny_preset(str(squares))


def damaged(content: bytes, chance: random.Random) -> bytes:
    """The content with up to 16 bytes in a row changed, or cut short."""
    if not content or chance.random() < 0.3:
        return content[: chance.randrange(max(len(content), 1))]
    start, count = chance.randrange(len(content)), chance.randint(1, 16)
    changed = bytes(byte ^ chance.randrange(1, 256) for byte in content[start : start + count])
    return content[:start] + changed + content[start + count :]


def arrays(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in named_arrays(tree).values()]


def same(left: list[np.ndarray], right: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(left, right, strict=True))


@pytest.fixture(scope="module")
def known(whole: Path, preset: Preset) -> dict[str, Any]:
    """What may be loaded from the intact run."""
    population = Population(preset)
    found = newest(whole)
    steps = sorted(int(folder.name) for folder in (whole / "checkpoints").iterdir())
    first = population.first()
    older = found._replace(folder=whole / f"checkpoints/{steps[0]:08d}")
    states = {
        steps[1]: arrays(load_state(found, population, first)),
        steps[0]: arrays(load_state(older, population, first)),
    }
    return {"first": first, "states": states, "model": arrays(load_model(whole)), "card": read_card(whole)}


@pytest.fixture
def files(whole: Path, tmp_path: Path) -> list[Path]:
    """The files of a copy of the run."""
    run = shutil.copytree(whole, tmp_path / "run")
    return sorted(path for path in run.rglob("*") if path.is_file())


def test_damage_is_seen(
    files: list[Path],
    known: dict[str, Any],
    preset: Preset,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    chance, told = random.Random(0), Counter[str]()
    for i in range(TIMES):
        path = files[i % len(files)]
        content = path.read_bytes()
        path.write_bytes(damaged(content, chance))
        try:
            told[look(path, tmp_path / "run", known, preset, content)] += 1
        finally:
            path.write_bytes(content)
    assert min(told[name] for name in ("refused", "older", "mended", "unharmed")) > TIMES // 50, told
    for name, times in (("damages", TIMES), ("files", len(files)), *told.items()):
        record_property(name.replace(" ", "_"), times)


@contextlib.contextmanager
def one_line() -> Iterator[list[str]]:
    """The refusal, if there is one; it has one line."""
    said: list[str] = []
    try:
        yield said
    except UserError as error:
        said.append(str(error))
    assert "\n" not in "".join(said)


def look(path: Path, run: Path, known: dict[str, Any], preset: Preset, content: bytes) -> str:
    """Load the model and resume, whatever is damaged, and compare with the intact run. `content` is the file's own."""
    read_run(run)
    read_metrics(run)
    with one_line() as said:
        card, model = read_card(run), load_model(run)
        assert same(arrays(model), known["model"])
        assert card["training"] == known["card"]["training"]
    assert not said or path.parent == run / "best", "only a damaged model is refused"
    found, harmed = check_resumable(run, preset), path.read_bytes() != content
    assert same(arrays(load_state(found, Population(preset), known["first"])), known["states"][found.notes.step])
    if path.parent == run:
        restore(run, found)
    if said:
        return "refused"
    if found.notes.step < max(known["states"]):
        return "older"
    if found.damaged:
        return "passed over"
    return "mended" if harmed and path.read_bytes() == content else "unharmed"


def test_a_run_is_restored_whatever_is_damaged(files: list[Path], whole: Path, preset: Preset, tmp_path: Path) -> None:
    """Resuming mends what it does not refuse: metrics are those of the checkpoint."""
    chance, run = random.Random(1), tmp_path / "run"
    for path in (run / "metrics.jsonl", run / "run.json", run / "preset.json"):
        path.write_bytes(damaged(path.read_bytes(), chance))
    restore(run, newest(run))
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert jax.tree.structure(read_metrics(run)) == jax.tree.structure(read_metrics(whole))

"""``sqair bench``: what it measures, what it prints and what it refuses. No test looks at how fast anything is."""

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest

from sqair.commands import bench
from sqair.config import PRESETS, Preset
from sqair.data import Digits, GeneratedSource
from sqair.evaluation import timing
from sqair.evaluation.timing import OutOfMemory, Timing, relate, search, time_batches, time_growth, with_size

KEYS = ["preset", "device", "jax", "python", "version", "commit", "command", "started", "digits"]
KEYS += [
    "precision",
    "N",
    "T",
    "K",
    "seed",
    "quick",
    "rows",
    "best_batch",
    "best_because",
    "out_of_memory",
    "growth",
    "seconds",
]
TINY = PRESETS["tiny"]


def taken(batch: int, per_second: float = 1.0, dropout: float = 0.9) -> Timing:
    """A made-up timing."""
    ms = 1000 * batch / per_second
    return Timing(batch, dropout, 1.0, ms, [ms], 1, per_second, None)


class Machine:
    """Stands for `time_step` on a machine whose throughput has a ceiling and whose memory ends at a batch."""

    def __init__(self, ceiling: float = math.inf, memory: float = math.inf, costly: float = math.inf) -> None:
        self.ceiling, self.memory, self.costly = ceiling, memory, costly
        self.asked: list[tuple[int, float]] = []

    def __call__(self, preset: Preset, source: object, effort: object) -> Timing:
        batch, dropout = preset.train.batch, preset.train.discovery_dropout
        self.asked.append((batch, dropout))
        if batch > (self.memory if dropout else self.costly):
            raise OutOfMemory
        return taken(batch, min(float(batch), self.ceiling), dropout)


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Timing]], None]:
    """Put another `time_step` in the place of the real one, and one blank digit in the place of many."""
    blank = Digits(np.zeros((1, 28, 28), np.uint8), np.zeros((1, 2), np.int32), np.zeros(1, np.int32))

    def replace(time_step: Callable[..., Timing]) -> None:
        monkeypatch.setattr(timing, "open_data", lambda config, split: GeneratedSource(blank, config))
        monkeypatch.setattr(timing, "time_step", time_step)

    return replace


def run_batches(batches: list[int], best: bool, preset: Preset = TINY) -> dict:
    return time_batches(preset, batches, best, timing.QUICK, lambda text: None)


def test_search_doubles_until_the_gain_is_gone() -> None:
    found, because = search(taken(32, 100), lambda batch: taken(batch, min(batch * 3.0, 300)))
    assert [timing.batch for timing in found] == [64, 128, 256]
    assert because == "sequences/s stopped growing at batch 256"


def test_best_batch_and_both_recipes(pretend) -> None:
    pretend(Machine(ceiling=500))
    numbers = run_batches([256, 32], True)
    assert (numbers["best_batch"], numbers["out_of_memory"]) == (512, [])
    assert numbers["best_because"] == "sequences/s stopped growing at batch 1024"
    rows = [(row["batch"], row["discovery_dropout"]) for row in numbers["rows"]]
    assert rows == [(32, 0.9), (32, 0.0), (256, 0.9), (256, 0.0), (512, 0.9), (512, 0.0), (1024, 0.9)]


def test_memory_that_ends_while_searching(pretend) -> None:
    pretend(Machine(memory=600, costly=100))
    numbers = run_batches([32], True)
    assert (numbers["best_batch"], numbers["best_because"]) == (512, "out of memory at batch 1024")
    assert [row["batch"] for row in numbers["rows"] if row["discovery_dropout"] == 0] == [32]


def test_memory_that_does_not_suffice_for_what_was_asked(pretend) -> None:
    pretend(machine := Machine(memory=40))
    numbers = run_batches([32, 256], True)
    assert (numbers["out_of_memory"], numbers["best_batch"]) == ([256], 32)
    assert (256, 0.0) not in machine.asked
    pretend(Machine(memory=1))
    numbers = run_batches([32], True)
    assert (numbers["rows"], numbers["best_batch"]) == ([], None)


def test_the_best_alone_begins_at_a_batch_of_its_own(pretend) -> None:
    pretend(machine := Machine(ceiling=1))
    numbers = run_batches([], True)
    assert machine.asked == [(32, 0.9), (64, 0.9), (32, 0.0)]
    assert numbers["best_batch"] == 32


def test_a_recipe_in_which_every_frame_discovers_is_timed_once(pretend) -> None:
    always = dataclasses.replace(TINY, train=dataclasses.replace(TINY.train, discovery_dropout=0.0))
    pretend(machine := Machine())
    run_batches([2], False, always)
    assert machine.asked == [(2, 0.0)]


@pytest.mark.parametrize("error", [MemoryError(), jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: 9 GiB")])
def test_what_means_out_of_memory(error: Exception) -> None:
    with pytest.raises(OutOfMemory), timing.memory_watched():
        raise error


def test_another_error_of_the_device_stays_one() -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"), timing.memory_watched():
        raise jax.errors.JaxRuntimeError("INTERNAL: no")


def test_growth_is_a_power_law() -> None:
    values = [1, 2, 3, 6]
    found = relate(values, [5.0 * value**0.7 for value in values], 3)
    assert found["exponent"] == pytest.approx(0.7, abs=1e-3)
    assert found["ratio"] == pytest.approx((np.array(values) / 3) ** 0.7, abs=1e-3)
    without = relate(values, [*(5.0 * value**0.7 for value in values[:3]), None], 3)
    assert without["ratio"][3] is None
    assert without["exponent"] == pytest.approx(0.7, abs=1e-3)


def test_growth_changes_one_size_at_a_time(pretend) -> None:
    asked = []

    def measure(preset: Preset, source, effort) -> Timing:
        sizes = preset.model.max_objects, preset.data.length, preset.train.particles
        assert source.config == preset.data
        asked.append(sizes)
        if sizes[2] == 20:
            raise OutOfMemory
        return taken(preset.train.batch, 1 / math.prod(sizes))

    pretend(measure)
    tables = time_growth(TINY, 4, timing.QUICK, lambda text: None, ends_only=True)
    assert asked == [
        (1, 6, 5),
        (2, 6, 5),
        (6, 6, 5),
        (2, 5, 5),
        (2, 6, 5),
        (2, 20, 5),
        (2, 6, 2),
        (2, 6, 5),
        (2, 6, 20),
    ]
    assert [table["knob"] for table in tables] == ["N", "T", "K"]
    assert [table["default"] for table in tables] == [2, 6, 5]
    assert [table["exponent"] for table in tables] == pytest.approx([1, 1, 1])
    assert tables[0]["ratio"] == [0.5, 1.0, 3.0]
    assert tables[2]["ratio"] == [0.4, 1.0, None]
    assert {table["batch"] for table in tables} == {4}


def test_a_model_without_slots_is_not_timed_with_more(pretend) -> None:
    pretend(Machine())
    tables = time_growth(PRESETS["vrnn-mlp"], 4, timing.QUICK, lambda text: None, ends_only=True)
    assert [table["knob"] for table in tables] == ["T", "K"]


def test_precision_is_the_presets_unless_it_is_given() -> None:
    assert bench.timed(TINY, "strokes", None).train == TINY.train
    other = bench.timed(TINY, "mnist", "bf16")
    assert (other.train.precision, other.data.digits) == ("bf16", "mnist")


def test_with_size() -> None:
    assert with_size(TINY, "N", 4).model.max_objects == 4
    assert with_size(TINY, "T", 4).data.length == 4
    assert with_size(TINY, "K", 4).train.particles == 4


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Preset:
    """`tiny` made smaller: AIR with one recipe, so that one program is compiled, and not the largest."""
    model = dataclasses.replace(TINY.model, kind="air", image=(16, 16), glimpse=(6, 6), what_size=4, width=8)
    data = dataclasses.replace(TINY.data, size=(16, 16), length=2, digit_scale=0.4, speed=2.0)
    train = dataclasses.replace(TINY.train, particles=2, discovery_dropout=0.0)
    preset = Preset(model, data, train)
    monkeypatch.setitem(PRESETS, "tiny", preset)
    return preset


def test_a_real_run(small: Preset, sqair, here: Path, monkeypatch) -> None:
    """One object on stdout, the same in a file, and steps that were really made."""
    steps = []

    def counted(state, source, key, config, count):
        steps.append((int(state.step), int(count)))
        assert config.first_length == small.data.length
        return train_steps(state, source, key, config, count)

    train_steps = timing.train_steps
    monkeypatch.setattr(timing, "train_steps", counted)
    done = sqair("bench", "--quick", "--batch", "2", "--json")
    assert done.code == 0, done.err
    assert done.out.count("\n") == 1
    numbers = json.loads(done.out)
    assert list(numbers) == KEYS
    assert numbers == json.loads((here / "runs/bench/tiny/bench.json").read_text())
    assert (numbers["preset"], numbers["device"], numbers["digits"]) == ("tiny", "cpu", "strokes")
    assert (numbers["N"], numbers["T"], numbers["K"]) == (2, 2, 2)
    assert (numbers["best_batch"], numbers["growth"]) == (None, None)
    (row,) = numbers["rows"]
    assert set(row) == set(Timing._fields)
    assert (row["batch"], row["peak_memory_mib"]) == (2, None)
    assert len(row["ms_per_step_all"]) == timing.QUICK.calls
    assert row["ms_per_step"] == sorted(row["ms_per_step_all"])[1]
    assert row["sequences_per_s"] == pytest.approx(2000 / row["ms_per_step"], rel=0.01)
    assert row["first_call_s"] > 0
    each = row["steps_per_call"]
    assert steps == [(0, 1), (1, 1), *((2 + each * call, each) for call in range(timing.QUICK.calls))]
    assert "absolute times mean little" in done.err
    assert done.err.splitlines()[-1] == "Results saved to runs/bench/tiny"


def test_text_for_a_person(sqair, pretend, here: Path) -> None:
    pretend(Machine(ceiling=500, memory=700))
    done = sqair("bench", "--quick", "--batch", "32", "1024", "best", "--grow", "--quiet", "--out", "mine")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "tiny on cpu: N = 2, T = 6, K = 5, tf32, digits strokes"
    assert lines[2].split("  ")[0] == "batch"
    assert lines[3].split() == ["32", "10%", "1.0", "1000.00", "32", "-"]
    assert lines[4].split()[:2] == ["32", "100%"]
    assert "out of memory at batch 1024" in lines
    assert "best batch: 512 (out of memory at batch 1024)" in lines
    assert "time relative to N = 2; the time grows as N^0.00" in lines
    assert lines[-1] == "Results saved to mine"
    assert json.loads((here / "mine/bench.json").read_text())["best_batch"] == 512


def test_defaults_depend_on_the_machine_and_the_hurry(sqair, pretend) -> None:
    pretend(machine := Machine(ceiling=1))
    for words, preset, batches in (
        ((), "tiny", {32, 256, 512}),
        (("--quick",), "tiny", {32}),
        (("--preset", "air-mlp", "--batch", "3"), "air-mlp", {3}),
    ):
        machine.asked.clear()
        done = sqair("bench", *words, "--json")
        assert json.loads(done.out)["preset"] == preset, done.err
        assert {batch for batch, _ in machine.asked} == batches


def test_what_is_refused(refused, here: Path) -> None:
    assert refused(2, "bench", "--preset", "tny") == "sqair bench: unknown preset 'tny'; did you mean 'tiny'?"
    for word in ("0", "-3", "1.5", "worst"):
        line = refused(1, "bench", f"--batch={word}")
        assert line == f"sqair bench: --batch takes numbers of at least 1 and the word best, not {word!r}"
    assert "no digits 'none'" in refused(1, "bench", "--digits", "none")
    (here / "taken").mkdir()
    (here / "taken" / "notes.txt").write_text("mine")
    assert "--overwrite" in refused(2, "bench", "--out", "taken")
    (here / "file").write_text("mine")
    assert "choose another --out" in refused(1, "bench", "--out", "file/x")


def test_settings_can_be_kept(sqair, here: Path) -> None:
    printed = sqair("bench", "--batch", "8", "best", "--grow", "--print-config").out
    (here / "mine.toml").write_text(printed)
    again = sqair("bench", "--config", "mine.toml", "--print-config").out
    assert again.splitlines()[1:] == printed.splitlines()[1:]
    assert bench.Bench.parse(["--batch", "8", "best"]).batch == ("8", "best")


def test_the_cache_of_programs_is_left_as_it_was() -> None:
    def enabled() -> bool:
        return jax.config.jax_enable_compilation_cache  # pyright: ignore[reportAttributeAccessIssue]

    before = enabled()
    with bench.compiled_afresh():
        assert not enabled()
    assert enabled() is before

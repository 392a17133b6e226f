"""docs/results.md says what the records say, and nothing else; what learning and speed write is what the page reads."""

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from benchmarks import ablations, learning, population, record, results, sections, step_time
from sqair.config import UserError, preset
from sqair.data import FileSource, Sequences
from sqair.evaluation import timing
from sqair.evaluation.timing import Timing
from sqair.training.checkpoint import build, save_model
from sqair.training.loop import Progress, Stopped

H200 = {"date": "2030-01-02", "device": "gpu: NVIDIA H200", "code": "abc, sources 0123", "command": "python -m x"}


def test_the_page_is_up_to_date() -> None:
    assert results.PAGE.read_text() == results.page(), "run `python -m benchmarks.results`"


def cells(page: str, first: str) -> list[list[str]]:
    """Rows of tables whose first cell is `first`."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    return [row for row in rows if row[0] == first]


class Folder:
    """Records and weights of the test's own."""

    def __init__(self, path: Path) -> None:
        self.records, self.weights = path / "records", path / "weights"
        self.records.mkdir()
        self.weights.mkdir()

    def add(self, name: str, results: dict[str, Any], **about: str) -> None:
        content = H200 | about | {"results": results}
        (self.records / f"{content['date']}_{name}.json").write_text(json.dumps(content))

    def page(self) -> str:
        return results.page(self.records, self.weights)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_without_records_nothing_is_claimed(folder: Folder) -> None:
    page = folder.page()
    for title in ("Speed", "Growth", "Learning", "Seeds", "Prediction", "Pedestrians", "Shipped models"):
        text = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
        assert "not yet measured" in text
    lines = page.partition("## Aims\n")[2].partition("\n## ")[0].splitlines()
    aims = [line for line in lines if line.startswith("|")][2:]
    assert len(aims) == 15
    assert all(line.endswith("| not yet measured |  |") for line in aims)
    assert cells(page, "SQAIR-pytorch, the only public port") == [
        ["SQAIR-pytorch, the only public port", "32", "595", "54", "-"]
    ]


def speed_results(*rows: Timing, growth: list[dict[str, Any]] | None = None, **more: str) -> dict[str, Any]:
    about = {"kind": "speed", "preset": "sqair-mlp", "N": 3, "T": 10, "K": 5, **more}
    return {**about, "rows": [r._asdict() for r in rows], "growth": growth}


def timed(batch: int, ms: float, dropout: float = 0.9, peak: float | None = None) -> Timing:
    return Timing(batch, dropout, 21.5, ms, [ms], 10, round(1000 * batch / ms, 1), peak)


def test_speed_and_its_aims(folder: Folder) -> None:
    grown = {"knob": "N", "batch": 32, "default": 3, "values": [1, 3, 6], "ratio": [0.5, 1.0, None], "exponent": 0.631}
    folder.add("old", speed_results(timed(32, 9.0)), date="2029-01-01")
    folder.add("cpu", speed_results(timed(32, 1.0)), device="cpu: cpu", date="2031-01-01")
    rows = timed(32, 11.5, peak=900.0), timed(32, 20.0, 0.0), timed(1024, 40.0), timed(1024, 4.0, 0.0)
    folder.add("new", speed_results(*rows, growth=[grown]))
    page = folder.page()
    link = "[2030-01-02](../benchmarks/records/2030-01-02_new.json)"
    found = [row for row in cells(page, "sqair-mlp") if row[-1] == link]
    assert found[0] == ["sqair-mlp", H200["device"], "3/10/5", "32", "10%", "11.50", "2783", "21.50", "900.0", link]
    assert [row[4] for row in found[:4]] == ["10%", "100%", "10%", "100%"]
    assert found[4] == ["sqair-mlp", "32", "N (usually 3)", "1: 0.50, 3: 1.00, 6: -", "0.6310", link]
    assert cells(page, "ms per train step, batch 32, default recipe")[0][1:] == ["<= 12", "11.50", "yes"]
    every = cells(page, "ms per train step, batch 32, every frame may discover")
    assert every[0][1:] == ["<= 12", "20.00", "no"]
    assert cells(page, "sequences/s at the best batch")[0][1:] == [">= 25,000", "25,600.0", "yes"]


def test_speed_in_another_precision(folder: Folder) -> None:
    """The step is held against its aim in the default precision, sequences/s in the best."""
    folder.add("usual", speed_results(timed(32, 11.5), timed(1024, 100.0), precision="tf32"))
    folder.add("halved", speed_results(timed(32, 8.0), timed(1024, 40.0), precision="bf16"), date="2030-01-03")
    page = folder.page()
    assert cells(page, "ms per train step, batch 32, default recipe")[0][2] == "11.50"
    assert cells(page, "sequences/s at the best batch")[0][2:] == ["25,600.0", "yes"]
    assert [row[5] for row in cells(page, "sqair-mlp, bf16")] == ["8.00", "40.00"]


def test_a_later_record_of_one_kind_of_step_leaves_the_other(folder: Folder) -> None:
    folder.add("both", speed_results(timed(32, 11.5), timed(32, 20.0, 0.0)))
    folder.add("every", speed_results(timed(32, 13.0, 0.0)), date="2030-01-03")
    page = folder.page()
    assert cells(page, "ms per train step, batch 32, default recipe")[0][2] == "11.50"
    assert cells(page, "ms per train step, batch 32, every frame may discover")[0][2] == "13.00"


def learning_results(*rows: dict[str, Any], scale: float = 1.0) -> dict[str, Any]:
    data = {"name": "moving-mnist", "digits": "mnist", "digit_scale": scale}
    return {"kind": "learning", "preset": "sqair-mlp", "flags": "", "minutes": 10.0, "setting": {"data": data}} | {
        "rows": list(rows)
    }


def seed_row(seed: int, to_98: float | None, counting: float = 0.99, **more: Any) -> dict[str, Any]:
    row = learning.new_row(seed) | {"steps": 9, "minutes": 9.5, "minutes_to_90": 2.0, "minutes_to_98": to_98}
    look = {"step": 9, "minutes": 9.5, "counting": counting, "rediscoveries_per_frame": 0.001}
    return row | {"outcome": "all steps", "first_step_s": 30.0, "curve": [look]} | more


def test_every_seed_counts(folder: Folder) -> None:
    """Seeds of several records by the same code are one group; a failed one and one that was killed stay in."""
    failed = seed_row(2, None, outcome="failed: it diverged", curve=[], minutes_to_90=None)
    folder.add("first", learning_results(seed_row(0, 4.0), seed_row(1, 6.0), failed))
    folder.add("second", learning_results(seed_row(3, None), learning.new_row(4)))
    folder.add("elsewhere", learning_results(seed_row(0, 1.0)), code="another")
    folder.add(
        "smaller", learning_results(seed_row(0, 1.0, 0.96), seed_row(1, 1.0, 0.98), scale=0.7), date="2030-02-01"
    )
    page = folder.page()
    assert "code abc, sources 0123: median of 5 seeds to .9 and .98: 2.00 minutes and never." in page
    assert "code another: median of 1 seeds to .9 and .98: 2.00 minutes and 1.00 minutes." in page
    (row,) = cells(page, "2")
    assert row[1:5] == ["not", "not", "-", "-"]
    assert row[8] == "failed: it diverged"
    assert cells(page, "4")[0][8] == "unfinished"
    (small,) = cells(page, "counting with digits 30% smaller, lowest of seeds")
    assert small[2:] == ["0.9600 (2 seeds, highest 0.9800)", "no"]


def test_aims_of_learning(folder: Folder) -> None:
    folder.add("some", learning_results(*(seed_row(seed, 4.0 + seed) for seed in range(9)), seed_row(9, None)))
    page = folder.page()
    assert cells(page, "minutes to counting .98, median of seeds")[0][1:] == ["<= 10", "8.50 (10 seeds)", "yes"]
    folder.add("worse", learning_results(seed_row(0, None)), date="2030-03-01", code="newer")
    assert cells(folder.page(), "minutes to counting .98, median of seeds")[0][2:] == ["never (1 seeds)", "no"]


def test_every_member_counts(folder: Folder) -> None:
    """A member that counts but discovers twice has not reached the goal; the newest population decides the aim."""

    def results(*members: tuple[float, float], scale: float = 1.0, kind: str = "sqair") -> dict[str, Any]:
        names = ("counting", "rediscoveries_per_frame")
        rows = [
            {"seed": i, "step": 60, "log_p": 6300.5, "validation_bound": 600.0 - i} | dict(zip(names, m, strict=True))
            for i, m in enumerate(members)
        ]
        train = {"batch": 32, "learning_rate": 6e-4, "sweep": []}
        setting = {"train": train, "data": {"digit_scale": scale}, "model": {"kind": kind, "networks": "mlp"}}
        return {"kind": "population", "sequences": 10_000, "particles": 5, "setting": setting, "rows": rows}

    folder.add("old", results((0.99, 0.0)), date="2029-01-01")
    folder.add("new", results((0.98, 0.01), (0.979, 0.0), (0.99, 0.011), (0.995, 0.001)))
    folder.add("other", results((0.1, 0.0), kind="air"), date="2030-04-01")
    folder.add("small", results((0.98, 0.0), (0.7, 0.0), scale=0.7), date="2030-05-01")
    tried = results((0.2, 0.0), scale=0.7)
    tried["setting"]["train"] |= {"presence_delay": 300, "discovery_dropout": 0.9}
    tried["setting"]["model"] |= {"discovery_bias": 0.0}
    folder.add("tried", tried, date="2030-06-01")  # not as everybody trains, and so without a say in the aims
    page = folder.page()
    assert "**1 seeds**, digits of 0.7, discovery_bias=0, presence_delay=300, batch 32" in page
    assert "**4 seeds**, digits of 1, batch 32, learning rate 0.0006, on gpu: NVIDIA H200: 2 reached the goal." in page
    assert cells(page, "3")[0][1:6] == ["60", "0.9950", "-", "0.0010", "6,300.5"]
    assert cells(page, "share of seeds that reach .98")[0][2:] == ["0.5000 (4 seeds)", "no"]
    (small,) = cells(page, "counting with digits 30% smaller, lowest of seeds")
    assert small[2:] == ["0.7000 (2 seeds, highest 0.9800)", "no"]
    (best,) = cells(page, "counting with digits 30% smaller, the seed with the best validation bound")
    assert best[2:] == ["0.9800 (of 2)", "yes"]


def test_a_population_is_evaluated(folder: Folder, tmp_path: Path, monkeypatch, capsys) -> None:
    """Members in their order, with their seeds, and the run's settings."""
    tiny = preset("tiny")
    for member in range(2):
        card = {"step": 10 + member, "train": {"seed": 5 + member}, "validation_bound": 500.0}
        save_model(tmp_path / "run" / "members" / str(member), build(tiny.model, jax.random.key(member)), card)
    monkeypatch.setattr(population, "newest", lambda run: SimpleNamespace(notes=SimpleNamespace(preset=tiny)))
    words = ["--sequences", "3", "--particles", "2", "--record", "x", "--folder", str(folder.records)]
    monkeypatch.setattr(sys, "argv", ["population", str(tmp_path / "run"), *words])
    population.main()
    assert " of 2 reached counting 0.98" in capsys.readouterr().out
    rows = [cells(folder.page(), seed)[0] for seed in ("5", "6")]
    assert [row[1] for row in rows] == ["10", "11"]
    assert rows[0][2] != rows[1][2] or rows[0][5] != rows[1][5]


def ablated(name: str, ended: str, *countings: float) -> dict[str, Any]:
    """An ablation.json, but for what the record does not need."""
    rows = [
        {"seed": seed, "counting": counting, "counting_weighted": counting, "rediscoveries_per_frame": 0.001 * seed}
        | {"id_switches": 10 + seed, "log_p": 6300.0 + seed}
        for seed, counting in enumerate(countings)
    ]
    about = {"command": f"sqair ablate {name}", "commit": "abc", "device": "NVIDIA H200", "jax": "0.11", "ended": ended}
    settings = {"train": {"steps": 5000}, "data": {"digits": "/data/of/somebody/mnist"}}
    return {
        "name": name,
        **about,
        "settings": settings,
        "minutes": 4.5,
        "sequences": 500,
        "particles": 50,
        "rows": rows,
    }


def test_ablations_are_gathered_with_every_seed(folder: Folder, tmp_path: Path, monkeypatch, capsys) -> None:
    """Of one that was run twice the newer counts; what has not been run is called open."""
    for place, found in {
        "a/default": ablated("default", "2030-01-02T10", 0.99, 0.98, 0.97),
        "a/no-relation": ablated("no-relation", "2030-01-02T12", 0.66, 0.98, 0.99),
        "b/default": ablated("default", "2030-01-02T11", 0.99, 0.5, 0.98),
    }.items():
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "ablation.json").write_text(json.dumps(found))
    arguments = [str(tmp_path / "a"), str(tmp_path / "b"), "--record", "ablations", "--folder", str(folder.records)]
    monkeypatch.setattr(sys, "argv", ["ablations", *arguments])
    ablations.main()
    assert "| default     | 3     | 0.9800 (0.5000)" in capsys.readouterr().out
    written = next(folder.records.glob("*_ablations.json")).read_text()
    assert json.loads(written)["device"] == "NVIDIA H200"
    assert "somebody" not in written
    page = folder.page()
    row = cells(page, "no-relation")[0]
    assert row[2:8] == [
        "3 x 5,000",
        "0.9800 (0.6600)",
        "0.9800 (0.6600)",
        "0.0010 (0.0020)",
        "11.0 (12.0)",
        "6301.0 (6300.0)",
    ]
    assert "Open, each to be run by its name: no-proposal-glimpse," in page


def predicted(model: str, first: float, *missing: str) -> dict[str, Any]:
    """Errors that grow by 1 per horizon."""
    row: dict[str, Any] = {"model": model, "horizons": list(range(1, 11))}
    row |= {} if model.startswith("perfect") else {"sequences": 200}
    for place, name in enumerate(("position", "constant_velocity", "pixel", "pixel_mean")):
        values = [first + place / 10 + h for h in range(10)]
        row |= {name: None if name in missing else values, f"{name}_se": None if name in missing else [0.5] * 10}
    return row


def test_prediction_beside_what_could_be_reached(folder: Folder) -> None:
    """Horizons 1, 3, 5 and 10; who has no positions has no row of them; of two records the newer counts."""
    no_boxes = ("position", "constant_velocity")
    models = predicted("sqair-mlp", 2.0), predicted("vrnn-mlp", 3.0, *no_boxes), predicted("vrnn-conv", 9.0, *no_boxes)
    folder.add("prediction", {"kind": "prediction", "rows": list(models)})
    newer = {"kind": "prediction", "rows": [predicted("vrnn-conv", 4.0, *no_boxes)]}
    folder.add("prediction_again", newer, date="2030-01-03")
    rows = [predicted("perfect", 1.0), predicted("perfect, blurred", 0.0, *no_boxes)]
    folder.add("oracle", {"kind": "oracle", "rows": rows, "sequences": 300})
    text = folder.page().partition("## Prediction\n")[2].partition("\n## ")[0]
    link = "[2030-01-02](../benchmarks/records/2030-01-02_prediction.json)"
    assert cells(text, "horizon") == [["horizon", "1", "3", "5", "10", "sequences", "record"]] * 3
    position, pixel, mean = cells(text, "sqair-mlp")
    numbers = [f"{number} ± 0.5000" for number in ("2.00", "4.00", "6.00", "11.00")]
    assert position == ["sqair-mlp", *numbers, "200", link]
    assert [pixel[1], mean[1]] == ["2.20 ± 0.5000", "2.30 ± 0.5000"]
    (rival,) = cells(text, "sqair-mlp: constant velocity")
    assert rival[1] == "2.10 ± 0.5000"
    assert [len(cells(text, name)) for name in ("vrnn-mlp", "perfect", "perfect, blurred")] == [2, 3, 2]
    assert [row[1] for row in cells(text, "vrnn-conv")] == ["4.20 ± 0.5000", "4.30 ± 0.5000"]
    assert [row[5] for row in cells(text, "perfect: constant velocity")] == ["300"]


def test_nothing_to_gather(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["ablations", str(tmp_path)])
    with pytest.raises(UserError, match="sqair ablate NAME"):
        ablations.main()


def test_shipped_models(folder: Folder) -> None:
    card = {"training": {"step": 7, "data": {"name": "moving-mnist", "digits": "mnist"}}}
    numbers = {"sequences": 10_000, "particles": 1000, "log_p": 6700.0, "kl_weighted": 170.0, "counting": 0.991}
    for name in ("sqair-mlp", "sqair-strokes"):
        (folder.weights / name).mkdir()
        (folder.weights / name / "config.json").write_text(json.dumps(card))
    folder.add("sqair_mlp", {"evaluation": numbers | {"log_p": 1.0}}, date="2029-01-01")
    folder.add("sqair_mlp", {"evaluation": numbers})
    page = folder.page()
    (row,) = cells(page, "sqair-mlp")
    assert row[1:7] == ["moving-mnist of mnist", "7", "0.0", "10000", "1000", "6,700.0"]
    assert row[-1].endswith("2030-01-02_sqair_mlp.json)")
    assert cells(page, "sqair-strokes")[0][-1] == "not yet measured"
    assert cells(page, "shipped sqair-mlp: log_p")[0][2:] == ["6,700.0 (10000 sequences, K = 1000)", "yes"]
    assert cells(page, "shipped sqair-mlp: kl_weighted")[0][3] == "no"
    assert cells(page, "shipped sqair-mlp: counting_weighted")[0][2] == "not yet measured"
    (folder.weights / "sqair-mlp" / "config.json").write_text(json.dumps(card | {"evaluation": {"log_p": 3.0}}))
    assert cells(folder.page(), "sqair-mlp")[0][-1] == "[card](../src/sqair/weights/sqair-mlp/config.json)"


def test_cells() -> None:
    assert sections.shown("a|b\nc") == "a\\|b c"
    assert [sections.shown(value) for value in (None, 3, 0.5, 12.345, 1234.5, math.inf)] == [
        *("-", "3", "0.5000", "12.35", "1,234.5", "never")
    ]


# --- what is written


def test_a_record_names_code_and_command_but_no_machine(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["x", "--digits", str(tmp_path / "mnist"), "--seeds", "0"])
    path = record.write_record("some", {"value": float("nan")}, tmp_path / "new")
    content = json.loads(path.read_text())
    assert path.name == f"{content['date']}_some.json"
    assert content["command"].endswith(" --digits mnist --seeds 0")
    assert content["code"].endswith(f", sources {record.source_hash()}")
    assert content["results"] == {"value": None}
    assert {"date", "time", "device", "python", "jax", "code", "command"} < set(content)


def test_step_time_writes_what_the_page_reads(folder: Folder, monkeypatch, capsys) -> None:
    monkeypatch.setattr(
        timing, "open_data", lambda config, split: FileSource(Sequences(np.zeros((2, 6, 8, 8), np.uint8)), "x")
    )
    monkeypatch.setattr(timing, "time_step", lambda preset, *rest: timed(preset.train.batch, 15.0 * preset.train.batch))
    words = ["--preset", "tiny", "--batch", "2", "best", "--grow", "--quick", "--record", "x"]
    monkeypatch.setattr(sys, "argv", ["step_time", *words, "--folder", str(folder.records)])
    step_time.main()
    assert "Record saved to" in capsys.readouterr().out
    first, *_, growth = cells(folder.page(), "tiny")
    assert first[2:7] == ["2/6/5", "2", "10%", "30.00", "67"]
    assert growth[2] == "K (usually 5)"


def looks(*counting: float, rediscoveries: float = 0.001) -> list[dict[str, Any]]:
    return [
        dict.fromkeys(learning.SHOWN, 0.5) | {"counting": c, "rediscoveries_per_frame": rediscoveries} for c in counting
    ]


def test_goals_need_few_rediscoveries_and_keep_their_first_minute() -> None:
    row = learning.new_row(0)
    seen = [*looks(0.99, rediscoveries=0.02), *looks(0.95, 0.979, 0.98, 0.5, 0.99)]
    for minute, look in enumerate(seen):
        row |= {"minutes": float(minute), "steps": minute}
        learning.note(row, look)
    assert (row["minutes_to_90"], row["minutes_to_98"], len(row["curve"])) == (1.0, 3.0, 6)


def test_median_with_seeds_that_never_got_there() -> None:
    assert learning.middle([1.0, None, 3.0]) == 3.0
    assert learning.middle([1.0, None]) is None
    assert learning.middle([1.0, 2.0]) == 1.5


class Clock:
    """Time that passes only when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


def run_learning(monkeypatch, folder: Folder, scores: dict[int, list[float]], *words: str) -> dict[str, Any]:
    """`benchmarks.learning` with training that takes 10 s a step and looks that take 60 s and see `scores`."""
    clock, seen = Clock(), []

    def train(setting, out, *, quiet, callbacks):
        for step in range(1, setting.train.steps + 1):
            clock.now += 10.0
            for callback in callbacks:
                callback(Progress(step, setting.train.seed, None, [], out))  # type: ignore[arg-type]

    def evaluate(model: int, source, **_: Any) -> dict[str, Any]:
        assert source == "validation"
        clock.now += 60.0
        counting = scores[model][seen.count(model)]
        seen.append(model)
        if math.isnan(counting):
            raise learning.UserError("it diverged")
        if counting < 0:
            raise Stopped(143, Path())
        return looks(counting)[0]

    for name, stand_in in {"train": train, "evaluate": evaluate, "time": clock}.items():
        monkeypatch.setattr(learning, name, stand_in)
    monkeypatch.setattr(learning, "open_data", lambda config, split: split)
    flags = ["--preset", "tiny", "--record", "x", "--folder", str(folder.records), "--every", "20", *words]
    monkeypatch.setattr(sys, "argv", ["learning", *flags])
    try:
        learning.main()
    finally:
        (path,) = folder.records.iterdir()
        content = json.loads(path.read_text())["results"]
    return content


def test_learning_times_training_and_not_our_looks(folder: Folder, monkeypatch, capsys) -> None:
    scores = {0: [0.5, 0.9, 0.98], 1: [0.5, 0.6, 0.7], 2: [0.9, math.nan]}
    found = run_learning(monkeypatch, folder, scores, "--steps", "6", "--seeds", "0", "1", "2")
    assert [row["outcome"] for row in found["rows"]] == ["reached", "all steps", "failed: it diverged"]
    first, second, _ = found["rows"]
    assert first["first_step_s"] == 10.0
    assert [look["minutes"] for look in first["curve"]] == pytest.approx([1 / 3, 2 / 3, 1.0], abs=1e-3)
    assert (first["minutes_to_90"], first["minutes_to_98"]) == pytest.approx((2 / 3, 1.0), abs=1e-3)
    assert (second["minutes_to_98"], second["steps"], second["looking_minutes"]) == (None, 6, 3.0)
    assert (found["kind"], found["flags"], found["setting"]["train"]["steps"]) == ("learning", "--steps 6", 6)
    assert "counting 0.98: median of 3 seeds None minutes" in capsys.readouterr().out
    assert "median of 3 seeds to .9 and .98: 0.67 minutes and never." in folder.page()


@pytest.mark.parametrize("flags", [("--members", "2"), ("--train.members", "2"), ("--sweep", "learning_rate=1,2")])
def test_learning_trains_every_seed_alone(monkeypatch, capsys, flags: tuple[str, str]) -> None:
    monkeypatch.setattr(sys, "argv", ["learning", "--preset", "tiny", *flags])
    with pytest.raises(SystemExit):
        learning.parse()
    assert "give --seeds instead of --members" in capsys.readouterr().err


def test_full_goes_on(folder: Folder, monkeypatch) -> None:
    (row,) = run_learning(monkeypatch, folder, {0: [0.98, 0.99, 0.99]}, "--steps", "6", "--full")["rows"]
    assert (row["outcome"], row["steps"], len(row["curve"])) == ("all steps", 6, 3)


def test_a_run_that_is_stopped_leaves_its_record(folder: Folder, monkeypatch) -> None:
    with pytest.raises(Stopped):
        run_learning(monkeypatch, folder, {0: [0.98], 1: [0.5, -1.0]}, "--steps", "6", "--seeds", "0", "1", "2")
    (path,) = folder.records.iterdir()
    rows = json.loads(path.read_text())["results"]["rows"]
    assert [row["outcome"] for row in rows] == ["reached", "interrupted"]
    assert len(rows[1]["curve"]) == 1


def test_minutes_are_the_steps_that_sqair_train_would_make(folder: Folder, monkeypatch) -> None:
    def steps_within(setting, recipe, seconds: float) -> int:
        assert (recipe(9).steps, seconds) == (9, 90.0)
        return 2

    monkeypatch.setattr(learning, "steps_within", steps_within)
    found = run_learning(monkeypatch, folder, {0: [0.5, 0.5]}, "--minutes", "1.5", "--digits", "strokes")
    assert (found["minutes"], found["setting"]["train"]["steps"], found["rows"][0]["steps"]) == (1.5, 2, 2)

"""The pages of trainings and evaluations, and `sqair report`."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sqair.cli import main
from sqair.config import UserError
from sqair.report import evaluate_page, remake, train_page
from sqair.report.document import read_blocks
from sqair.report.evaluation import FACTS, MEANINGS
from sqair.report.training import limits


def lines(members: int) -> list[dict[str, Any]]:
    """Three evaluations; the bound of member i is i above that of member 0."""
    found = []
    for step in (10, 20, 30):
        for i in range(members):
            who = {"member": i} if members > 1 else {}
            found.append(
                {"step": step, **who, "validation_bound": step + float(i), "train_bound": None, "seconds": 90.0}
            )
    return found


def make_run(folder: Path, members: int = 1) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines(members)))
    event = {"step": 20, "member": 0, "failure": "ghosts", "action": "warned", "seed": 0, "donor": None}
    run = {"command": "sqair train tiny", "alarms": [event], "started": "2026-01-02T03:04:05+00:00", "outcome": "done"}
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "preset.json").write_text(json.dumps({"model": {"image": [8, 8]}, "train": {"steps": 30}}))
    return folder


def head_of(path: Path) -> dict[str, Any]:
    return json.loads(next(read_blocks(path))[1])


def test_curves_of_one_model(tmp_path: Path) -> None:
    head = head_of(train_page(make_run(tmp_path)))
    bound = head["charts"][0]
    assert [(each["field"], each["points"]) for each in bound["series"]] == [
        ("validation", [[10, 10.0], [20, 20.0], [30, 30.0]]),
        ("training", []),
    ]
    assert bound["members"] == []
    assert ["minutes", "1.5"] in head["facts"]
    assert ["started", "2026-01-02 03:04 UTC"] in head["facts"]
    assert head["alarms"] == [{"step": 20, "text": "step 20: this run collapsed (ghosts); warned"}]
    assert head["settings"] == [["model.image", "[8, 8]"], ["train.steps", "30"]]


def test_the_best_member_is_bold(tmp_path: Path) -> None:
    head = head_of(train_page(make_run(tmp_path, members=3)))
    series = head["charts"][0]["series"]
    assert {each["member"] for each in series if each["bold"]} == {2}
    assert len({each["colour"] for each in series}) == 3
    assert ["best", "member 2"] in head["facts"]
    assert head["alarms"][0]["text"].startswith("step 20: member 0 collapsed")


def test_pictures_come_in_the_order_of_steps(tmp_path: Path) -> None:
    make_run(tmp_path)
    for name in ("reconstructions/step-999999.png", "reconstructions/step-1000000.png", "failures/<b>.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(np.zeros((2, 2), np.uint8)).save(tmp_path / name)
    head = head_of(train_page(tmp_path))
    assert [picture["name"] for picture in head["pictures"]] == ["step-999999", "step-1000000"]
    assert head["pictures"][0]["address"].startswith("data:image/png;base64,iVBOR")
    assert [picture["name"] for picture in head["failures"]] == ["<b>"]


def test_a_damaged_run_still_has_a_page(tmp_path: Path) -> None:
    make_run(tmp_path)
    for name in ("run.json", "preset.json"):
        (tmp_path / name).write_text("{")
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 40, "valid')
    head = head_of(train_page(tmp_path))
    assert head["settings"] == []
    assert ["steps", "30"] in head["facts"]


def test_a_run_without_evaluations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no evaluation yet"):
        train_page(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_limits_show_most_values() -> None:
    low, high = limits([-1e6, *np.linspace(0, 10, 39)]) or (0, 0)
    assert -30 < low < 0
    assert 10 < high < 15
    assert limits([1.0]) is None
    assert limits([2.0, 2.0]) == (1.5, 2.5)


def test_numbers_of_an_evaluation_and_what_they_mean(tmp_path: Path) -> None:
    results = {"model": "<b>m</b>", "sequences": 1000, "log_p": -1234.5678, "counting": 0.98765, "mota": None}
    text = evaluate_page(tmp_path / "new", results).read_text()
    assert "<h1>&lt;b&gt;m&lt;/b&gt;</h1>" in text
    assert "<b>" not in text
    assert "-1,234.57" in text
    assert "0.9877" in text
    assert "1,000" in text
    assert "mota" not in text
    assert "IWAE bound" in text


def test_every_number_of_the_contract_has_a_meaning() -> None:
    from sqair.evaluation import evaluate

    source = Path(evaluate.__file__).read_text()
    for name in (*FACTS, *MEANINGS):
        assert f'"{name}"' in source


def test_a_training_writes_its_page_at_evaluations_and_at_its_end(tmp_path: Path) -> None:
    from sqair.commands.watch import Page
    from sqair.training.loop import Progress

    def told(metrics: dict[str, Any] | None) -> Progress:
        return Progress(10, None, metrics, [], tmp_path)  # type: ignore[arg-type]

    page = Page()
    page(told(None))
    page.close()
    assert list(tmp_path.iterdir()) == []
    make_run(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    page(told({"step": 10}))
    assert ["outcome", "going on"] in head_of(tmp_path / "index.html")["facts"]
    (tmp_path / "run.json").write_text('{"outcome": "finished"}')
    page.close()
    assert ["outcome", "finished"] in head_of(tmp_path / "index.html")["facts"]


def test_an_evaluation_writes_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqair.evaluation.evaluate.evaluate", lambda *_, **__: {"log_p": 7.25})
    out = tmp_path / "results"
    assert main(["evaluate", "sqair-strokes", "--digits", "strokes", "--out", str(out), "--json", "--quiet"]) == 0
    assert "7.2500" in (out / "index.html").read_text()


def test_report_makes_pages_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluation = tmp_path / "evaluation"
    evaluate_page(evaluation, {"model": "m", "log_p": 1.0})
    (evaluation / "metrics.json").write_text(json.dumps({"model": "m", "log_p": 2.0}))
    for folder in (make_run(tmp_path / "run"), evaluation):
        assert main(["report", str(folder)]) == 0
        assert capsys.readouterr().out == f"Results saved to {folder / 'index.html'}\n"
    assert "2.0000" in (evaluation / "index.html").read_text()


@pytest.mark.parametrize(("name", "line"), [("nowhere", "there is no folder"), (".", "holds no run to report on")])
def test_report_refuses_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, line: str) -> None:
    assert main(["report", str(tmp_path / name)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("sqair report: ")
    assert line in printed.err
    assert printed.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["{", "[1]"])
def test_damaged_numbers_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "metrics.json").write_text(content)
    with pytest.raises(UserError, match="evaluate again"):
        remake(tmp_path)

"""Settings: flags, short forms, TOML files and --print-config say the same thing."""

import dataclasses
import tomllib
from pathlib import Path

import numpy as np
import pytest

from sqair.commands import Data, Evaluate, Train
from sqair.commands.common import command_line, name_of, to_flags, to_toml, with_config_files
from sqair.config import AUTHORS_SWITCHES, PAPER_SWITCHES, PRESETS, Preset
from sqair.data import Sequences, save_sequences
from sqair.training.recipe import PAPER_RECIPE, scaled


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_without_flags_is_the_preset(name: str) -> None:
    assert Train.parse([name]).resolved() == PRESETS[name]


@pytest.mark.parametrize("name", PRESETS)
def test_print_config_gives_a_file_that_gives_the_same(name: str, sqair, here: Path) -> None:
    flags = ["--steps", "7", "--model.where-prior-mean", "-1", "-2.5", "1e-3", "0", "--train.decay", "5", "9"]
    flags += ["--model.glimpse-mask", "--train.no-normalise-nvil", "--data", 'my "own".npz']
    printed = sqair("train", name, *flags, "--print-config")
    assert (printed.code, printed.err) == (0, "")
    (here / "mine.toml").write_text(printed.out)
    resolved = Train.parse(with_config_files(["--config", "mine.toml", "tiny"])).resolved()
    assert resolved == Train.parse([name, *flags]).resolved()
    assert resolved.model.where_prior_mean == (-1.0, -2.5, 1e-3, 0.0)
    assert resolved.data.name == 'my "own".npz'


@pytest.mark.parametrize("command", ["data", "evaluate", "sample", "demo"])
def test_print_config_of_the_other_commands(command: str, sqair, here: Path) -> None:
    words = [command, "m"] if command == "evaluate" else [command]
    printed = sqair(*words, "--seed", "5", "--print-config").out
    (here / "mine.toml").write_text(printed)
    assert tomllib.loads(printed)["seed"] == 5
    again = sqair(*words, "--config=mine.toml", "--print-config").out
    assert again.splitlines()[1:] == printed.splitlines()[1:]


def test_short_forms_are_the_long_ones() -> None:
    short = Train.parse(["tiny", "--steps", "3", "--seed", "4", "--data", "x.npz", "--digits", "mnist"]).resolved()
    words = ["--train.steps", "3", "--train.seed", "4", "--data.name", "x.npz", "--data.digits", "mnist"]
    assert short == Train.parse(["tiny", *words]).resolved()
    assert (short.train.steps, short.train.seed, short.data.name) == (3, 4, "x.npz")


def test_the_preset_may_stand_anywhere() -> None:
    assert Train.parse(["--steps", "3", "tiny", "--seed", "1"]) == Train.parse(["tiny", "--steps", "3", "--seed", "1"])


def test_the_last_flag_wins_and_the_command_line_beats_the_file(here: Path) -> None:
    Path("one.toml").write_text("[model]\nwidth = 1\nwhat-size = 11\n[train]\ndecay = [1, 2]")
    Path("two.toml").write_text("[model]\nwidth = 2\n")
    words = ["tiny", "--model.width", "3", "--config", "one.toml", "--config=two.toml"]
    assert Train.parse(with_config_files(words)).model.width == 3
    model = Train.parse(with_config_files(["tiny", *words[3:]])).model
    assert (model.width, model.what_size) == (2, 11)
    assert Train.parse(["tiny", "--model.width", "3", "--model.width", "4"]).model.width == 4


def test_the_paper_recipe() -> None:
    resolved = Train.parse(["sqair-mlp", "--recipe", "paper", "--train.batch", "8"]).resolved()
    assert resolved == Preset(PRESETS["sqair-mlp"].model, train=dataclasses.replace(PAPER_RECIPE, batch=8))


def test_the_recipe_follows_the_steps() -> None:
    own = PRESETS["tiny"].train
    for flags in (["--steps", "1500"], ["--train.steps=1500"]):
        assert Train.parse(["tiny", *flags]).resolved().train == scaled(own, 1500)
    found = Train.parse(["tiny", "--steps=1500", "--train.stage", str(own.stage), "--train.warm-up=0"]).resolved().train
    assert found == dataclasses.replace(scaled(own, 1500), stage=own.stage, warm_up=0), "what is given stays"
    paper = Train.parse(["tiny", "--steps=1500", "--recipe=paper"]).resolved().train
    assert paper == dataclasses.replace(PAPER_RECIPE, steps=1500), "the paper's is never scaled"
    assert Train.parse(["tiny"]).resolved(1500).train == scaled(own, 1500)


def test_what_the_recipe_chose_is_printed(sqair, here: Path) -> None:
    table = tomllib.loads(sqair("train", "tiny", "--steps=1500", "--print-config").out)["train"]
    assert (table["stage"], table["evaluate-every"]) == (150, 125)
    printed = sqair("train", "tiny", "--minutes=5", "--print-config").out
    assert "stage" not in tomllib.loads(printed)["train"], "known when the minutes have become steps"
    (here / "mine.toml").write_text(printed)
    again = Train.parse(with_config_files(["--config", "mine.toml", "tiny"]))
    assert again.resolved(1500) == Train.parse(["tiny", "--minutes=5"]).resolved(1500)


def test_populations_in_files_and_flags(sqair, here: Path) -> None:
    words = ["tiny", "--members=2", "--sweep", "learning_rate=1e-3,1e-4", "--sweep", "seed=1,7", "--patience=3"]
    train = Train.parse([*words, "--restart-collapsed"]).resolved().train
    assert (train.members, train.sweep, train.patience) == (2, ("learning_rate=1e-3,1e-4", "seed=1,7"), 3)
    assert Train.parse([*words[:4], *words[5:], "--restart-collapsed"]).resolved().train == train, "one flag for both"
    words[2:4] = ["--sweep=learning_rate=1e-3,1e-4"]
    assert Train.parse([*words[:3], *words[4:], "--restart-collapsed"]).resolved().train == train
    assert train.restart_collapsed
    (here / "mine.toml").write_text(sqair("train", *words, "--restart-collapsed", "--print-config").out)
    assert Train.parse(with_config_files(["--config", "mine.toml", "tiny"])).resolved().train == train


def test_switches_come_before_flags() -> None:
    model = Train.parse(["tiny", "--switches", "authors", "--model.survival-bias=2"]).resolved().model
    tiny = PRESETS["tiny"].model
    assert model == dataclasses.replace(tiny, **AUTHORS_SWITCHES | {"survival_bias": 2.0})
    assert Train.parse(["tiny", "--switches=paper"]).model == dataclasses.replace(tiny, **PAPER_SWITCHES)
    assert Train.parse(["tiny", "--switches=paper"]).resolved().train == PRESETS["tiny"].train


def test_frames_are_the_files_unless_flags_say_otherwise(here: Path) -> None:
    save_sequences(here / "mine.npz", Sequences(np.zeros((2, 4, 20, 24, 3), np.uint8)))
    found = Train.parse(["tiny", "--data", "mine.npz"]).resolved()
    assert (found.model.image, found.data.size, found.model.channels, found.data.length) == ((20, 24), (20, 24), 3, 4)
    assert found.model.width == PRESETS["tiny"].model.width
    assert Train.parse(["sqair-mlp", "--data.name=mine.npz", "--data.length=3"]).resolved().data.length == 3
    assert Train.parse(["tiny", "--data=mine.npz", "--data.size", "8", "8"]).resolved().data.size == (8, 8)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("sqair-strokes", "sqair-strokes"),
        ("run/best", "run"),
        ("run/checkpoints/00000080", "run"),
        ("a/../run/", "run"),
    ],
)
def test_results_are_named_after_the_model(model: str, name: str, here: Path) -> None:
    assert name_of(model) == name
    assert name_of(".") == here.name
    assert name_of("/") == "model"


def test_data_positional_is_the_name() -> None:
    command = Data.parse(["moving-mnist-free", "--digits", "strokes", "--data.length", "4"])
    assert (command.resolved().data.name, command.resolved().data.digits) == ("moving-mnist-free", "strokes")
    assert command.settings()["data"]["length"] == 4


def test_toml_of_every_kind_of_value() -> None:
    table = {"a": True, "b": [1, 2], "c": "x y", "d": {"e": -0.5, "f-g": False, "h": {"i": []}}}
    assert tomllib.loads(to_toml(table)) == table
    assert to_flags(table) == ["--a", "--b", "1", "2", "--c", "x y", "--d.e", "-0.5", "--d.no-f-g", "--d.h.i"]


def test_a_command_needs_what_is_required(sqair) -> None:
    assert Evaluate.parse(["m"]).model == "m"
    done = sqair("evaluate")
    assert (done.code, done.out) == (2, "")
    assert "MODEL" in done.err


def test_passwords_are_not_printed(sqair, refused) -> None:
    """An address among the words of a command, and one that is not expected."""
    printed = sqair("track", "rtsp://me:secret@camera/1?key=secret", "--print-config")
    assert printed.code == 0
    assert printed.out.splitlines()[0] == "# sqair track rtsp://camera/1 --print-config"
    assert "secret" not in printed.out + printed.err
    line = refused(2, "predict", "clip.mp4", "rtsp://me:secret@camera")
    assert line.startswith("sqair predict: unexpected 'rtsp://camera'")
    assert command_line(["a b", "--x=http://me:secret@host/c"]) == "sqair 'a b' --x=http://host/c"

"""Our recipe for other numbers of steps, in proportion and within limits, and for other digits."""

import dataclasses

import pytest

from sqair.commands.common import to_flags
from sqair.commands.train import Train
from sqair.config import PRESETS, TrainConfig
from sqair.training.recipe import SCALED, for_digits, scaled

OWN = TrainConfig(steps=20_000, warm_up=500, stage=700, discovery_cost_steps=4_000, evaluate_every=1_000)


@pytest.mark.parametrize("name", PRESETS)
def test_a_presets_own_steps_change_nothing(name: str) -> None:
    assert scaled(PRESETS[name].train, PRESETS[name].train.steps) == PRESETS[name].train


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (10_000, (250, 350, 2_000, 500)),
        (30_000, (500, 1_050, 6_000, 1_500)),
        (1_000_000, (500, 1_400, 8_000, 2_000)),
        (1_000, (100, 100, 500, 50)),
        (2, (100, 100, 500, 50)),
    ],
)
def test_numbers_of_steps_follow_the_steps(steps: int, expected: tuple[int, ...]) -> None:
    found = scaled(OWN, steps)
    assert tuple(getattr(found, name) for name in ("warm_up", "stage", "discovery_cost_steps", "evaluate_every")) == (
        expected
    )
    assert dataclasses.replace(found, steps=OWN.steps, **{name: getattr(OWN, name) for name in SCALED}) == OWN


def test_what_is_small_already_is_not_raised() -> None:
    small = TrainConfig(steps=100, warm_up=0, stage=5, discovery_cost_steps=10, evaluate_every=20)
    assert scaled(small, 50) == dataclasses.replace(small, steps=50)


@pytest.mark.parametrize("name", PRESETS)
def test_a_presets_own_digits_change_nothing(name: str) -> None:
    own = PRESETS[name]
    assert for_digits(own, own.data.digit_scale, own.model.output_std) == own


def test_boxes_follow_digits_and_cost_their_area() -> None:
    own = PRESETS["sqair-mlp"]
    small = for_digits(own, 0.7, own.model.output_std)
    assert small.model.scale_limits == pytest.approx((0.7 * 0.02, 0.7))
    assert small.train.discovery_cost == pytest.approx(20 * 0.49)
    kept = {"model": dataclasses.replace(own.model, scale_limits=small.model.scale_limits)}
    assert dataclasses.replace(small, train=own.train) == dataclasses.replace(own, **kept)
    sharper = for_digits(own, 1.0, own.model.output_std / 2)
    assert sharper.train.discovery_cost == 4 * own.train.discovery_cost
    assert sharper.model == own.model, "the output std itself is the user's"


def test_boxes_follow_the_larger_digits_of_a_training() -> None:
    own = PRESETS["sqair-mlp"]
    assert for_digits(own, 0.7, own.model.output_std, 1.0).model == own.model
    for sizes in ((0.7, 0.8), (0.8, 0.7)):
        assert for_digits(own, sizes[0], own.model.output_std, sizes[1]).model.scale_limits == (0.016, 0.8)
    assert for_digits(own, 0.7, own.model.output_std, 1.0).train.discovery_cost == 9.8, "of the digits wanted"


def test_boxes_are_not_larger_than_frames_and_vrnn_has_none() -> None:
    tiny, vrnn = PRESETS["tiny"], PRESETS["vrnn-mlp"]
    assert for_digits(tiny, 1.0, tiny.model.output_std).model.scale_limits == (0.04, 1.0)
    assert for_digits(vrnn, 0.7, 0.1) == vrnn


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], ""),
        (["--data.digit-scale", "0.9"], "scale_limits 0.018 0.9, discovery_cost 16.2"),
        (["--data.digit-scale", "0.7"], "first_scale 1 for 6667 steps, discovery_cost 9.8"),
        (["--data.digit-scale", "0.7", "--steps", "6000"], "first_scale 1 for 2000 steps, discovery_cost 9.8"),
        (["--data.digit-scale", "0.7", "--train.discovery-cost", "3"], "first_scale 1 for 6667 steps"),
        (
            ["--data.digit-scale", "0.7", "--train.first-scale-steps", "0"],
            "scale_limits 0.014 0.7, discovery_cost 9.8",
        ),
        (["--data.digit-scale", "0.7", "--recipe", "paper"], ""),
        (["--model.output-std", "0.15"], "discovery_cost 80"),
    ],
)
def test_what_follows_the_digits_is_said(words: list[str], line: str, capsys: pytest.CaptureFixture) -> None:
    said = [text for text in said_by(["sqair-mlp", *words], capsys) if "these digits" in text]
    assert said == ([f"the recipe for these digits and pixels: {line}"] if line else [])


def said_by(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What a command says of its recipe."""
    command = Train.parse(words)
    command._say_recipe(command.resolved())
    return "".join(capsys.readouterr()).splitlines()


def test_the_first_phase_is_said_once(capsys: pytest.CaptureFixture) -> None:
    said = said_by(["sqair-mlp", "--data.digit-scale", "0.7", "--steps", "6000"], capsys)
    assert [line.partition(":")[0] for line in said] == [
        "the recipe for 6000 steps",
        "the recipe for these digits and pixels",
    ]
    assert "first_scale" not in said[0]


@pytest.mark.parametrize(
    ("words", "is_said"),
    [
        (["sqair-mlp", "--data.digit-scale", "0.7"], False),
        (["sqair-mlp", "--data.digit-scale", "0.7", "--train.first-scale-steps", "0"], True),
        (["sqair-mlp", "--data.digit-scale", "0.7", "--recipe", "paper"], True),
        (["sqair-mlp", "--data.digit-scale", "0.9", "--train.first-scale-steps", "0"], False),
        (["sqair-mlp", "--data.digit-scale", "0.7", "--train.first-scale-steps", "0", "--members", "3"], False),
        (["sqair-mlp", "--data.digit-scale", "0.7", "--train.first-scale-steps", "0", "--sweep", "seed=1,2"], False),
        (["air-mlp", "--data.digit-scale", "0.7"], False),
        (["tiny"], False),
    ],
)
def test_small_digits_from_the_start_come_with_advice(
    words: list[str], is_said: bool, capsys: pytest.CaptureFixture
) -> None:
    """Of three seeds with digits of 0.7 one left the second digit out (2026-11-16_population_small.json)."""
    assert any("--members 3 trains three and takes the best" in line for line in said_by(words, capsys)) == is_said


@pytest.mark.parametrize(
    ("words", "scale", "steps"),
    [
        (["sqair-mlp"], 0.0, 0),
        (["sqair-mlp", "--data.digit-scale", "0.7"], 1.0, 6_667),
        (["sqair-mlp", "--data.digit-scale", "0.7", "--steps", "6000"], 1.0, 2_000),
        (["sqair-mlp", "--data.digit-scale", "0.7", "--train.steps", "300000"], 1.0, 100_000),
        (["sqair-mlp", "--data.digit-scale", "0.7", "--steps", "1"], 1.0, 1),
        (["sqair-mlp", "--data.digit-scale", "0.7", "--data", "moving-mnist-in-out"], 1.0, 6_667),
        (["sqair-conv", "--data.digit-scale", "0.84"], 1.0, 6_667),
        (["sqair-conv", "--data.digit-scale", "0.85"], 0.0, 0),
        (["sqair-mlp", "--data.digit-scale", "1.5"], 0.0, 0),
        (["tiny", "--data.digit-scale", "0.35"], 0.5, 1_500),
        (["tiny", "--data.digit-scale", "0.45"], 0.0, 0),
        (["air-mlp", "--data.digit-scale", "0.7"], 0.0, 0),
        (["vrnn-mlp", "--data.digit-scale", "0.7"], 0.0, 0),
        (["sqair-mlp", "--model.kind", "air", "--data.digit-scale", "0.7"], 0.0, 0),
        (["sqair-mlp", "--data.digit-scale", "0.7", "--recipe", "paper"], 0.0, 0),
        (["sqair-mlp", "--data.digit-scale", "0.7", "--train.start", "sqair-mlp"], 0.0, 0),
        (["sqair-mlp", "--data.digit-scale", "0.7", "--data", "none.npz"], 0.0, 0),
        (["sqair-mlp", "--data.digit-scale", "0.7", "--data.name", "none.npz"], 0.0, 0),
        (["sqair-mlp", "--data.digit-scale", "0.4", "--data.size", "32", "50"], 0.0, 0),
        (["sqair-mlp", "--data.digit-scale", "0.4", "--data.size", "64", "64"], 1.0, 6_667),
        (["sqair-mlp", "--data.digit-scale", "0.4", "--data.max-digits", "5"], 0.0, 0),
        (["sqair-mlp", "--data.digit-scale", "nan"], 0.0, 0),
        (["sqair-mlp", "--data.digit-scale", "0.7", "--train.first-scale-steps", "0"], 0.0, 0),
        (["sqair-mlp", "--data.digit-scale", "0.7", "--train.first-scale-steps", "50", "--steps", "900"], 1.0, 50),
        (["sqair-mlp", "--data.digit-scale", "0.7", "--data.first-scale", "0"], 0.0, 0),
        (["sqair-mlp", "--data.digit-scale", "0.7", "--model.scale-limits", "0.014", "0.7"], 0.0, 0),
        (["sqair-mlp", "--data.digit-scale", "0.7", "--model.width-limits", "0.014", "0.7"], 0.0, 0),
        (["sqair-mlp", "--data.digit-scale", "0.7", "--data.first-scale", "0.8", "--steps", "900"], 0.8, 300),
        (["air-mlp", "--data.first-scale", "1.2", "--train.first-scale-steps", "9"], 1.2, 9),
    ],
)
def test_what_small_digits_begin_with(words: list[str], scale: float, steps: int) -> None:
    chosen = Train.parse(words).resolved()
    assert (chosen.data.first_scale, chosen.train.first_scale_steps) == (scale, steps)


def test_minutes_decide_on_the_first_phase() -> None:
    command = Train.parse(["sqair-mlp", "--data.digit-scale", "0.7", "--minutes", "5"])
    assert command.resolved(3_000).train.first_scale_steps == 1_000
    printed = command.settings()
    assert printed["data"]["first_scale"] == 1.0
    assert "first_scale_steps" not in printed["train"], "not known before it is measured"
    plain = Train.parse(["sqair-mlp", "--minutes", "5"])
    assert plain.resolved(3_000).train.first_scale_steps == plain.settings()["train"]["first_scale_steps"] == 0


def test_printed_settings_give_the_same_recipe() -> None:
    """What --print-config writes, read back as flags: also where the first phase was switched off."""
    for words in ([], ["--train.first-scale-steps", "0"], ["--train.first-scale-steps", "50"]):
        command = Train.parse(["sqair-mlp", "--data.digit-scale", "0.7", *words])
        assert Train.parse(["sqair-mlp", *to_flags(command.settings())]).resolved() == command.resolved()


def test_a_wide_preset_keeps_its_aspect() -> None:
    wide = for_digits(PRESETS["sqair-pedestrians"], 0.5, PRESETS["sqair-pedestrians"].model.output_std).model
    assert (wide.scale_limits, wide.width_limits) == ((0.05, 0.45), (0.02, 0.2))


@pytest.mark.parametrize(
    ("words", "limits", "cost"),
    [
        ([], (0.02, 1.0), 20.0),
        (["--data.digit-scale", "0.7"], (0.02, 1.0), 9.8),
        (["--data.digit-scale", "0.7", "--model.scale-limits", "0.01", "0.5"], (0.01, 0.5), 9.8),
        (["--data.digit-scale", "0.7", "--train.discovery-cost", "20"], (0.02, 1.0), 20.0),
        (["--data.digit-scale", "0.7", "--train.first-scale-steps", "0"], (0.014, 0.7), 9.8),
        (["--data.digit-scale", "0.7", "--data.first-scale", "0"], (0.014, 0.7), 9.8),
        (["--data.digit-scale", "0.7", "--data.first-scale", "0.8"], (0.016, 0.8), 9.8),
        (["--data.digit-scale", "0.7", "--model.kind", "air"], (0.014, 0.7), 9.8),
        (["--data.digit-scale", "0.9"], (0.018, 0.9), 16.2),
        (["--data.digit-scale", "1.5"], (0.03, 1.0), 45.0),
        (["--data.digit-scale", "0.7", "--recipe", "paper"], (0.02, 1.0), 0.0),
        (["--data.digit-scale", "0.7", "--train.start", "sqair-mlp"], (0.02, 1.0), 9.8),
        (["--model.output-std", "0.15"], (0.02, 1.0), 80.0),
        (["--model.output-std", "0"], (0.02, 1.0), 20.0),
        (["--model.output-std", "1e-200"], (0.02, 1.0), 20.0),
        (["--data.digit-scale", "inf"], (0.02, 1.0), 20.0),
        (["--data.first-scale", "inf"], (0.02, 1.0), 20.0),
    ],
)
def test_what_is_given_stays_as_it_is(words: list[str], limits: tuple[float, float], cost: float) -> None:
    chosen = Train.parse(["sqair-mlp", *words]).resolved()
    assert chosen.model.scale_limits == limits
    assert chosen.train.discovery_cost == cost

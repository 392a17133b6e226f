"""Our recipe for other numbers of steps, in proportion and within limits, and for other digits."""

import dataclasses

import pytest

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


def test_boxes_are_not_larger_than_frames_and_vrnn_has_none() -> None:
    tiny, vrnn = PRESETS["tiny"], PRESETS["vrnn-mlp"]
    assert for_digits(tiny, 1.0, tiny.model.output_std).model.scale_limits == (0.04, 1.0)
    assert for_digits(vrnn, 0.7, 0.1) == vrnn


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], ""),
        (["--data.digit-scale", "0.7"], "scale_limits 0.014 0.7, discovery_cost 9.8"),
        (["--data.digit-scale", "0.7", "--train.discovery-cost", "3"], "scale_limits 0.014 0.7"),
        (["--data.digit-scale", "0.7", "--recipe", "paper"], ""),
        (["--model.output-std", "0.15"], "discovery_cost 80"),
    ],
)
def test_what_follows_the_digits_is_said(words: list[str], line: str, capsys: pytest.CaptureFixture) -> None:
    command = Train.parse(["sqair-mlp", *words])
    command._say_recipe(command.resolved().train)
    said = [text for text in "".join(capsys.readouterr()).splitlines() if "these digits" in text]
    assert said == ([f"the recipe for these digits and pixels: {line}"] if line else [])


@pytest.mark.parametrize(
    ("words", "is_said"),
    [
        (["sqair-mlp", "--data.digit-scale", "0.7"], True),
        (["sqair-mlp", "--data.digit-scale", "0.7", "--recipe", "paper"], True),
        (["sqair-mlp", "--data.digit-scale", "0.9"], False),
        (["sqair-mlp", "--data.digit-scale", "0.7", "--members", "3"], False),
        (["sqair-mlp", "--data.digit-scale", "0.7", "--sweep", "seed=1,2"], False),
        (["air-mlp", "--data.digit-scale", "0.7"], False),
        (["tiny"], False),
    ],
)
def test_small_digits_come_with_advice(words: list[str], is_said: bool, capsys: pytest.CaptureFixture) -> None:
    """Of three seeds with digits of 0.7 one left the second digit out (2026-11-16_population_small.json)."""
    command = Train.parse(words)
    command._say_recipe(command.resolved().train)
    assert ("--members 3 trains three and takes the best" in "".join(capsys.readouterr())) == is_said


def test_a_wide_preset_keeps_its_aspect() -> None:
    wide = for_digits(PRESETS["sqair-pedestrians"], 0.5, PRESETS["sqair-pedestrians"].model.output_std).model
    assert (wide.scale_limits, wide.width_limits) == ((0.05, 0.45), (0.02, 0.2))


@pytest.mark.parametrize(
    ("words", "limits", "cost"),
    [
        ([], (0.02, 1.0), 20.0),
        (["--data.digit-scale", "0.7"], (0.014, 0.7), 9.8),
        (["--data.digit-scale", "0.7", "--model.scale-limits", "0.02", "1"], (0.02, 1.0), 9.8),
        (["--data.digit-scale", "0.7", "--train.discovery-cost", "20"], (0.014, 0.7), 20.0),
        (["--data.digit-scale", "0.7", "--recipe", "paper"], (0.02, 1.0), 0.0),
        (["--data.digit-scale", "0.7", "--train.start", "sqair-mlp"], (0.02, 1.0), 9.8),
        (["--model.output-std", "0.15"], (0.02, 1.0), 80.0),
        (["--model.output-std", "0"], (0.02, 1.0), 20.0),
        (["--model.output-std", "1e-200"], (0.02, 1.0), 20.0),
        (["--data.digit-scale", "inf"], (0.02, 1.0), 20.0),
    ],
)
def test_what_is_given_stays_as_it_is(words: list[str], limits: tuple[float, float], cost: float) -> None:
    chosen = Train.parse(["sqair-mlp", *words]).resolved()
    assert chosen.model.scale_limits == limits
    assert chosen.train.discovery_cost == cost

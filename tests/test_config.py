"""Configs as plain dicts and back, and refusals that name the key and what was meant."""

import ast
import dataclasses
import inspect
import itertools
import json
import math
import typing
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqair.config import (
    AUTHORS_SWITCHES,
    PAPER_SWITCHES,
    PRESETS,
    ConvConfig,
    DataConfig,
    ModelConfig,
    Preset,
    TrainConfig,
    UserError,
    VRNNConfig,
    nearest,
    preset,
)
from sqair.settings import RANGES, check, differences, from_dict, to_dict
from sqair.training.recipe import PAPER_RECIPE

CONFIGS = (ConvConfig, VRNNConfig, ModelConfig, DataConfig, TrainConfig)


def values_of(hint):
    """A strategy for the plain values of a field, from its type."""
    if typing.get_origin(hint) is Literal:
        return st.sampled_from(typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        kinds = typing.get_args(hint)
        if kinds[-1] is ...:
            return st.lists(values_of(kinds[0]), max_size=4)
        return st.tuples(*map(values_of, kinds)).map(list)
    if dataclasses.is_dataclass(hint):
        return overrides_of(hint)
    finite = st.floats(allow_nan=False, allow_infinity=False)
    return {int: st.integers(), float: finite, bool: st.booleans(), str: st.text()}[hint]


def overrides_of(cls):
    """A strategy for tables that set some fields of a config."""
    return st.fixed_dictionaries({}, optional={k: values_of(hint) for k, hint in typing.get_type_hints(cls).items()})


def laid_over(plain, overrides):
    """`plain` with the values of `overrides`, table by table."""
    merged = {k: laid_over(plain[k], v) if isinstance(v, dict) else v for k, v in overrides.items()}
    return {**plain, **merged}


def through_json(config):
    return from_dict(type(config), json.loads(json.dumps(to_dict(config))))


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_survives_json(name):
    assert through_json(preset(name)) == preset(name)


@pytest.mark.parametrize("name", PRESETS)
@given(overrides=overrides_of(Preset))
def test_presets_take_any_overrides_and_survive_json(name, overrides):
    wanted = laid_over(to_dict(preset(name)), overrides)
    config = from_dict(Preset, wanted)
    assert to_dict(config) == wanted
    assert through_json(config) == config
    assert differences(config, through_json(config)) == []


@given(overrides=overrides_of(Preset))
def test_missing_keys_keep_their_defaults(overrides):
    assert to_dict(from_dict(Preset, overrides)) == laid_over(to_dict(Preset()), overrides)


def test_plain_dicts_are_plain():
    """Lists instead of tuples all the way down, so that JSON and TOML give back the same."""
    plain = to_dict(preset("sqair-pedestrians"))
    assert plain["model"]["glimpse"] == [28, 12]
    assert plain["model"]["conv"]["decoder_strides"] == [2, 2]
    assert json.loads(json.dumps(plain)) == plain


def test_an_unknown_preset_suggests_the_nearest():
    with pytest.raises(UserError, match=r"unknown preset 'sqair-mpl'; did you mean 'sqair-mlp'\?"):
        preset("sqair-mpl")


def test_what_resembles_nothing_is_answered_with_the_list():
    with pytest.raises(UserError, match=r"known: .*air-mlp.*tiny"):
        preset("zzzzzzzz")
    assert nearest("qqq", ["b", "a"]) == "known: a, b"


def test_an_unknown_key_suggests_the_nearest_and_says_where():
    with pytest.raises(UserError, match=r"unknown key 'train\.learning_rat'; did you mean 'learning_rate'\?"):
        from_dict(Preset, {"train": {"learning_rat": 1e-3}})
    with pytest.raises(UserError, match=r"unknown key 'model\.conv\.feature'; did you mean 'features'\?"):
        from_dict(Preset, {"model": {"conv": {"feature": [1]}}})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"train": {"steps": "many"}}, "train.steps must be int, not 'many'"),
        ({"train": {"steps": 1.5}}, "train.steps must be int, not 1.5"),
        ({"train": {"steps": True}}, "train.steps must be int, not True"),
        ({"train": {"learning_rate": False}}, "train.learning_rate must be float, not False"),
        ({"train": {"decay": 5}}, "train.decay must be a list, not 5"),
        ({"train": {"decay": [5, "x"]}}, "train.decay must be int, not 'x'"),
        ({"train": {"bound": "ewok"}}, "train.bound must be one of elbo, iwae, fivo, not 'ewok'"),
        ({"model": {"channels": 2}}, "model.channels must be one of 1, 3, not 2"),
        ({"model": {"channels": True}}, "model.channels must be one of 1, 3, not True"),
        ({"model": {"image": [50]}}, "model.image must have 2 numbers, not 1"),
        ({"model": {"mean_image": 1}}, "model.mean_image must be bool, not 1"),
        ({"data": {"name": 3}}, "data.name must be str, not 3"),
        ({"model": 3}, "model must be a table of keys and values"),
        ([1, 2], "Preset must be a table of keys and values"),
    ],
)
def test_a_wrong_value_is_refused_by_name(values, message):
    with pytest.raises(UserError) as refusal:
        from_dict(Preset, values)
    assert str(refusal.value) == message


def test_an_integer_serves_as_a_float():
    config = from_dict(TrainConfig, {"clip": 3})
    assert config.clip == 3.0
    assert type(config.clip) is float


def test_differences_are_named_with_dots():
    changed = Preset(
        model=ModelConfig(networks="conv", conv=dataclasses.replace(ModelConfig().conv, decoder_maps=8)),
        train=TrainConfig(seed=3),
        data=DataConfig(length=4),
    )
    assert set(differences(Preset(), changed)) == {
        "model.networks",
        "model.conv.decoder_maps",
        "train.seed",
        "data.length",
    }
    assert differences(Preset(), Preset()) == []


@pytest.mark.parametrize("switches", [AUTHORS_SWITCHES, PAPER_SWITCHES])
def test_switches_are_fields_with_valid_values(switches):
    plain = json.loads(json.dumps(switches))
    assert from_dict(ModelConfig, plain) == dataclasses.replace(ModelConfig(), **switches)
    check(dataclasses.replace(ModelConfig(), **switches))


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_within_the_ranges(name):
    check(preset(name))
    check(dataclasses.replace(preset(name), train=PAPER_RECIPE))


def test_every_range_is_of_a_field():
    fields = {f.name for cls in CONFIGS for f in dataclasses.fields(cls)}
    assert set(RANGES) <= fields


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": {"max_objects": 0}}, "model.max_objects must be at least 1, not 0"),
        ({"model": {"glimpse": [1, 6]}}, "model.glimpse must be at least 2, not 1"),
        ({"model": {"output_std": 0.0}}, "model.output_std must be more than 0, not 0.0"),
        ({"model": {"discovery_bias": math.nan}}, "model.discovery_bias must be finite, not nan"),
        ({"model": {"scale_limits": [0.5, 0.5]}}, "model.scale_limits must be a smaller and a larger number"),
        ({"model": {"width_limits": [0.5, 0.4]}}, "model.width_limits must be a smaller and a larger number, or 0 0"),
        ({"model": {"width_limits": [0.0, 0.4]}}, "model.width_limits must be a smaller and a larger number, or 0 0"),
        ({"model": {"min_std": 0.5}}, "model.where_prior_std must be more than model.min_std, which is 0.5"),
        ({"model": {"conv": {"strides": [2]}}}, "model.conv.features and model.conv.strides need one number"),
        ({"model": {"conv": {"decoder_strides": [1, 0, 2]}}}, "model.conv.decoder_strides must be at least 1"),
        ({"data": {"speed": math.nan}}, "data.speed must be at least 0, not nan"),
        ({"data": {"digit_scale": math.inf}}, "data.digit_scale must be more than 0, not inf"),
        ({"train": {"learning_rate": -1.0}}, "train.learning_rate must be more than 0, not -1.0"),
        ({"train": {"discovery_dropout": 1.5}}, "train.discovery_dropout must be between 0 and 1, not 1.5"),
        ({"train": {"decay": [5, -1]}}, "train.decay must be at least 0, not -1"),
        ({"train": {"seed": -1}}, "train.seed must be between 0 and"),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(values, message):
    config = from_dict(Preset, values)
    with pytest.raises(UserError) as refusal:
        check(config)
    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize("cls", CONFIGS)
def test_every_field_is_explained(cls):
    """The string after a field is its help."""
    (body,) = ast.parse(inspect.getsource(cls)).body
    assert isinstance(body, ast.ClassDef)
    explained = {
        field.target.id
        for field, text in itertools.pairwise(body.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }
    assert explained == {field.name for field in dataclasses.fields(cls)}


def test_the_papers_numbers():
    """App. D and E, where our presets must not drift."""
    model, paper = preset("sqair-mlp").model, PAPER_RECIPE
    assert (model.image, model.glimpse, model.max_objects) == ((50, 50), (20, 20), 3)
    assert (model.what_size, model.width, model.output_std) == (50, 256, 0.3)
    assert (paper.steps, paper.batch, paper.particles, paper.learning_rate) == (2_000_000, 32, 5, 1e-5)
    assert (paper.optimiser, paper.decay, paper.stage, paper.first_length) == (
        "rmsprop",
        (400_000, 1_000_000),
        100_000,
        3,
    )
    assert (paper.discovery_dropout, paper.discovery_cost, paper.rediscovery_cost) == (0, 0, 0)
    assert (paper.clip, paper.clip_frame) == (0, 0)
    assert paper.precision == "float32"


def test_pedestrians_as_in_the_appendix():
    """App. E: sizes, T from 3 to 5, early stopping; a glimpse begins at about its own size."""
    chosen = preset("sqair-pedestrians")
    model, train = chosen.model, chosen.train
    assert (model.image, model.glimpse, model.width, model.max_objects) == ((64, 64), (28, 12), 128, 3)
    assert (model.conv.features, model.conv.decoder_hidden) == ((16, 32, 64, 64), 128)
    assert model.conv.decoder_maps * 7 * 3 == 1344
    assert (train.first_length, chosen.data.length) == (3, 5)
    assert train.patience > 0
    limits = model.width_limits, model.scale_limits
    for (low, high), logit, pixels in zip(limits, model.where_prior_mean[:2], (12, 28), strict=True):
        share = low + (high - low) / (1 + math.exp(-logit))
        assert 64 * share == pytest.approx(pixels, rel=0.1)


def test_configs_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Preset().model.width = 3  # pyright: ignore[reportAttributeAccessIssue]

"""Saved models: the same after loading, readable names, no pickle, and every way a file can be wrong."""

import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

import sqair
from sqair.baselines.air import AIR
from sqair.config import ModelConfig, UserError
from sqair.model import SQAIR, SequenceModel
from sqair.training import checkpoint
from sqair.training.checkpoint import build, load_model, named_arrays, read_card, save_model, shipped_models

CONFIG = ModelConfig(image=(8, 8), glimpse=(4, 4), max_objects=2, what_size=2, width=8)


@pytest.fixture(scope="module")
def model() -> SequenceModel:
    return build(CONFIG, jax.random.key(0))


@pytest.fixture
def saved(tmp_path: Path, model: SequenceModel) -> Path:
    save_model(tmp_path / "model", model, {"step": 7, "data": {"name": "moving-mnist"}})
    return tmp_path / "model"


def same(a: Any, b: Any) -> bool:
    first, second = named_arrays(a), named_arrays(b)
    return first.keys() == second.keys() and all((first[name] == second[name]).all() for name in first)


def edit_card(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    card = json.loads(path.read_text()) | changes
    card.pop("sha256", None)  # edited on purpose
    path.write_text(json.dumps(card))


def edit_tensors(folder: Path, change: dict[str, np.ndarray | None]) -> None:
    path = folder / "model.safetensors"
    tensors: dict[str, Any] = safetensors.numpy.load_file(path) | change
    safetensors.numpy.save_file({name: value for name, value in tensors.items() if value is not None}, path)


def refusal(name: Path | str) -> str:
    with pytest.raises(UserError) as caught:
        load_model(name)
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_build_makes_the_kind_that_is_named(model: SequenceModel) -> None:
    assert isinstance(model, SQAIR)
    assert isinstance(build(dataclasses.replace(CONFIG, kind="air"), jax.random.key(0)), AIR)


def test_new_and_loaded_weights_are_typed_alike(model: SequenceModel, saved: Path) -> None:
    """Otherwise each resumed run would compile its step twice."""
    assert not any(leaf.weak_type for leaf in jax.tree.leaves((model, load_model(saved))))


def test_equal_models_are_equal_files(saved: Path, tmp_path: Path) -> None:
    save_model(tmp_path / "copy", load_model(saved), read_card(saved)["training"])
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "copy" / name).read_bytes() == (saved / name).read_bytes()


def test_a_model_comes_back_bit_for_bit_without_pickle(
    saved: Path, model: SequenceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("pickle was used")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    loaded = load_model(saved)
    assert same(loaded, model)
    assert eqx.tree_equal(loaded, model), "the static parts are the same too"


def test_names_and_card(saved: Path) -> None:
    tensors = safetensors.numpy.load_file(saved / "model.safetensors")
    assert {"propagation.relation.rnn.weight", "discovery.where_head.layers.0.bias"} <= tensors.keys()
    with safetensors.safe_open(saved / "model.safetensors", "numpy") as file:
        assert json.loads(file.metadata()["sqair"])["kind"] == "sqair"
    card = read_card(saved)
    assert card["format_version"] == 1
    assert (card["kind"], card["version"], card["training"]["step"]) == ("sqair", sqair.__version__, 7)


def test_half_precision_on_disk_is_float32_in_memory(tmp_path: Path, model: SequenceModel) -> None:
    save_model(tmp_path / "half", model, {}, half=True)
    assert safetensors.numpy.load_file(tmp_path / "half/model.safetensors")["first_prior"].dtype == np.float16
    loaded = load_model(tmp_path / "half")
    pairs = zip(jax.tree.leaves(loaded), jax.tree.leaves(model), strict=True)
    assert all(a.dtype == jnp.float32 and np.allclose(a, b, rtol=1e-3, atol=1e-6) for a, b in pairs)


def test_a_run_folder_gives_its_best_then_itself_then_its_newest_checkpoint(tmp_path: Path) -> None:
    models = {name: build(CONFIG, jax.random.key(i)) for i, name in enumerate(("best", "", "checkpoints/2"))}
    save_model(tmp_path / "checkpoints/00000001", models["best"], {})
    save_model(tmp_path / "checkpoints/00000002", models["checkpoints/2"], {})
    (tmp_path / "checkpoints/00000003").mkdir()
    assert same(load_model(tmp_path), models["checkpoints/2"])
    save_model(tmp_path, models[""], {})
    assert same(load_model(tmp_path), models[""])
    save_model(tmp_path / "best", models["best"], {})
    assert same(load_model(str(tmp_path)), models["best"])


def test_shipped_models_are_found_by_name(saved: Path, model: SequenceModel, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(load_model(name) for name in shipped_models())
    monkeypatch.setattr(checkpoint, "_shipped", lambda: saved.parent)
    assert shipped_models() == ["model"]
    assert same(load_model("model"), model)
    assert "did you mean 'model'?" in refusal("modle")
    monkeypatch.setattr(checkpoint, "_shipped", lambda: saved.parent / "nowhere")
    assert "no models are shipped" in refusal("model")


def test_refused_folders(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "has no config.json" in refusal(tmp_path / "empty")
    assert "neither a folder nor a shipped model" in refusal(tmp_path / "missing")
    assert "is a file; give the folder" in refusal(saved / "model.safetensors")
    (saved / "model.safetensors").unlink()
    assert "incomplete" in refusal(saved)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{", "not intact JSON"),
        ("[]", "format_version None"),
        ("{}", "format_version None"),
        ('{"format_version": 99}', "format_version 99"),
        ('{"format_version": 1}', "no key 'model'"),
        ('{"format_version": 1, "model": 3}', "must be a table"),
        ('{"format_version": 1, "model": {"widht": 8}}', "did you mean 'width'"),
        ('{"format_version": 1, "model": {"width": -8}}', "model.width must be at least 1, not -8"),
        ('{"format_version": 1, "model": {"image": [0, 0]}}', "model.image must be at least 2, not 0"),
        ('{"format_version": 1, "model": {"min_std": NaN}}', "model.min_std must be more than 0, not nan"),
        ('{"format_version": 1, "model": {"width": 1000000000}}', "not a file of this model"),
    ],
)
def test_refused_configs(saved: Path, text: str, line: str) -> None:
    (saved / "config.json").write_text(text)
    assert line in refusal(saved)


def test_refused_bytes(saved: Path) -> None:
    path = saved / "model.safetensors"
    whole = path.read_bytes()
    for broken in (b"", whole[:20], whole[:-1], b"\x80\x04" + whole, pickle.dumps({"a": 1})):
        path.write_bytes(broken)
        assert "not an intact safetensors file" in refusal(saved)


def test_refused_tensors(saved: Path) -> None:
    whole = (saved / "model.safetensors").read_bytes()
    bad = np.zeros(8, np.float32)
    bad[3] = np.nan
    for change, line in [
        ({"first_prior": None}, "has no tensor 'first_prior'"),
        ({"other": bad}, "has a surplus tensor 'other'"),
        ({"first_prior": np.zeros(9, np.float32)}, "'first_prior' is float32 (9,), not float32 (8,)"),
        ({"first_prior": np.zeros(8, np.int32)}, "'first_prior' is int32 (8,), not float32 (8,)"),
        ({"first_prior": np.zeros(8, np.float64)}, "'first_prior' is float64"),
        ({"first_prior": np.ones(8, np.float32)}, "is damaged: it is not what config.json says"),
        ({"first_prior": bad}, "not finite in 'first_prior'"),
    ]:
        if "finite" in line:  # so it was saved
            edit_card(saved)
        (saved / "model.safetensors").write_bytes(whole)
        edit_tensors(saved, change)
        assert line in refusal(saved)


def test_a_checkpoint_of_another_model_is_refused(saved: Path) -> None:
    card = json.loads((saved / "config.json").read_text())
    edit_card(saved, model=card["model"] | {"width": 9})
    assert "is float32 (8, 64), not float32 (9, 64)" in refusal(saved)
    edit_card(saved, model=card["model"] | {"kind": "air"})
    assert "not a file of this model" in refusal(saved)


def test_an_edited_card_is_refused_unless_that_was_on_purpose(saved: Path) -> None:
    path = saved / "config.json"
    path.write_text(path.read_text().replace('"step": 7', '"step": 8'))
    assert "'training.step' was edited: copy it again, or delete its key 'sha256'" in refusal(saved)
    edit_card(saved)
    assert read_card(saved)["training"]["step"] == 8


def test_entries_added_to_a_card_are_welcome(saved: Path) -> None:
    card = json.loads((saved / "config.json").read_text())
    card["training"]["typical"] = [1.0]
    (saved / "config.json").write_text(json.dumps(card | {"evaluation": {}}))
    load_model(saved)


def test_files_that_are_too_large_are_not_read(saved: Path) -> None:
    with (saved / "model.safetensors").open("ab") as file:
        file.truncate(2**32)  # without taking space
    assert "is larger than" in refusal(saved)

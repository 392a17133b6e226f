"""VRNN: its sizes against the paper, its densities against scipy, prediction, gradients, and the commands.

`test_vrnn_linear.py` has its bounds against a Kalman filter.
"""

import dataclasses
import json
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import build, film
from scipy.special import expit
from scipy.stats import norm

from sqair.baselines.vrnn import VRNN
from sqair.cli import main
from sqair.config import PRESETS, ModelConfig, TrainConfig, UserError, VRNNConfig
from sqair.data import Sequences, load_sequences, save_sequences
from sqair.model import Restraint, no_restraint
from sqair.networks import MLP
from sqair.objective import batch_loss, check_objective
from sqair.particles import draw_particles, particle_filter, run_batch, run_particles
from sqair.settings import check
from sqair.training.recipe import PAPER_VRNN_RECIPE

T, KEY = 3, jax.random.key(0)
MLP_CONFIG = ModelConfig(kind="vrnn", image=(6, 7), width=5, output_std=1.0, vrnn=VRNNConfig(latent_size=3, layers=2))
CONV_CONFIG = dataclasses.replace(
    MLP_CONFIG, networks="conv", vrnn=VRNNConfig(latent_size=3, layers=1, features=(2, 3, 4), strides=(2, 1, 2))
)
FRAMES = film(T, (6, 7))


@eqx.filter_jit
def observe(model, frames, noise, state=None, restraint=None):
    return model.observe(None, frames, noise=noise, state=state, restraint=restraint)


def same(a, b, **tolerance) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, **tolerance)


# --- sizes and shapes


@pytest.mark.parametrize(
    ("name", "papers", "ours"),
    [
        ("vrnn-mlp-small", 1.2e6, 1_200_930),
        ("vrnn-mlp", 3.1e6, 3_120_546),  # printed as 2.1M, which no reading gives together with the other two
        ("vrnn-mlp-large", 9.8e6, 9_779_106),
        ("vrnn-conv-small", 0.8e6, 784_479),
        ("vrnn-conv", 2.6e6, 2_589_759),
        ("vrnn-conv-large", 6.1e6, 6_112_191),
    ],
)
def test_parameter_counts_are_the_papers(name, papers, ours):
    config = PRESETS[name].model
    model = eqx.filter_eval_shape(VRNN, config, key=KEY)
    count = sum(leaf.size for leaf in jax.tree.leaves(model))
    assert count == ours
    assert abs(count / papers - 1) < 0.05
    assert (config.vrnn.latent_size, config.output_std) == (165, 0.3)


@pytest.mark.parametrize("networks", ["mlp", "conv"])
@pytest.mark.parametrize(("image", "channels"), [((7, 10), 1), ((5, 3), 3), ((8, 8), 3)])
def test_any_frame_fits(networks, image, channels):
    """Frames that are not square, of odd sizes and in colour; grey ones may leave out their channel axis."""
    base = CONV_CONFIG if networks == "conv" else MLP_CONFIG
    model = eqx.filter_eval_shape(VRNN, dataclasses.replace(base, image=image, channels=channels), key=KEY)
    shape = (T, *image, channels) if channels == 3 else (T, *image)
    state, info = eqx.filter_eval_shape(
        lambda model, frames: model.predict(KEY, frames, 2), model, jax.ShapeDtypeStruct(shape, jnp.float32)
    )
    assert info.canvas.shape == (T + 2, *image, channels)
    assert info.objects.what.shape == (T + 2, 1, 3)
    numbers = (info.log_likelihood, info.log_p, info.log_q, info.discovered, info.propagated)
    assert {leaf.shape for leaf in numbers} == {(T + 2,)}
    assert state.temporal.shape == (2, 5)


def test_the_decoder_mirrors_the_encoder():
    """Layer by layer, the transposed CNN passes through the sizes of the CNN in the other direction."""
    model = eqx.filter_eval_shape(VRNN, PRESETS["vrnn-conv-small"].model, key=KEY)

    def sizes(layers, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
        passed = [jax.ShapeDtypeStruct(shape, jnp.float32)]
        for layer in layers:
            passed.append(eqx.filter_eval_shape(lambda layer, x: layer(x), layer, passed[-1]))
        return [array.shape for array in passed]

    maps, *smallest = model.psi_dec.maps
    down, up = sizes(model.psi_x.cnn.layers, (50, 50, 1)), sizes(model.psi_dec.layers, (*smallest, maps))
    assert down == [(50, 50, 1), (25, 25, 32), (13, 13, 32), (7, 7, 64), (4, 4, 64)]
    assert up == [(4, 4, 32), (7, 7, 64), (13, 13, 32), (25, 25, 32), (50, 50, 1)]


# --- the model, written down a second time


def numpy_mlp(mlp: MLP, *inputs: np.ndarray) -> np.ndarray:
    x = np.concatenate(inputs)
    for number, layer in enumerate(mlp.layers, 1):
        x = np.asarray(layer.weight, np.float64) @ x + np.asarray(layer.bias, np.float64)
        x = np.where(x > 0, x, np.expm1(x)) if number < len(mlp.layers) else x
    return x


def numpy_gaussian(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, std = np.split(raw, 2)
    return mean, np.log1p(np.exp(std)) + 0.01


def numpy_lstm(model: VRNN, inputs: np.ndarray, state: tuple[np.ndarray, np.ndarray]):
    h, c = state
    weights = (np.asarray(leaf, np.float64) for leaf in (model.lstm.weight_ih, model.lstm.weight_hh, model.lstm.bias))
    from_input, from_state, bias = weights
    i, f, g, o = np.split(from_input @ inputs + from_state @ h + bias, 4)
    c = expit(f) * c + expit(i) * np.tanh(g)
    return expit(o) * np.tanh(c), c


def test_densities_are_those_of_the_equations():
    """App. D.3 in numpy, with the densities of scipy; the LSTM runs before a frame, as the paper has it."""
    model = build(VRNN, MLP_CONFIG)
    noise = model.noise(jax.random.key(1), T)
    _, info = observe(model, FRAMES, noise)
    psi_x_before, psi_z_before, state = np.zeros(3), np.zeros(3), (np.zeros(5), np.zeros(5))
    for t in range(T):
        x = np.asarray(FRAMES[t], np.float64).reshape(-1)
        state = numpy_lstm(model, np.concatenate([psi_x_before, psi_z_before]), state)
        output = state[0]
        psi_x_before = numpy_mlp(model.psi_x.mlp, x)
        mean, std = numpy_gaussian(numpy_mlp(model.posterior, output, psi_x_before))
        z = mean + std * np.asarray(noise.what[t, 0])
        psi_z_before = numpy_mlp(model.psi_z, z)
        canvas = numpy_mlp(model.psi_dec.mlp, psi_z_before, output)
        expected = {
            "log_q": norm.logpdf(z, mean, std).sum(),
            "log_p": norm.logpdf(z, *numpy_gaussian(numpy_mlp(model.prior, output))).sum(),
            "log_likelihood": norm.logpdf(x, canvas, 1.0).sum(),
        }
        for name, value in expected.items():
            assert float(getattr(info, name)[t]) == pytest.approx(value, rel=1e-4, abs=1e-4), (name, t)
        np.testing.assert_allclose(info.objects.what[t, 0], z, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(np.asarray(info.canvas[t]).reshape(-1), canvas, rtol=1e-4, atol=1e-4)


def test_nothing_is_an_object():
    """No presence, no identity, no density of presence; and what restrains discovery changes nothing."""
    model = build(VRNN, MLP_CONFIG)
    noise = model.noise(jax.random.key(1), T)
    state, info = observe(model, FRAMES, noise)
    absent = (info.objects.pres, info.propagated, info.discovered, info.log_p_presence, info.log_q_presence)
    assert not any(np.any(leaf) for leaf in absent)
    assert np.all(info.objects.identity == -1)
    assert (int(state.born), int(state.time)) == (0, T)
    assert np.std(info.canvas) > 0
    same(
        (state, info),
        observe(model, FRAMES, noise, None, Restraint(jnp.zeros(T), jnp.full(T, 9.0), jnp.full(T, 5.0), jnp.zeros(T))),
        rtol=0,
    )


# --- bounds, dreams, prediction


class FromPrior(eqx.Module):
    """An inference network that looks away: q is p."""

    prior: MLP

    def __call__(self, output, encoding):
        del encoding
        return self.prior(output)


def test_two_inference_networks_agree_on_the_evidence():
    """Where nothing is linear: the weights of q, and the likelihoods under samples of p, have the same mean."""
    model, count = build(VRNN, CONV_CONFIG, scale=0.2), 5000
    blind = eqx.tree_at(lambda it: it.posterior, model, FromPrior(model.prior))
    run = eqx.filter_jit(lambda model, noise: run_particles(model, noise, FRAMES))
    looked, guessed = (
        run(it, draw_particles(it, jax.random.key(seed), count, T)) for it, seed in ((model, 8), (blind, 9))
    )
    np.testing.assert_allclose(guessed.log_p, guessed.log_q, rtol=1e-4, atol=1e-4)
    log_w = np.stack([info.log_weight.sum(1) for info in (looked, guessed)]).astype(np.float64)
    w = np.exp(log_w - log_w.max())
    assert np.all(w.sum(1) ** 2 / (w**2).sum(1) > 0.01 * count)
    assert np.abs(looked.log_p - looked.log_q).mean() > 0.1, "q is not p"
    assert abs(w[0].mean() - w[1].mean()) < 4 * np.sqrt(w.var(1).sum() / count)


def test_prediction_goes_on_from_what_was_observed():
    model, key = build(VRNN, CONV_CONFIG), jax.random.key(11)
    state, both = eqx.filter_jit(lambda model: model.predict(key, FRAMES, 2))(model)
    key_seen, key_dreamt = jax.random.split(key)
    seen_state, seen = observe(model, FRAMES, model.noise(key_seen, T))
    dreamt = eqx.filter_jit(lambda model, state: model.imagine(key_dreamt, 2, state=state))(model, seen_state)
    same(jax.tree.map(lambda leaf: leaf[:T], both), seen, rtol=1e-4, atol=1e-5)
    same((state, jax.tree.map(lambda leaf: leaf[T:], both)), dreamt, rtol=1e-4, atol=1e-5)
    assert int(state.time) == T + 2


def test_a_sequence_may_be_observed_in_parts():
    model = build(VRNN, MLP_CONFIG)
    noise = model.noise(jax.random.key(1), T)
    whole = observe(model, FRAMES, noise)
    state, first = observe(model, FRAMES[:1], jax.tree.map(lambda leaf: leaf[:1], noise))
    state, second = observe(model, FRAMES[1:], jax.tree.map(lambda leaf: leaf[1:], noise), state)
    same((state, jax.tree.map(lambda a, b: jnp.concatenate([a, b]), first, second)), whole, rtol=1e-4, atol=1e-5)


# --- gradients and training


def test_training_follows_the_gradient_of_the_filter():
    """There are no discrete variables, so VIMCO's score terms vanish and what is left is the gradient of FIVO."""
    model, train = build(VRNN, MLP_CONFIG), TrainConfig(bound="fivo", particles=4, clip_frame=0.0)
    (key_noise,), (key_filter,) = jax.vmap(jax.random.split, out_axes=1)(jax.random.split(KEY, 1))
    noise = draw_particles(model, key_noise, 4, T)

    def filtered(model):
        return -particle_filter(model, key_filter, noise, FRAMES, threshold=2.0).log_increment.sum() / T

    def trained(model):
        return batch_loss(model, KEY, FRAMES[None], no_restraint(T), jnp.array(T), train)[0]

    (found, grad), (expected, wanted) = (
        eqx.filter_jit(eqx.filter_value_and_grad(function))(model) for function in (trained, filtered)
    )
    assert float(found) == pytest.approx(float(expected), rel=1e-5)
    for a, b in zip(jax.tree.leaves(grad), jax.tree.leaves(wanted), strict=True):
        assert np.any(b)
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * np.abs(b).max())


def test_the_other_bounds_have_the_same_gradient_as_a_plain_scan():
    """`run_batch` arranges its gradient by itself; o_1 is made of parameters, so the first state has one too."""
    model, length = build(VRNN, MLP_CONFIG), 2
    noise = jax.vmap(lambda key: draw_particles(model, key, 2, T))(jax.random.split(KEY, 1))
    cut = jax.tree.map(lambda leaf: leaf[0, :, :length], noise)

    def arranged(model):
        return run_batch(model, noise, FRAMES[None], no_restraint(T), jnp.array(length)).log_weight.sum()

    def plain(model):
        return run_particles(model, cut, FRAMES[:length]).log_weight.sum()

    found, expected = (eqx.filter_jit(eqx.filter_grad(function))(model) for function in (arranged, plain))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * np.abs(b).max())


def test_every_parameter_has_a_finite_gradient():
    model, train = build(VRNN, CONV_CONFIG), TrainConfig(bound="fivo", particles=2)
    frames, restraint = jnp.stack([FRAMES, FRAMES[::-1]]), no_restraint(T)
    grad = eqx.filter_jit(
        eqx.filter_grad(lambda model: batch_loss(model, KEY, frames, restraint, jnp.array(T), train)[0])
    )(model)
    for path, leaf in jax.tree_util.tree_leaves_with_path(grad):
        assert np.all(np.isfinite(leaf)), jax.tree_util.keystr(path)
        assert np.any(leaf), jax.tree_util.keystr(path)


def test_presets_train_with_fivo():
    """App. D.3; nothing that holds discovery back is left on."""
    for name in PRESETS:
        if name.startswith("vrnn"):
            train = PRESETS[name].train
            check_objective(train)
            assert (train.bound, train.first_length, train.discovery_cost, train.discovery_dropout) == (
                "fivo",
                10,
                0,
                0,
            )
    paper = PAPER_VRNN_RECIPE
    check_objective(paper)
    assert (paper.bound, paper.optimiser, paper.learning_rate, paper.decay) == ("fivo", "rmsprop", 1e-5, ())


def test_layers_need_a_stride_each():
    config = dataclasses.replace(MLP_CONFIG, vrnn=VRNNConfig(features=(2, 3), strides=(1,)))
    with pytest.raises(UserError, match=r"model\.vrnn\.features and model\.vrnn\.strides need one number per layer"):
        check(config, "model.")


# --- commands


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with squares.npz, in which a bright square moves, and a VRNN that was trained on it."""
    folder = tmp_path_factory.mktemp("vrnn")
    frames = np.zeros((40, 4, 8, 9), np.uint8)
    for s in range(40):
        for t in range(4):
            frames[s, t, s % 5 : s % 5 + 3, 1 + t : 4 + t] = 255
    save_sequences(folder / "squares.npz", Sequences(frames, counts=np.ones((40, 4), np.int32)))
    sizes = "--model.width=16 --model.vrnn.latent-size=4 --model.vrnn.layers=1 --train.batch=8 --train.particles=2"
    schedule = "--steps=120 --train.evaluate-every=40 --train.learning-rate=1e-2 --train.warm-up=5"
    words = [*sizes.split(), *schedule.split(), "--train.validation-sequences=4", "--quiet", "--device=cpu"]
    data, out = f"--data={folder / 'squares.npz'}", f"--out={folder / 'model'}"
    assert main(["train", "vrnn-mlp", data, out, *words]) == 0
    return folder


def test_training_raises_the_bound(run):
    lines = [json.loads(line) for line in (run / "model" / "metrics.jsonl").read_text().splitlines()]
    bounds = [line["validation_bound"] for line in lines]
    assert len(bounds) == 3
    assert bounds[-1] > bounds[0] + 5
    assert lines[-1]["train_objects"] == 0


def test_evaluation_counts_nothing(run, capsys):
    words = ["evaluate", str(run / "model"), "--sequences=4", "--particles=3", "--json", "--quiet", "--device=cpu"]
    assert main([*words, f"--out={run / 'numbers'}"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = ("counting", "counting_weighted", "counting_mode", "counting_visible", "rediscoveries_per_frame")
    assert [found[name] for name in names] == [None] * 5
    assert found["reconstruction"] - found["kl"] <= found["log_p"]
    assert 0 < found["ess"] <= 1


def test_samples_are_frames_without_boxes(run):
    words = ["sample", f"--model={run / 'model'}", "--frames=3", "--count=2", "--quiet", "--device=cpu"]
    assert main([*words, f"--out={run / 'dreams'}"]) == 0
    dreams = load_sequences(run / "dreams" / "samples.npz")
    assert dreams.frames.shape == (2, 3, 8, 9)
    assert (dreams.counts, dreams.boxes, dreams.ids) == (None, None, None)
    written = {path.name for path in (run / "dreams").iterdir()}
    assert written == {"index.html", "samples.gif", "samples.mp4", "samples.npz", "samples.png"}


def test_a_demo_needs_objects(run, capsys):
    assert main(["demo", f"--model={run / 'model'}", f"--out={run / 'demo'}", "--quiet", "--device=cpu"]) == 1
    assert "has no objects to show" in capsys.readouterr().err

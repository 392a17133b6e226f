"""SQAIR as a whole: parts of a sequence, dreams with births and deaths, every switch, the caller's transformations."""

import dataclasses
import functools
import typing
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_batching import custom_vmap

from sqair.config import AUTHORS_SWITCHES, ConvConfig, ModelConfig
from sqair.model import SQAIR, Restraint, no_restraint
from sqair.particles import run_batch, run_particles, summarise

T = 4
TINY = ModelConfig(image=(6, 9), glimpse=(4, 3), max_objects=2, what_size=2, width=5)
"""Neither the frame nor the glimpse is square."""


@functools.cache
def make(config=TINY, seed=0, scale=0.5):
    """A model whose every parameter is random, so that births and deaths are likely and no gradient is zero."""
    shapes = eqx.filter_eval_shape(SQAIR, config, key=jax.random.key(0))
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(scale * rng.normal(size=leaf.shape), leaf.dtype), shapes)


def film(config=TINY, seed=1):
    return jnp.asarray(np.random.default_rng(seed).random((T, *config.image, config.channels), np.float32))


@eqx.filter_jit
def observe(model, frames, noise, state, restraint=None):
    return model.observe(None, frames, noise=noise, state=state, restraint=restraint)


def cut(tree, start, stop):
    return jax.tree.map(lambda leaf: leaf[start:stop], tree)


def join(first, second):
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), first, second)


def assert_close(left, right, rtol=1e-5, atol=1e-5):
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def assert_same(left, right):
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert np.array_equal(a, b)


@pytest.fixture(scope="module")
def whole():
    """A sequence observed at once: its noise, final state and Info."""
    noise = make().noise(jax.random.key(5), T)
    return noise, *observe(make(), film(), noise, make().initial())


# --- parts of a sequence


def test_a_sequence_in_two_parts_is_the_sequence(whole):
    """Also: no restraint is the default."""
    noise, final, info = whole
    state, first = observe(make(), film()[:2], cut(noise, 0, 2), make().initial(), restraint=no_restraint(2))
    state, second = observe(make(), film()[2:], cut(noise, 2, T), state, restraint=no_restraint(2))
    assert_close((state, join(first, second)), (final, info))
    assert info.propagated.sum() > 0


def test_a_batch_is_its_sequences_cut_to_a_length(whole):
    """What training runs, `run_batch`, gives the numbers of each particle of each sequence, and zeros beyond."""
    noise, _, info = whole
    other = make().noise(jax.random.key(6), T)
    expected = [summarise(observe(make(), film(), each, make().initial())[1]) for each in (noise, other)]
    several = jax.tree.map(lambda a, b: jnp.stack([jnp.stack([a, b])] * 2), noise, other)
    frames = jnp.stack([film(), film()])
    run = eqx.filter_jit(run_batch)
    for length in (0, 1, 3, T):
        found = run(make(), several, frames, no_restraint(T), jnp.array(length))
        for particle, single in enumerate(expected):
            for sequence in range(2):
                of_one = jax.tree.map(lambda leaf, s=sequence, k=particle: leaf[s, k], found)
                assert_close(cut(of_one, 0, length), cut(single, 0, length))
                assert not any(np.any(leaf) for leaf in jax.tree.leaves(cut(of_one, length, T)))
    assert info.propagated.sum() > 0


def test_prediction_is_observation_and_then_imagination():
    """Also: the key alone decides, and a dream goes on with the objects that were seen."""
    model, key = make(), jax.random.key(7)
    state, info = eqx.filter_jit(lambda model: model.predict(key, film(), 3))(model)
    key_seen, key_dreamt = jax.random.split(key)
    seen_state, seen = observe(model, film(), model.noise(key_seen, T), model.initial())
    dreamt_state, dreamt = eqx.filter_jit(lambda model, state: model.imagine(key_dreamt, 3, state=state))(
        model, seen_state
    )
    assert_close((state, info), (dreamt_state, join(seen, dreamt)))
    assert int(state.time) == T + 3
    assert not np.any(info.log_likelihood[T:])
    assert np.all(info.log_likelihood[:T] != 0)


def test_a_key_is_needed_where_no_noise_is_given():
    with pytest.raises(ValueError, match="a key is needed"):
        make().observe(None, film())


# --- births and deaths


def with_fates(births, survival):
    """A model in which one object is born at each frame with room for it, or none; and objects live on, or do not."""
    model, certain = make(), 100.0
    table = jnp.zeros((3, 3)).at[:, 1 if births else 0].set(certain)
    weights = (jnp.zeros_like(model.propagation_prior.to_survival.weight), jnp.array([survival * certain]))
    return eqx.tree_at(
        lambda it: (
            it.discovery_prior.count.first,
            it.discovery_prior.count.later,
            it.propagation_prior.to_survival.weight,
            it.propagation_prior.to_survival.bias,
        ),
        model,
        (table[0], table, *weights),
    )


@functools.cache
def dreamer():
    return eqx.filter_jit(lambda model, key: model.imagine(key, T)[1])


@pytest.mark.parametrize(
    ("births", "survival", "identities"),
    [
        (True, 1, [[0, -1], [0, 1], [0, 1], [0, 1]]),
        (True, -1, [[0, -1], [1, -1], [2, -1], [3, -1]]),
        (False, 1, [[-1, -1]] * 4),
    ],
    ids=["all are born and none dies", "all are born and die at once", "none is born"],
)
def test_births_and_deaths_occur_in_dreams(births, survival, identities):
    info = dreamer()(with_fates(births, survival), jax.random.key(0))
    assert info.objects.identity.tolist() == identities
    np.testing.assert_allclose(info.log_p_presence, 0, atol=1e-4)


def test_births_and_deaths_occur_in_predictions():
    predict = eqx.filter_jit(lambda model, key: model.predict(key, film()[:1], 3)[1])
    info = predict(with_fates(True, -1), jax.random.key(0))
    seen = int(info.discovered[0])
    assert info.objects.identity[1:].tolist() == [[seen, -1], [seen + 1, -1], [seen + 2, -1]]
    stays = predict(with_fates(False, 1), jax.random.key(0))
    assert np.array_equal(stays.objects.identity[1:], np.tile(stays.objects.identity[0], (3, 1)))


# --- switches


SWITCHES = {
    name: typing.get_args(hint) if typing.get_origin(hint) is Literal else (False, True)
    for name, hint in typing.get_type_hints(ModelConfig).items()
    if name != "kind" and (hint is bool or typing.get_origin(hint) is Literal)
}
"""Every field of ModelConfig that is a choice, but for kind, which names the class."""

CONV = ConvConfig(
    features=(2, 3), strides=(2, 1), decoder_hidden=4, decoder_maps=2, decoder_features=(3, 2), decoder_strides=(2, 2)
)
AUTHORS = dataclasses.replace(TINY, **AUTHORS_SWITCHES)
VARIANTS = {
    "ours": TINY,
    "before a learned background": dataclasses.replace(TINY, background="learned"),
    "authors, with a projection of the frame": dataclasses.replace(AUTHORS, proposal="projection"),
    "convolutional, in colour, fixed and absolute": dataclasses.replace(
        AUTHORS,
        networks="conv",
        conv=CONV,
        channels=3,
        image=(7, 5),
        glimpse=(3, 5),
        where_prior="fixed",
        what_update="absolute",
        proposal="low-resolution",
        relation="none",
        learn_output_std=True,
    ),
}
WITHOUT_PARAMETERS = {("proposal", "none"), ("proposal", "image"), ("background", "running")}
"""Values of switches without parameters of their own; test_propagation.py and test_model_background.py have them."""


def test_the_variants_hold_every_value_of_every_switch():
    """So that a new switch cannot be forgotten below."""
    for name, values in SWITCHES.items():
        needed = {value for value in values if (name, value) not in WITHOUT_PARAMETERS}
        assert {getattr(config, name) for config in VARIANTS.values()} == needed, name


def objective(model, noise, frames):
    """Depends on all that training differentiates: log w, and log q of the presences apart from it."""
    info = model.observe(None, frames, noise=noise)[1]
    return info.log_weight.sum() + 3 * info.log_q_presence.sum(), info


def full_life(config):
    """A path in which all slots are filled in the first frame, the last is lost in the second, and found again."""
    path, slots = np.zeros((T, 2, config.max_objects), np.float32), config.max_objects
    path[0, 1] = 1
    path[1, 0, : slots - 1] = 1
    path[2, 0, : slots - 1] = 1
    path[2, 1, 0] = 1
    path[3, 0] = 1
    return jnp.asarray(path)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_switch_runs_and_reaches_every_parameter(name):
    """Weights and gradients are finite, and every parameter has a gradient but for those of a fixed prior."""
    config = VARIANTS[name]
    model, frames = make(config, scale=0.3), film(config)
    noise = model.noise(jax.random.key(0), T)._replace(forced=full_life(config))
    (_, info), gradient = eqx.filter_jit(eqx.filter_value_and_grad(objective, has_aux=True))(model, noise, frames)
    assert np.all(np.isfinite(info.log_weight))
    assert info.canvas.shape == frames.shape
    still = set()
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        assert np.all(np.isfinite(leaf)), jax.tree_util.keystr(path)
        if not np.any(leaf):
            still.add(jax.tree_util.keystr(path))
    where = ".discovery_prior.where."
    assert still == ({where + "mean", where + "raw_std"} if config.where_prior == "fixed" else set())


OTHERS = [(name, value) for name, values in SWITCHES.items() for value in values if value != getattr(TINY, name)]


@pytest.mark.parametrize(("name", "value"), OTHERS)
def test_every_switch_fits_alone(name, value):
    """Built and traced, not run: each value in a model that has the defaults elsewhere."""
    config = dataclasses.replace(TINY, conv=CONV, **{name: value})
    model = eqx.filter_eval_shape(SQAIR, config, key=jax.random.key(0))
    frames = jax.ShapeDtypeStruct((2, *config.image, config.channels), jnp.float32)
    _, info = eqx.filter_eval_shape(lambda model, frames: model.observe(jax.random.key(0), frames), model, frames)
    assert info.canvas.shape == frames.shape
    assert info.log_p.shape == info.log_q.shape == (2,)


# --- the caller's transformations


class Recorder(eqx.Module):
    """An image encoder that notes every axis a vmap adds to its input."""

    axes: list[int] = eqx.field(static=True)
    width: int = eqx.field(static=True)

    def __call__(self, x):
        @custom_vmap
        def encode(x):
            return jnp.repeat(x.mean(-1, keepdims=True), self.width, -1)

        @encode.def_vmap
        def note(axis_size, in_batched, x):
            self.axes.append(axis_size)
            return encode(x), in_batched[0]

        return encode(x)


def axes_of_the_image_encoder(run):
    """The sizes of the axes over which `run` maps the encoder of frames."""
    recorder = Recorder([], TINY.width)
    jax.eval_shape(lambda: run(eqx.tree_at(lambda it: it.encoders.to_image, make(), recorder)))
    return recorder.axes


def test_a_frame_is_encoded_once_and_not_for_every_particle():
    """The encoder sees the axis of the frames, never that of 7 particles; of 7 sequences it must see both."""
    noise = jax.vmap(lambda key: make().noise(key, T))(jax.random.split(jax.random.key(0), 7))
    assert axes_of_the_image_encoder(lambda model: run_particles(model, noise, film())) == [T]
    sequences = jnp.tile(film(), (7, 1, 1, 1, 1))
    each = jax.vmap(lambda model, noise, frames: model.observe(None, frames, noise=noise), in_axes=(None, 0, 0))
    assert axes_of_the_image_encoder(lambda model: each(model, noise, sequences)) == [T, 7]


def test_the_same_key_gives_the_same_bits(whole):
    noise, *result = whole
    assert_same(make().noise(jax.random.key(5), T), noise)
    assert_same(observe(make(), film(), noise, make().initial()), tuple(result))
    assert not np.array_equal(make().noise(jax.random.key(6), T).what, noise.what)


def test_the_model_needs_no_jit(whole):
    """A step, operation by operation, is what the compiled scan made of it."""
    noise, _, info = whole
    model = make()
    before, _ = observe(model, film()[:2], cut(noise, 0, 2), model.initial(), restraint=no_restraint(2))
    encoding = model.encode(film())[2]
    restraint = Restraint(jnp.ones(()), jnp.zeros(()), jnp.zeros(()), jnp.ones(()))
    _, found = model.step(before, film()[2], encoding, jax.tree.map(lambda leaf: leaf[2], noise), restraint)
    assert_close(found, jax.tree.map(lambda leaf: leaf[2], info))


def test_a_batch_is_its_sequences():
    """Also: grey frames may leave out the channel axis."""
    films = jnp.stack([film(seed=seed) for seed in range(3)])
    noises = jax.vmap(lambda key: make().noise(key, T))(jax.random.split(jax.random.key(0), 3))
    together = eqx.filter_vmap(observe, in_axes=(None, 0, 0, None))(make(), films[..., 0], noises, make().initial())
    for i in range(3):
        one = observe(make(), films[i], jax.tree.map(lambda leaf, i=i: leaf[i], noises), make().initial())
        assert_close(jax.tree.map(lambda leaf, i=i: leaf[i], together), one, atol=1e-4)

"""Networks in blocks give what they give at once, and empty slots are not decoded."""

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sqair.baselines.vrnn import FrameDecoder
from sqair.config import ConvConfig, ModelConfig, VRNNConfig
from sqair.convolutions import Convolution, TransposedConvolution
from sqair.evaluation import blocks as module
from sqair.evaluation.blocks import InBlocks, InHalf, Native, in_blocks, native, run_all, run_used
from sqair.evaluation.evaluate import evenly
from sqair.evaluation.likelihood import posterior
from sqair.model import SequenceModel
from sqair.networks import CNN, SubpixelDecoder
from sqair.particles import draw_particles, particle_filter
from sqair.training.checkpoint import build

CONV = ConvConfig(
    features=(2, 3), strides=(2, 2), decoder_hidden=5, decoder_maps=2, decoder_features=(3, 2), decoder_strides=(1, 2)
)
MODEL = ModelConfig(
    image=(10, 10),
    glimpse=(4, 4),
    max_objects=2,
    what_size=3,
    width=8,
    networks="conv",
    conv=CONV,
    vrnn=VRNNConfig(latent_size=4, layers=1, features=(2, 3), strides=(2, 2), decoder_maps=2),
    output_std=0.8,
    discovery_bias=0.3,
    propagation_bias=1.0,
)
SLOTS = 7
USED = {"none": [], "all": range(SLOTS), "first": [0], "last": [6], "some": [1, 2, 5]}


@pytest.fixture(scope="module")
def decoder() -> SubpixelDecoder:
    return SubpixelDecoder(MODEL, key=jax.random.key(1))


def slots_with(used: list[int]) -> jax.Array:
    """What of some slots; the others hold zeros."""
    what = jax.random.normal(jax.random.key(2), (SLOTS, MODEL.what_size))
    return jnp.where(jnp.isin(jnp.arange(SLOTS), jnp.array(used, int))[:, None], what, 0.0)


@pytest.mark.parametrize("block", [1, 3, 7, 8, 20])
def test_the_glimpses_are_those_of_the_decoder(decoder: SubpixelDecoder, block: int) -> None:
    run = jax.jit(partial(run_used, decoder, block=block))
    every = jax.jit(jax.vmap(decoder))
    for used in USED.values():
        what = slots_with(list(used))
        np.testing.assert_allclose(run(what), every(what), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("block", [1, 3, 7, 20])
def test_networks_of_several_inputs(block: int) -> None:
    network = FrameDecoder(dataclasses.replace(MODEL, kind="vrnn"), key=jax.random.key(1))
    inputs = [jax.random.normal(jax.random.key(size), (SLOTS, size)) for size in (4, 8)]
    found = jax.jit(partial(run_all, network, block=block))(*inputs)
    np.testing.assert_allclose(found, jax.vmap(network)(*inputs), rtol=1e-5, atol=1e-6)
    shared = jax.vmap(InBlocks(network, block), in_axes=(0, None))(inputs[0], inputs[1][0])
    np.testing.assert_allclose(
        shared, jax.vmap(network, in_axes=(0, None))(inputs[0], inputs[1][0]), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("shape", [(7, 8), (6, 5)])
@pytest.mark.parametrize("stride", [1, 2])
def test_native_layers_are_ours(shape: tuple[int, int], stride: int) -> None:
    key, (rows, columns) = jax.random.key(0), shape
    small = -(-rows // stride), -(-columns // stride)
    there = Convolution(2, 3, stride=stride, key=key)
    back = TransposedConvolution(3, 2, stride=stride, shape=shape, key=key)
    for layer, size in ((there, (*shape, 2)), (back, (*small, 3))):
        x = jax.random.normal(key, size)
        changed = native([layer])[0]
        assert isinstance(changed, Native)
        np.testing.assert_allclose(changed(x), layer(x), rtol=1e-4, atol=1e-5)
    few = Convolution(9, 1, key=key)
    assert native(few) is few


class Counting(SubpixelDecoder):
    """Tells how many slots it was given."""

    def __init__(self) -> None:
        super().__init__(MODEL, key=jax.random.key(1))

    def __call__(self, what: jax.Array) -> jax.Array:
        jax.debug.callback(lambda _: SEEN.append(1), what[0])
        return super().__call__(what)


SEEN: list[int] = []


@pytest.mark.parametrize(("used", "blocks"), [("none", 1), ("first", 1), ("some", 2), ("all", 3)])
def test_empty_slots_are_not_decoded(used: str, blocks: int) -> None:
    """One row more than there are objects, and what fills the last block."""
    SEEN.clear()
    jax.block_until_ready(run_used(Counting(), slots_with(list(USED[used])), block=3))
    jax.effects_barrier()
    assert len(SEEN) == 3 * blocks


def test_all_mapped_axes_are_one_list(decoder: SubpixelDecoder) -> None:
    SEEN.clear()
    sparse = InBlocks(Counting(), 4, skips_zeros=True)
    what = slots_with([1, 2, 5])[:6].reshape(3, 2, -1)
    found = jax.jit(jax.vmap(jax.vmap(sparse), in_axes=1, out_axes=1))(what)
    jax.effects_barrier()
    assert len(SEEN) == 4, "three objects and the row of zeros fill one block"
    np.testing.assert_allclose(found, jax.vmap(jax.vmap(decoder))(what), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["sqair", "air", "vrnn"])
def test_posterior_and_filter_are_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GLIMPSES", {"cpu": 4})
    monkeypatch.setattr(module, "FRAMES", 4)
    model = build(dataclasses.replace(MODEL, kind=kind), jax.random.key(3))
    frames = jax.random.uniform(jax.random.key(4), (3, 2, 10, 10, 1))
    keys = jax.random.split(jax.random.key(5), 3)

    @eqx.filter_jit
    def run(model: SequenceModel) -> tuple:
        noise = jax.vmap(lambda key: draw_particles(model, key, 5, 2))(keys)
        filtered = jax.vmap(partial(particle_filter, model))(keys, noise, frames)
        found = jax.vmap(lambda key, x: posterior(model, key, x, 5, 2))(keys, frames)
        return found, filtered.log_increment, filtered.info.canvas, filtered.info.objects.pres

    in_parts = in_blocks(model)
    nodes = jax.tree.leaves(in_parts, is_leaf=lambda it: isinstance(it, InBlocks))
    assert sum(isinstance(node, InBlocks) for node in nodes) == 2, "an encoder and a decoder"
    plain, blocks = run(model), run(in_parts)
    assert kind == "vrnn" or 0 < plain[-1].mean() < 1, "some slots are empty, some are not"
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(blocks), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
@pytest.mark.parametrize("change", [{"networks": "mlp"}, {"kind": "vrnn", "networks": "mlp"}])
def test_other_models_stay(change: dict[str, str], backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(dataclasses.replace(MODEL, **change), jax.random.key(0))
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    assert in_blocks(model) is model


def nodes_of(model: Any, *kinds: type) -> list[Any]:
    """The parts of these kinds, each with what is in it."""
    leaves = jax.tree.leaves(model, is_leaf=lambda it: isinstance(it, kinds))
    return [node for node in leaves if isinstance(node, kinds)]


def on_gpu(model: SequenceModel, monkeypatch: pytest.MonkeyPatch) -> SequenceModel:
    """The model as it is made ready on a GPU; here it runs, too."""
    with monkeypatch.context() as patch:
        patch.setattr(jax, "default_backend", lambda: "gpu")
        return in_blocks(model)


@pytest.mark.parametrize("kind", ["sqair", "air", "vrnn"])
def test_on_a_cpu_weights_stay(kind: str) -> None:
    model = build(dataclasses.replace(MODEL, kind=kind), jax.random.key(3))
    changed = in_blocks(model)
    assert not nodes_of(changed, InHalf)
    assert len(nodes_of(changed, Native)) == (4 if kind == "vrnn" else 0)
    kept = jax.tree.map(lambda a, b: a is b, jax.tree.leaves(model), jax.tree.leaves(changed))
    assert all(kept)


@pytest.mark.parametrize("kind", ["sqair", "air", "vrnn"])
def test_on_a_gpu_convolutions_alone_are_halved(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(dataclasses.replace(MODEL, kind=kind), jax.random.key(3))
    changed = on_gpu(model, monkeypatch)
    blocks, halves = nodes_of(changed, InBlocks), nodes_of(changed, InHalf)
    assert [block.skips_zeros for block in blocks] == [True] * (kind != "vrnn"), "only the decoder of glimpses"
    assert len(halves) == 2, "an encoder and a decoder"
    layers = nodes_of(changed, Convolution, TransposedConvolution)
    assert len(layers) == len(nodes_of(model, Convolution, TransposedConvolution)) == (4 if kind == "vrnn" else 5)
    assert {leaf.dtype for leaf in jax.tree.leaves(layers)} == {jnp.dtype(jnp.float16)}
    number = sum(leaf.dtype == jnp.float16 for leaf in jax.tree.leaves(changed))
    assert number == 2 * len(layers), "weights and biases of these, and of nothing else"


@pytest.mark.parametrize("kind", ["sqair", "air", "vrnn"])
def test_half_precision_is_near(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a model says of a clip has its 32 bits, and three digits of it stay."""
    model = build(dataclasses.replace(MODEL, kind=kind), jax.random.key(3))
    frames = jax.random.uniform(jax.random.key(4), (2, 10, 10, 1))
    noise = draw_particles(model, jax.random.key(5), 4, 2)

    @eqx.filter_jit
    def run(model: SequenceModel) -> Any:
        return jax.vmap(lambda each: model.observe(None, frames, noise=each))(noise)

    whole, near = (jax.tree.leaves(run(each)) for each in (model, on_gpu(model, monkeypatch)))
    assert [leaf.dtype for leaf in near] == [leaf.dtype for leaf in whole]
    for one, other in zip(whole, near, strict=True):
        np.testing.assert_allclose(other, one, rtol=2e-3, atol=2e-3)
    assert any(np.any(one != other) for one, other in zip(whole, near, strict=True))


@pytest.mark.parametrize("which", ["encoder", "glimpses", "frames"])
def test_halved_networks_give_32_bits(which: str, decoder: SubpixelDecoder) -> None:
    config = dataclasses.replace(MODEL, kind="vrnn")
    network, sizes = {
        "encoder": (CNN(1, (2, 3), (2, 2), key=jax.random.key(1)), [(10, 10, 1)]),
        "glimpses": (decoder, [(3,)]),
        "frames": (FrameDecoder(config, key=jax.random.key(1)), [(4,), (8,)]),
    }[which]
    inputs = [jax.random.normal(jax.random.key(2), size) for size in sizes]
    found, wanted = InHalf(network)(*inputs), network(*inputs)
    assert found.dtype == jnp.float32
    assert InHalf(network).network(*inputs).dtype == jnp.float16
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-3 * float(jnp.abs(wanted).max()))
    assert (found != wanted).any()


def test_several_networks_are_refused(decoder: SubpixelDecoder) -> None:
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), InBlocks(decoder, 3))
    with pytest.raises(NotImplementedError, match="several networks"):
        jax.vmap(lambda it, what: it(what))(several, jnp.ones((2, 3)))


@pytest.mark.parametrize(
    ("total", "most", "size"), [(50, 16, 13), (200, 32, 29), (5, 10, 5), (7, 7, 7), (8, 7, 4), (3, 0, 1), (0, 5, 1)]
)
def test_parts_are_even(total: int, most: int, size: int) -> None:
    assert evenly(total, most) == size

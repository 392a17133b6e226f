"""Tracking as a compiled program: particles that follow a clip, and what is said of a frame once its future was seen.

One particle is the mode of q: no noise, an object is there if its probability is above one half. Several are a particle
filter: they are weighted by p over q, resampled when few of them count, and frame t is told when t + lag has been seen,
from the history of the best particle. What was told is final: particles with another history of frame t are dropped,
so that an identity never changes its meaning.

A model that was trained on objects that last does not let go of one that is gone. So each object is held against the
frame: one without which the frame were more likely is *doubted*. While it is, it is out of sight: it keeps its identity
and has no box; after `PATIENCE` frames in a row it is gone, and its slot is free. With `evidence` more is asked of an
object, and frames are looked at again for what was missed (renewal.py).

Axes: K particles, L frames of history, N slots, W what, Y, X, C frame, G, J glimpse.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt8
from numpy import ndarray

from sqair.data.backdrops import with_surroundings
from sqair.distributions import Noise
from sqair.image import VISIBLE, ImageModel, tight_boxes
from sqair.model import SequenceModel, no_restraint
from sqair.objects import Objects, State
from sqair.particles import draw_particles, resample
from sqair.tracking.renewal import belongings, moved_up, renewed, still, supported, worth

IN_SIGHT = 0.15
"""An object of whose box less lies in the frame is out of sight: it keeps its identity and has no box, since of such
slivers nobody could tell where they are. Chosen on validation sequences (docs/decisions.md)."""
MARGIN = 1.0
"""Nats by which a frame must be more likely without an object before it is doubted."""
PATIENCE = 3
"""Doubted frames in a row after which an object is gone."""
FEW = 0.5
"""Particles are resampled when fewer than this share of them count."""


class Settings(NamedTuple):
    """What decides about a tracking program, besides the model."""

    particles: int = 1
    lag: int = 0
    pictures: bool = False
    """Whether to draw canvases and glimpses, too."""
    evidence: float = 0.0
    """Nats that an object must be worth; 0 asks for none and leaves all finding to q."""
    visible: float = VISIBLE
    """Share of a glimpse's maximum from which on a pixel is in the object's box."""


class Record(NamedTuple):
    """What a particle remembers of a frame."""

    objects: Objects
    doubted: Int[Array, "*K N"]
    """Frames in a row that spoke against the object."""
    presence: Float[Array, "*K N"]
    spread: Float[Array, "*K N"]
    error: Float[Array, "*K"]
    who: Int[Array, "*K"]
    """Which particle it was then."""
    background: Float[Array, "*K Y X C"] | None = None
    """What was behind the objects; None where that is black, or no pictures are drawn."""


class Memory(NamedTuple):
    """All that the next frame needs to know of the past."""

    state: State
    doubted: Int[Array, "K N"]
    log_weight: Float[Array, " K"]
    standing: Float[Array, " K"]
    """The log weight before the latest resampling, after which all are alike."""
    history: Record
    """With axes (K, L, ...), L = lag + 1; the newest frame is the last."""


class Found(NamedTuple):
    """What is told of a frame, on the device or in numpy."""

    objects: Objects
    box: Float[Array | ndarray, "*T N 4"]
    """Tight boxes in pixels of the model's frame; NaN where absent or out of sight."""
    where_box: Float[Array | ndarray, "*T N 4"]
    """The windows of the glimpses, likewise; NaN where absent."""
    presence: Float[Array | ndarray, "*T N"]
    """Share of the particles, by weight, that have the object; NaN with one particle."""
    spread: Float[Array | ndarray, "*T N"]
    """Standard deviation of its centre over those, in pixels of the model's frame; NaN with one particle."""
    error: Float[Array | ndarray, "*T"]
    """Mean squared error of the canvas."""
    canvas: UInt8[Array | ndarray, "*T Y X C"] | None
    glimpses: UInt8[Array | ndarray, "*T N G J C"] | None


def first_memory(model: SequenceModel, settings: Settings) -> Memory:
    """Before the first frame."""
    count, length = settings.particles, settings.lag + 1
    state = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), model.initial())
    slots, even = jnp.zeros_like(state.objects.pres), jnp.full(count, -jnp.log(count))
    doubted, none = slots.astype(int), jnp.zeros(count)
    behind = jnp.zeros((count, *model.config.image, model.config.channels)) if shows_behind(model, settings) else None
    record = Record(state.objects, doubted, slots, slots, none, none.astype(int), behind)
    history = jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], length, 1), record)
    memory = Memory(state, doubted, even, even, history)
    # Numbers given in Python are weakly typed; those of later frames are not, and would make jax compile anew.
    return jax.tree.map(lambda leaf: leaf.astype(leaf.dtype), memory)


def shows_behind(model: SequenceModel, settings: Settings) -> bool:
    """Whether what was behind the objects must be remembered, to draw it."""
    return settings.pictures and model.config.background != "none"


def follow(
    model: SequenceModel,
    settings: Settings,
    key: PRNGKeyArray,
    memory: Memory,
    frames: UInt8[Array, "T Y X C"],
    count: Int[Array, ""],
    around: Float[Array, "Y X D"] | None = None,
) -> tuple[Memory, Found]:
    """Go through the first `count` of some frames; entry t of `Found` is about the frame `lag` before frame t.

    `around` is what the frames of a model with a background bring along (data/backdrops.py).

    Randomness depends on the key and the number of the frame since the start: how frames are divided does not matter.
    """
    pixels = frames.astype(jnp.float32) / 255.0
    if around is not None:
        pixels = with_surroundings(pixels[None], around[None])[0]

    def advance(memory: Memory, now: tuple) -> tuple[Memory, Found]:
        number, x, encoding = now
        after, record = step(model, settings, key, memory, x, encoding)
        memory = jax.tree.map(lambda new, old: jnp.where(number < count, new, old), after, memory)
        return memory, tell(model, settings, record)

    return jax.lax.scan(advance, memory, (jnp.arange(len(frames)), pixels, model.encode(pixels)))


def step(
    model: SequenceModel,
    settings: Settings,
    key: PRNGKeyArray,
    memory: Memory,
    x: Float[Array, "Y X C"],
    encoding: Float[Array, " H"],
) -> tuple[Memory, Record]:
    """One frame; also the record of the frame `lag` before it, from the best particle's history."""
    alone = settings.particles == 1
    noise = draw(model, settings, key, memory.state.time[0])
    moved = jax.vmap(model.step, in_axes=(0, None, None, 0, None))
    restraint = jax.tree.map(lambda leaf: leaf[0], no_restraint(1))
    before = memory.state.objects.identity
    state, info = moved(memory.state, x, encoding, noise, restraint)
    picture = x[..., : model.config.channels]
    doubts = jax.vmap(lambda *of: count_doubts(model.image, picture, settings, *of))  # type: ignore[attr-defined]
    state, doubted = jax.vmap(let_go)(state, doubts(state.objects, before, memory.doubted, info.background))
    canvas = info.canvas
    if settings.evidence > 0:
        state, doubted = jax.vmap(partial(renewed, model, settings.evidence, x))(state, doubted, info.background)
        canvas = jax.vmap(model.image.canvas)(state.objects, info.background)  # type: ignore[attr-defined]
    error = jnp.square(canvas - picture).mean((1, 2, 3))
    log_weight = memory.log_weight if alone else jax.nn.log_softmax(memory.log_weight + info.log_weight)
    presence, spread = agreement(model.image, state.objects, jnp.exp(log_weight), alone)  # type: ignore[attr-defined]
    behind = info.background if shows_behind(model, settings) else None
    record = Record(state.objects, doubted, presence, spread, error, jnp.arange(settings.particles), behind)
    history = jax.tree.map(lambda old, new: jnp.concatenate([old[:, 1:], new[:, None]], 1), memory.history, record)
    told = jax.tree.map(lambda leaf: leaf[jnp.argmax(log_weight), 0], history)
    memory = Memory(state, doubted, log_weight, log_weight, history)
    return memory if alone else choose(memory, settings, told, key), told


def draw(model: SequenceModel, settings: Settings, key: PRNGKeyArray, time: Int[Array, ""]) -> Noise:
    """The noise of all particles for one frame; none at all for a single one."""
    noise = draw_particles(model, jax.random.fold_in(key, 2 * time), settings.particles, 1)
    noise = jax.tree.map(lambda leaf: leaf[:, 0], noise)
    return noise if settings.particles > 1 else still(noise)


def choose(memory: Memory, settings: Settings, told: Record, key: PRNGKeyArray) -> Memory:
    """Drop the particles that contradict what was told, and resample if few of the rest count."""
    time, count = memory.state.time[0], settings.particles
    agrees = (memory.history.who[:, 0] == told.who) | (time <= settings.lag)
    log_weight = jax.nn.log_softmax(jnp.where(agrees, memory.log_weight, -jnp.inf))
    size = jnp.exp(-jax.nn.logsumexp(2 * log_weight))
    uniform = jax.random.uniform(jax.random.fold_in(key, 2 * time + 1))
    needed = size < FEW * count
    ancestors = jnp.where(needed, resample(uniform, log_weight), jnp.arange(count))
    state, doubted, standing, history = jax.tree.map(
        lambda leaf: leaf[ancestors], (memory.state, memory.doubted, log_weight, memory.history)
    )
    return Memory(state, doubted, jnp.where(needed, -jnp.log(count), log_weight), standing, history)


# --- objects that the frame speaks against


def count_doubts(
    image: ImageModel,
    x: Float[Array, "Y X C"],
    settings: Settings,
    objects: Objects,
    before: Int[Array, " N"],
    doubted: Int[Array, " N"],
    background: Float[Array, "Y X C"] | None = None,
) -> Int[Array, " N"]:
    """For each object the frames in a row that spoke against it; `before` are the last identities."""
    same = (objects.identity[:, None] == before) & (objects.pres[:, None] > 0)
    if settings.evidence > 0:
        is_against = supported(image, x, objects, settings.evidence, background) < objects.pres
    else:
        is_against = worth(image, x, objects, background) < -MARGIN
    return jnp.where(is_against, 1 + jnp.where(same, doubted, 0).sum(1), 0)


def let_go(state: State, doubted: Int[Array, " N"]) -> tuple[State, Int[Array, " N"]]:
    """The state without the objects that were doubted for too long; the others move up, with their doubts."""
    held = belongings(state, doubted)
    held = held._replace(pres=jnp.where(doubted >= PATIENCE, 0.0, held.pres))
    return moved_up(state, held, jax.tree.map(jnp.zeros_like, held))


# --- what the particles agree on


def agreement(
    image: ImageModel, objects: Objects, weight: Float[Array, " K"], alone: bool
) -> tuple[Float[Array, "K N"], Float[Array, "K N"]]:
    """Of each object of each particle: the share of all that have it, and how far their centres scatter."""
    if alone:
        unknown = jnp.full_like(objects.pres, jnp.nan)
        return unknown, unknown
    boxes = image.transformer.boxes(objects.where)
    centres = boxes[..., :2] + boxes[..., 2:] / 2
    same = objects.identity[:, :, None, None] == objects.identity
    share = jnp.where(same & (objects.pres > 0), weight[:, None], 0.0)  # (K, N, K, N)
    presence = share.sum((2, 3))
    part = share / jnp.maximum(presence, 1e-6)[..., None, None]
    mean = jnp.einsum("knjm,jmd->knd", part, centres)
    scatter = jnp.square(centres - mean[:, :, None, None]).sum(-1)
    return jnp.clip(presence, 0.0, 1.0), jnp.sqrt((part * scatter).sum((2, 3)))


# --- results


def tell(model: SequenceModel, settings: Settings, record: Record) -> Found:
    """What a record says, with boxes, and pictures if they are wanted."""
    image: ImageModel = model.image  # type: ignore[attr-defined]
    objects = record.objects
    here, alone = objects.pres > 0, jax.tree.map(lambda leaf: leaf[None], objects)
    box = jax.tree.map(lambda leaf: leaf[0], tight_boxes(image, alone, IN_SIGHT, settings.visible))
    box = jnp.where((record.doubted > 0)[:, None], jnp.nan, box)
    where_box = jnp.where(here[:, None], image.transformer.boxes(objects.where), jnp.nan)
    canvas = glimpses = None
    if settings.pictures:
        canvas = to_bytes(image.canvas(objects, record.background))
        glimpses = to_bytes(image.glimpses(objects.what))
    return Found(objects, box, where_box, record.presence, record.spread, record.error, canvas, glimpses)


def to_bytes(pixels: Float[Array, "*axes"]) -> UInt8[Array, "*axes"]:
    """Brightness from 0 to 1 as bytes."""
    return jnp.round(jnp.clip(pixels, 0.0, 1.0) * 255).astype(jnp.uint8)


@eqx.filter_jit
def remaining(model: SequenceModel, settings: Settings, memory: Memory) -> Found:
    """What is still to be told when a clip ends: the last `lag` frames, as the best particle remembers them."""
    best = jnp.argmax(memory.standing)
    records = jax.tree.map(lambda leaf: leaf[best, 1:], memory.history)
    return jax.lax.map(lambda record: tell(model, settings, record), records)

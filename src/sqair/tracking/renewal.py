"""Second looks: what q misses while a clip goes on is found by looking at a frame as if it were the first.

A model learns from short sequences, in which nearly everything is there from the beginning. In a long clip things come
all the time, and after a crossing one object may be drawn over two things. So every frame is looked at again:

* at *what is left* of it when all that is known is taken away: the best object found there joins the known ones, unless
  it lies where one of these does;
* *as a whole*, and at what that leaves: if what is found then explains the frame so much better, it takes the place of
  all that was known, and identity passes to whoever covers an object that had it.

Each object must be worth its place: the frame must be `evidence` nats more likely with it than without.

Axes: N slots, M candidates, W what, H hidden units, Y, X, C picture, D picture and what it brings along.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sqair.data.backdrops import PLACE
from sqair.distributions import Noise
from sqair.image import ImageModel
from sqair.model import SequenceModel, no_restraint
from sqair.objects import Objects, State, name_newborns, unite

SETTLING = 2
"""How often propagation looks again at a frame that is looked at for the first time."""
TAKEN = 0.3
"""What is found anew must not cover, by this IoU, something that is known for certain: it would be there twice."""
COVERED = 0.2
"""An object goes on as one that a second look found if their windows have this IoU, and none a larger one."""


class Belongings(NamedTuple):
    """All that belongs to slots. Absent slots hold zeros, so identities are shifted by one."""

    what: Float[Array, "N W"]
    where: Float[Array, "N 4"]
    pres: Float[Array, " N"]
    identity: Int[Array, " N"]
    temporal: Float[Array, "N H"]
    prior: Float[Array, "N H"]
    doubted: Int[Array, " N"]


def belongings(state: State, doubted: Int[Array, " N"]) -> Belongings:
    """What the slots of a state hold."""
    what, where, pres, identity = state.objects
    return Belongings(what, where, pres, identity + 1, state.temporal, state.prior, doubted)


def with_belongings(state: State, held: Belongings) -> tuple[State, Int[Array, " N"]]:
    """The inverse of `belongings`, for the same state or another."""
    objects = Objects(held.what, held.where, held.pres, held.identity - 1)
    return state._replace(objects=objects, temporal=held.temporal, prior=held.prior), held.doubted


def moved_up(state: State, first: Belongings, then: Belongings) -> tuple[State, Int[Array, " N"]]:
    """The state with as many of the present ones of `first`, then of `then`, as there are slots, without gaps."""
    slots = len(state.objects.pres)
    return with_belongings(state, unite(first, then, jnp.concatenate([first.pres, then.pres]), slots))


def worth(
    image: ImageModel, x: Float[Array, "Y X C"], objects: Objects, behind: Float[Array, "Y X C"] | None = None
) -> Float[Array, " N"]:
    """Nats by which a frame is more likely with each object than without it; 0 for absent ones."""

    def without(slot: Bool[Array, " N"]) -> Float[Array, ""]:
        rest = objects._replace(pres=jnp.where(slot, 0.0, objects.pres))
        return image.log_likelihood(x, rest, behind)

    likely = image.log_likelihood(x, objects, behind)
    return likely - jax.vmap(without)(jnp.eye(len(objects.pres), dtype=bool))


def supported(
    image: ImageModel,
    x: Float[Array, "Y X C"],
    objects: Objects,
    least: float,
    behind: Float[Array, "Y X C"] | None = None,
) -> Float[Array, " N"]:
    """The presences without objects that are worth less than `least`, the least worthy first.

    One by one, since of two that explain the same thing each is worthless beside the other, and one must stay.
    """

    def drop_one(pres: Float[Array, " N"], _: None) -> tuple[Float[Array, " N"], None]:
        nats = jnp.where(pres > 0, worth(image, x, objects._replace(pres=pres), behind), jnp.inf)
        is_dropped = (jnp.arange(len(pres)) == jnp.argmin(nats)) & (nats < least)
        return jnp.where(is_dropped, 0.0, pres), None

    return jax.lax.scan(drop_one, objects.pres, None, length=len(objects.pres))[0]


def still(noise: Noise) -> Noise:
    """No noise at all: with it q gives its mode, and an object is there if its probability is above one half."""
    return Noise(jnp.zeros_like(noise.what), jnp.zeros_like(noise.where), jnp.full_like(noise.pres, 0.5))


def looked(model: SequenceModel, state: State, x: Float[Array, "Y X D"], *, discovers: bool) -> State:
    """The mode of q for a frame that follows a state."""
    noise = jax.tree.map(lambda leaf: leaf[0], model.noise(jax.random.key(0), 1))
    restraint = jax.tree.map(lambda leaf: leaf[0], no_restraint(1))
    restraint = restraint._replace(discover=jnp.full_like(restraint.discover, discovers))
    return model.step(state, x, model.encode(x[None])[0], still(noise), restraint)[0]


def first_look(model: SequenceModel, x: Float[Array, "Y X D"]) -> State:
    """The mode of q for a frame of which nothing is known.

    Discovery sees the whole frame at once, and says where about things are; propagation reads a glimpse around each
    and puts it right. So it looks at the frame again, as if that had not changed.
    """
    state = looked(model, model.initial(), x, discovers=True)
    for _ in range(SETTLING):
        state = looked(model, state, x, discovers=False)
    return state


def joined(
    model: SequenceModel,
    evidence: float,
    x: Float[Array, "Y X D"],
    state: State,
    doubted: Int[Array, " N"],
    behind: Float[Array, "Y X C"] | None,
) -> tuple[State, Int[Array, " N"]]:
    """The state with the best of what is found in that part of the frame which it does not explain.

    It comes after those that are certain and before those that are doubted, if there is a slot.
    """
    image: ImageModel = model.image  # type: ignore[attr-defined]
    channels = model.config.channels
    picture, canvas = x[..., :channels], image.canvas(state.objects, behind)
    rest = jnp.clip(picture - canvas + (0.0 if behind is None else behind), 0.0, 1.0)
    look = first_look(model, jnp.concatenate([rest, x[..., channels:]], -1))

    def gain(slot: Bool[Array, " N"]) -> Float[Array, ""]:
        one = look.objects._replace(pres=jnp.where(slot, look.objects.pres, 0.0))
        both = jax.tree.map(lambda old, new: jnp.concatenate([old, new]), state.objects, one)
        return image.log_likelihood(picture, both, behind)

    gains = jax.vmap(gain)(jnp.eye(len(doubted), dtype=bool)) - image.log_prob(picture, canvas)
    certain = state.objects._replace(pres=jnp.where(doubted > 0, 0.0, state.objects.pres))
    gains = jnp.where(is_taken(image, look.objects.where, certain), -jnp.inf, gains)
    is_best = jnp.arange(len(gains)) == jnp.argmax(gains)
    pres = jnp.where(is_best & (gains > evidence), look.objects.pres, 0.0)
    known, none = belongings(state, doubted), jnp.zeros_like(doubted)
    new = belongings(look, none)._replace(pres=pres, identity=1 + name_newborns(pres, state.born))
    sure = known._replace(pres=certain.pres)
    doubtful = known._replace(pres=jnp.where(doubted > 0, known.pres, 0.0))
    after = jax.tree.map(lambda *parts: jnp.concatenate(parts), new, doubtful)
    return moved_up(born_since(state, pres), sure, after)


def is_taken(image: ImageModel, where: Float[Array, "N 4"], objects: Objects) -> Bool[Array, " N"]:
    """Whether there is an object already."""
    iou = covering(image.transformer.boxes(where), image.transformer.boxes(objects.where))
    return jnp.where(objects.pres > 0, iou, 0.0).max(1) >= TAKEN


def born_since(state: State, pres: Float[Array, " N"]) -> State:
    """The state after these births."""
    return state._replace(born=state.born + pres.sum().astype(state.born.dtype))


def covering(new: Float[Array, "N 4"], old: Float[Array, "M 4"]) -> Float[Array, "N M"]:
    """IoU of all pairs of boxes."""
    low = jnp.maximum(new[:, None, :2], old[:, :2])
    high = jnp.minimum(new[:, None, :2] + new[:, None, 2:], old[:, :2] + old[:, 2:])
    both = jnp.clip(high - low, 0.0).prod(-1)
    return both / (new[:, None, 2:].prod(-1) + old[:, 2:].prod(-1) - both)


def going_on(image: ImageModel, known: State, look: State) -> State:
    """A first look at the frame as the next state: who covers a known object has its identity and hidden states."""
    boxes = image.transformer.boxes
    iou = covering(boxes(look.objects.where), boxes(known.objects.where))
    iou = jnp.where((look.objects.pres[:, None] > 0) & (known.objects.pres > 0), iou, 0.0)
    who, best = jnp.argmax(iou, 1), jnp.argmax(iou, 0)
    is_known = (iou.max(1) >= COVERED) & (best[who] == jnp.arange(len(who)))
    new = jnp.where(is_known, 0.0, look.objects.pres)
    identity = jnp.where(is_known, known.objects.identity[who], name_newborns(new, known.born))
    return born_since(known, new)._replace(
        objects=look.objects._replace(identity=identity),
        temporal=jnp.where(is_known[:, None], known.temporal[who], look.temporal),
        prior=jnp.where(is_known[:, None], known.prior[who], look.prior),
    )


def renewed(
    model: SequenceModel,
    evidence: float,
    x: Float[Array, "Y X D"],
    state: State,
    doubted: Int[Array, " N"],
    behind: Float[Array, "Y X C"] | None = None,
) -> tuple[State, Int[Array, " N"]]:
    """The state after second looks at the frame, and how long each of its objects has been doubted."""
    image: ImageModel = model.image  # type: ignore[attr-defined]
    picture, around = jnp.split(x, [model.config.channels], -1)
    if behind is not None and around.shape[-1]:  # a first look takes the scene that comes along for what is behind
        x = jnp.concatenate([picture, behind, around[..., -PLACE:]], -1)
    known, known_doubted = joined(model, evidence, x, state, doubted, behind)
    look = first_look(model, x)
    held = belongings(look, jnp.zeros_like(doubted))
    held = held._replace(pres=supported(image, picture, look.objects, evidence, behind))
    look, none = moved_up(look, held, jax.tree.map(jnp.zeros_like, held))
    look, look_doubted = joined(model, evidence, x, look, none, behind)

    def merit(objects: Objects) -> Float[Array, ""]:
        return image.log_likelihood(picture, objects, behind) - evidence * objects.pres.sum()

    is_better = merit(look.objects) > merit(known.objects) + evidence
    other = (going_on(image, known, look), look_doubted)
    return jax.tree.map(lambda new, old: jnp.where(is_better, new, old), other, (known, known_doubted))

"""Objects: z_t = [what, where, pres] in N slots, their identities, and the sets P_t, D_t and O_t (sec. 3).

The paper's sets have varying sizes; ours live in N slots with a presence each. P_t are the objects that propagation
kept, D_t those that discovery found, and O_t is their union, which `unite` moves to the front of N slots in the paper's
order: propagated first, then discovered. An absent slot holds zeros and the identity -1: it can influence nothing.

Axes: N slots, W what, H hidden units.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

T = TypeVar("T")
C = TypeVar("C")
Y = TypeVar("Y")


class Objects(NamedTuple):
    """The latent variables z_t and who they belong to."""

    what: Float[Array, "N W"]
    where: Float[Array, "N 4"]
    pres: Float[Array, " N"]
    """1 where the slot holds an object, else 0."""
    identity: Int[Array, " N"]
    """A number given at discovery, kept for life and never given again; -1 where absent."""


class Latents(NamedTuple):
    """z_t of some objects in N slots: those that were propagated, or those that were discovered."""

    what: Float[Array, "N W"]
    where: Float[Array, "N 4"]
    pres: Float[Array, " N"]


class State(NamedTuple):
    """All that time-step t + 1 needs to know of the past."""

    objects: Objects
    temporal: Float[Array, "N H"]
    """h^T, the state of the temporal RNN of each object."""
    prior: Float[Array, "N H"]
    """The state of the propagation prior's RNN of each object."""
    born: Int[Array, ""]
    """How many identities have been given so far."""
    time: Int[Array, ""]
    """Frames seen so far; 0 before the first."""
    backdrop: Any = None
    """What is known of the background (background.py); None where it is black."""


def no_objects(slots: int, what_size: int) -> Objects:
    """O_0: every slot empty."""
    return Objects(
        what=jnp.zeros((slots, what_size)),
        where=jnp.zeros((slots, 4)),
        pres=jnp.zeros(slots),
        identity=jnp.full(slots, -1),
    )


def initial_state(slots: int, what_size: int, width: int) -> State:
    """The state before the first frame."""
    return State(
        objects=no_objects(slots, what_size),
        temporal=jnp.zeros((slots, width)),
        prior=jnp.zeros((slots, width)),
        born=jnp.array(0),
        time=jnp.array(0),
    )


FEW = 4
"""Up to so many slots a loop over slots is written out."""


def scan_slots(step: Callable[[C, Any], tuple[C, Y]], carry: C, slots: Any) -> tuple[C, Y]:
    """`lax.scan` over slots. Few of them are written out, which compiles and runs faster; the values are the same."""
    count = jax.tree.leaves(slots)[0].shape[0]
    if count > FEW:
        return jax.lax.scan(step, carry, slots)
    results = []
    for index in range(count):
        carry, result = step(carry, jax.tree.map(lambda leaf, i=index: leaf[i], slots))
        results.append(result)
    return carry, jax.tree.map(lambda *leaves: jnp.stack(leaves), *results)


def name_newborns(pres: Float[Array, " N"], born: Int[Array, ""]) -> Int[Array, " N"]:
    """Identities of discovered objects: the next free numbers, in order; -1 where absent."""
    order = jnp.cumsum(pres).astype(born.dtype)
    return jnp.where(pres > 0, born + order - 1, -1)


def front(pres: Float[Array, " M"], slots: int) -> Bool[Array, "slots M"]:
    """Compaction as a choice: entry (n, m) tells whether slot n takes candidate m. Present ones go first, in order."""
    rank = jnp.cumsum(pres) - 1
    return (rank == jnp.arange(slots)[:, None]) & (pres > 0)


def unite(propagated: T, discovered: T, pres: Float[Array, " M"], slots: int) -> T:
    """O_t = P_t, then D_t, of any arrays that belong to slots; a slot left empty holds zeros.

    A sum over candidates of which at most one counts is exact, and unlike a gather its gradient needs no scatter.
    """
    chosen = front(pres, slots)

    def take(mask: Bool[Array, "slots _"], candidates: Array) -> Array:
        mask = mask.reshape(mask.shape + (1,) * (candidates.ndim - 1))
        return jnp.where(mask, candidates, 0).sum(1, dtype=candidates.dtype)

    def merge(old: Array, new: Array) -> Array:
        return take(chosen[:, : len(old)], old) + take(chosen[:, len(old) :], new)

    return jax.tree.map(merge, propagated, discovered)

"""The relation module of propagation: what an object learns of those before it (lines 1, 2, 9 and 16 of Algorithm 2).

Home of eq. 14 (propagation_state).

Axes: W what, H hidden units.
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from sqair.config import ModelConfig
from sqair.networks import Linear, linear


class Relation(eqx.Module):
    """What an object learns of those before it, given by three methods: see docs/relation_module.md.

    `related` is what is remembered of earlier objects: any pytree of arrays, the same in all three methods. An absent
    object runs through them too, but what `update` returns for it is thrown away.
    """

    @abc.abstractmethod
    def initial(self) -> PyTree:
        """Before the first object."""

    @abc.abstractmethod
    def __call__(
        self,
        related: PyTree,
        glimpse: Float[Array, " _"],
        what: Float[Array, " W"],
        where: Float[Array, "4"],
        temporal: Float[Array, " H"],
    ) -> Float[Array, " H"]:
        """omega^R of an object from its proposal glimpse, its what and where at t - 1, h^T_{t-1} and `related`.

        Without proposal glimpses `glimpse` is what `ModelConfig.proposal` has in place of them.
        """

    @abc.abstractmethod
    def update(
        self, related: PyTree, omega: Float[Array, " H"], what: Float[Array, " W"], where: Float[Array, "4"]
    ) -> PyTree:
        """`related` after an object, given its omega^R and its what and where at t."""


class Related(NamedTuple):
    """What the relation RNN remembers of object j, the last one that was present."""

    hidden: Float[Array, " H"]
    what: Float[Array, " W"]
    where: Float[Array, "4"]


class RelationRNN(Relation):
    """R^R, a vanilla RNN over objects."""

    rnn: Linear
    hidden: Float[Array, " H"]
    what_size: int = eqx.field(static=True)

    def __init__(self, config: ModelConfig, seen: int, *, key: PRNGKeyArray) -> None:
        own = seen + (config.what_size + 4) + config.width
        self.rnn = linear(own + config.width + config.what_size + 4, config.width, key=key)
        self.hidden = jnp.zeros(config.width)
        self.what_size = config.what_size

    def initial(self) -> Related:
        """Before the first object."""
        return Related(self.hidden, jnp.zeros(self.what_size), jnp.zeros(4))

    def __call__(
        self,
        related: Related,
        glimpse: Float[Array, " _"],
        what: Float[Array, " W"],
        where: Float[Array, "4"],
        temporal: Float[Array, " H"],
    ) -> Float[Array, " H"]:
        """omega^R = h^R_t of an object, from what it has and from object j."""
        inputs = [glimpse, what, where, temporal, related.hidden, related.what, related.where]
        return jnp.tanh(self.rnn(jnp.concatenate(inputs)))  # eq. 14

    def update(
        self, related: Related, omega: Float[Array, " H"], what: Float[Array, " W"], where: Float[Array, "4"]
    ) -> Related:
        """The object just processed becomes object j."""
        return Related(omega, what, where)


class NoRelation(Relation):
    """In place of R^R a layer that sees the object alone: objects know nothing of each other."""

    layer: Linear

    def __init__(self, config: ModelConfig, seen: int, *, key: PRNGKeyArray) -> None:
        self.layer = linear(seen + (config.what_size + 4) + config.width, config.width, key=key)

    def initial(self) -> tuple[()]:
        """Nothing."""
        return ()

    def __call__(
        self,
        related: tuple[()],
        glimpse: Float[Array, " _"],
        what: Float[Array, " W"],
        where: Float[Array, "4"],
        temporal: Float[Array, " H"],
    ) -> Float[Array, " H"]:
        """omega^R of an object, from what it has."""
        return jnp.tanh(self.layer(jnp.concatenate([glimpse, what, where, temporal])))

    def update(
        self, related: tuple[()], omega: Float[Array, " H"], what: Float[Array, " W"], where: Float[Array, "4"]
    ) -> tuple[()]:
        """Nothing is remembered."""
        return ()

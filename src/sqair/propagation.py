"""Propagation (Algorithm 2): objects of the last frame are found again, updated or forgotten. q^P and p^P.

Home of eq. 9 (prop_prior). Home of eq. 10 (prop_pres_prior). Home of eq. 11 (q_prop). Home of eq. 12 (q_prop_obj). Home
of eq. 13 (q_prop_presence). Home of eq. 15 (temporal_state). Home of Algorithm 2.

Only the relation RNN, where and what pass from one object to the next; proposals, presences and densities of all
objects are computed together. An absent slot runs along, but it neither moves the relation state nor enters any sum.

Axes: N slots, W what, H hidden units, Y, X, C frame, G, L glimpse.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from sqair.config import ModelConfig
from sqair.distributions import Bernoulli, Gaussian, Noise, held, masked
from sqair.networks import HEAD_GAIN, MLP, Encoders, GRUCell, Linear, encoder, gaussian, head, linear
from sqair.objects import Latents, Objects, scan_slots
from sqair.relation import NoRelation, Relation, RelationRNN
from sqair.spatial_transformer import SpatialTransformer

LOW_RESOLUTION = 4
"""How many times smaller a frame of low resolution is; the paper does not say."""
PROJECTION_SIZE = 16
"""Length of the low-dimensional projection of e_t; the paper does not say."""


class FrameAccess(eqx.Module):
    """What propagation sees of the whole frame, where it has no proposal glimpse: what the authors tried (App. A).

    `ModelConfig.proposal` names it: nothing; e_t, as discovery does; an encoding of the frame at a low resolution; or a
    projection of e_t to a few numbers.
    """

    network: MLP | Linear | None
    kind: Literal["none", "image", "low-resolution", "projection"] = eqx.field(static=True)
    size: int = eqx.field(static=True)
    """Length of what is seen."""

    def __init__(self, config: ModelConfig, *, key: PRNGKeyArray) -> None:
        assert config.proposal != "glimpse"
        self.kind, self.network = config.proposal, None
        self.size = {"none": 0, "projection": PROJECTION_SIZE}.get(config.proposal, config.width)
        if self.kind == "low-resolution":
            self.network = encoder(
                math.prod(low_resolution(config.image)) * config.seen_channels, config.width, key=key
            )
        elif self.kind == "projection":
            self.network = linear(config.width, PROJECTION_SIZE, key=key)

    def __call__(self, x: Float[Array, "Y X C"], encoding: Float[Array, " H"]) -> Float[Array, " seen"]:
        """The same for all objects."""
        if self.kind == "low-resolution":
            assert self.network is not None
            small = jax.image.resize(x, (*low_resolution(x.shape[:2]), x.shape[2]), "linear")
            return self.network(small.reshape(-1))
        if self.kind == "projection":
            assert self.network is not None
            return self.network(encoding)
        return encoding if self.kind == "image" else jnp.zeros(0)


def low_resolution(shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of a frame of low resolution."""
    return math.ceil(shape[0] / LOW_RESOLUTION), math.ceil(shape[1] / LOW_RESOLUTION)


class WhatUpdate(eqx.Module):
    """q^P(what): a change of the old what, a new one, or the authors' gated mixture of old, glimpse and memory."""

    mlp: MLP | None
    memory: Linear | None
    gates: Linear | None
    residual: bool = eqx.field(static=True)
    std_bias: float = eqx.field(static=True)
    min_std: float = eqx.field(static=True)

    def __init__(self, config: ModelConfig, *, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key)
        size, width = config.what_size, config.width
        self.residual = config.what_update == "residual"
        self.std_bias, self.min_std = config.propagation_what_std_bias, config.min_std
        self.mlp = self.memory = self.gates = None
        if config.what_update == "gated":
            self.memory = linear(width, 2 * size, key=keys[0])
            self.gates = linear(width, 3 * size, key=keys[1], bias=1.0)
        else:
            self.mlp = head(3 * size + 2 * width, width, 2 * size, key=keys[0])

    def __call__(
        self,
        glimpse: Gaussian,
        what: Float[Array, " W"],
        relation: Float[Array, " H"],
        temporal: Float[Array, " H"],
    ) -> Gaussian:
        """The distribution of what at t, given the encoded glimpse, what at t - 1, omega^R and omega^T."""
        if self.memory is not None and self.gates is not None:
            remembered = gaussian(self.memory(temporal), self.min_std, self.std_bias)
            gates = 0.9999 * jax.nn.sigmoid(self.gates(temporal))
            keep, shut_glimpse, shut_memory = jnp.split(gates, 3)
            mean = keep * what + (1 - shut_glimpse) * glimpse.mean + (1 - shut_memory) * remembered.mean
            return Gaussian(mean, (1 - shut_glimpse) * glimpse.std + (1 - shut_memory) * remembered.std)
        assert self.mlp is not None
        raw = self.mlp(glimpse.mean, glimpse.std, what, relation, temporal)
        change = gaussian(raw, self.min_std, self.std_bias)
        return Gaussian(what + change.mean, change.std) if self.residual else change


class PropagationPosterior(eqx.Module):
    """q^P(z_t | x_t, z_{t-1}, h^T): eq. 11, a product over the objects of O_{t-1}, each expanded as in eq. 12."""

    relation: Relation
    temporal: GRUCell
    proposal: MLP | None
    """f^1 of Algorithm 2; None where there is no proposal glimpse."""
    access: FrameAccess | None
    """What there is instead."""
    where_head: MLP
    what_update: WhatUpdate
    pres_head: MLP
    mask: MLP | None
    """Makes a soft mask of the glimpse from the temporal state; None without the switch."""
    mix: Float[Array, "4 4"] | None
    """Correlates the dimensions of where; only its lower triangle counts. None without the switch."""
    where_std_bias: float = eqx.field(static=True)
    min_std: float = eqx.field(static=True)
    glimpse: tuple[int, int] = eqx.field(static=True)

    def __init__(self, config: ModelConfig, *, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key, 7)
        size, width = config.what_size, config.width
        self.proposal = self.access = None
        if config.proposal == "glimpse":
            self.proposal, seen = head(4 + width, width, 4, key=keys[2]), 2 * size
        else:
            self.access = FrameAccess(config, key=keys[2])
            seen = self.access.size
        self.relation = (NoRelation if config.relation == "none" else RelationRNN)(config, seen, key=keys[0])
        self.temporal = GRUCell(2 * size + 4 + width, width, key=keys[1])
        self.where_head = head(4 + width, width, 8, key=keys[3])
        self.what_update = WhatUpdate(config, key=keys[4])
        self.pres_head = head(size + 4 + 2 * width, width, 1, key=keys[5], bias=config.propagation_bias)
        pixels = config.glimpse[0] * config.glimpse[1]
        self.mask = head(width, width, pixels, key=keys[6], bias=1.0) if config.glimpse_mask else None
        self.mix = jnp.zeros((4, 4)) if config.where_covariance == "full" else None
        self.where_std_bias = config.propagation_where_std_bias
        self.min_std, self.glimpse = config.min_std, config.glimpse

    def __call__(
        self,
        noise: Noise,
        x: Float[Array, "Y X C"],
        objects: Objects,
        temporal: Float[Array, "N H"],
        encoders: Encoders,
        transformer: SpatialTransformer,
        encoding: Float[Array, " H"],
        learned: Float[Array, ""],
    ) -> tuple[Latents, Float[Array, "N H"], Float[Array, ""], Float[Array, ""]]:
        """The objects of O_{t-1} at t, their h^T_t, log q of all variables and the part of it that is presence.

        `encoding` is e_t, which nothing sees but some kinds of `FrameAccess`; where `learned` is 0, presence passes no
        gradient back.
        """
        masks = self._masks(temporal)

        def look(where: Float[Array, "4"], mask: Float[Array, "G L 1"]) -> Gaussian:
            return encoders.glimpse(mask * transformer.read(x, where))

        if self.proposal is not None:
            proposals = objects.where + jax.vmap(self.proposal)(objects.where, temporal)
            seen = jnp.concatenate(jax.vmap(look)(proposals, masks)[:2], -1)
        else:
            assert self.access is not None
            seen = jnp.tile(self.access(x, encoding), (temporal.shape[0], 1))

        def follow(related: PyTree, slot: tuple) -> tuple[PyTree, tuple]:
            seen_i, mask, what, where, pres, hidden, noise_i = slot
            omega = self.relation(related, seen_i, what, where, hidden)
            q_where = self._where(where, omega)
            new_where = q_where.sample(noise_i.where)
            final = look(new_where, mask)
            inputs = jnp.concatenate([final.mean, final.std, new_where, omega])
            hidden = self.temporal(inputs, hidden)  # eq. 15
            q_what = self.what_update(final, what, omega, hidden)
            new_what = q_what.sample(noise_i.what)
            after = self.relation.update(related, omega, new_what, new_where)
            related = jax.tree.map(lambda new, old: jnp.where(pres > 0, new, old), after, related)
            moments = (q_where.mean, q_where.std), (q_what.mean, q_what.std)
            return related, (new_what, new_where, omega, hidden, moments)

        steps = Noise(noise.what, noise.where, noise.pres)
        slots = (seen, masks, objects.what, objects.where, objects.pres, temporal, steps)
        _, (what, where, omega, hidden, moments) = scan_slots(follow, self.relation.initial(), slots)

        logits = jax.vmap(self.pres_head)(what, where, omega, hidden)[:, 0]
        q_pres = Bernoulli(held(logits, learned), objects.pres > 0)  # eq. 13
        pres = q_pres.sample(noise.pres) if noise.forced is None else noise.forced
        presence = q_pres.log_prob(pres).sum()
        q_where, q_what = Gaussian(*moments[0], mix=self._mix()), Gaussian(*moments[1])
        contents = masked(q_where.log_prob(where) + q_what.log_prob(what), pres)  # eq. 12
        return Latents(what, where, pres), hidden, presence + contents, presence  # eq. 11

    def _masks(self, temporal: Float[Array, "N H"]) -> Float[Array, "N G L 1"]:
        """Soft glimpse masks; ones without the switch."""
        shape = (temporal.shape[0], *self.glimpse, 1)
        if self.mask is None:
            return jnp.ones(shape)
        return jax.nn.sigmoid(jax.vmap(self.mask)(temporal)).reshape(shape)

    def _mix(self) -> Float[Array, "4 4"] | None:
        """A unit lower triangular matrix; positive definite covariance by construction."""
        return None if self.mix is None else jnp.eye(4) + jnp.tril(self.mix, -1)

    def _where(self, where: Float[Array, "4"], omega: Float[Array, " H"]) -> Gaussian:
        """q^P(where): a move from where it was."""
        move = gaussian(self.where_head(where, omega), self.min_std, self.where_std_bias)
        return Gaussian(where + move.mean, move.std, self._mix())


class Expected(NamedTuple):
    """p^P(z_t | z_{t-1}): the next state of the prior's RNN, and what it expects of pres, where and what."""

    hidden: Float[Array, "N H"]
    survival: Bernoulli
    where: Gaussian
    what: Gaussian

    def log_prob(self, new: Latents) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """log p of the objects at t, with the death factor of those that vanished, and its presence part."""
        presence = self.survival.log_prob(new.pres).sum()
        contents = masked(self.where.log_prob(new.where) + self.what.log_prob(new.what), new.pres)
        return presence + contents, presence  # eq. 9

    def sample(self, noise: Noise) -> Latents:
        """The objects at t drawn from the prior."""
        pres = self.survival.sample(noise.pres) if noise.forced is None else noise.forced
        return Latents(self.what.sample(noise.what), self.where.sample(noise.where), pres)


class PropagationPrior(eqx.Module):
    """p^P(z_t | z_{t-1}): eq. 9, each object on its own, with its past in the state of a GRU."""

    rnn: GRUCell
    to_survival: Linear
    to_where: Linear
    to_what: Linear
    residual: bool = eqx.field(static=True)
    std_bias: float = eqx.field(static=True)
    min_std: float = eqx.field(static=True)

    def __init__(self, config: ModelConfig, *, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key, 4)
        size, width = config.what_size, config.width
        self.rnn = GRUCell(size + 4, width, key=keys[0])
        self.to_survival = linear(width, 1, key=keys[1], gain=HEAD_GAIN, bias=config.survival_bias)
        self.to_where = linear(width, 8, key=keys[2], gain=HEAD_GAIN)
        self.to_what = linear(width, 2 * size, key=keys[3], gain=HEAD_GAIN)
        self.residual = config.prior_update == "residual"
        self.std_bias, self.min_std = config.prior_std_bias, config.min_std

    def expect(self, objects: Objects, hidden: Float[Array, "N H"]) -> Expected:
        """What the prior expects of the objects of O_{t-1} at t."""
        hidden = jax.vmap(self.rnn)(jnp.concatenate([objects.what, objects.where], -1), hidden)
        survival = Bernoulli(jax.vmap(self.to_survival)(hidden)[:, 0], objects.pres > 0)  # eq. 10
        where = gaussian(jax.vmap(self.to_where)(hidden), self.min_std, self.std_bias)
        what = gaussian(jax.vmap(self.to_what)(hidden), self.min_std, self.std_bias)
        if self.residual:
            where = where._replace(mean=objects.where + where.mean)
            what = what._replace(mean=objects.what + what.mean)
        return Expected(hidden, survival, where, what)

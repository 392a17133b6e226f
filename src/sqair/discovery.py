"""Discovery (Algorithm 3): new objects are found in the frame, given the propagated ones. q^D and p^D.

Home of eq. 2 (air_posterior). Home of eq. 6 (the set encoding l_t). Home of eq. 7 (disc_prior). Home of eq. 8
(disc_step_prior). Home of Algorithm 3.

At most N - P_t objects may be discovered, in q and in p alike: both are normalised, and no object is ever dropped.
Presences do not feed back into the RNN (steps after the first zero count for nothing), so all N coins are thrown
together after the loop.

Axes: N slots, W what, H hidden units, Y, X, C frame.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from sqair.config import ModelConfig
from sqair.distributions import Count, Gaussian, Noise, OnesThenZero, held, masked
from sqair.networks import MLP, Encoders, Linear, encoder, gaussian, head, linear
from sqair.objects import Latents, scan_slots
from sqair.spatial_transformer import SpatialTransformer


class SetEncoder(eqx.Module):
    """eq. 6: l_t, the sum over propagated objects of an MLP of what and where."""

    mlp: MLP

    def __init__(self, config: ModelConfig, *, key: PRNGKeyArray) -> None:
        self.mlp = encoder(config.what_size + 4, config.width, key=key)

    def __call__(
        self, what: Float[Array, "N W"], where: Float[Array, "N 4"], pres: Float[Array, " N"]
    ) -> Float[Array, " H"]:
        """l_t of the objects with pres 1."""
        terms = jax.vmap(self.mlp)(what, where)
        return jnp.where(pres[:, None] > 0, terms, 0.0).sum(0)  # eq. 6


class DiscoveryPosterior(eqx.Module):
    """q^D(D_t, z_t | x_t, z_t of P_t): a recurrent search for one object after another."""

    rnn: Linear
    """R^D, a vanilla RNN."""
    initial: Float[Array, " H"]
    where_head: MLP
    pres_head: MLP
    presence_after_what: bool = eqx.field(static=True)
    where_std_bias: float = eqx.field(static=True)
    min_std: float = eqx.field(static=True)
    what_size: int = eqx.field(static=True)

    def __init__(self, config: ModelConfig, context_size: int, *, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key, 3)
        width = config.width
        self.rnn = linear(2 * width + context_size + config.what_size + 4, width, key=keys[0])
        self.initial = jnp.zeros(width)
        self.where_head = head(width, width, 8, key=keys[1])
        seen = width + config.what_size if config.presence_after_what else width
        self.pres_head = head(seen, width, 1, key=keys[2], bias=config.discovery_bias)
        self.presence_after_what = config.presence_after_what
        self.where_std_bias = config.discovery_where_std_bias
        self.min_std, self.what_size = config.min_std, config.what_size

    def __call__(
        self,
        noise: Noise,
        x: Float[Array, "Y X C"],
        encoding: Float[Array, " H"],
        context: Float[Array, " L"],
        room: Float[Array, ""],
        learned: Float[Array, ""],
        encoders: Encoders,
        transformer: SpatialTransformer,
    ) -> tuple[Latents, Float[Array, ""], Float[Array, ""]]:
        """The objects, log q of all their variables, and the part of it that is presence.

        `encoding` is e_t of the frame, `context` is l_t (empty in AIR), `room` the largest number of discoveries;
        where `learned` is 0, presence passes no gradient back.
        """

        def find(carry: tuple, noise_i: Noise) -> tuple[tuple, tuple]:
            hidden, what, where = carry
            hidden = jnp.tanh(self.rnn(jnp.concatenate([encoding, context, what, where, hidden])))
            q_where = gaussian(self.where_head(hidden), self.min_std, self.where_std_bias)
            where = q_where.sample(noise_i.where)
            q_what = encoders.glimpse(transformer.read(x, where))
            what = q_what.sample(noise_i.what)
            return (hidden, what, where), (hidden, what, where, q_what, q_where)

        start = (self.initial, jnp.zeros(self.what_size), jnp.zeros(4))
        steps = Noise(noise.what, noise.where, noise.pres)
        _, (hidden, what, where, q_what, q_where) = scan_slots(find, start, steps)
        seen = (hidden, what) if self.presence_after_what else (hidden,)
        logits = jax.vmap(self.pres_head)(*seen)[:, 0]
        q_pres = OnesThenZero(held(logits, learned), room)  # eq. 2
        pres = q_pres.sample(noise.pres) if noise.forced is None else noise.forced
        presence = q_pres.log_prob(pres)
        contents = masked(q_what.log_prob(what) + q_where.log_prob(where), pres)
        return Latents(what, where, pres), presence + contents, presence


class CountPrior(eqx.Module):
    """eq. 8: p(D_t | P_t), a learned table with one row for each P_t; the first frame has a table of its own."""

    first: Float[Array, " counts"]
    later: Float[Array, "counts counts"]

    def __init__(self, config: ModelConfig) -> None:
        size = config.max_objects + 1
        self.first = jnp.zeros(size)
        self.later = jnp.zeros((size, size)).at[:, 0].set(config.nothing_new_bias)

    def __call__(self, propagated: Float[Array, ""], room: Float[Array, ""], is_first: Bool[Array, ""]) -> Count:
        """p(D_t | P_t = propagated); `room` is N - P_t."""
        row = (jnp.arange(self.first.shape[0]) == propagated)[:, None]
        logits = jnp.where(is_first, self.first, jnp.where(row, self.later, 0.0).sum(0))
        return Count(logits, room)  # eq. 8


class GeometricPrior(eqx.Module):
    """eq. 1: AIR's Geom(n | theta), truncated at N and renormalised."""

    logit: Float[Array, ""]
    slots: int = eqx.field(static=True)

    def __init__(self, config: ModelConfig) -> None:
        self.logit = jnp.array(0.0)
        self.slots = config.max_objects

    def __call__(self, propagated: Float[Array, ""], room: Float[Array, ""], is_first: Bool[Array, ""]) -> Count:
        """p(n) proportional to sigmoid(logit)^n; in AIR every frame is the first and nothing is propagated."""
        return Count(jax.nn.log_sigmoid(self.logit) * jnp.arange(self.slots + 1), room)


class WherePrior(eqx.Module):
    """p^D(where): a fixed Gaussian, a learned one, or a learned one given the object before it and l_t."""

    mean: Float[Array, "4"]
    raw_std: Float[Array, "4"]
    """Before softplus."""
    rnn: Linear | None
    to_where: Linear | None
    fixed: bool = eqx.field(static=True)
    min_std: float = eqx.field(static=True)

    def __init__(self, config: ModelConfig, context_size: int, *, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key)
        self.min_std = config.min_std
        self.mean = jnp.array(config.where_prior_mean)
        self.raw_std = jnp.log(jnp.expm1(jnp.array(config.where_prior_std) - config.min_std))
        self.fixed = config.where_prior == "fixed"
        self.rnn = self.to_where = None
        if config.where_prior == "autoregressive":
            self.rnn = linear(4 + context_size, config.width, key=keys[0])
            self.to_where = linear(config.width, 8, key=keys[1], gain=0.1)

    def __call__(self, previous: Float[Array, "4"], context: Float[Array, " L"]) -> Gaussian:
        """The distribution of the next where; `previous` is zeros for the first object."""
        mean, raw_std = self.mean, self.raw_std
        if self.fixed:
            mean, raw_std = jax.lax.stop_gradient((mean, raw_std))
        if self.rnn is not None and self.to_where is not None:
            change = self.to_where(jnp.tanh(self.rnn(jnp.concatenate([previous, context]))))
            mean, raw_std = mean + change[:4], raw_std + change[4:]
        return Gaussian(mean, jax.nn.softplus(raw_std) + self.min_std)


class DiscoveryPrior(eqx.Module):
    """eq. 7: p^D(D_t, z_t | z_t of P_t), a number of objects, and a what and a where for each."""

    count: CountPrior | GeometricPrior
    where: WherePrior

    def __init__(self, config: ModelConfig, context_size: int, *, key: PRNGKeyArray) -> None:
        self.count = GeometricPrior(config) if config.kind == "air" else CountPrior(config)
        self.where = WherePrior(config, context_size, key=key)

    def log_prob(
        self,
        new: Latents,
        propagated: Float[Array, ""],
        room: Float[Array, ""],
        is_first: Bool[Array, ""],
        context: Float[Array, " L"],
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """log p of the discovered objects, at most `room`, and the part of it that is their number."""
        number = self.count(propagated, room, is_first).log_prob(new.pres.sum())
        previous = jnp.concatenate([jnp.zeros((1, 4)), new.where[:-1]])
        p_where = jax.vmap(self.where, in_axes=(0, None))(previous, context)
        p_what = Gaussian(jnp.zeros_like(new.what), jnp.ones_like(new.what))
        contents = masked(p_what.log_prob(new.what) + p_where.log_prob(new.where), new.pres)
        return number + contents, number  # eq. 7

    def sample(
        self, noise: Noise, propagated: Float[Array, ""], is_first: Bool[Array, ""], context: Float[Array, " L"]
    ) -> tuple[Latents, Float[Array, ""], Float[Array, ""]]:
        """Objects drawn from the prior, with log p of them and of their number."""
        slots = noise.pres.shape[0]
        room = slots - propagated
        number = self.count(propagated, room, is_first).sample(noise.pres[0])
        drawn = (jnp.arange(slots) < number).astype(noise.pres.dtype)

        def place(previous: Float[Array, "4"], noise_i: Float[Array, "4"]) -> tuple[Array, Array]:
            where = self.where(previous, context).sample(noise_i)
            return where, where

        _, where = scan_slots(place, jnp.zeros(4), noise.where)
        new = Latents(noise.what, where, drawn if noise.forced is None else noise.forced)
        return new, *self.log_prob(new, propagated, room, is_first, context)

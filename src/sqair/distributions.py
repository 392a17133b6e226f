"""Distributions: Gaussian, Bernoulli, "n ones then a zero" (eq. 2) and Categorical on {0..N - P_t} (eq. 8).

Each is a small tuple of parameters with `sample` and `log_prob`. Randomness comes in from outside, as `Noise`: standard
normal and uniform numbers made before the model runs. So a sample is a function of its parameters and its noise (the
reparameterisation trick), and a test can walk through every presence path with the same noise.

Axes: N slots, W what, D any event.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class Noise(NamedTuple):
    """Where randomness comes from: one phase (propagation or discovery) of one time-step."""

    what: Float[Array, "*batch N W"]
    """Standard normal."""
    where: Float[Array, "*batch N 4"]
    """Standard normal."""
    pres: Float[Array, "*batch N"]
    """Uniform on [0, 1)."""
    forced: Float[Array, "*batch N"] | None = None
    """Presences to take instead of sampling them; their probabilities are still those of the distribution."""

    def phase(self, index: int) -> "Noise":
        """The noise of one phase, of noise whose first axis is phases."""
        return jax.tree.map(lambda leaf: leaf[index], self)


def draw_noise(key: PRNGKeyArray, shape: tuple[int, ...], slots: int, what_size: int) -> Noise:
    """Noise with leading axes `shape`."""
    normal, uniform = jax.random.split(key)
    normals = jax.random.normal(normal, (*shape, slots, what_size + 4))
    return Noise(
        what=normals[..., :what_size],
        where=normals[..., what_size:],
        pres=jax.random.uniform(uniform, (*shape, slots)),
    )


class Gaussian(NamedTuple):
    """A factorised Gaussian; with `mix`, a unit lower triangular matrix, the dimensions are correlated."""

    mean: Float[Array, "*batch D"]
    std: Float[Array, "*batch D"]
    mix: Float[Array, "D D"] | None = None

    def sample(self, noise: Float[Array, "*batch D"]) -> Float[Array, "*batch D"]:
        """mean + std (mix noise)."""
        if self.mix is not None:
            noise = jnp.einsum("ij,...j->...i", self.mix, noise)
        return self.mean + self.std * noise

    def log_prob(self, x: Float[Array, "*batch D"]) -> Float[Array, "*batch"]:
        """Log density, summed over the last axis. `mix` has determinant 1."""
        z = (x - self.mean) / self.std
        if self.mix is not None:
            z = jax.scipy.linalg.solve_triangular(self.mix, z[..., None], lower=True, unit_diagonal=True)[..., 0]
        return -(0.5 * z**2 + jnp.log(self.std) + HALF_LOG_TWO_PI).sum(-1)


class Bernoulli(NamedTuple):
    """A coin with log-odds `logit` where `allowed`, surely 0 elsewhere (the delta of eq. 10 and 13)."""

    logit: Float[Array, "*batch"]
    allowed: Bool[Array, "*batch"]

    def sample(self, uniform: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """1 where uniform < sigmoid(logit) and it is allowed."""
        return jnp.where(self.allowed & (uniform < jax.nn.sigmoid(self.logit)), 1.0, 0.0)

    def log_prob(self, pres: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Log probability of each coin."""
        free = jax.nn.log_sigmoid(jnp.where(pres > 0, self.logit, -self.logit))
        return jnp.where(self.allowed, free, jnp.where(pres > 0, -jnp.inf, 0.0))


class OnesThenZero(NamedTuple):
    """eq. 2: coins are thrown until the first zero, at most `limit` of them; what follows is surely 0."""

    logits: Float[Array, " N"]
    limit: Float[Array, ""]

    def _coins(self, pres: Float[Array, " N"]) -> Bernoulli:
        before = jnp.concatenate([jnp.ones_like(pres[:1]), pres[:-1]])
        room = jnp.arange(pres.shape[0]) < self.limit
        return Bernoulli(self.logits, (jnp.cumprod(before) > 0) & room)

    def sample(self, uniform: Float[Array, " N"]) -> Float[Array, " N"]:
        """n ones, then zeros."""
        room = jnp.arange(uniform.shape[0]) < self.limit
        return jnp.cumprod(Bernoulli(self.logits, room).sample(uniform))

    def log_prob(self, pres: Float[Array, " N"]) -> Float[Array, ""]:
        """Log probability of the whole string; the coin that stops counts, those after it do not."""
        return self._coins(pres).log_prob(pres).sum()


class Count(NamedTuple):
    """eq. 8: Categorical(n; limit, softmax(logits)) on n in {0..limit}."""

    logits: Float[Array, " counts"]
    limit: Float[Array, ""]

    def _log_probs(self) -> Float[Array, " counts"]:
        possible = jnp.arange(self.logits.shape[0]) <= self.limit
        return jax.nn.log_softmax(jnp.where(possible, self.logits, -jnp.inf))

    def sample(self, uniform: Float[Array, ""]) -> Int[Array, ""]:
        """By inversion of the cumulative distribution; never more than the limit."""
        below = jnp.cumsum(jnp.exp(self._log_probs())) <= uniform
        return jnp.minimum(below.sum(), self.limit.astype(int))

    def log_prob(self, n: Float[Array, ""]) -> Float[Array, ""]:
        """Log probability of n."""
        chosen = jnp.arange(self.logits.shape[0]) == n
        return jnp.where(chosen, self._log_probs(), 0.0).sum()


def held(logits: Float[Array, " N"], learned: Float[Array, ""]) -> Float[Array, " N"]:
    """The same logits, which pass no gradient back where `learned` is 0."""
    return jnp.where(learned > 0, logits, jax.lax.stop_gradient(logits))


def masked(log_prob: Float[Array, " N"], pres: Float[Array, " N"]) -> Float[Array, ""]:
    """The sum over present objects. `where`, not a product, so that an absent slot cannot spread an infinity."""
    return jnp.where(pres > 0, log_prob, 0.0).sum()

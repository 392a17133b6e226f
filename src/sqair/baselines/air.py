"""AIR (sec. 2; Eslami et al. 2016): the discovery of SQAIR on each frame alone, with a geometric prior on the count.

It is a `SequenceModel` like `SQAIR`, so objectives, figures and commands take either. Frames are independent in the
model: every frame starts from nothing, identities last one frame, and a bound is computed frame by frame and summed.

Axes: T frames, N slots, W what, H hidden units, Y, X, C frame.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sqair.config import ModelConfig
from sqair.discovery import DiscoveryPosterior, DiscoveryPrior
from sqair.distributions import Noise, draw_noise
from sqair.image import ImageModel
from sqair.model import Info, Restraint, SequenceModel
from sqair.networks import Encoders
from sqair.objects import Latents, Objects, State, initial_state, name_newborns


class AIR(SequenceModel):
    """The generative model of eq. 1 and the inference network of eq. 2."""

    encoders: Encoders
    image: ImageModel
    discovery: DiscoveryPosterior
    discovery_prior: DiscoveryPrior
    config: ModelConfig = eqx.field(static=True)
    frames_are_independent: ClassVar[bool] = True

    def __init__(self, config: ModelConfig, *, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key, 4)
        self.encoders = Encoders(config, key=keys[0])
        self.image = ImageModel(config, key=keys[1])
        self.discovery = DiscoveryPosterior(config, 0, key=keys[2])
        self.discovery_prior = DiscoveryPrior(config, 0, key=keys[3])
        self.config = config

    def drawn_of(self, state: State, info: Info) -> Objects:
        """The objects: no frame knows of another."""
        return info.objects

    def log_likelihood(self, x: Float[Array, "Y X C"], drawn_of: Objects) -> Float[Array, ""]:
        """Algorithm 1."""
        return self.image.log_likelihood(x, drawn_of)

    def initial(self) -> State:
        """No objects, and no hidden states."""
        return initial_state(self.config.max_objects, self.config.what_size, 0)

    def noise(self, key: PRNGKeyArray, length: int) -> Noise:
        """The only phase is discovery."""
        return draw_noise(key, (length, 1), self.config.max_objects, self.config.what_size)

    def encode(self, frames: Float[Array, "T Y X C"]) -> Float[Array, "T H"]:
        """e_t of Algorithm 3."""
        return jax.vmap(self.encoders.image)(frames)

    def step(
        self,
        state: State,
        x: Float[Array, "Y X C"],
        encoding: Float[Array, " H"],
        noise: Noise,
        restraint: Restraint,
    ) -> tuple[State, Info]:
        """Inference for a frame (eq. 2) and the prior of what was inferred (eq. 1); discovery is never switched off."""
        noise = noise.phase(0)
        room = jnp.array(float(self.config.max_objects))
        new, log_q, presence_q = self.discovery(
            noise, x, encoding, jnp.zeros(0), room, restraint.learned, self.encoders, self.image.transformer
        )
        none = jnp.zeros(())
        log_p, presence_p = self.discovery_prior.log_prob(new, none, room, jnp.array(True), jnp.zeros(0))
        log_p = log_p - (restraint.cost + restraint.rent) * new.pres.sum()
        state, info = self._finish(state, new, log_p, presence_p)
        likelihood = self.image.log_prob(x, info.canvas)
        return state, info._replace(log_likelihood=likelihood, log_q=log_q, log_q_presence=presence_q)

    def dream_step(self, state: State, noise: Noise) -> tuple[State, Info]:
        """One frame from the prior (eq. 1)."""
        noise = noise.phase(0)
        new, log_p, presence_p = self.discovery_prior.sample(noise, jnp.zeros(()), jnp.array(True), jnp.zeros(0))
        return self._finish(state, new, log_p, presence_p)

    def _finish(
        self, state: State, new: Latents, log_p: Float[Array, ""], presence: Float[Array, ""]
    ) -> tuple[State, Info]:
        """The objects of this frame, with absent slots emptied, and the Info of a frame not observed."""
        here = new.pres[:, None] > 0
        what, where = jnp.where(here, new.what, 0.0), jnp.where(here, new.where, 0.0)
        objects = Objects(what, where, new.pres, name_newborns(new.pres, state.born))
        number = new.pres.sum()
        state = state._replace(objects=objects, born=state.born + number.astype(state.born.dtype), time=state.time + 1)
        zero = jnp.zeros(())
        info = Info(objects, self.image.canvas(objects), zero, number, zero, log_p, zero, presence, zero)
        return state, info

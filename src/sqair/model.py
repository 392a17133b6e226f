"""SQAIR (sec. 3): one time-step is propagate, discover, draw; a sequence is a scan over time-steps.

Home of eq. 3 (full_joint). Home of eq. 4 (full_q).

`observe` infers objects from frames, `imagine` dreams them from the prior with births and deaths, and `predict`
observes some frames and dreams the rest. There is no batch and no particle axis: the caller adds them with `jax.vmap`.

Axes: T frames, N slots, W what, H hidden units, Y, X, C frame.
"""

import abc
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sqair.background import Background, compared, make_background
from sqair.config import ModelConfig
from sqair.discovery import DiscoveryPosterior, DiscoveryPrior, SetEncoder
from sqair.distributions import Noise, draw_noise
from sqair.image import ImageModel, as_frames
from sqair.networks import Encoders
from sqair.objects import Latents, Objects, State, initial_state, name_newborns, unite
from sqair.propagation import PropagationPosterior, PropagationPrior


class Restraint(NamedTuple):
    """How training holds objects back at one frame; that of `no_restraint` leaves the model as it is."""

    discover: Float[Array, "*T"]
    """0 where discovery is switched off, else 1."""
    cost: Float[Array, "*T"]
    """Price of a discovered object, in nats; taken off the weight, so the prior does not learn it."""
    rent: Float[Array, "*T"]
    """The same of every object that is present, new or not."""
    learned: Float[Array, "*T"]
    """0 where presence in q, of new objects and of old ones, passes no gradient back, else 1."""


def no_restraint(length: int) -> Restraint:
    """None: a bound computed with it is the model's own."""
    none, full = jnp.zeros(length), jnp.ones(length)
    return Restraint(discover=full, cost=none, rent=none, learned=full)


class Info(NamedTuple):
    """What a time-step tells to objectives, figures and tracking; after a scan every field has a leading time axis."""

    objects: Objects
    canvas: Float[Array, "*T Y X C"]
    """y_t, the mean of the frame."""
    propagated: Float[Array, "*T"]
    """P_t."""
    discovered: Float[Array, "*T"]
    """D_t."""
    log_likelihood: Float[Array, "*T"]
    """log p(x_t | z_t); 0 where nothing was observed."""
    log_p: Float[Array, "*T"]
    """log p of all latent variables of the time-step."""
    log_q: Float[Array, "*T"]
    """log q of the same; 0 where they were drawn from p."""
    log_p_presence: Float[Array, "*T"]
    log_q_presence: Float[Array, "*T"]
    """The parts of log_p and log_q that are presence."""
    background: Float[Array, "*T Y X C"] | None = None
    """b_t, the frame without objects; None where that is black."""

    @property
    def log_weight(self) -> Float[Array, "*T"]:
        """log p(x_t, z_t | past) - log q(z_t | x_t, past): eq. 3 over eq. 4, one factor for each time-step."""
        return self.log_likelihood + self.log_p - self.log_q


class SequenceModel(eqx.Module):
    """A model of sequences, given by five methods; inference, dreaming and prediction are scans of them."""

    config: eqx.AbstractVar[ModelConfig]
    has_objects: ClassVar[bool] = True
    """Whether its objects mean anything; without them there is nothing to count, and nothing that could collapse."""
    frames_are_independent: ClassVar[bool] = False
    """Whether nothing passes from frame to frame; then frames train as sequences of one, and bounds are per frame."""

    def drawn_of(self, state: State, info: Info) -> Any:
        """All that a frame is drawn of, after `step` from `state`, if drawing changes no state: it may be done later.

        None where it may not.
        """
        return None

    def log_likelihood(self, x: Float[Array, "Y X C"], drawn_of: Any) -> Float[Array, ""]:
        """log p(x_t | z_t), given what `drawn_of` tells."""
        raise TypeError(f"frames of {type(self).__name__} are drawn by its step only")

    @abc.abstractmethod
    def initial(self) -> State:
        """The state before the first frame."""

    @abc.abstractmethod
    def noise(self, key: PRNGKeyArray, length: int) -> Noise:
        """All the randomness of a sequence, indexed by time, phase and slot."""

    @abc.abstractmethod
    def encode(self, frames: Float[Array, "T Y X C"]) -> Float[Array, "T H"]:
        """e_t of every frame at once; it does not depend on the particle, so a vmap over particles leaves it alone."""

    @abc.abstractmethod
    def step(
        self, state: State, x: Float[Array, "Y X C"], encoding: Float[Array, " H"], noise: Noise, restraint: Restraint
    ) -> tuple[State, Info]:
        """Inference for one frame, and the prior of what was inferred."""

    @abc.abstractmethod
    def dream_step(self, state: State, noise: Noise) -> tuple[State, Info]:
        """Generation for one time-step."""

    def observe(
        self,
        key: PRNGKeyArray | None,
        frames: Float[Array, "T Y X"] | Float[Array, "T Y X C"],
        *,
        state: State | None = None,
        noise: Noise | None = None,
        restraint: Restraint | None = None,
    ) -> tuple[State, Info]:
        """Infer the objects of a sequence.

        The key may be None when the noise is given; `state` continues an earlier call.
        """
        frames = as_frames(frames)
        noise = self.noise(needed(key), frames.shape[0]) if noise is None else noise
        restraint = no_restraint(frames.shape[0]) if restraint is None else restraint
        state = self.initial() if state is None else state
        inputs = (frames, self.encode(frames), noise, restraint)
        return jax.lax.scan(lambda carry, now: self.step(carry, *now), state, inputs)

    def imagine(
        self, key: PRNGKeyArray | None, length: int, *, state: State | None = None, noise: Noise | None = None
    ) -> tuple[State, Info]:
        """A sequence from the prior, or the continuation of `state`."""
        noise = self.noise(needed(key), length) if noise is None else noise
        state = self.initial() if state is None else state
        return jax.lax.scan(lambda carry, inputs: self.dream_step(carry, inputs), state, noise)

    def predict(
        self, key: PRNGKeyArray, frames: Float[Array, "T Y X"] | Float[Array, "T Y X C"], length: int
    ) -> tuple[State, Info]:
        """Observe all `frames`, then dream `length` more; the Info covers both."""
        key_seen, key_dreamt = jax.random.split(key)
        state, seen = self.observe(key_seen, frames)
        state, dreamt = self.imagine(key_dreamt, length, state=state)
        return state, jax.tree.map(lambda a, b: jnp.concatenate([a, b]), seen, dreamt)


def needed(key: PRNGKeyArray | None) -> PRNGKeyArray:
    """The key, which may be left out only when the noise is given."""
    if key is None:
        raise ValueError("a key is needed unless the noise is given")
    return key


class SQAIR(SequenceModel):
    """The generative model p and the inference network q."""

    encoders: Encoders
    image: ImageModel
    set_encoder: SetEncoder
    discovery: DiscoveryPosterior
    discovery_prior: DiscoveryPrior
    propagation: PropagationPosterior
    propagation_prior: PropagationPrior
    first_temporal: Float[Array, " H"]
    """h^T of a newly discovered object."""
    first_prior: Float[Array, " H"]
    """The propagation prior's state for a newly discovered object."""
    background: Background | None
    """What is behind objects; None for black."""
    config: ModelConfig = eqx.field(static=True)

    def __init__(self, config: ModelConfig, *, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key, 7)
        self.encoders = Encoders(config, key=keys[0])
        self.image = ImageModel(config, key=keys[1])
        self.set_encoder = SetEncoder(config, key=keys[2])
        self.discovery = DiscoveryPosterior(config, config.width, key=keys[3])
        self.discovery_prior = DiscoveryPrior(config, config.width, key=keys[4])
        self.propagation = PropagationPosterior(config, key=keys[5])
        self.propagation_prior = PropagationPrior(config, key=keys[6])
        self.first_temporal = jnp.zeros(config.width)
        self.first_prior = jnp.zeros(config.width)
        self.background = make_background(config)
        self.config = config

    def drawn_of(self, state: State, info: Info) -> Objects | None:
        """The objects, unless they stand before a background, which learns from what they leave of it."""
        return info.objects if self.background is None else None

    def log_likelihood(self, x: Float[Array, "Y X C"], drawn_of: Objects) -> Float[Array, ""]:
        """Algorithm 1."""
        return self.image.log_likelihood(x, drawn_of)

    def initial(self) -> State:
        """No objects."""
        state = initial_state(self.config.max_objects, self.config.what_size, self.config.width)
        return state if self.background is None else state._replace(backdrop=self.background.initial())

    def noise(self, key: PRNGKeyArray, length: int) -> Noise:
        """The phases are propagation and discovery."""
        return draw_noise(key, (length, 2), self.config.max_objects, self.config.what_size)

    def encode(self, frames: Float[Array, "T Y X C"]) -> Float[Array, "T H"]:
        """e_t of Algorithm 3. With a background it waits for that, which depends on the past: there is nothing yet."""
        if self.background is not None:
            return jnp.zeros((len(frames), 0))
        return jax.vmap(self.encoders.image)(frames)

    def _before_background(
        self, state: State, x: Float[Array, "Y X D"]
    ) -> tuple[State, Float[Array, "Y X C"], Float[Array, "Y X E"], Float[Array, " H"]]:
        """The state with what is known of the background, the picture alone, what q sees of it, and e_t."""
        assert self.background is not None
        state = state._replace(backdrop=self.background.begin(state.backdrop, x, state.time == 0))
        picture = x[..., : self.config.channels]
        seen = compared(picture, self.background.behind(state.backdrop))
        return state, picture, seen, self.encoders.image(seen)

    def step(
        self,
        state: State,
        x: Float[Array, "Y X C"],
        encoding: Float[Array, " H"],
        noise: Noise,
        restraint: Restraint,
    ) -> tuple[State, Info]:
        """Inference for one frame (eq. 4) and the prior of what was inferred (eq. 3)."""
        noise_p, noise_d = noise.phase(0), noise.phase(1)
        seen = x
        if self.background is not None:
            state, x, seen, encoding = self._before_background(state, x)
        objects, transformer = state.objects, self.image.transformer
        is_first = state.time == 0

        propagated, temporal, log_q_p, presence_q_p = self.propagation(
            noise_p, seen, objects, state.temporal, self.encoders, transformer, encoding, restraint.learned
        )
        expected = self.propagation_prior.expect(objects, state.prior)
        log_p_p, presence_p_p = expected.log_prob(propagated)
        count = propagated.pres.sum()
        context = self.set_encoder(propagated.what, propagated.where, propagated.pres)
        room = self.config.max_objects - count

        def discover() -> tuple[Latents, tuple[Array, Array], tuple[Array, Array]]:
            new, log_q, presence_q = self.discovery(
                noise_d, seen, encoding, context, room, restraint.learned, self.encoders, transformer
            )
            return new, (log_q, presence_q), self.discovery_prior.log_prob(new, count, room, is_first, context)

        def pass_over() -> tuple[Latents, tuple[Array, Array], tuple[Array, Array]]:
            nothing = jax.tree.map(jnp.zeros_like, propagated)
            return nothing, (jnp.zeros(()), jnp.zeros(())), (jnp.zeros(()), jnp.zeros(()))

        is_on = restraint.discover > 0
        new, (log_q_d, presence_q_d), (log_p_d, presence_p_d) = jax.lax.cond(is_on, discover, pass_over)

        price = restraint.cost * new.pres.sum() + restraint.rent * (count + new.pres.sum())

        state = self._unite(state, propagated, temporal, expected.hidden, new)
        state, canvas, behind = self._drawn(state, x)
        return state, Info(
            objects=state.objects,
            canvas=canvas,
            propagated=count,
            discovered=new.pres.sum(),
            log_likelihood=self.image.log_prob(x, canvas),  # eq. 3
            log_p=log_p_p + log_p_d - price,  # eq. 3
            log_q=log_q_p + log_q_d,  # eq. 4
            log_p_presence=presence_p_p + presence_p_d,
            log_q_presence=presence_q_p + presence_q_d,
            background=behind,
        )

    def dream_step(self, state: State, noise: Noise) -> tuple[State, Info]:
        """Generation for one time-step (eq. 3): objects move on or vanish, then new ones are born."""
        noise_p, noise_d = noise.phase(0), noise.phase(1)
        expected = self.propagation_prior.expect(state.objects, state.prior)
        propagated = expected.sample(noise_p)
        log_p_p, presence_p = expected.log_prob(propagated)
        count = propagated.pres.sum()
        context = self.set_encoder(propagated.what, propagated.where, propagated.pres)
        new, log_p_d, presence_d = self.discovery_prior.sample(noise_d, count, state.time == 0, context)
        state = self._unite(state, propagated, state.temporal, expected.hidden, new)
        state, canvas, behind = self._drawn(state)
        return state, Info(
            objects=state.objects,
            canvas=canvas,
            propagated=count,
            discovered=new.pres.sum(),
            log_likelihood=jnp.zeros(()),
            log_p=log_p_p + log_p_d,
            log_q=jnp.zeros(()),
            log_p_presence=presence_p + presence_d,
            log_q_presence=jnp.zeros(()),
            background=behind,
        )

    def _drawn(
        self, state: State, x: Float[Array, "Y X C"] | None = None
    ) -> tuple[State, Float[Array, "Y X C"], Float[Array, "Y X C"] | None]:
        """The canvas and what is behind it; a background learns from the frame, where there is one."""
        if self.background is None:
            return state, self.image.canvas(state.objects), None
        behind = self.background.behind(state.backdrop)
        canvas, covered = self.image.painted(state.objects, behind)
        if x is not None:
            state = state._replace(backdrop=self.background.follow(state.backdrop, x, covered))
        return state, canvas, behind

    def _unite(
        self,
        state: State,
        propagated: Latents,
        temporal: Float[Array, "N H"],
        prior: Float[Array, "N H"],
        new: Latents,
    ) -> State:
        """O_t = P_t and D_t, with their identities and hidden states, moved to the front of the slots."""
        slots = self.config.max_objects
        newborn = name_newborns(new.pres, state.born)
        # identities are shifted by one, so that the zero of an empty slot reads as -1
        old = (propagated, temporal, prior, state.objects.identity + 1)
        first = [jnp.tile(vector, (slots, 1)) for vector in (self.first_temporal, self.first_prior)]
        fresh = (new, *first, newborn + 1)
        pres = jnp.concatenate([propagated.pres, new.pres])
        (what, where, pres), temporal, prior, identity = unite(old, fresh, pres, slots)
        return State(
            objects=Objects(what, where, pres, identity - 1),
            temporal=temporal,
            prior=prior,
            born=state.born + new.pres.sum().astype(state.born.dtype),
            time=state.time + 1,
            backdrop=state.backdrop,
        )

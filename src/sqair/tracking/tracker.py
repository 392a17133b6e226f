"""`Tracker` takes frames as they come and gives what was found in them; `track_batch` takes many clips at once."""

from collections.abc import Iterable, Iterator
from itertools import islice

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, UInt8
from numpy import ndarray

from sqair.config import UserError
from sqair.model import SequenceModel
from sqair.tracking.filter import Found, Settings, first_memory, follow, remaining

BLOCK = 32
"""Frames that go through the compiled program at once."""
MOST_PARTICLES, MOST_LAG = 10_000, 1_000
LAG = 3
"""Frames that a particle filter looks ahead unless another number is asked for."""


def check_settings(model: SequenceModel, particles: int, lag: int) -> None:
    """Refuse what cannot be tracked with."""
    if not model.has_objects:
        raise UserError("this model knows no objects; track with a model of the kinds sqair or air")
    if not 1 <= particles <= MOST_PARTICLES:
        raise UserError(f"the number of particles must be from 1 to {MOST_PARTICLES}, not {particles}")
    if not 0 <= lag <= MOST_LAG:
        raise UserError(f"the lag must be from 0 to {MOST_LAG} frames, not {lag}")


class Tracker:
    """Follows one clip. Feed it frames, then take what `finish` still has to tell.

    `particles` 1 is the mode of q; more are a particle filter that tells of a frame `lag` frames later, with
    uncertainty. Without `pictures` nothing is drawn, and the canvas and glimpses of what is found are None.
    """

    def __init__(
        self,
        model: SequenceModel,
        key: PRNGKeyArray,
        *,
        particles: int = 1,
        lag: int | None = None,
        pictures: bool = False,
        block: int = BLOCK,
    ) -> None:
        lag = (LAG if particles > 1 else 0) if lag is None else lag
        check_settings(model, particles, lag)
        self.model, self.key, self.block = model, key, block
        self.settings = Settings(particles, lag, pictures)
        self.seen = 0
        """Frames so far."""
        self._memory = _begin(model, self.settings)

    def feed(self, frames: UInt8[ndarray, "T Y X C"]) -> list[Found]:
        """Go on with some frames of the model's size; returns what can be told by now, frame by frame, in numpy."""
        parts = (frames[start : start + self.block] for start in range(0, len(frames), self.block))
        return [found for part in parts for found in _frames(*self._send(part))]

    def _send(self, part: UInt8[ndarray, "T Y X C"]) -> tuple[Found, slice]:
        """Give a block to the device, which goes on by itself; what it will tell, and which entries count."""
        padded = np.zeros((self.block, *part.shape[1:]), np.uint8)
        padded[: len(part)] = part
        inputs = jnp.asarray(padded), jnp.array(len(part))
        self._memory, told = _follow(self.model, self.settings, self.key, self._memory, *inputs)
        waiting = max(0, self.settings.lag - self.seen)  # entries about frames before the first
        self.seen += len(part)
        return told, slice(waiting, len(part))

    def finish(self) -> list[Found]:
        """What is still to be told of the last frames."""
        if self.settings.lag == 0 or self.seen == 0:
            return []
        early = slice(max(0, self.settings.lag - self.seen), None)
        return _frames(remaining(self.model, self.settings, self._memory), early)

    def stream(self, frames: Iterable[UInt8[ndarray, "Y X C"]]) -> Iterator[Found]:
        """What is found in frames as they come, a block at a time: the device has the next one while this is used."""
        frames, sent = iter(frames), None
        while held := list(islice(frames, self.block)):
            before, sent = sent, self._send(np.stack(held))
            if before is not None:
                yield from _frames(*before)
        if sent is not None:
            yield from _frames(*sent)
        yield from self.finish()


_begin = eqx.filter_jit(first_memory)
_follow = eqx.filter_jit(follow)


def _frames(found: Found, chosen: slice) -> list[Found]:
    """The chosen frames one by one, in numpy."""
    arrays = jax.device_get(found)
    numbers = range(len(arrays.error))[chosen]
    return [jax.tree.map(lambda leaf, t=t: leaf[t], arrays) for t in numbers]


@eqx.filter_jit
def track_batch(
    model: SequenceModel,
    key: PRNGKeyArray,
    frames: UInt8[Array | ndarray, "B T Y X C"],
    *,
    particles: int = 1,
    lag: int | None = None,
    pictures: bool = False,
) -> Found:
    """Many clips of one length and of the model's size at once: made for a GPU. Everything has the axes (B, T).

    Clip b is tracked as a `Tracker` with the key `fold_in(key, b)` would.
    """
    lag = (LAG if particles > 1 else 0) if lag is None else lag
    check_settings(model, particles, lag)
    settings, length = Settings(particles, lag, pictures), frames.shape[1]

    def one(number: Int[Array, ""], frames: UInt8[Array, "T Y X C"]) -> Found:
        memory = first_memory(model, settings)
        memory, found = follow(model, settings, jax.random.fold_in(key, number), memory, frames, jnp.array(length))
        if lag == 0:
            return found
        late = remaining(model, settings, memory)
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b])[lag:], found, late)

    return jax.vmap(one)(jnp.arange(len(frames)), jnp.asarray(frames))

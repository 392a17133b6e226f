"""Sequences of moving digits, made on the device (sec. 4.1, App. F; the rules are those of the authors' program).

``moving-mnist``: the number of digits n is uniform over 0..max_digits and lasts for the whole sequence. In the first
frame every digit lies inside the frame and no two boxes overlap: a digit is placed uniformly and redrawn up to five
times while it overlaps an earlier one; when that fails, all starts again with other digits. Then, per axis, p += v, v
+= a, a += N(0, 0.01^2); p, the top-left corner, is reflected at 0 and at the frame's size, with v and a changing sign,
and all three are clipped. So digits leave the frame on the right and at the bottom only. They pass through each other,
and the brighter pixel wins.

``moving-mnist-free``: the same with p between minus the digit's size and the frame's size: digits leave on every side.

``moving-mnist-in-out``: as moving-mnist, but each of the n digits comes and goes. It is there in the first frame with
probability 2/3; from frame to frame a digit that is there vanishes with probability 0.1 and one that is not appears
with probability 0.2, which keeps that share. A digit that appears is placed uniformly inside the frame, over others if
it happens so, with a new velocity. A digit that comes back is the same image with a new identity.

Axes: S sequences, T frames, O = max_digits objects, H x W pixels, 2 is y, x. The starting attempts are C x R: layouts,
each with R tries per digit.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int32, PRNGKeyArray, UInt8
from numpy import ndarray

from sqair.config import DataConfig, UserError, nearest
from sqair.data.digits import Digits
from sqair.settings import check

MOTIONS = ("moving-mnist", "moving-mnist-free", "moving-mnist-in-out")
LAYOUTS = 24
"""Layouts drawn for a first frame, of which the first without overlap is used."""
TRIES = 6
"""Places drawn for a digit within one layout: the authors' program redraws five times."""
JERK_STD = 0.01
"""Standard deviation of the change of acceleration per frame, in pixels per frame^2."""
ACCELERATION = 0.3
"""Largest acceleration as a share of the largest speed."""
VANISH, APPEAR = 0.1, 0.2
"""Probabilities per frame in moving-mnist-in-out."""


class Sequences(NamedTuple):
    """Sequences of frames and the truth about them; the truth is None where a file has none."""

    frames: Float[Array | ndarray, "S T H W"] | Float[Array | ndarray, "S T H W 3"]
    """In [0, 1]."""
    counts: Int32[Array | ndarray, "S T"] | None = None
    """Digits that are there, in sight or not."""
    boxes: Float[Array | ndarray, "S T O 4"] | None = None
    """Left, top, width, height of a digit's tight box in pixels, wherever it is; NaN where absent."""
    ids: Int32[Array | ndarray, "S T O"] | None = None
    """Identity within the sequence; -1 where absent."""
    labels: Int32[Array | ndarray, "S O"] | None = None
    """Class 0..9; -1 where the sequence has fewer digits."""
    visible: Float[Array | ndarray, "S T O"] | None = None
    """Share of the tight box inside the frame; 0 where absent."""
    scene: UInt8[Array | ndarray, "S H W"] | UInt8[Array | ndarray, "S H W 3"] | None = None
    """The empty scene in the light of the first frame, for models with a background; None where it is not known."""
    corners: Int32[Array | ndarray, "S 2"] | None = None
    """Left and top of the frames in the camera's scaled picture, with `scene`."""
    most_objects: Int32[Array | ndarray, "S T"] | None = None
    """No more things than so many are there, for train.surplus_cost; -1 where that is not known."""


class Motion(NamedTuple):
    """Top-left corner, velocity and acceleration of digits, in pixels and frames; the last axis is y, x."""

    position: Float[Array, "*shape 2"]
    velocity: Float[Array, "*shape 2"]
    acceleration: Float[Array, "*shape 2"]


class Bounds(NamedTuple):
    """Within these, both included, digits move."""

    low: Float[Array, "*shape 2"]
    high: Float[Array, "*shape 2"]
    speed: float


def check_fits(digits: Digits, config: DataConfig, size: str = "digit_scale") -> None:
    """Refuse, before anything is compiled, what the generator cannot do. `digits` must be concrete.

    `size` is the setting that they have their size from.
    """
    if config.name not in MOTIONS:
        raise UserError(f"unknown data {config.name!r}; {nearest(config.name, MOTIONS)}")
    check(config, "data.")
    if len(digits.labels) < config.max_digits:
        raise UserError(
            f"{len(digits.labels)} digits are too few for sequences of {config.max_digits}; use more digits"
        )
    room = np.asarray(config.size) // np.asarray(digits.sizes).max(axis=0)
    if room.prod() < config.max_digits:
        raise UserError(
            f"a {config.size[0]}x{config.size[1]} frame may not hold {config.max_digits} digits apart; "
            f"raise size, or lower max_digits or {size}"
        )


def make_sequences(key: PRNGKeyArray, digits: Digits, config: DataConfig, count: int) -> Sequences:
    """`count` sequences. Jittable with `config` and `count` static; `check_fits` tells whether the digits have room."""
    digits = Digits(*map(jnp.asarray, digits))
    number_key, first_key, life_key, motion_key = jax.random.split(key, 4)
    number = jax.random.randint(number_key, (count, 1), 0, config.max_digits + 1)
    exists = jnp.arange(config.max_digits) < number  # (S, O)
    chosen, start = _first_frame(first_key, digits, exists, config)
    sizes = digits.sizes[chosen].astype(jnp.float32)
    alive = _lives(life_key, exists, config)  # (S, T, O)
    corners = jnp.round(_trajectories(motion_key, start, sizes, alive, config))  # (S, T, O, 2)
    frames = _render(digits.images[chosen], corners.astype(jnp.int32), alive, config.size)
    labels = jnp.where(exists, digits.labels[chosen], -1)
    sizes = jnp.broadcast_to(sizes[:, None], corners.shape)
    boxes = jnp.where(alive[..., None], jnp.concatenate([corners[..., ::-1], sizes[..., ::-1]], axis=-1), jnp.nan)
    visible = jnp.where(alive, visible_share(corners, sizes, config.size), 0.0)
    return Sequences(frames, alive.sum(axis=2, dtype=jnp.int32), boxes, _identities(alive), labels, visible)


# --- the first frame


def _first_frame(
    key: PRNGKeyArray, digits: Digits, exists: Bool[Array, "S O"], config: DataConfig
) -> tuple[Int[Array, "S O"], Float[Array, "S O 2"]]:
    """Which digits and their corners, without overlap: the first layout that worked out, else an orderly one."""
    draw_key, place_key = jax.random.split(key)
    count, objects = exists.shape
    chosen = _distinct(draw_key, (count, LAYOUTS, objects), len(digits.labels))
    sizes = jnp.asarray(digits.sizes)[chosen].astype(jnp.float32)
    uniform = jax.random.uniform(place_key, (count, LAYOUTS, objects, TRIES, 2))
    places = jnp.round(uniform * (jnp.asarray(config.size) - sizes)[..., None, :])
    corners, works = _place_in_turn(places, sizes, exists)
    sequence, first = jnp.arange(count), jnp.argmax(works, axis=1)
    cells = _in_cells(uniform[:, 0, 0, 0, 0], jnp.asarray(digits.sizes), objects, config.size)
    corners = jnp.where(works.any(axis=1)[:, None, None], corners[sequence, first], cells)
    return chosen[sequence, first], corners


def _distinct(key: PRNGKeyArray, shape: tuple[int, ...], total: int) -> Int[Array, "*shape"]:
    """Uniform numbers below `total`, all different along the last axis."""
    draws = jax.random.randint(key, shape, 0, total - jnp.arange(shape[-1]))
    chosen = draws[..., :1]
    for k in range(1, shape[-1]):
        draw = draws[..., k]
        for taken in jnp.moveaxis(jnp.sort(chosen, axis=-1), -1, 0):
            draw = draw + (draw >= taken)
        chosen = jnp.concatenate([chosen, draw[..., None]], axis=-1)
    return chosen


def _place_in_turn(
    places: Float[Array, "S C O R 2"], sizes: Float[Array, "S C O 2"], exists: Bool[Array, "S O"]
) -> tuple[Float[Array, "S C O 2"], Bool[Array, "S C"]]:
    """Each digit at the first of its places that is free of the digits before it; and whether all found one."""
    corners = [places[:, :, 0, 0]]
    works = jnp.ones(places.shape[:2], bool)
    for k in range(1, places.shape[2]):
        free = jnp.ones(places.shape[:2] + places.shape[3:4], bool)  # (S, C, R)
        for j, earlier in enumerate(corners):
            gap = places[:, :, k] - earlier[:, :, None]
            apart = (gap >= sizes[:, :, None, j]) | (-gap >= sizes[:, :, None, k])
            free &= apart.any(axis=-1)
        best = jnp.argmax(free, axis=2)[:, :, None, None]
        corners.append(jnp.take_along_axis(places[:, :, k], best, axis=2)[:, :, 0])
        works &= free.any(axis=2) | ~exists[:, None, k]
    return jnp.stack(corners, axis=2), works


def _in_cells(
    uniform: Float[Array, " S"], sizes: Int[Array, "D 2"], objects: int, frame: tuple[int, int]
) -> Float[Array, "S O 2"]:
    """Corners in different cells, each as large as the largest digit: never an overlap, for the rare crowded layout."""
    cell = sizes.max(axis=0)
    rows, columns = frame[0] // cell[0], frame[1] // cell[1]
    first = (uniform[:, None] * rows * columns).astype(jnp.int32)
    rank = (first + jnp.arange(objects)) % (rows * columns)
    return (jnp.stack([rank // columns, rank % columns], axis=-1) * cell).astype(jnp.float32)


# --- motion


def _lives(key: PRNGKeyArray, exists: Bool[Array, "S O"], config: DataConfig) -> Bool[Array, "S T O"]:
    """In which frames each digit is there."""
    if config.name != "moving-mnist-in-out":
        return jnp.broadcast_to(exists[:, None], (len(exists), config.length, exists.shape[1]))
    chance = jax.random.uniform(key, (config.length, *exists.shape))
    first = chance[0] < APPEAR / (APPEAR + VANISH)

    def step(here: Array, u: Array) -> tuple[Array, Array]:
        here = jnp.where(here, u >= VANISH, u < APPEAR)
        return here, here

    _, later = jax.lax.scan(step, first, chance[1:])
    return jnp.moveaxis(jnp.concatenate([first[None], later]) & exists, 0, 1)


def _identities(alive: Bool[Array, "S T O"]) -> Int32[Array, "S T O"]:
    """Object k is k when it first appears, O + k when it comes back, 2 O + k after that; -1 where absent."""
    before = jnp.pad(alive[:, :-1], ((0, 0), (1, 0), (0, 0)))
    appearance = jnp.cumsum(alive & ~before, axis=1, dtype=jnp.int32) - 1
    objects = alive.shape[2]
    return jnp.where(alive, appearance * objects + jnp.arange(objects, dtype=jnp.int32), -1)


def _trajectories(
    key: PRNGKeyArray,
    start: Float[Array, "S O 2"],
    sizes: Float[Array, "S O 2"],
    alive: Bool[Array, "S T O"],
    config: DataConfig,
) -> Float[Array, "S T O 2"]:
    """Corners over time, not rounded; where a digit is absent they mean nothing."""
    frame = jnp.asarray(config.size, jnp.float32)
    low = -sizes if config.name == "moving-mnist-free" else jnp.zeros_like(sizes)
    bounds = Bounds(low, jnp.broadcast_to(frame, sizes.shape), config.speed)
    jerk_key, first_key, place_key, later_key = jax.random.split(key, 4)
    jerks = JERK_STD * jax.random.normal(jerk_key, (config.length, *start.shape))
    first = set_off(first_key, start, jerks[0], bounds)
    if config.name == "moving-mnist-in-out":
        places = jnp.round(jax.random.uniform(place_key, jerks[1:].shape) * (frame - sizes))
        fresh = set_off(later_key, places, jerks[1:], bounds)
    else:
        fresh = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, jerks[1:].shape), first)  # nothing appears later

    def step(motion: Motion, inputs: tuple[Array, Motion, Array]) -> tuple[Motion, Array]:
        jerk, new, appears = inputs
        motion = jax.tree.map(lambda a, b: jnp.where(appears, a, b), new, move(motion, jerk, bounds))
        return motion, motion.position

    appears = jnp.moveaxis(alive[:, 1:] & ~alive[:, :-1], 1, 0)[..., None]
    _, later = jax.lax.scan(step, first, (jerks[1:], fresh, appears))
    return jnp.moveaxis(jnp.concatenate([first.position[None], later]), 0, 1)


def set_off(
    key: PRNGKeyArray, position: Float[Array, "*shape 2"], jerk: Float[Array, "*shape 2"], bounds: Bounds
) -> Motion:
    """A motion that begins at `position`. As in the authors' program it has moved once before, from anywhere."""
    uniform = jax.random.uniform(key, (3, *position.shape))
    velocity, acceleration = bounds.speed * (2 * uniform[1:] - 1)
    anywhere = bounds.low + uniform[0] * (bounds.high - bounds.low)
    moved = move(Motion(anywhere, velocity, ACCELERATION * acceleration), jerk, bounds)
    return moved._replace(position=position)


def move(motion: Motion, jerk: Float[Array, "*shape 2"], bounds: Bounds) -> Motion:
    """One frame later: p + v, v + a, a + jerk; reflected at the bounds, then clipped."""
    position, velocity, acceleration = motion
    position, velocity, acceleration = position + velocity, velocity + acceleration, acceleration + jerk
    below, above = position < bounds.low, position > bounds.high
    position = jnp.where(below, 2 * bounds.low - position, jnp.where(above, 2 * bounds.high - position, position))
    sign = jnp.where(below | above, -1.0, 1.0)
    limit = ACCELERATION * bounds.speed
    return Motion(
        jnp.clip(position, bounds.low, bounds.high),
        jnp.clip(sign * velocity, -bounds.speed, bounds.speed),
        jnp.clip(sign * acceleration, -limit, limit),
    )


# --- pixels


def _render(
    images: UInt8[Array, "S O C C"], corners: Int[Array, "S T O 2"], alive: Bool[Array, "S T O"], frame: tuple[int, int]
) -> Float[Array, "S T H W"]:
    """Digits at whole pixels, the brightest on top: every pixel of the frame looks up its pixel of every digit."""
    side = images.shape[-1]
    row = jnp.arange(frame[0]) - corners[..., :1]  # (S, T, O, H), of the digit's image
    column = jnp.arange(frame[1]) - corners[..., 1:]
    covered = ((row >= 0) & (row < side) & alive[..., None])[..., :, None] & ((column >= 0) & (column < side))[
        ..., None, :
    ]
    rows = jnp.take_along_axis(images[:, None], jnp.clip(row, 0, side - 1)[..., :, None], axis=3)
    pixels = jnp.take_along_axis(rows, jnp.clip(column, 0, side - 1)[..., None, :], axis=4)
    return jnp.where(covered, pixels, 0).max(axis=2).astype(jnp.float32) / 255.0


def visible_share(
    corners: Float[Array, "*shape 2"], sizes: Float[Array, "*shape 2"], frame: tuple[int, int]
) -> Float[Array, "*shape"]:
    """Share of the boxes' area inside the frame."""
    end = jnp.minimum(corners + sizes, jnp.asarray(frame, jnp.float32))
    inside = jnp.maximum(end - jnp.maximum(corners, 0.0), 0.0)
    return inside.prod(axis=-1) / sizes.prod(axis=-1)

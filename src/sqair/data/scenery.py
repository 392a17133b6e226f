"""What stands still before the made cameras of cameras.py, and what light does to it.

Axes: H, W a frame, 3 colour in [0, 1]. Everything is drawn in shares of the frame, so that it fits any size.
"""

import numpy as np
from jaxtyping import Float, Float32
from numpy import ndarray

from sqair.data.walkers import Sprite

GREY = np.array([0.299, 0.587, 0.114], np.float32)
"""From colour to grey, Rec. 601."""
SHADOW = 0.28
"""Share of the light that a shadow takes away in its middle."""
DRIFT = ((0.05, 1300.0), (0.02, 310.0))
"""The light's swings: share, and frames that one takes."""


def draw_scene(rng: np.random.Generator, size: tuple[int, int], street: bool) -> Float32[ndarray, "H W 3"]:
    """A street with a house front, pavements and a road, or a paved square."""
    height, width = size
    grey = np.full(size, 0.52) if not street else _street(height, width, rng)
    cell = max(4, round(height / 14))
    rows, columns = np.arange(height), np.arange(width)
    joints = (rows[:, None] % cell == 0) | ((columns + cell // 2 * (rows[:, None] // cell % 2)) % cell == 0)
    paved = np.ones(size, bool) if not street else _is_paved(height, width)
    grey -= 0.07 * (joints & paved)
    for share, amount in ((3, 0.05), (12, 0.05), (60, 0.035)):
        grey += amount * smooth_noise(rng, size, max(1.0, height / share))
    grey += 0.03 * rng.normal(size=size)
    tint = 1 + 0.025 * np.stack([smooth_noise(rng, size, height / 2) for _ in range(3)], -1)
    return np.clip(grey[..., None] * tint, 0.2, 0.85).astype(np.float32)


def _is_paved(height: int, width: int) -> ndarray:
    """Where a street has flagstones: before the house, and at the near side."""
    rows = np.arange(height)[:, None] / height
    return np.broadcast_to(((rows > 0.4) & (rows < 0.56)) | (rows > 0.86), (height, width))


def _street(height: int, width: int, rng: np.random.Generator) -> Float[ndarray, "H W"]:
    """The grey of a house front with windows, two pavements and a road with a broken line."""
    rows, columns = np.arange(height)[:, None] / height, np.arange(width) / width
    grey = np.where(rows < 0.4, 0.46, np.where(_is_paved(height, width), 0.56, 0.42)) + 0 * columns
    for left in np.arange(0.05, 0.95, 0.15):
        shade = float(rng.uniform(0.28, 0.36))
        grey[(rows > 0.1) & (rows < 0.28) & (columns > left) & (columns < left + 0.08)] = shade
    door = 0.135 + 0.15 * int(rng.integers(5))
    grey[(rows > 0.18) & (rows < 0.4) & (columns > door) & (columns < door + 0.06)] = 0.32
    grey[(rows > 0.7) & (rows < 0.715) & (columns % 0.16 < 0.08)] = 0.66
    kerbs = ((rows > 0.555) & (rows < 0.57)) | ((rows > 0.85) & (rows < 0.865))
    grey[kerbs[:, 0]] = 0.62
    return grey


def smooth_noise(rng: np.random.Generator, size: tuple[int, int], cell: float) -> Float[ndarray, "H W"]:
    """Normal numbers on a grid with so many pixels from point to point, and straight lines between them."""
    counts = [int(side / cell) + 2 for side in size]
    values = rng.normal(size=counts)
    for axis, side in enumerate(size):
        place = np.arange(side) / cell
        low = np.floor(place).astype(int)
        share = np.expand_dims(place - low, 1 - axis)
        values = np.take(values, low, axis) * (1 - share) + np.take(values, low + 1, axis) * share
    return values


def light(frame: int, seed: int) -> float:
    """How bright everything is in a frame: it drifts slowly, by a few percent."""
    phases = np.random.default_rng((seed, 3)).uniform(0, 2 * np.pi, len(DRIFT))
    return 1.0 + sum(a * float(np.sin(2 * np.pi * frame / p + f)) for (a, p), f in zip(DRIFT, phases, strict=True))


def shade(seen: Float32[ndarray, "H W 3"], box: tuple[float, float, float, float]) -> None:
    """Darken, in place, what lies in the soft shadow of who fills a box: on the ground, to the right of the feet."""
    left, top, width, height = box
    x, y, wide, tall = left + width / 2 + 0.22 * height, top + height - 0.02 * height, 0.34 * height, 0.07 * height
    rows, columns = _window(seen.shape, y - tall, y + tall, x - wide, x + wide)
    down = (np.arange(rows.start, rows.stop)[:, None] + 0.5 - y) / tall
    across = (np.arange(columns.start, columns.stop) + 0.5 - x) / wide
    depth = SHADOW * np.clip(1.6 * (1 - down**2 - across**2), 0, 1)
    seen[rows, columns] *= (1 - depth[..., None]).astype(np.float32)


def put(seen: Float32[ndarray, "H W 3"], sprite: Sprite) -> None:
    """Draw a sprite, in place; what lies outside of the frame is left out."""
    tall, wide = sprite.alpha.shape
    rows, columns = _window(seen.shape, sprite.top, sprite.top + tall, sprite.left, sprite.left + wide)
    part = (
        slice(rows.start - sprite.top, rows.stop - sprite.top),
        slice(columns.start - sprite.left, columns.stop - sprite.left),
    )
    alpha = sprite.alpha[part][..., None]
    seen[rows, columns] += alpha * (sprite.colour[part] - seen[rows, columns])


def _window(
    shape: tuple[int, ...], top: float | int, bottom: float | int, left: float | int, right: float | int
) -> tuple[slice, slice]:
    """The rows and columns of a frame between four numbers; empty ones where there are none."""
    edges = [(top, bottom, shape[0]), (left, right, shape[1])]
    first, second = (
        slice(low := min(max(int(np.floor(start)), 0), side), min(max(int(np.ceil(stop)), low), side))
        for start, stop, side in edges
    )
    return first, second

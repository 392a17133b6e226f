"""People drawn from ellipses and strokes, who walk: what the made cameras of cameras.py show.

A walker is put together around its feet, in units of its height: two legs and two arms that swing against each other
with the distance walked, a body, a head, and for some a coat or a bag. Edges are smoothed over one pixel.

Axes: Y, X the pixels of a sprite, 3 colour in [0, 1]; points are x to the right, y down.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32
from numpy import ndarray

SWING = 0.16
"""How far a foot is before or behind the body, in heights."""
PACE = 0.85
"""Distance walked in one swing to and fro, in heights."""
HALF_WIDTH = 0.4
"""Half the width of the window a walker is drawn in, in heights."""
Colour = tuple[float, float, float]


@dataclass(frozen=True)
class Looks:
    """What a walker looks like."""

    height: float
    """In pixels."""
    girth: float
    """Width of the body, 1 is usual."""
    coat: float
    """Length of a coat below the body, in heights; 0 for none."""
    bag: float
    """Radius of a bag, in heights; 0 for none."""
    top: Colour
    legs: Colour
    skin: Colour


class Sprite(NamedTuple):
    """A walker drawn in a window of its own; the window may lie outside of the frame in part."""

    left: int
    top: int
    alpha: Float32[ndarray, "Y X"]
    colour: Float32[ndarray, "Y X 3"]

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, width, height of all pixels that are at least half covered, in sight or not."""
        rows, columns = (np.flatnonzero((self.alpha >= 0.5).any(axis)) for axis in (1, 0))
        width, height = columns[-1] + 1 - columns[0], rows[-1] + 1 - rows[0]
        return float(self.left + columns[0]), float(self.top + rows[0]), float(width), float(height)


def choose_looks(rng: np.random.Generator, height: float) -> Looks:
    """A walker at random: dark or light clothes, so that most differ from the street."""
    dark, light = rng.uniform(0.05, 0.3, 3), rng.uniform(0.72, 0.98, 3)
    top, legs = (dark, light) if rng.random() < 0.3 else (light, dark) if rng.random() < 0.4 else (dark, dark * 0.8)
    skin = rng.uniform(0.3, 0.85) * np.array([1.0, 0.8, 0.68])
    coat, bag = rng.random() < 0.35, rng.random() < 0.3
    return Looks(
        height=height * float(rng.uniform(0.88, 1.1)),
        girth=float(rng.uniform(0.9, 1.3)),
        coat=float(rng.uniform(0.08, 0.2)) if coat else 0.0,
        bag=float(rng.uniform(0.05, 0.08)) if bag else 0.0,
        top=_colour(top),
        legs=_colour(legs),
        skin=_colour(skin),
    )


def _colour(values: ndarray) -> Colour:
    red, green, blue = (float(value) for value in values)
    return red, green, blue


def draw_walker(looks: Looks, x: float, y: float, walked: float, facing: float) -> Sprite:
    """A walker with its feet at (x, y) after `walked` pixels; `facing` is 1 to the right, -1 to the left."""
    height = looks.height
    left, top = int(np.floor(x - HALF_WIDTH * height)), int(np.floor(y - 1.1 * height))
    wide, tall = int(np.ceil(2 * HALF_WIDTH * height)) + 1, int(np.ceil(1.2 * height)) + 1
    across = ((left + np.arange(wide) + 0.5 - x) / height).astype(np.float32)
    up = ((y - top - np.arange(tall)[:, None] - 0.5) / height).astype(np.float32)
    swing = facing * SWING * math.sin(2 * math.pi * walked / (PACE * height))
    alpha, colour = np.zeros((tall, wide), np.float32), np.zeros((tall, wide, 3), np.float32)
    for distance, shade in parts(looks, across, up, swing, facing):
        cover = np.clip(0.5 - distance * height, 0.0, 1.0)
        alpha += cover * (1 - alpha)
        colour += cover[..., None] * (shade - colour)
    return Sprite(left, top, alpha, colour)


def parts(
    looks: Looks, across: Float[ndarray, " X"], up: Float[ndarray, "Y 1"], swing: float, facing: float
) -> list[tuple[Float[ndarray, "Y X"], ndarray]]:
    """Distance of every pixel to each part, negative inside, and the part's colour; later ones cover earlier ones."""
    top, legs, skin = (np.array(shade, np.float32) for shade in (looks.top, looks.legs, looks.skin))
    hip, shoulder, girth = (0.0, 0.46), (0.0, 0.76), looks.girth
    found = [
        (_stroke(across, up, hip, (-swing, 0.04), 0.052), 0.8 * legs),
        (_stroke(across, up, shoulder, (0.8 * swing, 0.47), 0.034), 0.8 * top),
        (_stroke(across, up, hip, (swing, 0.04), 0.052), legs),
        (_ellipse(across, up, (0.0, 0.63), (0.115 * girth, 0.22)), top),
    ]
    if looks.coat:
        middle, half = 0.46 - looks.coat / 2, 0.1 + looks.coat / 2
        found.append((_ellipse(across, up, (0.0, middle), (0.12 * girth, half)), top))
    if looks.bag:
        found.append((_ellipse(across, up, (-0.12 * facing * girth, 0.6), (looks.bag, 1.6 * looks.bag)), legs))
    return [
        *found,
        (_ellipse(across, up, (0.015 * facing, 0.915), (0.065, 0.08)), skin),
        (_stroke(across, up, shoulder, (-0.8 * swing, 0.47), 0.034), 0.9 * top),
    ]


def _ellipse(
    across: ndarray, up: ndarray, middle: tuple[float, float], radii: tuple[float, float]
) -> Float[ndarray, "Y X"]:
    """Distance to an ellipse, near enough at its edge."""
    x, y = (across - middle[0]) / radii[0], (up - middle[1]) / radii[1]
    length = np.hypot(x, y)
    slope = np.hypot(x / radii[0], y / radii[1])
    return (length - 1) * length / np.maximum(slope, 1e-6)


def _stroke(
    across: ndarray, up: ndarray, start: tuple[float, float], end: tuple[float, float], radius: float
) -> Float[ndarray, "Y X"]:
    """Distance to a straight stroke with round ends."""
    along = end[0] - start[0], end[1] - start[1]
    share = ((across - start[0]) * along[0] + (up - start[1]) * along[1]) / (along[0] ** 2 + along[1] ** 2)
    share = np.clip(share, 0.0, 1.0)
    return np.hypot(across - start[0] - share * along[0], up - start[1] - share * along[1]) - radius

"""Digits that look handwritten, drawn from stroke skeletons: no download, any number of them, the same for a seed.

A digit is drawn in four steps: a hand (a mixture of a skeleton's poses, every control point moved a little), a smooth
curve through the control points (Catmull-Rom, linear in them, so a whole batch is one matrix product), a writer's habit
(slant, aspect, rotation and a slow bend of the plane), and a pen: Gaussian dabs along the curve, summed and cut off at
full ink, which gives a flat core and a soft edge. Dabs are separable, so a batch of images is one batched product of
two thin matrices. As in MNIST the digit fills a box of 20x20 pixels whose centre of mass is the middle of a 28x28
image.

Axes: n digits, c control points, p points along the pen's path, 2 is x, y.
"""

import functools

import numpy as np
from jaxtyping import Float, Int, UInt8
from numpy import ndarray

from sqair.data.skeletons import SKELETONS, Skeleton

SIDE = 28
BOX = 20.0
FAINTEST = 0.04
"""Ink below this share is left white, so that a soft edge ends somewhere."""
POINTS_PER_SPAN = 12
"""Points of the path between two neighbouring control points."""
BATCH = 2_000
"""Digits drawn at once; bounds the memory."""


@functools.cache
def stroke_digits(count: int, seed: int) -> tuple[UInt8[ndarray, "n 28 28"], Int[ndarray, " n"]]:
    """`count` digits with uniform labels; the same count and seed give the same bytes. Read-only arrays."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count).astype(np.int32)
    choice = _choose_skeletons(rng, labels)
    images = np.zeros((count, SIDE, SIDE), np.uint8)
    for number, skeleton in enumerate(SKELETONS):
        (chosen,) = np.nonzero(choice == number)
        for start in range(0, len(chosen), BATCH):
            batch = chosen[start : start + BATCH]
            images[batch] = _write(rng, skeleton, len(batch))
    images.setflags(write=False)
    labels.setflags(write=False)
    return images, labels


def _choose_skeletons(rng: np.random.Generator, labels: Int[ndarray, " n"]) -> Int[ndarray, " n"]:
    """For every label the number of one of its skeletons, drawn by their weights."""
    weights = np.array([[s.weight * (s.label == digit) for s in SKELETONS] for digit in range(10)])
    cumulative = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)
    return (rng.random(len(labels))[:, None] >= cumulative[labels]).sum(axis=1)


def _write(rng: np.random.Generator, skeleton: Skeleton, count: int) -> UInt8[ndarray, "n 28 28"]:
    """`count` digits of one skeleton."""
    controls = _hands(rng, skeleton, count)
    middle, step = _path_matrices(skeleton.strokes, controls.shape[1])
    path, steps = middle @ controls, step @ controls
    path, jacobian = _habit(rng, path)
    steps = np.einsum("npij,npj->npi", jacobian, steps)
    return _ink(rng, path, steps)


def _hands(rng: np.random.Generator, skeleton: Skeleton, count: int) -> Float[ndarray, "n c 2"]:
    """Control points: a random mixture of the poses, then each point moved on its own."""
    poses = skeleton.points()
    mixture = rng.dirichlet(np.full(len(poses), 0.8), count)
    controls = np.einsum("nk,kci->nci", mixture, poses)
    wobble = rng.gamma(4.0, 0.0072, (count, 1, 1))  # some hands are steadier than others
    return controls + wobble * rng.standard_normal(controls.shape)


def _path_matrices(strokes: tuple[tuple[int, ...], ...], controls: int) -> tuple[ndarray, ndarray]:
    """Matrices (p, c) from control points to the middles of the small steps along all strokes, and to the steps."""
    s = np.linspace(0.0, 1.0, POINTS_PER_SPAN + 1)[:, None]
    before, at, after, beyond = (
        0.5 * (-s + 2 * s**2 - s**3),
        0.5 * (2 - 5 * s**2 + 3 * s**3),
        0.5 * (s + 4 * s**2 - 3 * s**3),
        0.5 * (-(s**2) + s**3),
    )
    unit = np.eye(controls)
    middles, steps = [], []
    for stroke in strokes:
        knots = unit[list(stroke)]
        knots = np.concatenate([2 * knots[:1] - knots[1:2], knots, 2 * knots[-1:] - knots[-2:-1]])
        for k in range(1, len(knots) - 2):
            points = before * knots[k - 1] + at * knots[k] + after * knots[k + 1] + beyond * knots[k + 2]
            middles.append((points[1:] + points[:-1]) / 2)
            steps.append(points[1:] - points[:-1])
    return np.concatenate(middles), np.concatenate(steps)


def _habit(rng: np.random.Generator, path: Float[ndarray, "n p 2"]) -> tuple[ndarray, ndarray]:
    """The path slanted, stretched, turned and slowly bent, and the Jacobian (n, p, 2, 2) of that map."""
    count = len(path)
    slant = rng.normal(0.12, 0.22, count)
    aspect = np.exp(rng.normal(0.06, 0.16, count))
    angle = rng.normal(0.0, 0.09, count)
    cos, sin, zero, one = np.cos(angle), np.sin(angle), np.zeros(count), np.ones(count)
    shear = np.array([[aspect, -slant], [zero, one]]).transpose(2, 0, 1)
    turn = np.array([[cos, -sin], [sin, cos]]).transpose(2, 0, 1)
    centred = path - path.mean(axis=1, keepdims=True)
    waves = rng.normal(0.0, 2.4, (count, 1, 2, 2))  # one slow wave moves x, another moves y
    phase = np.einsum("npj,nqij->npi", centred, waves) + rng.uniform(0, 2 * np.pi, (count, 1, 2))
    height = np.abs(rng.normal(0.0, 0.04, (count, 1, 2)))
    bent = centred + height * np.sin(phase)
    bend = np.eye(2) + (height * np.cos(phase))[..., None] * waves
    affine = turn @ shear
    return np.einsum("nij,npj->npi", affine, bent), affine[:, None] @ bend


def _ink(
    rng: np.random.Generator, path: Float[ndarray, "n p 2"], steps: Float[ndarray, "n p 2"]
) -> UInt8[ndarray, "n 28 28"]:
    """The paths fitted to the box and drawn with a soft pen."""
    softness = rng.uniform(0.55, 0.72, len(path))
    thickness = np.clip(rng.normal(1.3, 0.34, len(path)), 0.85, 2.0)  # half of a stroke's width, in pixels
    peak = np.exp((thickness / softness) ** 2 / 2) / 2  # the profile falls to half at `thickness`
    reach = softness * np.sqrt(2 * np.log(peak / FAINTEST))
    side = BOX - rng.uniform(-0.3, 0.3, len(path))
    path, scale = _fit(path, reach, side)
    length = np.sqrt((steps**2).sum(axis=2)) * scale[:, None]
    path = path + _centring(path, length, reach)[:, None]
    dabs = length * _pressure(rng, length) * (peak / (softness * np.sqrt(2 * np.pi)))[:, None]
    return _draw(path, dabs, softness)


def _fit(path: Float[ndarray, "n p 2"], reach: ndarray, side: ndarray) -> tuple[Float[ndarray, "n p 2"], ndarray]:
    """The paths scaled so that the longer side of the ink, `reach` around the path, is `side`; and the scales."""
    extent = (path.max(axis=1) - path.min(axis=1)).max(axis=1)
    scale = (side - 2 * reach) / extent
    return path * scale[:, None, None], scale


def _centring(path: Float[ndarray, "n p 2"], length: Float[ndarray, "n p"], reach: ndarray) -> Float[ndarray, "n 2"]:
    """The shift of the centre of mass to the middle; as in MNIST, the box of the ink begins on a whole pixel."""
    mass = (path * length[..., None]).sum(axis=1) / length.sum(axis=1, keepdims=True)
    low, high = path.min(axis=1) - reach[:, None], path.max(axis=1) + reach[:, None]
    corner = np.clip(np.round(low + SIDE / 2 - mass), 0, np.floor(SIDE - (high - low)))
    return corner - low


def _pressure(rng: np.random.Generator, length: Float[ndarray, "n p"]) -> Float[ndarray, "n p"]:
    """Ink per length, varying slowly and a little unevenly along the path."""
    along = np.cumsum(length, axis=1)
    slow, quick = (
        np.sin(along * rng.uniform(low, high, (len(along), 1)) + rng.uniform(0, 2 * np.pi, (len(along), 1)))
        for low, high in ((0.05, 0.25), (0.4, 1.0))
    )
    return np.exp(rng.normal(0.0, 0.3, (len(along), 1)) * slow + rng.normal(0.0, 0.12, (len(along), 1)) * quick)


def _draw(
    path: Float[ndarray, "n p 2"], dabs: Float[ndarray, "n p"], softness: Float[ndarray, " n"]
) -> UInt8[ndarray, "n 28 28"]:
    """Gaussian dabs of ink at the points of the path, summed and cut off at full ink."""
    pixel = (np.arange(SIDE) + 0.5).astype(np.float32)
    distance = (path.astype(np.float32)[..., None] - pixel) / softness.astype(np.float32)[:, None, None, None]
    spread = np.exp(-0.5 * distance**2)  # (n, p, 2, 28)
    across, down = spread[:, :, 0], spread[:, :, 1] * dabs.astype(np.float32)[..., None]
    ink = down.transpose(0, 2, 1) @ across
    return (np.clip((ink - FAINTEST) / (1 - FAINTEST), 0.0, 1.0) * 255).round().astype(np.uint8)

"""A picture larger than the model's frame: overlapping windows, each followed by the same model at the same time.

Neighbours overlap by at least half a window, so what is smaller than that is whole in one of them. A window knows
nothing of the others; `joining.py` makes one identity of what several of them see.

Axes: M windows, T frames, N slots, H, W the picture, Y, X, C the model's frame.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, UInt8
from numpy import ndarray

from sqair.data.backdrops import surroundings
from sqair.model import SequenceModel
from sqair.tracking.filter import Found, Memory, Settings, first_memory, follow

OVERLAP = 0.5
"""Share of a window that its neighbour sees, too, at least."""
SOLID = 0.25
"""Share of a glimpse's maximum from which on a pixel is in a box: things are solid, and blurred at their edges."""
BLOCK = 8
"""Frames of all windows that go through the compiled program at once."""


@dataclass(frozen=True)
class Grid:
    """Where the windows lie in a picture; one that is smaller than a window is set on black."""

    size: tuple[int, int]
    """Height and width of the picture."""
    window: tuple[int, int]
    """Height and width of a window: the model's frame."""

    @property
    def corners(self) -> Int[ndarray, "M 2"]:
        """Left and top of every window, row by row; negative where the picture is smaller."""
        tops, lefts = (_starts(side, part) for side, part in zip(self.size, self.window, strict=True))
        return np.array([(left, top) for top in tops for left in lefts])

    def cut(self, frames: UInt8[ndarray, "T H W C"]) -> UInt8[ndarray, "M T Y X C"]:
        """The windows of some pictures."""
        height, width = self.window
        wide = [max(0, part - side) for side, part in zip(self.size, self.window, strict=True)]
        around = [(extra // 2, extra - extra // 2) for extra in wide]
        padded = np.pad(frames, ((0, 0), *around, (0, 0)))
        places = self.corners + np.array([around[1][0], around[0][0]])
        return np.stack([padded[:, top : top + height, left : left + width] for left, top in places])

    def assembled(self, canvases: UInt8[ndarray, "M Y X C"], *, mean: bool = False) -> UInt8[ndarray, "H W C"]:
        """One picture of what all windows drew: the brightest, where several did, or else the mean."""
        height, width = self.size
        whole = np.zeros((height, width, canvases.shape[-1]), np.float32)
        count = np.zeros((height, width, 1), np.float32)
        for (left, top), canvas in zip(self.corners, canvases, strict=True):
            x, y = max(left, 0), max(top, 0)
            part = canvas[y - top :, x - left :][: height - y, : width - x]
            place = slice(y, y + part.shape[0]), slice(x, x + part.shape[1])
            whole[place] = whole[place] + part if mean else np.maximum(whole[place], part)
            count[place] += 1
        return np.round(whole / np.maximum(count, 1) if mean else whole).astype(np.uint8)


def _starts(side: int, window: int) -> list[int]:
    """Where windows begin along one side: evenly spread from edge to edge, the one that is alone in the middle."""
    if side <= window:
        return [-((window - side) // 2)]
    count = 1 + int(np.ceil((side - window) / (window * (1 - OVERLAP))))
    return [round(place) for place in np.linspace(0, side - window, count)]


class WindowTracker:
    """Follows all windows of a picture, as `Tracker` does a single one: the mode of q, no lag.

    `scene`, the empty picture, is for models with a background; it may be set until the first frame is followed.
    """

    scene: UInt8[ndarray, "H W C"] | None = None

    def __init__(
        self,
        model: SequenceModel,
        key: PRNGKeyArray,
        grid: Grid,
        *,
        pictures: bool = False,
        block: int = BLOCK,
        evidence: float = 0.0,
    ) -> None:
        self.model, self.grid, self.block = model, grid, block
        self.settings = Settings(pictures=pictures, evidence=evidence, visible=SOLID)
        self._keys = jax.random.split(key, len(grid.corners))
        self._memory = jax.vmap(lambda _: first_memory(model, self.settings))(jnp.arange(len(grid.corners)))

    def stream(self, frames: Iterable[UInt8[ndarray, "H W C"]]) -> Iterator[Found]:
        """What all windows find in each frame, with a leading axis M, in numpy."""
        frames, around = iter(frames), None
        while held := list(islice(frames, self.block)):
            cut = self.grid.cut(np.stack(held))
            if around is None and self.scene is not None:
                around = surroundings(self.grid.cut(self.scene[None])[:, 0], self.grid.corners)
            padded = np.zeros((len(cut), self.block, *cut.shape[2:]), np.uint8)
            padded[:, : len(held)] = cut
            count = jnp.array(len(held))
            self._memory, found = _follow(self.model, self.settings, self._keys, self._memory, padded, count, around)
            found = jax.device_get(found)
            yield from (jax.tree.map(lambda leaf, t=t: leaf[:, t], found) for t in range(len(held)))


@eqx.filter_jit
def _follow(
    model: SequenceModel,
    settings: Settings,
    keys: Key[Array, " M"],
    memory: Memory,
    frames: UInt8[Array | ndarray, "M T Y X C"],
    count: Int[Array, ""],
    around: Float[Array, "M Y X D"] | None,
) -> tuple[Memory, Found]:
    """Go through some frames of all windows."""
    one = jax.vmap(lambda key, memory, frames, around: follow(model, settings, key, memory, frames, count, around))
    return one(keys, memory, jnp.asarray(frames), around)

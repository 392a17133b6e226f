"""overlay.mp4: the clip with what was found drawn over it, written frame by frame as browsers play it.

Boxes and trails have the colour of their identity, from a palette that people with any colour vision can tell apart;
the number of objects stands in the corner. Small clips are enlarged by whole factors and never blended, so that one
sees what the model sees; large ones are scaled down.
"""

import contextlib
import importlib.util
from collections import deque
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray

from sqair.figures import COLOURS, SMALL, draw_box, font, text_width

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

WIDEST, ENLARGED = 1280, 360
"""Pixels of the longer side at most, and those up to which small clips are enlarged."""
TRAIL = 1.2
"""Seconds that a trail goes back."""
FASTEST = 240
"""Frames a second of a video at most."""


def zoom_of(size: tuple[int, int]) -> float:
    """Pixels of the overlay for one of the clip: a whole number from 1 on, or less than one."""
    longest = max(size)
    return WIDEST / longest if longest > WIDEST else float(max(1, ENLARGED // longest))


def can_write_video() -> bool:
    """Whether there is PyAV, which a machine that is given decoded frames may be without."""
    return importlib.util.find_spec("av") is not None


class Overlay:
    """Paints frames and writes them: `with overlay.into(path): overlay.add(...)`.

    `size` is the height and width of the clip's frames, `rate` its frames a second.
    """

    def __init__(self, size: tuple[int, int], rate: float) -> None:
        self.is_written = can_write_video()
        self.zoom = zoom_of(size)
        height, width = (max(2, round(side * self.zoom)) for side in size)
        self.inner = width, height
        self.size = width + width % 2, height + height % 2  # H.264 wants even sides
        self.rate = Fraction(min(max(rate, 0.1), FASTEST)).limit_denominator(1001)
        self.trails: dict[int, deque[tuple[float, float]]] = {}
        self.trail = max(2, round(TRAIL * float(self.rate)))

    @contextlib.contextmanager
    def into(self, path: Path) -> Iterator[None]:
        """The video that frames are added to; it is whole when the block ends well. Without PyAV there is none."""
        if not self.is_written:
            yield
            return
        import av

        with av.open(str(path), "w", format="mp4", options={"movflags": "faststart"}) as container:
            options = {"crf": "20", "preset": "ultrafast" if self.zoom > 1 else "veryfast"}  # large pixels are easy
            stream = container.add_stream("libx264", rate=self.rate, options=options)
            stream.width, stream.height = self.size
            stream.pix_fmt = "yuv420p"
            self.container, self.stream = container, stream
            yield
            container.mux(stream.encode(None))

    def scaled(self, frame: ndarray) -> ndarray:
        """A frame no larger than it will be shown, to be kept until it is."""
        from PIL import Image

        if self.zoom >= 1:
            return frame
        return np.asarray(Image.fromarray(frame).resize(self.inner, Image.Resampling.BOX))

    def add(self, frame: ndarray, ids: Sequence[int], boxes: Float[ndarray, "n 4"]) -> None:
        """The next frame, (H, W) or (H, W, 3), `scaled` or not, and its objects; a box of NaN is out of sight."""
        if not self.is_written:
            return
        from av.video.frame import VideoFrame

        picture = self.paint(frame, ids, boxes)
        self.container.mux(self.stream.encode(VideoFrame.from_ndarray(picture, format="rgb24")))

    def paint(
        self, frame: ndarray, ids: Sequence[int], boxes: Float[ndarray, "n 4"]
    ) -> UInt8[ndarray, "height width 3"]:
        """The picture of a frame."""
        from PIL import Image, ImageDraw

        kind = Image.Resampling.NEAREST if self.zoom >= 1 else Image.Resampling.BOX
        image = Image.fromarray(frame).convert("RGB").resize(self.inner, kind)
        draw = ImageDraw.Draw(image)
        line = max(2, round(max(self.size) / 400))
        self._draw_trails(draw, ids, boxes, line)
        for identity, box in zip(ids, boxes, strict=True):
            if np.isfinite(box).all():
                draw_box(draw, box * self.zoom, identity, line)
        self._draw_count(draw, len(ids))
        picture = Image.new("RGB", self.size)
        picture.paste(image)
        return np.asarray(picture)

    def _draw_trails(self, draw: "ImageDraw", ids: Sequence[int], boxes: Float[ndarray, "n 4"], line: int) -> None:
        """Where the centres have been; who is gone leaves none."""
        self.trails = {identity: self.trails.get(identity, deque(maxlen=self.trail)) for identity in ids}
        for identity, (left, top, width, height) in zip(ids, boxes * self.zoom, strict=True):
            trail = self.trails[identity]
            if left == left:
                trail.append((left + width / 2, top + height / 2))
            if len(trail) > 1:
                draw.line(list(trail), fill=COLOURS[identity % len(COLOURS)], width=line)

    def _draw_count(self, draw: "ImageDraw", count: int) -> None:
        """The number of objects, light on dark, in the corner."""
        label = f"{count} object" if count == 1 else f"{count} objects"
        draw.rectangle((0, 0, text_width(label, SMALL) + 8, SMALL + 8), fill="#000000")
        draw.text((4, 3), label, fill="#FFFFFF", font=font(SMALL))

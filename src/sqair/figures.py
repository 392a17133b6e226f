"""Pictures and videos of sequences: rows of frames, with boxes coloured by identity.

Pixels are enlarged by whole factors and never blended, so that a picture shows exactly what the model sees. Colours are
those of Okabe and Ito, which people with any colour vision can tell apart.

Axes: T frames, Y, X frame, O objects. Boxes are left, top, width, height in pixels, NaN where there is none.
"""

import functools
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8
from numpy import ndarray

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#D55E00", "#CC79A7", "#0072B2")
"""Of identities 0, 1, 2, ...; they repeat after the last."""
PAPER, INK, FAINT = "#FFFFFF", "#333333", "#8A8A8A"
GAP = 6
"""Pixels between frames."""
TEXT, SMALL = 15, 12
"""Heights of labels and of numbers in pixels."""


class Row(NamedTuple):
    """One sequence to be shown, in [0, 1] or bytes, and the boxes to draw on it."""

    label: str
    frames: ndarray
    """(T, Y, X), or (T, Y, X, C) with C = 1 or 3."""
    boxes: Float[ndarray, "T O 4"] | None = None
    ids: Int[ndarray, "T O"] | None = None
    """Identities, which choose the colours; -1 where there is no object."""


def strip(path: str | Path, rows: list[Row], *, zoom: int = 0, observed: int = 0) -> None:
    """Write a PNG with one line of frames for each row, labelled on the left, the number of the frame on top.

    `zoom` enlarges pixels; 0 chooses it so that a frame is about 150 pixels high. A line parts the first `observed`
    frames from those that follow.
    """
    from PIL import Image, ImageDraw

    zoom = zoom or default_zoom(rows[0], 150)
    painted = [paint(row, zoom) for row in rows]
    height, width = painted[0].shape[1:3]
    label_width = max(text_width(row.label) for row in rows)
    left = GAP + (label_width + 2 * GAP if label_width else 0)
    across = left + max(len(frames) for frames in painted) * (width + GAP)
    top = SMALL + 2 * GAP
    image = Image.new("RGB", (across, top + len(rows) * (height + GAP)), PAPER)
    draw = ImageDraw.Draw(image)
    for t in range(max(len(frames) for frames in painted)):
        middle = left + t * (width + GAP) + width // 2
        draw.text((middle, top - GAP), str(t + 1), fill=FAINT, font=font(SMALL), anchor="ms")
    for r, (row, frames) in enumerate(zip(rows, painted, strict=True)):
        y = top + r * (height + GAP)
        draw.text((left - 2 * GAP, y + height // 2), row.label, fill=INK, font=font(TEXT), anchor="rm")
        for t, frame in enumerate(frames):
            image.paste(Image.fromarray(frame), (left + t * (width + GAP), y))
    if observed:
        x = left + observed * (width + GAP) - GAP // 2 - 1
        draw.line((x, GAP, x, image.height - GAP), fill=INK, width=2)
    save_image(image, Path(path))


def video(path: str | Path, rows: list[Row], *, zoom: int = 0, rate: int = 5, observed: int = 0) -> None:
    """Write an H.264 video that browsers play, or a GIF: the rows side by side, each under its label.

    The name's end chooses; `rate` is frames a second. The first `observed` frames are called so.
    """
    path = Path(path)
    zoom = zoom or default_zoom(rows[0], 200 if path.suffix == ".gif" else 400)
    pictures = []
    for t, now in enumerate(zip(*(paint(row, zoom) for row in rows), strict=True)):
        labels = [f"{row.label}, observed" if t < observed else row.label for row in rows]
        pictures.append(side_by_side(labels, now))
    write = write_gif if path.suffix == ".gif" else write_video
    write(path, np.stack(pictures), rate)


def default_zoom(row: Row, height: int) -> int:
    """The whole factor that brings frames nearest to this height."""
    return max(1, round(height / row.frames.shape[1]))


def paint(row: Row, zoom: int) -> UInt8[ndarray, "T H W 3"]:
    """The frames of a row in colour and enlarged, with their boxes."""
    from PIL import Image, ImageDraw

    frames = to_rgb(row.frames).repeat(zoom, axis=1).repeat(zoom, axis=2)
    if row.boxes is None or row.ids is None:
        return frames
    painted = []
    for frame, boxes, ids in zip(frames, row.boxes, row.ids, strict=True):
        image = Image.fromarray(frame)
        draw = ImageDraw.Draw(image)
        for box, identity in zip(boxes, ids, strict=True):
            if identity >= 0 and np.isfinite(box).all():
                draw_box(draw, box * zoom, int(identity), 1 if zoom < 5 else 2)
        painted.append(np.asarray(image))
    return np.stack(painted)


def to_rgb(frames: ndarray) -> UInt8[ndarray, "T Y X 3"]:
    """Grey or colour frames, bytes or floats in [0, 1], as bytes in colour; what is no number is black."""
    if frames.dtype != np.uint8:
        frames = np.round(np.clip(np.nan_to_num(frames), 0.0, 1.0) * 255).astype(np.uint8)
    frames = frames if frames.ndim == 4 else frames[..., None]
    return np.broadcast_to(frames, (*frames.shape[:3], 3))


def draw_box(draw: "ImageDraw", box: Float[ndarray, "4"], identity: int, line: int) -> None:
    """A thin box around the pixels that `box` covers, and the identity above it, or below where there is no room.

    Identities are written from 1 on, as tracks.txt numbers them.
    """
    label = str(identity + 1)
    left, top, width, height = (round(float(value)) for value in box)
    colour = COLOURS[identity % len(COLOURS)]
    right, bottom = left + max(width, 1) - 1, top + max(height, 1) - 1
    draw.rectangle((left - line, top - line, right + line, bottom + line), outline=colour, width=line)
    across, down = draw.im.size
    x = min(max(left - line, line), across - text_width(label, SMALL) - line)
    base = top - 2 * line if top - 2 * line >= SMALL - 2 else bottom + 2 * line + SMALL
    draw.text((x, min(base, down - line)), label, fill=colour, font=font(SMALL), anchor="ls")


def side_by_side(labels: list[str], frames: tuple[UInt8[ndarray, "H W 3"], ...]) -> UInt8[ndarray, "height width 3"]:
    """One picture of a video; its sides are even, as H.264 wants them."""
    from PIL import Image, ImageDraw

    height, width = frames[0].shape[:2]
    top = TEXT + 2 * GAP
    size = (GAP + len(frames) * (width + GAP), top + height + GAP)
    image = Image.new("RGB", (size[0] + size[0] % 2, size[1] + size[1] % 2), PAPER)
    draw = ImageDraw.Draw(image)
    for i, (label, frame) in enumerate(zip(labels, frames, strict=True)):
        x = GAP + i * (width + GAP)
        draw.text((x, GAP), label, fill=INK, font=font(TEXT))
        image.paste(Image.fromarray(frame), (x, top))
    return np.asarray(image)


@functools.cache
def font(size: int) -> "FreeTypeFont | ImageFont":
    """The font that comes with Pillow: the same letters on every machine."""
    from PIL import ImageFont

    return ImageFont.load_default(size)


def text_width(text: str, size: int = TEXT) -> int:
    """Pixels that `text` takes."""
    return int(np.ceil(font(size).getlength(text))) if text else 0


def save_image(image: "Image", path: Path) -> None:
    """Write a PNG, all of it or nothing."""
    from sqair.files import written_atomically

    with written_atomically(path) as file:
        image.save(file, format="PNG")


def write_video(path: Path, pictures: UInt8[ndarray, "T H W 3"], rate: int) -> None:
    """Write pictures as H.264 with yuv420p colours, all of them or nothing."""
    import av
    from av.video.frame import VideoFrame

    from sqair.files import written_atomically

    with written_atomically(path) as file, av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=Fraction(rate), options={"crf": "12", "preset": "slow"})
        stream.height, stream.width = pictures.shape[1:3]
        stream.pix_fmt = "yuv420p"
        for picture in pictures:
            container.mux(stream.encode(VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")))
        container.mux(stream.encode(None))


def write_gif(path: Path, pictures: UInt8[ndarray, "T H W 3"], rate: int) -> None:
    """Write pictures as a GIF that repeats for ever, all of them or nothing."""
    from PIL import Image

    from sqair.files import written_atomically

    first, *others = (Image.fromarray(picture).quantize(256, dither=Image.Dither.NONE) for picture in pictures)
    with written_atomically(path) as file:
        first.save(file, format="GIF", save_all=True, append_images=others, duration=round(1000 / rate), loop=0)

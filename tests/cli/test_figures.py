"""Pictures show the right pixels and boxes."""

from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from sqair.figures import COLOURS, GAP, TEXT, Row, paint, strip, to_rgb, video

FRAMES = np.linspace(0, 1, 2 * 12 * 10, dtype=np.float32).reshape(2, 12, 10)
BOXES = np.full((2, 2, 4), np.nan, np.float32)
BOXES[0, 0] = (3, 5, 4, 3)
IDS = np.array([[1, -1], [-1, 0]], np.int32)


def rgb(colour: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(colour[1:])
    return red, green, blue


def test_colours_differ() -> None:
    assert len(set(COLOURS)) == len(COLOURS) == 7


@pytest.mark.parametrize("frames", [FRAMES, FRAMES[..., None], np.round(FRAMES * 255).astype(np.uint8)])
def test_frames_are_enlarged_and_never_blended(frames: np.ndarray) -> None:
    painted = paint(Row("", frames), 3)
    assert painted.shape == (2, 36, 30, 3)
    for y in range(3):
        for x in range(3):
            assert np.array_equal(painted[:, y::3, x::3, 0], np.round(FRAMES * 255))


def test_colour_frames_keep_their_colours_and_floats_are_clipped() -> None:
    colour = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
    assert np.array_equal(paint(Row("", colour), 1), colour)
    assert np.array_equal(np.unique(to_rgb(np.array([[[-1.0, 2.0]]]))), [0, 255])
    assert np.array_equal(to_rgb(np.array([[[np.nan, 1.0]]]))[0, 0, :, 0], [0, 255])


def test_a_box_surrounds_its_pixels_and_touches_none_of_them() -> None:
    plain, boxed = paint(Row("", FRAMES), 4), paint(Row("", FRAMES, BOXES, IDS), 4)
    drawn = (boxed[0] == rgb(COLOURS[1])).all(-1)
    outline = np.zeros_like(drawn)
    outline[19:33, 11:29] = True
    outline[20:32, 12:28] = False
    assert drawn[outline].all()
    assert np.array_equal(boxed[0, 20:32, 12:28], plain[0, 20:32, 12:28])
    assert np.array_equal(boxed[1], plain[1])  # no identity, or no box: nothing is drawn


def test_strip_puts_every_frame_in_its_place(tmp_path: Path) -> None:
    strip(tmp_path / "x.png", [Row("one", FRAMES), Row("two", FRAMES[::-1], BOXES, IDS)], zoom=2)
    with Image.open(tmp_path / "x.png") as opened:
        image = np.asarray(opened)
    left = image.shape[1] - 2 * (20 + GAP)
    top = image.shape[0] - 2 * (24 + GAP)
    assert np.array_equal(image[top : top + 24, left : left + 20], paint(Row("", FRAMES), 2)[0])
    second = image[top + 24 + GAP :, left + 20 + GAP :][:24, :20]
    assert np.array_equal(second, paint(Row("", FRAMES[::-1], BOXES, IDS), 2)[1])
    assert (image[:, : left - 4 * GAP] < 128).any()  # the labels
    assert list(tmp_path.iterdir()) == [tmp_path / "x.png"]


def test_video_shows_every_frame(tmp_path: Path) -> None:
    video(tmp_path / "x.mp4", [Row("one", FRAMES), Row("two", FRAMES)], zoom=9, rate=7)
    with av.open(str(tmp_path / "x.mp4")) as container:
        stream = container.streams.video[0]
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt, stream.average_rate) == ("h264", "yuv420p", 7)
    assert len(pictures) == 2
    height, width = pictures[0].shape[:2]
    assert height % 2 == width % 2 == 0
    wanted = paint(Row("", FRAMES), 9)[1].astype(float)
    found = pictures[1][TEXT + 2 * GAP :, GAP:][:108, :90].astype(float)
    assert np.abs(found - wanted).mean() < 4


def test_what_was_observed_is_marked(tmp_path: Path) -> None:
    rows = [Row("one", FRAMES)]
    for observed in (0, 1):
        strip(tmp_path / f"{observed}.png", rows, zoom=2, observed=observed)
        video(tmp_path / f"{observed}.gif", rows, zoom=9, observed=observed)
    with Image.open(tmp_path / "0.png") as plain, Image.open(tmp_path / "1.png") as marked:
        left = plain.width - 20 - 2 * GAP  # of the gap between the two frames
        differs = (np.asarray(plain) != np.asarray(marked)).any((0, 2))
        assert set(np.flatnonzero(differs)) <= set(range(left, left + GAP))
        assert differs.any()
    with Image.open(tmp_path / "0.gif") as plain, Image.open(tmp_path / "1.gif") as marked:
        labels = [np.asarray(picture.convert("L"))[: TEXT + 2 * GAP] for picture in (plain, marked)]
        assert (labels[1] < 128).sum() > (labels[0] < 128).sum()  # more letters over the first frame
        plain.seek(1)
        marked.seek(1)
        labels = [np.asarray(picture.convert("L"))[: TEXT + 2 * GAP] for picture in (plain, marked)]
        assert (labels[1] < 128).sum() == (labels[0] < 128).sum()

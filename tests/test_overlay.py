"""overlay.mp4: playable everywhere, and boxes where the objects are."""

from pathlib import Path

import av
import numpy as np
import pytest

from sqair.figures import COLOURS
from sqair.overlay import Overlay, zoom_of

NOWHERE = np.full(4, np.nan, np.float32)


def colour(index: int) -> np.ndarray:
    return np.array([int(COLOURS[index][i : i + 2], 16) for i in (1, 3, 5)])


def test_small_clips_are_enlarged_by_whole_factors_and_large_ones_made_smaller() -> None:
    assert [zoom_of(size) for size in ((50, 50), (360, 300), (361, 20), (1280, 720))] == [7, 1, 1, 1]
    assert zoom_of((2160, 3840)) == pytest.approx(1 / 3)


def test_the_video_is_what_browsers_play(tmp_path: Path) -> None:
    overlay = Overlay((17, 501), 12.5)
    with overlay.into(tmp_path / "overlay.mp4"):
        for t in range(5):
            boxes = np.array([[10.0 * t, 2, 8, 8]], np.float32)
            overlay.add(np.full((17, 501), 90, np.uint8), [0], boxes)
    content = (tmp_path / "overlay.mp4").read_bytes()
    assert content.index(b"moov") < content.index(b"mdat")  # it plays before it is loaded
    with av.open(str(tmp_path / "overlay.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.pix_fmt) == ("h264", "yuv420p")
        assert (stream.width, stream.height, stream.average_rate, stream.frames) == (502, 18, 12.5, 5)


def test_boxes_trails_and_the_count() -> None:
    """Object 1 moves right: its box is drawn around it, in its colour, and its trail goes back to the start."""
    overlay = Overlay((50, 50), 10.0)
    boxes = [np.array([[10 + 10 * t, 30, 6, 8], NOWHERE], np.float32) for t in range(3)]
    *_, picture = [overlay.paint(np.zeros((50, 50), np.uint8), [1, 4], box) for box in boxes]
    assert picture.shape == (350, 350, 3)
    here = (np.abs(picture.astype(int) - colour(1)).sum(-1) < 30).nonzero()
    assert here[0].min() >= 30 * 7 - 20
    assert here[0].max() <= 38 * 7 + 20
    assert here[1].min() == pytest.approx(13 * 7, abs=2)  # the trail's first point, the middle of the first box
    assert here[1].max() == pytest.approx(36 * 7 + 1, abs=1)  # the box's right edge
    assert not (np.abs(picture.astype(int) - colour(4)).sum(-1) < 30).any()  # out of sight
    assert (picture[:20, :60] == 255).any()  # the count


def test_who_is_gone_leaves_no_trail() -> None:
    overlay = Overlay((50, 50), 10.0)
    for t in range(3):
        overlay.paint(np.zeros((50, 50, 3), np.uint8), [0], np.array([[10 + 10 * t, 30, 6, 8]], np.float32))
    picture = overlay.paint(np.zeros((50, 50, 3), np.uint8), [], np.zeros((0, 4), np.float32))
    assert not picture[100:].any()


def test_large_frames_are_kept_small_and_boxes_fit_them() -> None:
    overlay = Overlay((2160, 3840), 30.0)
    frame = np.zeros((2160, 3840, 3), np.uint8)
    frame[1080:1380, 1920:2220] = 128
    kept = overlay.scaled(frame)
    assert kept.shape == (720, 1280, 3)
    picture = overlay.paint(kept, [6], np.array([[1920, 1080, 300, 300]], np.float32))
    rows, columns = (np.abs(picture.astype(int) - colour(6)).sum(-1) < 30).nonzero()
    assert abs(columns.min() - 640) <= 4
    assert abs(columns.max() - 740) <= 4
    assert abs(rows.max() - 460) <= 4

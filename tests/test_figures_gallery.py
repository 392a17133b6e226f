"""Figures of the paper: where frames and boxes land on paper, and the files."""

import re
from pathlib import Path

import numpy as np
from matplotlib.patches import Rectangle

from sqair.data import Sequences
from sqair.evaluation.failures import KINDS, Failure
from sqair.figures import Row
from sqair.gallery import schematics
from sqair.gallery.asked import Asked
from sqair.gallery.comparison import hardest, with_glimpses
from sqair.gallery.drawing import GAP, enlarged, save, strips
from sqair.gallery.looks import Look
from sqair.gallery.mistakes import Case, picture

NOTHING = Asked({}, {})


def test_frames_and_boxes_lie_where_they_belong() -> None:
    frames = np.zeros((3, 8, 10), np.float32)
    frames[2, 1, 4] = 1.0
    boxes = np.full((3, 2, 4), np.nan)
    boxes[2, 1] = (4, 1, 2, 3)
    ids = np.full((3, 2), -1)
    ids[2, 1] = 6
    figure = strips([Row("a", frames), Row("b", frames, boxes, ids)], breaks=(1,), observed=1)
    (axes,) = figure.axes
    image = np.asarray(axes.images[0].get_array())
    top = 8 + 3 * GAP
    assert image.shape == (top + 8, 3 * 10 + 2 * GAP, 3)
    left = 2 * (10 + GAP)
    assert image[top + 1, left + 4].tolist() == image[1, left + 4].tolist() == [255, 255, 255]
    assert image[top + 1, left + 5].tolist() == [0, 0, 0]
    assert image[9, left].tolist() == [255, 255, 255], "white paper between rows"
    (box,) = axes.patches
    assert isinstance(box, Rectangle)
    assert (box.get_x(), box.get_y(), box.get_width(), box.get_height()) == (left + 3.5, top + 0.5, 2, 3)
    assert {text.get_text() for text in axes.texts} == {"a", "b", "1", "2", "3"}
    assert len(axes.lines) == 1


def test_files_are_the_same_every_time(tmp_path: Path) -> None:
    for folder in (tmp_path / "1", tmp_path / "2"):
        folder.mkdir()
        assert [path.name for path in save(schematics.generation(NOTHING).figure, folder, "x")] == ["x.png", "x.pdf"]
    for name in ("x.png", "x.pdf"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()
    assert (tmp_path / "1" / "x.pdf").read_bytes().startswith(b"%PDF")


def test_schematics_name_all_parts_and_no_box_covers_another() -> None:
    for nodes, arrows in (
        (schematics.GENERATION, schematics.GENERATION_ARROWS),
        (schematics.INFERENCE, schematics.INFERENCE_ARROWS),
    ):
        assert {name for pair in arrows for name in pair} == set(nodes)
        places = list(nodes.values())
        for i, a in enumerate(places):
            for b in places[:i]:
                gap = max(abs(a.x - b.x) - (a.width + b.width) / 2, abs(a.y - b.y) - (a.height + b.height) / 2)
                assert gap > 0.1, (a.text, b.text)
    words = " ".join(text.get_text() for text in schematics.inference(NOTHING).figure.axes[0].texts)
    assert re.search("relation RNN.*temporal RNN.*discovery RNN", words, re.DOTALL)


def test_enlarged() -> None:
    frames = np.arange(4.0).reshape(1, 2, 2)
    assert enlarged(frames, (4, 4))[0].tolist() == np.kron(frames[0], np.ones((2, 2))).tolist()


def test_glimpses_have_the_colours_of_their_boxes() -> None:
    look = Look(
        canvas=np.zeros((1, 10, 12, 1), np.float32),
        boxes=np.array([[[1, 2, 3, 4], [np.nan] * 4]], np.float32),
        ids=np.array([[5, -1]]),
        glimpses=np.full((1, 2, 4, 4, 1), 0.5, np.float32),
    )
    big, small = with_glimpses(look, "SQAIR")
    assert big.frames.shape == (1, 20, 24, 1)
    assert big.boxes is not None
    assert big.boxes[0, 0].tolist() == [2, 4, 6, 8]
    assert small.boxes is not None
    assert small.boxes[0, 0].tolist() == [0, 0, 10, 10]
    assert np.isnan(small.boxes[0, 1]).all()
    assert np.unique(small.frames[0, :, :10]).tolist() == [0.5]
    assert np.unique(small.frames[0, :, 10:]).tolist() == [1.0]


def test_the_hardest_sequences_are_found() -> None:
    """Of four, the second is partly visible for long, the third overlaps, the last has one digit only."""
    apart, over = [[0, 0, 4, 4], [10, 0, 4, 4]], [[0, 0, 4, 4], [1, 0, 4, 4]]
    boxes = np.array([[apart] * 3, [apart] * 3, [over] * 3, [[[0, 0, 4, 4], [np.nan] * 4]] * 3], np.float32)
    visible = np.ones((4, 3, 2), np.float32)
    visible[1, :2, 0] = visible[3, :, 0] = 0.5
    ids = np.where(np.isnan(boxes[..., 0]), -1, np.arange(2)).astype(np.int32)
    counts = (ids >= 0).sum(-1).astype(np.int32)
    data = Sequences(np.zeros((4, 3, 20, 20), np.float32), counts, boxes, ids, visible=visible)
    assert hardest(data).tolist() == [1, 2]


def test_a_sequence_with_several_failures_is_shown_once() -> None:
    frames = np.zeros((2, 8, 8), np.float32)
    empty = np.zeros((2, 0, 4), np.float32)
    looks = [Look(frames[..., None], empty, empty[..., 0].astype(int), np.zeros((2, 0, 1, 1, 1), np.float32))]
    looks.append(looks[0]._replace(canvas=frames[..., None] + 1))
    found = [
        Case(Failure(kind, 1, 0, 1.0), frames, look) for kind, look in zip(KINDS, (*looks, looks[0]), strict=False)
    ]
    figure = picture(9, {case.failure.kind: [case] for case in found})
    labels = [text.get_text() for text in figure.axes[0].texts]
    assert [label for label in labels if "frame" in label] == ["ID swap\nframe 2", "re-detection\nframe 2"]
    assert figure.axes[0].get_title() == "of 9 sequences, ID swap: 1, re-detection: 1, wrong digit: 1"
    assert "wrong digit: 0" in picture(9, {kind: [] for kind in KINDS}).texts[0].get_text()

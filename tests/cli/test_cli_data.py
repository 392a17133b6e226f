"""`sqair data` on videos: sequences with truth and a picture, or decoded frames; digits are tested end to end."""

from pathlib import Path

import numpy as np
import pytest

from sqair.data import Camera, Sequences, load_sequences, save_sequences, write_camera

WORDS = ["--video.height=48", "--video.crop", "24", "24", "--video.length=3", "--sequences=20"]


@pytest.fixture(scope="module")
def filmed(tmp_path_factory) -> Path:
    """A folder with clip.mp4 and gt.txt of a small street."""
    folder = tmp_path_factory.mktemp("street")
    write_camera(Camera(frames=40, size=(96, 128)), folder)
    return folder


def test_sequences_of_a_video(sqair, filmed, here):
    """Three files: all sequences, those for validation again, and a picture; the truth comes along."""
    done = sqair("data", filmed / "clip.mp4", "--out", "x.npz", "--video.gt", filmed / "gt.txt", *WORDS)
    assert (done.code, done.out) == (0, "Results saved to x.npz\n")
    assert "20 sequences from 40 frames, 2 for validation" in done.err
    assert sorted(path.name for path in here.iterdir()) == ["x-validation.npz", "x.npz", "x.png"]
    sequences, held_out = load_sequences("x.npz"), load_sequences("x-validation.npz")
    assert sequences.frames.shape == (20, 3, 24, 24)
    assert np.asarray(sequences.counts).max() >= 1
    assert (np.asarray(held_out.frames) == np.asarray(sequences.frames)[-2:]).all()
    assert sqair("data", filmed / "clip.mp4", "--out", "x.npz", *WORDS).code == 2
    assert sqair("data", filmed / "clip.mp4", "--out", "x.npz", *WORDS, "--overwrite").code == 0
    assert load_sequences("x.npz").counts is None


def test_flags_reach_the_subtraction_and_the_windows(sqair, filmed):
    """mask shows 1 only; knn, moving windows and colours work from the command line."""
    words = ["--video.look=mask", "--video.method=knn", "--video.windows=moving", "--video.colour", "--quiet"]
    assert sqair("data", filmed / "clip.mp4", "--out", "x.npz", *WORDS, *words, "--video.height=96").code == 0
    frames = np.asarray(load_sequences("x.npz").frames)
    assert frames.shape == (20, 3, 24, 24, 3)
    assert set(np.unique(frames)) == {0, 255}


def test_decoded_frames_go_to_another_machine(sqair, filmed, here):
    """--frames-only keeps the size unless told otherwise; what it wrote is a clip again."""
    assert sqair("data", filmed / "clip.mp4", "--out", "f.npz", "--frames-only", "--video.stop=30").code == 0
    assert [path.name for path in here.iterdir()] == ["f.npz"]
    assert load_sequences("f.npz").frames.shape == (1, 30, 96, 128)
    assert sqair("data", "f.npz", "--out", "x.npz", *WORDS, "--quiet").code == 0
    assert load_sequences("x.npz").frames.shape == (20, 3, 24, 24)
    assert sqair("data", filmed / "clip.mp4", "--out", "s.npz", "--frames-only", "--video.height=48").code == 0
    assert load_sequences("s.npz").frames.shape == (1, 40, 48, 64)


def test_truth_goes_with_frames_that_were_scaled(sqair, filmed):
    """Boxes in pixels of the video, frames of half the size."""
    words = ["--video.gt", filmed / "gt.txt", *WORDS]
    assert sqair("data", filmed / "clip.mp4", "--out", "f.npz", "--frames-only", "--video.height=48").code == 0
    alone = sqair("data", "f.npz", "--out", "x.npz", *words)
    assert (alone.code, "--video.gt-size" in alone.err) == (1, True)
    assert sqair("data", "f.npz", "--out", "x.npz", *words, "--video.gt-size", "96", "128").code == 0
    found = load_sequences("x.npz")
    height = np.asarray(found.boxes)[..., 3]
    assert 8 < np.nanmedian(height) < 16, "walkers are about a fifth of the frame as high"


@pytest.mark.parametrize(
    "words", [["--video.gt-size", "96", "128"], ["--video.gt", "gt.txt", "--video.gt-size", "0", "9"]]
)
def test_a_size_without_truth_or_without_size_is_refused(refused, filmed, words):
    line = refused(2, "data", filmed / "clip.mp4", "--out", "x.npz", *words)
    assert line.endswith("--video.gt-size takes height and width, 1 or more, of the frames that --video.gt is of")


def test_settings_are_printed_and_read_back(sqair, filmed, here):
    words = ["data", filmed / "clip.mp4", "--out", "x.npz", *WORDS]
    printed = sqair(*words, "--print-config").out
    assert 'look = "inverted"' in printed
    (here / "settings.toml").write_text(printed)
    again = sqair("data", filmed / "clip.mp4", "--config", "settings.toml", "--print-config").out
    assert again.splitlines()[1:] == printed.splitlines()[1:]


def test_the_usual_place(sqair, filmed):
    done = sqair("data", filmed / "clip.mp4", *WORDS)
    assert done.out == "Results saved to runs/data/clip/sequences.npz\n"


def test_what_cannot_be_cut(refused, filmed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("others")
    save_sequences(folder / "many.npz", Sequences(np.zeros((3, 4, 24, 24), np.uint8)))
    save_sequences(folder / "still.npz", Sequences(np.full((1, 30, 96, 128), 99, np.uint8)))
    save_sequences(folder / "two.npz", Sequences(np.full((1, 2, 96, 128), 99, np.uint8)))
    clip = filmed / "clip.mp4"
    assert "--frames-only is for videos" in refused(2, "data", folder / "many.npz", "--out", "x.npz", "--frames-only")
    assert "shows 1 to 3 moving objects" in refused(1, "data", folder / "still.npz", "--out", "x.npz", *WORDS)
    assert "has 2 frames" in refused(1, "data", folder / "two.npz", "--out", "x.npz", *WORDS)
    assert "does not exist" in refused(1, "data", "no.mp4", "--out", "x.npz")
    assert "unknown data 'moving-mnits'" in refused(1, "data", "moving-mnits", "--out", "x.npz")
    assert "is for training" in refused(2, "data", "--data.first-scale", "1", "--out", "x.npz")
    assert "gt.txt does not exist" in refused(
        1, "data", clip, "--out", "x.npz", "--video.gt", folder / "gt.txt", *WORDS
    )
    assert "holds 5 clips" in refused(1, "data", folder, "--out", "x.npz", *WORDS)
    assert "shadow" in refused(1, "data", clip, "--out", "x.npz", "--video.shadow=0")
    assert "empty is at most 1" in refused(1, "data", clip, "--out", "x.npz", "--video.empty=2")
    assert "do not fit into frames of 128x96" in refused(1, "data", clip, "--out", "x.npz", "--video.crop", "99", "9")

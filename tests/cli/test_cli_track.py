"""``sqair track``: files, truth, exports; many clips, bad ones among them; streams that are stopped; odd names."""

import contextlib
import csv
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from sqair.commands import track_clip
from sqair.commands.track import folder_name
from sqair.report.clip import PageWriter
from sqair.report.document import read_blocks
from sqair.tracking.typical import write_typical
from sqair.tracks import Tracks

FILES = {"tracks.txt", "tracks.csv", "tracks.json", "overlay.mp4", "latents.npz", "summary.json", "index.html"}


@pytest.fixture
def clip(here: Path) -> Path:
    """Five grey frames of the size that the model `tiny` takes."""
    np.save(here / "clip.npy", np.random.default_rng(0).integers(0, 120, (5, 16, 16), np.uint8))
    return here / "clip.npy"


def test_all_files_of_a_clip(sqair, models: Path, clip: Path, here: Path) -> None:
    done = sqair("track", clip, "--model", models / "tiny", "--export", "coco", "yolo")
    assert done.code == 0, done.err
    folder = here / "runs" / "track" / "clip"
    assert {path.name for path in folder.iterdir()} == {*FILES, "coco.json", "yolo"}
    assert [path.name for path in folder.parent.iterdir()] == ["clip"]
    first, *_, last = done.err.splitlines()
    assert first.startswith("tracking ")
    assert "compiling, about" in last
    assert done.out.splitlines()[-1] == "Results saved to runs/track/clip"
    summary = json.loads((folder / "summary.json").read_text())
    tracks = Tracks.read(folder / "tracks.json")
    assert (summary["frames"], tracks.frames, tracks.size) == (5, 5, (16, 16))
    assert tracks == Tracks.read(folder / "tracks.csv", frames=5, size=(16, 16), rate=10.0, source="clip.npy")
    with np.load(folder / "latents.npz", allow_pickle=False) as latents:
        np.testing.assert_array_equal(latents["frame"], tracks.frame)
        np.testing.assert_array_equal(latents["id"], tracks.id)
        assert latents["what"].shape == (len(tracks), 4)
        assert latents["where"].shape == (len(tracks), 4)


def test_without_pyav_there_is_no_video_and_all_else(
    sqair, models: Path, clip: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is given decoded frames needs nothing that decodes; an older video does not stay."""
    monkeypatch.setattr(track_clip, "PageWriter", functools.partial(PageWriter, limit=100))  # as if it were long
    assert sqair("track", clip, "--model", models / "tiny").code == 0
    folder = here / "runs" / "track" / "clip"
    before, parts = (folder / "tracks.csv").read_text(), {path.name for path in (folder / "page").iterdir()}
    assert not any(name.startswith("frames") for name in parts), "the page plays the video instead"
    monkeypatch.setitem(sys.modules, "av", None)
    done = sqair("track", clip, "--model", models / "tiny", "--overwrite")
    assert done.code == 0, done.err
    assert "clip.npy: no overlay.mp4, since there is no PyAV here; index.html shows the frames" in done.err
    assert {path.name for path in folder.iterdir()} == {*FILES, "page"} - {"overlay.mp4"}
    assert any(path.name.startswith("frames") for path in (folder / "page").iterdir())
    assert (folder / "tracks.csv").read_text() == before


def test_truth_gives_metrics(sqair, models: Path, clip: Path, here: Path) -> None:
    assert sqair("track", clip, "--model", models / "tiny", "--out", "first").code == 0
    if not (here / "first" / "tracks.txt").read_text():
        pytest.fail("the model must find something")
    done = sqair("track", clip, "--model", models / "tiny", "--gt", "first/tracks.txt", "--out", "second")
    assert done.code == 0, done.err
    assert "hota 1.000, mota 1.000, idf1 1.000, id_switches 0, counting" in done.out
    metrics = json.loads((here / "second" / "summary.json").read_text())["metrics"]
    assert metrics["mota"] == 1.0
    assert head_of(here / "second")["summary"]["metrics"] == metrics


def head_of(folder: Path) -> dict[str, Any]:
    """What the page of a folder knows from the start."""
    return json.loads(next(read_blocks(folder / "index.html"))[1])


def test_remarks_are_on_the_page_too(sqair, models: Path, clip: Path, here: Path) -> None:
    """The card tells of darker clips than this one, which is remarked upon; the video cannot be as quick as it."""
    shutil.copytree(models / "tiny", here / "dark")
    write_typical(here / "dark", {"brightness": [0.01, 0.02]})
    done = sqair("track", clip, "--model", "dark", "--rate", "500", "--out", "out", "--quiet")
    assert done.code == 0, done.err
    (remark,) = json.loads((here / "out" / "summary.json").read_text())["remarks"]
    assert remark.startswith("it is brighter than what the model was trained on")
    assert done.err == f"warning: clip.npy: {remark}\n"
    head = head_of(here / "out")
    assert head["summary"]["remarks"] == [remark]
    assert (head["rate"], head["summary"]["rate"]) == (240, 500)


def test_a_filter_tells_uncertainty(sqair, models: Path, clip: Path, here: Path) -> None:
    done = sqair("track", clip, "--model", models / "tiny", "--particles", "3", "--lag", "2", "--out", "out")
    assert done.code == 0, done.err
    tracks = Tracks.read(here / "out" / "tracks.json")
    assert len(tracks)
    assert np.isfinite(tracks.presence).all()
    assert np.isfinite(tracks.spread).all()


def test_one_bad_clip_does_not_stop_the_rest(sqair, models: Path, clip: Path, here: Path) -> None:
    np.save(here / "light.npy", np.full((3, 32, 24), 250, np.uint8))
    (here / "bad.mp4").write_text("no video")
    done = sqair("track", "bad.mp4", clip, "light.npy", "--model", models / "tiny", "--out", "out")
    assert done.code == 1
    assert {path.name for path in (here / "out").iterdir()} == {"clip", "light", "results.csv", "results.json"}
    assert all({path.name for path in (here / "out" / name).iterdir()} == FILES for name in ("clip", "light"))
    table = done.out.splitlines()
    assert [line.split()[:2] for line in table[:3]] == [["clip", "frames"], ["clip", "5"], ["light", "3"]]
    assert table[3].startswith("bad.mp4  failed: cannot open bad.mp4")
    rows = {row["clip"]: row for row in json.loads((here / "out" / "results.json").read_text())["clips"]}
    assert [(name, row["state"], row.get("frames")) for name, row in rows.items()] == [
        ("bad", "failed", None),
        ("clip", "tracked", 5),
        ("light", "tracked", 3),
    ]
    with (here / "out" / "results.csv").open(newline="") as file:
        assert [(row["source"], row["frames"]) for row in csv.DictReader(file)] == [
            ("bad.mp4", ""),
            (str(clip), "5"),
            ("light.npy", "3"),
        ]
    assert done.err.splitlines()[-1] == "sqair track: 1 of 3 clips failed: bad.mp4"
    assert "light.npy: frames of 24x32 are scaled to 12x16, set on black in 16x16, inverted" in done.err


def test_what_is_refused_leaves_nothing(refused, models: Path, clip: Path, here: Path) -> None:
    tiny = ("--model", models / "tiny")
    (here / "empty.mp4").touch()
    (here / "text.mp4").write_text("text")
    np.save(here / "hole.npy", np.full((2, 16, 16), np.nan))
    np.save(here / "flat.npy", np.zeros((16, 16), np.uint8))
    np.save(here / "none.npy", np.zeros((0, 16, 16), np.uint8))
    (here / "bad.txt").write_text("1,2,x\n")
    (here / "taken").mkdir()
    (here / "taken" / "mine.txt").write_text("mine")
    (here / "file").write_text("a file")
    assert "does not exist" in refused(1, "track", "missing.mp4", *tiny)
    assert "is empty" in refused(1, "track", "empty.mp4", *tiny)
    assert "cannot open" in refused(1, "track", "text.mp4", *tiny)
    assert "not finite" in refused(1, "track", "hole.npy", *tiny)
    assert "it must be" in refused(1, "track", "flat.npy", *tiny)
    assert "no frames" in refused(1, "track", "none.npy", *tiny)
    assert "no model 'nobody'" in refused(1, "track", clip, "--model", "nobody")
    assert "line 1" in refused(1, "track", clip, *tiny, "--gt", "bad.txt")
    assert "need as many files" in refused(2, "track", clip, *tiny, "--gt", "bad.txt", "bad.txt")
    assert "not empty" in refused(2, "track", clip, *tiny, "--out", "taken")
    assert "is a file" in refused(2, "track", clip, *tiny, "--out", "file")
    assert "cannot write" in refused(1, "track", clip, *tiny, "--out", "file/below")
    assert "at least 1" in refused(1, "track", clip, *tiny, "--particles", "0")
    assert "positive" in refused(1, "track", clip, *tiny, "--rate", "nan")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda card, tensors: card.update(format_version=99), "this program reads 1; update sqair"),
        (lambda card, tensors: card.pop("model"), "no key 'model'"),
        (lambda card, tensors: tensors.popitem(), "it has no tensor"),
        (lambda card, tensors: tensors.update(more=np.zeros(1, np.float32)), "more"),
        (lambda card, tensors: tensors.update({max(tensors): np.zeros(10**6, np.float32)}), "it is larger than"),
    ],
    ids=["newer", "no model", "missing tensor", "extra tensor", "oversized tensor"],
)
def test_models_that_are_refused(change, line: str, refused, models: Path, clip: Path, here: Path) -> None:
    shutil.copytree(models / "tiny", here / "odd")
    card, tensors = json.loads((here / "odd/config.json").read_text()), load_file(here / "odd/model.safetensors")
    del card["sha256"]
    change(card, tensors)
    (here / "odd/config.json").write_text(json.dumps(card))
    save_file(tensors, here / "odd/model.safetensors")
    assert line in refused(1, "track", clip, "--model", "odd")


def test_a_full_disk_leaves_nothing(refused, models: Path, clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills up when the third frame is written."""

    def write(self, number: int, *rest) -> None:
        if number == 2:
            raise OSError(28, "No space left on device", "latents.npz")

    monkeypatch.setattr("sqair.tracking.latents.Latents.add", write)
    assert "No space left on device" in refused(1, "track", clip, "--model", models / "tiny")


def encode(path: Path, frames: np.ndarray) -> bytes:
    """An mp4 whose index stands before its frames."""
    with av.open(str(path), "w", options={"movflags": "faststart"}) as container:
        stream = container.add_stream("libx264", rate=25)
        stream.height, stream.width = frames.shape[1:3]
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode(None))
    return path.read_bytes()


def test_a_truncated_video_is_tracked_with_a_warning(sqair, models: Path, here: Path) -> None:
    content = encode(here / "whole.mp4", np.random.default_rng(0).integers(0, 255, (40, 32, 32, 3), np.uint8))
    (here / "cut.mp4").write_bytes(content[: len(content) // 2])
    done = sqair("track", "cut.mp4", "--model", models / "tiny", "--out", "out", "--quiet")
    assert done.code == 0, done.err
    (line,) = done.err.splitlines()
    assert line.startswith("warning: cut.mp4: the clip ")
    assert 5 < Tracks.read(here / "out" / "tracks.json").frames < 35


def test_4k_frames(sqair, models: Path, here: Path) -> None:
    encode(here / "large.mp4", np.zeros((1, 2160, 3840, 3), np.uint8))
    done = sqair("track", "large.mp4", "--model", models / "tiny", "--out", "out")
    assert done.code == 0, done.err
    assert "frames of 3840x2160 are scaled to 16x9, set on black in 16x16" in done.err
    tracks = Tracks.read(here / "out" / "tracks.json")
    assert (tracks.frames, tracks.size, tracks.rate) == (1, (2160, 3840), 25.0)
    with av.open(str(here / "out" / "overlay.mp4")) as container:
        assert (container.streams.video[0].width, container.streams.video[0].height) == (1280, 720)


def test_overwriting_touches_only_results(sqair, models: Path, clip: Path, here: Path) -> None:
    (here / "out").mkdir()
    (here / "out" / "mine.txt").write_text("mine")
    (here / "out" / "coco.json").write_text("of an earlier run")
    done = sqair("track", clip, "--model", models / "tiny", "--out", "out", "--overwrite", "--quiet")
    assert done.code == 0, done.err
    assert done.err == ""
    assert {path.name for path in (here / "out").iterdir()} == {*FILES, "mine.txt"}


def test_names_with_anything_in_them(sqair, models: Path, here: Path) -> None:
    """Also in a shell: what a command is told to do with the results cannot be another command."""
    names = [
        "a 'b' \"c\" <script>alert(1)<script> ü.npy",
        "$(touch x);`touch y`\n.npy",
        os.fsdecode(b"no text \xff.npy"),
    ]
    for name in names:
        np.save(here / name, np.zeros((2, 16, 16), np.uint8))
    done = sqair("track", *names, "--model", models / "tiny", "--out", "out")
    assert done.code == 0, done.err
    folders = [path for path in (here / "out").iterdir() if path.is_dir()]
    assert len(folders) == 3
    for folder in folders:
        assert set(folder.name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789ü.-_")
        assert {path.name for path in folder.iterdir()} == FILES
        assert "<script>alert" not in (folder / "index.html").read_text()
        assert Tracks.read(folder / "tracks.json").frames == 2


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("a/b.mp4", "b"),
        ("a/b/", "b"),
        ("f-*.png", "f"),
        ("rtsp://h/cam?x=1", "cam"),
        ("rtsp://me:secret@cam", "cam"),
        ("...", "clip"),
        ("ü.mp4", "ü"),
        ("\U00020000" * 200, "\U00020000" * 50),
    ],
)
def test_folder_names(source: str, name: str) -> None:
    assert folder_name(source) == name


def test_passwords_stay_out_of_everything(sqair, models: Path, here: Path) -> None:
    """A clip from a server that wants a name and a password, given in the address, and one that is not there."""
    (here / "served").mkdir()
    content = encode(here / "served" / "clip.mp4", np.zeros((3, 16, 16, 3), np.uint8))

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        place = f"127.0.0.1:{server.server_port}/clip.mp4"
        words = ("track", f"http://me:secret@{place}?key=secret", "rtsp://me:secret@127.0.0.1:9")
        done = sqair(*words, "--model", models / "tiny")
        server.shutdown()
    alone = sqair("track", words[-1], "--debug")
    assert alone.err.splitlines()[-1].startswith("sqair track: cannot open rtsp://127.0.0.1:9 as a video")
    assert "Traceback" in alone.err
    assert "secret" not in alone.err
    assert done.code == 1
    assert done.out.splitlines()[-1] == "Results saved to runs/track/clip"
    assert f"tracking http://{place}, rtsp://127.0.0.1:9 with" in done.err
    assert "rtsp://127.0.0.1:9 failed: cannot open rtsp://127.0.0.1:9" in done.err
    assert json.loads((here / "runs/track/clip/clip/summary.json").read_text())["frames"] == 3
    assert "secret" not in done.out + done.err
    files = [path for path in (here / "runs").rglob("*") if path.is_file()]
    assert len(files) == len(FILES) + 2
    assert not any("secret" in str(path) or b"secret" in path.read_bytes() for path in files)


def test_a_stream_is_stopped_and_saved(models: Path, here: Path) -> None:
    """Frames come for as long as one likes; SIGTERM ends it with all files written, and exit code 143."""
    os.mkfifo(here / "camera")
    program = [sys.executable, "-m", "sqair", "track", "camera", "--model", str(models / "tiny"), "--out", "out"]
    process = subprocess.Popen(program, cwd=here, stderr=subprocess.PIPE, text=True)
    ended = threading.Event()

    def film() -> None:
        """Raw frames without end: y4m, which needs no encoder."""
        with contextlib.suppress(BrokenPipeError), open(here / "camera", "wb") as file:
            file.write(b"YUV4MPEG2 W16 H16 F25:1 Ip A1:1 C420jpeg\n")
            while not ended.is_set():
                file.write(b"FRAME\n" + bytes(range(128)) * 3)
                file.flush()
                time.sleep(0.01)

    thread = threading.Thread(target=film)
    thread.start()
    try:
        assert process.stderr is not None
        said = ""
        while "compiling" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        process.send_signal(signal.SIGTERM)
        said += process.stderr.read()
        assert process.wait(120) == 143, said
    finally:
        ended.set()
        thread.join()
        process.kill()
        if process.stderr is not None:
            process.stderr.close()
    assert "what was tracked is saved" in said
    assert {path.name for path in (here / "out").iterdir()} == FILES
    assert Tracks.read(here / "out" / "tracks.json").frames >= 1


@pytest.mark.parametrize("words", [("track", "clip.mp4"), ("predict", "clip.mp4"), ("sample",), ("demo",)])
def test_the_first_line_comes_before_jax(words: tuple[str, ...], here: Path) -> None:
    """It comes at once; importing jax takes seconds."""
    program = """
import sys
from sqair.commands.common import Common
def say(self, message):
    print("jax" in sys.modules, message)
    raise SystemExit
Common.say = say
from sqair.cli import main
main(sys.argv[1:])
"""
    program = [sys.executable, "-c", program, *words]
    done = subprocess.run(program, cwd=here, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("False ")
    assert "with sqair-strokes" in done.stdout

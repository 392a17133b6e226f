"""Clips of every kind: odd but valid ones are read, bad ones are refused with one line."""

import os
import threading
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.video.frame import VideoFrame
from PIL import Image

from sqair.config import UserError
from sqair.data import Sequences, save_sequences
from sqair.data.video import Clip, natural, open_clips
from sqair.files import without_secrets


def film(length: int = 6, size: tuple[int, int] = (16, 24)) -> np.ndarray:
    """A white square that moves to the right over black; (T, H, W, 3)."""
    frames = np.zeros((length, *size, 3), np.uint8)
    for t in range(length):
        frames[t, 4:12, 2 * t + 2 : 2 * t + 10] = 255
    return frames


def write(
    path: Path,
    frames: np.ndarray,
    *,
    codec: Any = "libx264",
    pixels: str = "yuv420p",
    times: list[int] | None = None,
    given: str = "rgb24",
    **options: str,
) -> Path:
    """A video; `times` are those of its frames in tenths of a second."""
    with av.open(str(path), "w", options=options) as container:
        stream: Any = container.add_stream(codec, rate=Fraction(10))
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = pixels
        stream.time_base = Fraction(1, 10)
        for number, pixels_of_frame in enumerate(frames):
            frame = VideoFrame.from_ndarray(np.ascontiguousarray(pixels_of_frame), format=given)
            frame.pts, frame.time_base = (times or range(len(frames)))[number], Fraction(1, 10)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def one(source: Path | str) -> Clip:
    (clip,) = open_clips(source)
    return clip


def close(clip: Clip, frames: np.ndarray) -> bool:
    """Whether a clip shows these frames, up to what a codec loses."""
    read = list(clip)
    assert clip.size == read[0].shape[:2] == frames.shape[1:3]
    shown = [frame if frame.ndim == 3 else frame[..., None] for frame in read]
    return len(read) == len(frames) and all(
        np.abs(a.astype(int) - b).mean() < 6 for a, b in zip(shown, frames, strict=True)
    )


# --- videos


def test_a_video_can_be_read_twice(tmp_path: Path) -> None:
    clip = one(write(tmp_path / "clip.mp4", film()))
    assert (clip.name, clip.frames, clip.rate, clip.live) == ("clip.mp4", 6, 10.0, False)
    assert close(clip, film())
    assert close(clip, film())
    assert clip.notes == []


def test_odd_dimensions_one_frame_and_sixteen_bits(tmp_path: Path) -> None:
    odd = film(1, (17, 23))
    assert close(one(write(tmp_path / "odd.mkv", odd, codec="ffv1", pixels="yuv444p")), odd)
    deep = film(3)[..., 0].astype(np.uint16) * 257
    path = write(tmp_path / "deep.mkv", deep, codec="ffv1", pixels="gray16le", given="gray16le")
    assert close(one(path), film(3))


def test_transparent_pixels_are_black(tmp_path: Path) -> None:
    frames = np.concatenate([np.full((2, 16, 24, 3), 200, np.uint8), film(2)[..., :1]], -1)
    path = write(tmp_path / "alpha.mkv", frames, codec="ffv1", pixels="bgra", given="rgba")
    assert close(one(path), film(2) // 255 * 200)


def test_uneven_and_late_times(tmp_path: Path) -> None:
    clip = one(write(tmp_path / "uneven.mp4", film(), times=[0, 1, 2, 9, 30, 31]))
    assert close(clip, film())
    assert 0 < clip.rate < 10
    late = one(write(tmp_path / "late.mkv", film(), times=[500, 501, 502, 503, 504, 505]))
    assert close(late, film())
    assert late.notes == []


@pytest.mark.parametrize(("matrix", "turns"), [((0, 1, -1, 0), -1), ((-1, 0, 0, -1), 2), ((0, -1, 1, 0), 1)])
def test_rotation_metadata(tmp_path: Path, matrix: tuple[int, ...], turns: int) -> None:
    """A phone writes how it was held into the track's header: nine numbers, of which four turn."""
    content = bytearray(write(tmp_path / "upright.mp4", film()).read_bytes())
    start = content.index(b"tkhd") + 4 + 40
    for place, value in zip((0, 4, 12, 16), matrix, strict=True):
        content[start + place : start + place + 4] = (value * 65536).to_bytes(4, "big", signed=True)
    (tmp_path / "turned.mp4").write_bytes(content)
    turned = np.rot90(film(), turns, axes=(1, 2))
    assert close(one(tmp_path / "turned.mp4"), turned)


def test_a_truncated_video_gives_what_there_is(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (40, 32, 32, 3), np.uint8)
    content = write(tmp_path / "whole.mp4", noise, movflags="faststart").read_bytes()
    (tmp_path / "cut.mp4").write_bytes(content[: len(content) // 2])
    clip = one(tmp_path / "cut.mp4")
    assert 5 < len(list(clip)) < 35
    assert any("cut short" in note or "breaks off" in note for note in clip.notes)


def test_a_live_source_is_read_as_it_comes(tmp_path: Path) -> None:
    import os

    content = write(tmp_path / "clip.ts", film(), codec="mpeg2video").read_bytes()
    os.mkfifo(tmp_path / "camera")
    thread = threading.Thread(target=(tmp_path / "camera").write_bytes, args=(content,))
    thread.start()
    clip = one(tmp_path / "camera")
    assert clip.live
    assert len(list(clip)) == 6
    thread.join()
    with pytest.raises(UserError, match="only once"):
        list(clip)


def test_the_name_of_an_address_holds_no_password() -> None:
    with pytest.raises(UserError) as refusal:
        open_clips("http://user:secret@127.0.0.1:9/clip.mp4?token=hidden")
    assert "http://127.0.0.1:9/clip.mp4" in str(refusal.value)
    assert "secret" not in str(refusal.value)
    assert "hidden" not in str(refusal.value)
    assert refusal.value.__suppress_context__, "PyAV's error names the whole address"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("rtsp://me:secret@cam", "rtsp://cam"),
        ("rtsp://me:secret@cam:554/live?key=secret#secret", "rtsp://cam:554/live"),
        ("rtsp://secret@[::1]:554/live", "rtsp://[::1]:554/live"),
        ("rtsp://me:se/secret@cam/a", "rtsp://cam/a"),
        ("rtsp://me:se?secret@cam/a?mail=b@c", "rtsp://cam/a"),
        ("rtsp://me:secret@secret@cam", "rtsp://cam"),
        ("rtsp://me:secret@", "rtsp://"),
        ("https://host/tall@2x.mp4?a=b@c", "https://host/tall@2x.mp4"),
        ("async:http://me:secret@cam/a", "async:http://cam/a"),
        ("concat:http://me:secret@cam/a|http://you:secret@cam/b?secret", "concat:http://cam/a|http://cam/b"),
        ("http://cam/a;token=secret", "http://cam/a"),
        ("rtmp://cam/a pubPasswd=secret", "rtmp://cam/a"),
        ("rtsp://us/er:secret@cam/a", "rtsp://cam/a"),
        ("/dev/video0", "/dev/video0"),
        ("a b?@c.mp4", "a b?@c.mp4"),
        ("a\nb\x1b[2J \udcff ü.mp4", r"a\nb\x1b[2J \udcff ü.mp4"),
        ("C:\\clip.mp4", "C:\\clip.mp4"),
    ],
)
def test_what_an_address_is_called(address: str, shown: str) -> None:
    assert without_secrets(address) == shown


def test_a_file_names_no_address(tmp_path: Path) -> None:
    """A playlist that calls itself a video makes nobody phone home."""
    (tmp_path / "list.mp4").write_text("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://127.0.0.1:9/a.ts\n")
    with pytest.raises(UserError, match=r"cannot open|no frame|no pictures"):
        open_clips(tmp_path / "list.mp4")


# --- images and arrays


def test_images_in_natural_order(tmp_path: Path) -> None:
    names = [tmp_path / name for name in ("f10.png", "F9.png", "f1.png", "a.png")]
    assert [path.name for path in sorted(names, key=natural)] == ["a.png", "f1.png", "F9.png", "f10.png"]
    for number, frame in enumerate(film(11)):
        Image.fromarray(frame).save(tmp_path / f"frame{number}.png")
    (tmp_path / "notes.txt").write_text("not an image")
    clip = one(tmp_path)
    assert (clip.frames, clip.rate, clip.name) == (11, 10.0, tmp_path.name)
    assert close(clip, film(11))
    assert close(one(f"{tmp_path}/frame1*.png"), film(11)[[1, 10]])
    assert close(one(tmp_path / "frame3.png"), film(4)[3:])


def test_images_of_sixteen_bits_with_transparency_and_of_other_sizes(tmp_path: Path) -> None:
    Image.fromarray(film(1)[0, ..., 0].astype(np.uint16) * 257).save(tmp_path / "0.png")
    Image.fromarray(np.concatenate([film(1)[0] * 0 + 255, film(1)[0, ..., :1]], -1)).save(tmp_path / "1.png")
    Image.fromarray(film(1)[0]).resize((48, 32), Image.Resampling.NEAREST).save(tmp_path / "2.png")
    clip = one(tmp_path)
    frames = list(clip)
    for frame in frames:
        assert np.abs((frame if frame.ndim == 2 else frame[..., 0]).astype(int) - film(1)[0, ..., 0]).mean() < 8
    assert clip.notes == ["frames are not all of one size: some were scaled to 24x16"]


@pytest.mark.parametrize(
    "convert",
    [
        lambda frames: frames,
        lambda frames: (frames / 255).astype(np.float32),
        lambda frames: (frames / 255)[..., 0],
        lambda frames: frames[..., :1] > 0,
        lambda frames: frames.astype(np.uint16) * 257,
    ],
    ids=["bytes", "floats", "grey doubles", "bits", "16 bits"],
)
def test_arrays(tmp_path: Path, convert: Callable[[np.ndarray], np.ndarray]) -> None:
    np.save(tmp_path / "clip.npy", convert(film()))
    clip = one(tmp_path / "clip.npy")
    assert clip.frames == 6
    shown = [np.broadcast_to(frame if frame.ndim == 3 else frame[..., None], (16, 24, 3)) for frame in clip]
    np.testing.assert_array_equal(shown, film())


def test_sequences_are_clips(tmp_path: Path) -> None:
    save_sequences(tmp_path / "two.npz", Sequences(np.stack([film()[..., 0], film()[::-1, ..., 0]])))
    first, second = open_clips(tmp_path / "two.npz")
    assert (first.name, second.name) == ("two 1", "two 2")
    np.testing.assert_array_equal(list(second), film()[::-1, ..., 0])


def test_a_folder_of_videos_is_many_clips(tmp_path: Path) -> None:
    for name in ("b2.mp4", "b10.mp4"):
        write(tmp_path / name, film(2))
    assert [clip.name for clip in open_clips(tmp_path)] == ["b2.mp4", "b10.mp4"]


# --- what is refused


def bad_arrays() -> dict[str, tuple[np.ndarray, str]]:
    floats = film()[..., 0] / 255
    hole = floats.copy()
    hole[3, 0, 0] = np.nan
    return {
        "NaN": (hole, r"frame 3 .* not finite"),
        "too bright": (floats * 255, "floats must be from 0 to 1"),
        "one frame without time": (floats[0], "it must be"),
        "five channels": (np.zeros((2, 4, 4, 5), np.uint8), "it must be"),
        "no frames": (floats[:0], "no frames"),
        "words": (np.array([[["a"]]]), "it must hold"),
        "complex": (floats.astype(complex), "it must hold"),
    }


@pytest.mark.parametrize("name", bad_arrays())
def test_bad_arrays(tmp_path: Path, name: str) -> None:
    array, message = bad_arrays()[name]
    np.save(tmp_path / "bad.npy", array)
    with pytest.raises(UserError, match=message):
        open_clips(tmp_path / "bad.npy")


def test_bad_files(tmp_path: Path) -> None:
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "text.mp4").write_text("this is no video\n" * 100)
    (tmp_path / "text.npy").write_text("this is no array")
    (tmp_path / "text.png").write_text("this is no image")
    np.save(tmp_path / "objects.npy", np.array([{}, {}]), allow_pickle=True)
    (tmp_path / "nothing").mkdir()
    with av.open(str(tmp_path / "sound.wav"), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
        sound.sample_rate = 8000
        container.mux(stream.encode(sound))
    messages = {
        "missing.mp4": "does not exist",
        "*.tiff": "matches no file",
        "empty.mp4": "is empty",
        "text.mp4": "cannot open",
        "text.npy": "not an intact",
        "objects.npy": "not an intact",
        "text.png": "cannot read",
        "nothing": "neither an image nor a video",
        "sound.wav": "no pictures in it, only audio",
        "bad\0name": "does not exist",
    }
    for name, message in messages.items():
        with pytest.raises(UserError, match=message) as refusal:
            open_clips(tmp_path / name)
        assert "\n" not in str(refusal.value)


def test_an_array_that_declares_more_than_it_has(tmp_path: Path) -> None:
    with (tmp_path / "huge.npy").open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (10**9, 50, 50)}
        np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(UserError, match="not an intact"):
        open_clips(tmp_path / "huge.npy")


def test_an_array_is_open_only_while_it_is_read(tmp_path: Path) -> None:
    """A command may be given more files than a process may open; one that changes on the way is looked at again."""
    for number in range(5):
        np.save(tmp_path / f"{number}.npy", film())
    before = os.listdir("/dev/fd")
    clips = open_clips(tmp_path)
    assert os.listdir("/dev/fd") == before
    assert [len(list(clip)) for clip in clips] == [6] * 5
    assert os.listdir("/dev/fd") == before
    np.save(tmp_path / "0.npy", film().astype(np.float32))
    with pytest.raises(UserError, match="floats must be from 0 to 1"):
        list(clips[0])

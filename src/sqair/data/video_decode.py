"""Videos and streams through PyAV, frame by frame: upright, 8 bits a channel, over black where transparent."""

import contextlib
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray

from sqair.config import UserError
from sqair.data.video import MOST_PIXELS, RATE, Clip
from sqair.files import without_secrets

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

PATIENCE = 20.0
"""Seconds until a stream that says nothing is given up."""


def open_video(path: Path) -> Clip:
    """A video file. Playlists in it can name no address: nothing but files is opened."""
    # An absolute path with its protocol: a name with a colon in it is no address.
    given = {"file": f"file:{path.absolute()}", "options": {"protocol_whitelist": "file"}}
    return _open(str(path), path.name, given, live=False)


def open_stream(address: str) -> Clip:
    """A camera or an address that PyAV can open; it lasts until it is stopped."""
    given: dict[str, Any] = {"file": address, "timeout": PATIENCE}
    if Path(address).is_char_device():
        given["format"] = "video4linux2"
    name = without_secrets(address)
    return _open(name, name, given, live=True)


def _open(source: str, name: str, given: dict[str, Any], *, live: bool) -> Clip:
    """Look at the first frame, which alone tells the size after rotation, and describe the clip."""
    container, stream = _container(source, given)
    early: list[str] = []
    pictures = Packets(container, stream).pictures(early)
    first = next(pictures, None)
    if first is None:
        container.close()
        raise UserError(f"{source} has no frame that can be decoded; {early[0] if early else 'it holds no pictures'}")
    rate = float(stream.average_rate or stream.guessed_rate or RATE)
    started = [chain([first], pictures)]  # a stream cannot be read twice: what was opened is what is read

    def read(notes: list[str]) -> Iterator[UInt8[ndarray, "H W 3"]]:
        if not live:
            opened = _container(source, given)
            return _closing(opened[0], Packets(*opened).pictures(notes))
        if not started:
            raise UserError(f"{source} can be read only once")
        return _closing(container, started.pop(), lambda: notes.extend(early))

    if not live:
        container.close()
    return Clip(name, first.shape[:2], rate if rate > 0 else RATE, stream.frames or None, read, live)


def _container(source: str, given: dict[str, Any]) -> "tuple[InputContainer, VideoStream]":
    """An open source and its first stream of pictures."""
    import av
    from av.error import FFmpegError

    try:
        container = av.open(**given)
    except FFmpegError as error:
        reason = _reason(error)
        raise UserError(f"cannot open {source} as a video: {reason}") from None  # the error names passwords
    if not container.streams.video:
        contents = _contents(container)
        container.close()
        raise UserError(f"{source} has no pictures in it, only {contents}")
    stream = container.streams.video[0]
    stream.thread_type = "AUTO"
    return container, stream


def _contents(container: "InputContainer") -> str:
    return " and ".join(sorted({stream.type for stream in container.streams})) or "nothing"


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error).lower()


def _closing(
    container: "InputContainer", pictures: Iterator[UInt8[ndarray, "H W 3"]], at_end: Callable[[], None] = lambda: None
) -> Iterator[UInt8[ndarray, "H W 3"]]:
    """The pictures of a container, which is closed after them."""
    with contextlib.closing(container):
        yield from pictures
        at_end()


class Packets:
    """The pictures of an open container."""

    def __init__(self, container: "InputContainer", stream: "VideoStream") -> None:
        self.container, self.stream = container, stream
        self.decoded = self.damaged = 0
        self.end = 0.0
        """Time after the last picture, in seconds."""

    def pictures(self, notes: list[str]) -> Iterator[UInt8[ndarray, "H W 3"]]:
        """All pictures to come. What cannot be decoded is skipped, and a missing end is the end; both are noted."""
        from av.error import FFmpegError

        try:
            for packet in self.container.demux(self.stream):
                yield from self._decode(packet)
        except FFmpegError as error:
            notes.append(f"the clip breaks off after {self.decoded} frames ({_reason(error)})")
        else:
            if self._is_cut():
                notes.append(f"the clip is cut short: only {self.decoded} frames could be decoded")
        if self.damaged:
            notes.append(f"{self.damaged} parts of the clip are damaged and were skipped")

    def _decode(self, packet: "Packet") -> Iterator[UInt8[ndarray, "H W 3"]]:
        """The pictures that a packet completes."""
        from av.error import InvalidDataError

        try:
            frames = packet.decode()
        except InvalidDataError:
            self.damaged += 1
            return
        for frame in frames:
            if frame.time is not None:
                self.end = frame.time + 1 / float(self.stream.average_rate or RATE)
            self.decoded += 1
            yield to_rgb(frame)  # type: ignore[arg-type]

    def _is_cut(self) -> bool:
        """Whether the file promises pictures after the last one; one that begins late, or hides some, does not."""
        stream = self.stream
        if stream.duration is not None and stream.time_base is not None:
            promised = float(stream.duration * stream.time_base)
        elif self.container.duration is not None and len(self.container.streams) == 1:
            promised = self.container.duration / 1e6
        else:
            return False
        fewer = not stream.frames or self.decoded < stream.frames
        return fewer and self.end + 2 / float(stream.average_rate or RATE) < promised


def to_rgb(frame: "VideoFrame") -> UInt8[ndarray, "H W 3"]:
    """A decoded picture as bytes in colour, upright, over black where it is transparent."""
    if frame.width * frame.height > MOST_PIXELS:
        raise UserError(f"frames of {frame.width}x{frame.height} are too large; scale the video down")
    if any(component.is_alpha for component in frame.format.components):
        seen = frame.to_ndarray(format="rgba").astype(np.uint16)
        pixels = (seen[..., :3] * seen[..., 3:] // 255).astype(np.uint8)
    else:
        pixels = frame.to_ndarray(format="rgb24")
    turns = round(frame.rotation / 90) % 4  # counter-clockwise, as those of numpy
    return np.rot90(pixels, turns) if turns else pixels

"""Digits, moving digits, sequences of frames and made cameras, with the truth about them; what moves in a video."""

from sqair.data.background import Foreground, Subtraction, find_blobs
from sqair.data.cameras import Camera, write_camera
from sqair.data.crops import Cut, Cutting, cut_sequences
from sqair.data.digits import Digits, Split, contact_sheet, cut_out, load_digits, rescale
from sqair.data.frames import between, save_frames
from sqair.data.mnist import load_mnist
from sqair.data.moving_digits import MOTIONS, Sequences, check_fits, make_sequences
from sqair.data.sequences import (
    FileSource,
    GeneratedSource,
    Source,
    collect,
    load_sequences,
    open_data,
    open_first,
    save_sequences,
    to_bytes,
)
from sqair.data.strokes import stroke_digits

__all__ = [
    "MOTIONS",
    "Camera",
    "Cut",
    "Cutting",
    "Digits",
    "FileSource",
    "Foreground",
    "GeneratedSource",
    "Sequences",
    "Source",
    "Split",
    "Subtraction",
    "between",
    "check_fits",
    "collect",
    "contact_sheet",
    "cut_out",
    "cut_sequences",
    "find_blobs",
    "load_digits",
    "load_mnist",
    "load_sequences",
    "make_sequences",
    "open_data",
    "open_first",
    "rescale",
    "save_frames",
    "save_sequences",
    "stroke_digits",
    "to_bytes",
    "write_camera",
]

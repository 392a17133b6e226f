"""Digits, moving digits and sequences of frames, with the truth about them."""

from sqair.data.digits import Digits, Split, contact_sheet, cut_out, load_digits, rescale
from sqair.data.mnist import load_mnist
from sqair.data.moving_digits import MOTIONS, Sequences, check_fits, make_sequences
from sqair.data.sequences import (
    FileSource,
    GeneratedSource,
    Source,
    collect,
    load_sequences,
    open_data,
    save_sequences,
    to_bytes,
)
from sqair.data.strokes import stroke_digits

__all__ = [
    "MOTIONS",
    "Digits",
    "FileSource",
    "GeneratedSource",
    "Sequences",
    "Source",
    "Split",
    "check_fits",
    "collect",
    "contact_sheet",
    "cut_out",
    "load_digits",
    "load_mnist",
    "load_sequences",
    "make_sequences",
    "open_data",
    "rescale",
    "save_sequences",
    "stroke_digits",
    "to_bytes",
]

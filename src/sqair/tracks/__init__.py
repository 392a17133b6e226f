"""Tracks: who is where in which frame of a clip, in memory and in files."""

from sqair.tracks.streaming import TrackFiles
from sqair.tracks.table import Tracks
from sqair.tracks.text import Truth, read_truth

__all__ = ["TrackFiles", "Tracks", "Truth", "read_truth"]

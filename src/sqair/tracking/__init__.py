"""Tracking: a clip of any length becomes `Tracks`, frame by frame in constant memory."""

from sqair.tracking.clips import Seen, Watch
from sqair.tracking.full_frame import FullFrame
from sqair.tracking.sources import track, watch
from sqair.tracking.tracker import Tracker, track_batch

__all__ = ["FullFrame", "Seen", "Tracker", "Watch", "track", "track_batch", "watch"]

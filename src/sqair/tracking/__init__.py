"""Tracking: a clip of any length becomes `Tracks`, frame by frame in constant memory."""

from sqair.tracking.clips import Seen, Watch, track
from sqair.tracking.tracker import Tracker, track_batch

__all__ = ["Seen", "Tracker", "Watch", "track", "track_batch"]

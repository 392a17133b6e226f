"""From a clip to training sequences: the foreground, scaled down and cut into small windows (App. E).

Raw sequences, for models with a background of their own, show the frames as they are; the empty scene comes along.

The clip is read twice, first to learn its background and its length, then to cut. Nothing but the frames of one
sequence and those already chosen is held in memory: windows are drawn for every start, and a reservoir keeps a uniform
choice of those that may stay. The last tenth of the clip's time is for validation, and no sequence reaches across.

Objects are those of the truth where there is one, otherwise blobs of foreground.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from sqair.config import UserError
from sqair.data.background import Foreground, Subtraction, find_blobs
from sqair.data.camera import Sizes
from sqair.data.compose import Alone, Tube, composed, no_larger_than_one
from sqair.data.frames import between, pictured, scaled, scaled_size, to_grey
from sqair.data.moving_digits import Sequences
from sqair.data.video import Clip
from sqair.data.windows import Moment, Piece, Reservoir, cut_out, draw_windows, inside, visible_share
from sqair.tracks import Truth

TRIES = 32
"""Windows drawn for every start, at least."""
LEAST = 2e-4
"""Share of the scaled frame below which a blob is a speck."""
MOST_OUTSIDE = 0.2
"""Share of true boxes whose centre may lie outside of the frame."""
HELD_OUT = 0.1
"""The last part of the clip, for validation."""
TUBES, EACH = 2000, 10
"""How many things alone are kept, each for as long as a sequence lasts; and how many sequences are composed for each of
them, at most: more would only show the same few again."""


@dataclass(frozen=True)
class Cutting:
    """What sequences are wanted."""

    height: int = 175
    """Frames are scaled down to this height, never up; 0 keeps their size."""
    crop: tuple[int, int] = (64, 64)
    """Height and width of a window in scaled pixels; 0 0 takes the whole frame."""
    moving: bool = False
    """Whether windows go along with an object, in a straight line, or stand still."""
    beyond: float = 0.0
    """Windows may reach beyond the frame, where it is black, by this share of their sides; not with truth."""
    length: int = 5
    """Frames of a sequence."""
    stride: int = 1
    """Every so many frames of the clip one is taken."""
    max_objects: int = 3
    """At most so many in any frame."""
    empty: float = 0.1
    """Share of sequences in which there is nobody, at most."""
    sequences: int = 3500
    """How many in all, at most; a tenth of them for validation."""
    colour: bool = False
    """Keep colours, where the clip has any."""
    raw: bool = False
    """Frames as they are, with the empty scene behind them, instead of the foreground; windows stand still."""
    start: int = 0
    """First frame to use, from 0."""
    stop: int = 0
    """The frame after the last one to use; 0 for the end."""
    composed: float = 0.0
    """Share of the training sequences that is put together from things which were seen alone (compose.py)."""
    sizes: Sizes | None = None
    """How large things are in scaled pixels, which tells blobs of one thing; then sequences say how many there are."""
    seed: int = 1

    def __post_init__(self) -> None:
        if min(self.height, *self.crop, self.start, self.stop, self.max_objects) < 0 or not 0 <= self.empty <= 1:
            raise UserError("no number that says how to cut sequences may be negative, and empty is at most 1")
        if self.length < 1 or self.stride < 1 or self.sequences < 2:
            raise UserError("sequences need a length and a stride of at least 1, and there must be two of them or more")
        if not 0 <= self.beyond < 1:
            raise UserError(f"windows reach beyond the frame by less than their sides, not by {self.beyond:g} of them")
        if self.beyond and (self.raw or self.moving):
            raise UserError("only windows of the foreground that stand still can reach beyond the frame")
        if self.raw and self.moving:
            raise UserError("raw sequences have one scene behind them; their windows cannot move")
        if self.raw and self.sizes is not None:
            raise ValueError("blobs do not tell how many things there are where frames are raw")
        if self.composed and (self.sizes is None or not 0 <= self.composed < 1):
            raise ValueError("only things whose size is known are put together, for less than all sequences")

    @property
    def span(self) -> int:
        """Frames of the clip from the first to the last of a sequence."""
        return (self.length - 1) * self.stride + 1


class Cut(NamedTuple):
    """What was cut: the training part, then the last tenth of all sequences, from the last tenth of the time."""

    sequences: Sequences
    held_out: int
    """How many of the last ones are for validation, exactly those that `open_data` takes for it."""
    frames: int
    """Frames of the clip that were used."""
    composed: int
    """How many of the others are put together."""

    @property
    def validation(self) -> Sequences:
        """The last ones alone."""
        return jax.tree.map(lambda values: values[-self.held_out :], self.sequences)


def cut_sequences(clip: Clip, subtraction: Subtraction, cutting: Cutting, truth: Truth | None = None) -> Cut:
    """Sequences of the foreground of a clip; with `truth`, boxes and identities come along.

    The truth is in pixels of frames of its tracks' size, or of the clip where that is not known.
    """
    clip = between(clip, cutting.start, cutting.stop)
    if truth is not None:
        if cutting.sizes is not None:
            raise ValueError("people who are known need not be told by their sizes")
        if cutting.beyond:
            raise UserError("boxes are of the frame, and cannot be told of windows that reach beyond it")
        _check_places(truth, clip)
    size = scaled_size(clip.size, cutting.height)
    crop = tuple(side or full for side, full in zip(cutting.crop, size, strict=True))
    if crop[0] > size[0] or crop[1] > size[1]:
        raise UserError(
            f"windows of {crop[1]}x{crop[0]} do not fit into frames of {size[1]}x{size[0]}; make them smaller, "
            "or scale the frames down less"
        )
    foreground = Foreground(subtraction)
    total = foreground.warm(clip)
    border = _border(total, cutting, clip.name)
    moments = _moments(clip, foreground, cutting, size, truth)
    alone = _alone(cutting)
    kept = _chosen(_followed(moments, alone, border), total, border, cutting, (crop[0], crop[1]))
    return _assembled(kept, cutting, total, clip.name, truth is not None, [] if alone is None else alone.tubes.items)


def _alone(cutting: Cutting) -> Alone | None:
    """Who follows things that are alone, where sequences are to be put together from them."""
    if not cutting.composed or cutting.sizes is None:
        return None
    return Alone(cutting.sizes, cutting.span, cutting.stride, TUBES, np.random.default_rng((cutting.seed, 2)))


def _followed(moments: Iterator[Moment], alone: Alone | None, border: int) -> Iterator[Moment]:
    """The same moments; those for training are shown to whoever follows things that are alone."""
    for number, moment in enumerate(moments):
        if alone is not None and number < border:
            alone.add(moment)
        yield moment


def _check_places(truth: Truth, clip: Clip) -> None:
    """Refuse boxes of which many lie elsewhere than in the frame: they are in pixels of another size."""
    height, width = truth.tracks.size or clip.size
    boxes = truth.tracks.box[truth.tracks.in_sight]
    centres = boxes[:, :2] + boxes[:, 2:] / 2
    outside = ((centres < 0) | (centres > np.array([width, height]))).any(1)
    if len(boxes) and outside.mean() > MOST_OUTSIDE:
        raise UserError(
            f"{outside.mean():.0%} of the true boxes lie outside of frames of {width}x{height}; if they are in pixels "
            "of frames of another size, as before scaling, say which (--video.gt-size HEIGHT WIDTH)"
        )


def _border(total: int, cutting: Cutting, name: str) -> int:
    """The first frame for validation."""
    if total < 2 * cutting.span:
        raise UserError(
            f"{name} has {total} frames; sequences of {cutting.length} frames, {cutting.stride} apart, "
            f"need at least {2 * cutting.span}"
        )
    return max(cutting.span, min(int(total * (1 - HELD_OUT)), total - cutting.span))


def _moments(
    clip: Clip, foreground: Foreground, cutting: Cutting, size: tuple[int, int], truth: Truth | None
) -> Iterator[Moment]:
    """The frames of the second reading."""
    least = max(1, round(LEAST * size[0] * size[1]))
    known = None if truth is None else truth.tracks.select(truth.tracks.in_sight & ~truth.ignored)
    own = clip.size if known is None or known.size is None else known.size
    ratio = np.array([size[1] / own[1], size[0] / own[0]] * 2, np.float32)
    empty = pictured(foreground.background, size, cutting.colour) / foreground.light if cutting.raw else None
    for number, frame in enumerate(clip):
        shown = foreground.push(frame)
        if empty is None:
            shown = shown if cutting.colour else to_grey(shown)
            picture, scene = np.round(255 * scaled(shown, size)).astype(np.uint8), None
        else:
            picture = pictured(frame, size, cutting.colour)
            scene = np.clip(np.round(foreground.light * empty), 0, 255).astype(np.uint8)
        if known is None:
            cover = scaled(foreground.mask.astype(np.float32), size)
            blobs = find_blobs(cover >= 0.5, least)
            is_one = None if cutting.sizes is None else no_larger_than_one(blobs, cutting.sizes)
            yield Moment(picture, np.full(len(blobs), -1), blobs, scene, cover, is_one)
        else:
            rows = known.between(number + cutting.start, number + cutting.start + 1)
            yield Moment(picture, rows.id, rows.box * ratio, scene)


def _chosen(
    moments: Iterator[Moment], total: int, border: int, cutting: Cutting, crop: tuple[int, int]
) -> dict[tuple[bool, bool], list[Piece]]:
    """A uniform choice of pieces that may stay, by (for validation, empty)."""
    rng = np.random.default_rng(cutting.seed)
    late = -(-cutting.sequences // 10)
    kept = {
        (held_out, empty): Reservoir[Piece](late if held_out else cutting.sequences - late, rng)
        for held_out in (False, True)
        for empty in (False, True)
    }
    starts = max(1, total - 2 * cutting.span + 2)
    tries = max(TRIES, -(-4 * cutting.sequences // starts))
    recent: deque[Moment] = deque(maxlen=cutting.span)
    for number, moment in enumerate(moments):
        recent.append(moment)
        start = number - cutting.span + 1
        if start < 0 or start < border <= number:
            continue
        seen = [recent[place] for place in range(0, cutting.span, cutting.stride)]
        windows = draw_windows(rng, seen, tries, crop, cutting.moving, cutting.beyond)
        for window, count in zip(windows, inside(seen, windows, crop).max(1).tolist(), strict=True):
            if count <= cutting.max_objects and (place := kept[start >= border, count == 0].place()) is not None:
                place(cut_out(seen, window, crop))
    return {kind: reservoir.items for kind, reservoir in kept.items()}


# --- sequences


def _assembled(
    kept: dict[tuple[bool, bool], list[Piece]],
    cutting: Cutting,
    total: int,
    name: str,
    truth: bool,
    tubes: list[Tube],
) -> Cut:
    """The training part and the held-out tenth as one list."""
    for held_out in (False, True):
        if not kept[held_out, False]:
            raise UserError(
                f"no window of the {'last tenth' if held_out else 'first nine tenths'} of {name} shows 1 to "
                f"{cutting.max_objects} moving objects; allow more of them, or change the subtraction or the windows"
            )

    def part(held_out: bool, most: int) -> list[Piece]:
        return _mixed(kept[held_out, False], kept[held_out, True], most, cutting)

    tenth = -(-cutting.sequences // 10)
    most = len(part(False, cutting.sequences - tenth))
    late = part(True, -(-most // 9))
    train = part(False, min(most, 9 * len(late)))
    rng, (height, width) = np.random.default_rng((cutting.seed, 3)), late[0].frames.shape[1:3]
    count = min(int(cutting.composed * len(train)), EACH * len(tubes))
    both = composed(tubes, (height, width), cutting.max_objects, count, rng) + train[: len(train) - count]
    if count:
        both = [both[place] for place in rng.permutation(len(both))]
    return Cut(_stacked(both + late, truth, cutting), len(late), total, count)


def _mixed(busy: list[Piece], empty: list[Piece], most: int, cutting: Cutting) -> list[Piece]:
    """At most so many pieces in random order, of which no larger share than wanted is empty."""
    share = min(cutting.empty, 0.99)
    idle = min(len(empty), int(share * most + 1e-9))
    busy = busy[: most - idle]
    idle = min(idle, int(len(busy) * share / (1 - share) + 1e-9))
    mixed = [*busy, *empty[:idle]]
    return [mixed[place] for place in np.random.default_rng((cutting.seed, 1)).permutation(len(mixed))]


def _stacked(pieces: list[Piece], truth: bool, cutting: Cutting) -> Sequences:
    """Pieces as arrays; identities are numbered anew in each sequence, in the order of coming."""
    frames = np.stack([piece.frames for piece in pieces])
    scenes = [piece.scene for piece in pieces if piece.scene is not None]
    known = (
        {"scene": np.stack(scenes), "corners": np.array([piece.corner for piece in pieces], np.int32)} if scenes else {}
    )
    most = np.stack([piece.most_objects for piece in pieces]).astype(np.int32)
    if most.max() >= 0:
        known["most_objects"] = most
    if not truth:
        return Sequences(frames, **known)
    orders = [list(dict.fromkeys(np.concatenate([ids for ids, _ in piece.objects]).tolist())) for piece in pieces]
    places = max(1, *map(len, orders))
    boxes = np.full((len(pieces), cutting.length, places, 4), np.nan, np.float32)
    ids = np.full(boxes.shape[:3], -1, np.int32)
    for s, (piece, order) in enumerate(zip(pieces, orders, strict=True)):
        for t, (names, found) in enumerate(piece.objects):
            place = [order.index(name) for name in names.tolist()]
            boxes[s, t, place], ids[s, t, place] = found, place
    counts = (ids >= 0).sum(2).astype(np.int32)
    return Sequences(frames, counts, boxes, ids, visible=visible_share(boxes, frames.shape[2:4]), **known)

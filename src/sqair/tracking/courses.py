"""Who is who after a meeting: each goes on as it came.

While things cover each other, or an edge of the picture cuts one off, boxes and identities mislead. Before and after
that a thing goes its way, straight and evenly as long as one looks at a second or so of it. So what a track was before
is remembered when it meets another or comes to an edge, as a `Course`. Once it has been by itself again for some
frames, its new course is held against those that came: if one that another track has now fits much better than its
own, the two exchange their names. A track that goes away from an edge otherwise than it came to it is somebody else,
who came in as the first went out.

In between, whoever is nearest to the straight way from the one course to the other is the track: it has that name, and
the box of the course where its own is misled, as when two are drawn as one. If there is nobody, it is hidden by whom it
would be covered by, and told all the same. For this, frames are told later, by as many as one is ready to wait for.

Not everywhere do people walk evenly. By how much the speed of those who are alone changes is learnt as one goes, and
how long a course tells anything is a matter of it.

Axes: n tracks of a frame, k frames, 2 x and y, 4 left, top, width, height in pixels of the picture.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32
from numpy import ndarray

from sqair.tracking.boxes import iou, middles, within
from sqair.tracking.joining import Told
from sqair.tracking.things import EDGE

WAIT = 40
"""Frames for which names may still be exchanged."""
BEFORE, LEAST = 15, 5
"""The most frames, and the fewest, that tell how somebody came ..."""
AFTER = 8
"""... and the fewest by itself that tell how it goes on."""
TOUCH = 0.05
"""Two meet when so much of the smaller box lies in the other."""
CUT = 0.5
"""Who is never cut off to less than this share of its area does not leave the picture."""
GONE = 60
"""Frames for which somebody who vanished in a meeting may come back under another number ..."""
NEAR = 1.5
"""... so near, in its heights."""
PLACE, DRIFT = 0.5, 0.06
"""How far, in sizes, a course strays from a straight line, and how much farther with every frame in between."""
SPEED, SHAPE = 0.01, 0.5
"""How much its speed changes at least, in sizes per frame, and its size, by logarithms."""
PAUSE = 10
"""Frames between two parts of a course of somebody alone, by which one learns how evenly people walk here ..."""
LOOK = BEFORE + PAUSE + AFTER
"""... so it must be alone for so many; the changes are ..."""
UNKNOWN, SAMPLES = (0.04,) * 3, 100
"""... in sizes per frame: what is thought at first, and how many such changes of speed are kept."""
USUAL = 2.0
"""Changes of speed up to so many times the usual one are nothing strange."""
FAR = 0.6
"""If a course may have strayed by so many sizes since, it tells nothing."""
BETTER = 4.0
"""A course must fit by so much better than one's own."""
FOLLOWED = 0.5
"""Farther from its way than this, in its own sizes, nobody is taken for it."""
LIKE = 0.7
"""A box in a meeting counts as seen if it has this IoU with that of the course, and as misled if it has not."""
HIDDEN = 0.3
"""Nobody is seen as it, and another covers this share of where it should be: it is hidden by that one."""
STRANGE = 30.0
"""From here on a course does not fit at all."""

Past = Sequence[tuple[int, Float32[ndarray, " 4"]]]
"""Frames and boxes of a track."""


class Course(NamedTuple):
    """Straight on: where it was in the middle of some frames, and how fast."""

    frame: float
    centre: Float[ndarray, " 2"]
    speed: Float[ndarray, " 2"]
    size: Float[ndarray, " 2"]

    @classmethod
    def of(cls, past: Past) -> "Course":
        """The course through some boxes, by least squares."""
        frames, boxes = np.array([frame for frame, _ in past], float), np.array([box for _, box in past], float)
        since, centres = frames - frames.mean(), middles(boxes)
        speed = since @ centres / max(float(since @ since), 1e-6)
        return cls(float(frames.mean()), centres.mean(0), speed, np.median(boxes[:, 2:], axis=0))

    def unlike(self, later: "Course", speed: float = SPEED) -> float:
        """How badly another one goes on from it: squared deviations of place, speed and size.

        `speed` is by how much one's speed may change, in sizes per frame.
        """
        gone, side = max(later.frame - self.frame, 0.0), float((self.size + later.size).mean() / 2)
        place = self.centre + (self.speed + later.speed) / 2 * gone - later.centre
        parts = (
            place / side / (PLACE + DRIFT * gone),
            (self.speed - later.speed) / side / speed,
            np.log(self.size / later.size) / SHAPE,
        )
        return float(sum(part @ part for part in parts))

    def change(self, later: "Course") -> float:
        """By how much the speed of another one differs, in sizes per frame."""
        return float(np.linalg.norm((self.speed - later.speed) / (self.size + later.size).mean() * 2))

    def between(self, later: "Course", frame: int) -> Float[ndarray, " 2"]:
        """Where it was in a frame between the two."""
        return self.centre + (later.centre - self.centre) * (frame - self.frame) / (later.frame - self.frame)


@dataclass(eq=False)
class Meeting:
    """Tracks that cannot be told apart for sure, by number, or one that an edge cuts off."""

    before: dict[int, Course] = field(default_factory=dict)
    """How those came who did not go yet, by name."""
    alone: dict[int, list[tuple[int, Float32[ndarray, " 4"]]]] = field(default_factory=dict)
    """Each member's last frames by itself."""
    everyone: set[int] = field(default_factory=set)
    """Members, and those who have gone."""
    cut: dict[int, tuple[float, int]] = field(default_factory=dict)
    """Of members at an edge, how small the box was at least, and when."""

    def take_in(self, other: "Meeting") -> None:
        """Two meetings become one."""
        self.before |= other.before
        self.alone |= other.alone
        self.cut |= other.cut
        self.everyone |= other.everyone


class Waiting(NamedTuple):
    """A frame that is not told yet."""

    told: Told
    boxes: dict[int, Float32[ndarray, " 4"]]
    """By the numbers of tracks."""
    names: dict[int, int]
    settled: set[int]
    """Names that were found again after a meeting."""
    hidden: dict[int, tuple[int, Float32[ndarray, " 4"]]]
    """Of names whom nobody was seen as: the number of who hides them, and their own boxes."""


class Namer:
    """Takes what is told of a frame; tells it again, `wait` frames later, with the names that tracks deserve.

    `size` is the picture's height and width.
    """

    def __init__(self, size: tuple[int, int], wait: int = WAIT) -> None:
        self._limits, self.wait = np.array(size[::-1], float), wait
        self._frame = 0
        self._waiting: deque[Waiting] = deque()
        self._names: dict[int, int] = {}
        self._last: dict[int, tuple[int, Float32[ndarray, " 4"]]] = {}
        self._alone: dict[int, deque[tuple[int, Float32[ndarray, " 4"]]]] = {}
        self._meetings: list[Meeting] = []
        self._changes = deque(UNKNOWN, maxlen=SAMPLES)
        self._begun = 0
        self._told: dict[int, int] = {}

    def add(self, told: Told) -> Told | None:
        """The next frame; what can be told by now, if anything."""
        boxes = dict(zip(told.track.tolist(), told.box, strict=True))
        for number in boxes:
            if number not in self._names:
                self._names[number] = self._new()
        met = self._meet(boxes)
        cut = self._cut(boxes)
        for number, box in boxes.items():
            meeting = self._meeting_of(number)
            if number in met or number in cut:
                if meeting is not None:
                    meeting.alone[number] = []
            elif meeting is not None:
                if meeting.alone[number] and meeting.alone[number][-1][0] < self._frame - LEAST:
                    meeting.alone[number] = []
                meeting.alone[number].append((self._frame, box))
            else:
                past = self._alone.setdefault(number, deque(maxlen=LOOK))
                past.append((self._frame, box))
                self._learn(list(past))
        self._waiting.append(Waiting(told, boxes, {number: self._names[number] for number in boxes}, set(), {}))
        for meeting in self._meetings:
            self._part(meeting, boxes)
        self._last |= {number: (self._frame, box) for number, box in boxes.items()}
        self._forget()
        self._frame += 1
        return self._tell() if len(self._waiting) > self.wait else None

    def finish(self) -> Iterator[Told]:
        """What is still to be told."""
        while self._waiting:
            yield self._tell()

    def _tell(self) -> Told:
        """The oldest frame; names are numbered in the order in which they are told."""
        told, boxes, names, _, hidden = self._waiting.popleft()
        views = dict(zip(told.track.tolist(), told.view.tolist(), strict=True))
        rows = [(names[number], views[number], box) for number, box in boxes.items()]
        rows += [(name, views[number], box) for name, (number, box) in hidden.items()]
        numbers = [self._told.setdefault(name, len(self._told)) for name, _, _ in rows]
        return Told(
            np.array(numbers, np.int64),
            np.array([view for _, view, _ in rows], np.int64),
            np.array([box for _, _, box in rows], np.float32).reshape(-1, 4),
        )

    def _numbered(self) -> Iterator[tuple[int, Waiting]]:
        """The frames that wait, with their numbers."""
        return enumerate(self._waiting, self._frame - len(self._waiting) + 1)

    def _new(self) -> int:
        self._begun += 1
        return self._begun

    def _forget(self) -> None:
        """Those who have been away for long."""
        about = set(filter(self._is_about, self._last))
        waiting = {number for each in self._waiting for number in each.boxes}
        for meeting in self._meetings:
            for number in meeting.alone.keys() - about:
                del meeting.alone[number]
                meeting.before.pop(self._names[number], None)
                meeting.cut.pop(number, None)
            meeting.everyone &= waiting | about
        self._meetings = [meeting for meeting in self._meetings if meeting.alone]
        for known in (self._names, self._last, self._alone):
            for number in known.keys() - about:
                del known[number]

    def _is_about(self, number: int) -> bool:
        return self._frame - self._last[number][0] <= GONE

    # --- how evenly people walk

    def _learn(self, past: Past) -> None:
        """Somebody was alone for long enough to see by how much its speed changes; one look in a while will do."""
        first, last = past[0][0], past[-1][0]
        if last - first == LOOK - 1 == len(past) - 1 and last % AFTER == 0:
            self._changes.append(Course.of(past[:BEFORE]).change(Course.of(past[-AFTER:])))

    @property
    def _usual(self) -> float:
        """The usual change of speed here, in sizes per frame."""
        return float(np.median(self._changes))

    def _tells(self, before: Course, frame: int | float) -> bool:
        """Whether a course still tells where somebody should be in a frame."""
        return self._usual * (frame - before.frame) <= FAR

    # --- meeting

    def _meeting_of(self, number: int) -> Meeting | None:
        return next((meeting for meeting in self._meetings if number in meeting.alone), None)

    def _enter(self, meeting: Meeting, number: int) -> None:
        """A track joins a meeting; how it came is remembered, if it was seen for long enough."""
        past = [each for each in self._alone.pop(number, ()) if each[0] >= self._frame - BEFORE - LEAST][-BEFORE:]
        meeting.alone[number] = []
        meeting.everyone.add(number)
        if len(past) >= LEAST:
            meeting.before[self._names[number]] = Course.of(past)

    def _meet(self, boxes: dict[int, Float32[ndarray, " 4"]]) -> set[int]:
        """Begin and unite meetings; returns those who touch another now."""
        numbers = list(boxes)
        all_boxes = np.array([boxes[number] for number in numbers]).reshape(-1, 4)
        touching = within(all_boxes, all_boxes) > TOUCH
        pairs = [(numbers[i], numbers[j]) for i, j in zip(*np.nonzero(np.triu(touching | touching.T, 1)), strict=True)]
        for pair in pairs:
            one, other = map(self._meeting_of, pair)
            meeting = one or other
            if meeting is None:
                meeting = Meeting()
                self._meetings.append(meeting)
            elif one is not None and other is not None and one is not other:
                one.take_in(other)
                self._meetings.remove(other)
            for number in pair:
                if number not in meeting.alone:
                    self._enter(meeting, number)
        for number, box in boxes.items():
            if number not in self._last and self._meeting_of(number) is None:
                self._return(number, box, boxes)
        return {number for pair in pairs for number in pair}

    def _return(self, number: int, box: Float32[ndarray, " 4"], boxes: dict[int, Float32[ndarray, " 4"]]) -> None:
        """A new track where a member of a meeting vanished may be that one: it joins the meeting."""
        for meeting in self._meetings:
            for other in meeting.alone:
                if other in boxes or not self._is_about(other):
                    continue
                if np.abs(middles(box) - middles(self._last[other][1])).max() < NEAR * box[3]:
                    meeting.alone[number] = []
                    meeting.everyone.add(number)
                    return

    def _cut(self, boxes: dict[int, Float32[ndarray, " 4"]]) -> set[int]:
        """Those whom an edge cuts off; one that was by itself before begins a meeting of one."""
        cut = set()
        for number, box in boxes.items():
            if (box[:2] < EDGE).any() or (box[:2] + box[2:] > self._limits - EDGE).any():
                cut.add(number)
                meeting = self._meeting_of(number)
                if meeting is None and len(self._alone.get(number, ())) >= LEAST:
                    meeting = Meeting()
                    self._meetings.append(meeting)
                    self._enter(meeting, number)
                if meeting is not None:
                    now = float(box[2] * box[3]), self._frame
                    meeting.cut[number] = min(now, meeting.cut.get(number, now))
        return cut

    # --- parting

    def _part(self, meeting: Meeting, boxes: dict[int, Float32[ndarray, " 4"]]) -> None:
        """Let those go who have been by themselves for long enough, under the names that they deserve."""
        for number in [number for number, past in meeting.alone.items() if number in boxes and len(past) >= AFTER]:
            self._judge(meeting, number)
            self._follow(meeting, number)
            self._alone[number] = deque(meeting.alone.pop(number), maxlen=LOOK)
            meeting.before.pop(self._names[number], None)
            meeting.cut.pop(number, None)

    def _judge(self, meeting: Meeting, number: int) -> None:
        """Give a track that parts from a meeting the name that it deserves."""
        later, own = Course.of(meeting.alone[number]), self._names[number]
        speed = max(SPEED, USUAL * self._usual)
        fits = {name: course.unlike(later, speed) for name, course in meeting.before.items()}
        if not fits:
            return
        best = min(fits, key=fits.__getitem__)
        still_tell = all(self._tells(meeting.before[name], later.frame) for name in {best, own} & fits.keys())
        if still_tell and fits[best] < min(fits.get(own, STRANGE), STRANGE) - BETTER:
            self._rename(number, best, since=meeting.alone[number][0][0])
        elif best == own and fits[own] > STRANGE and number in meeting.cut:
            least, since = meeting.cut[number]
            if least < CUT * meeting.before[own].size.prod():
                del meeting.before[own]
                self._rename(number, self._new(), since)

    def _follow(self, meeting: Meeting, number: int) -> None:
        """In the meeting, whoever was nearest to the way of one that parted from it is that one, or it was hidden."""
        name = self._names[number]
        if name not in meeting.before:
            return
        before, later = meeting.before[name], Course.of(meeting.alone[number])
        if not self._tells(before, meeting.alone[number][0][0]):
            return
        for frame, waiting in self._numbered():
            if not before.frame < frame < meeting.alone[number][0][0]:
                continue
            there, size = before.between(later, frame), (before.size + later.size) / 2
            box = np.concatenate([there - size / 2, size]).astype(np.float32)
            off = {
                other: float(np.linalg.norm((middles(seen) - there) / size))
                for other, seen in waiting.boxes.items()
                if other in meeting.everyone and waiting.names[other] not in waiting.settled
            }
            if off and min(off.values()) < FOLLOWED:
                nearest = min(off, key=off.__getitem__)
                self._exchanged(waiting.names, nearest, name)
                waiting.hidden.pop(name, None)
                if iou(box[None], waiting.boxes[nearest][None])[0, 0] < LIKE:
                    waiting.boxes[nearest] = box
                waiting.settled.add(name)
            elif waiting.boxes and name not in waiting.names.values():
                covered = within(box[None], np.array(list(waiting.boxes.values())))[0]
                if covered.max() >= HIDDEN:
                    waiting.hidden[name] = list(waiting.boxes)[int(covered.argmax())], box

    def _rename(self, number: int, name: int, since: int) -> None:
        """A track and whoever has this name exchange names, in all frames that wait since then and in those to come."""
        for frame, waiting in self._numbered():
            if frame >= since and number in waiting.names:
                self._exchanged(waiting.names, number, name)
                waiting.hidden.pop(name, None)
        self._exchanged(self._names, number, name)

    @staticmethod
    def _exchanged(names: dict[int, int], number: int, name: int) -> None:
        """Give a name to a track, and its own to whoever had that."""
        owner = next((other for other, known in names.items() if known == name), None)
        if owner is not None:
            names[owner] = names[number]
        names[number] = name

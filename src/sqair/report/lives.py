"""What the timeline shows of a clip: when each identity was born, died and was out of sight, and the counts."""

import base64
from typing import Any

import numpy as np

MOST_COUNTED = 255
"""Counts are kept in a byte each."""


class Lives:
    """Grows by a few bytes with every frame, and with every identity and disappearance."""

    def __init__(self, groups: int) -> None:
        self.lives: dict[tuple[int, int], dict[str, Any]] = {}
        self.counts = [bytearray() for _ in range(groups)]
        self.frames = 0

    def add(self, group: int, ids: list[int], in_sight: list[bool]) -> None:
        """The objects of a group in the present frame; once for every group, then `next_frame`."""
        for identity, seen in zip(ids, in_sight, strict=True):
            life = self.lives.setdefault((group, identity), {"first": self.frames, "last": self.frames - 1, "out": []})
            if life["last"] < self.frames - 1:
                self._hide(life, life["last"] + 1, self.frames - 1)
            if not seen:
                self._hide(life, self.frames, self.frames)
            life["last"] = self.frames
        self.counts[group].append(min(len(ids), MOST_COUNTED))

    def next_frame(self) -> None:
        """Go on."""
        self.frames += 1

    def to_dict(self) -> dict[str, Any]:
        """For the page: lives in the order of their births."""
        order = sorted(self.lives.items(), key=lambda item: (item[0][0], item[1]["first"], item[0][1]))
        lives = [{"group": group, "id": identity, **life} for (group, identity), life in order]
        return {"lives": lives, "counts": [base64.b64encode(bytes(counts)).decode() for counts in self.counts]}

    @staticmethod
    def _hide(life: dict[str, Any], first: int, last: int) -> None:
        """Add frames in which the object cannot be seen, to the stretch before if they follow it."""
        out = life["out"]
        if out and out[-1][1] == first - 1:
            out[-1][1] = last
        else:
            out.append([first, last])


def packed(values: Any, kind: str) -> str:
    """Numbers as base64 of little-endian `kind`, as a page reads them."""
    return base64.b64encode(np.ascontiguousarray(values, np.dtype(kind).newbyteorder("<")).tobytes()).decode()

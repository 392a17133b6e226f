"""Skeletons of handwritten digits: the control points that `strokes.py` bends, weighs and draws.

A skeleton is a list of control points (x to the right, y down, in hundredths of the digit's height) and the strokes of
the pen, each a list of indices into those points. A stroke is a smooth curve through its points; where two strokes
share a point, the pen turns a corner. Several poses of one skeleton share their strokes, so that a writer's hand may
lie anywhere between them.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray


class Skeleton(NamedTuple):
    """One way to write one digit."""

    label: int
    weight: float
    """How often it is chosen, relative to the other ways to write the same digit."""
    strokes: tuple[tuple[int, ...], ...]
    """Control points that each stroke of the pen passes through."""
    poses: tuple[str, ...]
    """Each "x,y x,y ..."."""

    def points(self) -> Float[ndarray, "k c 2"]:
        """The control points of the k poses; the digit is about one unit high."""
        return np.array([[point.split(",") for point in pose.split()] for pose in self.poses], float) / 100


def _run(first: int, last: int) -> tuple[int, ...]:
    """The indices from `first` to `last`, both included."""
    return tuple(range(first, last + 1))


ZERO = (
    Skeleton(  # one closed oval
        0,
        3.0,
        (_run(0, 8),),
        (
            "56,3 28,8 8,36 10,72 36,98 68,88 84,55 76,18 50,1",
            "50,1 32,14 22,42 24,74 42,100 60,84 68,52 64,18 46,2",
            "66,6 30,2 2,34 0,70 34,98 80,90 102,52 90,16 58,6",
        ),
    ),
    Skeleton(  # the pen ends with a hook inside the oval
        0,
        1.0,
        (_run(0, 9),),
        (
            "42,10 20,24 8,52 16,86 46,100 76,78 82,42 66,8 44,2 34,16",
            "50,2 24,16 12,48 20,84 44,99 68,80 76,44 70,14 50,6 40,24",
        ),
    ),
)

ONE = (
    Skeleton(  # a plain stroke
        1,
        5.0,
        (_run(0, 3),),
        (
            "50,0 50,33 50,67 50,100",
            "62,0 54,33 46,67 38,100",
            "74,0 62,30 44,68 28,100",
        ),
    ),
    Skeleton(  # with a flag
        1,
        1.0,
        ((0, 1, 2), _run(2, 5)),
        (
            "28,24 40,14 54,0 53,33 51,67 50,100",
            "40,16 48,10 58,0 56,33 53,67 50,100",
        ),
    ),
    Skeleton(  # with a flag and a foot
        1,
        0.5,
        ((0, 1, 2), _run(2, 5), (6, 7, 8)),
        (
            "26,22 38,14 52,0 52,33 51,67 50,98 22,99 50,98 80,97",
            "34,20 42,13 52,0 51,33 49,67 48,100 24,100 46,100 70,99",
        ),
    ),
)

TWO = (
    Skeleton(  # a corner at the foot
        2,
        2.0,
        (_run(0, 6), (6, 7, 8)),
        (
            "14,22 30,5 60,2 78,22 62,54 36,80 12,97 46,95 88,95",
            "10,14 34,1 66,6 74,30 56,58 32,80 8,96 44,98 82,102",
            "20,30 34,8 58,0 74,16 64,46 42,78 20,100 50,94 92,86",
        ),
    ),
    Skeleton(  # a loop at the foot
        2,
        2.0,
        (_run(0, 10),),
        (
            "12,20 38,1 70,10 72,38 50,70 24,94 5,92 12,76 34,78 60,92 94,88",
            "18,14 44,0 70,14 68,42 46,74 24,96 10,94 16,83 34,84 58,95 86,98",
            "8,26 26,4 58,2 72,28 54,62 30,90 6,97 2,80 26,74 58,86 98,96",
        ),
    ),
)

THREE = (
    Skeleton(  # two bowls that meet in a point
        3,
        3.0,
        (_run(0, 4), _run(4, 9)),
        (
            "14,13 42,0 72,12 66,34 38,46 70,53 82,76 56,98 26,99 6,86",
            "20,8 46,0 66,14 60,36 34,48 62,55 72,76 52,96 26,100 10,94",
            "8,16 40,2 78,10 70,32 46,42 76,50 84,74 54,95 22,96 0,90",
        ),
    ),
    Skeleton(  # a small loop between the bowls
        3,
        1.5,
        (_run(0, 9),),
        (
            "14,14 44,0 74,14 62,37 38,48 42,42 72,56 78,80 46,99 8,90",
            "20,10 46,0 70,16 58,38 36,52 40,44 64,54 72,78 44,100 12,96",
        ),
    ),
    Skeleton(  # a flat top
        3,
        0.6,
        ((0, 1, 2), (2, 3, 4), _run(4, 9)),
        (
            "12,4 46,3 80,2 62,21 42,40 74,48 84,74 58,97 26,99 4,88",
            "18,6 44,3 72,0 56,22 38,44 66,50 76,74 54,96 28,100 10,92",
        ),
    ),
)

FOUR = (
    Skeleton(  # open, two strokes
        4,
        3.0,
        (_run(0, 4), _run(5, 8)),
        (
            "20,4 13,30 16,52 44,56 84,48 78,2 74,34 70,68 66,100",
            "30,0 16,28 10,50 40,54 78,50 70,10 66,40 60,70 54,100",
            "12,10 8,30 18,46 46,48 92,38 84,0 78,32 72,66 70,100",
        ),
    ),
    Skeleton(  # open, one stroke: a cup and a stem
        4,
        1.5,
        (_run(0, 5), _run(5, 8)),
        (
            "18,4 10,32 22,50 50,46 72,26 80,2 76,34 70,68 66,100",
            "26,0 16,26 24,46 48,46 66,30 74,8 70,38 62,70 56,100",
        ),
    ),
    Skeleton(  # closed at the top
        4,
        0.8,
        ((0, 1, 2), (2, 3, 4), (0, 5, 6, 7)),
        (
            "66,0 38,30 8,60 48,62 92,60 65,34 64,66 62,100",
            "58,2 32,26 10,54 46,56 84,52 57,34 55,66 52,100",
        ),
    ),
)

FIVE = (
    Skeleton(  # a corner at the neck, the cap drawn apart
        5,
        2.5,
        ((0, 1, 2), _run(2, 7), (0, 8, 9)),
        (
            "28,6 24,24 20,44 46,37 74,50 74,80 44,99 8,91 52,5 86,1",
            "34,8 30,26 26,46 46,44 68,56 66,82 42,99 10,94 58,5 92,0",
            "22,4 20,22 18,42 48,34 78,48 76,80 42,97 4,86 46,4 74,5",
        ),
    ),
    Skeleton(  # in one swing
        5,
        1.5,
        (_run(0, 7),),
        (
            "88,2 56,4 34,12 28,36 56,48 72,70 50,94 10,96",
            "92,6 62,1 40,12 36,38 58,52 64,74 40,96 6,92",
        ),
    ),
)

SIX = (
    Skeleton(  # a curved back
        6,
        2.0,
        (_run(0, 8),),
        (
            "66,1 40,18 18,48 15,80 40,99 68,86 66,63 42,56 18,76",
            "74,4 42,12 16,42 12,78 38,99 72,84 72,56 44,48 17,66",
            "52,0 34,22 22,50 20,80 38,100 58,88 58,70 40,62 24,78",
        ),
    ),
    Skeleton(  # a straight back, the bowl closed on the stem
        6,
        1.5,
        (_run(0, 9),),
        (
            "58,0 40,26 24,54 18,80 34,98 64,90 74,70 56,58 34,70 26,90",
            "44,0 32,28 22,56 20,82 36,99 58,90 62,72 48,64 32,74 28,92",
        ),
    ),
)

SEVEN = (
    Skeleton(  # plain
        7,
        3.0,
        ((0, 1, 2), _run(2, 5)),
        (
            "8,8 44,6 84,4 68,36 54,68 44,100",
            "14,14 44,6 76,3 66,34 52,68 34,100",
            "4,6 42,8 80,2 74,34 70,68 66,100",
        ),
    ),
    Skeleton(  # the corner rounded
        7,
        1.2,
        (_run(0, 6),),
        (
            "8,16 22,5 50,4 76,8 70,36 54,68 44,100",
            "10,22 20,6 48,6 74,4 72,30 50,66 30,100",
        ),
    ),
    Skeleton(  # with a bar
        7,
        0.8,
        ((0, 1, 2), _run(2, 5), (6, 7, 8)),
        (
            "10,10 44,6 84,3 68,36 54,68 44,100 34,52 60,50 88,46",
            "12,6 42,6 76,3 62,34 48,68 36,100 24,46 54,47 80,48",
        ),
    ),
)

EIGHT = (
    Skeleton(  # in one swing from the top right
        8,
        3.0,
        (_run(0, 10),),
        (
            "72,12 46,0 22,15 32,38 60,56 72,80 46,100 20,83 34,58 60,38 76,14",
            "66,10 48,0 30,15 36,38 54,56 60,80 42,100 24,84 34,58 56,36 68,14",
            "82,16 54,0 24,12 30,36 58,52 66,78 38,98 10,84 28,58 64,40 86,18",
        ),
    ),
    Skeleton(  # two rings
        8,
        1.0,
        (_run(0, 6), _run(7, 13)),
        (
            "50,47 27,32 30,9 52,0 72,12 70,35 48,48 50,47 22,62 18,88 46,100 76,88 74,60 48,46",
            "48,42 32,30 34,9 52,0 66,12 64,30 46,42 47,42 26,58 26,86 44,100 66,88 64,58 46,42",
        ),
    ),
)

NINE = (
    Skeleton(  # a straight stem
        9,
        3.0,
        (_run(0, 6), _run(6, 9)),
        (
            "74,14 46,1 18,16 20,42 46,48 68,32 76,10 72,40 66,70 60,100",
            "70,10 48,0 26,14 24,36 44,42 62,28 70,8 66,40 56,70 44,100",
            "76,22 46,4 12,20 14,48 44,54 70,38 78,12 77,40 75,70 74,100",
        ),
    ),
    Skeleton(  # a curled tail
        9,
        1.0,
        (_run(0, 6), _run(6, 10)),
        (
            "74,16 48,1 20,16 22,42 48,48 70,32 76,12 78,46 68,84 42,100 14,92",
            "70,12 46,0 22,16 22,40 46,46 66,30 72,10 72,46 62,80 42,98 24,96",
        ),
    ),
    Skeleton(  # in one swing: the loop runs over into the stem
        9,
        1.0,
        (_run(0, 9),),
        (
            "70,16 48,2 20,18 24,44 54,42 72,18 74,26 68,52 60,78 52,100",
            "76,12 52,2 28,18 30,40 56,38 74,14 72,28 60,54 46,78 32,100",
        ),
    ),
)

SKELETONS: tuple[Skeleton, ...] = ZERO + ONE + TWO + THREE + FOUR + FIVE + SIX + SEVEN + EIGHT + NINE
"""Every way to write every digit, in the order of the digits."""

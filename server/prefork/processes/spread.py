"""Where to put points so that no two are close, however many are still to come."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise


def fraction(number: int) -> float:
    """Of the numbers from 0 on: 0, 1/2, 1/4, 3/4, 1/8 ...; the first n of them divide the unit evenly (van der Corput)."""
    found, step = 0.0, 0.5
    while number:
        number, bit = divmod(number, 2)
        found += bit * step
        step /= 2
    return found


def quota(number: int, least: int, jitter: int) -> int:
    """Requests after which the worker that was started as `number`, from 1 on, is due: `least` and up to `jitter` more."""
    return least + math.floor(fraction(number - 1) * (jitter + 1))


def farthest(least: float, most: float, taken: Iterable[float]) -> float:
    """Of the places from `least` to `most` the one that is farthest from all that are taken; the highest of several.

    With n taken the nearest of them is at least (most - least) / 2n away.
    """
    there = sorted(taken)
    inside = [each for each in there if least < each < most]
    corners = [least, *inside, most]
    between = [(one + other) / 2 for one, other in pairwise(corners)]
    return max((least, *between, most), key=lambda at: (min((abs(at - each) for each in there), default=0.0), at))

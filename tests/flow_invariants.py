"""What is true of limits, for tests of the functions and for the chaos run. `src/watchbill/verify/` has what is true of
all tables between any two transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import LiteralString

STRANDED: LiteralString = """
    SELECT DISTINCT j.wait_key
    FROM watchbill.jobs j
    CROSS JOIN LATERAL unnest(watchbill._count_places(ARRAY[j.wait_key], '{}', %s)) p
    WHERE j.wait = 'parked'
      AND p.places > (
        SELECT count(*)
        FROM watchbill.jobs r
        WHERE r.fence = 0
          AND r.wait IS DISTINCT FROM 'parked'
          AND j.wait_key = ANY (r.limit_keys))
      AND (NOT p.is_ordered OR p.head = j.id)"""
"""Keys with a free place, for which a job is parked and no other is about to take the place."""


def find_excess(times: Sequence[int], *, count: int, per: int, step: int | None = None) -> tuple[int, int, int] | None:
    """The first starts in a row that a rate does not allow, among those of one key, in microseconds: how many, within
    which time, from when on. No window (t - per, t] has more than `count`. If starts are a `step` apart, the last of n
    in a row comes no earlier than n - 1 steps, less a grace, after the first: a start that is late by half a step, and
    at most by a second, does not put off the next one."""
    ordered = sorted(times)
    for last, at in enumerate(ordered):
        if last >= count and at - ordered[last - count] < per:
            return count + 1, at - ordered[last - count], ordered[last - count]
        for first in range(max(0, last - count), last if step else 0):
            took = at - ordered[first]
            if step and took < (last - first) * step - min(step // 2, 1_000_000):
                return last - first + 1, took, ordered[first]
    return None

"""Floors against an index walked by the book: nothing that a claim has not looked at lies behind them."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchbill.worker.floors import CHEAP, LAST_ID, LATE, Floors, Look
from watchbill.worker.run import Claimed

QUEUES = ("a", "b")
EARLY, NOW = 1_000_000, 2_000_000


def row(queue: str, priority: int, at: int, number: int) -> Claimed:
    known: dict[str, Any] = {"queue": queue, "priority": priority, "raw_run_at": at, "id": number.to_bytes(16)}
    return Claimed(**{"walked": 0} | {name: known.get(name, 5) for name in Claimed._fields if name != "walked"})


ROWS = st.lists(
    st.builds(row, st.sampled_from(QUEUES), st.integers(0, 2), st.integers(EARLY, EARLY + 3), st.integers(0, 99)),
    unique_by=lambda row: row.id,
    max_size=30,
)


def index(rows: list[Claimed]) -> list[Claimed]:
    return sorted(rows, key=lambda row: (QUEUES.index(row.queue), -row.priority, row.raw_run_at, row.id))


def floors_after(looks: list[Look]) -> dict[tuple[str, int], tuple[int, bytes]]:
    floors = Floors(QUEUES)
    for look in looks:
        floors.took(look)
    floors.took(Look(1, [], None, seconds=1000.0, from_top=True))
    floors.matter = True
    return floors.above() or {}


@given(ROWS, st.lists(st.integers(1, 12), min_size=1, max_size=5), st.sets(st.integers(0, 99)))
def test_what_was_not_looked_at_is_above_the_floor(rows: list[Claimed], sizes: list[int], taken: set[int]) -> None:
    """Claims of several sizes from the top, beside another claimer that has taken some of the rows."""
    left = [each for each in index(rows) if int.from_bytes(each.id) not in taken]
    looks = []
    for size in sizes:
        took, left = left[:size], left[size:]
        looks.append(Look(size, took, NOW, seconds=0.01, from_top=True))
    floors = floors_after(looks)
    for each in left:
        floor = floors.get((each.queue, each.priority))
        assert floor is None or (each.raw_run_at, each.id) > floor


def test_what_others_took_at_the_end_of_a_priority_is_not_walked_again() -> None:
    mine = [row("a", 2, EARLY, 1), row("a", 1, EARLY, 7)]  # between them, others took the rest of priority 2
    floors = floors_after([Look(2, mine, NOW, seconds=0.01, from_top=False)])
    assert floors == {("a", 2): (NOW - LATE, LAST_ID), ("a", 1): (EARLY, mine[1].id)}


def test_a_claim_that_got_less_than_it_wanted_has_seen_everything() -> None:
    floors = floors_after([Look(3, [row("b", 0, EARLY, 1)], NOW, seconds=0.01, from_top=False)])
    assert floors == {("b", 0): (NOW - LATE, LAST_ID)}


def test_jobs_that_commit_late_are_above_the_floor() -> None:
    """Those of the last quarter of a second, whatever was taken."""
    floors = floors_after([Look(1, [row("a", 0, NOW - 5, 1)], NOW, seconds=0.01, from_top=False)])
    assert floors == {("a", 0): (NOW - LATE, LAST_ID)}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    return clock


FEW, MANY = row("a", 0, EARLY, 1), row("a", 0, EARLY, 2)._replace(walked=CHEAP + 2)


def test_floors_matter_when_a_look_from_the_top_walks_over_much() -> None:
    floors = Floors(QUEUES)
    floors.took(Look(1, [FEW], NOW, 0.1, from_top=True))
    assert floors.above() is None
    floors.took(Look(1, [MANY], NOW, 0.1, from_top=True))
    assert floors.above() == {("a", 0): (EARLY, MANY.id)}
    floors.took(Look(1, [], NOW, 0.1, from_top=True))  # what it walked over nobody tells
    assert floors.above() is not None
    floors.took(Look(1, [FEW], NOW, 0.1, from_top=True))
    assert floors.above() is None


def test_nodes_look_from_the_top_in_turns(clock: list[float]) -> None:
    floors = Floors(QUEUES)
    floors.nodes = 3
    for seconds, pause in ((0.001, 3.0), (0.1, 6.0)):
        floors.took(Look(1, [MANY], NOW, seconds, from_top=True))
        floors.took(Look(1, [FEW], NOW, seconds, from_top=False))
        clock[0] += pause - 0.001
        assert floors.above() is not None
        clock[0] += 0.002
        assert floors.above() is None


def test_who_finds_nothing_looks_from_the_top_soon_and_not_at_once(clock: list[float]) -> None:
    """Three workers that had emptied a queue walked over all of it again and again, where the last ends waited."""
    floors = Floors(QUEUES)
    floors.nodes = 3
    floors.took(Look(1, [MANY], NOW, 0.1, from_top=True))
    assert floors.top_is_due_in == math.inf
    floors.took(Look(1, [], NOW, 0.001, from_top=False))
    assert floors.top_is_due_in == pytest.approx(3 * 1.0)
    clock[0] += 2.8
    floors.took(Look(1, [], NOW, 0.001, from_top=False))  # woken in vain puts nothing off
    assert floors.top_is_due_in == pytest.approx(0.2)
    assert floors.above() is not None
    clock[0] += 0.3
    assert floors.above() is None


def test_who_wakes_looks_above_the_floors_first(clock: list[float]) -> None:
    floors = Floors(QUEUES)
    floors.took(Look(1, [MANY], NOW, 0.1, from_top=True))
    clock[0] += 1e6
    assert floors.above() is not None
    floors.took(Look(1, [FEW], NOW, 0.001, from_top=False))
    assert floors.above() is None  # it was due


def test_a_look_that_is_to_see_everything_is_from_the_top() -> None:
    floors = Floors(QUEUES)
    floors.took(Look(1, [MANY], NOW, 0.1, from_top=True))
    floors.start_from_top()
    assert floors.above() is None


def test_without_the_time_a_floor_is_what_was_taken() -> None:
    took = [row("a", 2, EARLY, 1), row("a", 1, EARLY, 7)]
    floors = floors_after([Look(2, took, None, seconds=0.01, from_top=False)])
    assert floors == {("a", 2): (EARLY, took[0].id), ("a", 1): (EARLY, took[1].id)}

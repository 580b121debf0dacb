"""What to claim next: how much, from where, of which types. No database."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchbill.worker.claim_request import Request
from watchbill.worker.claiming import (
    CHEAP_SCAN_ENTRIES,
    LAST_ID,
    LATE_COMMIT_MICROSECONDS,
    QUARANTINE_BACKOFF_SECONDS,
    SLOW_SCAN_SECONDS,
    Claiming,
    ScanPositions,
    SlotCounts,
)
from watchbill.worker.run import Claimed
from watchbill.worker.slot_shortage import QUICK_RUN_SECONDS

QUEUES = ("a", "b")
EARLY, NOW = 1_000_000, 2_000_000


def row(queue: str, priority: int, at: int, number: int) -> Claimed:
    known: dict[str, Any] = {"queue": queue, "priority": priority, "raw_run_at": at, "id": number.to_bytes(16)}
    return Claimed(**dict.fromkeys(Claimed._fields, 5) | {"entries_read": 0, "is_limited": False} | known)


ROWS = st.lists(
    st.builds(row, st.sampled_from(QUEUES), st.integers(0, 2), st.integers(EARLY, EARLY + 3), st.integers(0, 99)),
    unique_by=lambda row: row.id,
    max_size=30,
)


def index(rows: list[Claimed]) -> list[Claimed]:
    return sorted(rows, key=lambda row: (QUEUES.index(row.queue), -row.priority, row.raw_run_at, row.id))


class Positions(ScanPositions):
    def scan(self, wanted: int, rows: list[Claimed], began: int | None, seconds: float, is_from_top: bool) -> None:
        self.note_scan(
            Request(wanted, wanted, positions=None if is_from_top else {}), rows, began=began, seconds=seconds
        )

    def known(self) -> dict[tuple[str, int], tuple[int, bytes]]:
        self.scan(1, [], None, seconds=1000.0, is_from_top=True)
        self.is_top_expensive = True
        return self.choose_start() or {}


@given(ROWS, st.lists(st.integers(1, 12), min_size=1, max_size=5), st.sets(st.integers(0, 99)))
def test_jobs_that_were_not_seen_are_above_the_position(rows: list[Claimed], sizes: list[int], taken: set[int]) -> None:
    """Claims of several sizes from the top, beside another claimer that has taken some of the rows."""
    left = [each for each in index(rows) if int.from_bytes(each.id) not in taken]
    positions = Positions(QUEUES)
    for size in sizes:
        took, left = left[:size], left[size:]
        positions.scan(size, took, NOW, seconds=0.01, is_from_top=True)
    known = positions.known()
    for each in left:
        position = known.get((each.queue, each.priority))
        assert position is None or (each.raw_run_at, each.id) > position


def test_jobs_that_others_took_at_the_end_of_a_priority_are_not_read_again() -> None:
    mine = [row("a", 2, EARLY, 1), row("a", 1, EARLY, 7)]  # between them, others took the rest of priority 2
    positions = Positions(QUEUES)
    positions.scan(2, mine, NOW, seconds=0.01, is_from_top=False)
    assert positions.known() == {("a", 2): (NOW - LATE_COMMIT_MICROSECONDS, LAST_ID), ("a", 1): (EARLY, mine[1].id)}


def test_claim_below_its_limit_moves_the_scan_position_to_the_end() -> None:
    positions = Positions(QUEUES)
    positions.scan(3, [row("b", 0, EARLY, 1)], NOW, seconds=0.01, is_from_top=False)
    assert positions.known() == {("b", 0): (NOW - LATE_COMMIT_MICROSECONDS, LAST_ID)}


def test_jobs_that_commit_late_are_above_the_position() -> None:
    """Those of the last quarter of a second, whatever was taken."""
    positions = Positions(QUEUES)
    positions.scan(1, [row("a", 0, NOW - 5, 1)], NOW, seconds=0.01, is_from_top=False)
    assert positions.known() == {("a", 0): (NOW - LATE_COMMIT_MICROSECONDS, LAST_ID)}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    return clock


FEW, MANY = row("a", 0, EARLY, 1), row("a", 0, EARLY, 2)._replace(entries_read=CHEAP_SCAN_ENTRIES + 2)


def test_positions_are_used_when_a_scan_from_the_top_is_expensive() -> None:
    positions = Positions(QUEUES)
    positions.scan(1, [FEW], NOW, 0.1, is_from_top=True)
    assert positions.choose_start() is None
    positions.scan(1, [MANY], NOW, 0.1, is_from_top=True)
    assert positions.choose_start() == {("a", 0): (EARLY, MANY.id)}
    positions.scan(1, [], NOW, 0.1, is_from_top=True)  # an empty claim does not tell how much it has read
    assert positions.choose_start() is not None
    positions.scan(1, [FEW], NOW, 0.1, is_from_top=True)
    assert positions.choose_start() is None


def test_nodes_scan_from_the_top_in_turns(clock: list[float]) -> None:
    positions = Positions(QUEUES)
    positions.nodes = 3
    for seconds, pause in ((0.001, 3.0), (0.1, 6.0)):
        positions.scan(1, [MANY], NOW, seconds, is_from_top=True)
        positions.scan(1, [FEW], NOW, seconds, is_from_top=False)
        clock[0] += pause - 0.001
        assert positions.choose_start() is not None
        clock[0] += 0.002
        assert positions.choose_start() is None


def test_who_finds_nothing_scans_from_the_top_soon_and_not_at_once(clock: list[float]) -> None:
    """Three workers that had emptied a queue walked over all of it again and again, where the last ends waited."""
    positions = Positions(QUEUES)
    positions.nodes = 3
    positions.scan(1, [MANY], NOW, 0.1, is_from_top=True)
    assert positions.top_scan_in == math.inf
    positions.scan(1, [], NOW, 0.001, is_from_top=False)
    assert positions.top_scan_in == pytest.approx(3 * 1.0)
    clock[0] += 2.8
    positions.scan(1, [], NOW, 0.001, is_from_top=False)  # an empty claim puts nothing off
    assert positions.top_scan_in == pytest.approx(0.2)
    assert positions.choose_start() is not None
    clock[0] += 0.3
    assert positions.choose_start() is None


def test_who_wakes_scans_above_the_floors_first(clock: list[float]) -> None:
    positions = Positions(QUEUES)
    positions.scan(1, [MANY], NOW, 0.1, is_from_top=True)
    clock[0] += 1e6
    assert positions.choose_start() is not None
    positions.scan(1, [FEW], NOW, 0.001, is_from_top=False)
    assert positions.choose_start() is None  # it was due


def test_a_claim_that_must_see_everything_starts_at_the_top() -> None:
    positions = Positions(QUEUES)
    positions.scan(1, [MANY], NOW, 0.1, is_from_top=True)
    positions.start_from_top()
    assert positions.choose_start() is None


def test_without_the_servers_time_a_position_is_the_last_job() -> None:
    took = [row("a", 2, EARLY, 1), row("a", 1, EARLY, 7)]
    positions = Positions(QUEUES)
    positions.scan(2, took, None, seconds=0.01, is_from_top=False)
    assert positions.known() == {("a", 2): (EARLY, took[0].id), ("a", 1): (EARLY, took[1].id)}


# -- requests

KINDS: dict[str, Any] = {"a": "async", "t": "thread", "p": "process"}
HANDLERS: Any = {
    name: SimpleNamespace(type=name, kind=kind, slot_kind=kind, batch=None) for name, kind in KINDS.items()
}


def counts(free: int = 9, waiting: int = 0, unsettled: int = 0, rate: float = 0.0, **by_kind: int) -> SlotCounts:
    kinds: Any = {"async": 5, "thread": 5, "process": 5, **by_kind}
    return SlotCounts(free, waiting, kinds, unsettled, rate)


@pytest.fixture
def claiming(clock: list[float]) -> Claiming:
    """In a second in which quarantined jobs have had their turn."""
    claiming = Claiming(QUEUES, HANDLERS)
    claiming.start_round()
    assert claiming.next_request(counts()) == Request(1, 1, is_quarantine=True)
    clock[0] += 0.1
    return claiming


def of_type(name: str) -> Claimed:
    return row("a", 0, EARLY, 1)._replace(type=name)


def test_it_asks_for_as_many_jobs_as_could_start(claiming: Claiming) -> None:
    claiming.start_round()
    assert claiming.next_request(counts(free=9, waiting=2)) == Request(7, 7)


def test_it_claims_ahead_what_a_tenth_of_a_second_needs(claiming: Claiming) -> None:
    claiming.start_round()
    assert claiming.next_request(counts(free=2, rate=1000.0)) == Request(102, 2)


@pytest.mark.parametrize("full", [counts(free=0), counts(free=3, waiting=3), counts(unsettled=5000)])
def test_without_room_it_asks_for_nothing_ready(claiming: Claiming, full: SlotCounts) -> None:
    claiming.start_round(is_woken=True)
    assert claiming.next_request(full) is None


def test_after_ready_jobs_it_asks_for_a_quarantined_one_and_then_the_round_is_over(claiming: Claiming) -> None:
    claiming.start_round()
    requests = [claiming.next_request(counts()) for _ in range(3)]
    assert requests == [Request(9, 9), Request(1, 1, is_quarantine=True), None]


def test_a_woken_worker_asks_for_ready_jobs_only(claiming: Claiming) -> None:
    claiming.start_round(is_woken=True)
    assert [claiming.next_request(counts()) for _ in range(2)] == [Request(9, 9), None]


def test_quarantined_jobs_come_first_every_other_second(claiming: Claiming, clock: list[float]) -> None:
    clock[0] += 1.0
    claiming.start_round()
    assert [claiming.next_request(counts()) for _ in range(2)] == [Request(1, 1, is_quarantine=True), Request(9, 9)]


def test_nothing_is_claimed_beside_a_quarantined_job(claiming: Claiming, clock: list[float]) -> None:
    lost = of_type("a")
    claiming.note_answer(Request(1, 1, is_quarantine=True), [lost], began=clock[0])
    claiming.start_round()
    assert claiming.next_request(counts()) is None
    claiming.end_quarantine(has_run=True)
    claiming.start_round()
    assert claiming.next_request(counts()) == Request(1, 1, is_quarantine=True), "the rest of this second is theirs"


def test_a_quarantined_job_without_a_slot_leaves_the_turn_to_the_others(claiming: Claiming, clock: list[float]) -> None:
    claiming.note_answer(Request(1, 1, is_quarantine=True), [of_type("t")], began=clock[0])
    claiming.end_quarantine(lacked_slot=True)
    clock[0] += QUARANTINE_BACKOFF_SECONDS - 0.1
    claiming.start_round()
    assert [claiming.next_request(counts()) for _ in range(2)] == [Request(9, 9), None]
    clock[0] += 0.2
    claiming.start_round()
    assert claiming.next_request(counts()) == Request(1, 1, is_quarantine=True)


def limited(count: int) -> list[Claimed]:
    return [row("a", 0, EARLY, number)._replace(is_limited=True) for number in range(count)]


def test_jobs_with_limit_keys_are_claimed_in_parts_of_what_has_free_keys(
    claiming: Claiming, clock: list[float]
) -> None:
    busy = counts(free=2, rate=1000.0)
    claiming.note_answer(Request(102, 2), limited(60), began=clock[0], claimed=20)
    assert claiming.count_wanted(busy._replace(claimed=20)) == 21
    assert claiming.count_wanted(busy._replace(claimed=70)) == 10, "no more than the window has room for"
    assert claiming.count_wanted(busy._replace(claimed=80)) == 2, "but free handler slots are filled"


def test_a_claim_waits_for_keys_that_endings_are_about_to_free(claiming: Claiming, clock: list[float]) -> None:
    storing = counts(free=2, rate=1000.0)._replace(claimed=70, being_stored=30)
    assert not claiming.awaits_free_keys(storing)
    claiming.note_answer(Request(102, 2), limited(60), began=clock[0], claimed=20)
    assert claiming.count_wanted(storing) == 0
    assert claiming.awaits_free_keys(storing)
    assert not claiming.awaits_free_keys(storing._replace(claimed=40)), "there is room for a part now"
    assert not claiming.awaits_free_keys(storing._replace(being_stored=0))


def test_other_jobs_are_claimed_ahead_again_at_once(claiming: Claiming, clock: list[float]) -> None:
    busy = counts(free=2, rate=1000.0)._replace(claimed=60, being_stored=5)
    claiming.note_answer(Request(102, 2), limited(60), began=clock[0])
    assert claiming.count_wanted(busy) == 0
    claiming.note_answer(Request(15, 2), [of_type("a"), of_type("a"), *limited(1)], began=clock[0], claimed=60)
    assert claiming.count_wanted(busy) == 102


def test_types_of_a_short_kind_without_a_slot_are_left_in_the_queue(claiming: Claiming) -> None:
    claiming.shortage.kinds |= {"thread", "process"}
    claiming.start_round()
    assert claiming.next_request(counts(rate=1000.0, thread=0, process=3)) == Request(3, 9, excluded_types=["t"])


def test_a_shortage_ends_when_a_claim_finds_nothing_of_it(claiming: Claiming, clock: list[float]) -> None:
    claiming.shortage.kinds |= {"thread", "process"}
    claiming.note_answer(Request(2, 2), [of_type("a"), of_type("t")], began=clock[0])
    assert claiming.shortage.kinds == {"thread"}
    claiming.note_answer(Request(2, 2), [of_type("t")], began=clock[0])
    assert claiming.shortage.kinds == set()


def test_a_shortage_ends_when_its_slots_are_freed_quickly(claiming: Claiming) -> None:
    claiming.shortage.kinds.add("thread")
    claiming.shortage.note_freed_slot("thread", QUICK_RUN_SECONDS)
    assert claiming.shortage.kinds == {"thread"}
    claiming.shortage.note_freed_slot("thread", QUICK_RUN_SECONDS / 2)
    assert claiming.shortage.kinds == set()


def test_an_empty_claim_without_some_types_is_repeated_later_only_if_it_was_slow(
    claiming: Claiming, clock: list[float]
) -> None:
    claiming.shortage.kinds.add("thread")
    others = Request(9, 9, excluded_types=["t"])
    claiming.note_answer(others, [], began=clock[0] - SLOW_SCAN_SECONDS / 2)
    claiming.start_round(is_woken=True)
    assert claiming.next_request(counts(thread=0)) == others
    claiming.note_answer(others, [], began=clock[0] - 2 * SLOW_SCAN_SECONDS)
    claiming.start_round(is_woken=True)
    assert claiming.next_request(counts(thread=0)) is None
    assert claiming.next_scan_in == pytest.approx(20 * SLOW_SCAN_SECONDS)


def test_the_servers_time_is_asked_for_where_positions_are_used(claiming: Claiming, clock: list[float]) -> None:
    claiming.note_answer(Request(1, 1), [MANY], began=clock[0])
    claiming.start_round(is_woken=True)
    request = claiming.next_request(counts())
    assert request is not None
    assert (request.positions, request.needs_server_time) == ({("a", 0): (EARLY, MANY.id)}, True)
    claiming.note_server_time(NOW, 3)
    claiming.start_round(is_woken=True)
    request = claiming.next_request(counts())
    assert request is not None
    assert (claiming.positions.nodes, request.needs_server_time) == (3, False)

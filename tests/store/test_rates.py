"""Rates: never more than `count` starts in any window of `per`, across nodes, retries and restarts."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.store.flow import declare_limit, enqueue, waits
from tests.store.harness import Db, End

API = "key:api"


def most_in_any_window(starts: list[datetime], seconds: float) -> int:
    """An oracle: windows that begin at a start, both ends included."""
    return max(sum(start <= other <= start + timedelta(seconds=seconds) for other in starts) for start in starts)


def starts_within(db: Db, epoch: int, seconds: float) -> list[datetime]:
    """When jobs start while this time passes on a node that does what nodes do: it sweeps, promotes and claims."""
    starts: list[datetime] = []
    for _ in range(20):
        db.value("sweep_limits")
        db.value("promote")
        starts += [db.now] * len(db.claim(epoch))
        db.tick(seconds / 20)
    return starts


def test_a_burst_starts_at_once_and_the_rest_step_by_step(db: Db) -> None:
    """Ten a minute, two at once: a step is 60 s / 8."""
    epoch = db.node()
    declare_limit(db, "api", rate=(10, 60, 2))
    jobs = [enqueue(db, API, is_rated=True) for _ in range(6)]
    assert len(db.claim(epoch)) == 2
    assert waits(db, *jobs[2:]) == [("parked", API)] * 4
    assert db.value("promote") == db.after(7.5)
    db.tick(7.4)
    db.value("promote")
    assert db.claim(epoch) == []
    db.tick(0.1)
    db.value("promote")
    assert len(db.claim(epoch)) == 1
    db.tick(15)
    db.value("promote")
    assert len(db.claim(epoch)) == 2
    assert db.value("promote") == db.after(7.5)
    db.tick(1000)
    db.value("promote")
    assert len(db.claim(epoch)) == 1
    assert db.value("promote") is None


@pytest.mark.parametrize("is_promoted", [True, False], ids=["promoted", "not promoted"])
def test_a_place_that_comes_while_another_is_offered_is_not_forgotten(db: Db, is_promoted: bool) -> None:
    """Two at once. One place is free, and a job is made ready for it. Before it is claimed, the second place comes."""
    epoch = db.node()
    declare_limit(db, "api", rate=(10, 60, 2))
    for _ in range(5):
        enqueue(db, API, is_rated=True)
    assert len(db.claim(epoch)) == 2
    db.tick(7.5)
    db.value("promote")
    db.tick(100)
    if is_promoted:
        db.value("promote")
    assert db.claim(epoch) != []
    db.value("promote")
    assert len(db.claim(epoch)) == (0 if is_promoted else 1)
    assert waits(db, *(row.id for row in db.rows("jobs") if not row.fence)) == [("parked", API)]
    db.tick(7.5)
    db.value("promote")
    assert len(db.claim(epoch)) == 1
    assert db.value("promote") is None


def test_sweep_keeps_the_rate_of_a_claim_that_began_before_it(db: Db) -> None:
    """A claim may have read the clock long before it comes to the states of keys, on a busy machine."""
    epoch = db.node()
    declare_limit(db, "api", rate=(2, 10, 1))
    first, second = (enqueue(db, API, is_rated=True) for _ in range(2))
    held = db.claim_one(epoch)
    assert held.id == first
    db.settle(epoch, End(held))
    db.tick(10)
    db.value("sweep_limits")
    assert db.claim(epoch, now=db.after(-0.1)) == []
    db.value("promote")
    assert [row.id for row in db.claim(epoch)] == [second]
    db.tick(70)
    for row in db.rows("jobs"):
        db.settle(epoch, End(row))
    db.value("sweep_limits")
    assert db.count("limit_states") == 0


def test_a_rated_job_is_claimed_only_into_a_free_slot(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", rate=(1000, 60, 999))
    for _ in range(5):
        enqueue(db, API, is_rated=True)
    assert db.claim(epoch, 10, free=0) == []
    assert len(db.claim(epoch, 10, free=2)) == 2


def test_a_rated_job_that_another_node_did_not_know_needs_a_free_slot_too(db: Db) -> None:
    stranger, expert = db.node(), db.node(types={"t": 1})
    declare_limit(db, "api", rate=(1000, 60, 999))
    rated = enqueue(db, API, is_rated=True, type="t")
    db.settle(stranger, End(db.claim_one(stranger), "unsupported", age=None))
    plain = enqueue(db)
    assert [row.id for row in db.claim(expert, 10, free=1)] == [plain]
    assert [row.id for row in db.claim(expert, 10, free=1)] == [rated]


def test_a_rate_that_was_declared_later_keeps_waiting_jobs_from_being_claimed_ahead(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", rate=(1000, 60, 999))
    jobs = [enqueue(db, API) for _ in range(3)]
    assert len(db.claim(epoch, 10, free=1)) == 1
    assert {row.class_ for row in db.rows("jobs")} == {1}
    assert len(db.claim(epoch, 10, free=2)) == 2
    assert db.states(*jobs) == ["running"] * 3


def test_a_limit_and_a_rate_of_one_name_both_hold(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", 1, rate=(100, 10, 50))
    for _ in range(3):
        enqueue(db, API, is_rated=True)
    (held,) = db.claim(epoch)
    assert db.claim(epoch) == []
    db.settle(epoch, End(held))
    assert len(db.claim(epoch)) == 1


def test_keys_with_a_rate_a_limit_and_an_order_pass_in_one_claim(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", rate=(10, 60, 2))
    declare_limit(db, "room", 2)
    rated = [enqueue(db, API, "key:room", is_rated=True) for _ in range(3)]
    limited = [enqueue(db, "key:room:7") for _ in range(3)]
    ordered = [enqueue(db, order="x") for _ in range(2)]
    plain = enqueue(db)
    taken = {held.id for held in db.claim(epoch, 20)}
    assert taken == {*rated[:2], *limited[:2], ordered[0], plain}
    assert waits(db, rated[2], limited[2], ordered[1]) == [
        ("parked", API), ("parked", "key:room:7"), ("parked", "order:task:x"),
    ]  # fmt: skip


def test_retries_count(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", rate=(2, 60, 1))
    job = enqueue(db, API, is_rated=True)
    db.settle(epoch, End(db.claim_one(epoch), "failed", delay=timedelta(0)))
    assert db.claim(epoch) == []
    assert waits(db, job) == [("parked", API)]
    db.tick(60)
    db.value("promote")
    assert len(db.claim(epoch)) == 1


def test_the_end_of_a_run_does_not_start_more_than_the_rate_allows(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", 5, rate=(3, 60, 2))
    for _ in range(5):
        enqueue(db, API, is_rated=True)
    held = db.claim(epoch)
    assert len(held) == 2
    db.settle(epoch, *[End(row) for row in held])
    assert db.claim(epoch) == []
    db.tick(60)
    db.value("promote")
    assert len(db.claim(epoch)) == 1


def test_a_rate_of_one_starts_the_next_job_after_the_whole_window(db: Db) -> None:
    """Both ends of a window belong to it."""
    epoch = db.node()
    db.value("set_limit", name="api", count=1, per="1 minute")
    for _ in range(3):
        enqueue(db, API, is_rated=True)
    assert len(db.claim(epoch, 10)) == 1
    assert db.value("promote") == db.after(60.000001)
    db.tick(60)
    db.value("promote")
    assert db.claim(epoch, 10) == []
    db.tick(0.000001)
    db.value("promote")
    assert len(db.claim(epoch, 10)) == 1
    db.tick(1000)
    db.value("promote")
    assert len(db.claim(epoch, 10)) == 1


def test_starts_of_several_keys_wait_for_each_other(db: Db) -> None:
    """A fifth of a second at most: one look and one claim serve all of them. A key that is alone does not wait."""
    epoch = db.node()
    declare_limit(db, "api", rate=(2, 1, 1))
    for key in range(5):
        for _ in range(3):
            enqueue(db, f"{API}:{key}", is_rated=True)
        assert len(db.claim(epoch, 10)) == 1
        assert db.value("promote") == db.after(1.0 - 0.05 * key)
        db.tick(0.05)
    db.tick(0.75)
    assert db.value("promote") == db.after(0.2)
    assert len(db.claim(epoch, 10)) == 1
    db.tick(0.2)
    db.value("promote")
    assert len(db.claim(epoch, 10)) == 4


def test_starts_of_a_fast_rate_hardly_wait(db: Db) -> None:
    """A fifth of a step at most, or the rate would not be reached."""
    epoch = db.node()
    declare_limit(db, "fast", rate=(101, 1, 1))
    declare_limit(db, "slow", rate=(2, 1, 1))
    for key in ("fast", "slow"):
        for _ in range(2):
            enqueue(db, f"key:{key}", is_rated=True)
    assert len(db.claim(epoch, 10)) == 2
    db.tick(0.009)
    assert db.value("promote") == db.after(0.002)


def test_a_start_that_is_late_does_not_put_off_the_next(db: Db) -> None:
    """Up to half a step. Later than that, the next start is a step after this one."""
    epoch = db.node()
    declare_limit(db, "api", rate=(2, 1, 1))
    for _ in range(5):
        enqueue(db, API, is_rated=True)
    for late, pause in ((0.0, 1.0), (0.4, 0.6), (0.1, 0.9), (0.6, 1.0)):
        db.tick(late)
        db.value("promote")
        assert len(db.claim(epoch, 10)) == 1
        assert db.value("promote") == db.after(pause)
        db.tick(pause)


def test_a_late_start_with_a_long_step_keeps_its_time_for_a_second_only(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", rate=(2, 3600, 1))
    for _ in range(4):
        enqueue(db, API, is_rated=True)
    for late, pause in ((0.0, 3600.0), (0.9, 3599.1), (1.1, 3600.0)):
        db.tick(late)
        db.value("promote")
        assert len(db.claim(epoch, 10)) == 1
        assert db.value("promote") == db.after(pause)
        db.tick(pause)


def test_the_end_of_a_run_frees_the_place_of_a_limit_with_a_rate(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", 1, rate=(100, 10, 50))
    declare_limit(db, "only-a-rate", rate=(100, 10, 50))
    for _ in range(2):
        enqueue(db, API, is_rated=True)
    (held,) = db.claim(epoch, 10)
    db.settle(epoch, End(held))
    assert len(db.claim(epoch, 10)) == 1


def test_a_look_is_planned_only_for_waiting_jobs(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", rate=(2, 60, 1))
    enqueue(db, API, is_rated=True)
    assert len(db.claim(epoch, 10)) == 1
    assert db.value("promote") is None


SLOW = {"name": "api", "count": 1, "per": "1 day"}
FAST = {"name": "api", "count": 100, "per": "1 second"}


@pytest.mark.parametrize(
    ("how", "old_per", "is_waiting"),
    [
        ("set", "1 day", True),
        ("set", "5 seconds", False),
        ("clear", "1 day", True),
        ("code", "5 seconds", True),
        ("code", "1 day", False),
        ("remove", "1 day", False),
    ],
)
def test_a_rate_that_becomes_faster_does_not_wait_for_the_old_period(
    db: Db, how: str, old_per: str, is_waiting: bool
) -> None:
    """The job waits already, or is enqueued after the change."""
    slow = SLOW | {"per": old_per}
    epoch = db.node(app="shop")
    if how == "clear":
        db.call("declare_limits", epoch=epoch, limits=[FAST])
    if how == "code":
        db.call("declare_limits", epoch=epoch, limits=[slow])
    else:
        db.value("set_limit", **slow)
    enqueue(db, API, is_rated=True)
    assert len(db.claim(epoch)) == 1
    if is_waiting:
        enqueue(db, API, is_rated=True)
        assert db.claim(epoch) == []
    if how == "set":
        db.value("set_limit", **FAST)
    elif how == "code":
        db.call("leave", epoch=epoch)
        epoch = db.node(app="shop")
        db.call("declare_limits", epoch=epoch, limits=[FAST])
    else:
        assert db.value("clear_limit", name="api") is True
    if how == "remove":
        db.value("set_limit", **FAST)
    if not is_waiting:
        enqueue(db, API, is_rated=True)
    assert len(starts_within(db, epoch, 1.0)) == (2 if how == "code" else 1)


def test_a_rate_can_become_as_fast_as_there_are_numbers(db: Db) -> None:
    epoch = db.node()
    db.value("set_limit", **SLOW)
    for _ in range(3):
        enqueue(db, API, is_rated=True)
    assert len(db.claim(epoch)) == 1
    db.value("set_limit", **(FAST | {"count": 1_000_000}))
    assert len(starts_within(db, epoch, 1.0)) == 2


def test_a_rate_that_becomes_faster_holds_from_then_on(db: Db) -> None:
    epoch = db.node()
    db.value("set_limit", **SLOW)
    for _ in range(100):
        enqueue(db, API, is_rated=True)
    assert len(db.claim(epoch)) == 1
    db.value("set_limit", name="api", count=10, per="1 second", burst=3)
    starts = starts_within(db, epoch, 1.0) + starts_within(db, epoch, 1.0)
    assert most_in_any_window(starts, 1.0) <= 10
    assert len(starts) >= 10


@pytest.mark.parametrize("is_waiting", [True, False], ids=["waiting", "new"])
def test_a_clock_that_is_set_back_does_not_stop_a_rate(db: Db, is_waiting: bool) -> None:
    epoch = db.node()
    db.value("set_limit", name="api", count=10, per="1 second")
    for _ in range(100 if is_waiting else 1):
        enqueue(db, API, is_rated=True)
    assert len(db.claim(epoch)) == 1
    db.tick(-86_400)
    for _ in range(0 if is_waiting else 100):
        enqueue(db, API, is_rated=True)
    starts = starts_within(db, epoch, 1.0) + starts_within(db, epoch, 1.0)
    assert most_in_any_window(starts, 1.0) <= 10
    assert len(starts) >= 10


def test_a_clock_that_is_set_back_does_not_stop_jobs_that_wait_for_a_place(db: Db) -> None:
    """A job that has waited once is not delayed because its time is of the future now."""
    epoch = db.node()
    declare_limit(db, "api", 1)
    for _ in range(2):
        enqueue(db, API)
    (held,) = db.claim(epoch)
    db.tick(-86_400)
    db.settle(epoch, End(held))
    assert len(db.claim(epoch)) == 1


@pytest.mark.parametrize("seed", range(5))
def test_no_window_ever_has_more_starts_than_the_rate(db: Db, seed: int) -> None:
    """Several nodes, retries, claims whose clock runs behind, and random pauses; and the rate is used up."""
    chance = random.Random(seed)
    count = 1 if seed == 0 else chance.randint(2, 12)
    burst, seconds = chance.randint(1, max(1, count - 1)), chance.choice([1.0, 7.0, 60.0])
    declare_limit(db, "api", rate=(count, seconds, burst))
    nodes: list[int] = [db.node() for _ in range(3)]
    for _ in range(80):
        enqueue(db, API, is_rated=True, max_attempts=20)
    starts: list[datetime] = []
    began = db.now
    for _ in range(400):
        db.tick(chance.choice([0, 0.000001, 0.01, seconds / count / 3, seconds / count]))
        if chance.random() < 0.02:
            db.tick(chance.choice([seconds, seconds * 3]))
        db.value("promote")
        late = timedelta(seconds=chance.choice([0, 0, 0.001, 0.3]))
        epoch = chance.choice(nodes)
        rows: list[Any] = db.claim(epoch, chance.choice([1, 5, 100]), now=db.now - late)
        starts += [db.now - late] * len(rows)
        ends = [End(row, chance.choice(["succeeded", "failed"]), delay=timedelta(0)) for row in rows]
        if ends:
            db.settle(epoch, *ends)
        if db.count("jobs") == 0:
            break
    assert most_in_any_window(starts, seconds) <= count
    if db.count("jobs") > 0:  # it was busy all the time, but for the steps of the test
        assert len(starts) > (db.now - began).total_seconds() * max(1, count - burst) / seconds / 4

"""Rates: never more than `count` starts in any window of `per`, across nodes, retries and restarts."""

from __future__ import annotations

import random
from bisect import bisect_right
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.store.flow import declare_limit, enqueue, waits
from tests.store.harness import Db, End

API = "key:api"
Rates = list[tuple[int, float]]


def most_in_any_window(starts: list[datetime], seconds: float) -> int:
    """An oracle: the windows (t - seconds, t] that end with a start."""
    return max(sum(end - timedelta(seconds=seconds) < start <= end for start in starts) for end in starts)


def enqueue_many(db: Db, number: int, *keys: str) -> None:
    for _ in range(number):
        enqueue(db, *(keys or (API,)), is_rated=True)


def start(db: Db, epoch: int, most: int = 100) -> int:
    """How many jobs start on a node that promotes and claims."""
    db.value("promote")
    return len(db.claim(epoch, most))


def starts_within(db: Db, epoch: int, seconds: float) -> list[datetime]:
    """When jobs start while this time passes on a node that does what nodes do: it sweeps, promotes and claims."""
    starts: list[datetime] = []
    for _ in range(20):
        db.value("sweep_limits")
        starts += [db.now] * start(db, epoch)
        db.tick(seconds / 20)
    return starts


def test_ten_start_at_once_and_the_eleventh_when_the_first_is_a_minute_old(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", rates=[(10, 60)])
    jobs = [enqueue(db, API, is_rated=True) for _ in range(13)]
    assert len(db.claim(epoch, 4)) == 4
    db.tick(20)
    assert len(db.claim(epoch, 100)) == 6
    assert waits(db, *jobs[10:]) == [("parked", API)] * 3
    assert db.value("promote") == db.after(40)
    db.tick(39.999999)
    assert start(db, epoch) == 0
    db.tick(0.000001)
    assert start(db, epoch) == 3
    assert db.value("promote") is None


def test_a_place_is_free_as_soon_as_its_start_is_one_window_old(db: Db) -> None:
    """Ten starts, a second apart: so are the next ten."""
    epoch = db.node()
    declare_limit(db, "api", rates=[(10, 60)])
    enqueue_many(db, 30)
    for _ in range(2):
        for _ in range(10):
            assert start(db, epoch, 1) == 1
            db.tick(1)
        assert start(db, epoch) == 0
        assert db.value("promote") == db.after(50)
        db.tick(50)


def test_two_rates_of_one_name_are_two_windows(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", rates=[(3, 60), (5, 3600)])
    enqueue_many(db, 20)
    assert start(db, epoch) == 3
    assert db.value("promote") == db.after(60)
    db.tick(60)
    assert start(db, epoch) == 2
    assert db.value("promote") == db.after(3540)
    db.tick(3540)
    assert start(db, epoch) == 3
    assert db.value("promote") == db.after(60)


def test_a_job_of_two_rates_takes_a_place_in_both_or_in_none(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", rates=[(3, 60)])
    declare_limit(db, "mail", rates=[(1, 30)])
    both = [enqueue(db, API, "key:mail", is_rated=True) for _ in range(3)]
    one = enqueue(db, API, is_rated=True)
    assert [row.id for row in db.claim(epoch, 100)] == [both[0]]
    assert [row.id for row in db.claim(epoch, 100)] == [one]
    assert waits(db, *both[1:]) == [("parked", "key:mail")] * 2
    db.tick(30)
    assert start(db, epoch) == 1  # it finds the third place of `api`, which the jobs that waited have not used
    db.tick(30)
    assert start(db, epoch) == 1


def test_the_next_place_goes_to_the_first_waiting_job(db: Db) -> None:
    """By priority, run_at and id, whenever it was enqueued."""
    epoch = db.node()
    declare_limit(db, "api", rates=[(1, 60)])
    enqueue_many(db, 1)
    assert start(db, epoch) == 1
    plain = [enqueue(db, API, is_rated=True) for _ in range(3)]
    assert start(db, epoch) == 0
    urgent = enqueue(db, API, is_rated=True, priority=5)
    assert start(db, epoch) == 0
    order = []
    for _ in range(4):
        db.tick(60)
        db.value("promote")
        order += [row.id for row in db.claim(epoch, 100)]
    assert order == [urgent, *plain]


def test_a_place_that_comes_while_another_is_offered_is_not_forgotten(db: Db) -> None:
    """A place comes, and a job is made ready for it. Before it is claimed, the next place comes."""
    epoch = db.node()
    declare_limit(db, "api", rates=[(2, 60)])
    enqueue_many(db, 6)
    assert len(db.claim(epoch, 1)) == 1
    db.tick(10)
    assert len(db.claim(epoch, 100)) == 1
    db.tick(50)
    db.value("promote")
    db.tick(10)
    assert len(db.claim(epoch, 100)) == 1
    assert db.value("promote") == db.after(60)
    assert len(db.claim(epoch, 100)) == 1
    assert db.value("promote") == db.after(60)


def test_a_look_makes_jobs_ready_only_for_places_that_have_come_since_the_last(db: Db) -> None:
    """While no node claims, or each claim takes one job, others stay parked."""
    epoch = db.node()
    declare_limit(db, "api", rates=[(10, 60)])
    enqueue_many(db, 60)
    for _ in range(10):
        assert start(db, epoch, 1) == 1
        db.tick(1)
    assert start(db, epoch) == 0
    db.tick(50)

    def ready() -> int:
        return sum(row.wait is None and row.fence == 0 for row in db.rows("jobs"))

    for _ in range(5):
        db.value("promote")
        db.tick(1)
    assert ready() == 5
    for _ in range(5):
        assert start(db, epoch, 1) == 1
    assert ready() == 1  # for the place of the sixth second


def test_sweep_keeps_the_rate_of_a_claim_that_began_before_it(db: Db) -> None:
    """A claim may have read the clock long before it comes to the states of keys, on a busy machine."""
    epoch = db.node()
    declare_limit(db, "api", rates=[(1, 10)])
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


def test_a_claim_whose_clock_is_behind_counts_at_the_time_of_the_last_start(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", rates=[(2, 10)])
    enqueue_many(db, 3)
    assert len(db.claim(epoch, 1)) == 1
    assert len(db.claim(epoch, 1, now=db.after(-9))) == 1
    db.tick(9.999999)
    assert start(db, epoch) == 0
    db.tick(0.000001)
    assert start(db, epoch) == 1


def test_a_rated_job_is_claimed_only_into_a_free_slot(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", rates=[(1000, 60)])
    enqueue_many(db, 5)
    assert db.claim(epoch, 10, free=0) == []
    assert len(db.claim(epoch, 10, free=2)) == 2


def test_a_rated_job_that_another_node_did_not_know_needs_a_free_slot_too(db: Db) -> None:
    stranger, expert = db.node(), db.node(types={"t": 1})
    declare_limit(db, "api", rates=[(1000, 60)])
    rated = enqueue(db, API, is_rated=True, type="t")
    db.settle(stranger, End(db.claim_one(stranger), "unsupported", age=None))
    plain = enqueue(db)
    assert [row.id for row in db.claim(expert, 10, free=1)] == [plain]
    assert [row.id for row in db.claim(expert, 10, free=1)] == [rated]


def test_a_rate_that_was_declared_later_keeps_waiting_jobs_from_being_claimed_ahead(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", rates=[(1000, 60)])
    jobs = [enqueue(db, API) for _ in range(3)]
    assert len(db.claim(epoch, 10, free=1)) == 1
    assert {row.class_ for row in db.rows("jobs")} == {1}
    assert len(db.claim(epoch, 10, free=2)) == 2
    assert db.states(*jobs) == ["running"] * 3


def test_a_limit_and_a_rate_of_one_name_both_hold(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", 1, rates=[(2, 10)])
    enqueue_many(db, 3)
    for _ in range(2):
        (held,) = db.claim(epoch)
        assert db.claim(epoch) == []
        db.settle(epoch, End(held))
    assert db.claim(epoch) == []
    db.tick(10)
    assert start(db, epoch) == 1


def test_keys_with_a_rate_a_limit_and_an_order_pass_in_one_claim(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", rates=[(2, 60)])
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


@pytest.mark.parametrize("outcome", ["failed", "snoozed", "released", "lost"])
def test_retries_and_runs_that_came_to_nothing_count(db: Db, outcome: str) -> None:
    epoch = db.node()
    declare_limit(db, "api", rates=[(1, 60)])
    job = enqueue(db, API, is_rated=True)
    held = db.claim_one(epoch)
    if outcome == "lost":
        db.lose(epoch)
        epoch = db.node()
    else:
        db.settle(epoch, End(held, outcome, delay=timedelta(0)))
    db.make_ready()
    ways: dict[str, Any] = {"alone": True} if outcome == "lost" else {}
    assert db.claim(epoch, **ways) == []
    assert waits(db, job) == [("parked", API)]
    db.tick(60)
    db.value("promote")
    assert len(db.claim(epoch, **ways)) == 1


def test_the_end_of_a_run_does_not_start_more_than_the_rate_allows(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", 5, rates=[(2, 60)])
    enqueue_many(db, 5)
    held = db.claim(epoch)
    assert len(held) == 2
    db.settle(epoch, *[End(row) for row in held])
    assert db.claim(epoch) == []
    db.tick(60)
    assert start(db, epoch) == 2


def test_the_end_of_a_run_frees_the_place_of_a_limit_with_a_rate(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", 1, rates=[(100, 10)])
    declare_limit(db, "only-a-rate", rates=[(100, 10)])
    enqueue_many(db, 2)
    (held,) = db.claim(epoch, 10)
    db.settle(epoch, End(held))
    assert len(db.claim(epoch, 10)) == 1


def test_starts_of_several_keys_wait_for_each_other(db: Db) -> None:
    """A fifth of a second at most: one look and one claim serve all of them. A key that is alone does not wait."""
    epoch = db.node()
    declare_limit(db, "api", rates=[(1, 1)])
    for key in range(5):
        enqueue_many(db, 3, f"{API}:{key}")
        assert len(db.claim(epoch, 10)) == 1
        assert db.value("promote") == db.after(1.0 - 0.05 * key)
        db.tick(0.05)
    db.tick(0.75)
    assert db.value("promote") == db.after(0.2)
    assert len(db.claim(epoch, 10)) == 1
    db.tick(0.2)
    assert start(db, epoch, 10) == 4


@pytest.mark.parametrize("evenly", [False, True])
def test_starts_of_a_fast_rate_hardly_wait(db: Db, evenly: bool) -> None:
    """A fifth of the mean time between two starts at most, or the rate would not be reached."""
    epoch = db.node()
    declare_limit(db, "fast", rates=[(101 if evenly else 100, 1)], evenly=evenly)
    declare_limit(db, "slow", rates=[(1, 1)])
    enqueue_many(db, 101, "key:fast")
    enqueue_many(db, 2, "key:slow")
    db.claim(epoch, 200)
    db.tick(0.009 if evenly else 0.999)
    assert db.value("promote") == db.after(0.002)


def test_spaced_starts_come_one_by_one(db: Db) -> None:
    """Eleven a minute, a step of 60 s / 10."""
    epoch = db.node()
    declare_limit(db, "api", rates=[(11, 60)], evenly=True)
    enqueue_many(db, 4)
    assert start(db, epoch) == 1
    assert db.value("promote") == db.after(6)
    db.tick(5.999999)
    assert start(db, epoch) == 0
    db.tick(0.000001)
    assert start(db, epoch) == 1
    db.tick(1000)
    assert start(db, epoch) == 1
    assert db.value("promote") == db.after(6)


def test_a_spaced_start_that_is_late_does_not_put_off_the_next(db: Db) -> None:
    """Up to half a step. Later than that, the next start is a step after this one."""
    epoch = db.node()
    declare_limit(db, "api", rates=[(2, 1)], evenly=True)
    enqueue_many(db, 5)
    for late, pause in ((0.0, 1.0), (0.4, 0.6), (0.1, 0.9), (0.6, 1.0)):
        db.tick(late)
        assert start(db, epoch, 10) == 1
        assert db.value("promote") == db.after(pause)
        db.tick(pause)


def test_a_late_start_with_a_long_step_keeps_its_time_for_a_second_only(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", rates=[(2, 3600)], evenly=True)
    enqueue_many(db, 4)
    for late, pause in ((0.0, 3600.0), (0.9, 3599.1), (1.1, 3600.0)):
        db.tick(late)
        assert start(db, epoch, 10) == 1
        assert db.value("promote") == db.after(pause)
        db.tick(pause)


@pytest.mark.parametrize("evenly", [False, True])
def test_a_rate_of_one_starts_the_next_job_after_the_whole_window(db: Db, evenly: bool) -> None:
    epoch = db.node()
    declare_limit(db, "api", rates=[(1, 60)], evenly=evenly)
    enqueue_many(db, 4)
    for late in (0, 0.5, 100):
        db.tick(late)
        assert start(db, epoch) == 1
        assert db.value("promote") == db.after(60)
        db.tick(59.999999)
        assert start(db, epoch) == 0
        db.tick(0.000001)


def test_a_look_is_planned_only_for_waiting_jobs(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "api", rates=[(1, 60)])
    enqueue_many(db, 1)
    assert start(db, epoch) == 1
    assert db.value("promote") is None


SIMULATION = """
CREATE FUNCTION pg_temp.simulate(count int, claims int, OUT times timestamptz[], OUT size int)
LANGUAGE plpgsql AS $$
DECLARE
  rates watchbill.rate[] := ARRAY[ROW(count, interval '1 minute', false)::watchbill.rate];
  windows watchbill.rate_window[];
  t timestamptz := '2031-03-14Z';
  n int;
BEGIN
  size := 0;
  FOR claim IN 1..claims * 5 / 2 LOOP
    t := t + interval '1 minute' / claims;
    n := least(5, (SELECT f.free FROM watchbill._count_free_starts(rates, windows, t) f));
    SELECT a.windows INTO windows FROM watchbill._add_starts(rates, windows, n, t) a;
    times := times || array_fill(t, ARRAY[n]);
    size := greatest(size, pg_column_size(windows));
  END LOOP;
END $$"""


@pytest.mark.parametrize(("count", "least"), [(1_000, 1_000), (4_000, 3_960), (6_000, 5_940)])
def test_a_key_stays_small_and_its_rate_is_reached(db: Db, count: int, least: int) -> None:
    """Exact up to a count of 1,000. Above that in 1,000 parts of the window: never more, and 0.99 of it at least."""
    session = db.session()
    session.execute(SIMULATION)
    ((times, size),) = session.execute("SELECT * FROM pg_temp.simulate(%s, 1250)", (count,))
    minute = timedelta(minutes=1)
    numbers = [bisect_right(times, end) - bisect_right(times, end - minute) for end in sorted(set(times))]
    assert max(numbers) <= count
    assert min(numbers[len(numbers) // 2 :]) >= least
    assert size <= 16_384


SLOW = {"name": "api", "rates": [{"count": 1, "per": "1 day"}]}
FAST = {"name": "api", "rates": [{"count": 100, "per": "1 second"}]}


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
    slow = SLOW | {"rates": [{"count": 1, "per": old_per}]}
    epoch = db.node(app="shop")
    if how == "clear":
        db.call("declare_limits", epoch=epoch, limits=[FAST])
    if how == "code":
        db.call("declare_limits", epoch=epoch, limits=[slow])
    else:
        db.value("set_limit", **slow)
    enqueue_many(db, 1)
    assert len(db.claim(epoch)) == 1
    if is_waiting:
        enqueue_many(db, 1)
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
        enqueue_many(db, 1)
    assert len(starts_within(db, epoch, 1.0)) == (2 if how == "code" else 1)


def test_a_rate_can_become_as_fast_as_there_are_numbers(db: Db) -> None:
    epoch = db.node()
    db.value("set_limit", **SLOW)
    enqueue_many(db, 3)
    assert len(db.claim(epoch)) == 1
    db.value("set_limit", name="api", rates=[{"count": 1_000_000_000, "per": 0.001}])
    assert len(starts_within(db, epoch, 1.0)) == 2


@pytest.mark.parametrize(
    ("rates", "free"),
    [
        ([{"count": 2, "per": 60}], 0),
        ([{"count": 5, "per": 60}], 2),
        ([{"count": 5, "per": 3600}], 2),
        ([{"count": 5, "per": 30}], 4),
        ([{"count": 9, "per": 60}, {"count": 4, "per": 86_400}], 1),
        ([{"count": 5_000, "per": 60}], 4_997),
        ([{"count": 7, "per": 60, "evenly": True}], 1),
        ([{"count": 3, "per": 60, "evenly": True}], 0),
    ],
)
def test_a_changed_rule_counts_the_starts_that_are_stored(db: Db, rates: list[Any], free: int) -> None:
    """Two starts were 35 seconds ago, and one 15."""
    epoch = db.node()
    declare_limit(db, "api", rates=[(3, 60)])
    enqueue_many(db, 10)
    assert start(db, epoch, 2) == 2
    db.tick(20)
    assert start(db, epoch) == 1
    db.tick(15)
    db.value("set_limit", name="api", rates=rates)
    assert start(db, epoch) == min(free, 7)
    ((places,),) = db.execute("SELECT (watchbill._count_places('{key:api}', '{}', %s))[1].places", (db.now,))
    assert places == max(0, free - 7)


def test_a_rate_that_becomes_faster_holds_from_then_on(db: Db) -> None:
    epoch = db.node()
    db.value("set_limit", **SLOW)
    enqueue_many(db, 100)
    assert len(db.claim(epoch)) == 1
    db.value("set_limit", name="api", rates=[{"count": 10, "per": "1 second"}])
    starts = starts_within(db, epoch, 1.0) + starts_within(db, epoch, 1.0)
    assert most_in_any_window(starts, 1.0) <= 10
    assert len(starts) == 19  # the first start counted for the first second


@pytest.mark.parametrize("evenly", [False, True])
@pytest.mark.parametrize("is_waiting", [True, False], ids=["waiting", "new"])
def test_a_clock_that_is_set_back_does_not_stop_a_rate(db: Db, is_waiting: bool, evenly: bool) -> None:
    epoch = db.node()
    declare_limit(db, "api", rates=[(10, 1)], evenly=evenly)
    enqueue_many(db, 100 if is_waiting else 10)
    assert len(db.claim(epoch)) == (1 if evenly else 10)
    db.tick(-86_400)
    enqueue_many(db, 0 if is_waiting else 100)
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


def test_a_rate_that_is_taken_away_leaves_nothing_to_look_at(db: Db) -> None:
    """The limit of the same name stays, and its jobs wait for it."""
    epoch = db.node()
    declare_limit(db, "api", 1, rates=[(2, 10)])
    enqueue_many(db, 3)
    assert len(db.claim(epoch)) == 1
    db.value("set_limit", name="api", rates=[])
    db.tick(20)
    assert db.value("promote") is None


@pytest.mark.parametrize("seed", range(6))
def test_no_window_ever_has_more_starts_than_the_rate(db: Db, seed: int) -> None:
    """Several nodes, retries, claims whose clock runs behind, and random pauses; and the rate is used up. A start
    counts at the time of the last one, if its claim has read the clock before."""
    chance = random.Random(seed)
    evenly = seed > 3
    seconds = chance.choice([1.0, 7.0, 60.0])
    rates: Rates = [(1 if seed == 0 else chance.randint(2, 12), seconds)]
    if seed in (2, 3):
        rates.append((chance.randint(15, 30), seconds * 5))
    declare_limit(db, "api", rates=rates, evenly=evenly)
    nodes: list[int] = [db.node() for _ in range(3)]
    for _ in range(80):
        enqueue(db, API, is_rated=True, max_attempts=20)
    starts: list[datetime] = []
    began, count = db.now, rates[0][0]
    for _ in range(400):
        db.tick(chance.choice([0, 0.000001, 0.01, seconds / count / 3, seconds / count]))
        if chance.random() < 0.02:
            db.tick(chance.choice([seconds, seconds * 3]))
        db.value("promote")
        late = timedelta(seconds=chance.choice([0, 0, 0.001, 0.3]))
        epoch = chance.choice(nodes)
        rows: list[Any] = db.claim(epoch, chance.choice([1, 5, 100]), now=db.now - late)
        starts += [max([*starts[-1:], db.now - late])] * len(rows)
        ends = [End(row, chance.choice(["succeeded", "failed"]), delay=timedelta(0)) for row in rows]
        if ends:
            db.settle(epoch, *ends)
        if db.count("jobs") == 0:
            break
    for most, per in rates:
        assert most_in_any_window(starts, per) <= most
    if db.count("jobs") > 0:  # it was busy all the time, but for the steps of the test
        slowest = min(most / per for most, per in rates)
        assert len(starts) > (db.now - began).total_seconds() * slowest / 4

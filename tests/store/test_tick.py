"""The tick: which slots become jobs, which are missed or skipped, and that no slot is made twice."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.store.harness import T0, Db, End, Session, refused
from tests.store.test_wake import heard, sleeper
from tests.store.test_work import work
from tests.waiting import until

HOUR = timedelta(hours=1)


def at(hour: int, minute: int = 0, day: int = 14) -> datetime:
    return T0.replace(day=day, hour=hour, minute=minute, second=0)


def add(db: Session, name: str = "s", **rule: Any) -> int:
    """On the hour, unless told otherwise; T0 is 9:26:53."""
    times = {} if rule.keys() & {"every", "at", "pattern"} else {"pattern": "0 * * * *"}
    action = {} if rule.keys() & {"command", "type"} else {"type": "task"}
    made: int = db.value("add_schedule", name=name, **times, **action, **rule)
    return made


def tick_at(db: Db, now: datetime, **more: Any) -> Any:
    db.now = now
    return db.row("tick", **more)


def slots(db: Db, schedule: int | None = None) -> list[tuple[datetime, str | None, int]]:
    rows = db.rows("slots", "slot, kind")
    return [(r.slot, r.outcome, r.count) for r in rows if schedule in {None, r.schedule_id}]


def jobs(db: Db) -> list[Any]:
    return db.rows("jobs", "slot, id")


def finish_all(db: Db) -> None:
    epoch = db.node()
    for job in db.claim(epoch):
        db.settle(epoch, End(job))


# -- one slot


def test_tick_makes_a_job_for_a_due_slot_and_advances_the_timer(db: Db) -> None:
    schedule = add(
        db, payload={"a": 1}, queue="q", priority=3, max_attempts=2, timeout="30 s", version=4, context={"x": 1}
    )
    assert tick_at(db, at(9, 59))[:4] == (0, 0, 0, at(10))
    assert tick_at(db, at(10))[:4] == (1, 0, 0, at(11))
    (job,) = jobs(db)
    assert (job.schedule_id, job.slot, job.run_at, job.created_at) == (schedule, at(10), at(10), at(10))
    assert (job.type, job.payload, job.queue, job.priority, job.max_attempts) == ("task", {"a": 1}, "q", 3, 2)
    assert (job.timeout, job.version) == (30.0, 4)
    assert job.meta == {"schedule": "s", "slot": "2031-03-14T10:00:00+00:00", "context": {"x": 1}}
    assert tick_at(db, at(10))[:4] == (0, 0, 0, at(11))


def test_what_becomes_of_due_slots_is_decided_before_anything_is_written(db: Db) -> None:
    schedule = add(db, missed="catch_up", catch_up=2, queue="q")
    decided = db.execute(
        "SELECT slot, count, outcome, job_id, previous, queue, last_slot, next_run"
        " FROM unnest(watchbill._decide_firings(%s, 100, %s)) ORDER BY slot",
        ([schedule], at(13)),
    )
    missed, first, second = [row._asdict() for row in decided]
    after = {"last_slot": at(13), "next_run": at(14)}
    assert missed == {
        "slot": at(10), "count": 2, "outcome": "missed", "job_id": None, "previous": None, "queue": None, **after
    }  # fmt: skip
    assert (first["slot"], first["previous"], first["queue"]) == (at(12), None, "q")
    assert (second["slot"], second["previous"], second["queue"]) == (at(13), first["job_id"], "q")
    assert (jobs(db), slots(db)) == ([], [])


def test_pattern_follows_the_zone_of_the_schedule(db: Db) -> None:
    add(db, pattern="0 9 * * *", tz="America/New_York")
    assert tick_at(db, at(12, 59)).next_at == at(13)
    assert tick_at(db, at(13)).fired == 1


def test_intervals_count_from_the_start_or_the_creation(db: Db) -> None:
    started, created = add(db, "started", every=HOUR, start=at(10, 30)), add(db, "created", every=HOUR)
    while db.now < at(13):
        tick_at(db, db.row("tick").next_at)
        finish_all(db)
    assert [slot for slot, *_ in slots(db, started)] == [at(10, 30), at(11, 30), at(12, 30)]
    assert [slot for slot, *_ in slots(db, created)] == [T0 + n * HOUR for n in (1, 2, 3, 4)]


def test_one_time_schedule_fires_once_even_if_it_is_past(db: Db) -> None:
    past, future = add(db, "past", at=at(8)), add(db, "future", at=at(10))
    assert tick_at(db, T0).fired == 1
    assert tick_at(db, at(10))[:4] == (1, 0, 0, None)
    assert [slots(db, past), slots(db, future)] == [[(at(8), None, 1)], [(at(10), None, 1)]]
    db.call("disable_schedule", name="future")
    db.call("enable_schedule", name="future")
    assert tick_at(db, at(11)).fired == 0
    db.call("update_schedule", name="future", changes={"at": str(at(12))})
    finish_all(db)
    assert tick_at(db, at(12)).fired == 1


def test_on_demand_never_fires(db: Db) -> None:
    db.value("add_schedule", name="s", type="task")
    assert tick_at(db, at(23))[:4] == (0, 0, 0, None)
    assert db.row("schedule_by_name", name="s").status == "on_demand"


def test_start_and_end_are_inclusive(db: Db) -> None:
    add(db, start=at(11), end=at(13), overlap="allow")
    assert db.row("tick").next_at == at(11)
    for hour in range(10, 16):
        tick_at(db, at(hour))
    assert [slot for slot, *_ in slots(db)] == [at(11), at(12), at(13)]
    assert db.row("schedule_by_name", name="s").status == "ended"


def test_max_runs_counts_only_slots_with_a_job(db: Db) -> None:
    add(db, max_runs=2)
    tick_at(db, at(10))
    tick_at(db, at(11))  # skipped: the first has not ended
    finish_all(db)
    assert tick_at(db, at(12)).next_at is None
    assert [outcome for _, outcome, _ in slots(db)] == ["succeeded", "skipped", None]
    db.call("update_schedule", name="s", changes={"max_runs": 3})
    assert db.row("tick").next_at == at(13)


def test_jitter_moves_the_job_and_not_the_slot(db: Db) -> None:
    add(db, jitter=timedelta(minutes=10))
    tick_at(db, at(10))
    (job,) = jobs(db)
    assert job.slot == at(10)
    assert at(10) < job.run_at < at(10, 10)
    assert job.wait == "delayed"


def test_schedule_without_a_task_emits_an_event(db: Db) -> None:
    db.value("add_schedule", name="bell", pattern="0 * * * *")
    row = tick_at(db, at(10))
    assert row.events == [
        {"event": "schedule_fired", "schedule": "bell", "tenant": "default", "slot": "2031-03-14T10:00:00+00:00"}
    ]
    assert slots(db) == [(at(10), "fired", 1)]
    assert jobs(db) == []


def test_tick_fires_at_most_max_slots_oldest_first(db: Db) -> None:
    for minute in (50, 40, 30):
        add(db, str(minute), pattern=f"{minute} * * * *")
    row = tick_at(db, at(10), max=2)
    assert (row.fired, row.next_at) == (2, at(9, 50))
    assert [slot for slot, *_ in slots(db)] == [at(9, 30), at(9, 40)]


def test_a_tick_after_an_outage_is_bounded_by_the_slots_it_handles(db: Db) -> None:
    for name in "abc":
        add(db, name, missed="catch_up")
    ticks: list[Any] = []
    while not ticks or ticks[-1].next_at <= db.now:
        ticks.append(tick_at(db, at(14), max=6))  # each schedule has five slots due
    assert [tick.fired for tick in ticks] == [6, 6, 3]
    assert [tick.next_at for tick in ticks] == [at(10), at(12), at(15)]
    assert [row.next_run for row in db.rows("timers")] == [at(15)] * 3
    ran: list[datetime] = []
    while ready := [job.slot for job in jobs(db) if job.wait is None]:
        assert len(ready) == 3, "a slot of each schedule, the others wait for it"
        ran += ready
        finish_all(db)
        unblock(db)
    assert ran == [at(hour) for hour in range(10, 15) for _ in "abc"]


def test_missed_slots_count_for_the_bound_of_a_tick(db: Db) -> None:
    add(db, "a", pattern="* * * * *")
    add(db, "b", pattern="*/2 * * * *")
    assert tick_at(db, at(12), max=100)[:3] == (1, 153, 0)
    assert tick_at(db, at(12), max=100)[:3] == (1, 76, 0)
    assert tick_at(db, at(12), max=100)[:3] == (0, 0, 0)


def test_max_runs_and_grace_hold_across_several_ticks(db: Db) -> None:
    limited = add(db, "limited", missed="catch_up", max_runs=3)
    recent = add(db, "recent", missed="catch_up", grace="3 hours")
    while tick_at(db, at(15), max=1).fired:
        pass
    assert [slot for slot, *_ in slots(db, limited)] == [at(10), at(11), at(12)]
    assert slots(db, recent) == [(at(10), "missed", 2), *((at(hour), None, 1) for hour in (12, 13, 14, 15))]


def test_a_tick_needs_read_committed(db: Db) -> None:
    db.begin("REPEATABLE READ")
    with refused("WB005"):
        db.call("tick")
    db.rollback()


def test_tick_sends_a_notification_for_the_queue(db: Db) -> None:
    add(db)
    listener = sleeper(db)
    listener.execute("SELECT pg_advisory_lock(1466004579, watchbill._wake_lock_key())")
    tick_at(db, at(10))
    db.call("update_schedule", name="s", changes={"pattern": "5 * * * *"})
    assert heard(db, listener) == ["ready default", "schedules"]


# -- missed slots

MISSED = [  # missed, more, what ran, what is gone as (from, to, count); the tick comes at 13:10
    ("once", {}, [13], (10, 12, 3)),
    ("once", {"grace": timedelta(minutes=5)}, [], (10, 13, 4)),
    ("once", {"grace": timedelta(minutes=10)}, [13], (10, 12, 3)),
    ("skip", {}, [], (10, 13, 4)),
    ("skip", {"grace": timedelta(minutes=15)}, [13], (10, 12, 3)),
    ("catch_up", {}, [10, 11, 12, 13], None),
    ("catch_up", {"catch_up": 2}, [12, 13], (10, 11, 2)),
    ("catch_up", {"grace": timedelta(hours=2)}, [12, 13], (10, 11, 2)),
    ("catch_up", {"catch_up": 1, "max_runs": 1}, [13], (10, 12, 3)),
    ("catch_up", {"max_runs": 3}, [10, 11, 12], None),
]


@pytest.mark.parametrize("pattern", ["0 * * * *", "0 * * * * S0H", None], ids=["pattern", "chained", "every"])
@pytest.mark.parametrize(("missed", "more", "ran", "gone"), MISSED)
def test_missed_policy_decides_which_slots_run(
    db: Db, missed: str, more: dict[str, Any], ran: list[int], gone: tuple[int, int, int] | None, pattern: str | None
) -> None:
    if pattern == "0 * * * * S0H":
        pattern = (
            "59 59 * * * * S1H"  # the start of the hour after 9:59:59, and so on: the same slots, one from the other
        )
    when = {"pattern": pattern} if pattern else {"every": HOUR, "start": at(10)}
    add(db, missed=missed, overlap="allow", **when, **more)
    row = tick_at(db, at(13, 10))
    assert row.next_at == (None if "max_runs" in more else at(14))
    assert [job.slot for job in jobs(db)] == [at(hour) for hour in ran]
    rows = [(r.slot, r.until, r.count) for r in db.rows("slots") if r.outcome == "missed"]
    assert rows == ([(at(gone[0]), at(gone[1]), gone[2])] if gone else [])
    assert (row.fired, row.missed) == (len(ran), gone[2] if gone else 0)


def test_catching_up_keeps_the_order_of_the_slots(db: Db) -> None:
    add(db, missed="catch_up", overlap="allow")
    tick_at(db, at(20))
    epoch = db.node()
    ran = [db.claim_one(epoch).meta["slot"] for _ in range(11)]
    assert ran == sorted(ran)


@pytest.mark.parametrize(
    "rule", [{"pattern": "* * * * * *"}, {"every": timedelta(seconds=1)}], ids=["pattern", "every"]
)
def test_one_tick_passes_years_of_missed_slots(db: Db, rule: dict[str, Any]) -> None:
    add(db, **rule)
    row = tick_at(db, T0 + timedelta(days=1000))
    assert (row.fired, row.missed, row.next_at) == (1, 10000, T0 + timedelta(days=1000, seconds=1))
    gone, ran = db.rows("slots", "slot")
    assert (gone.slot, gone.until, gone.reason) == (
        T0 + timedelta(seconds=1),
        ran.slot - timedelta(seconds=1),
        "at least this many; no scheduler fired it in time, and missed is once",
    )


def test_several_ticks_catch_up_with_a_dependent_pattern(db: Db) -> None:
    add(db, pattern="* * * * * * S1S")
    ticks = 0
    while db.row("tick", now=T0 + timedelta(hours=6)).next_at <= T0 + timedelta(hours=6):
        ticks += 1
        assert ticks < 10
    assert sum(count for *_, count in slots(db)) == 21600 // 2
    assert [outcome for _, outcome, _ in slots(db)].count(None) == 1


def test_missed_slots_are_recorded_with_the_reason(db: Db) -> None:
    add(db, missed="catch_up", grace="2 hours")
    tick_at(db, at(15, 30))
    gone, *_ = db.rows("slots", "slot")
    assert (gone.slot, gone.count) == (at(10), 4)
    assert gone.reason == "no scheduler fired it in time, and missed is catch_up with a grace of 02:00:00"


# -- overlap


def test_overlap_skip_records_the_slot_and_the_reason(db: Db) -> None:
    add(db)
    tick_at(db, at(10))
    assert tick_at(db, at(11))[:3] == (0, 0, 1)
    _, skipped = db.rows("slots", "slot")
    assert (skipped.outcome, skipped.job_id, skipped.finished_at) == ("skipped", None, None)
    assert skipped.reason == "the run of 2031-03-14 10:00:00+00 has not ended"
    finish_all(db)
    assert tick_at(db, at(12)).fired == 1


def test_overlap_skip_counts_a_manual_run(db: Db) -> None:
    add(db)
    db.value("run_schedule", name="s")
    assert tick_at(db, at(10)).skipped == 1


def test_overlap_skip_runs_only_one_caught_up_slot(db: Db) -> None:
    add(db, missed="catch_up", overlap="skip")
    assert tick_at(db, at(13))[:3] == (1, 0, 3)
    assert [outcome for _, outcome, _ in slots(db)] == [None, "skipped", "skipped", "skipped"]


def test_overlap_allow_runs_slots_concurrently(db: Db) -> None:
    add(db, overlap="allow")
    tick_at(db, at(10))
    assert tick_at(db, at(11)).fired == 1
    assert [job.wait for job in jobs(db)] == [None, None]


def unblock(db: Db) -> None:
    while db.call("unblock"):
        pass


def test_overlap_queue_blocks_a_slot_until_the_previous_one_ends(db: Db) -> None:
    add(db, overlap="queue")
    tick_at(db, at(10))
    assert tick_at(db, at(11)).fired == 1
    assert tick_at(db, at(12)).fired == 1
    unblock(db)
    assert [job.wait for job in jobs(db)] == [None, "blocked", "blocked"]
    db.run(db.node(), "failed", error={"kind": "permanent"})  # however it ends
    unblock(db)
    assert [job.wait for job in jobs(db)] == [None, "blocked"]
    finish_all(db)
    unblock(db)
    assert [job.wait for job in jobs(db)] == [None]


def test_caught_up_slots_run_one_after_the_other(db: Db) -> None:
    add(db, missed="catch_up")
    tick_at(db, at(13))
    ran = []
    while left := jobs(db):
        assert [job.wait for job in left] == [None] + ["blocked"] * (len(left) - 1)
        ran.append(left[0].slot)
        finish_all(db)
        unblock(db)
    assert ran == [at(10), at(11), at(12), at(13)]


def test_run_that_ends_during_a_tick_does_not_block_the_next(db: Db) -> None:
    add(db, overlap="queue")
    tick_at(db, at(10))
    epoch, scheduler = db.node(), db.session()
    job = db.claim_one(epoch)
    db.now = at(11)
    scheduler.begin()
    assert scheduler.row("tick").fired == 1
    db.settle(epoch, End(job))
    scheduler.commit()
    unblock(db)
    assert [job.wait for job in jobs(db)] == [None]


def test_cancel_previous_cancels_a_waiting_job(db: Db) -> None:
    add(db, overlap="cancel_previous")
    tick_at(db, at(10))
    (first,) = jobs(db)
    tick_at(db, at(11))
    db.expect(first.id, state="canceled", error={"kind": "canceled", "message": "the next slot is due"})
    unblock(db)
    assert [(job.slot, job.wait) for job in jobs(db)] == [(at(11), None)]


def test_cancel_previous_stops_a_running_job_and_waits_for_it(db: Db) -> None:
    add(db, overlap="cancel_previous")
    tick_at(db, at(10))
    epoch = db.node()
    first = db.claim_one(epoch)
    tick_at(db, at(11))
    unblock(db)
    found = [(job.slot, job.wait, job.canceling) for job in jobs(db)]
    assert found == [(at(10), None, True), (at(11), "blocked", False)]
    db.settle(epoch, End(first, "canceled"))
    unblock(db)
    assert [(job.slot, job.wait) for job in jobs(db)] == [(at(11), None)]


def test_cancel_previous_does_not_wait_for_locks(db: Db) -> None:
    add(db, overlap="cancel_previous")
    tick_at(db, at(10))
    (first,) = jobs(db)
    other, epoch = db.session(), db.node()
    job = db.claim_one(epoch)
    other.begin()
    other.call("complete", id=job.id, fence=job.fence)
    assert tick_at(db, at(11)).fired == 1
    other.commit()
    db.expect(first.id, state="succeeded")


def test_cancel_previous_stops_a_job_that_is_being_claimed(own_db: Db) -> None:
    db = own_db  # it changes a function
    add(db, overlap="cancel_previous")
    tick_at(db, at(10))
    db.execute("ALTER FUNCTION watchbill._lock_jobs_briefly SET lock_timeout = '60s'")
    epoch, claimer, scheduler = db.node(), db.session(), db.session()
    claimer.begin()
    (first,) = claimer.claim(epoch)
    db.now = at(11)
    ticking = scheduler.start("tick").blocked()
    claimer.commit()
    assert [row.fired for row in ticking.rows()] == [1]
    db.expect(first.id, state="running", canceling=True)


# -- several at once


def test_concurrent_ticks_share_due_slots(db: Db) -> None:
    for n in range(6):
        add(db, str(n))
    one, two = db.session(), db.session()
    db.now = at(10)
    one.begin()
    assert one.row("tick", max=4).fired == 4
    assert two.row("tick").fired == 2
    one.commit()
    assert len(jobs(db)) == 6


def test_tick_of_a_scheduler_that_died_has_no_effect(db: Db) -> None:
    add(db)
    db.now = at(10)
    dying = db.session(db.url)
    dying.begin()
    assert dying.row("tick").fired == 1
    dying.connection.close()
    until(lambda: db.row("tick").fired == 1)  # when the server has noticed
    assert slots(db) == [(at(10), None, 1)]


def test_update_waits_for_a_running_tick(db: Db) -> None:
    add(db)
    editor = db.session()
    db.now = at(10)
    db.begin()
    db.row("tick")
    edit = editor.start("update_schedule", name="s", changes={"pattern": "30 * * * *"}).blocked()
    db.commit()
    assert edit.value()
    assert slots(db) == [(at(10), None, 1)]
    assert db.row("tick").next_at == at(10, 30)


def test_update_after_a_tick_counts_its_runs(db: Db) -> None:
    add(db, max_runs=1)
    editor = db.session()
    db.now = at(10)
    db.begin()
    db.row("tick")
    edit = editor.start("update_schedule", name="s", changes={"pattern": "30 * * * *"}).blocked()
    db.commit()
    assert edit.value()
    assert db.row("tick").next_at is None


def test_tick_skips_a_schedule_that_is_being_updated(db: Db) -> None:
    add(db)
    editor = db.session()
    db.now = at(10) + timedelta(seconds=1)
    editor.begin()
    editor.call("update_schedule", name="s", changes={"pattern": "30 * * * *"})
    assert db.row("tick").fired == 0
    editor.rollback()
    assert db.row("tick").fired == 1


def test_update_records_a_due_slot_as_missed(db: Db) -> None:
    add(db)
    db.now = at(10) + timedelta(seconds=1)
    db.call("update_schedule", name="s", changes={"pattern": "30 * * * *"})
    assert db.row("tick").fired == 0
    (row,) = db.rows("slots")
    assert (row.slot, row.outcome, row.reason) == (
        at(10),
        "missed",
        "the schedule was changed before this slot had run",
    )


@pytest.mark.parametrize("change", [{"pattern": "30 * * * *"}, {"enabled": False}, {"pattern": None, "every": "1 day"}])
def test_update_records_every_due_slot_as_missed(db: Db, change: dict[str, Any]) -> None:
    add(db, deadline="1 hour")
    db.now = at(12)
    db.call("update_schedule", name="s", changes=change)
    (row,) = db.rows("slots")
    assert (row.slot, row.until, row.count, row.due_by) == (at(10), at(12), 3, at(13))
    assert db.rows("timers")[0].last_slot == at(12)


def test_an_edit_keeps_the_pattern_id_when_a_twin_exists(db: Db) -> None:
    """Two writers who use a new pattern at the same time do not wait for each other."""
    one, two = db.session(), db.session()
    one.begin()
    add(one, "a", pattern="0 10-10 * * *")
    add(two, "b", pattern="0 10-10 * * *")
    one.commit()
    assert len({rule.pattern_id for rule in db.rows("schedules")}) == 2
    db.now = at(10)
    for name in "ab":
        db.call("update_schedule", name=name, changes={"description": "d"})
    assert db.row("tick").fired == 2


def test_update_of_other_fields_keeps_the_timer(db: Db) -> None:
    add(db)
    db.now = at(10) + timedelta(seconds=1)
    db.call("update_schedule", name="s", changes={"payload": {"new": 1}, "description": "d"})
    assert db.row("tick").fired == 1
    assert jobs(db)[0].payload == {"new": 1}


def test_slots_during_a_disable_are_not_caught_up(db: Db) -> None:
    add(db, missed="catch_up")
    db.call("disable_schedule", name="s")
    assert tick_at(db, at(12, 30))[:4] == (0, 0, 0, None)
    db.call("enable_schedule", name="s")
    assert db.row("tick")[:4] == (0, 0, 0, at(13))


def test_tick_makes_no_second_job_for_a_slot(db: Db) -> None:
    add(db)
    tick_at(db, at(10))
    finish_all(db)
    db.change("UPDATE {schema}.timers SET next_run = %s, last_slot = NULL", at(10))
    assert db.row("tick")[:4] == (0, 0, 0, at(11))
    assert slots(db) == [(at(10), "succeeded", 1)]


def test_tick_and_settle_read_few_rows(own_db: Db) -> None:
    """In a new database: indexes of a shared one have dead entries of other tests."""
    db = own_db
    db.change(
        """
        INSERT INTO {schema}.schedules (name, pattern, type, created_at)
        SELECT 's' || n, n %% 60 || ' 3 * * *', 'task', %s FROM generate_series(1, 3000) n""",
        T0,
    )
    for hour in range(10, 13):
        add(db, str(hour))
    db.execute("ANALYZE watchbill.schedules, watchbill.timers")
    tick_at(db, at(10))
    finish_all(db)
    db.now = at(11)
    done = work(db, "tick")
    assert not done.scanned.keys() & {"timers", "schedules", "slots", "jobs", "slots_default"}, done.scanned
    assert sum(done.entries.values()) < 100, done.entries
    db.call("tick")
    epoch = db.node()
    held = db.claim(epoch)
    done = work(db, "settle", epoch=epoch, ids=[row.id for row in held], fences=[row.fence for row in held])
    assert not done.scanned.keys() & {"slots", "slots_default"}, done.scanned
    assert sum(done.entries.values()) < 100, done.entries


# -- the dead-man's switch


def overdue(db: Db) -> list[datetime]:
    return [row.slot for row in db.rows("overdue")]


def test_overdue_slot_emits_one_event(db: Db) -> None:
    add(db, deadline=timedelta(minutes=10))
    assert tick_at(db, at(10)).next_at == at(10, 10)
    assert tick_at(db, at(10, 9)).events == []
    assert tick_at(db, at(10, 10)).events == [
        {"event": "schedule_overdue", "schedule": "s", "tenant": "default", "slot": "2031-03-14T10:00:00+00:00",
         "due_by": "2031-03-14T10:10:00+00:00"}
    ]  # fmt: skip
    assert tick_at(db, at(10, 11)).events == []
    assert overdue(db) == [at(10)]
    assert db.row("schedule_by_name", name="s").overdue == at(10, 10)
    finish_all(db)
    assert overdue(db) == []


def test_deadline_of_a_day_is_24_hours_in_any_session_zone(db: Db) -> None:
    session = db.session(db.url)
    session.configure(timezone="America/New_York")
    add(db, pattern="0 12 8 3 *", deadline=timedelta(days=1), missed="once", grace=timedelta(days=1))
    db.now = at(12, 0).replace(year=2032, month=3, day=13)  # the clocks go forward in between
    db.change("UPDATE {schema}.timers SET next_run = %s", db.now)
    session.row("tick")
    (row,) = db.rows("slots")
    assert row.due_by - row.slot == timedelta(hours=24)
    assert jobs(db)[0].meta["slot"] == "2032-03-13T12:00:00+00:00"


def test_removed_schedule_emits_no_overdue_event(db: Db) -> None:
    add(db, deadline="10 minutes")
    add(db, "t", deadline="10 minutes")
    tick_at(db, at(10))
    db.call("remove_schedule", name="s")
    assert [event["schedule"] for event in tick_at(db, at(10, 10)).events] == ["t"]
    assert tick_at(db, at(10, 11)).events == []


def test_slot_that_ended_in_time_emits_no_overdue_event(db: Db) -> None:
    add(db, deadline=timedelta(minutes=10))
    tick_at(db, at(10))
    finish_all(db)
    assert tick_at(db, at(10, 30)).events == []


@pytest.mark.parametrize("missed", ["skip", "once"])
def test_late_tick_emits_overdue_events_at_once(db: Db, missed: str) -> None:
    add(db, deadline=timedelta(minutes=10), missed=missed)
    told = tick_at(db, at(13, 30)).events
    assert [event["event"] for event in told] == ["schedule_overdue"] * (2 if missed == "once" else 1)
    assert overdue(db)


def test_end_of_a_later_slot_clears_the_overdue_mark(db: Db) -> None:
    add(db, deadline=timedelta(minutes=10), missed="skip")
    tick_at(db, at(11, 30))
    assert overdue(db) == [at(10)]
    tick_at(db, at(12))
    finish_all(db)
    assert overdue(db) == []

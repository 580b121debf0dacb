"""advance() and schedules: every slot on the way fires at its own time, and none that the test did not ask for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from watchbill import App, Permanent, ScheduleFilter, chain, current_job, group
from watchbill.testing import NeverEnding, Watchbill, timetable

app = App(name="tests of schedules")
NOON = datetime(2060, 6, 1, 12, tzinfo=UTC)


@app.schedule("0 3 * * *", tz="Europe/Paris", name="nightly", missed="skip")
@app.task(type="night")
def night() -> str:
    return str(current_job().slot)


@app.task(type="tick")
async def tick() -> None: ...


@pytest.fixture(autouse=True)
def at_noon(watchbill: Watchbill) -> None:
    watchbill.advance(to=NOON)


def slots(watchbill: Watchbill, name: str) -> list[tuple[str, str | None]]:
    """(local time, outcome) of all of them, the earliest first."""
    found = app.schedules.history(name)
    return [(f"{slot.slot:%d %H:%M}", slot.outcome) for slot in reversed(found)]


def test_declare_writes_the_schedules_of_the_app(watchbill: Watchbill) -> None:
    watchbill.advance(days=1)
    assert (app.schedules.list(), watchbill.jobs()) == ([], [])
    assert watchbill.declare(app) == ["nightly"]
    assert (app.schedules.get("nightly").owner, app.schedules.get("nightly").status) == ("tests of schedules", "ok")


@pytest.mark.parametrize("n", [1, 2])
def test_every_test_begins_without_schedules(watchbill: Watchbill, n: int) -> None:
    assert app.schedules.list(ScheduleFilter()) == []
    watchbill.declare(app)


def test_advance_fires_each_passed_slot_at_its_own_time(watchbill: Watchbill) -> None:
    """Even one that is skipped when nobody was there: time passes, and a scheduler runs all the while."""
    watchbill.declare(app)
    watchbill.advance(hours=12)
    watchbill.assert_not_enqueued(night)
    watchbill.advance(hours=12)
    job = watchbill.assert_enqueued(night)
    assert job.slot == datetime(2060, 6, 2, 1, tzinfo=UTC), "three o'clock in Paris"
    assert job.slot <= job.created_at < job.slot + timedelta(hours=1)
    [run] = watchbill.drain(raising=True)
    assert run.outcome == "succeeded"
    assert app.schedules.get("nightly").successes == 1


def test_advance_and_drain_run_a_nightly_schedule_each_day(watchbill: Watchbill) -> None:
    watchbill.declare(app)
    for _ in range(3):
        watchbill.advance(days=1)
        watchbill.drain(raising=True)
    assert slots(watchbill, "nightly") == [(f"{day:02} 01:00", "succeeded") for day in (2, 3, 4)]


def test_advance_runs_no_jobs_so_later_slots_are_skipped(watchbill: Watchbill) -> None:
    app.schedules.add("hourly", "@hourly", task=tick)
    app.schedules.add("all", "@hourly", task=tick, overlap="allow")
    watchbill.advance(hours=3)
    assert [outcome for _, outcome in slots(watchbill, "hourly")] == [None, "skipped", "skipped"]
    assert [outcome for _, outcome in slots(watchbill, "all")] == [None, None, None]
    assert len(watchbill.drain()) == 4


def test_advance_stops_at_the_given_time(watchbill: Watchbill) -> None:
    app.schedules.add("often", every=600, task=tick)
    shown = watchbill.advance(hours=2, minutes=5)
    assert abs(shown - (NOON + timedelta(hours=2, minutes=5))) < timedelta(minutes=2)
    assert len(app.schedules.history("often")) == 12


def test_jittered_job_waits_for_its_time(watchbill: Watchbill) -> None:
    app.schedules.add("late", "0 13 * * *", task=tick, jitter=3600)
    watchbill.advance(hours=1, seconds=1)
    watchbill.assert_enqueued(tick)
    watchbill.advance(hours=1)
    assert len(watchbill.drain()) == 1


def test_advance_emits_schedule_events(watchbill: Watchbill) -> None:
    told: list[tuple[str, Any]] = []
    listener = App()
    listener.on("schedule_fired")(lambda **what: told.append(("fired", what["slot"])))
    listener.on("schedule_overdue")(lambda **what: told.append(("overdue", what["slot"])))
    app.schedules.add("bell", "0 14 * * *", task=None)
    app.schedules.add("slow", "0 13 * * *", task=tick, deadline=1800)
    watchbill.advance(hours=3)
    assert told == [("overdue", NOON.replace(hour=13)), ("fired", NOON.replace(hour=14))]


def test_declare_runs_a_run_on_start_schedule_once(watchbill: Watchbill) -> None:
    other = App(name="starts")

    @other.schedule("@reboot")
    @other.task(type="at start")
    def at_start() -> None: ...

    watchbill.declare(other)
    assert [run.type for run in watchbill.drain(raising=True)] == ["at start"]
    watchbill.advance(days=3)
    assert watchbill.drain() == []


def test_a_command_runs_in_a_drain(watchbill: Watchbill) -> None:
    app.schedules.add("sum", "0 13 * * *", command="SELECT 40 + 2")
    watchbill.advance(hours=1, seconds=1)
    assert [run.type for run in watchbill.drain(raising=True)] == ["watchbill.sql"]
    [slot] = app.schedules.history("sum")
    assert slot.result["rows"] == [[42]]


def test_a_chain_runs_in_a_drain(watchbill: Watchbill) -> None:
    app.schedules.add("flow", "0 13 * * *", task=chain(tick.bind(), night.bind()))
    watchbill.advance(hours=1, seconds=1)
    ran = [run.type for run in watchbill.drain(raising=True)]
    assert ran == ["watchbill.flow", "tick", "night", "watchbill.flow_end"]
    assert slots(watchbill, "flow") == [("01 13:00", "succeeded")]


def test_slot_ends_with_the_outcome_of_its_chain(watchbill: Watchbill) -> None:
    other = App(name="chains")

    @other.task(type="fails")
    def fails() -> None:
        raise Permanent("no luck")

    flow = chain(tick.bind(), group(fails.bind(), night.bind()), tick.bind())
    other.schedules.add("flow", "@hourly", task=flow, deadline=600)
    other.schedules.add("saved", "@hourly", task=chain(fails.bind()).on_failure(tick.bind()))
    watchbill.advance(hours=1, seconds=1)
    with pytest.raises(NeverEnding):
        watchbill.drain(limit=2)  # what starts them has ended, what they started has not
    watchbill.advance(hours=1)
    assert [outcome for _, outcome in slots(watchbill, "flow")] == [None, "skipped"]
    assert other.schedules.get("flow").overdue is not None
    watchbill.drain()
    assert [outcome for _, outcome in slots(watchbill, "flow")] == ["failed", "skipped"]
    assert other.schedules.get("flow").last_error == "fails is dead: no luck"
    assert [outcome for _, outcome in slots(watchbill, "saved")] == ["failed", "skipped"]


def test_manually_started_chain_ends_its_slot(watchbill: Watchbill) -> None:
    app.schedules.add("flow", task=chain(tick.bind(), night.bind()))
    app.schedules.run_now("flow")
    watchbill.drain(raising=True)
    [slot] = app.schedules.history("flow")
    assert (slot.kind, slot.outcome) == ("hand", "succeeded")


def test_advance_over_too_many_slots_is_an_error(watchbill: Watchbill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timetable, "MAX_TICKS", 5)
    app.schedules.add("often", every=60, task=tick)
    with pytest.raises(timetable.TooManySlots, match=r"after 5 slots.*\n.*smaller steps"):
        watchbill.advance(hours=1)


def test_running_node_and_advance_fire_no_slot_twice(watchbill: Watchbill) -> None:
    app.schedules.add("daily", "0 3 * * *", task=tick, missed="catch_up", overlap="allow")
    with app.node():
        for _ in range(3):
            watchbill.advance(days=1)
    with psycopg.connect(watchbill.database_url) as connection:
        row = connection.execute(
            "SELECT count(*), count(DISTINCT slot) FROM watchbill.job WHERE type = 'tick'"
        ).fetchone()
    assert row == (3, 3)

"""advance() and schedules: every slot on the way fires at its own time, and none that the test did not ask for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from foliot import App, Permanent, ScheduleFilter, chain, current_job, group
from foliot.testing import Foliot, NeverEnding, timetable

app = App(name="tests of schedules")
NOON = datetime(2060, 6, 1, 12, tzinfo=UTC)


@app.schedule("0 3 * * *", tz="Europe/Paris", name="nightly", missed="skip")
@app.task(type="night")
def night() -> str:
    return str(current_job().slot)


@app.task(type="tick")
async def tick() -> None: ...


@pytest.fixture(autouse=True)
def at_noon(foliot: Foliot) -> None:
    foliot.advance(to=NOON)


def slots(foliot: Foliot, name: str) -> list[tuple[str, str | None]]:
    """(local time, outcome) of all of them, the earliest first."""
    found = app.schedules.history(name)
    return [(f"{slot.slot:%d %H:%M}", slot.outcome) for slot in reversed(found)]


def test_what_the_code_declares_is_written_when_a_test_asks_for_it(foliot: Foliot) -> None:
    foliot.advance(days=1)
    assert (app.schedules.list(), foliot.jobs()) == ([], [])
    assert foliot.declare(app) == ["nightly"]
    assert (app.schedules.get("nightly").owner, app.schedules.get("nightly").status) == ("tests of schedules", "ok")


@pytest.mark.parametrize("n", [1, 2])
def test_every_test_begins_without_schedules(foliot: Foliot, n: int) -> None:
    assert app.schedules.list(ScheduleFilter()) == []
    foliot.declare(app)


def test_a_slot_on_the_way_fires_at_its_own_time(foliot: Foliot) -> None:
    """Even one that is skipped when nobody was there: time passes, and a scheduler runs all the while."""
    foliot.declare(app)
    foliot.advance(hours=12)
    foliot.assert_not_enqueued(night)
    foliot.advance(hours=12)
    job = foliot.assert_enqueued(night)
    assert job.slot == datetime(2060, 6, 2, 1, tzinfo=UTC), "three o'clock in Paris"
    assert job.slot <= job.created_at < job.slot + timedelta(hours=1)
    [run] = foliot.drain(raising=True)
    assert run.outcome == "succeeded"
    assert app.schedules.get("nightly").successes == 1


def test_night_after_night(foliot: Foliot) -> None:
    foliot.declare(app)
    for _ in range(3):
        foliot.advance(days=1)
        foliot.drain(raising=True)
    assert slots(foliot, "nightly") == [(f"{day:02} 01:00", "succeeded") for day in (2, 3, 4)]


def test_nothing_runs_meanwhile_so_later_slots_meet_the_first(foliot: Foliot) -> None:
    app.schedules.add("hourly", "@hourly", task=tick)
    app.schedules.add("all", "@hourly", task=tick, overlap="allow")
    foliot.advance(hours=3)
    assert [outcome for _, outcome in slots(foliot, "hourly")] == [None, "skipped", "skipped"]
    assert [outcome for _, outcome in slots(foliot, "all")] == [None, None, None]
    assert len(foliot.drain()) == 4


def test_the_clock_stops_where_it_was_told_to(foliot: Foliot) -> None:
    app.schedules.add("often", every=600, task=tick)
    shown = foliot.advance(hours=2, minutes=5)
    assert abs(shown - (NOON + timedelta(hours=2, minutes=5))) < timedelta(minutes=2)
    assert len(app.schedules.history("often")) == 12


def test_jitter_and_delays_wait_for_their_time(foliot: Foliot) -> None:
    app.schedules.add("late", "0 13 * * *", task=tick, jitter=3600)
    foliot.advance(hours=1, seconds=1)
    foliot.assert_enqueued(tick)
    foliot.advance(hours=1)
    assert len(foliot.drain()) == 1


def test_events_are_told_to_the_app(foliot: Foliot) -> None:
    told: list[tuple[str, Any]] = []
    listener = App()
    listener.on("schedule_fired")(lambda **what: told.append(("fired", what["slot"])))
    listener.on("schedule_overdue")(lambda **what: told.append(("overdue", what["slot"])))
    app.schedules.add("bell", "0 14 * * *", task=None)
    app.schedules.add("slow", "0 13 * * *", task=tick, deadline=1800)
    foliot.advance(hours=3)
    assert told == [("overdue", NOON.replace(hour=13)), ("fired", NOON.replace(hour=14))]


def test_run_on_start_is_run_when_it_is_declared(foliot: Foliot) -> None:
    other = App(name="starts")

    @other.schedule("@reboot")
    @other.task(type="at start")
    def at_start() -> None: ...

    foliot.declare(other)
    assert [run.type for run in foliot.drain(raising=True)] == ["at start"]
    foliot.advance(days=3)
    assert foliot.drain() == []


def test_a_command_runs_in_a_drain(foliot: Foliot) -> None:
    app.schedules.add("sum", "0 13 * * *", command="SELECT 40 + 2")
    foliot.advance(hours=1, seconds=1)
    assert [run.type for run in foliot.drain(raising=True)] == ["foliot.sql"]
    [slot] = app.schedules.history("sum")
    assert slot.result["rows"] == [[42]]


def test_a_chain_runs_in_a_drain(foliot: Foliot) -> None:
    app.schedules.add("flow", "0 13 * * *", task=chain(tick.bind(), night.bind()))
    foliot.advance(hours=1, seconds=1)
    ran = [run.type for run in foliot.drain(raising=True)]
    assert ran == ["foliot.flow", "tick", "night", "foliot.flow_end"]
    assert slots(foliot, "flow") == [("01 13:00", "succeeded")]


def test_a_slot_ends_with_its_chain_and_as_it_did(foliot: Foliot) -> None:
    other = App(name="chains")

    @other.task(type="fails")
    def fails() -> None:
        raise Permanent("no luck")

    flow = chain(tick.bind(), group(fails.bind(), night.bind()), tick.bind())
    other.schedules.add("flow", "@hourly", task=flow, deadline=600)
    other.schedules.add("saved", "@hourly", task=chain(fails.bind()).on_failure(tick.bind()))
    foliot.advance(hours=1, seconds=1)
    with pytest.raises(NeverEnding):
        foliot.drain(limit=2)  # what starts them has ended, what they started has not
    foliot.advance(hours=1)
    assert [outcome for _, outcome in slots(foliot, "flow")] == [None, "skipped"]
    assert other.schedules.get("flow").overdue is not None
    foliot.drain()
    assert [outcome for _, outcome in slots(foliot, "flow")] == ["failed", "skipped"]
    assert other.schedules.get("flow").last_error == "fails is dead: no luck"
    assert [outcome for _, outcome in slots(foliot, "saved")] == ["failed", "skipped"]


def test_a_chain_that_was_run_by_hand_ends_too(foliot: Foliot) -> None:
    app.schedules.add("flow", task=chain(tick.bind(), night.bind()))
    app.schedules.run_now("flow")
    foliot.drain(raising=True)
    [slot] = app.schedules.history("flow")
    assert (slot.kind, slot.outcome) == ("hand", "succeeded")


def test_too_many_slots_are_an_error_that_says_so(foliot: Foliot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timetable, "MOST", 5)
    app.schedules.add("often", every=60, task=tick)
    with pytest.raises(timetable.TooManySlots, match=r"after 5 slots.*\n.*smaller steps"):
        foliot.advance(hours=1)


def test_a_node_that_runs_meanwhile_fires_none_twice(foliot: Foliot) -> None:
    with app.node():
        for _ in range(3):
            foliot.advance(days=1)
    with psycopg.connect(foliot.database_url) as connection:
        row = connection.execute(
            "SELECT count(*), count(DISTINCT slot) FROM foliot.job WHERE type = 'night'"
        ).fetchone()
    assert row is not None
    assert row[0] == row[1]

"""app.schedules in both colours: what is written is what is read, and what cannot be is refused and changes nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.app.conftest import Ask
from watchbill import App, Retry
from watchbill.app.payload import InvalidPayload
from watchbill.app.schedule_definition import InvalidSchedule
from watchbill.client.schedule_operations import NoSuchSchedule, UnknownTask
from watchbill.model.schedule import ScheduleFilter
from watchbill.store.refusals import AlreadyRunning, Invalid, ScheduleExists

NOON = datetime(2040, 1, 1, 12, tzinfo=UTC)
EVERYTHING: dict[str, Any] = {
    "tz": "Europe/Paris",
    "dst": "skip",
    "arguments": {"region": "us"},
    "queue": "night",
    "priority": 7,
    "retry": Retry(max_attempts=2, backoff="fixed", base=3),
    "timeout": timedelta(minutes=1),
    "missed": "catch_up",
    "catch_up": 5,
    "overlap": "queue",
    "grace": 3600,
    "jitter": 10,
    "start": NOON,
    "end": NOON + timedelta(days=365),
    "max_runs": 3,
    "deadline": timedelta(hours=2),
    "run_on_start": True,
    "enabled": False,
    "description": "the numbers of the day",
    "category": "billing",
    "tags": ["eu", "money"],
    "context": {"colour": "red"},
    "created_by": "ada",
}


def test_get_returns_every_option_given_to_add(ask: Ask, app: App) -> None:
    written = ask("add", "nightly", "0 3 * * *", task=app.tasks["report"], **EVERYTHING)
    assert written == ask("get", "nightly")
    for name, value in EVERYTHING.items():
        if name not in ("arguments", "retry"):
            expected = timedelta(seconds=value) if name in ("grace", "jitter") else value
            assert getattr(written, name) == expected, name
    assert (written.type, written.payload, written.pattern) == ("report", {"region": "us"}, "0 3 * * *")
    assert (written.max_attempts, written.retry["base"]) == (2, 3)
    assert (written.status, written.next_run, written.owner, written.runs) == ("disabled", None, None, 0)


def test_add_with_few_options_uses_task_and_schedule_defaults(ask: Ask, app: App) -> None:
    found = ask("add", "nightly", "0 3 * * *", task=app.tasks["report"].bind("asia"))
    assert (found.payload, found.queue, found.max_attempts) == ({"region": "asia"}, "reports", 3)
    assert (found.tz, found.missed, found.overlap, found.timeout) == ("UTC", "once", "skip", timedelta(minutes=5))
    assert found.next_run is not None
    assert (found.next_run.hour, found.next_run.minute) == (3, 0)


def test_add_accepts_every_kind_of_schedule(ask: Ask) -> None:
    assert ask("add", "often", every=timedelta(minutes=5), task="hello").every == timedelta(minutes=5)
    assert ask("add", "once", at=NOON, task="hello").next_run == NOON
    assert ask("add", "by hand", task="hello").status == "on_demand"
    command = ask("add", "tidy", "@daily", command="DELETE FROM carts WHERE false", timeout=60)
    assert (command.command, command.type) == ("DELETE FROM carts WHERE false", None)
    event = ask("add", "bell", "@daily", task=None)
    assert (event.type, event.command) == (None, None)


def test_update_changes_given_options_and_none_restores_defaults(ask: Ask, app: App) -> None:
    ask("add", "nightly", "0 3 * * *", task=app.tasks["report"], **EVERYTHING)
    changed = ask("update", "nightly", pattern="0 4 * * *", tz="Asia/Tokyo", end=None, priority=None, enabled=True)
    assert (changed.pattern, changed.tz, changed.end, changed.priority) == ("0 4 * * *", "Asia/Tokyo", None, 0)
    assert (changed.category, changed.queue, changed.payload) == ("billing", "night", {"region": "us"})
    assert ask("update", "nightly", every=60).pattern is None


def test_update_validates_arguments_against_the_stored_task(ask: Ask) -> None:
    ask("add", "nightly", "0 3 * * *", task="report", queue="night")
    assert ask("update", "nightly", arguments={"region": "us"}).payload == {"region": "us"}
    assert ask("get", "nightly").queue == "night", "other arguments are no reason to change the queue"
    with pytest.raises(InvalidPayload, match="regoin"):
        ask("update", "nightly", arguments={"regoin": "us"})
    assert ask("get", "nightly").payload == {"region": "us"}


def test_update_without_options_changes_nothing(ask: Ask) -> None:
    before = ask("add", "nightly", "0 3 * * *", task="hello")
    assert ask("update", "nightly") == before


def test_disable_and_enable_change_the_status(ask: Ask) -> None:
    ask("add", "nightly", "0 3 * * *", task="hello")
    ask("disable", "nightly")
    assert (ask("get", "nightly").status, ask("get", "nightly").next_run) == ("disabled", None)
    reason = ask("why", "nightly")[0]
    assert (reason.fires, "it is disabled" in reason.reason) == (False, True)
    ask("enable", "nightly")
    assert ask("get", "nightly").next_run is not None
    reason = ask("why", "nightly")[0]
    assert (reason.fires, reason.reason) == (False, "no node is alive that could fire it")


def test_why_says_when_it_will_fire(app: App) -> None:
    app.schedules.add("nightly", "0 3 * * *", task="hello")
    with app.node():
        [reason] = app.schedules.why("nightly")
    assert (reason.fires, reason.next_run) == (True, app.schedules.get("nightly").next_run)


def test_preview_is_in_the_schedules_zone(ask: Ask) -> None:
    ask("add", "nightly", "30 3 * * *", tz="Asia/Kolkata", task="hello", max_runs=2)
    slots = ask("preview", "nightly", 5)
    assert [(slot.hour, slot.minute, slot.utcoffset()) for slot in slots] == [(3, 30, timedelta(hours=5.5))] * 2


def test_metrics_without_runs_are_unknown(ask: Ask, app: App) -> None:
    ask("add", "nightly", "0 3 * * *", task=app.tasks["report"])
    found = ask("metrics", "nightly", NOON)
    assert (found.runs, found.success_rate, found.p95, found.health) == (0, None, None, "unknown")
    with pytest.raises(NoSuchSchedule, match="nightly"):
        ask("metrics", "nigthly")


def test_run_now_can_refuse_to_overlap(ask: Ask, app: App) -> None:
    ask("add", "nightly", "0 3 * * *", task=app.tasks["report"])
    first = ask("run_now", "nightly", overlap="skip")
    with pytest.raises(AlreadyRunning, match=f"chedule 'nightly' is running: job {first.id} has not ended"):
        ask("run_now", "nightly", overlap="skip")
    second = ask("run_now", "nightly", overlap="queue")
    assert app.jobs.get(second.id).state == "blocked"


def test_run_now_makes_a_job_without_a_slot(ask: Ask, app: App) -> None:
    ask("add", "nightly", "0 3 * * *", task="report", enabled=False, priority=5)
    job = ask("run_now", "nightly")
    other = ask("run_now", "nightly", arguments={"region": "us"})
    found, changed = app.jobs.get(job.id), app.jobs.get(other.id)
    assert (found.type, found.payload, found.priority, found.queue) == ("report", {}, 5, "reports")
    assert changed.payload == {"region": "us"}
    assert (found.schedule, found.slot) == ("nightly", None)
    assert {slot.kind for slot in ask("history", "nightly")} == {"hand"}
    with pytest.raises(InvalidPayload, match="regoin"):
        ask("run_now", "nightly", arguments={"regoin": "us"})


def test_an_event_cannot_be_run_by_hand(ask: Ask) -> None:
    ask("add", "bell", "@daily", task=None)
    with pytest.raises(Invalid, match="'bell' runs nothing: its slots are only events"):
        ask("run_now", "bell")
    assert ask("history", "bell") == []


def test_a_job_that_was_run_by_hand_has_a_typed_result(app: App) -> None:
    app.schedules.add("nightly", task="report", arguments={"region": "us"})
    with app.node():
        assert app.schedules.run_now("nightly").result(timeout=30) == "report of us"
    [slot] = app.schedules.history("nightly")
    assert (slot.kind, slot.outcome) == ("hand", "succeeded")
    assert app.schedules.get("nightly").successes == 1


def test_list_is_sorted_by_name_filtered_and_paged(ask: Ask) -> None:
    for n in range(5):
        ask("add", f"s{n}", "@daily", task="hello", category="even" if n % 2 == 0 else "odd", tags=[f"t{n}"])
    assert [found.name for found in ask("list", ScheduleFilter(limit=2, after="s1"))] == ["s2", "s3"]
    assert [found.name for found in ask("list", ScheduleFilter(category="odd"))] == ["s1", "s3"]
    assert [found.name for found in ask("list", ScheduleFilter(tag="t4", status="ok"))] == ["s4"]
    assert len(ask("list")) == 5


def test_schedule_names_are_separate_per_tenant(ask: Ask) -> None:
    ask("add", "nightly", "@daily", task="hello")
    ask("add", "nightly", "@hourly", task="hello", tenant="acme")
    ask("remove", "nightly", tenant="acme")
    assert [(found.tenant, found.pattern) for found in ask("list")] == [("default", "@daily")]
    with pytest.raises(NoSuchSchedule, match="no schedule 'nightly' of tenant 'acme'"):
        ask("get", "nightly", tenant="acme")


@pytest.mark.parametrize(
    ("call", "options"),
    [
        ("get", {}),
        ("update", {"tz": "UTC"}),
        ("remove", {}),
        ("enable", {}),
        ("disable", {}),
        ("run_now", {}),
        ("history", {}),
        ("preview", {}),
        ("why", {}),
    ],
)
def test_unknown_schedule_error_suggests_a_similar_name(app: App, call: str, options: Any) -> None:
    app.schedules.add("nightly", "@daily", task="hello")
    with pytest.raises(NoSuchSchedule, match=r"no schedule 'nihgtly'.*\n.*'nightly'"):
        getattr(app.schedules, call)("nihgtly", **options)


def test_add_refuses_a_name_that_exists(ask: Ask) -> None:
    ask("add", "nightly", "@daily", task="hello")
    with pytest.raises(ScheduleExists, match=r"(?s)chedule 'nightly' exists already.*Update it"):
        ask("add", "nightly", "@hourly", task="hello")
    assert ask("get", "nightly").pattern == "@daily"


def test_refused_add_or_update_changes_nothing(ask: Ask) -> None:
    ask("add", "tidy", "@daily", command="SELECT 1")
    for changes, what in [
        ({"command": "SELEC 1"}, "does not parse"),
        ({"role": "nobody-there"}, "role 'nobody-there' does not exist"),
        ({"tz": "Mars/Olympus"}, "neither an IANA zone"),
    ]:
        with pytest.raises((Invalid, InvalidSchedule), match=what):
            ask("update", "tidy", **changes)
    assert (ask("get", "tidy").command, ask("get", "tidy").tz) == ("SELECT 1", "UTC")
    with pytest.raises(Invalid, match="does not parse"):
        ask("add", "other", "@daily", command="DELETE FORM carts")
    assert [found.name for found in ask("list")] == ["tidy"]


def test_add_refuses_a_task_that_no_live_node_handles(ask: Ask, schema_database: str) -> None:
    with pytest.raises(UnknownTask, match=r"No live node handles a task of type 'mail\.send'"):
        ask("add", "mails", "@daily", task="mail.send")
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("SELECT watchbill.register('mailer', types => '{\"mail.send\": 1}')")
    assert ask("add", "mails", "@daily", task="mail.send", arguments={"to": "ada"}).payload == {"to": "ada"}
    with pytest.raises(UnknownTask, match=r"Did you mean 'mail\.send'"):
        ask("update", "mails", task="mail.sned")


def test_a_blocking_call_on_a_loop_is_refused(app: App) -> None:
    import asyncio

    async def call() -> None:
        app.schedules.list()

    with pytest.raises(RuntimeError, match="would block the running event loop"):
        asyncio.run(call())

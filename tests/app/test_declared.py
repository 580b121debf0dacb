"""Schedules that the code declares: a node writes them, once per change of the code, and nobody's work is undone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.waiting import until
from watchbill import App, JobFailed, Tasks, chain, current_job, group
from watchbill.client import schedule_operations
from watchbill.scheduler import declarer

Shop = Any  # a function: the App as this version of the code makes it


@pytest.fixture
def shop(schema_database: str) -> Iterator[Shop]:
    apps: list[App] = []

    def make(pattern: str | None = "0 3 * * *", *, name: str = "shop", **options: Any) -> App:
        app = App(schema_database, name=name)

        @app.task(type="report")
        def report() -> None: ...

        if pattern is not None:
            app.declare_schedule("nightly", pattern, task=report, **options)
        apps.append(app)
        return app

    yield make
    for app in apps:
        app.close()


def test_a_node_writes_what_the_code_declares(shop: Shop) -> None:
    app = shop(tz="Europe/Paris")
    library = Tasks()

    @library.schedule(every=60)
    @library.task(type="library.clean")
    def clean() -> None: ...

    app.include(library)
    with app.node():
        nightly, cleaning = app.schedules.get("nightly"), app.schedules.get("library.clean")
    assert (nightly.pattern, nightly.tz, nightly.owner) == ("0 3 * * *", "Europe/Paris", "shop")
    assert (nightly.hash, nightly.differs_from_code, nightly.orphaned) == (next(iter(app.declared)).hash, False, False)
    assert cleaning.every == timedelta(minutes=1)


def test_unchanged_declarations_are_not_written_again(shop: Shop) -> None:
    with (app := shop()).node():
        before = app.schedules.get("nightly")
    with shop().node(), shop().node():
        assert app.schedules.get("nightly") == before


def test_operator_change_lasts_until_the_code_changes(shop: Shop) -> None:
    with (app := shop()).node():
        app.schedules.update("nightly", pattern="0 5 * * *")
    with shop().node():
        changed = app.schedules.get("nightly")
        assert (changed.pattern, changed.differs_from_code) == ("0 5 * * *", True)
        assert app.client.run(schedule_operations.differences("nightly", "default")) == [
            ("pattern", "0 3 * * *", "0 5 * * *")
        ]
        assert any("changed" in reason.reason for reason in app.schedules.why("nightly"))
    with shop("0 4 * * *").node():
        changed = app.schedules.get("nightly")
        assert (changed.pattern, changed.differs_from_code) == ("0 4 * * *", False)


def test_disabled_schedule_stays_disabled_for_the_next_node(shop: Shop) -> None:
    with (app := shop()).node():
        app.schedules.disable("nightly")
    with shop().node():
        assert app.schedules.get("nightly").status == "disabled"


def test_in_a_rolling_deploy_the_newer_declaration_wins(shop: Shop) -> None:
    look = shop().schedules
    with ExitStack() as cluster:
        cluster.enter_context(shop("0 3 * * *").node())
        with shop("0 4 * * *").node():
            assert look.get("nightly").pattern == "0 4 * * *"
            with shop("0 3 * * *").node():  # a process of the old code that was started again meanwhile
                assert look.get("nightly").pattern == "0 4 * * *"
            assert not look.get("nightly").orphaned
        with shop("0 3 * * *").node():  # the new version was taken back: nobody declares it any more
            assert look.get("nightly").pattern == "0 3 * * *"


def test_undeclared_schedule_is_orphaned_until_declared_again(shop: Shop) -> None:
    with (app := shop()).node(), shop(None).node():
        assert app.schedules.get("nightly").status == "ok", "one node still declares it"
    with shop(None).node():
        orphan = app.schedules.get("nightly")
        assert (orphan.status, orphan.orphaned, orphan.next_run) == ("orphaned", True, None)
        reason = app.schedules.why("nightly")[0]
        assert (reason.fires, "none of them declares it" in reason.reason) == (False, True)
        with shop(None, name="another app").node(), shop().node():
            assert app.schedules.get("nightly").status == "ok"
    assert app.schedules.get("nightly").status == "ok", "no node at all is no reason"


def test_declaration_does_not_replace_a_schedule_of_another_owner(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    app = shop()
    app.schedules.add("nightly", "@daily", task="report")
    with app.node(), shop("0 5 * * *", name="another app").node():
        assert (app.schedules.get("nightly").pattern, app.schedules.get("nightly").owner) == ("@daily", None)
    assert "Schedule nightly belongs to another owner" in caplog.text


def test_removed_schedule_returns_with_the_next_node(shop: Shop) -> None:
    with (app := shop()).node():
        app.schedules.remove("nightly")
        assert app.schedules.list() == []
    with shop().node():
        assert [found.name for found in app.schedules.list()] == ["nightly"]


def test_a_handler_knows_its_schedule_and_slot(schema_database: str) -> None:
    app = App(schema_database)
    seen: list[tuple[str | None, datetime | None, Any]] = []

    @app.task(type="look")
    def look() -> None:
        job = current_job()
        seen.append((job.schedule, job.slot, job.meta.get("context")))

    slot = datetime.now(UTC)
    with app.node():
        app.schedules.add("once", at=slot, task=look, context={"colour": "red"})
        until(lambda: len(seen) == 1)
        app.schedules.run_now("once").result(timeout=30)
        look.enqueue().result(timeout=30)
        until(lambda: app.schedules.get("once").successes == 2)
        jobs = app.jobs.list()
    app.close()
    red = {"colour": "red"}
    assert seen == [("once", slot, red), ("once", None, red), (None, None, None)]
    assert {(job.schedule, job.slot) for job in jobs} == {("once", slot), ("once", None), (None, None)}


def test_schedule_without_a_task_emits_schedule_fired(schema_database: str) -> None:
    app = App(schema_database)
    told: list[dict[str, Any]] = []
    slot = datetime(2026, 1, 1, tzinfo=UTC)  # a long time ago, and seen at once all the same
    app.on("schedule_fired")(lambda **what: told.append(what))
    with app.node():
        app.schedules.add("bell", at=slot, task=None)
        until(lambda: told)
    app.close()
    assert told == [{"schedule": "bell", "tenant": "default", "slot": slot}]


def test_worker_runs_a_scheduled_sql_command(schema_database: str) -> None:
    app = App(schema_database)
    with app.node():
        app.schedules.add("sum", command="SELECT 40 + 2", timeout=60)
        job = app.schedules.run_now("sum")
        assert job.result(timeout=30)["rows"] == [[42]]
        assert job.get().type == "watchbill.sql"
    app.close()


def test_result_of_a_scheduled_chain_is_that_of_its_last_step(schema_database: str) -> None:
    app = App(schema_database)

    @app.task(type="half")
    def half(n: int) -> int:
        return n // 2

    @app.task(type="day")
    def day() -> date:
        return date(2031, 3, 14)

    @app.task(type="broken", retry=1)
    def broken() -> None:
        raise ValueError("no paper")

    with app.node():
        app.schedules.add("chain", task=chain(half.bind(8), day.bind()))
        app.schedules.add("group", task=group(half.bind(4), half.bind(6)))
        app.schedules.add("broken", task=chain(half.bind(8), broken.bind(), day.bind()))
        assert app.schedules.run_now("chain").result(timeout=30) == date(2031, 3, 14)
        assert app.schedules.run_now("group").result(timeout=30) == [2, 3]
        with pytest.raises(JobFailed, match="broken is dead: no paper"):
            app.schedules.run_now("broken").result(timeout=30)
        (slot,) = app.schedules.history("group")
        assert (slot.outcome, slot.result) == ("succeeded", [2, 3])
    app.close()


def test_a_schedule_starts_a_chain_once_per_slot(schema_database: str) -> None:
    app = App(schema_database, name="shop")
    ran: list[tuple[str, str | None, Any]] = []

    @app.task(type="count")
    def count(n: int) -> int:
        ran.append((f"count {n}", current_job().schedule, current_job().slot))
        return n

    @app.task(type="total")
    def total() -> int:
        ran.append(("total", current_job().schedule, current_job().slot))
        return 3

    slot = datetime.now(UTC)
    flow = chain(group(count.bind(1), count.bind(2)), total.bind())
    app.declare_schedule("books", at=slot, task=flow, tenant="acme")
    with app.node(), app.node():
        until(lambda: len(ran) == 3)
        until(lambda: app.schedules.get("books", tenant="acme").successes == 1)
        jobs = app.jobs.list()
    app.close()
    assert [name for name, *_ in ran][-1] == "total"
    assert {(schedule, at) for _, schedule, at in ran} == {("books", slot)}
    assert sorted(job.type for job in jobs) == ["count", "count", "total", "watchbill.flow", "watchbill.flow_end"]
    assert {job.tenant for job in jobs} == {"acme"}


def test_next_slot_cancels_the_whole_previous_chain(schema_database: str) -> None:
    app, ran = App(schema_database, drain_timeout=0, lease=1.5), list[str]()  # a heartbeat brings the request to stop

    @app.task(type="endless")
    async def endless() -> None:
        ran.append(f"endless {current_job().slot}")
        await asyncio.Event().wait()

    @app.task(type="after")
    def after() -> None:
        ran.append("after")

    with app.node():
        app.schedules.add("books", task=chain(endless.bind(), after.bind()))
        app.schedules.run_now("books")
        until(lambda: len(ran) == 1)
        app.schedules.update("books", overlap="cancel_previous", at=datetime.now(UTC))
        until(lambda: len(ran) == 2)
        second, first = app.schedules.history("books")
        assert (first.outcome, second.outcome) == ("canceled", None)
        assert first.error == "endless is canceled: the next slot is due"
        assert ran[0] != ran[1]
    app.close()


def test_node_without_scheduler_still_writes_declarations(shop: Shop) -> None:
    app, started = shop("* * * * * *"), list[str]()
    app.on("scheduler_started")(lambda name: started.append(name))
    with app.node(scheduler=False):
        assert app.schedules.get("nightly").enabled, "what its code declares is written all the same"
        app.enqueue("report", delay=2).result(timeout=60)
        assert app.schedules.get("nightly").runs == 0, "a slot was due while the job waited"
    assert started == []
    with app.node():
        until(lambda: started and app.schedules.get("nightly").runs)


def test_old_nodes_declare_again_after_a_rollback_of_the_code(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declarer, "CHECK_SECONDS", 0.05)
    with (app := shop()).node():
        with shop("0 4 * * *").node():
            assert app.schedules.get("nightly").pattern == "0 4 * * *"
        until(lambda: app.schedules.get("nightly").pattern == "0 3 * * *")


def test_next_node_after_a_crash_counts_as_cluster_start(shop: Shop, schema_database: str) -> None:
    app = shop("@reboot")
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("""
            WITH dead AS (SELECT watchbill.register('dead', lease => '1 second', app => 'shop',
              now => now() - interval '1 hour') AS epoch)
            SELECT watchbill.declare_schedules(epoch, '[]') FROM dead""")
    with app.node(lease=1):
        until(lambda: app.schedules.get("nightly").runs == 1)
    assert [slot.kind for slot in app.schedules.history("nightly")] == ["start"]


def test_live_node_sends_a_heartbeat_when_another_node_starts(shop: Shop, schema_database: str) -> None:
    """Or it could not be told from a dead one until its next beat."""
    watch = psycopg.connect(schema_database, autocommit=True)
    with shop("@reboot").node(lease=3600), shop("@reboot").node(lease=3600), watch as connection:
        until(lambda: connection.execute("SELECT 1 FROM watchbill.node WHERE beats > 0").fetchone())


def test_run_on_start_runs_once_per_cluster_start(shop: Shop) -> None:
    with (app := shop("@reboot", run_on_start=True)).node():
        with shop("@reboot", run_on_start=True).node():
            until(lambda: app.schedules.get("nightly").runs == 1)
        assert [slot.kind for slot in app.schedules.history("nightly")] == ["start"]
    with shop("@reboot", run_on_start=True).node():
        until(lambda: app.schedules.get("nightly").runs == 2)


def test_declared_schedule_explains_in_english_when_it_fires() -> None:
    app = App("postgresql:///nowhere", name="shop")

    @app.task(type="report")
    def report() -> None: ...

    app.declare_schedule("a", task=report)
    app.declare_schedule("b", task=report, run_on_start=True)
    app.declare_schedule("c", every=90, task=report, run_on_start=True)
    app.declare_schedule("d", "0 9 * * *", task=report)
    told = {declared.name: declared.meaning for declared in app.declared}
    assert told == {"a": "on demand", "b": "when the cluster starts", "c": "every 1m30s", "d": "at 09:00 every day"}


def test_a_declaration_that_is_withdrawn_is_not_written(app: App) -> None:
    app.declare_schedule("kept", "0 9 * * *", task="report")
    app.declare_schedule("withdrawn", "0 9 * * *", task="report")
    app.withdraw_schedule("withdrawn")
    app.withdraw_schedule("unknown")
    with app.node():
        assert [found.name for found in app.schedules.list()] == ["kept"]

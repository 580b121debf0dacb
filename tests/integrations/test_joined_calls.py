"""app.jobs, app.queues and app.schedules in the caller's own transaction: every driver, the same promises."""

from __future__ import annotations

import asyncio
import inspect
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.integrations.callers import Caller
from tests.integrations.observer import Observer, surprised
from watchbill import App, NoSuchJob, NotCommitted, ScheduleFilter, Task, WrongDatabase
from watchbill.app.operations import Jobs, Queues
from watchbill.app.schedules import Schedules
from watchbill.model.ids import new_id

HOSTILE = "100%s %% %(name)s $1 :name ? \\ ' \" {a,b} é 🎈 \n\t"


@pytest.fixture
def own(home: str) -> Any:
    """An App on the same database, whose calls are not part of the caller's transaction."""
    app = App(home)
    yield app
    app.close()


@pytest.fixture
def task(app: App) -> Task[[int], None]:
    @app.task(type="t")
    async def t(n: int) -> None: ...

    return t


@pytest.fixture(autouse=True)
def no_schedules(other: Observer) -> None:
    for table in ("schedules", "pauses", "slots"):
        other.connection.execute(f"DELETE FROM watchbill.{table}".encode())


@pytest.mark.parametrize("owner", [Jobs, Queues, Schedules])
def test_every_call_takes_a_connection(owner: type) -> None:
    for name, method in vars(owner).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            assert "connection" in inspect.signature(method).parameters, name


def test_job_of_an_open_transaction_is_read_in_it(
    caller: Caller, other: Observer, app: App, own: App, task: Task[[int], None]
) -> None:
    with caller.transaction():
        job = caller.enqueue(task, 1, queue=HOSTILE, run_at=datetime(2090, 3, 4, 5, 6, 7, 89, tzinfo=UTC))
        found = caller.call(app.jobs.get, job.id)
        assert [each.id for each in caller.call(app.jobs.list, state=("queued", "failed"), queue=HOSTILE)] == [job.id]
        assert caller.call(app.jobs.list, state="dead") == []
        assert [each.queue for each in caller.call(app.queues.stats)] == [HOSTILE]
        assert caller.call(app.jobs.attempts, job.id) == []
        with pytest.raises(NoSuchJob):
            own.jobs.get(job.id)
        assert own.jobs.list() == []
    assert found == own.jobs.get(job.id)
    assert found.run_at == datetime(2090, 3, 4, 5, 6, 7, 89, tzinfo=UTC)


def test_rolled_back_cancel_has_not_happened(
    caller: Caller, other: Observer, app: App, own: App, task: Task[[int], None]
) -> None:
    told: list[Any] = []
    app.on("job_canceled")(lambda **what: told.append(what))
    job = own.enqueue("t", {"n": 1})
    with surprised(caller.transaction()):
        assert caller.call(app.jobs.cancel, job.id, reason=HOSTILE) == "canceled"
        assert caller.call(app.jobs.get, job.id).state == "canceled"
    assert own.jobs.get(job.id).state == "queued"
    with caller.transaction():
        caller.call(app.jobs.cancel, job.id, reason=HOSTILE)
        assert own.jobs.get(job.id).state == "queued"
    ended = own.jobs.get(job.id)
    assert (ended.state, (ended.error or {})["message"]) == ("canceled", HOSTILE)
    assert told == [], "on a caller's connection the commit is not known"


def test_retry_and_release_are_part_of_the_transaction(caller: Caller, other: Observer, app: App, own: App) -> None:
    job = own.enqueue("t", {"n": 1})
    own.jobs.cancel(job.id)
    due = datetime(2090, 1, 2, tzinfo=UTC)
    with surprised(caller.transaction()):
        assert caller.call(app.jobs.retry, job.id, run_at=due) == "canceled"
    assert own.jobs.get(job.id).state == "canceled"
    with caller.transaction():
        caller.call(app.jobs.retry, job.id)
        assert caller.call(app.jobs.release, job.id) is False
    assert own.jobs.get(job.id).state == "queued"


def test_family_of_an_uncommitted_chain_is_read_in_its_transaction(
    caller: Caller, other: Observer, app: App, task: Task[[int], None]
) -> None:
    with caller.transaction():
        first = caller.enqueue(task, 1)
        second = caller.enqueue(task, 2, depends_on=[first])
        graph = caller.call(app.jobs.family, second.id)
    assert [job.id for job in graph.jobs] == [first.id, second.id]
    assert [(each.child, each.parent) for each in graph.dependencies] == [(second.id, first.id)]


def test_pause_and_resume_are_part_of_the_transaction(caller: Caller, other: Observer, app: App, own: App) -> None:
    with surprised(caller.transaction()):
        assert caller.call(app.queues.pause, "mail", reason=HOSTILE)
        assert [each.reason for each in caller.call(app.queues.pauses)] == [HOSTILE]
        assert own.queues.pauses() == []
    assert own.queues.pauses() == []
    own.queues.pause("mail")
    with caller.transaction():
        assert caller.call(app.queues.resume, "mail")
        assert [each.queue for each in own.queues.pauses()] == ["mail"]
    assert own.queues.pauses() == []


def test_schedules_are_written_and_read_in_the_transaction(
    caller: Caller, other: Observer, app: App, own: App, task: Task[[int], None]
) -> None:
    with surprised(caller.transaction()):
        caller.call(app.schedules.add, "gone", "0 9 * * *", task=task, arguments={"n": 1})
    with caller.transaction():
        caller.execute("SET LOCAL IntervalStyle = 'sql_standard'")
        made = caller.call(
            app.schedules.add, "s", every=90061.5, task=task, arguments={"n": 1}, description=HOSTILE, tags=["a", "b"]
        )
        assert made.every == timedelta(days=1, hours=1, minutes=1, seconds=1.5)
        assert own.schedules.list() == []
        assert caller.call(app.schedules.list, ScheduleFilter(tag="b")) == [made]
        changed = caller.call(app.schedules.update, "s", priority=7)
        assert (changed.priority, changed.description) == (7, HOSTILE)
        caller.call(app.schedules.disable, "s")
        caller.call(app.schedules.enable, "s")
        assert len(caller.call(app.schedules.preview, "s", 3)) == 3
        assert "no node is alive" in caller.call(app.schedules.why, "s")[0].reason
        assert caller.call(app.schedules.stats).schedules == 1
        job = caller.call(app.schedules.run_now, "s", arguments={"n": 7})
        assert isinstance(job.id, UUID)
        assert caller.call(app.jobs.get, job.id).payload == {"n": 7}
        [slot] = caller.call(app.schedules.history, "s")
        assert slot.job_id == job.id
        seen = caller.call(app.schedules.get, "s")
        assert other.jobs() == set()
    assert own.schedules.get("s") == seen
    assert other.jobs() == {job.id}
    with surprised(caller.transaction()):
        caller.call(app.schedules.remove, "s")
    assert own.schedules.get("s").name == "s"


def test_connection_to_another_installation_changes_nothing_there(
    caller: Caller, other: Observer, own: App, second_installation: str
) -> None:
    job = own.enqueue("t")
    app = App(second_installation)
    with caller.transaction():
        with pytest.raises(WrongDatabase, match=r"(?s)another installation.*Nothing was done"):
            caller.call(app.jobs.cancel, job.id)
        caller.execute("INSERT INTO notes VALUES (1)")
    assert (own.jobs.get(job.id).state, other.notes()) == ("queued", 1)
    app.close()


def test_wrong_kind_of_connection_error_names_the_twin(caller: Caller, app: App) -> None:
    if caller.asynchronous:
        with pytest.raises(TypeError, match="twin with an `a` before the name"):
            app.jobs.list(connection=caller.connection)
    else:
        with pytest.raises(TypeError, match=r"blocking connection .* twin without the `a`"):
            asyncio.run(app.jobs.alist(connection=caller.connection))


def test_missing_job_error_does_not_say_that_it_was_purged(own: App) -> None:
    with pytest.raises(NoSuchJob) as raised:
        own.jobs.get(new_id())
    assert "purged" not in str(raised.value)
    assert "not committed" in str(raised.value)


def test_waiting_for_the_result_of_an_uncommitted_job_is_refused(home: str, own: App) -> None:
    with psycopg.connect(home) as connection:
        job = own.enqueue("t", connection=connection)
        with pytest.raises(NotCommitted, match="no worker sees it yet"):
            job.result()
        with pytest.raises(NotCommitted):
            asyncio.run(job.aresult())
        connection.commit()
        with pytest.raises(TimeoutError):
            job.result(timeout=0)
    asyncio.run(own.aclose())


def test_blocking_call_with_a_connection_is_refused_on_a_loop(home: str, app: App) -> None:
    async def read() -> None:
        with psycopg.connect(home) as connection:
            app.jobs.list(connection=connection)

    with pytest.raises(RuntimeError, match="would block the running event loop"):
        asyncio.run(read())

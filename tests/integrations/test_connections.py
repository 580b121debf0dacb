"""Enqueue, guard and complete in the caller's own transaction: every driver, the same promises."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import psycopg2  # type: ignore[import-untyped]
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from tests.integrations.callers import Caller
from tests.integrations.observer import Observer, new_database, surprised
from tests.servers import Server
from tests.waiting import until
from watchbill import App, Job, StaleFence, Task
from watchbill.client import caller_connection, operations
from watchbill.client.caller_connection import SUPPORTED, number_placeholders
from watchbill.client.client import AsyncClient, Client
from watchbill.errors import SchemaError
from watchbill.model.ids import new_id
from watchbill.store.refusals import Invalid, PayloadDiffers, WrongDatabase
from watchbill.worker.run import Claimed, Run

MANY = 12  # enough for COPY, here
NOTE = "INSERT INTO notes VALUES (1)"
HOSTILE = "100%s %% %(name)s $1 :name ? \\ ' \" é 🎈 \n\t"


@pytest.fixture(scope="module")
def empty_database(server: Server) -> Iterator[str]:
    with new_database(server, schema=False) as url:
        yield url


@pytest.fixture(autouse=True)
def few_are_enough_for_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MIN_JOBS_TO_COPY", MANY)


@pytest.fixture
def task(app: App) -> Task[[int], None]:
    @app.task(type="t")
    async def t(n: int) -> None: ...

    return t


# -- transactions


def test_job_is_committed_with_the_callers_writes(caller: Caller, other: Observer, task: Task[[int], None]) -> None:
    with caller.transaction():
        caller.execute(NOTE)
        job = caller.enqueue(task, 1)
        assert job.created
        assert (other.jobs(), other.notes()) == (set(), 0)
    assert (other.jobs(), other.notes()) == ({job.id}, 1)


def test_job_is_rolled_back_with_the_callers_writes(caller: Caller, other: Observer, task: Task[[int], None]) -> None:
    with surprised(caller.transaction()):
        caller.execute(NOTE)
        caller.enqueue(task, 1)
        caller.enqueue(task, 2, idempotency_key="k")
    assert (other.jobs(), other.notes()) == (set(), 0)
    with caller.transaction():
        job = caller.enqueue(task, 3, idempotency_key="k")
    assert job.created, "the key was given back with the rest"
    assert other.jobs() == {job.id}


def test_savepoint_rollback_removes_only_later_jobs(caller: Caller, other: Observer, task: Task[[int], None]) -> None:
    with caller.transaction():
        first = caller.enqueue(task, 1)
        with surprised(caller.savepoint()):
            caller.enqueue(task, 2)
        last = caller.enqueue(task, 3)
        assert other.jobs() == set()
    assert other.jobs() == {first.id, last.id}


def test_jobs_of_nested_transactions_wait_for_the_outermost_commit(
    caller: Caller, other: Observer, task: Task[[int], None]
) -> None:
    with caller.transaction():
        outer = caller.enqueue(task, 1)
        with caller.savepoint():
            inner = caller.enqueue(task, 2)
        assert other.jobs() == set()
    assert other.jobs() == {outer.id, inner.id}
    with surprised(caller.transaction()), caller.savepoint():
        caller.enqueue(task, 3)
    assert other.jobs() == {outer.id, inner.id}


def test_autocommit_makes_jobs_visible_at_once(
    caller: Caller, other: Observer, app: App, task: Task[[int], None]
) -> None:
    with caller.autocommit():
        job = caller.enqueue(task, 1)
        assert other.jobs() == {job.id}
        jobs = caller.enqueue_many(app, [task.bind(n) for n in range(MANY)])
        assert other.jobs() == {job.id, *(each.id for each in jobs)}


def test_pooled_connection_is_returned_unchanged(caller: Caller, other: Observer, task: Task[[int], None]) -> None:
    pool = caller.pool()
    backends = set()
    with pool.taken():
        with caller.transaction():
            kept = caller.enqueue(task, 1)
        backends.add(caller.backend())
    with pool.taken():
        with surprised(caller.transaction()):
            caller.enqueue(task, 2)
        backends.add(caller.backend())
    with pool.taken(), caller.transaction():
        later = caller.enqueue(task, 3)
        backends.add(caller.backend())
    assert other.jobs() == {kept.id, later.id}
    assert len(backends) == 1, "three times the same connection"
    pool.close()


# -- what is enqueued


def test_options_are_stored_as_on_our_own_connection(caller: Caller, home: str) -> None:
    own = App(home)
    options: dict[str, Any] = {
        "queue": HOSTILE,
        "priority": -7,
        "tenant": HOSTILE,
        "timeout": 1.5,
        "idempotency_window": 3600,
        "run_at": datetime(2999, 12, 31, 23, 59, 59, 123456, tzinfo=UTC),
    }
    payload = {"text": HOSTILE, "number": 0.1, "none": None, "deep": [{"a": [1, "x"]}]}
    with caller.transaction():
        ours = caller.call(own.enqueue, "any", payload, id=new_id(), idempotency_key=HOSTILE, **options)
    plain = own.enqueue("any", payload, idempotency_key="other", **options)
    assert _told(ours) == _told(plain)
    assert ours.get().idempotency_key == HOSTILE
    own.close()


def _told(job: Job[Any]) -> dict[str, Any]:
    own = {"id", "seq", "idempotency_key", "created_at", "updated_at"}
    return {name: value for name, value in asdict(job.get()).items() if name not in own}


def test_a_delay_is_counted_on_the_databases_clock(caller: Caller, other: Observer, task: Task[[int], None]) -> None:
    with caller.transaction():
        caller.enqueue(task, 1, delay=90)
    [(delay,)] = other.connection.execute("SELECT extract(epoch FROM run_at - created_at)::int FROM watchbill.jobs")
    assert delay == 90


def test_an_idempotency_key_is_known_within_the_transaction_and_after_it(
    caller: Caller, other: Observer, task: Task[[int], None]
) -> None:
    with caller.transaction():
        first = caller.enqueue(task, 1, idempotency_key="k")
        second = caller.enqueue(task, 1, idempotency_key="k")
        assert (second.id, second.created, second.payload_differs) == (first.id, False, False)
    with caller.transaction():
        third = caller.enqueue(task, 2, idempotency_key="k")
        assert (third.id, third.created, third.payload_differs) == (first.id, False, True)
    with pytest.raises(PayloadDiffers, match="another payload"), caller.transaction():
        caller.enqueue(task, 2, idempotency_key="k", strict=True)
    assert other.jobs() == {first.id}


@pytest.mark.parametrize("number", [3, MANY, 600])
def test_enqueue_many_joins_the_transaction_and_keeps_the_order(
    caller: Caller, other: Observer, app: App, task: Task[[int], None], number: int
) -> None:
    with caller.transaction():
        jobs = caller.enqueue_many(app, [task.bind(n) for n in range(number)])
        assert other.jobs() == set()
    found: dict[UUID, int] = dict(other.connection.execute("SELECT id, (payload->>'n')::int FROM watchbill.jobs"))
    assert [found[job.id] for job in jobs] == list(range(number))
    with surprised(caller.transaction()):
        caller.enqueue_many(app, [task.bind(n) for n in range(number)])
    assert len(other.jobs()) == number


def test_enqueue_many_returns_existing_jobs_for_known_keys(
    caller: Caller, other: Observer, app: App, task: Task[[int], None]
) -> None:
    with caller.transaction():
        known = caller.enqueue(task, 1, idempotency_key="1")
        jobs = caller.enqueue_many(app, [task.using(idempotency_key=str(n)).bind(n) for n in range(MANY)])
    assert [job.created for job in jobs] == [n != 1 for n in range(MANY)]
    assert jobs[1].id == known.id
    assert other.jobs() == {job.id for job in jobs}


def test_enqueue_many_with_keys_works_on_our_own_connection(home: str) -> None:
    own = App(home)
    calls = [_any(own).using(idempotency_key=str(n)).bind(n) for n in range(MANY)]
    first, second = own.enqueue_many(calls), own.enqueue_many(calls)
    assert [(job.id, job.created) for job in second] == [(job.id, False) for job in first]
    own.close()


def test_enqueue_many_without_calls_returns_no_jobs(caller: Caller, app: App) -> None:
    with caller.transaction():
        assert caller.enqueue_many(app, []) == []


def test_enqueue_many_uses_the_connection_bound_to_its_calls(
    caller: Caller, other: Observer, app: App, task: Task[[int], None]
) -> None:
    bound = task.using(connection=caller.connection)
    with caller.transaction():
        if caller.asynchronous:
            (job,) = caller.wait(app.aenqueue_many([bound.bind(1)]))  # type: ignore[attr-defined]
        else:
            (job,) = app.enqueue_many([bound.bind(1)])
        assert other.jobs() == set()
    assert other.jobs() == {job.id}
    with pytest.raises(ValueError, match="several connections"):
        app.enqueue_many([bound.bind(1), task.using(connection=object()).bind(2)])


def test_job_enqueued_event_does_not_fire_for_the_connection_of_a_caller(
    caller: Caller, app: App, home: str, task: Task[[int], None]
) -> None:
    told: list[Any] = []
    app.on("job_enqueued")(lambda job: told.append(job.id))
    with caller.transaction():
        caller.enqueue(task, 1)
    assert told == []
    own = App(home)
    own.on("job_enqueued")(lambda job: told.append(job.id))
    job = _any(own).enqueue(2)
    own.close()
    assert told == [job.id]


# -- what goes wrong


def test_refused_job_raises_invalid_and_stores_nothing(
    caller: Caller, other: Observer, app: App, task: Task[[int], None]
) -> None:
    with caller.transaction():
        kept = caller.enqueue(task, 1)
        calls = [task.bind(n) for n in range(MANY)]
        with pytest.raises(Invalid, match="Job of type 't' is invalid: queue must be"), caller.savepoint():
            caller.enqueue(task, 3, queue="")
        with pytest.raises(Invalid, match="queue must be"), caller.savepoint():
            caller.enqueue_many(app, [*calls, task.using(queue="").bind(0)])
    with caller.autocommit(), pytest.raises(Invalid, match="queue must be"):
        caller.enqueue_many(app, [*calls, task.using(queue="").bind(0)])
    assert other.jobs() == {kept.id}


def test_serialization_failure_raises_the_error_of_the_driver(
    caller: Caller, other: Observer, home: str, task: Task[[int], None]
) -> None:
    """So that the caller's retry works, which knows its driver's errors and not ours."""
    own = App(home)

    def conflict() -> None:
        caller.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        caller.execute("SELECT 1")
        own.enqueue("t", {"n": 1}, idempotency_key="k")
        caller.enqueue(task, 1, idempotency_key="k")

    with pytest.raises(caller.conflict) as raised, caller.transaction():
        conflict()
    assert "could not serialize" in str(raised.value)
    assert len(other.jobs()) == 1
    own.close()


def test_database_without_our_schema_raises_wrong_database(
    kind: type[Caller], empty_database: str, task: Task[[int], None]
) -> None:
    caller = kind(empty_database)
    told = r"(?s)no Watchbill schema 'watchbill'.*watchbill db migrate"
    with pytest.raises(WrongDatabase, match=told), caller.transaction():
        caller.enqueue(task, 1)
    caller.close()


def test_connection_to_another_installation_is_refused(
    caller: Caller, other: Observer, second_installation: str
) -> None:
    app = App(second_installation)
    with caller.transaction():
        with pytest.raises(WrongDatabase, match=r"(?s)another installation.*schema 'watchbill'.*Nothing was done"):
            caller.call(app.enqueue, "t", {"n": 1})
        for number in (1, MANY):
            calls = [_any(app).bind(n) for n in range(number)]
            with pytest.raises(WrongDatabase):
                caller.enqueue_many(app, calls)
        caller.execute(NOTE)
    assert (other.jobs(), other.notes()) == (set(), 1), "nothing was broken by the refusal"
    app.close()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses at which a client was told to see which installation is there."""
    seen: list[str] = []
    for client in (Client, AsyncClient):
        _note_looks(monkeypatch, client, seen)
    return seen


def _note_looks(monkeypatch: pytest.MonkeyPatch, client: type[Any], seen: list[str]) -> None:
    look = client.read_installation

    def noted(self: Any) -> Any:
        seen.append(self.url)
        return look(self)

    monkeypatch.setattr(client, "read_installation", noted)


def test_app_checks_its_own_database_once_without_a_pool(
    caller: Caller, other: Observer, home: str, looks: list[str]
) -> None:
    own = App(home)
    with caller.transaction():
        jobs = [caller.call(own.enqueue, "t", {"n": n}) for n in range(3)]
    assert looks == [home]
    assert other.jobs() == {job.id for job in jobs}
    ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'watchbill' AND datname = current_database()"
    until(lambda: other.connection.execute(ours).fetchall() == [(0,)])  # that of the look takes a moment to go


def test_app_that_cannot_check_its_database_warns_and_enqueues(
    caller: Caller,
    other: Observer,
    app: App,
    task: Task[[int], None],
    looks: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caller.transaction():
        jobs = [caller.enqueue(task, n) for n in range(3)]
    assert other.jobs() == {job.id for job in jobs}
    assert len(looks) == 1
    [told] = [record.getMessage() for record in caplog.records]
    assert "Could not identify the App's own database" in told
    assert "nothing listens there" in told


def test_app_without_an_address_skips_the_installation_check(
    caller: Caller, other: Observer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, looks: list[str]
) -> None:
    for name in ("DATABASE_URL", "WATCHBILL_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    with caller.transaction():
        job = caller.call(App().enqueue, "t", {"n": 1})
    assert (other.jobs(), looks) == ({job.id}, [])


def test_installation_check_does_not_block_the_event_loop(home: str, other: Observer, looks: list[str]) -> None:
    """Under `run_sync` a call is blocking in name only."""
    app = App(home)

    async def enqueue() -> None:
        engine = create_async_engine(home.replace("postgresql:", "postgresql+psycopg:"))
        async with AsyncSession(engine) as session, session.begin():
            await session.run_sync(lambda blocking: app.enqueue("t", connection=blocking))
        await engine.dispose()

    asyncio.run(enqueue())
    assert (len(other.jobs()), looks) == (1, [])


def test_sync_calls_know_the_installation_that_async_calls_found(
    home: str, other: Observer, second_installation: str
) -> None:
    app = App(second_installation)

    async def look() -> None:
        await app.jobs.alist()
        await app.aclose()

    asyncio.run(look())
    with psycopg.connect(home) as connection, pytest.raises(WrongDatabase, match="another installation"):
        app.enqueue("t", connection=connection)
    assert "client" not in vars(app), "it was not opened to find out"


def test_connection_to_the_installation_of_the_app_is_accepted(
    caller: Caller, other: Observer, app: App, home: str
) -> None:
    own = App(home)
    own.jobs.list()
    assert own.client.installation
    with caller.transaction():
        job = caller.call(own.enqueue, "t", {"n": 1})
        jobs = caller.enqueue_many(own, [_any(own).bind(n) for n in range(MANY)])
    assert other.jobs() == {job.id, *(each.id for each in jobs)}
    own.close()


def _any(app: App) -> Task[..., Any]:
    if "any" not in app.tasks:

        @app.task(type="any")
        async def anything(n: int) -> None: ...

    return app.tasks["any"]


def test_wrong_kind_of_connection_error_names_the_other_method(
    caller: Caller, app: App, task: Task[[int], None]
) -> None:
    bound = task.using(connection=caller.connection)

    async def asynchronously() -> None:
        await bound.aenqueue(1)

    async def blocking_on_a_loop() -> None:
        bound.enqueue(1)

    if caller.asynchronous:
        with pytest.raises(TypeError, match=r"enqueue\(\) was given an asynchronous .*`await aenqueue\(\)`"):
            bound.enqueue(1)
        with pytest.raises(TypeError, match=r"`await aenqueue\(\)`"):
            asyncio.run(blocking_on_a_loop())
        with pytest.raises(TypeError, match=r"`await aenqueue_many\(\)`"):
            app.enqueue_many([task.bind(1)], connection=caller.connection)
    else:
        with pytest.raises(TypeError, match=r"aenqueue\(\) was given a blocking connection .*; use enqueue\(\)"):
            asyncio.run(asynchronously())
        with pytest.raises(RuntimeError, match=r"await aenqueue\(\)"):
            asyncio.run(blocking_on_a_loop())


@pytest.mark.parametrize("thing", ["default", object(), sa.create_engine("postgresql+psycopg://"), Session, 1])
def test_value_that_is_not_a_connection_is_refused(task: Task[[int], None], thing: Any) -> None:
    with pytest.raises(TypeError, match="connection= takes a connection or session, not") as raised:
        task.using(connection=thing).enqueue(1)
    assert SUPPORTED in str(raised.value)
    with pytest.raises(TypeError, match="takes a connection"):
        asyncio.run(_aenqueue(task, thing))


async def _aenqueue(task: Task[[int], None], connection: Any) -> None:
    await task.using(connection=connection).aenqueue(1)


def test_connection_to_another_database_system_is_refused(task: Task[[int], None]) -> None:
    engine = sa.create_engine("sqlite://", poolclass=sa.NullPool)
    with engine.connect() as connection, pytest.raises(WrongDatabase, match="leads to sqlite"):
        task.using(connection=connection).enqueue(1)


def test_a_polled_psycopg2_connection_is_refused(home: str, task: Task[[int], None]) -> None:
    connection = psycopg2.connect(home, async_=1)
    with pytest.raises(TypeError, match="asynchronous psycopg2"):
        task.using(connection=connection).enqueue(1)
    connection.close()


def test_outdated_schema_error_names_the_migrate_command(home: str, other: Observer, task: Task[[int], None]) -> None:
    with psycopg.connect(home) as connection:
        connection.execute("ALTER FUNCTION watchbill.enqueue RENAME TO enqueue_of_yore")
        with pytest.raises(SchemaError, match=r"(?s)'watchbill' is too old: .*watchbill db migrate"):
            task.using(connection=connection).enqueue(1)
        connection.rollback()


def test_run_sync_session_may_enqueue_on_its_loop(home: str, other: Observer, task: Task[[int], None]) -> None:
    async def run() -> None:
        engine = create_async_engine(home.replace("postgresql:", "postgresql+asyncpg:"))
        async with AsyncSession(engine) as session, session.begin():
            await session.run_sync(lambda plain: task.using(connection=plain).enqueue(1))
            await session.run_sync(lambda plain: task.using(connection=plain.connection()).enqueue(2))
            assert other.jobs() == set()
        await engine.dispose()

    asyncio.run(run())
    assert len(other.jobs()) == 2


def test_copy_is_used_only_inside_a_transaction(home: str) -> None:
    with psycopg.connect(home, autocommit=True) as connection:
        assert not caller_connection.can_copy(connection), "each statement would be a transaction"
        with connection.transaction():
            assert caller_connection.can_copy(connection)
            with connection.pipeline():
                assert not caller_connection.can_copy(connection), "a pipeline cannot"
    with psycopg.connect(home) as connection:
        assert caller_connection.can_copy(connection), "the first statement begins a transaction"
    with closing(psycopg2.connect(home)) as older:
        assert not caller_connection.can_copy(older)


def test_percent_placeholders_become_numbered_ones() -> None:
    assert number_placeholders("a %s %% b %s::text %%s") == "a $1 % b $2::text %s"


# -- the end of a job in the caller's transaction


def claimed(app: App, other: Observer) -> Run:
    """A job in the hands of a node, as its handler sees it."""
    other.connection.execute("SELECT watchbill.register('n')")
    row = other.connection.execute(
        "SELECT uuid_send(id), fence, type, jsonb_send(payload), queue, tenant, priority, 0, run, attempt, "
        "max_attempts, version, timeout, NULL, 0 FROM watchbill.claim((SELECT max(epoch) FROM watchbill.nodes))"
    ).fetchone()
    assert row is not None
    return Run(Claimed(*row), app.handlers()["result"], time.monotonic())


@pytest.fixture
def run(app: App, other: Observer) -> Run:
    @app.task(type="result")
    async def result(n: int) -> dict[str, str]:
        return {}

    other.connection.execute("SELECT watchbill.enqueue('result', '{\"n\": 1}')")
    return claimed(app, other)


def test_complete_takes_effect_when_the_caller_commits(caller: Caller, other: Observer, run: Run) -> None:
    with surprised(caller.transaction()):
        caller.call(run.complete, {"text": HOSTILE})
    with caller.transaction():
        caller.execute(NOTE)
        caller.call(run.complete, {"text": HOSTILE})
        assert other.jobs() == {run.id}
    found = other.connection.execute("SELECT state, result FROM watchbill.job").fetchall()
    assert (found, other.notes()) == ([("succeeded", {"text": HOSTILE})], 1)


def test_guard_locks_the_job_until_the_transaction_ends(caller: Caller, other: Observer, run: Run) -> None:
    take_away = "SELECT FROM watchbill.jobs FOR UPDATE SKIP LOCKED"
    with caller.transaction():
        caller.call(run.guard)
        assert other.connection.execute(take_away).fetchall() == []
    assert len(other.connection.execute(take_away).fetchall()) == 1


def test_released_job_cannot_be_guarded_or_completed(caller: Caller, other: Observer, run: Run) -> None:
    other.connection.execute("SELECT watchbill.release(id) FROM watchbill.jobs")
    for call in (run.guard, run.complete):
        with pytest.raises(StaleFence, match=r"(?s)is no longer claimed under fence.*roll back"), caller.transaction():
            caller.call(call)


def test_wrong_kind_of_complete_error_names_the_other_method(caller: Caller, run: Run) -> None:
    if caller.asynchronous:
        for call in (run.guard, run.complete):
            with pytest.raises(TypeError, match=rf"`await a{call.__name__}\(\)`"):
                call(connection=caller.connection)
    else:
        with pytest.raises(TypeError, match=r"acomplete\(\) was given a blocking .*use complete\(\)"):
            asyncio.run(run.acomplete(connection=caller.connection))

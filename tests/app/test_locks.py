"""app.lock(), blocking and asyncio: one suite for both colours."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.waiting import until
from watchbill import App, Lock, LockLost, LockNotAcquired
from watchbill.client import lock_renewal
from watchbill.postgres.connect import AsyncConnection, Connection
from watchbill.store.refusals import Invalid


class Caller:
    """Uses a lock in one of the two colours."""

    def __init__(self, app: App) -> None:
        self.app = app

    def call(self, method: Callable[..., Any], *args: Any) -> Any:
        return method(*args)

    def hold(self, lock: Lock, body: Callable[[], Any]) -> Any:
        with lock:
            return body()

    def check(self, lock: Lock) -> None:
        with Connection.connect(self.app.database_url) as connection:
            lock.check(connection)


class AsyncCaller(Caller):
    def __init__(self, app: App) -> None:
        super().__init__(app)
        self.runner = asyncio.Runner()

    def wait(self, awaitable: Awaitable[Any]) -> Any:
        async def waiting() -> Any:
            return await awaitable

        return self.runner.run(waiting())

    def call(self, method: Callable[..., Any], *args: Any) -> Any:
        return self.wait(getattr(method.__self__, f"a{method.__name__}")(*args))  # type: ignore[attr-defined]

    def hold(self, lock: Lock, body: Callable[[], Any]) -> Any:
        async def holding() -> Any:
            async with lock:
                return body()

        return self.wait(holding())

    def check(self, lock: Lock) -> None:
        async def checking() -> None:
            async with await AsyncConnection.connect(self.app.database_url) as connection:
                await lock.acheck(connection)

        self.wait(checking())


@pytest.fixture
def app(schema_database: str) -> Iterator[App]:
    app = App(schema_database)
    yield app
    app.close()


@pytest.fixture
def other(schema_database: str) -> Iterator[App]:
    """Another process, as far as the database can tell."""
    app = App(schema_database)
    yield app
    app.close()


@pytest.fixture(params=[Caller, AsyncCaller], ids=["sync", "async"])
def caller(request: pytest.FixtureRequest, app: App) -> Iterator[Caller]:
    caller: Caller = request.param(app)
    yield caller
    if isinstance(caller, AsyncCaller):
        caller.wait(app.aclose())
        caller.runner.close()


def row(app: App, name: str = "close") -> Any:
    with psycopg.connect(app.database_url) as connection:
        return connection.execute(
            "SELECT state, holder, fence, expires_at FROM watchbill.lock WHERE name = %s", (name,)
        ).fetchone()


def test_a_lock_is_held_during_the_block_and_free_after_it(app: App, caller: Caller) -> None:
    lock = app.lock("close")

    def body() -> None:
        state, holder, fence, _ = row(app)
        assert (state, fence) == ("held", lock.fence)
        assert holder.endswith(f"/{os.getpid()}")
        assert lock.is_held

    caller.hold(lock, body)
    assert row(app)[0] == "free"
    assert not lock.is_held


def test_a_lock_is_released_when_the_block_raises(app: App, caller: Caller) -> None:
    with pytest.raises(ZeroDivisionError):
        caller.hold(app.lock("close"), lambda: 1 / 0)
    assert row(app)[0] == "free"


def test_a_lock_that_another_caller_holds_is_not_acquired(app: App, other: App, caller: Caller) -> None:
    with (
        other.lock("close"),
        pytest.raises(LockNotAcquired, match=r"'close' was not acquired: .*/\d+ holds it, for \d+ s"),
    ):
        caller.call(app.lock("close", wait=0).acquire)


def test_the_time_that_was_waited_stands_in_the_error(app: App, other: App, caller: Caller) -> None:
    with other.lock("close"), pytest.raises(LockNotAcquired, match=r"within 0\.05 s"):
        caller.call(app.lock("close", wait="50ms").acquire)


def test_try_acquire_says_whether_it_has_the_lock(app: App, other: App, caller: Caller) -> None:
    lock = app.lock("close")
    with other.lock("close"):
        assert caller.call(lock.try_acquire) is False
    assert caller.call(lock.try_acquire) is True
    caller.call(lock.release)


def test_a_waiting_caller_gets_the_lock_after_its_release(app: App, other: App, caller: Caller) -> None:
    holder = other.lock("close").acquire()
    has_waited = threading.Event()

    def release_when_it_listens() -> None:
        until(lambda: row_is_awaited(app))
        has_waited.set()
        holder.release()

    thread = threading.Thread(target=release_when_it_listens)
    thread.start()
    fence = caller.hold(lock := app.lock("close"), lambda: lock.fence)
    thread.join()
    assert has_waited.is_set(), "it has heard of the release, and not just polled"
    assert fence > 0


def row_is_awaited(app: App) -> bool:
    with psycopg.connect(app.database_url) as connection:
        found = connection.execute("SELECT awaited FROM watchbill.locks").fetchone()
    return bool(found and found[0])


def test_a_caller_that_cannot_listen_polls(
    app: App, other: App, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pooler."""
    monkeypatch.setattr("watchbill.client.client.ClientConnection.is_pooled", True)
    monkeypatch.setattr("watchbill.client.client.AsyncClientConnection.is_pooled", True)
    monkeypatch.setattr("watchbill.postgres.connect._mark_pooled", lambda *_: None)
    holder = other.lock("close").acquire()
    threading.Timer(0.2, holder.release).start()
    caller.hold(app.lock("close"), lambda: None)
    assert not row_is_awaited(app)


def test_fences_grow_from_grant_to_grant(app: App, caller: Caller) -> None:
    lock = app.lock("close")
    fences = [caller.hold(lock, lambda: lock.fence) for _ in range(3)]
    assert fences == sorted(set(fences))


def test_a_held_lock_is_renewed_by_itself(app: App, caller: Caller) -> None:
    lock = app.lock("close", ttl="1s")
    caller.call(lock.acquire)
    first = row(app)[3]
    until(lambda: row(app)[3] > first)
    assert lock.is_held
    caller.call(lock.release)


def test_check_passes_while_the_lock_is_held(app: App, caller: Caller) -> None:
    lock = app.lock("close")
    caller.call(lock.acquire)
    caller.check(lock)
    caller.call(lock.release)


def test_a_lock_that_an_operator_released_is_lost(app: App, caller: Caller) -> None:
    lock = app.lock("close")
    caller.call(lock.acquire)
    release_as_operator(app)
    with pytest.raises(LockLost, match="no longer held under fence"):
        caller.check(lock)
    with pytest.raises(LockLost, match="was lost before its release"):
        caller.call(lock.release)


def release_as_operator(app: App) -> None:
    with psycopg.connect(app.database_url) as connection:
        connection.execute("SELECT watchbill.lock_release('close')")


def test_the_holder_learns_of_a_loss_from_its_next_renewal(
    app: App, caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    lock = app.lock("close", ttl="1s")
    caller.call(lock.acquire)
    release_as_operator(app)
    until(lambda: not lock.is_held)
    with pytest.raises(LockLost, match="may have expired"):
        caller.check(lock)
    assert "The lock 'close' was lost" in caplog.text


def test_a_block_that_lost_its_lock_says_so_at_its_end(app: App, caller: Caller) -> None:
    with pytest.raises(LockLost):
        caller.hold(app.lock("close"), lambda: release_as_operator(app))


def test_a_block_that_lost_its_lock_and_fails_raises_its_own_error(app: App, caller: Caller) -> None:
    def body() -> None:
        release_as_operator(app)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        caller.hold(app.lock("close"), body)


def test_check_refuses_by_the_own_clock_before_it_asks_the_database(
    app: App, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a freeze: the database has granted the lock to nobody yet, and would say yes."""
    lock = app.lock("close", ttl=30)
    caller.call(lock.acquire)
    assert lock._hold is not None
    app.producer.runtime.lock_renewer.remove(lock._hold)  # its thread is frozen too
    began = lock._hold.due - 30 / 3
    monkeypatch.setattr(lock_renewal, "boot_seconds", lambda: began + 26.9)
    assert lock.is_held
    monkeypatch.setattr(lock_renewal, "boot_seconds", lambda: began + 27.1)
    assert not lock.is_held
    with pytest.raises(LockLost, match="may have expired"):
        caller.check(lock)
    monkeypatch.undo()
    caller.call(lock.release)


def test_a_lock_that_the_program_has_dropped_is_not_renewed_any_more(app: App) -> None:
    app.lock("close", ttl=1).acquire()
    until(lambda: not list(app.producer.runtime.lock_renewer._holds))


async def canceled_after_the_grant(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reply arrives, and the task is canceled before it sees it."""
    original = app.aclient.run_with_resend

    async def run_and_wait(make: Any) -> Any:
        monkeypatch.undo()
        await original(make)
        granted.set()
        await asyncio.Event().wait()

    granted = asyncio.Event()
    monkeypatch.setattr(app.aclient, "run_with_resend", run_and_wait)
    task = asyncio.create_task(app.lock("close").aacquire())
    await granted.wait()
    assert row(app)[0] == "held"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await app.aclose()


def test_a_grant_that_a_canceled_task_never_saw_is_released(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(canceled_after_the_grant(app, monkeypatch))
    assert row(app)[0] == "free"


def test_a_grant_that_an_interrupted_caller_never_saw_is_released(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    original = app.client.run_with_resend

    def run_and_interrupt(make: Any) -> Any:
        original(make)
        assert row(app)[0] == "held"
        raise KeyboardInterrupt

    monkeypatch.setattr(app.client, "run_with_resend", run_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        app.lock("close").acquire()
    assert row(app)[0] == "free"


def test_an_uncontended_lock_takes_two_statements(app: App, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    caller.hold(app.lock("close"), lambda: None)  # opens the pool
    sent: list[str] = []
    for name in ("execute", "aexecute"):
        original = getattr(__import__("watchbill.client.client", fromlist=["x"]), name)
        monkeypatch.setattr(f"watchbill.client.client.{name}", recording(original, sent))
    caller.hold(app.lock("close"), lambda: None)
    assert sent == ["acquire_lock", "release_lock"]


def recording(execute: Callable[..., Any], sent: list[str]) -> Callable[..., Any]:
    def record(connection: Any, step: Any, queries: Any) -> Any:
        sent.append(step.query)
        return execute(connection, step, queries)

    return record


def test_a_lock_object_is_held_once(app: App, caller: Caller) -> None:
    lock = app.lock("close")
    caller.call(lock.acquire)
    with pytest.raises(RuntimeError, match="holds 'close' already"):
        caller.call(lock.acquire)
    caller.call(lock.release)


def test_a_lock_that_is_not_acquired_has_no_fence(app: App, caller: Caller) -> None:
    lock = app.lock("close")
    with pytest.raises(RuntimeError, match="not acquired"):
        _ = lock.fence
    with pytest.raises(RuntimeError, match="not acquired"):
        caller.call(lock.release)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ttl": 0}, "ttl=0"),
        ({"ttl": "2d"}, "ttl='2d'"),
        ({"wait": -1}, "wait=-1"),
        ({"wait": float("nan")}, "wait=nan"),
        ({"name": ""}, "The name of a lock is invalid: ''"),
        ({"name": "leader/new"}, "`leader/` is the prefix of the locks of leaders"),
        ({"name": 7}, "The name of a lock is invalid: 7"),
        ({"name": b"close"}, "The name of a lock is invalid: b'close'"),
    ],
)
def test_invalid_options_are_refused_at_once(app: App, options: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        app.lock(**({"name": "close"} | options))


def test_a_name_that_is_too_long_is_not_repeated_in_full(app: App) -> None:
    with pytest.raises(Invalid, match="name of a lock") as caught:
        app.lock("x" * 10_000)
    assert len(str(caught.value)) < 200


def test_a_blocking_lock_on_a_loop_names_the_async_way(app: App) -> None:
    async def call() -> None:
        with app.lock("close"):
            pass

    with pytest.raises(RuntimeError, match="async with"):
        asyncio.run(call())


def test_a_forked_child_has_locks_of_its_own(app: App) -> None:
    with app.lock("parent"):
        child = os.fork()
        if child == 0:
            try:
                with app.lock("child", ttl=1) as lock:
                    first = row(app, "child")[3]
                    until(lambda: row(app, "child")[3] > first, 20)
                    os._exit(0 if lock.is_held else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

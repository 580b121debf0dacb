"""inline(): an enqueue runs the task, and still stores it first."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import psycopg
import pytest

from watchbill import App, current_job
from watchbill.app.payload import InvalidPayload
from watchbill.testing import Watchbill


def test_an_enqueue_runs_the_task_before_it_returns(watchbill: Watchbill) -> None:
    app = App()

    @app.task
    def double(n: int) -> int:
        return 2 * n

    with watchbill.inline():
        job = double.enqueue(4)
        assert job.result(timeout=0) == 8
    assert double.enqueue(4).get().state == "queued"


def test_inline_sends_arguments_through_json(watchbill: Watchbill) -> None:
    app, seen = App(), []

    @app.task
    def look(when: datetime, pair: list[int], anything: Any) -> None:
        seen.append((when, pair, anything))

    when = datetime.fromisoformat("2030-01-01T12:00:00+01:00")
    with watchbill.inline():
        look.enqueue(when, (1, 2), {"a": (3,)})  # type: ignore[arg-type]
    assert seen == [(when, [1, 2], {"a": [3]})]
    assert seen[0][0] is not when


def test_inline_refuses_values_that_cannot_be_stored(watchbill: Watchbill) -> None:
    app = App()

    @app.task
    def take(anything: Any) -> Any:
        return anything

    @app.task
    def give() -> Any:
        return "\0"

    with watchbill.inline():
        for value in (object(), "\0", 2**64):
            with pytest.raises(InvalidPayload):
                take.enqueue(value)
        with pytest.raises(InvalidPayload):
            take.enqueue("two", "arguments")
        with pytest.raises(Exception, match="NUL"):
            give.enqueue()
    assert [job.type for job in watchbill.jobs()] == [give.type]


def test_inline_raises_the_error_of_the_handler(watchbill: Watchbill) -> None:
    app = App()

    @app.task
    def fail() -> None:
        raise LookupError("of the handler")

    with watchbill.inline(), pytest.raises(LookupError, match="of the handler"):
        fail.enqueue()
    assert [job.state for job in watchbill.jobs(fail)] == ["failed"]


def test_inline_runs_nested_jobs_after_their_parent(watchbill: Watchbill) -> None:
    app, seen = App(), []

    @app.task
    def child(n: int) -> None:
        seen.append(n)

    @app.task
    def parent() -> None:
        child.enqueue(1)
        seen.append(0)
        assert current_job().attempt == 1

    with watchbill.inline():
        parent.enqueue()
        assert seen == [0, 1]
        app.enqueue_many([child.bind(2), child.bind(3)])
        assert seen == [0, 1, 2, 3]


def test_inline_does_not_run_delayed_or_uncommitted_jobs(watchbill: Watchbill) -> None:
    app, seen = App(), []

    @app.task
    def work(n: int) -> None:
        seen.append(n)

    with watchbill.inline(), psycopg.connect(watchbill.database_url) as connection:
        work.using(delay=60).enqueue(1)
        work.using(connection=connection).enqueue(2)
        assert seen == []
        connection.commit()
        work.enqueue(3)
        assert seen == [2, 3]


@pytest.mark.asyncio
async def test_an_asynchronous_enqueue_runs_on_its_loop(watchbill: Watchbill) -> None:
    app = App()

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    @app.task
    async def fail() -> None:
        raise LookupError

    with watchbill.inline():
        assert await (await double.aenqueue(4)).aresult(timeout=0) == 8
        with pytest.raises(LookupError):
            await fail.aenqueue()

"""The option `expires`, as Python sends it, and what a caller sees of a job that has expired."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.waiting import until
from watchbill import App, JobCanceled, Limit, chain
from watchbill.client.operations import MIN_JOBS_TO_COPY
from watchbill.errors import WatchbillError

SOON = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
def app(schema_database: str) -> Iterator[App]:
    app = App(schema_database, name="shop")
    yield app
    app.close()


def lifetimes(app: App) -> list[timedelta | None]:
    with psycopg.connect(app.database_url) as connection:
        return [
            lifetime
            for (lifetime,) in connection.execute("SELECT expires_at - created_at FROM watchbill.jobs ORDER BY seq")
        ]


def test_expiry_of_a_task_is_that_of_its_jobs(app: App) -> None:
    @app.task(type="poll", expires="10m")
    def poll(number: int) -> None: ...

    poll.enqueue(1)
    poll.using(expires=timedelta(hours=1)).enqueue(2)
    poll.using(expires=None).enqueue(3)
    poll.using(expires=SOON).enqueue(4)
    asyncio.run(poll.aenqueue(5))
    app.enqueue("other", {}, expires=60)
    chain(poll.bind(6), poll.bind(7)).enqueue()
    with psycopg.connect(app.database_url) as connection:
        poll.using(connection=connection).enqueue(8)
    ten = timedelta(minutes=10)
    minute = timedelta(minutes=1)
    assert lifetimes(app)[:3] == [ten, timedelta(hours=1), None]
    assert lifetimes(app)[4:] == [ten, minute, ten, ten, ten]
    assert [job.expires_at for job in app.jobs.list(type="poll") if job.payload == {"number": 4}] == [SOON]


def test_many_jobs_that_are_copied_expire(app: App) -> None:
    @app.task(type="poll", expires="10m", limits=[Limit(5)])
    def poll(number: int) -> None: ...

    app.enqueue_many([poll.bind(number) for number in range(MIN_JOBS_TO_COPY)])
    assert set(lifetimes(app)) == {timedelta(minutes=10)}


def test_job_that_has_expired_is_canceled_with_that_reason(app: App) -> None:
    ran: list[int] = []

    @app.task(type="poll")
    async def poll(number: int) -> None:
        ran.append(number)

    late = poll.using(expires=datetime.now(UTC) - timedelta(minutes=1)).enqueue(1)
    with app.node():
        poll.enqueue(2).result(timeout=60)
        with pytest.raises(JobCanceled, match="it expired: it had not started by"):
            late.result(timeout=60)
    assert ran == [2]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"expires": "soon"}, "expires='soon' is invalid"),
        ({"expires": True}, "expires=True is invalid|true and false are not"),
        ({"expires": datetime(2100, 1, 1)}, "has no time zone"),  # noqa: DTZ001
        ({"expires": [1]}, r"expires=\[1\] is invalid: give seconds, .*or an aware datetime"),
    ],
)
def test_expiry_that_cannot_be_is_refused(app: App, options: dict[str, Any], words: str) -> None:
    @app.task(type="poll")
    def poll() -> None: ...

    with pytest.raises((WatchbillError, ValueError), match=words):
        poll.using(**options)


@pytest.mark.parametrize("expires", [SOON, 0, -5])
def test_task_expires_after_a_duration(app: App, expires: Any) -> None:
    with pytest.raises(WatchbillError, match="give a duration of more than 0 s"):
        app.task(type="poll", expires=expires)(lambda: None)


def test_job_is_refused_that_would_expire_before_it_may_start(app: App) -> None:
    @app.task(type="poll", expires="10m")
    def poll() -> None: ...

    with pytest.raises(WatchbillError, match=r"it would expire at .*, before it may start at"):
        poll.using(delay="1h").enqueue()


def test_schedule_has_the_expiry_of_its_task(app: App) -> None:
    @app.schedule("0 9 * * *", name="morning")
    @app.schedule("0 12 * * *", name="noon", expires="1h")
    @app.task(type="poll", expires="10m")
    def poll() -> None: ...

    with app.node():
        morning, noon = app.schedules.get("morning"), app.schedules.get("noon")
    assert (morning.expires, noon.expires) == (timedelta(minutes=10), timedelta(hours=1))
    with pytest.raises(WatchbillError, match="poll expires at a time"):
        app.schedules.add("once", "0 9 * * *", task=poll.using(expires=SOON))


def test_step_of_a_scheduled_chain_expires_after_the_slot(app: App) -> None:
    """A task with a limit is started as a chain of one step, so that its limit counts."""

    @app.task(type="poll", expires="10m", limits=[Limit(5)])
    async def poll() -> None: ...

    app.schedules.add("poll", task=poll, at=datetime.now(UTC) - timedelta(minutes=20))
    with app.node():
        until(lambda: [job.state for job in app.jobs.list(type="poll")] == ["canceled"])
    (step,) = app.jobs.list(type="poll")
    assert step.error is not None
    assert step.error["kind"] == "expired"

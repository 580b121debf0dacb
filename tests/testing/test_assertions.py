"""assert_enqueued and its kin: what matches, what a failure says, and what an open transaction shows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from uuid import UUID

import psycopg
import pytest
from pydantic import BaseModel
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from tests.servers import Server
from watchbill import App
from watchbill.store.refusals import WrongDatabase
from watchbill.testing import Database, Watchbill

app = App()


class Colour(Enum):
    RED = "red"


class Address(BaseModel):
    street: str


@dataclass
class Order:
    number: int


@app.task
def send(to: str, subject: str = "hello") -> None: ...


@app.task
def rich(when: datetime, amount: Decimal, id: UUID, colour: Colour, address: Address, order: Order) -> None: ...


@app.task(type="open")
def open_ended(**more: int) -> None: ...


def test_assert_enqueued_matches_some_arguments(watchbill: Watchbill) -> None:
    job = send.using(queue="mail").enqueue("a@b.c", subject="hi")
    assert watchbill.assert_enqueued(send, to="a@b.c").id == job.id
    assert watchbill.assert_enqueued(send, to="a@b.c", subject="hi").queue == "mail"
    assert watchbill.assert_enqueued(send).payload == {"to": "a@b.c", "subject": "hi"}
    watchbill.assert_not_enqueued(send, to="a@b.c", subject="hello")
    watchbill.assert_not_enqueued(rich)


def test_assert_enqueued_matches_a_type_name(watchbill: Watchbill) -> None:
    app.enqueue("of.another.service", {"n": [1, 2], "colour": "red"})
    watchbill.assert_enqueued("of.another.service", n=[1, 2])
    watchbill.assert_enqueued("of.another.service", colour=Colour.RED)
    watchbill.assert_not_enqueued("of.another.service", n=(1, 3))


def test_arguments_are_compared_as_the_handler_sees_them(watchbill: Watchbill) -> None:
    values = {
        "when": datetime(2030, 1, 1, 12, tzinfo=UTC),
        "amount": Decimal("9.90"),
        "id": UUID(int=7),
        "colour": Colour.RED,
        "address": Address(street="High Street"),
        "order": Order(7),
    }
    rich.enqueue(**values)  # type: ignore[arg-type]
    for name, value in values.items():
        watchbill.assert_enqueued(rich, **{name: value})
    watchbill.assert_enqueued(rich, amount=Decimal("9.9"), order={"number": 7})
    watchbill.assert_not_enqueued(rich, amount=Decimal("9.91"))
    watchbill.assert_not_enqueued(rich, address=Address(street="Low Street"))


def test_assert_enqueued_finds_a_finished_job(watchbill: Watchbill) -> None:
    send.enqueue("a@b.c")
    watchbill.drain()
    assert watchbill.assert_enqueued(send, to="a@b.c").state == "succeeded"


def test_failed_assertion_lists_the_existing_jobs(watchbill: Watchbill) -> None:
    send.enqueue("a@b.c")
    app.enqueue("of.another.service")
    watchbill.drain()
    with pytest.raises(AssertionError) as caught:
        watchbill.assert_enqueued(send, to="x@y.z")
    assert str(caught.value).splitlines() == [
        f"No job {send.type}(to='x@y.z') was enqueued.",
        "These were:",
        f"  {send.type}(to='a@b.c')  succeeded",
        "  of.another.service()  queued",
        "To see what an open transaction has enqueued, give it as connection=.",
    ]


def test_failed_assertion_says_that_nothing_was_enqueued(watchbill: Watchbill) -> None:
    with pytest.raises(AssertionError, match=r"No job other was enqueued\.\nNothing was\."):
        watchbill.assert_enqueued("other")


def test_failed_assertion_shortens_long_lists_and_values(watchbill: Watchbill) -> None:
    app.enqueue_many([send.bind("x" * 200) for _ in range(25)])
    with pytest.raises(AssertionError, match=r"to='x{70,80}\.\.\.\)  queued\n.*and 5 more") as caught:
        watchbill.assert_enqueued("other")
    assert len(str(caught.value)) < 5000


def test_assert_not_enqueued_shows_the_unwanted_job(watchbill: Watchbill) -> None:
    send.enqueue("a@b.c")
    with pytest.raises(AssertionError, match=r"send\(to='a@b\.c'\) was enqueued:\n  .*send\(to='a@b\.c'\)  queued"):
        watchbill.assert_not_enqueued(send, to="a@b.c")


def test_assertion_refuses_an_unknown_parameter(watchbill: Watchbill) -> None:
    with pytest.raises(TypeError, match="has no parameter too; it has to, subject"):
        watchbill.assert_not_enqueued(send, too="a@b.c")
    watchbill.assert_not_enqueued(open_ended, anything=1)


def test_jobs_are_listed_in_their_order(watchbill: Watchbill) -> None:
    send.enqueue("first")
    app.enqueue("other")
    send.enqueue("second")
    assert [job.payload for job in watchbill.jobs(send)] == [{"to": "first"}, {"to": "second"}]
    assert [job.type for job in watchbill.jobs()] == [send.type, "other", send.type]
    assert len(watchbill.jobs("other")) == 1


# -- a session that is rolled back


@pytest.fixture
def session(watchbill_database: Database) -> Iterator[Session]:
    """As SQLAlchemy's documents show it: what a test commits is a savepoint, and in the end nothing has happened."""
    engine = create_engine(watchbill_database.url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
    with engine.connect() as connection:
        transaction = connection.begin()
        with Session(bind=connection, join_transaction_mode="create_savepoint") as session:
            yield session
        transaction.rollback()


@pytest.mark.parametrize("n", [1, 2])
def test_assertions_see_uncommitted_jobs_through_their_session(watchbill: Watchbill, session: Session, n: int) -> None:
    send.using(connection=session).enqueue("a@b.c")
    session.commit()
    [job] = watchbill.jobs(send, connection=session)
    assert watchbill.assert_enqueued(send, to="a@b.c", connection=session).id == job.id
    watchbill.assert_not_enqueued(send, to="x@y.z", connection=session)
    watchbill.assert_not_enqueued(send)
    assert watchbill.drain() == []


def test_failed_assertion_mentions_the_given_connection(watchbill: Watchbill, session: Session) -> None:
    with pytest.raises(AssertionError, match=r"was enqueued \(as the given connection sees them\)"):
        watchbill.assert_enqueued(send, connection=session)


def test_assertions_accept_a_plain_connection(watchbill: Watchbill) -> None:
    with psycopg.connect(watchbill.database_url) as connection:
        send.using(connection=connection).enqueue("a@b.c")
        watchbill.assert_enqueued(send, to="a@b.c", connection=connection)
        connection.rollback()
        watchbill.assert_not_enqueued(send, connection=connection)


@pytest.fixture
async def asession(watchbill_database: Database) -> AsyncIterator[AsyncSession]:
    url = watchbill_database.url.replace("postgresql:", "postgresql+psycopg:")
    async with create_async_engine(url, poolclass=NullPool).connect() as connection:
        transaction = await connection.begin()
        async with AsyncSession(bind=connection, join_transaction_mode="create_savepoint") as session:
            yield session
        await transaction.rollback()


@pytest.mark.anyio
async def test_assertions_accept_an_async_session(watchbill: Watchbill, asession: AsyncSession) -> None:
    await send.using(connection=asession).aenqueue("a@b.c")
    assert len(await watchbill.ajobs(connection=asession)) == 1
    assert (await watchbill.aassert_enqueued(send, to="a@b.c", connection=asession)).state == "queued"
    await watchbill.aassert_not_enqueued(send, to="x@y.z", connection=asession)
    with pytest.raises(AssertionError, match="was enqueued:"):
        await watchbill.aassert_not_enqueued(send, connection=asession)
    with pytest.raises(TypeError, match="twin with an `a` before the name"):
        watchbill.assert_enqueued(send, connection=asession)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_connection_to_another_database_is_refused(
    watchbill: Watchbill, test_server: Server, given_database: str
) -> None:
    send.enqueue("a@b.c")
    with psycopg.connect(given_database) as connection, pytest.raises(WrongDatabase, match="without Watchbill"):
        send.using(connection=connection).enqueue("a@b.c")

"""An enqueue whose reply is lost is sent again, and makes no second job, whatever became of the first."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from watchbill import App
from watchbill.client import runners
from watchbill.client.plans import Copy, Rows, Statement
from watchbill.errors import NoDatabase


@pytest.fixture
def app(schema_database: str) -> Iterator[App]:
    app = App(schema_database)
    yield app
    app.close()


def lose_replies(monkeypatch: pytest.MonkeyPatch, count: int) -> list[str]:
    """The statement is carried out and committed, but the answer never arrives."""
    original, lost = runners._carry_out, list[str]()

    def carry_out(step: Statement | Copy, connection: psycopg.Connection[object], queries: object) -> Rows:
        rows = original(step, connection, queries)  # type: ignore[arg-type]
        if len(lost) < count and step.query in ("enqueue", "enqueue_many"):
            lost.append(step.query)
            connection.pgconn.exec_(b"COMMIT")
            connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return rows

    monkeypatch.setattr(runners, "_carry_out", carry_out)
    return lost


def test_a_lost_reply_makes_no_second_job(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = lose_replies(monkeypatch, 2)
    job = app.enqueue("t")
    assert len(lost) == 2
    assert job.created
    assert [found.id for found in app.jobs.list()] == [job.id]


def test_the_first_may_even_have_finished(app: App, schema_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = runners._carry_out

    def carry_out(step: Statement | Copy, connection: psycopg.Connection[object], queries: object) -> Rows:
        rows = original(step, connection, queries)  # type: ignore[arg-type]
        if step.query == "enqueue" and not finished:
            finished.append(True)
            with psycopg.connect(schema_database, autocommit=True) as other:
                other.execute("SELECT watchbill.register('quick')")
                other.execute(
                    "SELECT watchbill.complete(c.id, c.fence) FROM watchbill.claim((SELECT epoch FROM watchbill.nodes)) c"
                )
            connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return rows

    finished: list[bool] = []
    monkeypatch.setattr(runners, "_carry_out", carry_out)
    job = app.enqueue("t")
    assert [(found.id, found.state) for found in app.jobs.list()] == [(job.id, "succeeded")]


def test_a_bulk_is_sent_again_as_a_whole(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task(type="t")
    async def t(n: int) -> None: ...

    lose_replies(monkeypatch, 1)
    jobs = app.enqueue_many([t.bind(n) for n in range(10)])
    assert all(job.created for job in jobs)
    assert len(app.jobs.list()) == 10


def test_a_database_that_stays_away_is_an_error_at_last(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_replies(monkeypatch, 100)
    monkeypatch.setattr("watchbill.client.clients.PAUSES", (0.0, 0.01))
    with pytest.raises(NoDatabase, match="closed the connection"):
        app.enqueue("t")

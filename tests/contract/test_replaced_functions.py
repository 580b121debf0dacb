"""A call whose statement meets a migration, which replaces functions, is repeated: the server has undone it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from watchbill import App
from watchbill.client.operations import MIN_JOBS_TO_COPY
from watchbill.errors import SchemaError

ERRORS = {"42883": "function _job_class(int) does not exist", "XX000": "cache lookup failed for function 4711"}


@pytest.fixture
def app(schema_database: str) -> Iterator[App]:
    app = App(schema_database)
    yield app
    app.close()


@pytest.fixture(params=ERRORS)
def failures(request: pytest.FixtureRequest, schema_database: str) -> Iterator[psycopg.Connection]:
    """The next statement that writes jobs fails as it does while functions are replaced. A sequence remembers that,
    because it does not go back with the transaction."""
    raising = sql.SQL("""
        CREATE SEQUENCE public.tries;
        GRANT USAGE ON SEQUENCE public.tries TO PUBLIC;
        CREATE FUNCTION public.fail_first() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          IF nextval('public.tries') = 1 THEN RAISE EXCEPTION '%', {text} USING ERRCODE = {code}; END IF;
          RETURN NULL;
        END $$;
        CREATE TRIGGER fail_first BEFORE INSERT OR UPDATE OR DELETE ON watchbill.jobs
        FOR EACH STATEMENT EXECUTE FUNCTION public.fail_first()""")
    with psycopg.connect(schema_database, autocommit=True) as owner:
        owner.execute(raising.format(text=sql.Literal(ERRORS[request.param]), code=sql.Literal(request.param)))
        yield owner


def fail_next(owner: psycopg.Connection) -> None:
    owner.execute("SELECT setval('public.tries', 1, false)")


def test_a_blocking_call_is_repeated(app: App, failures: psycopg.Connection) -> None:
    task = app.task(type="t")(lambda: None)
    job = app.enqueue("t")
    for jobs in ([task.bind()], [task.bind()] * 2, [task.bind()] * MIN_JOBS_TO_COPY):
        fail_next(failures)
        assert len({made.id for made in app.enqueue_many(jobs)}) == len(jobs)
    fail_next(failures)
    app.enqueue("t", delay=60)
    fail_next(failures)
    assert app.jobs.cancel(job.id) == "canceled"
    assert failures.execute("SELECT last_value > 1 FROM public.tries").fetchall() == [(True,)]


def test_a_call_on_the_loop_is_repeated(app: App, failures: psycopg.Connection) -> None:
    task = app.task(type="t")(lambda: None)

    async def call() -> None:
        job = await app.aenqueue("t")
        for jobs in ([task.bind()] * 2, [task.bind()] * MIN_JOBS_TO_COPY):
            fail_next(failures)
            assert len({made.id for made in await app.aenqueue_many(jobs)}) == len(jobs)
        fail_next(failures)
        assert await app.jobs.acancel(job.id) == "canceled"
        await app.aclose()

    asyncio.run(call())


def test_a_function_that_stays_away_is_an_error_that_says_what_to_do(app: App, schema_database: str) -> None:
    with psycopg.connect(schema_database, autocommit=True) as owner:
        owner.execute("DROP FUNCTION watchbill._enqueue_plain, watchbill.enqueue")
    with pytest.raises(SchemaError, match="a migration has just replaced its functions") as caught:
        app.enqueue("t")
    assert "watchbill db migrate" in str(caught.value.hint)

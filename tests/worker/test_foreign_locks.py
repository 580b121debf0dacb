"""Advisory locks, which every role of the database may take and keep: they stop no node, and logs name their holder."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from tests.servers import Server
from tests.worker.conftest import Workbench
from watchbill.errors import SchemaError
from watchbill.postgres.migrate import Patience, Source, migrate
from watchbill.postgres.migration_plan import make_advisory_key
from watchbill.store.install import install

AT_ONCE = Patience(migration_timeout=0.0)


@pytest.fixture
def stranger(server: Server, bench: Workbench) -> Iterator[psycopg.Connection]:
    """The session of a role without any right on the schema."""
    ((database,),) = bench.sql("SELECT current_database()")
    role = f"stranger_{database}"
    server.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
    address = server.url(database, role)
    with psycopg.connect(address, autocommit=True, application_name="someone's tool") as connection:
        yield connection
    server.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def lock(bench: Workbench, stranger: psycopg.Connection, *numbers: str) -> None:
    ((first, second),) = bench.sql(f"SELECT {', '.join(numbers)}")
    stranger.execute("SELECT pg_advisory_lock(%s, %s)", (first, second))


async def test_a_node_works_while_a_stranger_holds_the_lock_for_declarations(
    bench: Workbench, stranger: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    @bench.app.schedule("0 0 * * *")
    @bench.app.task(type="nightly")
    async def nightly() -> str:
        return "ran"

    key = f"hashtext('watchbill.schedules'::regclass::oid || '{bench.app.name}')"
    lock(bench, stranger, "watchbill._lock_class_declarations()", key)
    with caplog.at_level(logging.WARNING, "watchbill"):
        async with bench.working():
            assert await (await nightly.aenqueue()).aresult(timeout=60) == "ran"
            assert bench.sql("SELECT name FROM watchbill.schedules") == []
            assert f"is held by process {stranger.info.backend_pid} (role {stranger.info.user}" in caplog.text
            assert "application 'someone''s tool'" in caplog.text
            stranger.execute("SELECT pg_advisory_unlock_all()")
            await bench.until(lambda: bench.sql("SELECT name FROM watchbill.schedules"))


def test_making_partitions_names_the_holder_of_the_lock(bench: Workbench, stranger: psycopg.Connection) -> None:
    lock(bench, stranger, "watchbill._lock_class_partitions()", "'watchbill.jobs'::regclass::oid::int")
    with pytest.raises(psycopg.errors.LockNotAvailable, match=rf"is held by process {stranger.info.backend_pid} \("):
        bench.sql("SELECT watchbill.make_partitions()")


def test_a_migration_names_the_holder_of_the_lock_and_gives_up(bench: Workbench, stranger: psycopg.Connection) -> None:
    stranger.execute("SELECT pg_advisory_lock(%s, %s)", make_advisory_key("watchbill"))
    with pytest.raises(SchemaError, match=f"was held for too long by server process {stranger.info.backend_pid}, role"):
        migrate(bench.url, "watchbill", Source.of_package("watchbill.store"), patience=AT_ONCE)


def test_writing_the_cron_functions_names_the_holder_of_the_lock_and_gives_up(
    bench: Workbench, stranger: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("watchbill.postgres.migrate.DEFAULT_PATIENCE", AT_ONCE)
    stranger.execute("SELECT pg_advisory_lock(%s, %s)", make_advisory_key("jcron jcron"))
    with pytest.raises(SchemaError, match=f"was held for too long by server process {stranger.info.backend_pid}, role"):
        install(bench.url)

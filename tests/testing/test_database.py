"""The database of a test run: made in an empty one, refused where it would harm, left as it was found."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.servers import Server
from watchbill.postgres.migrate import Source, migrate
from watchbill.store.made_by_tests import TestsRun, keep_schema
from watchbill.testing import database as databases
from watchbill.testing.database import (
    HoldsOtherJobs,
    InUse,
    NotATestSchema,
    StillInUse,
    Sweeper,
    beside,
    embedded_database,
    named_database,
    prepare_schema,
    with_database,
)


def rows(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()


# -- one that was named


def test_named_database_recreates_the_schema_for_each_run(given_database: str) -> None:
    with named_database(given_database, "jobs_of_ours") as first:
        assert rows(given_database, "SELECT test, id::text FROM jobs_of_ours.installation") == [
            (True, first.installation)
        ]
        rows(given_database, "SELECT jobs_of_ours.enqueue('left.over')")
    with named_database(given_database, "jobs_of_ours") as second:
        assert second.installation != first.installation
        assert rows(given_database, "SELECT count(*) FROM jobs_of_ours.jobs") == [(0,)]


def test_named_database_refuses_a_schema_not_made_by_tests(given_database: str) -> None:
    migrate(given_database, "watchbill", Source.of_package("watchbill.store"))
    rows(given_database, "SELECT watchbill.enqueue('an.order')")
    with (
        pytest.raises(NotATestSchema, match="would delete all jobs") as refusal,
        named_database(given_database, "watchbill"),
    ):
        pass
    assert "DROP SCHEMA watchbill CASCADE" in str(refusal.value)
    assert rows(given_database, "SELECT count(*) FROM watchbill.jobs") == [(1,)]


def test_named_database_refuses_a_schema_of_another_program(given_database: str) -> None:
    with psycopg.connect(given_database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA watchbill CREATE TABLE theirs ()")
    with pytest.raises(NotATestSchema), named_database(given_database, "watchbill"):
        pass
    assert rows(given_database, "SELECT to_regclass('watchbill.theirs') IS NOT NULL") == [(True,)]


def test_end_of_a_failed_run_empties_the_schema_and_resets_the_clock(given_database: str) -> None:
    run = named_database(given_database, "watchbill")
    run.__enter__()
    rows(given_database, "SELECT watchbill.enqueue('left.over')")
    rows(given_database, "UPDATE watchbill.installation SET clock_offset = '30 s' RETURNING 1")
    assert not run.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert rows(given_database, "SELECT clock_offset = '0' FROM watchbill.installation") == [(True,)]
    assert rows(given_database, "SELECT count(*) FROM watchbill.jobs") == [(0,)]


def test_schema_of_tests_with_jobs_of_others_is_refused_until_it_is_dropped(given_database: str) -> None:
    def start_test_run() -> None:
        with named_database(given_database, "watchbill"):
            pass

    start_test_run()
    rows(given_database, "SELECT watchbill.enqueue('an.order')")
    with pytest.raises(HoldsOtherJobs, match=r"job an\.order") as refusal:
        start_test_run()
    with pytest.raises(HoldsOtherJobs):  # as a Django project does that keeps its database
        prepare_schema(given_database, "watchbill")
    assert rows(given_database, "SELECT type FROM watchbill.jobs") == [("an.order",)]
    assert "watchbill db keep" in str(refusal.value)
    assert "DROP SCHEMA watchbill CASCADE" in str(refusal.value)
    with psycopg.connect(given_database) as connection:
        connection.execute("DROP SCHEMA watchbill CASCADE")
    start_test_run()


def test_kept_schema_is_refused_by_tests_and_has_the_clock_of_the_server(given_database: str) -> None:
    with named_database(given_database, "watchbill"), pytest.raises(TestsRun):
        keep_schema(given_database, "watchbill")
    rows(given_database, "SELECT watchbill.enqueue('an.order')")
    rows(given_database, "UPDATE watchbill.installation SET clock_offset = '10 years' RETURNING 1")
    assert keep_schema(given_database, "watchbill")
    assert not keep_schema(given_database, "watchbill")
    assert rows(given_database, "SELECT type FROM watchbill.jobs") == [("an.order",)]
    assert rows(given_database, "SELECT watchbill.now() < clock_timestamp() + interval '1 year'") == [(True,)]
    with pytest.raises(NotATestSchema), named_database(given_database, "watchbill"):
        pass


def test_second_simultaneous_test_run_is_refused(given_database: str) -> None:
    with (
        named_database(given_database, "watchbill"),
        pytest.raises(InUse, match="Another test run"),
        named_database(given_database, "watchbill"),
    ):
        pass


def test_each_process_gets_a_database_beside_the_named_one(given_database: str) -> None:
    listing = "SELECT datname FROM pg_database WHERE datname LIKE current_database() || '\\_gw%' ORDER BY 1"
    name = rows(given_database, "SELECT current_database()")[0][0]
    with beside(given_database, "gw0") as first, beside(given_database, "gw1"):
        assert rows(first, "SELECT current_database()") == [(f"{name}_gw0",)]
        assert rows(given_database, listing) == [(f"{name}_gw0",), (f"{name}_gw1",)]
    assert rows(given_database, listing) == []


def test_foreign_database_with_a_worker_name_is_refused(given_database: str) -> None:
    name = f"{rows(given_database, 'SELECT current_database()')[0][0]}_gw7"
    with psycopg.connect(given_database, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
        with pytest.raises(NotATestSchema, match=name), beside(given_database, "gw7"):
            pass
        connection.execute(f'DROP DATABASE "{name}"'.encode())


def test_database_of_a_killed_run_is_replaced(given_database: str) -> None:
    abandoned = beside(given_database, "gw8")
    with psycopg.connect(abandoned.__enter__(), autocommit=True) as connection:
        connection.execute("CREATE TABLE left_over ()")
        with pytest.raises(InUse), beside(given_database, "gw8"):
            pass
    with beside(given_database, "gw8") as url:
        assert rows(url, "SELECT to_regclass('left_over')") == [(None,)]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p@h:1/old?sslmode=off", "postgresql://u:p@h:1/new?sslmode=off"),
        ("postgresql://postgres@/old?host=/a%20b&port=1", "postgresql://postgres@/new?host=/a%20b&port=1"),
        ("postgresql:///", "postgresql:///new"),
        ("host=h dbname=old", "dbname=new host=h"),
    ],
)
def test_with_database_changes_only_the_database_name(url: str, expected: str) -> None:
    assert with_database(url, "new") == expected


def test_sweep_error_names_a_transaction_left_open(given_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watchbill.testing.database.LOCK_TIMEOUT", "50ms")
    with named_database(given_database, "watchbill") as database, psycopg.connect(given_database) as connection:
        rows(given_database, "SELECT watchbill.enqueue('work')")
        with closing(psycopg.connect(given_database, application_name="forgotten")) as forgotten:
            forgotten.execute("SELECT FROM watchbill.jobs FOR UPDATE")
            with pytest.raises(StillInUse, match="'forgotten', idle in transaction: SELECT"):
                database.sweeper.sweep(connection)
        connection.rollback()
        database.sweeper.sweep(connection)
        assert isinstance(database.sweeper, Sweeper)
        connection.commit()
        assert rows(given_database, "SELECT count(*) FROM watchbill.jobs") == [(0,)]


# -- on the embedded server


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all tests here: the second run in it is a warm one."""
    return tmp_path_factory.mktemp("project")


def databases_of(url: str) -> set[str]:
    return {str(name) for (name,) in rows(with_database(url, "postgres"), "SELECT datname FROM pg_database")}


def test_each_run_gets_a_template_copy_that_is_dropped_afterwards(project: Path) -> None:
    with embedded_database(project, "watchbill") as first, embedded_database(project, "watchbill") as second:
        assert first.url != second.url
        assert first.installation != second.installation
        rows(first.url, "SELECT watchbill.enqueue('work')")
        assert rows(second.url, "SELECT count(*) FROM watchbill.jobs") == [(0,)]
        assert rows(with_database(first.url, "watchbill"), "SELECT count(*) FROM watchbill.jobs") == [(0,)]
    with embedded_database(project, "watchbill") as third:
        assert sum(name.startswith("run_") for name in databases_of(third.url)) == 1
    assert [path.name for path in project.iterdir()] == [".watchbill"]


def test_databases_of_killed_runs_are_dropped(project: Path) -> None:
    with embedded_database(project, "watchbill") as database:
        with psycopg.connect(database.url, autocommit=True) as connection:
            connection.execute("CREATE DATABASE run_1_abandoned")
        with embedded_database(project, "watchbill") as other:
            assert "run_1_abandoned" not in databases_of(other.url)


def test_unfit_or_unfinished_template_is_recreated(project: Path) -> None:
    with embedded_database(project, "elsewhere") as database:
        assert rows(database.url, "SELECT test FROM elsewhere.installation") == [(True,)]
        with psycopg.connect(with_database(database.url, "postgres"), autocommit=True) as connection:
            connection.execute("COMMENT ON DATABASE watchbill IS 'unfinished'")
        with psycopg.connect(with_database(database.url, "watchbill"), autocommit=True) as connection:
            connection.execute("DROP TABLE elsewhere.installation CASCADE")
        with embedded_database(project, "elsewhere") as other:
            assert rows(other.url, "SELECT elsewhere.now() IS NULL") == [(False,)]


def test_data_from_before_the_last_boot_is_removed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was written without fsync."""
    old = project / ".watchbill" / "tests-15-00000000" / ".watchbill"
    old.mkdir(parents=True)
    with embedded_database(project, "watchbill"):
        assert not old.parent.exists()
        assert len(list((project / ".watchbill").glob("tests-*"))) == 1


def test_read_only_project_uses_a_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    home = databases._make_home(tmp_path / "project", 15)
    assert home.is_relative_to(tmp_path / "temporary")
    assert home.is_dir()


def test_embedded_runs_make_no_database_on_the_suite_server(project: Path, test_server: Server) -> None:
    with embedded_database(project, "watchbill") as database:
        assert any(name.startswith("run_") for name in databases_of(database.url))
        assert not any(name.startswith("run_") for name in databases_of(test_server.url()))

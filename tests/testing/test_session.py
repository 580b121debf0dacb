"""Every App of the process is on the test database while a test runs, and where it was before afterwards."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.testing.tasks_for_children import enqueue_from_child
from watchbill import App
from watchbill.app.application import living_apps
from watchbill.settings import Settings
from watchbill.testing import Watchbill
from watchbill.testing.database import Database
from watchbill.testing.session import TestSession

ELSEWHERE = "postgresql://nobody@nowhere.invalid/orders"
made_before = App(ELSEWHERE, schema="other", listen_url=ELSEWHERE, max_payload=50)


def test_app_with_its_own_address_uses_the_test_database(watchbill: Watchbill) -> None:
    for app in (made_before, App(ELSEWHERE, schema="other"), App(embedded=True)):
        assert app.database_url == watchbill.database_url
        assert (app.settings.schema, app.settings.listen_url) == (watchbill.schema, watchbill.database_url)
        app.enqueue("work")
    assert made_before.settings.max_payload == 50
    assert len(watchbill.jobs("work")) == 3


def test_apps_get_their_settings_back_after_the_test(session: TestSession) -> None:
    used = App()
    used.use(Settings(database_url=ELSEWHERE))
    client = used.client
    with session.active():
        made_meanwhile = App(ELSEWHERE)
        for app in (used, made_before, made_meanwhile):
            assert app.client is session.client
    assert used.client is client
    assert used.database_url == ELSEWHERE
    assert made_before.settings.schema == "other"
    assert made_before.client.url == made_meanwhile.client.url == ELSEWHERE


def test_environment_is_restored_after_the_test(session: TestSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHBILL_DATABASE_URL", ELSEWHERE)
    monkeypatch.delenv("WATCHBILL_SCHEMA", raising=False)
    monkeypatch.setenv("WATCHBILL_TEST_DATABASE_URL", ELSEWHERE)
    before = dict(os.environ)
    with session.active():
        assert os.environ["WATCHBILL_DATABASE_URL"] == session.database.url
        assert Settings.load().schema == session.database.schema
    assert dict(os.environ) == before


def test_settings_file_does_not_override_the_test_database(
    watchbill: Watchbill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "watchbill.toml").write_text(f'database_url = "{ELSEWHERE}"\nlisten_url = "{ELSEWHERE}"\nlease = 7\n')
    monkeypatch.chdir(tmp_path)
    settings = App().settings
    assert (settings.database_url, settings.listen_url, settings.lease) == (watchbill.database_url,) * 2 + (7,)


def test_closing_one_app_does_not_close_others(watchbill: Watchbill) -> None:
    first, second = App(), App()
    first.enqueue("work")
    first.close()
    second.enqueue("work")
    first.enqueue("work")
    assert len(watchbill.jobs()) == 3


def test_subprocess_uses_the_test_database(watchbill: Watchbill, tmp_path: Path) -> None:
    """Whatever its code says: that may well be the address of the production."""
    program = f"from watchbill import App; app = App({ELSEWHERE!r}, schema='other'); app.enqueue('work')"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    assert len(watchbill.jobs("work")) == 1


def test_no_app_is_kept_alive() -> None:
    app = weakref.ref(App())
    gc.collect()
    assert app() is None
    assert None not in living_apps()


def test_worker_and_child_processes_use_the_test_database(watchbill: Watchbill) -> None:
    job = enqueue_from_child.enqueue()
    command = [sys.executable, "-m", "watchbill.cli", "worker", "tests.testing.tasks_for_children:app", "--once"]
    ended = subprocess.run(command, cwd=Path(__file__).parents[2], check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert job.result(timeout=0) != os.getpid()
    watchbill.assert_enqueued("from.a.child")


# -- emptying


@pytest.mark.parametrize("n", [1, 2])
def test_every_test_starts_with_empty_tables(watchbill: Watchbill, n: int) -> None:
    app = App()

    @app.task(type="work")
    def work(fail: bool) -> None:
        if fail:
            raise RuntimeError

    with psycopg.connect(watchbill.database_url) as connection:
        assert counts(connection) == {}
    app.enqueue_many([work.bind(n % 2 == 0) for n in range(4)])
    app.enqueue("unknown", idempotency_key="k")
    app.queues.pause("a queue")
    watchbill.drain()
    with psycopg.connect(watchbill.database_url) as connection:
        assert counts(connection).keys() >= {"jobs", "idempotency", "pauses", "nodes", "finished_jobs", "attempts"}


def counts(connection: psycopg.Connection) -> dict[str, int]:
    """Rows by table, but for those that migrations have put there."""
    names = connection.execute(
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'watchbill'::regnamespace AND relkind IN ('r', 'p')"
        " AND NOT relispartition AND relname <> ALL"
        " ('{chore_marks,installation,policies,quota_refresh,schema_version,schema_functions,zones}')"
    ).fetchall()
    count = sql.SQL("SELECT count(*) FROM watchbill.{}")
    found = {name: connection.execute(count.format(sql.Identifier(name))).fetchone() or (0,) for (name,) in names}
    return {name: rows for name, (rows,) in found.items() if rows}


def test_sweep_truncates_a_large_table(session: TestSession) -> None:
    with session.active():
        app = App()

        @app.task
        def work(text: str) -> None: ...

        app.enqueue_many([work.bind("x" * 100) for _ in range(3000)])
        with psycopg.connect(session.database.url, autocommit=True) as connection:
            size = "SELECT pg_relation_size('watchbill.jobs')"
            assert connection.execute(size).fetchone() != (0,)
            session.empty_database()
            assert connection.execute(size).fetchone() == (0,)


def test_seed_tables_stay(session: TestSession, watchbill_database: Database) -> None:
    session.empty_database()
    with psycopg.connect(watchbill_database.url) as connection:
        row = connection.execute("SELECT test, (SELECT count(*) FROM watchbill.policies) FROM watchbill.installation")
        test, policies = row.fetchone() or (None, 0)
    assert test is True
    assert policies >= 1

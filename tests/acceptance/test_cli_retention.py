"""`watchbill retention`: shows and removes what is too old."""

from __future__ import annotations

import json

import psycopg
import pytest

from tests.acceptance.command import Watchbill


@pytest.fixture
def old_database(schema_database: str) -> str:
    """With a day of succeeded jobs from the year 2020, one of them with a key, and an audit row of that year."""
    with psycopg.connect(schema_database) as connection:
        connection.execute("SELECT watchbill.make_partitions(0, '2020-05-05', '{finished_succeeded}')")
        connection.execute("SELECT watchbill.enqueue('old', idempotency_key => 'k')")
        connection.execute("SELECT watchbill.register('n', '1 hour')")
        connection.execute("""
            SELECT watchbill.settle(epoch, ARRAY[c.id], ARRAY[c.fence], now => '2020-05-05 12:00+00')
            FROM watchbill.nodes, watchbill.claim(epoch) c""")
        connection.execute(
            "INSERT INTO watchbill.audit (at, actor, action, subject) VALUES ('2020-01-01', 'a', 'b', 'c')"
        )
    return schema_database


def count(database: str, table: str) -> int:
    with psycopg.connect(database) as connection:
        ((number,),) = connection.execute(f"SELECT count(*) FROM watchbill.{table}".encode())
    return int(number)


def test_dry_run_shows_what_would_go_and_removes_nothing(watchbill: Watchbill, old_database: str) -> None:
    answer = watchbill("retention", "run", "--dry-run", "--database-url", old_database)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "finished_succeeded_20200505" in answer.stdout
    assert "audit" in answer.stdout
    assert answer.stdout.splitlines()[-1].startswith("The settings: keep_succeeded = 30d, ")
    assert count(old_database, "finished_jobs") == 1
    rows = json.loads(watchbill.here("retention", "run", "--dry-run", "--json", "--database-url", old_database).stdout)
    assert [(row["what"], row["action"]) for row in rows] == [
        ("finished_succeeded_20200505", "drop"), ("audit", "delete"),
    ]  # fmt: skip


def test_run_removes_what_is_too_old_and_says_so(watchbill: Watchbill, old_database: str) -> None:
    answer = watchbill("retention", "run", "--database-url", old_database)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.splitlines() == [
        "Retention has removed finished_succeeded_20200505",
        "Retention has removed 1 audit rows",
        "The settings: keep_succeeded = 30d, keep_otherwise = 90d, keep_audit = 400d, slot_retention = 90d.",
    ]
    assert [count(old_database, table) for table in ("finished_jobs", "audit", "idempotency")] == [0, 0, 0]
    again = watchbill.here("retention", "run", "--database-url", old_database)
    assert again.stdout.startswith("Nothing is older than the settings keep.\nThe settings: keep_succeeded = 30d, ")


def test_run_counts_unique_keys_with_idempotency_keys(watchbill: Watchbill, schema_database: str) -> None:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("SELECT watchbill.enqueue('t', unique_until => '1 s', now => '2020-05-05')")
    answer = watchbill.here("retention", "run", "--database-url", schema_database)
    assert answer.stdout.splitlines()[0] == "Retention has removed 1 idempotency and unique keys that were over"


def test_run_obeys_the_settings(watchbill: Watchbill, old_database: str) -> None:
    kept = {"WATCHBILL_KEEP_SUCCEEDED": "36500d", "WATCHBILL_KEEP_AUDIT": "36500d"}
    watchbill.here("retention", "run", "--database-url", old_database, **kept)
    assert count(old_database, "finished_jobs") == 1


def test_run_exits_with_1_if_a_reader_holds_the_history(watchbill: Watchbill, old_database: str) -> None:
    with psycopg.connect(old_database) as reader:
        reader.execute("SELECT FROM watchbill.finished_succeeded")
        answer = watchbill.here("retention", "run", "--database-url", old_database)
    assert answer.returncode == 1
    assert "because a transaction reads it" in answer.stdout
    assert count(old_database, "finished_jobs") == 1

"""`watchbill tenants`: quotas and erasure, as an operator uses them."""

from __future__ import annotations

import json

import psycopg

from tests.acceptance.command import Watchbill


def test_an_operator_limits_and_erases_a_tenant(watchbill: Watchbill, schema_database: str) -> None:
    def run(*words: str) -> tuple[int, str]:
        answer = watchbill.here("tenants", *words, "--database-url", schema_database)
        return answer.returncode, answer.stdout.strip() or answer.stderr.strip()

    def ask(*words: str) -> object:
        return json.loads(run(*words, "--json")[1])

    assert run("erase", "acme", "--yes") == (1, "there is nothing of tenant acme")
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("SELECT watchbill.enqueue('send', tenant => 'acme') FROM generate_series(1, 3)")
    limits = ("--running", "2", "--unfinished", "1000000", "--per-minute", "60")
    assert run("set", "acme", *limits) == (0, "acme: running 2, unfinished 1,000,000, per minute 60")
    assert run("set", "acme", "--running", "2") == (1, "acme: running 2, unfinished 1,000,000, per minute 60")
    assert run("set", "acme", "--per-minute", "none")[1] == "acme: running 2, unfinished 1,000,000"
    code, message = run("set", "acme", "--running", "many")
    assert (code, message.splitlines()[0]) == (2, "Error: --running 'many' is invalid.")
    listed = ask("list")
    assert isinstance(listed, list)
    assert [(each["tenant"], each["unfinished"], each["max_running"]) for each in listed] == [("acme", 3, 2)]
    code, shown = run("show", "acme")
    assert code == 0
    assert "unfinished jobs" in shown
    assert run("show", "nobody")[0] == 1
    assert ask("erase", "acme", "--dry-run") == {
        "tenant": "acme",
        "would_delete": {"jobs": 3, "audit": 2, "quotas": 1},
    }
    assert run("erase", "acme", "--yes") == (0, "acme is erased: 6 rows, 0 stored payloads")
    assert ask("list") == []

"""docs/howto/locks.md: its programs, one after the other."""

from __future__ import annotations

from pathlib import Path

import psycopg

from tests.docs.programs import blocks, run_program

PAGE = "howto/locks.md"


def test_programs_of_the_guide_to_locks_run(schema_database: str, tmp_path: Path) -> None:
    printed = run_program("\n".join(blocks(PAGE)), tmp_path, {"DATABASE_URL": schema_database})
    assert printed.splitlines() == ["closing under fence True", "closing under fence True", "closing"]
    with psycopg.connect(schema_database) as connection:
        assert connection.execute("SELECT closed FROM ledger").fetchall() == [(True,)]
        assert connection.execute("SELECT state FROM watchbill.lock").fetchall() == [("free",)]

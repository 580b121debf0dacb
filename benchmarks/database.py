"""The database under test: made anew for each run, and asked what it has written."""

from __future__ import annotations

import time
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from benchmarks.places import ADMIN_DSN, DATABASE, DSN

WRITTEN = """
SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8,
  (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database())::float8,
  (SELECT coalesce(sum(n_tup_upd), 0) FROM pg_stat_user_tables)::float8,
  (SELECT coalesce(sum(n_tup_hot_upd), 0) FROM pg_stat_user_tables)::float8
"""


def make_anew() -> None:
    name = sql.Identifier(DATABASE)
    with psycopg.connect(ADMIN_DSN, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))
        connection.execute(sql.SQL("CREATE DATABASE {}").format(name))


def execute(*statements: LiteralString) -> None:
    with psycopg.connect(DSN, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def settle_down(*, vacuum: bool = True, checkpoint: bool = True) -> None:
    """What an hour of service would have done: statistics, no dead rows, and no checkpoint in the middle of a run."""
    execute("VACUUM ANALYZE" if vacuum else "ANALYZE")
    if checkpoint:
        execute("CHECKPOINT")


class Writes:
    """What the server writes from here on, per job."""

    def __init__(self) -> None:
        self._before = self._read()

    def _read(self) -> list[float]:
        with psycopg.connect(DSN, autocommit=True) as connection:
            row: Any = connection.execute(WRITTEN).fetchone()
        return list(row)

    def per_job(self, jobs: int) -> dict[str, float]:
        time.sleep(0.6)  # a backend's statistics arrive a little later
        wal, commits, updates, hot = (b - a for a, b in zip(self._before, self._read(), strict=True))
        shares = {"hot_share": hot / updates} if updates else {}
        return {"wal_per_job": wal / jobs, "commits_per_job": commits / jobs, **shares}

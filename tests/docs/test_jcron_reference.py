"""Every statement of the page about cron patterns in SQL answers what stands behind it."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg

PAGE = Path(__file__).parents[2] / "docs/reference/jcron.md"
_BLOCK = re.compile(r"```sql\n(.*?)```", re.DOTALL)
_STATEMENT = re.compile(r"(.*?);(?:  -- (.*?))?\n", re.DOTALL)


def test_every_statement_returns_the_documented_answer(schema_database: str) -> None:
    statements = [found for block in _BLOCK.findall(PAGE.read_text()) for found in _STATEMENT.findall(block)]
    assert len([answer for _, answer in statements if answer]) > 10
    with psycopg.connect(schema_database, autocommit=True, options="-c timezone=UTC") as connection:
        for statement, answer in statements:
            cursor = connection.execute(statement.encode())
            if answer:
                shown = connection.execute(b"SELECT (" + statement.encode() + b")::text").fetchone()
                assert shown == (None if answer == "NULL" else answer,), statement
            else:
                assert cursor.description is None, f"says nothing of its answer: {statement}"


def test_every_function_is_described(schema_database: str) -> None:
    with psycopg.connect(schema_database) as connection:
        names = connection.execute("SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'jcron'::regnamespace")
        missing = sorted(
            name for (name,) in names if f"{name}(" not in PAGE.read_text() and f".{name}`" not in PAGE.read_text()
        )
    assert not missing

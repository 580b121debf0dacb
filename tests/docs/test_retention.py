"""docs/howto/retention.md: its settings are valid and its statement runs."""

from __future__ import annotations

import tomllib
from pathlib import Path

import psycopg

from tests.docs.programs import blocks
from watchbill.settings import Settings

PAGE = "howto/retention.md"


def test_retention_guide_shows_the_defaults(tmp_path: Path) -> None:
    [text] = blocks(PAGE, "toml")
    given = Settings.load(project=tmp_path, environ={}, **tomllib.loads(text))
    default = Settings.load(project=tmp_path, environ={})
    for name in ("keep_succeeded", "keep_otherwise", "keep_audit"):
        assert getattr(given, name) == getattr(default, name)


def test_retention_guide_statement_runs(schema_database: str) -> None:
    [statement] = blocks(PAGE, "sql")
    with psycopg.connect(schema_database) as connection:
        assert connection.execute(statement.encode()).fetchall() == [(0,)]

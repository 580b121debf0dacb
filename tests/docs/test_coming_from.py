"""docs/howto/coming_from_*.md run as they stand, and docs/reference/compat.md lists what has no effect."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from tests.compat.walk import Document, split_sql
from tests.docs.programs import DOCS, blocks, run_program
from watchbill.store.facades import Facade, install_facade


def run_page(page: str, schema_database: str, directory: Path) -> list[str]:
    (text,) = blocks(f"howto/{page}")
    variables = {"DATABASE_URL": schema_database}
    return run_program(text, directory, variables, name="shop.py").splitlines()


def test_the_page_for_s3db_runs(schema_database: str, tmp_path: Path) -> None:
    said = run_page("coming_from_s3db.md", schema_database, tmp_path)
    assert sorted(said) == sorted(
        [
            "daily_cleanup {'deleted': 1}",
            "daily_cleanup {'skipped': True, 'reason': 'no_changes'}",
            "{'reason': 'no_changes', 'skipped': True}",
            "daily_cleanup 0 4 * * * True",
            "100.00%",
        ]
    )


def test_the_page_for_seesaw_runs(schema_database: str, tmp_path: Path) -> None:
    *charged, stats = run_page("coming_from_seesaw.md", schema_database, tmp_path)
    assert sorted(charged) == ["charged 7", "charged 8"]
    assert stats == "QueueStats(pending=0, running=0, succeeded=2, failed=0, dead_letter=1)"
    install_facade(schema_database, Facade.choose("watchbill", "seesaw"))
    (statement,) = blocks("howto/coming_from_seesaw.md", "sql")
    with psycopg.connect(schema_database) as connection:
        assert connection.execute(statement.encode()).fetchall() == [("charge", 1)]


def test_the_page_for_jobsync_runs(schema_database: str, tmp_path: Path) -> None:
    install_facade(schema_database, Facade.choose("watchbill", "jobsync"))
    *billed, complete, state = run_page("coming_from_jobsync.md", schema_database, tmp_path)
    assert billed == [f"billed customer-{number}" for number in range(5)]
    assert (complete, state) == ("5 tasks are complete", "[] True True 1")
    (text,) = blocks("howto/coming_from_jobsync.md", "sql")
    tokens, _, audit, _ = split_sql(text)
    with psycopg.connect(schema_database) as connection:
        for statement in split_sql(text):
            connection.execute(statement.encode())
        assert connection.execute(tokens.encode()).fetchall() == [("worker-01", 5001)]
        assert len(connection.execute(audit.encode()).fetchall()) == 5


@pytest.mark.parametrize(("section", "number"), [("s3db", "002"), ("seesaw", "004")])
def test_the_reference_lists_every_parameter_without_effect(section: str, number: str) -> None:
    page = (DOCS / "reference/compat.md").read_text()
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    table = text.partition("| parameter | because |\n|---|---|\n")[2].partition("<!-- end -->")[0]
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (.*?) \|$", table, re.MULTILINE))
    assert rows == Document.load(number).without_effect

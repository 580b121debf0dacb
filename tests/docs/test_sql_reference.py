"""The SQL reference: its blocks run from top to bottom, and it leaves out no function that users may call."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import psycopg

from tests.examples.test_psql_worker import psql

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "sql.md"
SCHEDULES, CRON = PAGE.with_name("schedules_sql.md"), PAGE.with_name("jcron.md")


def test_every_block_of_the_sql_reference_runs(schema_database: str) -> None:
    blocks = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) > 15
    with psycopg.connect(schema_database, autocommit=True) as connection:
        for block in blocks:
            for statement in block.split(";\n"):
                if statement.strip():
                    connection.execute(statement.encode())
        outcomes = connection.execute("SELECT DISTINCT outcome FROM watchbill.attempt").fetchall()
    assert {"succeeded", "failed"} <= {word for (word,) in outcomes}, "the examples did not do what they show"


def test_every_block_about_schedules_runs(schema_database: str) -> None:
    blocks = re.findall(r"```sql\n(.*?)```", SCHEDULES.read_text(), re.DOTALL)
    with psycopg.connect(schema_database, autocommit=True) as connection:
        for block in blocks:
            for statement in block.split(";\n"):
                if statement.strip():
                    connection.execute(statement.encode())
        names = connection.execute("SELECT name FROM watchbill.schedule ORDER BY 1").fetchall()
    assert names == [("nightly",), ("tidy",)], "the examples did not do what they show"


def test_psql_shows_errors_without_context_as_the_page_advises(schema_database: str) -> None:
    (advice,) = re.findall(r"```psql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    wrong = "SELECT watchbill.add_schedule('a', '61 * * * *', type => 'x');\n"
    command = [psql(), "-X", schema_database]
    without = subprocess.run(command, input=wrong, capture_output=True, text=True, check=False).stderr
    advised = subprocess.run(command, input=advice + wrong, capture_output=True, text=True, check=False).stderr
    assert "CONTEXT:" in without
    assert [line.partition(":")[0] for line in advised.splitlines()] == ["ERROR", "DETAIL"]


def test_every_public_function_is_described(schema_database: str) -> None:
    with psycopg.connect(schema_database) as connection:
        names = connection.execute(
            "SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'watchbill'::regnamespace"
        ).fetchall()
    page = PAGE.read_text() + SCHEDULES.read_text() + CRON.read_text()
    missing = sorted(name for (name,) in names if not name.startswith("_") and f"{name}(" not in page)
    assert not missing


def test_every_error_code_is_listed() -> None:
    sources = Path(__file__).parents[2].joinpath("src/watchbill/store/sql").rglob("*.sql")
    raised = {code for file in sources for code in re.findall(r"WB\d{3}", file.read_text())}
    assert raised == set(re.findall(r"WB\d{3}", PAGE.read_text()))

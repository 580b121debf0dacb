"""docs/reference/compat.md and the pages for JCRON and JobForge: their tables are complete and their examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.compat.psql import Psql
from tests.compat.reference import PAGE, write_tables
from tests.compat.walk import Document, split_sql
from tests.docs.programs import blocks, run_program


def test_the_reference_lists_every_statement_that_is_not_run() -> None:
    """`python -m tests.compat.reference` writes the tables."""
    assert PAGE.read_text() == write_tables(PAGE.read_text())
    assert PAGE.name == "compat.md"


def test_a_statement_replaced_by_a_view_names_a_view_that_exists(psql: Psql) -> None:
    reasons = [entry.reason for entry in Document.load("000").not_run]
    named = {word for reason in reasons for word in re.findall(r"(\w+) is a view|creates (\w+) as a view", reason)}
    names = sorted({one or other for one, other in named})
    assert names
    views = psql("SELECT n.name FROM unnest(%s::text[]) n(name) WHERE to_regclass(n.name) IS NULL", names)
    assert views == []


@pytest.mark.parametrize("page", ["howto/coming_from_jcron.md", "howto/coming_from_jobforge.md"])
def test_the_sql_of_a_page_runs_from_top_to_bottom(psql: Psql, page: str) -> None:
    statements = [statement for block in blocks(page, "sql") for statement in split_sql(block)]
    assert len(statements) > 5
    for statement in statements:
        psql(statement)
    if page.endswith("jcron.md"):
        assert psql.one("SELECT count(*) FROM visits") == 1
        assert {row.status for row in psql("SELECT status FROM job_execution_history")} == {"SUCCESS"}
        assert psql.one("SELECT count(*) FROM job_locks") == 0
    else:
        assert psql("SELECT status, result_id = id AS has_result FROM jobforge_jobs") == [("succeeded", True)]


def test_the_worker_of_the_jcron_page_runs_commands(psql: Psql, tmp_path: Path) -> None:
    (program,) = blocks("howto/coming_from_jcron.md")
    (tmp_path / "app.py").write_text(program)
    psql("SELECT add_job('due', '0 0 9 * * *', p_command => 'SELECT 1')")
    psql("UPDATE scheduled_jobs SET next_run = NOW() - INTERVAL '1 second'")
    psql("SELECT enqueue_due_jobs()")
    words = ["worker", "--queues", "jcron", "--once"]
    worker = f"import sys\nfrom watchbill.cli import main\nsys.argv[1:] = {words}\nmain()\n"
    run_program(worker, tmp_path, {"DATABASE_URL": psql.url})
    assert psql("SELECT status FROM job_execution_history") == [("SUCCESS",)]


def test_the_client_of_the_jobforge_page_enqueues(psql: Psql, tmp_path: Path) -> None:
    client, shop = blocks("howto/coming_from_jobforge.md")
    assert run_program(client, tmp_path, {"DATABASE_URL": psql.url}) == "queued\n"
    assert psql.one("SELECT payload->>'month' FROM jobforge_jobs") == "2031-03"
    named = re.match(r"# (\w+\.py)\n", shop)
    assert named
    (tmp_path / named[1]).write_text(shop)
    worker = "import sys\nfrom watchbill.compat.jobforge import main\nsys.exit(main(['shop:app', '--once']))\n"
    run_program(worker, tmp_path, {"DATABASE_URL": psql.url})
    assert psql.one("SELECT result FROM jobforge_job_results") == {"made": "2031-03"}

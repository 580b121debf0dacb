"""docs/howto/job_logs.md: its programs run, and its SQL."""

from __future__ import annotations

from pathlib import Path

import psycopg

from tests.docs.programs import blocks, run_program

PAGE = "howto/job_logs.md"
_RUN = """
jobs = import_orders.enqueue(["a"]), charge.enqueue(7)
with app.node(poll_interval=0.01):
    for job in jobs:
        job.result(timeout=60)
print([len(each.lines) for job in jobs for each in app.jobs.logs(job.id)])
"""


def test_recipes_run_in_one_program(schema_database: str, tmp_path: Path) -> None:
    import_orders, charge = blocks(PAGE)
    program = [
        import_orders,
        charge.replace("...", "import logging; logging.getLogger('shop').warning('%d', order)"),
        _RUN,
    ]
    assert run_program("\n".join(program), tmp_path, {"DATABASE_URL": schema_database}) == "[1]\n"


def test_sql_of_the_page_runs(schema_database: str) -> None:
    (statement,) = blocks(PAGE, "sql")
    with psycopg.connect(schema_database) as connection:
        assert connection.execute(statement.encode()).fetchall() == []

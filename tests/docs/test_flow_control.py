"""docs/howto/limits.md, ordered.md and fairness.md: their programs run, and their arithmetic is that of the code."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from tests.docs.programs import DOCS, blocks, run_program

_RUN = """
import asyncio

asyncio.run(app.make_node(once=True).run())
"""
_LIMITS = (
    """
jobs = [sync.enqueue(7), lookup.enqueue("x"), send.enqueue("a@example.org"), import_orders.enqueue(1)]
jobs += [rebuild.enqueue("docs"), deploy.enqueue("shop", "c0ffee")]
"""
    + _RUN
)
_ORDERED = (
    """
jobs = [apply_event.enqueue(order % 2, f"event {order}") for order in range(6)] + [post.enqueue(1, 5)]
"""
    + _RUN
    + """
print([event for order, event in applied if order == 0])
"""
)
_FAIR = (
    """
for account in (1, 1, 1, 7, 7, 7, 2):
    sync.enqueue(account)
"""
    + _RUN
)


def read_tasks(page: str) -> str:
    """The blocks that declare tasks."""
    return "\n".join(block for block in blocks(f"howto/{page}.md") if "@app.task" in block)


@pytest.mark.parametrize(("page", "program"), [("limits", _LIMITS), ("ordered", _ORDERED), ("fairness", _FAIR)])
def test_flow_control_guide_program_runs(schema_database: str, tmp_path: Path, page: str, program: str) -> None:
    tasks = read_tasks(page)
    said = run_program(tasks + program, tmp_path, {"DATABASE_URL": schema_database})
    with psycopg.connect(schema_database) as connection:
        states = connection.execute("SELECT DISTINCT state FROM watchbill.job").fetchall()
    assert states == [("succeeded",)]
    if page == "ordered":
        assert said.strip() == "['event 0', 'event 2', 'event 4']"


_WHEN_FULL = (
    """
for commit in ("a", "b", "c"):
    deploy.enqueue("shop", commit)
for _ in range(3):
    refresh.enqueue()
"""
    + _RUN
)


def test_limits_guide_replaces_and_discards_jobs(schema_database: str, tmp_path: Path) -> None:
    """One claim meets all of them: the first of each key starts, and is asked to stop for the newest deployment."""
    program = read_tasks("limits") + _WHEN_FULL
    run_program(program, tmp_path, {"DATABASE_URL": schema_database}, name="tasks.py")
    query = "SELECT payload->>'commit', state, error->>'message' FROM watchbill.job WHERE type = %s ORDER BY seq"
    with psycopg.connect(schema_database) as connection:
        deploys = connection.execute(query, ("tasks.deploy",)).fetchall()
        refreshes = connection.execute(query, ("tasks.refresh",)).fetchall()
    assert deploys[1:] == [("b", "canceled", "replaced by a newer job of the same key"), ("c", "succeeded", None)]
    full = (None, "canceled", "limit task:tasks.refresh is full")
    assert refreshes == [(None, "succeeded", None), full, full]


def test_limits_guide_programs_of_operators_and_producers_run(schema_database: str, tmp_path: Path) -> None:
    *_, operator, producer = blocks("howto/limits.md")
    program = "\n".join((read_tasks("limits"), "sync.enqueue(7)", operator, producer))
    said = run_program(program, tmp_path, {"DATABASE_URL": schema_database})
    assert "crm-api 0 0" in said
    with psycopg.connect(schema_database) as connection:
        found = connection.execute("SELECT limit_keys FROM watchbill.jobs ORDER BY seq").fetchall()
        (statement,) = re.findall(r"```sql\n(.*?)```", (DOCS / "howto/limits.md").read_text(), re.S)
        connection.execute(statement.encode())
        found += connection.execute("SELECT limit_keys FROM watchbill.jobs ORDER BY seq DESC LIMIT 1").fetchall()
    assert found == [(["key:account:7", "key:crm-api"],)] * 3


def test_rate_arithmetic_is_that_of_the_database(schema_database: str) -> None:
    text = (DOCS / "howto/limits.md").read_text()
    ((count, step),) = re.findall(r"60 s / \((\d+) - 1\) = ([\d.]+) s", text)
    with psycopg.connect(schema_database) as connection:
        ((found,),) = connection.execute(
            """SELECT span FROM watchbill._read_windows(
                 ARRAY[ROW(%s, interval '1 minute', true)::watchbill.rate], NULL)""",
            (int(count),),
        ).fetchall()
    assert f"{found.total_seconds():.3f}" == step


def test_refused_combinations_are_those_of_the_code() -> None:
    """Each row of the table that a declaration can show is an error there (tests/unit/test_flow_control.py)."""
    table = (DOCS / "howto/limits.md").read_text().partition("## What cannot be combined")[2]
    for words in ("`batch`", "`priority`", "`Debounce`", "two rates", "fair queue"):
        assert words in table

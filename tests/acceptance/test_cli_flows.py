"""`watchbill jobs tree` and `show` of jobs that wait for others, as a person uses them."""

from __future__ import annotations

import json

import psycopg

from tests.acceptance.command import Watchbill


def test_tree_and_show_print_the_dependency_graph(schema_database: str, watchbill: Watchbill) -> None:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        jobs = [
            {"type": "extract"},
            {"type": "load", "depends_on": [0]},
            {"type": "complain", "depends_on": [1], "run_if": "any_failed"},
        ]
        first, middle, _ = [
            row[0]
            for row in connection.execute("SELECT id FROM watchbill.enqueue_many(%s::jsonb)", (json.dumps(jobs),))
        ]
    tree = watchbill.here("--database-url", schema_database, "jobs", "tree", str(middle))
    assert tree.returncode == 0, tree.stderr
    lines = [line.split() for line in tree.stdout.splitlines()]
    assert [line[:2] for line in lines] == [["extract", str(first)], ["└─", "load"], ["└─", "complain"]]
    assert "waits for 1 of 1" in tree.stdout
    assert "runs if any failed" in tree.stdout

    told = json.loads(watchbill.here("--database-url", schema_database, "jobs", "tree", str(first), "--json").stdout)
    assert [job["type"] for job in told["jobs"]] == ["extract", "load", "complain"]
    assert len(told["dependencies"]) == 2

    shown = watchbill.here("--database-url", schema_database, "jobs", "show", str(middle)).stdout
    assert f"waits for  {first}  extract   queued" in shown
    assert "then       " in shown


def test_tree_of_an_unknown_job_is_an_error(schema_database: str, watchbill: Watchbill) -> None:
    unknown = "00000000-0000-7000-8000-000000000000"
    answer = watchbill.here("--database-url", schema_database, "jobs", "tree", unknown)
    assert answer.returncode != 0
    assert f"There is no job {unknown}." in answer.stderr

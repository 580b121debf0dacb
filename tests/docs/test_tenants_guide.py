"""docs/howto/tenants.md: its statements run, and give the job the tenant that they name."""

from __future__ import annotations

import psycopg
import pytest

import watchbill
from tests.docs.programs import blocks


def test_statements_of_the_tenants_guide_name_the_tenant(schema_database: str) -> None:
    [script] = blocks("howto/tenants.md", "sql")
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute(script.encode())
        assert connection.execute("SELECT tenant FROM watchbill.job").fetchall() == [("acme",)]
        assert connection.execute("SELECT current_setting('watchbill.tenant', true)").fetchall() == [("",)]


def test_heartbeat_queries_of_the_tenants_guide_run(schema_database: str) -> None:
    load, alerts, _ = blocks("howto/tenants.md", "psql")
    over_budget, too_many = alerts.strip().splitlines()
    with psycopg.connect(schema_database, autocommit=True) as connection:
        assert [row[0] for row in connection.execute(load.encode())] == [None]  # the sum of all tenants, no more
        for query in (over_budget, too_many):
            assert connection.execute(query.encode()).fetchall() == []


def test_python_of_the_tenants_guide_gives_jobs_the_tenant(
    schema_database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    block, setup, django, fixture, quota, queue = blocks("howto/tenants.md", "python")
    assert '"TENANT_FROM"' in django
    assert "watchbill_tenant" in fixture
    names: dict[str, object] = {"watchbill": watchbill}
    exec(setup, names)
    app = watchbill.App(schema_database, tenant_from=names["tenant"].get)  # type: ignore[attr-defined]

    @app.task
    def send_report(month: int) -> None:
        raise NotImplementedError

    exec(block, {"app": app, "send_report": send_report})
    names["tenant"].set("other")  # type: ignore[attr-defined]
    send_report.enqueue(8)
    exec(quota, {"send_report": send_report})
    app.tenants.set("acme", unfinished=0)
    exec(quota, {"send_report": send_report})
    exec(queue, {})
    app.close()
    with psycopg.connect(schema_database) as connection:
        rows = connection.execute("SELECT tenant FROM watchbill.job ORDER BY seq").fetchall()
    assert rows == [("acme",), ("other",), ("acme",)]
    assert capsys.readouterr().out == "unfinished: 2 of 0 are used; try again after None\n"

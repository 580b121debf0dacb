"""Only a role that acts for all tenants writes, changes or enables a SQL command: workers run it with their own rights,
and return what it reads as the result of a job."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.role_logins import Logins, make_logins
from tests.servers import Server
from tests.store.conftest import template
from watchbill.postgres.checks import examine
from watchbill.postgres.migrate import Source
from watchbill.settings import Settings
from watchbill.store.facades import Facade, install_facade
from watchbill.store.roles import grant_role
from watchbill.store.tenants import enable_tenants

STOLEN = "SELECT * FROM watchbill.jobs"
# `left` has a command that an operator of all tenants wrote and left enabled, `off` one that it disabled, and `plain`
# runs a task. The jobs of `gone` are all that is left of it.
SCHEDULES = """
    SELECT watchbill.add_schedule(name, '@yearly', command => 'SELECT ''' || name || '''', tenant => 'a')
    FROM unnest('{left,off,gone}'::text[]) name;
    SELECT watchbill.add_schedule('plain', '@yearly', type => 'task', tenant => 'a');
    SELECT watchbill.run_schedule(name, 'a') FROM unnest('{left,off,gone}'::text[]) name;
    SELECT watchbill.cancel(id) FROM watchbill.jobs WHERE type = 'watchbill.sql';
    SELECT watchbill.disable_schedule('off', 'a'), watchbill.remove_schedule('gone', 'a');
"""
FIELDS = '{"name": "x", "every": "1 hour", "command": "SELECT 1", "hash": "1"}'
VERBS = (
    f"SELECT watchbill.add_schedule('x', '@daily', command => '{STOLEN}')",
    f"SELECT watchbill.add_schedule('x', '@daily', command => '{STOLEN}', enabled => false)",
    f"SELECT watchbill.add_schedule_from('{FIELDS}'::jsonb - 'hash')",
    f"SELECT watchbill._store_schedule('{FIELDS}'::jsonb - 'hash', NULL)",
    """SELECT watchbill.update_schedule('left', '{"command": "SELECT 1"}')""",
    """SELECT watchbill.update_schedule('left', '{"pattern": "@hourly"}')""",
    """SELECT watchbill.update_schedule('left', '{"name": "other"}')""",
    """SELECT watchbill.update_schedule('off', '{"enabled": true}')""",
    """SELECT watchbill.update_schedule('plain', '{"type": null, "command": "SELECT 1"}')""",
    """SELECT watchbill._change_schedule('plain', '{"type": null, "command": "SELECT 1"}', 'a', NULL)""",
    "SELECT watchbill.enable_schedule('off')",
    "SELECT watchbill.run_schedule('off')",
    """SELECT watchbill.run_schedule('plain', payload => '{"command": "SELECT 1"}') WHERE false
       UNION SELECT id FROM watchbill.enqueue('watchbill.sql', '{"command": "SELECT 1"}')""",
    """SELECT watchbill.enqueue_many('[{"type": "watchbill.sql", "payload": {"command": "SELECT 1"}}]')""",
    """SELECT watchbill.add_schedule('x', '@daily', type => 'watchbill.sql', payload => '{"command": "SELECT 1"}')""",
    """SELECT watchbill.add_schedule('x', '@daily', type => 'watchbill.flow',
       payload => '{"jobs": [{"type": "watchbill.sql", "payload": {"command": "SELECT 1"}}], "ends": [0]}')""",
    """SELECT watchbill.update_schedule('plain', '{"type": "watchbill.sql", "payload": {"command": "SELECT 1"}}')""",
    """SELECT watchbill.update_schedule('plain', '{"type": "watchbill.flow",
       "payload": {"jobs": [{"type": "watchbill.sql"}], "ends": [0]}}')""",
)
PLAIN_SQL = (
    "INSERT INTO watchbill.schedules (tenant, name, every, command) VALUES ('a', 'x', '1 hour', 'SELECT 1')",
    """INSERT INTO watchbill.schedules (tenant, name, every, command, created_by)
       VALUES ('a', 'left', '1 hour', 'SELECT 1', 'postgres')
       ON CONFLICT (tenant, name) DO UPDATE SET command = EXCLUDED.command""",
    """INSERT INTO watchbill.schedules (tenant, name, every, type) VALUES ('a', 'left', '1 hour', 't')
       ON CONFLICT (tenant, name) DO UPDATE SET command = 'SELECT 1'""",
    "UPDATE watchbill.schedules SET command = 'SELECT 1' WHERE name = 'left'",
    "UPDATE watchbill.schedules SET command = command || ', 1' WHERE command IS NOT NULL",
    "UPDATE watchbill.schedules SET type = NULL, command = 'SELECT 1' WHERE name = 'plain'",
    "UPDATE watchbill.schedules SET enabled = true WHERE name = 'off'",
    "UPDATE watchbill.schedules SET every = '1 second', pattern = NULL WHERE name = 'left'",
    "UPDATE watchbill.schedules SET name = 'x' WHERE name = 'left'",
    "UPDATE watchbill.schedules SET role = current_user WHERE name = 'left'",
    "UPDATE watchbill.schedules SET tenant = 'b' WHERE name = 'left'",
    # The app that owns a schedule may make it a SQL command.
    "INSERT INTO watchbill.schedules (tenant, name, type, owner) VALUES ('a', 'x', 't', 'app')",
    "UPDATE watchbill.schedules SET owner = 'app' WHERE name = 'plain'",
    "UPDATE watchbill.schedules SET hash = '1' WHERE name = 'plain'",
    "UPDATE watchbill.schedules SET superseded_hashes = '{1}' WHERE name = 'plain'",
    "UPDATE watchbill.schedules SET declared_definition = '{}' WHERE name = 'plain'",
    """MERGE INTO watchbill.schedules s USING (VALUES (1)) v ON s.name = 'plain'
       WHEN MATCHED THEN UPDATE SET type = NULL, command = 'SELECT 1'""",
)
JCRON = (
    f"SELECT jcron_add_job('x', '0 0 9 * * *', '{STOLEN}')",
    f"INSERT INTO jcron_scheduled_jobs (name, cron_pattern, command) VALUES ('x', '0 0 9 * * *', '{STOLEN}')",
    "UPDATE jcron_scheduled_jobs SET command = 'SELECT 1' WHERE name = 'left'",
    "UPDATE jcron_scheduled_jobs SET enabled = true WHERE name = 'off'",
)


@pytest.fixture(scope="module")
def logins(server: Server) -> Iterator[Logins]:
    url = server.url(server.create_database(template(server)))
    install_facade(url, Facade.choose("watchbill", "jcron", "public", "jcron_"))
    with make_logins(server, url) as made:
        made.add("bound", "operator")
        grant_role(url, "watchbill", f"{made.database}_bound", None, ["a", "b"])
        made.add("bound_worker", "worker")
        worker = sql.Identifier(f"{made.database}_bound_worker")
        made.run(sql.SQL("INSERT INTO watchbill.tenant_roles VALUES ({}, 'a')").format(sql.Literal(worker.as_string())))
        enable_tenants(url, "watchbill")
        for role in ("bound", "bound_worker", "producer"):
            to = sql.Identifier(f"{made.database}_{role}")
            made.run(sql.SQL("GRANT ALL ON ALL TABLES IN SCHEMA public TO {}").format(to))
            made.run(sql.SQL("GRANT EXECUTE ON ALL ROUTINES IN SCHEMA public TO {}").format(to))
        with made.connect("operator") as operator:
            operator.execute(SCHEDULES.encode())
        yield made


def open_session(logins: Logins, role: str) -> psycopg.Connection[Any]:
    session = logins.connect(role)
    session.execute("SET watchbill.tenant = 'a'")
    return session


def find_refusal(session: psycopg.Connection[Any], statement: str) -> psycopg.Error | None:
    try:
        session.execute(statement.encode())
    except psycopg.Error as error:
        return error
    return None


def wait_for_lock(observer: psycopg.Connection[Any], waiter: psycopg.Connection[Any]) -> None:
    while not observer.execute("SELECT pg_blocking_pids(%s) <> '{}'", (waiter.info.backend_pid,)).fetchall()[0][0]:
        pass


def read_commands(logins: Logins) -> list[Any]:
    """Everything that makes a worker run a command."""
    with psycopg.connect(logins.owner_url) as owner:
        return owner.execute("""
            SELECT s.name, s.tenant, s.command, s.role, s.enabled, s.pattern FROM watchbill.schedules s
            WHERE s.command IS NOT NULL
            UNION ALL SELECT j.id::text, j.tenant, j.payload::text, j.wait, NULL, NULL FROM watchbill.jobs j
            WHERE j.type = 'watchbill.sql' ORDER BY 1""").fetchall()


@pytest.mark.parametrize("role", ["bound", "bound_worker", "producer"])
def test_no_way_leads_a_command_of_a_role_of_a_tenant_to_a_worker(logins: Logins, role: str) -> None:
    before = read_commands(logins)
    ways = [*VERBS, *JCRON, *(PLAIN_SQL if role == "bound" else ())]
    with open_session(logins, role) as session, psycopg.connect(logins.owner_url) as owner:
        jobs = owner.execute("SELECT f.id FROM watchbill.finished_jobs f WHERE f.payload->>'command' NOT LIKE '%left%'")
        ways += [f"SELECT watchbill.reschedule('{job}')" for (job,) in jobs]
        for way in ways:
            refused = find_refusal(session, way)
            assert refused is not None, way
            assert refused.sqlstate in ("WB003", "WB013", "42501"), (way, refused)
        if role == "bound":
            copied = "COPY watchbill.schedules (tenant, name, every, command) FROM STDIN"
            with (
                pytest.raises(psycopg.Error, match="not supported with row-level"),
                session.cursor().copy(copied) as copy,
            ):
                copy.write_row(("a", "x", "1 hour", "SELECT 1"))
            assert session.execute("SELECT watchbill.reschedule_many('{canceled}', 'watchbill.sql')").fetchall() == [
                (1,)
            ]
            session.execute("SELECT watchbill.cancel(id) FROM watchbill.jobs WHERE type = 'watchbill.sql'")
        if role == "bound_worker":
            declare = (
                "SELECT watchbill.declare_schedules(watchbill.register('w', app => 'x'), jsonb_build_array(%s::jsonb))"
            )
            with pytest.raises(psycopg.Error, match="register is for all tenants"):
                session.execute(declare, (FIELDS,))
    assert read_commands(logins) == before


def test_bound_operator_stops_commands_of_its_tenant_and_writes_other_schedules(logins: Logins) -> None:
    with open_session(logins, "bound") as session, session.transaction(force_rollback=True):
        session.execute("SELECT watchbill.run_schedule('left')")
        assert session.execute("SELECT watchbill.disable_schedule('left')").fetchall() == [(True,)]
        assert session.execute("SELECT watchbill.remove_schedule('left')").fetchall() == [(True,)]
        session.execute("SELECT watchbill.add_schedule('own', '@daily', type => 'task')")
        session.execute("UPDATE watchbill.schedules SET pattern = '@hourly' WHERE name = 'plain'")


def test_payload_is_refused_if_the_schedule_becomes_a_command_while_the_run_waits(logins: Logins) -> None:
    """The caller's payload would be the command."""
    with logins.connect("operator") as operator, open_session(logins, "bound") as caller, ThreadPoolExecutor() as pool:
        operator.execute("SELECT watchbill.add_schedule('turning', '@yearly', type => 'task', tenant => 'a')")
        try:
            with operator.transaction():
                # The new pattern locks the timer.
                change = '{"type": null, "command": "SELECT 2", "pattern": "@monthly"}'
                operator.execute("SELECT watchbill.update_schedule('turning', %s, 'a')", (change,))
                run = "SELECT watchbill.run_schedule('turning', payload => '{\"command\": \"SELECT stolen\"}')"
                running = pool.submit(find_refusal, caller, run)
                wait_for_lock(operator, caller)
            refused = running.result()
            assert "has no task" in str(refused)
        finally:
            operator.execute("SELECT watchbill.remove_schedule('turning', 'a')")
    assert "stolen" not in str(read_commands(logins))


def test_payload_is_not_executed_if_the_command_becomes_a_task_while_the_run_waits(logins: Logins) -> None:
    with (
        psycopg.connect(logins.owner_url, autocommit=True) as owner,
        open_session(logins, "bound") as bound,
        logins.connect("operator") as operator,
        ThreadPoolExecutor() as pool,
    ):
        operator.execute("SELECT watchbill.add_schedule('turning', '@yearly', command => 'SELECT 1', tenant => 'a')")
        try:
            with bound.transaction():
                change = '{"command": null, "type": "t", "payload": {"command": "stolen"}, "pattern": "@monthly"}'
                bound.execute("SELECT watchbill.update_schedule('turning', %s)", (change,))
                running = pool.submit(find_refusal, owner, "SELECT watchbill.execute_schedule('turning', 'a')")
                wait_for_lock(operator, owner)
            refused = running.result()
            assert "has no SQL command" in str(refused)
        finally:
            operator.execute("SELECT watchbill.remove_schedule('turning', 'a')")


def test_doctor_finds_commands_that_a_role_of_a_tenant_wrote_earlier(
    server: Server, schema_database: str, tmp_path: Path
) -> None:
    settings = Settings.load(project=tmp_path, environ={}, database_url=schema_database)

    def says() -> tuple[str, str]:
        found = {f.check: f for f in examine(Source.of_package("watchbill.store"), lambda: settings, tmp_path)}
        return found["commands"].state, found["commands"].says.partition(": ")[2]

    with make_logins(server, schema_database) as logins, logins.connect("operator") as session:
        add = "SELECT watchbill.add_schedule('verb', '@daily', command => 'SELECT 1', tenant => 'a', created_by => 'x')"
        session.execute(add)
        session.execute(
            "INSERT INTO watchbill.schedules (tenant, name, every, command, created_by)"
            " VALUES ('a', 'default', '1 hour', 'SELECT 1', DEFAULT), ('a', 'forged', '1 hour', 'SELECT 1', 'root')"
        )
        assert says() == ("ok", "")
        grant_role(schema_database, "watchbill", f"{logins.database}_operator", None, ["a"])  # as if it had been bound
        assert says() == ("wrong", "a/default, a/verb.")
        with psycopg.connect(schema_database) as owner:
            owner.execute("""SELECT watchbill.update_schedule('verb', '{"command": "SELECT 1"}', 'a')""")
            owner.execute("SELECT watchbill.remove_schedule('default', 'a')")
        assert says() == ("note", "a/forged.")

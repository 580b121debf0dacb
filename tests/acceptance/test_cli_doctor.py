"""`watchbill doctor`: each test breaks one thing and sees that line, and only that line, fail with the way out."""

from __future__ import annotations

import json
import re
import sys
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.acceptance.command import Watchbill
from tests.pooler import run_pooler
from tests.servers import Server
from watchbill.postgres.checks import Finding, environment, examine, schema
from watchbill.postgres.checks.engine import Engine, judge
from watchbill.postgres.embedded import EmbeddedServer
from watchbill.postgres.migrate import Source, migrate
from watchbill.settings import Settings

REAL = Source.of_package("watchbill.store")


def look(
    project: Path, source: Source = REAL, aids: dict[str, Any] | None = None, **settings: Any
) -> dict[str, Finding]:
    def load() -> Settings:
        return Settings.load(project=project, environ={}, **settings)

    return {finding.check: finding for finding in examine(source, load, project, **(aids or {}))}


def assert_well(findings: dict[str, Finding]) -> None:
    assert [finding for finding in findings.values() if finding.state not in {"ok", "note"}] == []


def assert_only(findings: dict[str, Finding], check: str, says: str, way_out: str) -> None:
    assert [finding.check for finding in findings.values() if finding.state == "wrong"] == [check]
    assert says in findings[check].says
    assert way_out in findings[check].hint


def name_of(database: str) -> str:
    return str(conninfo_to_dict(database)["dbname"])


def run_sql(database: str, *statements: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def test_doctor_finds_no_fault_in_a_migrated_database(schema_database: str, tmp_path: Path) -> None:
    findings = look(tmp_path, database_url=schema_database)
    assert_well(findings)
    assert "not encrypted" in findings["connection"].says


def test_doctor_reports_an_old_python(schema_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watchbill.postgres.checks.environment.sys.version_info", (3, 10, 4, "final", 0))
    findings = look(tmp_path, database_url=schema_database)
    assert_only(findings, "python", "Python 3.10.4 is too old", "3.11 or newer")


def test_doctor_notes_the_slow_psycopg_driver(
    schema_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psycopg.pq, "__impl__", "python")
    finding = look(tmp_path, database_url=schema_database)["python"]
    assert finding.state == "note"
    assert "psycopg[binary]" in finding.hint


def test_doctor_reports_an_invalid_setting(schema_database: str, tmp_path: Path) -> None:
    findings = look(tmp_path, database_url=schema_database, lease="soon")
    assert_only(findings, "settings", "Setting lease='soon' is invalid", "Allowed for lease")
    assert findings["connection"].state == findings["transactions"].state == "skipped"


# The connection.


def test_doctor_reports_a_missing_address(tmp_path: Path) -> None:
    assert_only(look(tmp_path), "connection", "No database address is set", "WATCHBILL_DATABASE_URL")


def test_doctor_reports_an_unreachable_server(tmp_path: Path) -> None:
    findings = look(tmp_path, database_url="postgresql://kai:secret@127.0.0.1:1/shop")
    assert_only(findings, "connection", 'database "shop" at 127.0.0.1:1 as user "kai"', "Start PostgreSQL")
    assert "secret" not in str(findings)


def test_doctor_reports_an_unknown_database(server: Server, tmp_path: Path) -> None:
    findings = look(tmp_path, database_url=server.url("nowhere"))
    assert_only(findings, "connection", 'database "nowhere" does not exist', "Create it")


def test_doctor_reports_an_unknown_role(server: Server, tmp_path: Path) -> None:
    findings = look(tmp_path, database_url=server.url(role="nobody_here"))
    assert_only(findings, "connection", 'role "nobody_here" does not exist', "Create it")


# The server.


@pytest.mark.parametrize(
    ("told", "state", "says"),
    [
        (Engine("PostgreSQL 16.4 on x86_64"), "ok", "PostgreSQL: supported."),
        (Engine("PostgreSQL 15.2-YB-2.25.1.0-b0"), "wrong", "YugabyteDB is not supported"),
        (Engine("CockroachDB CCL v25.1.0"), "wrong", "CockroachDB is not supported"),
        (Engine("PostgreSQL 16.6", has_aurora=True), "ok", "at the cluster endpoint"),
        (Engine("PostgreSQL 17.5", has_neon=True), "note", "scaling to zero"),
        (Engine("PostgreSQL 17.5", has_citus=True), "ok", "on the coordinator only"),
        (Engine("PostgreSQL 17.5", has_citus=True, distributed_tables=3), "wrong", "has distributed 3 tables"),
    ],
)
def test_doctor_names_the_engine(told: Engine, state: str, says: str) -> None:
    finding = judge(told)
    assert (finding.state, says in finding.says) == (state, True)


def test_doctor_compares_the_lease_with_a_failover(schema_database: str, tmp_path: Path) -> None:
    host = conninfo_to_dict(schema_database)["host"]
    several = make_conninfo(schema_database, host=f"{host},{host}")
    finding = look(tmp_path, database_url=several)["failover"]
    assert (finding.state, finding.says) == (
        "note", "2 hosts, lease 30 s: a failover that takes longer than 14 s stops handlers."
    )  # fmt: skip
    assert "60s for Patroni's ttl 20" in finding.hint
    findings = look(tmp_path, database_url=several, lease=60)
    assert (findings["failover"].state, findings["engine"].says) == ("ok", "PostgreSQL: supported.")


def test_doctor_reports_an_old_server(server: Server, schema_database: str, tmp_path: Path) -> None:
    with run_pooler(server, told_version="14.11") as pooler:
        url = pooler.url(name_of(schema_database))
        findings = look(tmp_path, database_url=url, listen_url=schema_database, prepared_statements=False)
    assert_only(findings, "server", "PostgreSQL 14.11 is too old", "15 or newer")


def test_doctor_reports_a_standby(server: Server, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    settings = {"fsync": "off"}
    with EmbeddedServer.acquire(project, binaries=str(server.binaries.directory), settings=settings) as primary:
        migrate(primary.url, "watchbill", REAL)
        with psycopg.connect(primary.url) as connection:
            data = Path(connection.execute("SHOW data_directory").fetchall()[0][0])
    (data / "standby.signal").touch()
    with EmbeddedServer.acquire(project, binaries=str(server.binaries.directory), settings=settings) as standby:
        findings = look(tmp_path, database_url=standby.url)
    assert_only(findings, "server", "is a standby", "Set database_url to the primary")
    assert findings["listen"].state == "skipped"


def test_doctor_reports_a_missing_schema(database: str, tmp_path: Path) -> None:
    assert_only(
        look(tmp_path, database_url=database), "schema", 'no Watchbill schema "watchbill"', "watchbill db migrate"
    )


def test_doctor_reports_clock_skew(schema_database: str, tmp_path: Path) -> None:
    def clock() -> datetime:
        return datetime.now(UTC) + timedelta(seconds=60)

    findings = look(tmp_path, aids={"clock": clock}, database_url=schema_database)
    assert_only(findings, "clock", "is 60 s ahead of the server's", "NTP")


def test_doctor_reports_too_few_connections(schema_database: str, tmp_path: Path) -> None:
    findings = look(tmp_path, database_url=schema_database, pool_size=1000, processes=2)
    told = "up to 8016 connections: 8 of its own and 4 pools of 1000 in each of 2 processes. Only"
    assert_only(findings, "connections", told, "Lower pool_size")
    run_sql(schema_database, f"ALTER DATABASE {name_of(schema_database)} CONNECTION LIMIT 5")
    findings = look(tmp_path, database_url=schema_database)
    assert_only(findings, "connections", "Only 5 are allowed", "database's limit")


def test_doctor_reports_role_defaults_that_we_do_not_override(schema_database: str, tmp_path: Path) -> None:
    run_sql(schema_database, f"ALTER DATABASE {name_of(schema_database)} SET synchronous_commit = off")
    findings = look(tmp_path, database_url=schema_database)
    assert_only(findings, "role defaults", "synchronous_commit is 'off'", "ALTER ROLE")
    run_sql(schema_database, findings["role defaults"].hint)
    assert_well(look(tmp_path, database_url=schema_database))


def test_doctor_reports_other_role_defaults_only_behind_a_pooler(
    server: Server, schema_database: str, tmp_path: Path
) -> None:
    name = name_of(schema_database)
    for setting in (
        "statement_timeout = '1min'",
        "default_transaction_isolation = 'serializable'",
        "DateStyle = 'SQL'",
    ):
        run_sql(schema_database, f"ALTER DATABASE {name} SET {setting}")
    assert_well(look(tmp_path, database_url=schema_database))
    with run_pooler(server) as pooler:
        ready: dict[str, Any] = {"listen_url": schema_database, "prepared_statements": False}
        findings = look(tmp_path, database_url=pooler.url(name), **ready)
        assert_only(findings, "role defaults", "statement_timeout is '60000'", "SET statement_timeout = '0';")
        run_sql(schema_database, *findings["role defaults"].hint.splitlines())
    with run_pooler(server) as pooler:
        assert_well(look(tmp_path, database_url=pooler.url(name), **ready))


def test_doctor_reports_old_transactions(schema_database: str, tmp_path: Path) -> None:
    with psycopg.connect(schema_database, application_name="shop") as user:
        user.execute("SELECT * FROM watchbill.schema_version")
        findings = look(tmp_path, aids={"old_transaction_seconds": 0}, database_url=schema_database)
        pid = user.info.backend_pid
    assert_only(findings, "transactions", f"{pid} (postgres, shop)", f"pg_terminate_backend({pid})")


# Time zones.


@pytest.fixture
def python_zones() -> Iterator[None]:
    yield
    zoneinfo.reset_tzpath()
    zoneinfo.ZoneInfo.clear_cache()


@pytest.mark.usefixtures("python_zones")
def test_doctor_reports_missing_python_time_zones(
    schema_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zoneinfo.reset_tzpath([])
    monkeypatch.setitem(sys.modules, "tzdata", None)
    findings = look(tmp_path, database_url=schema_database)
    assert_only(findings, "zones", "Python has no time zone data", "pip install tzdata")


@pytest.mark.usefixtures("python_zones")
def test_doctor_notes_differing_python_time_zones(schema_database: str, tmp_path: Path) -> None:
    (tmp_path / "zones/Africa").mkdir(parents=True)
    other = resources.files("tzdata") / "zoneinfo/Asia/Tokyo"
    (tmp_path / "zones/Africa/Abidjan").write_bytes(other.read_bytes())
    zoneinfo.reset_tzpath([tmp_path / "zones"])
    zoneinfo.ZoneInfo.clear_cache()
    finding = look(tmp_path, database_url=schema_database)["zones"]
    assert finding.state == "note"
    assert "Africa/Abidjan" in finding.says
    assert "Update the older data" in finding.hint


@pytest.mark.parametrize(
    ("stored", "way_out"),
    [
        ("1999a.1", "Run `watchbill db migrate`: the schema has tzdata 1999a"),
        ("2999z.1", "to 2999z, which the schema has"),
        (None, "built in different ways"),
    ],
)
def test_doctor_reports_differing_zones_in_the_schema(
    schema_database: str, tmp_path: Path, stored: str | None, way_out: str
) -> None:
    run_sql(schema_database, "UPDATE watchbill.zones SET offsets[1] = 60 WHERE name = 'Asia/Kolkata'")
    if stored:
        run_sql(schema_database, f"UPDATE watchbill.zones SET tzdata = '{stored}'")
    findings = look(tmp_path, database_url=schema_database)
    assert_only(findings, "zone table", "would differ in these zones (1): Asia/Kolkata.", way_out)


def test_doctor_notes_missing_zones_in_the_schema(schema_database: str, tmp_path: Path) -> None:
    run_sql(schema_database, "TRUNCATE watchbill.zones")
    finding = look(tmp_path, database_url=schema_database)["zone table"]
    assert (finding.state, finding.hint) == ("note", "Run `watchbill db migrate`.")
    assert "UTC and fixed offsets only" in finding.says


# What stands between.


def test_doctor_reports_a_pooler_in_transaction_mode(server: Server, schema_database: str, tmp_path: Path) -> None:
    with run_pooler(server) as pooler:
        url = pooler.url(name_of(schema_database))
        findings = look(tmp_path, database_url=url)
        assert_only(findings, "pooler", "in transaction mode: LISTEN does not work through it", "WATCHBILL_LISTEN_URL")
        assert findings["listen"].state == "skipped"
        findings = look(tmp_path, database_url=url, listen_url=schema_database)
        assert_only(findings, "pooler", "it loses prepared statements", "Set prepared_statements to false")
        assert_well(look(tmp_path, database_url=url, listen_url=schema_database, prepared_statements=False))


def test_doctor_accepts_a_pooler_in_session_mode(server: Server, schema_database: str, tmp_path: Path) -> None:
    with run_pooler(server, shares=False) as pooler:
        findings = look(tmp_path, database_url=pooler.url(name_of(schema_database)), listen_url=schema_database)
    assert_well(findings)
    assert "session of its own" in findings["pooler"].says


def test_doctor_reports_a_listen_url_of_another_database(
    server: Server, schema_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "_NOTIFICATION_TIMEOUT_SECONDS", 0.2)
    findings = look(tmp_path, database_url=schema_database, listen_url=server.url())
    assert_only(findings, "listen", "No notification arrived", "same server and database")


def test_doctor_reports_an_unreachable_listen_url(schema_database: str, tmp_path: Path) -> None:
    findings = look(tmp_path, database_url=schema_database, listen_url="postgresql://kai@127.0.0.1:1/x")
    assert_only(findings, "listen", "listen_url: Cannot connect", "Start PostgreSQL")


# The embedded server.


def test_doctor_reports_embedded_data_of_another_version(schema_database: str, tmp_path: Path) -> None:
    (tmp_path / ".watchbill/data").mkdir(parents=True)
    (tmp_path / ".watchbill/data/PG_VERSION").write_text("9\n")
    findings = look(tmp_path, database_url=schema_database)
    assert_only(findings, "embedded", "was made by PostgreSQL 9", "Install PostgreSQL 9")


def test_doctor_shows_the_embedded_server_start_time(server: Server) -> None:
    findings = look(server.project)
    assert findings["embedded"].state == "ok"
    assert ".watchbill runs; its last start took " in findings["embedded"].says
    assert "the embedded server of this project" in findings["connection"].says


# The command.


def test_doctor_command_prints_ok_and_exits_with_0(watchbill: Watchbill, schema_database: str) -> None:
    answer = watchbill("doctor", "--database-url", schema_database)
    assert answer.returncode == 0
    assert "ok       schema         watchbill is at version" in answer.stdout


def test_doctor_command_prints_faults_and_exits_with_1(watchbill: Watchbill, database: str) -> None:
    answer = watchbill("doctor", "--database-url", database)
    assert answer.returncode == 1
    assert 'wrong    schema         The database has no Watchbill schema "watchbill".' in answer.stdout
    assert "Run `watchbill db migrate`." in answer.stdout


def test_doctor_command_prints_json(watchbill: Watchbill, database: str) -> None:
    answer = watchbill("doctor", "--json", "--database-url", database)
    assert answer.returncode == 1
    findings = {finding["check"]: finding for finding in json.loads(answer.stdout)}
    assert findings["schema"]["hint"] == "Run `watchbill db migrate`."
    assert findings["python"]["state"] == "ok"


# Jobs.


def test_doctor_reports_due_jobs_that_no_node_can_run(schema_database: str, tmp_path: Path) -> None:
    def findings() -> dict[str, Finding]:
        return look(tmp_path, database_url=schema_database)

    run_sql(schema_database, "SELECT watchbill.enqueue('t', queue => 'mail')", "SELECT watchbill.enqueue('t')")
    assert_only(findings(), "jobs", "queue mail is served by no live node (1 job)", "start `watchbill worker`")
    run_sql(schema_database, """SELECT watchbill.register('w', types => '{"t": 1}', queues => '{default}')""")
    assert_only(findings(), "jobs", "wait for a node: queue mail is", "watchbill worker --queues mail")
    run_sql(schema_database, "SELECT watchbill.pause(queue => 'mail')")
    assert_well(findings())
    run_sql(schema_database, "SELECT watchbill.resume(queue => 'mail')", "UPDATE watchbill.nodes SET queues = NULL")
    assert_well(findings())
    run_sql(schema_database, """SELECT watchbill.enqueue('t', runs_on => '{"gpu": "a100"}')""")
    assert_only(
        findings(), "jobs", 'no live node has the labels {"gpu": "a100"} (1 job)', "watchbill worker --label NAME=VALUE"
    )
    run_sql(schema_database, """UPDATE watchbill.nodes SET labels = '{"gpu": "a100"}'""")
    assert_well(findings())
    run_sql(
        schema_database,
        "SELECT watchbill.enqueue('typo')",
        "UPDATE watchbill.jobs SET wait = 'unsupported', wait_key = '...' WHERE type = 'typo'",
    )
    assert_only(findings(), "jobs", "type typo is handled by no live node (1 job)", "Deploy code that has these tasks")


def test_doctor_reports_delayed_jobs_that_are_due_while_no_node_is_alive(schema_database: str, tmp_path: Path) -> None:
    run_sql(
        schema_database,
        "SELECT watchbill.enqueue('t', delay => '1 hour')",
        "UPDATE watchbill.jobs SET run_at = now() - interval '1 hour'",
    )
    says = "the time of delayed jobs has come (1 job)"
    assert_only(look(tmp_path, database_url=schema_database), "jobs", says, "start `watchbill worker`")


# Schedules.


def test_doctor_shows_the_next_schedule(schema_database: str, tmp_path: Path) -> None:
    assert look(tmp_path, database_url=schema_database)["schedules"].says == "There are none."
    run_sql(schema_database, "SELECT watchbill.add_schedule('report', '0 9 1 1 *', command => 'SELECT 1')")
    findings = look(tmp_path, database_url=schema_database)
    assert_well(findings)
    assert re.fullmatch(r"1; the next is due at \d{4}-01-01 09:00:00 UTC\.", findings["schedules"].says)


def test_doctor_reports_late_schedules(schema_database: str, tmp_path: Path) -> None:
    run_sql(
        schema_database,
        "SELECT watchbill.add_schedule('s' || n, at => now() - interval '2 minutes', command => 'SELECT 1')"
        " FROM generate_series(1, 6) n",
    )
    late = "Of 6: 6 due for more than a minute, and no node fires them (s1, s2, s3, s4, s5, ...)."
    assert_only(look(tmp_path, database_url=schema_database), "schedules", late, "start `watchbill worker`")
    run_sql(schema_database, "SELECT watchbill.register('deaf')")
    assert_only(look(tmp_path, database_url=schema_database), "schedules", late, "run one without --no-scheduler")


def test_doctor_notes_orphaned_schedules_and_overdue_runs(schema_database: str, tmp_path: Path) -> None:
    run_sql(
        schema_database,
        "SELECT watchbill.add_schedule('old', at => now() - interval '1 hour', deadline => '1 minute', type => 't')",
        "SELECT watchbill.tick()",
        "UPDATE watchbill.schedules SET owner = 'shop'",
        "SELECT watchbill.declare_schedules(watchbill.register('n', app => 'shop'), '[]')",
    )
    findings = look(tmp_path, database_url=schema_database)
    assert_well(findings)
    finding = findings["schedules"]
    assert finding.state == "note"
    assert "1 orphaned: no live node declares them (old); 1 run past the deadline (old)" in finding.says
    assert "watchbill schedules remove NAME" in finding.hint
    assert "watchbill schedules history NAME" in finding.hint


def test_doctor_reports_schedules_that_an_earlier_version_stored_without_checks(
    schema_database: str, tmp_path: Path
) -> None:
    chain = """'{"jobs": [{"type": "t", "colour": "red"}], "ends": [0]}'"""
    run_sql(
        schema_database,
        "SELECT watchbill.add_schedule(name, '@yearly', 't') FROM unnest('{slow,chain,good}'::text[]) name",
        "ALTER TABLE watchbill.schedules DISABLE TRIGGER USER",
        "UPDATE watchbill.schedules SET deadline = '2 years' WHERE name = 'slow'",
        f"UPDATE watchbill.schedules SET type = 'watchbill.flow', payload = {chain} WHERE name = 'chain'",
        "ALTER TABLE watchbill.schedules ENABLE TRIGGER USER",
    )
    says = (
        "Of 3: schedule 'slow' is invalid: deadline must be more than 0 and at most 365 days; "
        "schedule 'chain' is invalid: position 0 of its chain: 'colour' is not a field of a job."
    )
    hint = "watchbill schedules update NAME"
    assert_only(look(tmp_path, database_url=schema_database), "schedules", says, hint)
    run_sql(
        schema_database,
        "SELECT watchbill.update_schedule('slow', '{\"deadline\": \"1 hour\"}')",
        "SELECT watchbill.remove_schedule('chain')",
    )
    assert_well(look(tmp_path, database_url=schema_database))


# Claims.


def test_doctor_reports_claimed_jobs_without_a_claim(
    watchbill: Watchbill, schema_database: str, tmp_path: Path
) -> None:
    """Whoever deleted it: the way out that is shown leads out."""
    run_sql(
        schema_database,
        "SELECT watchbill.enqueue('task') FROM generate_series(1, 3)",
        "SELECT watchbill.claim(watchbill.register('one'), max => 2)",
    )
    assert_well(look(tmp_path, database_url=schema_database))
    run_sql(schema_database, "DELETE FROM watchbill.claims")
    findings = look(tmp_path, database_url=schema_database)
    assert_only(findings, "claims", "2 jobs are marked as claimed without a claim", "watchbill jobs release ")
    commands = [line.split() for line in findings["claims"].hint.splitlines()[1:]]
    assert len(commands) == 2
    for _, *words in commands:
        assert watchbill(*words, "--database-url", schema_database).returncode == 0
    assert_well(look(tmp_path, database_url=schema_database))


def test_doctor_skips_a_jobs_table_that_is_too_large(
    schema_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "_MAX_TABLE_BYTES", 8191)
    run_sql(schema_database, "SELECT watchbill.enqueue('task')")
    finding = look(tmp_path, database_url=schema_database)["claims"]
    assert (finding.state, finding.says) == (
        "skipped",
        "Not checked: it would read the whole table jobs (8192 bytes).",
    )


def test_doctor_skips_a_jobs_table_that_reads_too_slowly(
    schema_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "_JOBS_TIMEOUT", "50ms")
    with psycopg.connect(schema_database) as other:
        other.execute("LOCK watchbill.jobs")
        findings = look(tmp_path, database_url=schema_database)
    for check in ("claims", "jobs"):
        assert findings[check].state == "skipped"
        assert findings[check].says == "Not checked: reading the table jobs takes longer than 50ms."


def test_doctor_reports_rights_of_every_role(schema_database: str, tmp_path: Path) -> None:
    run_sql(schema_database, "GRANT EXECUTE ON FUNCTION watchbill.purge TO PUBLIC")
    findings = look(tmp_path, database_url=schema_database)
    assert_only(findings, "roles", "execute on function watchbill.purge(", "watchbill db roles grant")


def test_doctor_reports_a_function_of_the_owner_without_a_fixed_path(schema_database: str, tmp_path: Path) -> None:
    run_sql(schema_database, "ALTER FUNCTION watchbill.guard RESET search_path")
    findings = look(tmp_path, database_url=schema_database)
    assert_only(findings, "roles", "watchbill.guard(uuid,bigint)", "watchbill db migrate")


def test_doctor_notes_that_a_superuser_owns_the_schema(schema_database: str, tmp_path: Path) -> None:
    finding = look(tmp_path, database_url=schema_database)["roles"]
    assert (finding.state, "watchbill db roles create" in finding.hint) == ("note", True)
    assert "Role postgres acts as owner." in finding.says

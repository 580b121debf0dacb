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
from psycopg.conninfo import conninfo_to_dict

from watchbill.postgres.checks import Finding, claims, examine, path
from watchbill.postgres.embedded import EmbeddedServer
from watchbill.postgres.migrate import Source, migrate
from watchbill.settings import Settings
from tests.acceptance.command import Watchbill
from tests.pooler import run_pooler
from tests.servers import Server

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


def test_all_is_well_on_a_migrated_database(schema_database: str, tmp_path: Path) -> None:
    findings = look(tmp_path, database_url=schema_database)
    assert_well(findings)
    assert "not encrypted" in findings["connection"].says


def test_python(schema_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watchbill.postgres.checks.machine.sys.version_info", (3, 10, 4, "final", 0))
    findings = look(tmp_path, database_url=schema_database)
    assert_only(findings, "python", "Python 3.10.4 is too old", "3.11 or newer")


def test_slow_driver(schema_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psycopg.pq, "__impl__", "python")
    finding = look(tmp_path, database_url=schema_database)["python"]
    assert finding.state == "note"
    assert "psycopg[binary]" in finding.hint


def test_settings(schema_database: str, tmp_path: Path) -> None:
    findings = look(tmp_path, database_url=schema_database, lease="soon")
    assert_only(findings, "settings", "Setting lease cannot be 'soon'", "Allowed for lease")
    assert findings["connection"].state == findings["transactions"].state == "skipped"


# The connection.


def test_no_address(tmp_path: Path) -> None:
    assert_only(look(tmp_path), "connection", "No database is known", "WATCHBILL_DATABASE_URL")


def test_nothing_listens(tmp_path: Path) -> None:
    findings = look(tmp_path, database_url="postgresql://kai:secret@127.0.0.1:1/shop")
    assert_only(findings, "connection", 'database "shop" at 127.0.0.1:1 as user "kai"', "Start PostgreSQL")
    assert "secret" not in str(findings)


def test_unknown_database(server: Server, tmp_path: Path) -> None:
    findings = look(tmp_path, database_url=server.url("nowhere"))
    assert_only(findings, "connection", 'database "nowhere" does not exist', "Create it")


def test_unknown_role(server: Server, tmp_path: Path) -> None:
    findings = look(tmp_path, database_url=server.url(role="nobody_here"))
    assert_only(findings, "connection", 'role "nobody_here" does not exist', "Create it")


# The server.


def test_old_server(server: Server, schema_database: str, tmp_path: Path) -> None:
    with run_pooler(server, told_version="14.11") as pooler:
        url = pooler.url(name_of(schema_database))
        findings = look(tmp_path, database_url=url, listen_url=schema_database, prepared_statements=False)
    assert_only(findings, "server", "PostgreSQL 14.11 is too old", "15 or newer")


def test_standby(server: Server, tmp_path: Path) -> None:
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
    assert_only(findings, "server", "is a standby", "Name the primary")
    assert findings["listen"].state == "skipped"


def test_missing_schema(database: str, tmp_path: Path) -> None:
    assert_only(look(tmp_path, database_url=database), "schema", 'no Watchbill schema "watchbill"', "watchbill db migrate")


def test_clock_skew(schema_database: str, tmp_path: Path) -> None:
    def clock() -> datetime:
        return datetime.now(UTC) + timedelta(seconds=60)

    findings = look(tmp_path, aids={"clock": clock}, database_url=schema_database)
    assert_only(findings, "clock", "is 60 s ahead of the server's", "NTP")


def test_too_few_connections(schema_database: str, tmp_path: Path) -> None:
    findings = look(tmp_path, database_url=schema_database, pool_size=1000, processes=2)
    told = "1004 connections per process (4 of its own and the pool) x 2, and one to listen: 2009, but only"
    assert_only(findings, "connections", told, "Lower pool_size")
    run_sql(schema_database, f"ALTER DATABASE {name_of(schema_database)} CONNECTION LIMIT 5")
    findings = look(tmp_path, database_url=schema_database)
    assert_only(findings, "connections", "only 5 are allowed", "database's limit")


def test_role_defaults_that_our_connections_do_not_override(schema_database: str, tmp_path: Path) -> None:
    run_sql(schema_database, f"ALTER DATABASE {name_of(schema_database)} SET synchronous_commit = off")
    findings = look(tmp_path, database_url=schema_database)
    assert_only(findings, "role defaults", "synchronous_commit is 'off'", "ALTER ROLE")
    run_sql(schema_database, findings["role defaults"].hint)
    assert_well(look(tmp_path, database_url=schema_database))


def test_role_defaults_bite_behind_a_pooler_only(server: Server, schema_database: str, tmp_path: Path) -> None:
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


def test_old_transactions(schema_database: str, tmp_path: Path) -> None:
    with psycopg.connect(schema_database, application_name="shop") as user:
        user.execute("SELECT * FROM watchbill.schema_version")
        findings = look(tmp_path, aids={"old_transaction": 0}, database_url=schema_database)
        pid = user.info.backend_pid
    assert_only(findings, "transactions", f"{pid} (postgres, shop)", f"pg_terminate_backend({pid})")


# Time zones.


@pytest.fixture
def python_zones() -> Iterator[None]:
    yield
    zoneinfo.reset_tzpath()
    zoneinfo.ZoneInfo.clear_cache()


@pytest.mark.usefixtures("python_zones")
def test_no_zones(schema_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zoneinfo.reset_tzpath([])
    monkeypatch.setitem(sys.modules, "tzdata", None)
    findings = look(tmp_path, database_url=schema_database)
    assert_only(findings, "zones", "Python has no time zone data", "pip install tzdata")


@pytest.mark.usefixtures("python_zones")
def test_other_zones(schema_database: str, tmp_path: Path) -> None:
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
        ("2999z.1", "Update tzdata on this machine to 2999z, which the schema has"),
        (None, "built in different ways"),
    ],
)
def test_zones_in_the_schema_that_differ(
    schema_database: str, tmp_path: Path, stored: str | None, way_out: str
) -> None:
    run_sql(schema_database, "UPDATE watchbill.zones SET offsets[1] = 60 WHERE name = 'Asia/Kolkata'")
    if stored:
        run_sql(schema_database, f"UPDATE watchbill.zones SET tzdata = '{stored}'")
    findings = look(tmp_path, database_url=schema_database)
    assert_only(findings, "zone table", "would differ in Asia/Kolkata.", way_out)


def test_no_zones_in_the_schema(schema_database: str, tmp_path: Path) -> None:
    run_sql(schema_database, "TRUNCATE watchbill.zones")
    finding = look(tmp_path, database_url=schema_database)["zone table"]
    assert (finding.state, finding.hint) == ("note", "Run `watchbill db migrate`.")
    assert "UTC and offsets only" in finding.says


# What stands between.


def test_pooler_in_transaction_mode(server: Server, schema_database: str, tmp_path: Path) -> None:
    with run_pooler(server) as pooler:
        url = pooler.url(name_of(schema_database))
        findings = look(tmp_path, database_url=url)
        assert_only(findings, "pooler", "in transaction mode: LISTEN does not pass it", "WATCHBILL_LISTEN_URL")
        assert findings["listen"].state == "skipped"
        findings = look(tmp_path, database_url=url, listen_url=schema_database)
        assert_only(findings, "pooler", "it loses prepared statements", "Set prepared_statements to false")
        assert_well(look(tmp_path, database_url=url, listen_url=schema_database, prepared_statements=False))


def test_pooler_in_session_mode(server: Server, schema_database: str, tmp_path: Path) -> None:
    with run_pooler(server, shares=False) as pooler:
        findings = look(tmp_path, database_url=pooler.url(name_of(schema_database)), listen_url=schema_database)
    assert_well(findings)
    assert "session of its own" in findings["pooler"].says


def test_listen_url_of_another_database(
    server: Server, schema_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path, "_PATIENCE", 0.2)
    findings = look(tmp_path, database_url=schema_database, listen_url=server.url())
    assert_only(findings, "listen", "No notification came through", "same server and database")


def test_listen_url_that_leads_nowhere(schema_database: str, tmp_path: Path) -> None:
    findings = look(tmp_path, database_url=schema_database, listen_url="postgresql://kai@127.0.0.1:1/x")
    assert_only(findings, "listen", "listen_url: Cannot connect", "Start PostgreSQL")


# The embedded server.


def test_embedded_server_of_another_version(schema_database: str, tmp_path: Path) -> None:
    (tmp_path / ".watchbill/data").mkdir(parents=True)
    (tmp_path / ".watchbill/data/PG_VERSION").write_text("9\n")
    findings = look(tmp_path, database_url=schema_database)
    assert_only(findings, "embedded", "was made by PostgreSQL 9", "Install PostgreSQL 9")


def test_embedded_server_that_runs_and_its_start(server: Server) -> None:
    findings = look(server.project)
    assert findings["embedded"].state == "ok"
    assert ".watchbill runs; its last start took " in findings["embedded"].says
    assert "the embedded server of this project" in findings["connection"].says


# The command.


def test_the_command_says_ok_and_ends_with_0(watchbill: Watchbill, schema_database: str) -> None:
    answer = watchbill("doctor", "--database-url", schema_database)
    assert answer.returncode == 0
    assert "ok       schema         watchbill is at version" in answer.stdout


def test_the_command_says_what_is_wrong_and_ends_with_1(watchbill: Watchbill, database: str) -> None:
    answer = watchbill("doctor", "--database-url", database)
    assert answer.returncode == 1
    assert 'wrong    schema         The database has no Watchbill schema "watchbill".' in answer.stdout
    assert "Run `watchbill db migrate`." in answer.stdout


def test_the_findings_as_json(watchbill: Watchbill, database: str) -> None:
    answer = watchbill("doctor", "--json", "--database-url", database)
    assert answer.returncode == 1
    findings = {finding["check"]: finding for finding in json.loads(answer.stdout)}
    assert findings["schema"]["hint"] == "Run `watchbill db migrate`."
    assert findings["python"]["state"] == "ok"


# Schedules.


def test_schedules_that_fire(schema_database: str, tmp_path: Path) -> None:
    assert look(tmp_path, database_url=schema_database)["schedules"].says == "There are none."
    run_sql(schema_database, "SELECT watchbill.add_schedule('report', '0 9 1 1 *', command => 'SELECT 1')")
    findings = look(tmp_path, database_url=schema_database)
    assert_well(findings)
    assert re.fullmatch(r"1; the next is due at \d{4}-01-01 09:00:00 UTC\.", findings["schedules"].says)


def test_late_schedules(schema_database: str, tmp_path: Path) -> None:
    run_sql(
        schema_database,
        "SELECT watchbill.add_schedule('s' || n, at => now() - interval '2 minutes', command => 'SELECT 1')"
        " FROM generate_series(1, 6) n",
    )
    late = "Of 6: 6 due for longer than a minute, and nobody fires them (s1, s2, s3, s4, s5, ...)."
    assert_only(look(tmp_path, database_url=schema_database), "schedules", late, "start `watchbill worker`")
    run_sql(schema_database, "SELECT watchbill.register('deaf')")
    assert_only(look(tmp_path, database_url=schema_database), "schedules", late, "let one schedule")


def test_orphaned_schedules_and_overdue_runs(schema_database: str, tmp_path: Path) -> None:
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
    assert "1 orphaned, declared by no live node (old); 1 run that should have ended by now (old)" in finding.says
    assert "watchbill schedules remove NAME" in finding.hint
    assert "watchbill schedules history NAME" in finding.hint


# Claims.


def test_claimed_jobs_that_no_claim_names(watchbill: Watchbill, schema_database: str, tmp_path: Path) -> None:
    """Whoever deleted it: the way out that is shown leads out."""
    run_sql(
        schema_database,
        "SELECT watchbill.enqueue('task') FROM generate_series(1, 3)",
        "SELECT watchbill.claim(watchbill.register('one'), max => 2)",
    )
    assert_well(look(tmp_path, database_url=schema_database))
    run_sql(schema_database, "DELETE FROM watchbill.claims")
    findings = look(tmp_path, database_url=schema_database)
    assert_only(findings, "claims", "2 jobs are claimed and named by no claim", "watchbill jobs release ")
    commands = [line.split() for line in findings["claims"].hint.splitlines()[1:]]
    assert len(commands) == 2
    for _, *words in commands:
        assert watchbill(*words, "--database-url", schema_database).returncode == 0
    assert_well(look(tmp_path, database_url=schema_database))


def test_a_table_that_is_too_large_to_be_read(
    schema_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "_LARGEST", 8191)
    run_sql(schema_database, "SELECT watchbill.enqueue('task')")
    finding = look(tmp_path, database_url=schema_database)["claims"]
    assert (finding.state, finding.says) == (
        "skipped",
        "Not looked at: the table jobs has 8192 bytes, and all of it would be read.",
    )


def test_a_table_that_cannot_be_read_in_time(
    schema_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "_PATIENCE", "50ms")
    with psycopg.connect(schema_database) as other:
        other.execute("LOCK watchbill.jobs")
        finding = look(tmp_path, database_url=schema_database)["claims"]
    assert (finding.state, finding.says) == (
        "skipped",
        "Not looked at: to read the table jobs takes longer than 50ms.",
    )

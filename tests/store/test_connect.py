"""Connections: what a role's defaults cannot break, what a pooler refuses, what a failure says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.pooler import run_pooler
from tests.servers import Server
from watchbill.errors import NoDatabase
from watchbill.postgres.address import Address, describe, find_address, parse_url
from watchbill.postgres.connect import SESSION_DEFAULTS, AsyncConnection, Connection, startup_parameters
from watchbill.settings import Settings

HOSTILE = (
    "default_transaction_isolation = 'serializable'",
    "default_transaction_read_only = on",
    "statement_timeout = '1ms'",
    "lock_timeout = '1ms'",
    "idle_in_transaction_session_timeout = '1ms'",
    "idle_session_timeout = '1h'",
    "standard_conforming_strings = off",
    "DateStyle = 'German'",
    "IntervalStyle = 'iso_8601'",
)
SHOWN = {**SESSION_DEFAULTS, "default_transaction_isolation": "read committed", "DateStyle": "ISO, MDY"}


def set_defaults(database: str, *settings: str) -> None:
    name = conninfo_to_dict(database)["dbname"]
    with psycopg.connect(database, autocommit=True) as connection:
        for setting in settings:
            connection.execute(f"ALTER DATABASE {name} SET {setting}".encode())


@pytest.fixture
def hostile_database(database: str) -> str:
    set_defaults(database, *HOSTILE)
    return database


def test_connect_overrides_role_defaults(hostile_database: str) -> None:
    with Connection.connect(hostile_database, autocommit=True) as connection:
        shown = {name: connection.execute(f"SHOW {name}".encode()).fetchone() for name in SESSION_DEFAULTS}
    assert shown == {name: (SHOWN[name],) for name in SESSION_DEFAULTS}


def test_async_connect_overrides_role_defaults(hostile_database: str) -> None:
    async def ask() -> dict[str, object]:
        async with await AsyncConnection.connect(hostile_database, autocommit=True) as connection:
            return {n: await (await connection.execute(f"SHOW {n}".encode())).fetchone() for n in SESSION_DEFAULTS}

    assert asyncio.run(ask()) == {name: (SHOWN[name],) for name in SESSION_DEFAULTS}


def test_connect_retries_without_options_behind_a_pooler(server: Server, database: str) -> None:
    set_defaults(database, "default_transaction_isolation = 'serializable'", "default_transaction_read_only = on")
    with run_pooler(server) as pooler:
        url = pooler.url(str(conninfo_to_dict(database)["dbname"]))
        with Connection.connect(url) as connection:
            asked = "SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only')"
            assert connection.execute(asked).fetchone() == ("read committed", "off")


def test_url_and_environment_override_our_connection_options(monkeypatch: pytest.MonkeyPatch) -> None:
    given = startup_parameters("postgresql://h/x?options=-c%20statement_timeout%3D5&keepalives=0&application_name=shop")
    assert str(given["options"]).endswith("-c statement_timeout=5")
    assert (given["keepalives"], given["application_name"]) == ("0", "shop")
    monkeypatch.setenv("PGOPTIONS", "-c lock_timeout=7")
    assert str(startup_parameters("postgresql://h/x")["options"]).endswith("-c lock_timeout=7")


def test_several_hosts_default_to_the_primary() -> None:
    assert startup_parameters("postgresql://a,b/x")["target_session_attrs"] == "primary"
    assert "target_session_attrs" not in startup_parameters("postgresql://a/x")
    assert startup_parameters("postgresql://a,b/x?target_session_attrs=any")["target_session_attrs"] == "any"


# Failures.


@pytest.fixture
def guarded(server: Server) -> Iterator[Server]:
    """A server on which the role `guarded` needs a password."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        rules = Path(str(connection.execute("SHOW hba_file").fetchall()[0][0]))
        before = rules.read_text()
        connection.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
        rules.write_text(f"local all guarded scram-sha-256\n{before}")
        connection.execute("SELECT pg_reload_conf()")
        yield server
        rules.write_text(before)
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("DROP ROLE guarded")


def refusal(url: str) -> str:
    with pytest.raises(NoDatabase) as caught:
        Connection.connect(url, connect_timeout=2)
    with pytest.raises(NoDatabase) as caught_async:
        asyncio.run(AsyncConnection.connect(url, connect_timeout=2))
    assert str(caught.value) == str(caught_async.value)
    return str(caught.value)


def test_wrong_password_error_does_not_show_the_password(guarded: Server) -> None:
    message = refusal(guarded.url(role="guarded").replace("guarded@", "guarded:wr%40ng@"))
    assert "the password was refused" in message
    assert 'as user "guarded"' in message
    assert "wr@ng" not in message
    assert "wr%40ng" not in message
    assert "a password is needed" in refusal(guarded.url(role="guarded"))


def test_unknown_role_or_database_error_names_it(server: Server) -> None:
    assert 'role "nobody_here" does not exist' in refusal(server.url(role="nobody_here"))
    assert 'database "per%cent {x}" does not exist' in refusal(server.url("per%cent {x}"))


def test_unreachable_server_error_names_the_cause() -> None:
    assert "nothing listens there" in refusal("postgresql://kai:secret@127.0.0.1:1/x")
    assert "nothing listens there" in refusal("host=/nowhere dbname=x password=secret")
    assert "the host name is unknown" in refusal("postgresql://kai:secret@nohost.invalid/x")
    assert "invalid port number" in refusal("postgresql://kai:secret@127.0.0.1:99999/x")


@pytest.mark.parametrize(
    "url",
    [
        "postgres//kai:secret@h/x",
        "postgresql://kai:100%secret@h/x",
        "postgresql://kai:sec ret@h/x",
        "postgresql://kai:p@secret@h/x",
        "secret",
        "host=h password='secret",
        "postgresql://kai:p@h/x?secret=1",
        "postgresql://kai:sec/ret@h:5/x",
        "postgresql://kai:5/secret@h/x",
        "postgresql://kai:/secret@h/x",
        "postgresql://kai:se/c@ret@h/x",
        "postgresql://kai:sec/ret@/x?host=/tmp",
        "postgresql://kai:secret/x",
    ],
)
def test_malformed_address_error_does_not_quote_the_address(url: str) -> None:
    message = refusal(url)
    assert "is invalid" in message
    assert "secret" not in message
    assert "sec" not in message.replace("second", "")


def test_address_description_contains_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGPORT", "PGUSER", "PGDATABASE"):
        monkeypatch.delenv(name, raising=False)
    assert describe(parse_url("postgresql://kai:secret@h:5/x")) == 'database "x" at h:5 as user "kai"'
    address = Address("postgresql://kai:secret@h/x", "WATCHBILL_DATABASE_URL")
    assert "secret" not in f"{address} {address!r}"


# Where the database is.


def test_find_address_prefers_the_settings(server: Server, tmp_path: Path) -> None:
    settings = Settings.load(project=tmp_path, environ={"DATABASE_URL": "postgresql://h/x"})
    assert find_address(settings, server.project) == Address("postgresql://h/x", "DATABASE_URL")


def test_find_address_finds_a_running_embedded_server(server: Server, tmp_path: Path) -> None:
    settings = Settings.load(project=tmp_path, environ={})
    address = find_address(settings, server.project)
    assert address.origin == "the embedded server of this project"
    Connection.connect(address.url).close()


def test_missing_address_error_lists_every_way_to_set_one(tmp_path: Path) -> None:
    with pytest.raises(NoDatabase, match=r"(?s)WATCHBILL_DATABASE_URL.*watchbill\.toml.*watchbill up"):
        find_address(Settings.load(project=tmp_path, environ={}), tmp_path)
    assert not (tmp_path / ".watchbill").exists()

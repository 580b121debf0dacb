"""docs/howto/roles.md and the commands of docs/howto/tenants.md: they run, and give the rights that the pages state."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.acceptance.command import Watchbill
from tests.docs.programs import blocks
from tests.servers import Server
from watchbill.store.roles import KINDS


@dataclass
class Reader:
    """Types what a page shows, with names of roles that no other test has."""

    server: Server
    database: str
    command: Watchbill

    @property
    def owner_url(self) -> str:
        return self.server.url(self.database)

    def url(self, role: str) -> str:
        return self.server.url(self.database, self.rename(role))

    def rename(self, text: str) -> str:
        for role in ("shop_web", "shop_worker", "acme_app", "billing"):
            text = text.replace(role, f"{self.database}_{role}")
        return text

    def type(self, commands: str) -> str:
        """What the last of the commands has printed."""
        shown = ""
        for line in self.rename(commands).splitlines():
            done = self.command.here(*shlex.split(line)[1:])
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            shown = done.stdout
        return shown

    def execute(self, statements: str) -> None:
        with psycopg.connect(self.owner_url, autocommit=True) as connection:
            connection.execute(self.rename(statements).encode())


@pytest.fixture
def reader(tmp_path: Path, server: Server, schema_database: str) -> Iterator[Reader]:
    database = str(psycopg.conninfo.conninfo_to_dict(schema_database)["dbname"])
    reader = Reader(server, database, Watchbill(tmp_path, {"WATCHBILL_DATABASE_URL": schema_database}))
    yield reader
    with psycopg.connect(reader.owner_url, autocommit=True) as connection:
        pattern = f"{database}\\_%"
        found = connection.execute("SELECT rolname FROM pg_roles WHERE rolname LIKE %s", [pattern]).fetchall()
        for (role,) in found:
            for statement in ("DROP OWNED BY {} CASCADE", "DROP ROLE {}"):
                connection.execute(sql.SQL(statement).format(sql.Identifier(role)))


def make_roles(reader: Reader) -> None:
    _, create, *_ = blocks("howto/roles.md", "bash")
    reader.type(create)


def test_roles_of_the_guide_are_made_and_given_to_programs(reader: Reader) -> None:
    make_roles(reader)
    [logins], [*_, grants] = blocks("howto/roles.md", "psql"), blocks("howto/roles.md", "bash")
    reader.execute(logins)
    shown = reader.type(grants)
    assert {line.split()[0] for line in shown.splitlines()[1:]} == set(KINDS)
    with psycopg.connect(reader.url("shop_web"), autocommit=True) as connection:
        connection.execute("SELECT watchbill.enqueue('report.send')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM watchbill.jobs")
        reader.type("watchbill db roles revoke shop_web producer")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT watchbill.enqueue('report.send')")


def test_commands_of_the_tenants_guide_bind_a_role_to_its_tenant(reader: Reader) -> None:
    make_roles(reader)
    switch, bind, *_ = blocks("howto/tenants.md", "bash")
    assert reader.type(switch.replace("watchbill db roles create\n", "")).startswith("Row security is on")
    reader.execute("CREATE ROLE acme_app LOGIN")
    reader.type(bind)
    with psycopg.connect(reader.url("acme_app"), autocommit=True) as connection:
        with pytest.raises(psycopg.Error, match="invalid here"):
            connection.execute("SELECT watchbill.enqueue('report.send', tenant => 'blue')")
        connection.execute("SELECT watchbill.enqueue('report.send')")
    reader.type("watchbill db roles revoke acme_app --tenant acme\nwatchbill db tenants disable")
    with psycopg.connect(reader.owner_url) as connection:
        assert connection.execute("SELECT tenant FROM watchbill.job").fetchall() == [("acme",)]

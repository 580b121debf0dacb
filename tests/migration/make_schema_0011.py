"""Makes the files of schema_0011 with the last program whose newest migration is 0011.

    git worktree add /tmp/old 916880c
    PYTHONPATH=/tmp/old/src:/tmp/old python tests/migration/make_schema_0011.py

It needs the programs of a PostgreSQL 15. Review the difference before you commit it: ids and times change each time.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import psycopg

from watchbill.postgres.embedded import EmbeddedServer
from watchbill.postgres.embedded.binaries import search_binaries
from watchbill.postgres.migrate import Source, apply_functions
from watchbill.postgres.migration_files import split_statements
from watchbill.store.facades import Facade, install_facade
from watchbill.store.install import install
from watchbill.store.tenants import enable_tenants

HERE = Path(__file__).parent
OWNER = "fixture_owner"  # row security does not bind a superuser
AT = datetime(2024, 1, 15, 3, tzinfo=UTC)  # the time in the schema, so that everything is due whenever it is loaded
ZONES = ["UTC", "Europe/Berlin"]  # the other 600 would be most of the file
_NOISE = re.compile(r"^(--.*|\\(un)?restrict .*)\n", re.MULTILINE)  # psql alone understands \\restrict


def main() -> None:
    source = Source.of_package("watchbill.store")
    assert source.newest == 11, f"this program knows migration {source.newest}; the top of this file says how to run it"
    binaries = next(found for found in search_binaries("auto")[0] if found.major == 15)
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        server = EmbeddedServer.acquire(Path(directory), binaries=str(binaries.directory))
        try:
            make_database(server.url, source)
            for number, section in enumerate(("pre-data", "data", "post-data"), 1):
                text = dump(server.url, binaries.directory, section)
                (HERE / "schema_0011" / f"{number}_{section}.sql").write_text(text)
        finally:
            server.release()


def make_database(url: str, source: Source) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {OWNER} LOGIN")
        connection.execute(f"CREATE DATABASE fixture OWNER {OWNER} TEMPLATE template0")
    owned = psycopg.conninfo.make_conninfo(url, dbname="fixture", user=OWNER)
    install(owned)
    for facade in ("jobforge", "seesaw"):
        install_facade(owned, Facade.choose("watchbill", facade))
    with psycopg.connect(owned, autocommit=True) as connection:
        connection.execute("UPDATE watchbill.installation SET test = true, clock_offset = %s - now()", (AT,))
        apply_functions(owned, "watchbill", source)  # of a schema for tests, whose clock can be moved
        for statement in split_statements((HERE / "fill_schema_0011.sql").read_text()):
            connection.execute(statement.encode())
        connection.execute("UPDATE watchbill.installation SET test = false, clock_offset = '0'")
        apply_functions(owned, "watchbill", source)
        connection.execute("DELETE FROM watchbill.zones WHERE name <> ALL (%s)", (ZONES,))
    enable_tenants(owned, "watchbill")


def dump(url: str, programs: Path, section: str) -> str:
    options = [f"--section={section}", "--no-owner", "--no-privileges", "--inserts", "--rows-per-insert=100"]
    # As the superuser, because row security hides rows from the owner.
    command = [str(programs / "pg_dump"), *options, psycopg.conninfo.make_conninfo(url, dbname="fixture")]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    return re.sub(r"\n{3,}", "\n\n", _NOISE.sub("", text)).lstrip()


if __name__ == "__main__":
    main()

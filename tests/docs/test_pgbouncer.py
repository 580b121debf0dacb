"""docs/howto/pgbouncer.md: a node works with its settings, behind a pooler in transaction mode."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.docs.programs import DOCS, blocks, environment, run_program
from tests.pooler import run_pooler
from tests.servers import Server
from watchbill.settings import Settings

PAGE = "howto/pgbouncer.md"
_LOG_TO_STDOUT = """
import logging
import sys

logging.basicConfig(stream=sys.stdout, format="%(message)s")
"""
_PROGRAM = """
from watchbill import App, Connection

app = App()


@app.task
def write(connection: Connection, number: int) -> int:
    for _ in range(8):
        [(seen,)] = connection.execute("SELECT %s::int", [number]).fetchall()
    return seen


with app.node():
    print(sum(write.enqueue(number).result(timeout=60) for number in range(10)))
"""


@pytest.mark.parametrize("takes_options", [False, True])
def test_pooler_guide_settings_make_a_node_work(
    server: Server, schema_database: str, tmp_path: Path, takes_options: bool
) -> None:
    """`takes_options`: as with `ignore_startup_parameters = options`."""
    given = tomllib.loads(blocks(PAGE, "toml")[0])
    with run_pooler(server, takes_options=takes_options) as pooler:
        given |= {"database_url": pooler.url(urlsplit(schema_database).path[1:]), "listen_url": schema_database}
        (tmp_path / "watchbill.toml").write_text("".join(f"{name} = {json.dumps(given[name])}\n" for name in given))
        assert run_program(_PROGRAM, tmp_path, {}) == "45\n"
        command = [str(Path(sys.executable).parent / "watchbill"), "doctor"]
        done = subprocess.run(command, cwd=tmp_path, env=environment({}), capture_output=True, text=True, check=False)
    assert "A pooler in transaction mode, and Watchbill is configured for it." in done.stdout, done.stdout
    assert "A notification arrives." in done.stdout


def test_pooler_guide_polls_without_a_direct_address(server: Server, schema_database: str, tmp_path: Path) -> None:
    (tmp_path / "watchbill.toml").write_text(blocks(PAGE, "toml")[1])
    with run_pooler(server) as pooler:
        address = {"DATABASE_URL": pooler.url(urlsplit(schema_database).path[1:])}
        program = (
            "import logging\nimport sys\nlogging.basicConfig(stream=sys.stdout, format='%(message)s')\n" + _PROGRAM
        )
        warning, total = run_program(program, tmp_path, address).splitlines()
    assert warning in blocks(PAGE, "text")[0]
    assert total == "45"


def test_pooler_guide_counts_connections_as_doctor_does() -> None:
    stated = f"up to {Settings().worker_connections} connections"
    assert stated in (DOCS / PAGE).read_text()
    assert stated in (DOCS / "howto/nodes.md").read_text()

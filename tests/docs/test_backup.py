"""docs/howto/backup.md: a backup is restored to another server, and workers go on there."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.command import Watchbill
from tests.docs.programs import blocks, run_program
from tests.servers import Server, find_servers
from watchbill.postgres.embedded import Binaries

PAGE = "howto/backup.md"
_TASKS = """
from watchbill import App

app = App(name="shop")


@app.task(type="shop.ship")
def ship(order: int) -> int:
    return order


@app.schedule("0 3 * * *", name="nightly")
@app.task
def report() -> None: ...
"""
_GO_ON = """
import time

from tasks import app, ship

with app.node():
    until = time.monotonic() + 60
    while {job.state for job in app.jobs.list()} != {"succeeded"} and time.monotonic() < until:
        time.sleep(0.05)
    print(ship.enqueue(9).result(timeout=60))
print(sorted({job.state for job in app.jobs.list()}))
"""


def test_a_backup_is_restored_to_another_server_and_workers_go_on(
    schema_database: str, start_server: Callable[[Binaries], Server], tmp_path: Path
) -> None:
    """With two PostgreSQLs the other server is a newer one; with one it is another database of the same server."""
    (tmp_path / "tasks.py").write_text(_TASKS)
    newest, *_ = sorted(find_servers(), key=lambda each: -each.major)
    other = start_server(newest)
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("SELECT watchbill.register('old', lease => '1 second', types => '{\"shop.ship\": 1}')")
        for number in range(3):
            connection.execute("SELECT watchbill.enqueue('shop.ship', jsonb_build_object('order', %s::int))", [number])
        connection.execute("SELECT count(*) FROM watchbill.claim((SELECT epoch FROM watchbill.nodes), max => 1)")
    url, dump = other.url(other.create_database()), tmp_path / "shop.dump"
    for words in (
        ["pg_dump", "--format=custom", f"--file={dump}", schema_database],
        ["pg_restore", f"--dbname={url}", "--no-owner", "--exit-on-error", str(dump)],
    ):
        shown = "".join(blocks(PAGE, "sh"))
        assert [word for word in words[1:] if word.startswith("--") and word.split("=")[0] not in shown] == []
        words[0] = str(newest.directory / words[0])
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    watchbill = Watchbill(tmp_path, {"WATCHBILL_DATABASE_URL": url})
    assert watchbill.here("db", "migrate").returncode == 0
    assert watchbill.here("queues", "pause", "default").returncode == 0
    assert watchbill.here("verify").returncode == 0
    assert "shop.ship" in watchbill.here("jobs", "list", "--state", "running").stdout
    assert watchbill.here("queues", "resume", "default").returncode == 0
    assert run_program(_GO_ON, tmp_path, {"DATABASE_URL": url}) == "9\n['succeeded']\n"
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT payload->>'order', result FROM watchbill.job ORDER BY 1").fetchall()
    assert rows == [("0", 0), ("1", 1), ("2", 2), ("9", 9)], "each job has run once after the backup"


@pytest.mark.parametrize("command", ["db migrate", "db adopt", "queues pause default", "verify", "jobs list"])
def test_the_page_names_what_the_walk_does(command: str) -> None:
    from tests.docs.programs import DOCS

    assert f"watchbill {command}" in (DOCS / PAGE).read_text()

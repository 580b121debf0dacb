"""A worker with two processes ends as a Kubernetes pod does: probes, SIGTERM, its jobs end, exit code 0."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.command import Watchbill
from tests.waiting import until
from tests.worker.test_health import read_metrics

_TASKS = """
import asyncio
from pathlib import Path

from watchbill import App

app = App()


@app.task
async def hold(number: int) -> None:
    Path(f"started-{number}").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.02)
"""


def find_ports(count: int) -> int:
    """The first of some ports in a row that are free now."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            port = int(first.getsockname()[1])
            try:
                for number in range(1, count):
                    socket.create_server(("127.0.0.1", port + number)).close()
            except (OSError, OverflowError):
                continue
            return port


def ask(port: int, page: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", page)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    except OSError as error:
        return 0, str(error)
    finally:
        connection.close()


@pytest.fixture
def port() -> int:
    return find_ports(3)


@pytest.fixture
def worker(schema_database: str, tmp_path: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "tasks.py").write_text(_TASKS)
    watchbill = Watchbill(tmp_path, {"WATCHBILL_DATABASE_URL": schema_database, "WATCHBILL_HEALTH_PORT": str(port)})
    process = subprocess.Popen(
        watchbill.command("worker", "tasks:app", "--processes", "2", "--concurrency", "1"),
        cwd=tmp_path, env=watchbill.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    yield process
    process.kill()
    process.communicate()


def test_a_pod_drains(worker: subprocess.Popen[str], schema_database: str, tmp_path: Path, port: int) -> None:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        for number in range(2):
            connection.execute(
                "SELECT watchbill.enqueue('tasks.hold', jsonb_build_object('number', %s::int))", [number]
            )
        until(lambda: len(list(tmp_path.glob("started-*"))) == 2)
        until(lambda: ask(port, "/health/ready") == (200, "ok\n"))
        assert ask(port, "/health/live") == (200, "ok\n")
        running = read_metrics(ask(port, "/metrics")[1])
        assert sum(value for (name, _), value in running.items() if name == "watchbill_claimed_total") == 2
        assert {labels[:11] for name, labels in running if name == "watchbill_ready"} == {'process="1"', 'process="2"'}

        worker.send_signal(signal.SIGTERM)
        until(lambda: ask(port, "/health/ready")[0] == 503)
        assert "process 1: the node drains; process 2: the node drains" in ask(port, "/health/ready")[1]
        assert ask(port, "/health/live") == (200, "ok\n"), "a pod that drains must not be killed for it"
        assert worker.poll() is None
        (tmp_path / "go").touch()
        assert worker.wait(60) == 0
        rows = connection.execute("SELECT state FROM watchbill.job").fetchall()
    assert rows == [("succeeded",)] * 2

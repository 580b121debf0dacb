"""Tenants move between two cells under load, while the mover is killed: each job ends once, in its order."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.chaos.harness import seed_of_environment
from tests.servers import Server
from tests.store.conftest import template
from tests.waiting import until
from watchbill import App

CODE = """
import os
from pathlib import Path

from watchbill import App, current_job

HERE = Path(__file__).parent
app = App(name="shop", cell_from=lambda tenant: "a")

@app.task(type="count", ordered_by="{key}")
async def count(key: str, number: int) -> None:
    line = f"{current_job().tenant} {key} {number}\\n"
    descriptor = os.open(HERE / "ran", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)
"""


class Shop:
    """Two cells with a worker each, a producer that enqueues for all tenants, and movers that are killed."""

    def __init__(self, directory: Path, urls: dict[str, str], tenants: int, seed: int) -> None:
        self.directory, self.urls, self.random = directory, urls, random.Random(seed)
        self.tenants = [f"tenant-{number}" for number in range(tenants)]
        lines = [f"{cell} = {json.dumps(url)}" for cell, url in urls.items()]
        (directory / "watchbill.toml").write_text("\n".join(["lease = 5", "[cells]", *lines]) + "\n")
        (directory / "app.py").write_text(CODE)
        self.sent: Counter[str] = Counter()
        self._stop = threading.Event()
        self.killed = 0

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("WATCHBILL_", "PG"))}
        command = [sys.executable, "-m", "watchbill.cli", *words]
        with (self.directory / "log").open("ab") as log:
            return subprocess.Popen(command, cwd=self.directory, env=kept, stdout=log, stderr=log)

    def produce(self) -> None:
        """Enqueues numbered jobs for all tenants in turn. The App never learns where a tenant has moved."""
        app = App(cells=self.urls, cell_from=lambda tenant: "a", client_timeout=120)

        @app.task(type="count", ordered_by="{key}")
        async def count(key: str, number: int) -> None: ...

        while not self._stop.is_set():
            for tenant in self.tenants:
                count.using(tenant=tenant).enqueue(f"{tenant}:k", self.sent[tenant])
                self.sent[tenant] += 1
        app.close()

    def move_all(self) -> None:
        for tenant in self.tenants:
            while True:
                mover = self.start("cells", "move", tenant, "--to", "b", "--from", "a")
                try:
                    code = mover.wait(self.random.uniform(0.3, 2.0) if self.random.random() < 0.5 else 120)
                except subprocess.TimeoutExpired:
                    mover.kill()
                    mover.wait()
                    self.killed += 1
                    continue
                assert code == 0, (self.directory / "log").read_text()[-3000:]
                break

    def ran(self) -> list[tuple[str, int]]:
        path = self.directory / "ran"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [(line.split()[0], int(line.split()[2])) for line in lines]

    def run(self) -> None:
        workers = [self.start("worker", "--cell", cell) for cell in self.urls]
        producer = threading.Thread(target=self.produce)
        try:
            producer.start()
            until(lambda: len(self.ran()) > len(self.tenants), patience=120)
            self.move_all()
            self._stop.set()
            producer.join()
            until(lambda: len(self.ran()) >= sum(self.sent.values()), patience=300)
        finally:
            self._stop.set()
            for worker in workers:
                worker.terminate()
            codes = [worker.wait(60) for worker in workers]
        assert codes == [0, 0]

    def unfinished(self) -> dict[str, int]:
        return {cell: self._ask(url, "SELECT count(*) FROM watchbill.jobs") for cell, url in self.urls.items()}

    def finished(self) -> Counter[str]:
        query = "SELECT array_agg(id::text) FROM watchbill.finished_jobs WHERE state = 'succeeded'"
        return Counter(job for url in self.urls.values() for job in self._ask(url, query) or [])

    @staticmethod
    def _ask(url: str, query: Any) -> Any:
        with psycopg.connect(url) as connection:
            return connection.execute(query).fetchall()[0][0]


@pytest.fixture
def cells(server: Server) -> Iterator[dict[str, str]]:
    names = {cell: server.create_database(template(server)) for cell in ("a", "b")}
    yield {cell: server.url(name) for cell, name in names.items()}
    for name in names.values():
        server.drop_database(name)


def check(shop: Shop) -> None:
    shop.run()
    ended = shop.finished()
    assert set(ended.values()) == {1}, "a job has ended in both cells"
    assert len(ended) == sum(shop.sent.values()), "an acknowledged job is lost"
    assert shop.unfinished() == {"a": 0, "b": 0}
    ran: dict[str, list[int]] = {}
    for tenant, number in shop.ran():
        ran.setdefault(tenant, []).append(number)
    assert ran == {tenant: list(range(count)) for tenant, count in shop.sent.items()}, "once each, in order"
    print(f"{len(ended)} jobs, {len(shop.tenants)} tenants moved, {shop.killed} movers killed")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_tenants_move_under_load_while_the_mover_is_killed(cells: dict[str, str], tmp_path: Path) -> None:
    check(Shop(tmp_path, cells, 12, seed_of_environment()))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_two_hundred_tenants_move_under_load_while_the_mover_is_killed(cells: dict[str, str], tmp_path: Path) -> None:
    check(Shop(tmp_path, cells, 200, seed_of_environment()))

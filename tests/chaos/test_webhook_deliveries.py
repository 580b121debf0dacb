"""A thousand webhooks while the workers that send them are killed: each arrives, under one id, and none of a
transaction that was rolled back."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.docs.programs import environment
from tests.waiting import until
from watchbill.connectors import verify_webhook

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ENDPOINTS = 10
ORDERS, IN_TRANSACTION, BETWEEN_KILLS, PATIENCE = 1_250, 10, 150, 120
ROOT = Path(__file__).parents[2]


class Receiver(ThreadingHTTPServer):
    """Notes which orders came under which id. `enough` is set when so many requests came as `wanted` says."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.orders: dict[str, list[int]] = defaultdict(list)
        self.lock, self.enough, self.wanted, self.requests = threading.Lock(), threading.Event(), 0, 0

    def note(self, webhook_id: str, order: int) -> None:
        with self.lock:
            self.orders[webhook_id].append(order)
            self.requests += 1
            if self.requests >= self.wanted:
                self.enough.set()

    def wait_for(self, requests: int) -> None:
        """Waits until so many have come in all."""
        with self.lock:
            self.wanted = requests
            if self.requests < requests:
                self.enough.clear()
        assert self.enough.wait(PATIENCE)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        content = verify_webhook(self.headers.items(), body, SECRET)
        self.server.note(self.headers["webhook-id"], content["data"]["order"])
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def receiving() -> Iterator[Receiver]:
    with Receiver() as receiver:
        thread = threading.Thread(target=receiver.serve_forever)
        thread.start()
        try:
            yield receiver
        finally:
            receiver.shutdown()
            thread.join()


def enqueue_orders(url: str) -> set[int]:
    """Enqueues a webhook per order, ten per transaction, of which each fifth is rolled back. Returns the committed."""
    committed: set[int] = set()
    with closing(psycopg.connect(url)) as connection:
        for first in range(0, ORDERS, IN_TRANSACTION):
            orders = range(first, first + IN_TRANSACTION)
            for order in orders:
                connection.execute(
                    "SELECT watchbill.enqueue('connector.webhook.deliver', jsonb_build_object("
                    "'endpoint', %s::text, 'type', 'order.paid', 'data', jsonb_build_object('order', %s::int)))",
                    [f"e{order % ENDPOINTS}", order],
                )
            if first // IN_TRANSACTION % 5 == 4:
                connection.rollback()
            else:
                connection.commit()
                committed.update(orders)
    return committed


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_thousand_webhooks_arrive_though_their_workers_are_killed(schema_database: str) -> None:
    workers: list[subprocess.Popen[bytes]] = []

    with receiving() as receiver:
        address = f"127.0.0.1:{receiver.server_port}"
        variables = environment(
            {
                "DATABASE_URL": schema_database, "RECEIVER": f"http://{address}", "ENDPOINTS": str(ENDPOINTS),
                "WATCHBILL_SECRET_CHAOS": SECRET, "WATCHBILL_CONNECTOR_ALLOW": address, "WATCHBILL_LEASE": "2s",
            }
        )  # fmt: skip

        def start() -> None:
            command = [sys.executable, "-m", "watchbill.cli", "worker", "tests.chaos.webhook_program:app"]
            workers.append(subprocess.Popen(command, cwd=ROOT, env=variables, stdout=subprocess.DEVNULL))

        with closing(psycopg.connect(schema_database, autocommit=True)) as connection:
            try:
                start()
                known = "SELECT count(*) FROM watchbill.connector_endpoints"
                until(lambda: connection.execute(known).fetchone() == (ENDPOINTS,), PATIENCE)
                start()
                committed = enqueue_orders(schema_database)
                for requests in range(BETWEEN_KILLS, len(committed), BETWEEN_KILLS):
                    receiver.wait_for(requests)
                    workers[0].send_signal(signal.SIGKILL)
                    workers.pop(0).wait(PATIENCE)
                    start()
                until(lambda: not connection.execute("SELECT FROM watchbill.jobs LIMIT 1").fetchall(), PATIENCE)
            finally:
                for worker in workers:
                    worker.kill()
                    worker.wait(PATIENCE)
            ended = connection.execute("SELECT state, count(*) FROM watchbill.job GROUP BY state").fetchall()
    assert ended == [("succeeded", len(committed))]
    assert len(receiver.orders) == len(committed) == 1_000
    assert {len(set(orders)) for orders in receiver.orders.values()} == {1}
    assert {orders[0] for orders in receiver.orders.values()} == committed
    print(f"{receiver.requests - len(committed)} webhooks came twice")

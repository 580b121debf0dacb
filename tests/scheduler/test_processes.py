"""Real worker processes, of which one is killed after the other, and a server that crashes: each second's slot once."""

from __future__ import annotations

import signal
from datetime import datetime, timedelta
from pathlib import Path

import psycopg

from tests.chaos.server import ChaosServer
from tests.chaos.workers import Worker, Workers
from tests.conftest import BINARIES
from tests.waiting import until
from watchbill.store.install import install

SETTINGS = {"lease": "2", "poll_interval": "20ms", "poll_max_interval": "100ms"}
MADE = """
    SELECT j.slot FROM watchbill.job j JOIN watchbill.schedules s ON s.id = j.schedule_id
    WHERE s.name = 'each second' ORDER BY 1"""
RAN = "SELECT count(*) FROM watchbill.slot WHERE name = 'each second' AND outcome = 'succeeded'"
STARTS = "SELECT 1 FROM watchbill.slot WHERE kind = 'start'"
COMMANDS = (
    "SELECT (SELECT count(*) FROM ran), count(*) FROM watchbill.slot WHERE name = 'command' AND outcome = 'succeeded'"
)


SEEN = """
    SELECT 1 FROM watchbill.node n JOIN watchbill.nodes new ON new.pid = %s AND new.declared_at IS NOT NULL
    WHERE n.pid = %s AND n.heartbeat_at > new.started_at"""


def has_seen(server: ChaosServer, new: Worker, old: Worker) -> bool:
    """One that is killed before it could show that it lived when the next one came cannot be told from a dead one."""
    return bool(server.sql(SEEN, new.process.pid, old.process.pid))


def wait_for_more(server: ChaosServer, count: int) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:

        def ran() -> int:
            row = connection.execute(RAN).fetchone()
            return int(row[0]) if row else 0

        so_far = ran()
        until(lambda: ran() >= so_far + count, patience=60)


def test_every_second_has_its_run_whichever_process_dies(tmp_path: Path) -> None:
    with ChaosServer(BINARIES[0]) as server:
        install(server.url)
        server.sql("CREATE TABLE ran (at timestamptz)")
        workers = Workers(tmp_path, tmp_path / "journal", SETTINGS, application="tests.scheduler.application:app")
        try:
            first = workers.start(server.url)
            wait_for_more(server, 2)
            second = workers.start(server.url)
            until(lambda: has_seen(server, second, first), patience=60)
            first.kill()
            wait_for_more(server, 2)
            server.stop(signal.SIGQUIT)
            server.start()
            wait_for_more(server, 2)
            third = workers.start(server.url)
            until(lambda: has_seen(server, third, second), patience=60)
            second.kill()
            until(lambda: len(server.sql("SELECT 1 FROM watchbill.nodes WHERE state = 'lost'")) == 2, patience=60)
            wait_for_more(server, 2)
            workers.stop()
        finally:
            workers.kill_all()
        slots: list[datetime] = [slot for (slot,) in server.sql(MADE)]
        assert slots == [slots[0] + n * timedelta(seconds=1) for n in range(len(slots))]
        assert len(server.sql(STARTS)) == 1, "nodes of the app were alive all the time"
        ((effects, successes),) = server.sql(COMMANDS)
        assert effects == successes > 0

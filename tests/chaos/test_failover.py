"""The primary dies and its standby takes over: workers and producers find it by themselves, and nothing is lost.

Both addresses are in one URL; libpq looks for the one that can be written. Replication is synchronous, so that what
was acknowledged is there.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.command import Watchbill
from tests.chaos import journal
from tests.chaos.checker import check
from tests.chaos.harness import PAUSED_KEYS, SETTINGS, seed_of_environment
from tests.chaos.history import History
from tests.chaos.producers import Producer, job_that_dies_and_pauses_its_key
from tests.chaos.server import ChaosServer
from tests.chaos.workers import Workers
from tests.servers import _place, find_servers
from tests.waiting import until
from watchbill import App
from watchbill.errors import NoDatabase
from watchbill.postgres.embedded import Binaries, supervisor
from watchbill.postgres.embedded.account import find_server_account
from watchbill.postgres.embedded.binaries import find_programs
from watchbill.postgres.embedded.home import find_home
from watchbill.postgres.embedded.launch import Launch, start_watcher

JOBS = 80


class Standby:
    """A copy of the primary that follows it until it is promoted."""

    def __init__(self, primary: ChaosServer, binaries: Binaries) -> None:
        self._binaries = binaries
        self.directory = Path(tempfile.mkdtemp(prefix="watchbill-chaos-", dir=_place()))
        self.directory.chmod(0o755)
        self._home = find_home(self.directory)
        self._home.make()
        self._hold = supervisor.add_holder(self._home.root)
        start_watcher(self._home)
        self._copy(primary)
        Launch(self._home, str(binaries.directory), {"fsync": "off", "max_connections": "300"}).run()
        until(lambda: primary.sql("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"))
        primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.sql("SELECT pg_reload_conf()")
        until(lambda: primary.sql("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"))

    def _copy(self, primary: ChaosServer) -> None:
        account = find_server_account(self._home.data)
        program = find_programs(self._binaries, account) / "pg_basebackup"
        self._home.data.mkdir(mode=0o700)
        os.chown(self._home.data, account.uid, account.gid)
        words = ["--username", "postgres", "--write-recovery-conf", "--checkpoint", "fast", "--no-sync"]
        made = account.run(
            [str(program), "--host", str(primary.socket.parent), "--pgdata", str(self._home.data), *words]
        )
        assert made.returncode == 0, made.stdout

    @property
    def url(self) -> str:
        return self._home.url()

    def promote(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            assert connection.execute("SELECT pg_promote()").fetchone() == (True,)

    def close(self) -> None:
        os.close(self._hold)
        supervisor.stop_unless_held(self._home.root)
        shutil.rmtree(self.directory, ignore_errors=True)


@pytest.fixture
def binaries() -> Binaries:
    return find_servers()[0]


@pytest.fixture
def primary(binaries: Binaries) -> Iterator[ChaosServer]:
    with ChaosServer(binaries) as server:
        yield server


@pytest.fixture
def standby(primary: ChaosServer, binaries: Binaries) -> Iterator[Standby]:
    standby = Standby(primary, binaries)
    yield standby
    standby.close()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    workers = Workers(tmp_path, tmp_path, SETTINGS | {"lease": "10"})
    yield workers
    workers.kill_all()


def test_a_standby_is_read_and_refuses_changes(standby: Standby, tmp_path: Path) -> None:
    shown = Watchbill(tmp_path)("--database-url", standby.url, "db", "status")
    assert "a standby, which takes no changes" in shown.stdout
    assert shown.returncode == 0
    changes: list[Callable[[App], object]] = [lambda app: app.enqueue("t"), lambda app: app.queues.pause("default")]
    for change in changes:
        app = App(standby.url, client_timeout=0.2)
        assert app.jobs.list() == []
        with pytest.raises(NoDatabase, match="is a standby") as caught:
            change(app)
        assert "Give the address of the primary" in str(caught.value)
        app.close()


@pytest.mark.timeout(300)
def test_failover_to_the_standby_loses_no_job(
    primary: ChaosServer, standby: Standby, workers: Workers, tmp_path: Path
) -> None:
    there = f"{primary.socket.parent},{standby.url.partition('host=')[2].partition('&')[0]}"
    url = f"postgresql://postgres@/watchbill?host={there}&port=5432,5432&target_session_attrs=read-write"
    running = [workers.start(url), workers.start(url, "--processes", "2")]
    producer = Producer(url, journal.Journal(tmp_path), seed_of_environment(), JOBS, pace=0.02)
    until(lambda: primary.sql("SELECT count(*) FROM watchbill.nodes") == [(3,)])
    producer.send(job_that_dies_and_pauses_its_key())
    producer.start()
    until(lambda: _ends(tmp_path) > JOBS / 4)
    primary.stop(signal.SIGQUIT)
    standby.promote()
    producer.join(60)
    assert producer.failure is None
    until(lambda: not _left(standby.url, journal.Journal(tmp_path)), patience=60)
    for worker in running:
        worker.signal(signal.SIGTERM)
        assert worker.process.wait(60) == 0, worker.text()
    history = History.of_records(journal.read(tmp_path))
    history.read_tables(standby.url)
    assert check(history) == []
    timelines = {row["fence"] >> 40 for row in history.tables["finished_jobs"] if row["fence"]}
    assert len(timelines) == 2, "fences of the new primary are greater than any that the old one may have given"
    assert workers.complaints() == []


def _ends(directory: Path) -> int:
    return sum(record["what"] == "end" for record in journal.read(directory))


def _left(url: str, records: journal.Journal) -> int:
    """What only ends when it is canceled is canceled, and keys that a dead job pauses are freed."""
    with psycopg.connect(url, autocommit=True) as connection:
        # Counted before keys are freed: a job that dies after that pauses its key.
        left = connection.execute("SELECT FROM watchbill.jobs UNION ALL SELECT FROM watchbill.claims").rowcount
        for (job,) in connection.execute(
            "SELECT id FROM watchbill.jobs WHERE type = 'long' AND NOT canceling"
        ).fetchall():
            ((answer,),) = connection.execute("SELECT watchbill.cancel(%s)", (job,)).fetchall()
            records.write("cancel", id=job, answer=answer)
        for key, _ in connection.execute(PAUSED_KEYS).fetchall():
            records.write("clear", key=key)
            connection.execute("SELECT watchbill.clear_limit(%s)", (key,))
        return left

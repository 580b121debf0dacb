"""What runs in the namespaces of the failover test: it prepares the database, sends jobs, watches servers, and judges.

    python -m tests.hosts.programs COMMAND ARGUMENTS...

The test itself cannot reach the hosts. It reads what these programs write to their journals.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.chaos import journal
from tests.chaos.application import app
from tests.chaos.checker import check
from tests.chaos.history import History, Sent
from tests.hosts.cluster import prepare_database
from tests.waiting import until
from watchbill.errors import NoDatabase, WatchbillError
from watchbill.model.ids import new_id
from watchbill.postgres.connect import Connection
from watchbill.store.install import install

TRANSACTIONAL = ("write_async", "write_thread")
BACKLOG = 300  # jobs that wait when a fault begins, so that workers have work when it ends
POLL_SECONDS = 0.1
_STANDBYS = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
_SCHEDULE = """
    SELECT watchbill.add_schedule('each second', every => '1s', type => 'quick', overlap => 'allow', priority => -5)"""
_TWICE = """
    SELECT count(*) FROM (
      SELECT FROM watchbill.finished_jobs WHERE slot IS NOT NULL
      GROUP BY schedule_id, slot HAVING count(*) > 1) twice"""


def prepare(url: str) -> None:
    """Makes the database, the schema, a schedule of every second and the tables of the checker."""
    server = make_conninfo(url, dbname="postgres")
    until(lambda: _has_primary_with_standbys(server), patience=180)
    with Connection.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(str(conninfo_to_dict(url)["dbname"]))))
    install(url, "watchbill", "jcron")
    prepare_database(url)
    with Connection.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE written (at timestamptz NOT NULL DEFAULT clock_timestamp())")
        connection.execute(_SCHEDULE)


def _has_primary_with_standbys(url: str) -> bool:
    try:
        with Connection.connect(url) as connection:
            return connection.execute(_STANDBYS).fetchone() == (2,)
    except NoDatabase:
        return False


def send(seed: str, pace: str, directory: str) -> None:
    """Enqueues jobs through an App, one after the other, each acknowledged in the journal before the next; and a
    backlog whenever a file asks for one. Ends when the file `stop` is there."""
    records, random = journal.Journal(Path(directory, "journal")), Random(int(seed))
    asked, stop = Path(directory, f"backlog-{os.getpid()}"), Path(directory, "stop")
    while not stop.exists():
        if asked.exists():
            ids = [new_id() for _ in range(BACKLOG)]
            for job_id in ids:
                records.write("sent", id=job_id, type="pause", arguments={"seconds": 0.5})
            for sent in app.enqueue_many(app.tasks["pause"].using(id=each, priority=5).bind(0.5) for each in ids):
                records.write("acknowledged", id=sent.id, answer=sent.id, created=sent.created)
            asked.unlink()
        kind, arguments = random.choice(_KINDS)
        job_id = new_id()
        records.write("sent", id=job_id, type=kind, arguments=arguments)
        began = time.time()
        while True:
            try:
                sent = app.tasks[kind].using(id=job_id).enqueue(**arguments)
                break
            except WatchbillError as error:
                records.write("gave_up", id=job_id, error=str(error), after=time.time() - began)
        records.write("acknowledged", id=job_id, answer=sent.id, created=sent.created, asked=began)
        time.sleep(float(pace))


_KINDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("quick", {}), ("quick", {}), ("write_async", {"seconds": 0.1}), ("write_thread", {"seconds": 0.1}),
    ("in_thread", {"seconds": 0.1}),
)  # fmt: skip


def watch(urls: str, directory: str) -> None:
    """Writes when a host becomes the primary, when it first commits, and how many standbys follow it."""
    threads = [threading.Thread(target=_watch_host, args=(url, directory)) for url in urls.split()]
    for thread in threads:
        thread.start()


def _watch_host(url: str, directory: str) -> None:
    records, host = journal.Journal(Path(directory, "watched")), str(conninfo_to_dict(url)["host"])
    state: Any = None
    limits = {"connect_timeout": 2, "tcp_user_timeout": 2000, "options": "-c statement_timeout=2s"}
    while True:
        try:
            with psycopg.connect(url, autocommit=True, **limits) as connection:  # type: ignore[arg-type]
                # A commit whose wait for the standby is cut short succeeds all the same, with a warning.
                warnings: list[object] = []
                connection.add_notice_handler(warnings.append)
                while True:
                    ((is_standby,),) = connection.execute("SELECT pg_is_in_recovery()").fetchall()
                    if not is_standby and state is None:
                        records.write("primary", host=host)
                        state = "primary"
                    if not is_standby:
                        ((standbys,),) = connection.execute(_STANDBYS).fetchall()
                        connection.execute("INSERT INTO written DEFAULT VALUES")
                        if warnings:
                            warnings.clear()
                        elif state != standbys:
                            records.write("writes", host=host, standbys=standbys)
                            state = standbys
                    else:
                        state = None
                    time.sleep(POLL_SECONDS)
        except psycopg.Error:
            if state not in (None, "primary"):
                state = None
            time.sleep(POLL_SECONDS)


def left(url: str, directory: str) -> None:
    """Waits until every job has ended."""
    with Connection.connect(url, autocommit=True) as connection:
        connection.execute("SELECT watchbill.remove_schedule('each second')")
        until(lambda: connection.execute("SELECT FROM watchbill.jobs LIMIT 1").rowcount == 0, patience=180)
    Path(directory, "nothing-left").touch()


def judge(url: str, directory: str) -> None:
    """Writes what the checker says, with the counts, as JSON to the file `verdict`."""
    history = History.of_records(journal.read(Path(directory, "journal")))
    with Connection.connect(url) as connection:  # finds the primary among the hosts
        history.read_tables(make_conninfo(url, host=connection.info.host, port=connection.info.port))
    with Connection.connect(url, autocommit=True) as connection:
        ((slots,),) = connection.execute("SELECT count(*) FROM watchbill.slots WHERE outcome = 'succeeded'").fetchall()
        ((slots_twice,),) = connection.execute(_TWICE).fetchall()
        ((lost_nodes,),) = connection.execute("SELECT count(*) FROM watchbill.nodes WHERE state = 'lost'").fetchall()
    for row in [*history.tables["jobs"], *history.tables["finished_jobs"]]:
        if row["slot"] is not None:  # the scheduler has sent it
            job = str(row["id"])
            history.sent[job] = Sent(job, row["type"], None, fate="acknowledged", answers=[(job, True)])
    known = {str(row["id"]) for table in ("jobs", "finished_jobs") for row in history.tables[table]}
    acknowledged = [sent for sent in history.sent.values() if sent.fate == "acknowledged"]
    transactional = {sent.id for sent in acknowledged if sent.type in TRANSACTIONAL}
    effects = Counter(job for job, _ in history.effects)
    verdict = {
        "violations": [str(violation) for violation in check(history)],
        "acknowledged": len(acknowledged),
        "lost": sum(sent.id not in known for sent in acknowledged),
        "transactional": len(transactional),
        "twice": sum(effects[job] > 1 for job in transactional),
        "slots": slots,
        "slots_twice": slots_twice,
        "lost_nodes": lost_nodes,
    }
    Path(directory, "verdict").write_text(json.dumps(verdict))


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(levelname)-7s %(name)s: %(message)s", datefmt="%H:%M:%S")
    programs: dict[str, Callable[..., None]] = {
        "prepare": prepare, "send": send, "watch": watch, "left": left, "judge": judge,
    }  # fmt: skip
    programs[sys.argv[1]](*sys.argv[2:])

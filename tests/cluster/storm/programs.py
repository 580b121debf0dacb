"""The processes of a storm: `python -m tests.cluster.storm.programs member|worker URL NAME LEASE JOURNAL SEED`.

A member works on the items of the keys that it owns. A worker runs routed, ordered jobs. Both do the same: they read a
number from the ledger of the key, and write one more, in a transaction that checks their fence. So work of two nodes at
one time would lose a number, whatever their clocks say. They leave politely on SIGTERM.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psycopg

from tests.chaos.journal import Journal
from tests.cluster.storm.recorded import ITEM_KEYS, ITEMS, JOBS, TOTAL
from watchbill import App, Connection, Member, Retry, Task, WatchbillError, current_job
from watchbill.errors import NoDatabase

NO_DATABASE = 3
HANDOVER_SECONDS = 4.0
PAUSE_SECONDS = 0.05
SOON = Retry(max_attempts=1000, backoff="fixed", base=0.1)
READ = "SELECT value, clock_timestamp() FROM public.ledger WHERE key = %s"
WRITE = "UPDATE public.ledger SET value = %s WHERE key = %s"
RECORD = """INSERT INTO public.works (key, fence, epoch, value, sequence, began, ended)
    VALUES (%s, %s, %s, %s, %s, %s, clock_timestamp())"""


def is_asked_to_leave(seconds: float = PAUSE_SECONDS) -> bool:
    """Whether SIGTERM has come, which `main` blocks in all threads.

    A handler that sets a threading.Event does not do: if the signal comes while this thread is inside `Event.wait`, the
    handler waits for the lock of the event that its own thread holds, for ever.
    """
    time.sleep(seconds)
    return signal.SIGTERM in signal.sigpending()


def work(connection: psycopg.Connection[Any], key: str, fence: int, epoch: int, sequence: int | None = None) -> None:
    """In the caller's transaction, which has checked the fence or will do so before it commits."""
    ((value, began),) = connection.execute(READ, (key,)).fetchall()
    time.sleep(random.choice((0.0, 0.0, 0.005, 0.05)))
    connection.execute(WRITE, (value + 1, key))
    connection.execute(RECORD, (key, fence, epoch, value + 1, sequence, began))


def run_member(app: App, url: str, name: str, lease: float, journal: Journal) -> None:
    group = app.cluster.group(ITEMS, tokens=TOTAL, handover_timeout=HANDOVER_SECONDS)
    with group.join(name, wait=0) as member, contextlib.ExitStack() as stack:
        connection: psycopg.Connection[Any] | None = None
        while True:
            owned = record_answers(member, journal)
            try:
                if connection is None or connection.closed:
                    connection = stack.enter_context(connect(url, lease))
                for key in random.sample(owned, min(3, len(owned))):
                    work_on_item(member, key, connection)
            except (psycopg.Error, WatchbillError):
                if connection is not None:
                    connection.close()
            if is_asked_to_leave():
                return


def record_answers(member: Member, journal: Journal) -> list[str]:
    epoch, began = member.epoch, time.time()
    numbers = [number for number, key in enumerate(ITEM_KEYS) if member.owns(key)]
    ended = time.time()
    if numbers and member.epoch == epoch:
        journal.write("owns", epoch=epoch, began=began, ended=ended, keys=numbers)
    return [ITEM_KEYS[number] for number in numbers]


def connect(url: str, lease: float) -> psycopg.Connection[Any]:
    """A frozen transaction that has checked its fence keeps the next owner out, so the server must end it."""
    limits = f"-c idle_in_transaction_session_timeout={int(lease * 1000)} -c statement_timeout={int(lease * 2000)}"
    return psycopg.connect(url, autocommit=True, options=limits, connect_timeout=2)


def work_on_item(member: Member, key: str, connection: psycopg.Connection[Any]) -> None:
    with member.claim(key) as item, connection.transaction():
        item.check(connection)
        work(connection, key, item.fence, member.epoch)


def declare_work(app: App) -> Task[..., None]:
    app.cluster.group(JOBS, tokens=TOTAL, handover_timeout=HANDOVER_SECONDS)

    @app.task(type="work", queue="work", route_by="{key}", group=JOBS, ordered_by="{key}", retry=SOON)
    def work_on_job(connection: Connection, key: str, sequence: int) -> None:
        fence = current_job().fence
        claims = connection.execute("SELECT epoch FROM watchbill.claims WHERE fence = %s", (fence,)).fetchall()
        work(connection, key, fence, claims[0][0] if claims else 0, sequence)

    return work_on_job


def run_worker(app: App, name: str) -> None:
    declare_work(app)
    with app.node(node_name=name, concurrency=4, drain_timeout=3):
        while not is_asked_to_leave():
            pass


def main(kind: str, url: str, name: str, lease: str, journal: str, seed: str) -> None:
    random.seed(int(seed))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    faulthandler.register(signal.SIGUSR1)  # the storm asks for the stacks of a process that does not end
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)  # its connections are meant to break
    app = App(url, lease=lease, poll_interval="50ms", poll_max_interval="500ms", node_name=name)
    try:
        if kind == "member":
            run_member(app, url, name, float(lease), Journal(Path(journal)))
        else:
            run_worker(app, name)
    except NoDatabase:
        os._exit(NO_DATABASE)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Whether an old snapshot slows a queue down: drain after churn, with a transaction held open all the time or without.

As long as it is open nothing that was deleted since can be vacuumed away, and every look at the queue walks over it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from benchmarks import database
from benchmarks.contestant import Contestant
from benchmarks.measures.drain import drain_loaded
from benchmarks.measures.sizes import Run, Sizes
from benchmarks.places import DSN


def clean(contestant: Contestant, sizes: Sizes) -> Run:
    contestant.set_up()
    return _after_churn(contestant, sizes, vacuum=True)


def held(contestant: Contestant, sizes: Sizes) -> Run:
    contestant.set_up()
    with _old_snapshot():
        return _after_churn(contestant, sizes, vacuum=False)


@contextmanager
def _old_snapshot() -> Iterator[None]:
    with psycopg.connect(DSN) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT 1")
        yield
        connection.rollback()


def _after_churn(contestant: Contestant, sizes: Sizes, *, vacuum: bool) -> Run:
    peer = contestant.peer
    jobs = sizes.jobs_of(peer) * peer.workers
    contestant.call("bulk", sizes.churn)
    database.execute("ANALYZE")
    contestant.call("churn", sizes.churn)
    contestant.call("bulk", jobs)
    database.settle_down(vacuum=vacuum)
    return drain_loaded(contestant, jobs, peer.workers, sizes.window)

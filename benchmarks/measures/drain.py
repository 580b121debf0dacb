"""How fast workers empty a queue of no-ops.

The clock starts when every worker has begun its first job, so that starting up is not measured, and stops when nothing
is left in the database; where that cannot be asked, when every handler has run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg

from benchmarks import database
from benchmarks.contestant import Contestant, Failed
from benchmarks.machine import usage
from benchmarks.measures.sizes import Run, Sizes
from benchmarks.places import DSN

LONGEST = 240.0
KEYS_WINDOW = 60.0
TIME_TO_START = 40.0
SECOND_WORKER = 8.0  # after so many seconds those that have begun are all there will be


def drain(contestant: Contestant, sizes: Sizes, workers: int = 1, *, checkpoint: bool = True) -> Run:
    """With what was written per job: WAL from the enqueue on, commits and HOT updates of the workers.

    After the checkpoint between enqueue and work the first touch of each page writes an image of it, which counts too.
    """
    jobs = sizes.jobs_of(contestant.peer) * workers
    contestant.set_up()
    enqueued, preload = _written(contestant, jobs, lambda: contestant.call("bulk", jobs))
    if contestant.on_postgres:
        database.settle_down(checkpoint=checkpoint)
    worked, run = _written(contestant, jobs, lambda: drain_loaded(contestant, jobs, workers))
    if enqueued:
        worked |= {
            "wal_enqueue": enqueued["wal_per_job"],
            "wal_per_job": enqueued["wal_per_job"] + worked["wal_per_job"],
        }
    return {**run, **worked, "preload_rate": preload["n"] / preload["seconds"]}


def drain_by_two(contestant: Contestant, sizes: Sizes) -> Run:
    return drain(contestant, sizes, workers=2)


def drain_young(contestant: Contestant, sizes: Sizes) -> Run:
    """Jobs that no checkpoint passes while they wait: the WAL is that of the jobs alone."""
    return drain(contestant, sizes, checkpoint=False)


def drain_keys(contestant: Contestant, sizes: Sizes) -> Run:
    """Jobs of keys that run one at a time, for a minute: some peers would need hours for all of them."""
    jobs = sizes.jobs_of(contestant.peer)
    contestant.set_up()
    contestant.call("bulk", jobs)
    database.settle_down()
    return drain_loaded(contestant, jobs, 1, KEYS_WINDOW)


def _written(contestant: Contestant, jobs: int, work: Callable[[], Run]) -> tuple[Run, Run]:
    if not contestant.on_postgres:
        return {}, work()
    writes = database.Writes()
    done = work()
    return writes.per_job(jobs), done


def drain_loaded(contestant: Contestant, jobs: int, workers: int, window: float = LONGEST) -> Run:
    """Jobs per second from now on, until all are done or the window closes."""
    contestant.start(workers)
    _wait_for_first_jobs(contestant, jobs, workers)
    began, at_first, before = time.perf_counter(), sum(contestant.counts()), usage(contestant.sessions)
    end = began + window
    done = at_first
    while done < jobs and time.perf_counter() < end:
        time.sleep(0.005)
        done = sum(contestant.counts())
    if contestant.peer.left and done >= jobs:
        _wait_until_none_is_left(contestant.peer.left, end)
    seconds = time.perf_counter() - began
    cores = usage(contestant.sessions).since(before)
    contestant.check_alive()
    contestant.stop()
    if window == LONGEST and done < jobs:
        raise Failed(f"{contestant.peer.name}: {done} of {jobs} jobs in {seconds:.0f} s")
    return {"rate": (done - at_first) / seconds, "seconds": seconds, "timed_share": 1 - at_first / jobs, **cores}


def _wait_for_first_jobs(contestant: Contestant, jobs: int, workers: int) -> None:
    began = time.monotonic()
    while True:
        counts = contestant.counts()
        begun, waited = sum(count > 0 for count in counts), time.monotonic() - began
        if begun >= workers or sum(counts) >= jobs or (begun and waited > SECOND_WORKER):
            return
        contestant.check_alive()
        if waited > TIME_TO_START:
            raise Failed(f"{contestant.peer.name}: no job has begun after {TIME_TO_START:.0f} s")
        time.sleep(0.002)


def _wait_until_none_is_left(count_left: str, end: float) -> None:
    query: Any = count_left  # of our own list of peers
    with psycopg.connect(DSN, autocommit=True) as connection:
        while time.perf_counter() < end:
            row = connection.execute(query).fetchone()
            if row == (0,):
                return
            time.sleep(0.005)

"""How fast producers enqueue: one or eight of them one job a transaction, or one of them many jobs at once."""

from __future__ import annotations

from benchmarks import database
from benchmarks.contestant import Contestant
from benchmarks.machine import usage
from benchmarks.measures.sizes import Run, Sizes

EIGHT = 8


def enqueue(contestant: Contestant, sizes: Sizes) -> Run:
    return _produced(contestant, "single", sizes.singles_of(contestant.peer))


def enqueue_by_eight(contestant: Contestant, sizes: Sizes) -> Run:
    """Eight processes at the same time, each with its own connection."""
    contestant.set_up()
    database.execute("CHECKPOINT")
    before = usage()
    rate = rate_of_producers(contestant, sizes.singles_of(contestant.peer), EIGHT)
    cores = usage().since(before)
    del cores["worker_cpu"]  # there is no worker
    return {"rate": rate, **cores}


def rate_of_producers(contestant: Contestant, each: int, producers: int) -> float:
    """Of all together: each is timed by itself, and they run at the same time."""
    processes = [contestant.begin("single", each) for _ in range(producers)]
    made = [contestant.result(process, "single") for process in processes]
    return sum(one["n"] / one["seconds"] for one in made)


def bulk(contestant: Contestant, sizes: Sizes) -> Run:
    return _produced(contestant, "bulk", sizes.jobs_of(contestant.peer))


def _produced(contestant: Contestant, command: str, jobs: int) -> Run:
    contestant.set_up()
    if contestant.on_postgres:
        database.execute("CHECKPOINT")
    writes = database.Writes() if contestant.on_postgres else None
    before = usage()
    made = contestant.call(command, jobs)
    cores = usage().since(before)
    del cores["worker_cpu"]  # there is no worker
    return {"rate": made["n"] / made["seconds"], **cores, **(writes.per_job(jobs) if writes else {})}

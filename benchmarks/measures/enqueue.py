"""How fast one producer enqueues: one job a transaction, or many at once."""

from __future__ import annotations

from benchmarks import database
from benchmarks.contestant import Contestant
from benchmarks.machine import usage
from benchmarks.measures.sizes import Run, Sizes


def enqueue(contestant: Contestant, sizes: Sizes) -> Run:
    return _produced(contestant, "single", sizes.singles_of(contestant.peer))


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

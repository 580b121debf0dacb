"""What retention costs beside full load: `python -m benchmarks.retention_bench`.

One worker drains no-ops while `watchbill retention run` removes a night's worth of history: a day of finished jobs with
their attempts and idempotency keys, rows that have fallen into the default partitions, and audit rows. In the run
beside it the same history is too young to be removed. The two take turns, and the ratio of neighbouring runs counts:
wanted are 0.9 or more. A run whose history is not gone when the jobs are done does not count.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path
from threading import Timer

import psycopg

from benchmarks import database
from benchmarks.contestant import Contestant, Failed
from benchmarks.measures.drain import drain_loaded
from benchmarks.peers import OURS, PEERS
from benchmarks.places import DSN, ROOT
from benchmarks.servers import start_postgres

OLD_DAYS, YOUNG_DAYS = 500, 1  # older than every setting keeps things, and younger than any removes them
MOST_TRIES = 20
START_SECONDS = 0.5  # the worker has begun by then
_PARTITIONS = """
SELECT watchbill.make_partitions(days => 0, now => clock_timestamp() - %(age)s * interval '1 day')"""
_FINISHED = """
INSERT INTO watchbill.finished_jobs (
  id, seq, run_at, created_at, finished_at, lane, run, policy, version, priority, attempt, max_attempts, lost, state,
  queue, type, tenant, idempotency_key, payload)
SELECT
  gen_random_uuid(), -n, at, at, at, 0, 1, 1, 1, 0, 1, 10, 0,
  CASE WHEN n %% 10 = 0 THEN 'dead' ELSE 'succeeded' END,
  'old', 'old', 'default', CASE WHEN n %% 5 = 0 THEN 'key ' || n END, '{"n": 1}'
FROM generate_series(1, %(count)s) n
-- A tenth is from the day before, which has no partition.
CROSS JOIN LATERAL (
  SELECT clock_timestamp() - (%(age)s + (n %% 10 = 1)::int) * interval '1 day' AS at) t"""
_KEYS = """
INSERT INTO watchbill.idempotency (tenant, type, key, job_id, payload_hash, created_at)
SELECT f.tenant, f.type, f.idempotency_key, f.id, f.id, f.created_at
FROM watchbill.finished_jobs f
WHERE f.idempotency_key IS NOT NULL"""
_ATTEMPTS = """
INSERT INTO watchbill.attempts (job_id, run, attempt, outcome, ended_at, queue, type, tenant)
SELECT f.id, 1, 1, 'failed', f.finished_at, f.queue, f.type, f.tenant
FROM watchbill.finished_jobs f
WHERE f.state = 'dead'"""
_AUDIT = """
INSERT INTO watchbill.audit (at, actor, action, subject)
SELECT clock_timestamp() - %(age)s * interval '1 day', 'bench', 'pause', 'old'
FROM generate_series(1, %(count)s / 10)"""
_LEFT = "SELECT count(*) FROM watchbill.finished_jobs WHERE queue = 'old'"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=400_000)
    parser.add_argument("--history", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    stop = start_postgres()
    try:
        ratios = []
        for _ in range(options.repeat):
            beside, alone = (_drain(options.jobs, options.history, age) for age in (OLD_DAYS, YOUNG_DAYS))
            ratios.append(beside / alone)
            print(f"{beside:8,.0f}/s beside retention, {alone:8,.0f}/s without: {ratios[-1]:.2f}", flush=True)
        print(f"median {statistics.median(ratios):.2f}")
    finally:
        if stop is not None:
            stop()


def _drain(jobs: int, history: int, age_days: int) -> float:
    """Jobs per second while retention runs."""
    with Contestant(PEERS[OURS]) as contestant:
        contestant.set_up()
        contestant.call("bulk", jobs)
        _make_history(history, age_days)
        database.settle_down()
        timer = Timer(START_SECONDS, _run_retention)
        timer.start()
        rate = drain_loaded(contestant, jobs, 1)["rate"]
        timer.join()
    left = _count_left()
    if (age_days == OLD_DAYS) != (left == 0):
        raise Failed(f"{left} of {history} finished jobs are left; give more --jobs, so that the drain lasts longer")
    return rate


def _make_history(count: int, age_days: int) -> None:
    with psycopg.connect(DSN, autocommit=True) as connection:
        for statement in (_PARTITIONS, _FINISHED, _KEYS, _ATTEMPTS, _AUDIT):
            connection.execute(statement, {"count": count, "age": age_days} if "%(" in statement else None)


def _run_retention() -> None:
    """Until all is removed: the worker removes history as well, and one waits for the other."""
    command = [str(Path(sys.executable).with_name("watchbill")), "retention", "run"]
    environment = os.environ | {"WATCHBILL_DATABASE_URL": DSN}
    for _ in range(MOST_TRIES):
        if not subprocess.run(command, cwd=ROOT, env=environment, check=False, stdout=subprocess.DEVNULL).returncode:
            return


def _count_left() -> int:
    with psycopg.connect(DSN) as connection:
        ((left,),) = connection.execute(_LEFT).fetchall()
    return int(left)


if __name__ == "__main__":
    main()

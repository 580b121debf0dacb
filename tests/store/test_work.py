"""Counted work: how many rows and index entries each verb reads, and that claims are HOT updates.

A plan that walks a table is right on ten rows and ruin on ten million. The counters of the transaction itself
(pg_stat_xact_*) say what was read: on an empty table, on a large one that the planner still takes for empty, and on the
same one analyzed. One bound holds for all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.store.harness import NOBODY, T0, Db, End, settlement

BATCH = 100


class Work(NamedTuple):
    scanned: dict[str, int]
    """Tables that were read from end to end, and how many rows that were."""
    entries: dict[str, int]
    """Index entries that were read, by index."""


def work(db: Db, function: str, **arguments: Any) -> Work:
    """What one call reads. It is rolled back, so that the next one finds the same."""
    session = db.session()
    session.execute("SELECT pg_stat_force_next_flush()")  # or what it read before would count
    session.begin()
    session.call(function, **arguments)
    tables = session.execute("""
        SELECT relname, seq_tup_read AS n FROM pg_stat_xact_user_tables
        WHERE schemaname = 'watchbill' AND seq_tup_read > 0""")
    indexes = session.execute("""
        SELECT c.relname, n FROM pg_class c, pg_stat_get_xact_tuples_returned(c.oid) n
        WHERE c.relnamespace = 'watchbill'::regnamespace AND c.relkind = 'i' AND n > 0""")
    session.rollback()
    return Work({row.relname: row.n for row in tables}, {row.relname: row.n for row in indexes})


def fill(db: Db) -> None:
    """100,000 jobs: 80,000 ready in ten queues, 10,000 delayed, 10,000 unsupported; and 20,000 finished."""
    db.change("CREATE FUNCTION pg_temp.id(n int) RETURNS uuid LANGUAGE sql AS "
        "$$ SELECT (lpad(to_hex(1000000000000 + n), 12, '0') || '70008000000000000000')::uuid $$")  # fmt: skip
    db.change(
        """
        INSERT INTO {schema}.jobs (id, run_at, created_at, queue, type, priority, wait, wait_key, payload)
        SELECT pg_temp.id(n), %s::timestamptz + n * interval '1 ms', %s,
          CASE WHEN n %% 10 = 0 THEN 'default' ELSE 'q' || n %% 10 END, CASE WHEN n > 90000 THEN 'rare' ELSE 'task' END,
          n %% 3, CASE WHEN n > 90000 THEN 'unsupported' WHEN n > 80000 THEN 'delayed' END,
          CASE WHEN n > 90000 THEN {schema}._unsupported_key(
            CASE WHEN n %% 10 = 0 THEN 'default' ELSE 'q' || n %% 10 END, 'rare', 1) END, '{{}}'
        FROM generate_series(1, 100000) n""",
        *[T0] * 2,
    )
    db.change(
        """
        INSERT INTO {schema}.finished_jobs (id, seq, run_at, created_at, finished_at, lane, run, policy, version,
          priority, attempt, max_attempts, lost, state, queue, type, tenant, payload)
        SELECT pg_temp.id(500000 + n), n, %s, %s, %s, 0, 1, 1, 1, 0, 1, 5, 0,
          CASE WHEN n %% 2 = 0 THEN 'succeeded' ELSE 'dead' END, 'default', 'task', 'default', '{{}}'
        FROM generate_series(1, 20000) n""",
        *[T0] * 3,
    )
    db.change("INSERT INTO {schema}.unsupported_types VALUES ('rare', 1, %s)", T0)


def every_verb(db: Db) -> dict[str, Work]:
    """The work of each verb on a batch of a hundred, or on one job."""
    epoch, other = db.node(types={"rare": 1}), db.node()
    for _ in range(2 * BATCH):
        db.enqueue(priority=99)
    held = [row for _ in range(2) for row in db.claim(epoch, BATCH)]
    kept = db.enqueue(priority=-1, idempotency_key=f"k{epoch}")
    outcomes = ["succeeded", "failed", "snoozed", "released", "skipped", "unsupported", "canceled"]
    mixed = [End(row, outcomes[n % 7], age=None) for n, row in enumerate(held[:BATCH])]
    batch = held[BATCH:]
    floors = {
        "floor_queues": ["default"] * 3, "floor_priorities": [2, 1, 0], "floor_times": [T0] * 3,
        "floor_ids": [NOBODY] * 3,
    }  # fmt: skip
    one, (beat,) = batch[0], [row.n for row in db.rows("beats") if row.epoch == epoch]
    db.value("cancel", id=batch[1].id)
    done = db.enqueue(priority=98)
    db.run(other, "succeeded")
    lost = db.after(3600)
    return {
        "claim": work(db, "claim", epoch=other, max=BATCH),
        "claim of several queues": work(db, "claim", epoch=other, max=BATCH, queues=["none", "q1", "q2"]),
        "claim above floors": work(db, "claim", epoch=other, max=BATCH, **floors),
        "claim alone": work(db, "claim", epoch=other, max=1, alone=True),
        "claim of unsupported": work(db, "claim", epoch=epoch, max=BATCH, queues=["none"]),
        "settle": work(db, "settle", epoch=epoch, ids=[r.id for r in batch], fences=[r.fence for r in batch]),
        "settle mixed": work(db, "settle", **settlement(epoch, *mixed)),
        "promote": work(db, "promote", max=BATCH, now=db.after(86400)),
        "reclaim": work(db, "reclaim", epochs=[epoch], beats_seen=[beat], now=lost),
        "leave": work(db, "leave", epoch=epoch),
        "release_unknown": work(db, "release_unknown", epoch=epoch, known=[one.fence]),
        "heartbeat": work(db, "heartbeat", epoch=epoch, running=[{"id": str(one.id), "fence": one.fence, "age": 1}]),
        "complete": work(db, "complete", id=one.id, fence=one.fence),
        "fail": work(db, "fail", id=one.id, fence=one.fence),
        "guard": work(db, "guard", id=one.id, fence=one.fence),
        "cancel": work(db, "cancel", id=one.id, force=True),
        "cancel of a waiting one": work(db, "cancel", id=kept),
        "release": work(db, "release", id=one.id),
        "reschedule": work(db, "reschedule", id=kept),
        "reschedule of a finished one": work(db, "reschedule", id=done),
        "enqueue": work(db, "enqueue", type="t"),
        "enqueue again": work(db, "enqueue", type="task", id=done, resend=True),
        "enqueue with a key": work(db, "enqueue", type="task", idempotency_key=f"k{epoch}"),
        "enqueue_many": work(db, "enqueue_many", jobs=[{"type": "t"}] * BATCH),
        "job_by_id": work(db, "job_by_id", id=done),
        "_read_job_ending": work(db, "_read_job_ending", id=done),
        "job_list": work(db, "job_list", max=BATCH),
        "job_list of queued": work(db, "job_list", max=BATCH, states=["queued"]),
        "job_list of running": work(db, "job_list", max=BATCH, states=["running"]),
        "job_list of failed": work(db, "job_list", max=BATCH, states=["failed", "dead"]),
        "pause": work(db, "pause", queue="x"),
        "expire_unsupported": work(db, "expire_unsupported", max=BATCH, grace="100 years"),
        "sweep_claims": work(db, "sweep_claims"),
    }


# The chore looks at every unsupported job, once a minute; finding the types needs no more than an index-only scan.
UNBOUNDED = {"expire_unsupported"}


def test_verbs_read_few_rows_with_any_statistics(own_db: Db) -> None:
    db = own_db
    db.execute("ALTER TABLE watchbill.jobs SET (autovacuum_enabled = off)")
    db.execute("ANALYZE")
    seen = {"empty": every_verb(db)}
    fill(db)
    seen["stale"] = every_verb(db)
    db.execute("ANALYZE")
    fresh = Db(db.url)  # its plans are made anew
    seen["large"] = every_verb(fresh)
    fresh.close()
    too_much = {
        (state, verb): reads
        for state, verbs in seen.items()
        for verb, reads in verbs.items()
        if verb not in UNBOUNDED
        and (sum(reads.entries.values()) > 40 * BATCH or any(rows > 5 * BATCH for rows in reads.scanned.values()))
    }
    assert too_much == {}
    for verb in ("claim", "claim above floors", "settle", "settle mixed", "promote", "complete", "reclaim"):
        for state in seen:
            assert "jobs" not in seen[state][verb].scanned, (verb, state)
    assert "jobs_ready" in seen["large"]["claim"].entries
    assert "jobs_due" in seen["large"]["promote"].entries
    assert "jobs_pkey" in seen["large"]["settle"].entries


def test_claims_are_hot_updates(own_db: Db) -> None:
    """The column that says "taken" is in no index and in no predicate of one, and the page has room."""
    db = own_db
    epoch = db.node()
    db.call(
        "enqueue_many", jobs=[{"type": "t", "payload": {"to": "somebody@example.com", "n": n}} for n in range(5000)]
    )
    db.begin()
    for _ in range(10):
        assert len(db.claim(epoch, 500)) == 500
    (row,) = db.execute("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'jobs'")
    db.commit()
    assert row.n_tup_upd == 5000
    assert row.n_tup_hot_upd / row.n_tup_upd > 0.9


def test_no_index_contains_a_column_that_claims_change(db: Db) -> None:
    rows = db.execute("""
        SELECT i.indexrelid::regclass::text AS name, pg_get_indexdef(i.indexrelid) AS definition FROM pg_index i
        WHERE i.indrelid = 'watchbill.jobs'::regclass""")
    assert len(rows) == 8
    for row in rows:
        assert not {"fence", "run"} & set(row.definition.replace("(", " ").replace(")", " ").replace(",", " ").split())


def test_claim_after_scan_positions_does_not_read_claimed_jobs(own_db: Db) -> None:
    """What floors are for: a HOT claim leaves its entries in the ready index until the jobs have gone."""
    db = own_db
    epoch = db.node()
    db.call("enqueue_many", jobs=[{"type": "t", "run_at": str(db.after(n - 3600))} for n in range(2000)])
    taken = db.claim(epoch, 1900)
    last = max(taken, key=lambda row: (row.run_at, row.id))
    floors = {
        "floor_queues": ["default"], "floor_priorities": [0], "floor_times": [last.run_at], "floor_ids": [last.id],
    }  # fmt: skip
    assert work(db, "claim", epoch=epoch, max=10).entries["jobs_ready"] >= 1900
    assert work(db, "claim", epoch=epoch, max=10, **floors).entries["jobs_ready"] < 50

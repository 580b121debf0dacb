"""Retry policies: how they are stored, what is refused, and how long a job waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.store.harness import Db, refused
from watchbill import Retry
from watchbill.model.job import NewJob

EXACT = {"jitter": 0}


def waits(db: Db, retry: dict[str, Any], attempts: list[int]) -> list[float]:
    """What `_backoff_seconds` says for these attempts, in seconds."""
    policy = db.value("_policy_id", retry=retry)
    query = """
        SELECT watchbill._backoff_seconds(p, a) AS s
        FROM watchbill.policies p, unnest(%s::int[]) WITH ORDINALITY x(a, n)
        WHERE id = %s ORDER BY n"""
    return [row.s for row in db.execute(query, (attempts, policy))]


def test_missing_policy_means_the_default_policy(db: Db) -> None:
    (default,) = db.rows("policies")
    assert db.value("_policy_id", retry=None) == 1
    assert default[:6] == (1, "exponential", 10, 3, 21_600, 0.2)
    assert db.value("_policy_id", retry={}) == 1


def test_sql_and_python_have_the_same_defaults(db: Db) -> None:
    usual, (stored,) = Retry(), db.rows("policies")
    assert stored[1:6] == (usual.backoff, usual.base, usual.factor, usual.cap, usual.jitter)
    assert db.look(db.enqueue()).max_attempts == usual.max_attempts == NewJob._field_defaults["max_attempts"]
    [row] = db.call("enqueue_many", jobs=[{"type": "t"}])
    assert db.look(row.id).max_attempts == usual.max_attempts
    db.value("add_schedule", name="s", type="t")
    assert db.rows("schedules")[0].max_attempts == usual.max_attempts


def test_equal_policies_are_stored_once(db: Db) -> None:
    given = {"kind": "list", "delays": [1, 2.5, 3]}
    first = db.value("_policy_id", retry=given)
    assert db.value("_policy_id", retry=given) == first
    assert db.value("_policy_id", retry=given | {"delays": [1, 2.5]}) != first
    assert db.value("_policy_id", retry=given | {"cap": 7}) != first
    assert db.count("policies") == 4


def test_open_transaction_with_a_new_policy_blocks_no_producer(db: Db) -> None:
    one, other = db.session(), db.session()
    one.begin()
    one.enqueue(retry={"kind": "fixed", "base": 9})
    other.enqueue(retry={"kind": "fixed", "base": 9})  # a twin, harmless
    one.commit()
    assert db.value("_policy_id", retry={"kind": "fixed", "base": 9}) == min(row.id for row in db.rows("policies")[1:])


def test_bulk_enqueue_stores_equal_policies_once(db: Db) -> None:
    fixed, other = {"kind": "fixed", "base": 9}, {"kind": "linear"}
    rows = db.call("enqueue_many", jobs=[{"type": "t", "retry": retry} for retry in (fixed, other, None, fixed)])
    a, b, c, d = (db.look(row.id).policy for row in rows)
    assert a == d != b
    assert c == 1
    assert db.count("policies") == 3


@pytest.mark.parametrize(
    ("retry", "attempts", "expected"),
    [
        ({"kind": "exponential", "base": 1, "factor": 2}, [1, 2, 3, 10, 12], [1, 2, 4, 512, 2048]),
        ({"kind": "exponential", "base": 0.5, "factor": 3, "cap": 10}, [1, 2, 3, 4], [0.5, 1.5, 4.5, 10]),
        ({"kind": "linear", "base": 5, "cap": 18}, [1, 2, 3, 4, 5], [5, 10, 15, 18, 18]),
        ({"kind": "fixed", "base": 7}, [1, 2, 30], [7, 7, 7]),
        ({"kind": "list", "delays": [1, 60, 5]}, [1, 2, 3, 4, 99], [1, 60, 5, 5, 5]),
        ({"kind": "list", "delays": [1, 60], "cap": 30}, [1, 2], [1, 30]),
        ({"kind": "fixed", "base": 0}, [1], [0]),
        ({"kind": "exponential"}, [0, -1], [10, 10]),
        ({}, list(range(1, 10)), [10, 30, 90, 270, 810, 2430, 7290, 21_600, 21_600]),
    ],
    ids=lambda value: str(value)[:50],
)
def test_each_backoff_kind_gives_its_documented_delays(
    db: Db, retry: dict[str, Any], attempts: list[int], expected: list[float]
) -> None:
    assert waits(db, retry | EXACT, attempts) == expected


@pytest.mark.parametrize("kind", ["exponential", "linear", "fixed", "list"])
def test_delay_does_not_overflow_at_the_largest_attempt(db: Db, kind: str) -> None:
    retry = {"kind": kind, "base": 315360000, "factor": 100, "cap": 315360000, "jitter": 0, "delays": [315360000]}
    assert waits(db, retry, [1, 100, 1000, 32767, 2**31 - 1]) == [315360000] * 5


def test_job_can_fail_up_to_the_largest_attempt_number(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue(max_attempts=32767, retry={"kind": "exponential", "factor": 100, "cap": 60, "jitter": 0})
    db.change("UPDATE {schema}.jobs SET attempt = 32765 WHERE id = %s", job)
    assert db.run(epoch, "failed") == "failed"
    db.expect(job, attempt=32766, run_at=db.after(60))
    db.make_ready()
    assert db.run(epoch, "failed") == "dead"
    db.expect(job, attempt=32767)


def test_jitter_shortens_the_delay_by_at_most_its_share(db: Db) -> None:
    for jitter in (0.25, 1):
        got = waits(db, {"kind": "fixed", "base": 100, "jitter": jitter}, [1] * 500)
        assert 100 * (1 - jitter) <= min(got) <= max(got) <= 100
        assert len(set(got)) > 400
        spread = 100 * jitter
        assert min(got) < 100 - spread / 2 < max(got)  # the chance of a false alarm is 2 ** -499


def test_a_failed_job_waits_as_its_policy_says(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue(retry={"kind": "linear", "base": 10, "jitter": 0})
    for attempt in (1, 2, 3):
        assert db.run(epoch, "failed") == "failed"
        db.expect(job, attempt=attempt, run_at=db.after(10 * attempt), wait="delayed")
        db.make_ready()


def test_a_given_delay_takes_the_place_of_the_policy(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue(retry={"kind": "fixed", "base": 10})
    db.run(epoch, "failed", delay=timedelta(hours=3))
    db.expect(job, run_at=db.after(3 * 3600), wait="delayed")
    db.make_ready()
    db.run(epoch, "timed_out", delay=timedelta(0))
    db.expect(job, run_at=db.now, wait=None, state="failed")


@pytest.mark.parametrize(
    "retry",
    [
        {"kind": "wild"},
        {"kind": "fixed", "base": -1},
        {"kind": "fixed", "base": 315360001},
        {"kind": "fixed", "base": "soon"},
        {"kind": "fixed", "base": "NaN"},
        {"kind": "fixed", "base": "1e400"},
        {"factor": 0.5},
        {"factor": 101},
        {"cap": -1},
        {"cap": "Infinity"},
        {"jitter": 1.1},
        {"jitter": -0.1},
        {"kind": "list"},
        {"kind": "list", "delays": []},
        {"kind": "list", "delays": [1] * 1001},
        {"kind": "list", "delays": [-1]},
        {"kind": "list", "delays": [1, None]},
        {"kind": "list", "delays": ["NaN"]},
        {"kind": "list", "delays": [-1e300]},
        {"kind": "list", "delays": {"a": 1}},
        {"kind": "list", "delays": 5},
        {"kind": "fixed", "bse": 5},
        ["fixed"],
        "fixed",
        5,
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_policy_that_cannot_be_used_is_refused(db: Db, retry: Any) -> None:
    with refused("WB003", "retry policy .* is invalid"):
        db.enqueue(retry=retry)
    with refused("WB003", "retry policy .* is invalid"):
        db.call("enqueue_many", jobs=[{"type": "t", "retry": retry}])

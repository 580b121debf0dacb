"""Retry policies: how they are stored, what is refused, and how long a job waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.store.harness import Db, refused

EXACT = {"jitter": 0}


def waits(db: Db, retry: dict[str, Any], attempts: list[int]) -> list[float]:
    """What `backoff` says for these attempts, in seconds."""
    policy = db.value("policy", retry=retry)
    query = """
        SELECT watchbill.backoff(p, a) AS s FROM watchbill.policies p, unnest(%s::int[]) WITH ORDINALITY x(a, n)
        WHERE id = %s ORDER BY n"""
    return [row.s for row in db.execute(query, (attempts, policy))]


def test_no_policy_is_the_default_one(db: Db) -> None:
    (default,) = db.rows("policies")
    assert db.value("policy", retry=None) == 1
    assert default[:6] == (1, "exponential", 1, 2, 3600, 1)
    assert db.value("policy", retry={}) == 1


def test_one_content_is_stored_once(db: Db) -> None:
    given = {"kind": "list", "delays": [1, 2.5, 3]}
    first = db.value("policy", retry=given)
    assert db.value("policy", retry=given) == first
    assert db.value("policy", retry=given | {"delays": [1, 2.5]}) != first
    assert db.value("policy", retry=given | {"cap": 7}) != first
    assert db.count("policies") == 4


def test_a_producer_in_a_long_transaction_holds_nobody_up(db: Db) -> None:
    one, other = db.session(), db.session()
    one.begin()
    one.enqueue(retry={"kind": "fixed", "base": 9})
    other.enqueue(retry={"kind": "fixed", "base": 9})  # a twin, harmless
    one.commit()
    assert db.value("policy", retry={"kind": "fixed", "base": 9}) == min(row.id for row in db.rows("policies")[1:])


def test_a_bulk_shares_its_policies(db: Db) -> None:
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
        ({"kind": "exponential"}, [0, -1], [1, 1]),
    ],
    ids=lambda value: str(value)[:50],
)
def test_each_kind_waits_as_it_says(db: Db, retry: dict[str, Any], attempts: list[int], expected: list[float]) -> None:
    assert waits(db, retry | EXACT, attempts) == expected


@pytest.mark.parametrize("kind", ["exponential", "linear", "fixed", "list"])
def test_nothing_overflows_at_the_last_attempt_there_can_be(db: Db, kind: str) -> None:
    retry = {"kind": kind, "base": 315360000, "factor": 100, "cap": 315360000, "jitter": 0, "delays": [315360000]}
    assert waits(db, retry, [1, 100, 1000, 32767, 2**31 - 1]) == [315360000] * 5


def test_a_job_at_its_last_attempt_but_one_can_still_fail(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue(max_attempts=32767, retry={"kind": "exponential", "factor": 100, "cap": 60, "jitter": 0})
    db.change("UPDATE {schema}.jobs SET attempt = 32765 WHERE id = %s", job)
    assert db.run(epoch, "failed") == "failed"
    db.expect(job, attempt=32766, run_at=db.after(60))
    db.make_ready()
    assert db.run(epoch, "failed") == "dead"
    db.expect(job, attempt=32767)


def test_jitter_takes_a_share_of_up_to_itself_away(db: Db) -> None:
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
    with refused("WB003", "retry policy .* cannot be used"):
        db.enqueue(retry=retry)
    with refused("WB003", "retry policy .* cannot be used"):
        db.call("enqueue_many", jobs=[{"type": "t", "retry": retry}])

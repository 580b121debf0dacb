"""The end of a run: what each outcome leads to, what it counts, what it records, and who is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.store.harness import CENTURY, NOBODY, Db, End, refused, settlement

MINUTE = timedelta(minutes=1)


def test_settle_without_outcomes_means_success(db: Db) -> None:
    epoch = db.node("a")
    ids = [db.enqueue(payload={"n": n}) for n in range(3)]
    held = {row.id: row for row in db.claim(epoch)}
    fence = held[ids[0]].fence
    db.tick(5)
    answer = db.call(
        "settle", epoch=epoch, ids=ids, fences=[fence] * 3, ages=[2.5, 0.0, None], results=[{"r": 1}, None, "text"],
        closed=[fence],
    )  # fmt: skip
    assert answer == []
    first, second, third = (db.look(job) for job in ids)
    assert [row.state for row in (first, second, third)] == ["succeeded"] * 3
    assert [row.started_at for row in (first, second, third)] == [db.after(-2.5), db.now, None]
    assert [row.result for row in (first, second, third)] == [{"r": 1}, None, "text"]
    db.expect(ids[0], attempt=1, run=1, lost=0, holder="a", epoch=epoch, fence=fence, finished_at=db.now, error=None)
    db.expect(ids[0], outcome=None, payload={"n": 0}, created_at=db.after(-5), updated_at=db.now)
    assert db.outcomes(ids[0]) == ["succeeded"]
    assert db.count("attempts") == 0
    assert db.count("claims") == 0


def test_finished_job_keeps_its_options(db: Db) -> None:
    epoch = db.node()
    given: dict[str, Any] = {
        "type": "t", "payload": {"a": 1}, "queue": "q", "priority": 3, "tenant": "x", "max_attempts": 2, "version": 7,
        "created_by": "c", "meta": {"m": 1}, "idempotency_key": "k", "retry": {"kind": "fixed", "base": 9},
        "timeout": "90 seconds",
    }  # fmt: skip
    for outcomes in (None, ["succeeded"], ["failed"]):
        given["idempotency_key"] = f"{outcomes}"
        job = db.enqueue(**given)
        before = db.look(job)._asdict()
        held = db.claim_one(epoch, queues=["q"])
        db.call(
            "settle", epoch=epoch, ids=[job], fences=[held.fence], outcomes=outcomes, errors=[{"kind": "permanent"}]
        )
        after = db.look(job)._asdict()
        changed = {name for name in before if before[name] != after[name]}
        assert changed <= {
            "state", "waits", "attempt", "run", "holder", "epoch", "fence", "finished_at", "outcome", "error",
            "error_kind",
        }  # fmt: skip


ENDS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("succeeded", {}, {"state": "succeeded", "attempt": 1, "outcome": None}),
    ("skipped", {"error": {"message": "nothing to do"}}, {"state": "succeeded", "attempt": 1, "outcome": "skipped"}),
    ("failed", {}, {"state": "failed", "attempt": 1, "wait": "delayed"}),
    ("failed", {"error": {"kind": "permanent"}}, {"state": "dead", "attempt": 1, "outcome": "failed"}),
    ("timed_out", {}, {"state": "failed", "attempt": 1, "wait": "delayed"}),
    ("timed_out", {"error": {"kind": "permanent"}}, {"state": "dead", "attempt": 1, "outcome": "timed_out"}),
    ("snoozed", {"delay": MINUTE}, {"state": "queued", "attempt": 0, "wait": "delayed"}),
    ("snoozed", {}, {"state": "queued", "attempt": 0, "wait": None}),
    ("released", {}, {"state": "queued", "attempt": 0, "wait": None}),
    ("released", {"age": None}, {"state": "queued", "attempt": 0, "wait": None}),
    ("unsupported", {"age": None}, {"state": "queued", "attempt": 0, "wait": "unsupported"}),
    ("canceled", {}, {"state": "canceled", "attempt": 0, "outcome": None}),  # after a stop request
]


@pytest.mark.parametrize(("outcome", "more", "expected"), ENDS, ids=lambda value: str(value)[:40])
def test_each_outcome_leads_to_its_state_and_counts_as_it_should(
    db: Db, outcome: str, more: dict[str, Any], expected: dict[str, Any]
) -> None:
    epoch = db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    if outcome == "canceled":
        db.value("cancel", id=job)
    db.tick(7)
    answer = db.settle(epoch, End(held, outcome, **more))
    assert answer == ({} if expected["state"] == "succeeded" else {job: expected["state"]})
    db.expect(job, **expected, run=1, lost=0, quarantined=False)


def test_the_attempt_of_each_outcome_is_recorded(db: Db) -> None:
    epoch = db.node("a")
    recorded = {}
    for outcome, more, _ in ENDS:
        db.change("DELETE FROM {schema}.unsupported_types")
        db.change("DELETE FROM {schema}.jobs")
        job = db.enqueue(queue="q", tenant="x")
        held = db.claim_one(epoch, queues=["q"])
        if outcome == "canceled":
            db.value("cancel", id=job)
        db.tick(7)
        db.settle(epoch, End(held, outcome, **({"age": 5.0} | more)))
        rows = db.attempts(job)
        recorded[outcome, more.get("age", 5)] = len(rows)
        for row in rows:
            assert (row.outcome, row.run, row.fence, row.epoch, row.holder) == (outcome, 1, held.fence, epoch, "a")
            assert (row.started_at, row.ended_at) == (db.after(-5), db.now)
            assert (row.queue, row.type, row.tenant) == ("q", "task", "x")
            if outcome not in ("succeeded", "canceled"):
                assert row.error == more.get("error")
    assert recorded == {
        ("succeeded", 5): 1, ("skipped", 5): 1, ("failed", 5): 1, ("timed_out", 5): 1, ("snoozed", 5): 1,
        ("released", 5): 1, ("canceled", 5): 1, ("released", None): 0, ("unsupported", None): 0,
    }  # fmt: skip


def test_settle_returns_the_time_of_the_next_attempt(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue(retry={"kind": "fixed", "base": 9, "jitter": 0})
    held = db.claim_one(epoch)
    (row,) = db.call("settle", epoch=epoch, ids=[job], fences=[held.fence], outcomes=["failed"])
    assert tuple(row) == (job, "failed", db.after(9))


def test_released_job_keeps_its_place_in_the_queue(db: Db) -> None:
    epoch = db.node()
    first, second = db.enqueue(), db.enqueue()
    db.tick(60)
    held = db.claim_one(epoch)
    assert db.settle(epoch, End(held, "released", age=None)) == {first: "queued"}
    db.expect(first, run_at=db.after(-60))
    assert [db.claim_one(epoch).id for _ in range(2)] == [first, second]


def test_a_job_is_dead_when_its_attempts_are_spent(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue(max_attempts=3)
    states = []
    for _ in range(3):
        db.make_ready()
        states.append(db.run(epoch, "failed", error={"kind": "error", "message": "boom"}))
    assert states == ["failed", "failed", "dead"]
    db.expect(job, state="dead", attempt=3, run=3, outcome="failed", error={"kind": "error", "message": "boom"})
    assert [(row.run, row.attempt, row.outcome) for row in db.attempts(job)] == [
        (1, 1, "failed"), (2, 2, "failed"), (3, 3, "failed"),
    ]  # fmt: skip


def test_snoozes_and_releases_never_spend_an_attempt(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue(max_attempts=2)
    for outcome in ("snoozed", "released", "snoozed", "released", "failed", "snoozed", "released"):
        db.make_ready()
        assert db.run(epoch, outcome) == ("failed" if outcome == "failed" else "queued")
    db.expect(job, attempt=1, run=7, state="queued")
    db.make_ready()
    assert db.run(epoch, "timed_out") == "dead"


def test_a_failed_job_shows_its_last_error_while_it_waits(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    db.run(epoch, "failed", error={"kind": "error", "message": "first"})
    db.make_ready()
    db.tick(1)
    db.run(epoch, "failed", error={"kind": "error", "message": "second"})
    db.expect(job, state="failed", error={"kind": "error", "message": "second"}, error_kind="error", updated_at=db.now)


def test_settle_of_a_mixed_batch_refuses_only_jobs_not_held(db: Db) -> None:
    epoch = db.node()
    jobs = [db.enqueue() for _ in range(6)]
    held = {row.id: row for row in db.claim(epoch)}
    db.value("release", id=jobs[5])
    outcomes = ["succeeded", "failed", "snoozed", "released", "skipped", "succeeded"]
    ends = [End(held[job], outcome) for job, outcome in zip(jobs, outcomes, strict=True)]
    assert db.settle(epoch, *ends) == {jobs[1]: "failed", jobs[2]: "queued", jobs[3]: "queued", jobs[5]: None}
    assert db.states(*jobs) == ["succeeded", "failed", "queued", "queued", "succeeded", "queued"]


STALE = ["succeeded", "skipped", "failed", "timed_out", "snoozed", "released", "unsupported", "canceled", None]


@pytest.mark.parametrize("outcome", STALE)
@pytest.mark.parametrize("how", ["released", "lost", "reclaimed by another", "finished", "wrong", "nobody's"])
def test_settle_by_a_node_that_does_not_hold_the_job_has_no_effect(db: Db, outcome: str | None, how: str) -> None:
    epoch, other = db.node(), db.node()
    job = db.enqueue()
    fence = db.claim_one(epoch).fence
    match how:
        case "released":
            db.value("release", id=job)
        case "lost":
            db.lose(epoch)
        case "reclaimed by another":
            db.value("release", id=job)
            db.claim(other)
        case "finished":
            db.call("settle", epoch=epoch, ids=[job], fences=[fence])
        case "wrong":
            fence += 1
        case "nobody's":
            db.value("release", id=job)
            fence = 0
    before, attempts = db.look(job), db.attempts(job)
    outcomes = None if outcome is None else [outcome]
    answer = db.call("settle", epoch=epoch, ids=[job], fences=[fence], outcomes=outcomes, ages=[1.0])
    assert [tuple(row) for row in answer] == [(job, None, None)]
    assert db.look(job) == before
    assert db.attempts(job) == attempts


def test_settle_counts_after_lease_expiry_but_before_reclaim(db: Db) -> None:
    """Its lease has run out, but nobody was given the job: harmless, and wanted."""
    epoch = db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    db.tick(3600)
    assert db.settle(epoch, End(held)) == {}
    assert db.states(job) == ["succeeded"]
    assert db.reclaim(epoch) == {}


def test_unknown_outcome_refuses_the_whole_batch(db: Db) -> None:
    epoch = db.node()
    db.enqueue(), db.enqueue()
    one, other = db.claim(epoch)
    with refused("WB003", "outcome 'perished' is invalid"):
        db.settle(epoch, End(one), End(other, "perished"))
    with refused("WB003", "outcome 'NULL' is invalid"):
        db.call("settle", epoch=epoch, ids=[one.id], fences=[one.fence], outcomes=[None])
    with refused("WB003", "outcome 'lost' is invalid"):
        db.settle(epoch, End(one, "lost"))
    assert db.states(one.id, other.id) == ["running", "running"]


def test_settle_deletes_only_closed_claims_of_its_own_node(db: Db) -> None:
    epoch, other = db.node(), db.node()
    db.enqueue(), db.enqueue()
    mine, yours = db.claim_one(epoch), db.claim_one(other)
    db.settle(epoch, End(mine), closed=[mine.fence, yours.fence])
    assert [claim.fence for claim in db.rows("claims")] == [yours.fence]


def test_sweep_claims_deletes_a_claim_whose_jobs_have_ended(db: Db) -> None:
    epoch = db.node()
    db.enqueue(), db.enqueue()
    first, second = db.claim_one(epoch), db.claim_one(epoch)
    db.settle(epoch, End(first))
    assert db.value("sweep_claims") == 0
    db.tick(61)
    assert db.value("sweep_claims") == 1
    assert [claim.fence for claim in db.rows("claims")] == [second.fence]
    assert db.value("sweep_claims", older=timedelta(hours=1)) == 0


def test_deleting_claims_does_not_wait_for_a_locked_one(db: Db) -> None:
    """Each function deletes claims in an order of its own, so two that waited for each other would deadlock."""
    epoch = db.node()
    db.enqueue(), db.enqueue()
    first, second = db.claim_one(epoch), db.claim_one(epoch)
    db.settle(epoch, End(first), End(second))
    other = db.session()
    other.begin()
    other.execute("SELECT FROM watchbill.claims WHERE fence = %s FOR UPDATE", (first.fence,))
    db.tick(61)
    assert db.value("sweep_claims") == 1
    db.lose(epoch)
    assert [claim.fence for claim in db.rows("claims")] == [first.fence]
    other.rollback()
    assert db.value("sweep_claims") == 1


def test_sweep_claims_keeps_a_claim_with_one_job_left(db: Db) -> None:
    epoch = db.node()
    db.enqueue(), db.enqueue()
    first, second = db.claim(epoch)
    db.settle(epoch, End(first))
    db.tick(61)
    assert db.value("sweep_claims") == 0
    db.settle(epoch, End(second))
    assert db.value("sweep_claims") == 1


@pytest.mark.parametrize("outcomes", [None, ["succeeded", "succeeded"]])
def test_resent_settle_has_no_second_effect(db: Db, outcomes: list[str] | None) -> None:
    """The reply of the first was lost; the second is refused, and the history says that it was us."""
    epoch = db.node()
    jobs = [db.enqueue(), db.enqueue()]
    fence = db.claim(epoch)[0].fence
    batch = {"epoch": epoch, "ids": jobs, "fences": [fence, fence], "outcomes": outcomes}
    assert db.call("settle", **batch) == []
    assert {(row.id, row.state) for row in db.call("settle", **batch)} == {(job, None) for job in jobs}
    assert {row.fence for row in db.rows("finished_jobs")} == {fence}


@pytest.mark.parametrize("outcome", [None, "failed"])
def test_a_job_named_twice_in_one_batch_ends_once(db: Db, outcome: str | None) -> None:
    epoch = db.node()
    job = db.enqueue()
    fence = db.claim_one(epoch).fence
    db.call("settle", epoch=epoch, ids=[job, job], fences=[fence, fence], outcomes=outcome and [outcome, outcome])
    db.expect(job, attempt=1, run=1)
    assert len(db.attempts(job)) == 1


def test_concurrent_settles_of_one_run_have_one_winner(db: Db) -> None:
    one, other, epoch = db.session(), db.session(), db.node()
    job = db.enqueue()
    fence = db.claim_one(epoch).fence
    one.begin()
    one.call("settle", epoch=epoch, ids=[job], fences=[fence])
    waiting = other.start("settle", epoch=epoch, ids=[job], fences=[fence], outcomes=["failed"]).blocked()
    one.commit()
    assert [tuple(row) for row in waiting.rows()] == [(job, None, None)]
    assert db.states(job) == ["succeeded"]


@pytest.mark.parametrize("first", ["settle", "reclaim"])
@pytest.mark.parametrize("outcome", [None, "succeeded", "failed", "snoozed"])
def test_first_of_settle_and_reclaim_wins(db: Db, first: str, outcome: str | None) -> None:
    one, other, epoch = db.session(), db.session(), db.node()
    job = db.enqueue()
    fence = db.claim_one(epoch).fence
    outcomes = None if outcome is None else [outcome]
    db.tick(31)
    if first == "settle":
        one.begin()
        one.call("settle", epoch=epoch, ids=[job], fences=[fence], outcomes=outcomes)
        assert other.call("reclaim", epochs=[epoch], beats_seen=[0]) == []  # declared lost; the job is passed over
        one.commit()
        assert db.reclaim() == {}
        db.expect(job, lost=0, state={"failed": "failed", "snoozed": "queued"}.get(outcome or "", "succeeded"))
        assert db.count("claims") == 0
    else:
        one.begin()
        one.call("reclaim", epochs=[epoch], beats_seen=[0])
        waiting = other.start("settle", epoch=epoch, ids=[job], fences=[fence], outcomes=outcomes).blocked()
        one.commit()
        assert [row.state for row in waiting.rows()] == [None]
        db.expect(job, lost=1, state="failed", attempt=0)


def test_settle_of_an_empty_batch_does_nothing(db: Db) -> None:
    epoch = db.node()
    assert db.call("settle", epoch=epoch, ids=[], fences=[]) == []
    assert db.call("settle", epoch=epoch, ids=[], fences=[], outcomes=[]) == []


def test_ending_that_cannot_be_stored_fails_the_whole_batch(db: Db) -> None:
    """The worker then halves it until it finds the one."""
    epoch = db.node()
    db.enqueue(), db.enqueue()
    one, other = db.claim(epoch)
    with refused("WB003", "delays is invalid"):
        db.settle(epoch, End(one), End(other, "snoozed", delay="300000 years"))  # type: ignore[arg-type]
    assert db.states(one.id, other.id) == ["running", "running"]


def test_locked_jobs_names_jobs_locked_by_others(db: Db) -> None:
    epoch, handler = db.node(), db.session()
    jobs = [db.enqueue() for _ in range(3)]
    held = {row.id: row for row in db.claim(epoch)}
    handler.begin()
    handler.value("guard", id=jobs[1], fence=held[jobs[1]].fence)
    assert [row[0] for row in db.call("locked_jobs", ids=[*jobs, NOBODY])] == [jobs[1]]
    db.settle(epoch, End(held[jobs[0]]), End(held[jobs[2]]))
    handler.rollback()
    assert db.call("locked_jobs", ids=jobs) == []
    db.settle(epoch, End(held[jobs[1]]))


def test_settle_refuses_missing_outcomes_and_huge_delays(db: Db) -> None:
    epoch, _ = db.node(), [db.enqueue(), db.enqueue()]
    ends = [End(job, "failed") for job in db.claim(epoch)]
    with refused("WB003", "outcomes is invalid: 1 outcomes for 2 jobs"):
        db.call("settle", **(settlement(epoch, *ends) | {"outcomes": ["failed"]}))
    with refused("WB003", "delays is invalid"):
        db.settle(epoch, ends[0], ends[1]._replace(delay=timedelta(days=40_000)))
    assert db.states(*[end.job.id for end in ends]) == ["running", "running"]


@pytest.mark.parametrize("outcomes", [None, "failed", "released"])
@pytest.mark.parametrize(
    ("age", "ago"), [(-5.0, 0.0), (float("inf"), CENTURY), (float("nan"), CENTURY), (1e300, CENTURY)]
)
def test_settle_clamps_an_impossible_age(db: Db, outcomes: str | None, age: float, ago: float) -> None:
    """Of a worker whose clock jumped: its word counts, and no list is spoilt by a time that nobody can read."""
    epoch, job = db.node(), db.enqueue()
    end = End(db.claim_one(epoch), outcomes or "succeeded", age=age)
    given = settlement(epoch, end)
    db.call("settle", **(given if outcomes else given | {"outcomes": None}))
    (attempt,) = db.rows("attempt")
    assert (attempt.job_id, attempt.started_at) == (job, db.after(-ago))


@pytest.mark.parametrize("outcome", ["failed", "snoozed"])
@pytest.mark.parametrize("delay", ["-1 second", "-1000 years", "-8000 years"])
def test_settle_with_a_negative_delay_means_now(db: Db, outcome: str, delay: str) -> None:
    epoch, job = db.node(), db.enqueue()
    given = settlement(epoch, End(db.claim_one(epoch), outcome))
    db.call("settle", **(given | {"delays": [delay]}))
    db.expect(job, run_at=db.now, wait=None)

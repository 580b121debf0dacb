"""Looking at jobs, and the verbs for all that match: views, lists, groups, counts, reschedule_many, purge."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from watchbill.model.states import STATES
from tests.store.harness import Db, End, refused


def dead(db: Db, epoch: int, message: str = "boom", **more: Any) -> UUID:
    job = db.enqueue(**more)
    db.settle(epoch, End(db.claim_one(epoch, queues=[more.get("queue", "default")]), "failed",
        error={"kind": "permanent", "message": message}))  # fmt: skip
    return job


def one_of_each(db: Db) -> dict[str, UUID]:
    """A job in each visible state."""
    epoch = db.node("a")
    jobs = {"succeeded": db.enqueue()}
    db.run(epoch, "succeeded")
    jobs["failed"] = db.enqueue()
    db.run(epoch, "failed")
    jobs["dead"] = dead(db, epoch)
    jobs["running"] = db.enqueue()
    db.claim_one(epoch)
    jobs["canceled"], jobs["blocked"], jobs["queued"] = db.enqueue(), db.enqueue(), db.enqueue()
    db.value("cancel", id=jobs["canceled"])
    db.change("UPDATE {schema}.jobs SET wait = 'blocked' WHERE id = %s", jobs["blocked"])
    assert set(jobs) == set(STATES)
    return jobs


def test_the_view_shows_every_job_once_in_its_state(db: Db) -> None:
    jobs = one_of_each(db)
    assert {row.state: row.id for row in db.rows("job")} == jobs
    assert db.count("job") == len(jobs)


@pytest.mark.parametrize("wait", [None, "delayed", "parked", "paused", "unsupported"])
def test_whatever_else_a_job_waits_for_it_is_queued_or_failed(db: Db, wait: str | None) -> None:
    job = db.enqueue()
    db.change("INSERT INTO {schema}.unsupported_types VALUES ('task', 1, now())")
    db.change("UPDATE {schema}.jobs SET wait = %s", wait)
    db.expect(job, state="queued", wait=wait)
    db.change("UPDATE {schema}.jobs SET failed = true")
    db.expect(job, state="failed", wait=wait)
    db.change("UPDATE {schema}.jobs SET wait = 'blocked'")
    db.expect(job, state="blocked")


def test_a_job_is_found_by_its_id_wherever_it_is(db: Db) -> None:
    for state, job in one_of_each(db).items():
        (found,) = db.call("job_by_id", id=job)
        assert found == db.look(job)
        assert found.state == state
        endings = db.call("ending_of", id=job)
        assert [(row.state, row.error) for row in endings] == (
            [(state, found.error)] if state in ("succeeded", "dead", "canceled") else []
        )
    assert db.call("job_by_id", id=db.new_id()) == []


def test_a_finished_job_with_an_id_of_another_version_is_found(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue(id=uuid4())
    db.run(epoch, "succeeded")
    assert db.call("job_by_id", id=job)[0].state == "succeeded"
    assert db.value("cancel", id=job) == "succeeded"
    assert db.value("reschedule", id=job) == "succeeded"


def test_a_job_that_finished_long_after_its_id_was_made_is_found(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    db.tick(86400 * 400)
    db.value("heartbeat", epoch=epoch)
    db.run(epoch, "succeeded")
    assert db.call("job_by_id", id=job)[0].state == "succeeded"


def test_a_job_of_a_client_whose_clock_is_an_hour_ahead_is_found(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    db.tick(-3590)
    db.run(epoch, "succeeded")
    assert db.call("job_by_id", id=job)[0].state == "succeeded"


def test_every_attempt_is_shown_once(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    for outcome in ("failed", "snoozed", "timed_out", "skipped"):
        db.make_ready()
        db.tick(1)
        db.run(epoch, outcome)
    db.value("reschedule", id=job)
    db.tick(1)
    db.run(epoch, "succeeded")
    rows = db.attempts(job)
    assert [(row.run, row.outcome) for row in rows] == [
        (1, "failed"), (2, "snoozed"), (3, "timed_out"), (4, "skipped"), (5, "succeeded"),
    ]  # fmt: skip


# Lists.


def test_lists_come_newest_first_page_by_page_without_gap_or_overlap(db: Db) -> None:
    epoch = db.node()
    jobs = [db.enqueue() for _ in range(23)]
    for held in db.claim(epoch, 9):
        db.settle(epoch, End(held))
    pages: list[list[UUID]] = []
    after: UUID | None = None
    while rows := db.call("job_list", after=after, max=5):
        pages.append([row.id for row in rows])
        after = rows[-1].id
    assert [len(page) for page in pages] == [5, 5, 5, 5, 3]
    assert [job for page in pages for job in page] == jobs[::-1]


def test_a_page_is_not_upset_by_what_changes_between(db: Db) -> None:
    epoch = db.node()
    jobs = [db.enqueue() for _ in range(6)]
    first = db.call("job_list", max=3)
    for held in db.claim(epoch, 6):
        db.settle(epoch, End(held))
    db.enqueue()
    second = db.call("job_list", after=first[-1].id, max=3)
    assert [row.id for row in (*first, *second)] == jobs[::-1]


def test_lists_are_filtered_by_everything_they_offer(db: Db) -> None:
    jobs = one_of_each(db)
    for state, job in jobs.items():
        assert [row.id for row in db.call("job_list", states=[state])] == [job]
    assert len(db.call("job_list")) == len(db.call("job_list", states=[])) == 7
    epoch = db.node()
    other = dead(db, epoch, "other", type="u", queue="q", tenant="x")
    for more in ({"type": "u"}, {"queue": "q"}, {"tenant": "x"}, {"message": "other"}):
        assert [row.id for row in db.call("job_list", **more)] == [other]
    assert db.call("job_list", type="u", queue="default") == []
    assert {row.id for row in db.call("job_list", states=["dead", "queued"])} == {jobs["dead"], jobs["queued"], other}


def test_a_waiting_job_is_found_by_the_message_of_its_last_error(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    db.run(epoch, "failed", error={"message": "no luck"})
    assert [row.id for row in db.call("job_list", message="no luck")] == [job]


def test_dead_jobs_are_grouped_by_type_and_message(db: Db) -> None:
    epoch = db.node()
    dead(db, epoch, "a")
    db.tick(10)
    last = dead(db, epoch, "a")
    other = dead(db, epoch, "b", type="u", tenant="x")
    groups = db.call("dead_groups")
    assert [tuple(group) for group in groups] == [
        ("task", "a", 2, db.after(-10), db.now, last), ("u", "b", 1, db.now, db.now, other),
    ]  # fmt: skip
    assert [group.type for group in db.call("dead_groups", tenant="x")] == ["u"]
    assert [group.type for group in db.call("dead_groups", type="task")] == ["task"]


# All that match.


def test_all_that_match_are_rescheduled_a_batch_at_a_time(db: Db) -> None:
    epoch = db.node()
    jobs = [dead(db, epoch, "a") for _ in range(5)]
    other = dead(db, epoch, "b")
    counts = [db.value("reschedule_many", states=["dead"], message="a", max=2) for _ in range(4)]
    assert counts == [2, 2, 1, 0]
    assert set(db.states(*jobs)) == {"queued"}
    assert db.states(other) == ["dead"]
    db.expect(jobs[0], attempt=0, run=1, run_at=db.now)


@pytest.mark.parametrize("more", [{"type": "u"}, {"queue": "q"}, {"tenant": "x"}], ids=str)
@pytest.mark.parametrize(("verb", "after"), [("reschedule_many", "queued"), ("purge", None)])
def test_rescheduling_and_purging_keep_to_their_filter(
    db: Db, verb: str, after: str | None, more: dict[str, str]
) -> None:
    epoch = db.node()
    matching, other = dead(db, epoch, **more), dead(db, epoch)
    assert db.value(verb, states=["dead"], **more) == 1
    found = {row.id: row.state for row in db.rows("job")}
    assert (found.get(matching), found[other]) == (after, "dead")


def test_queued_jobs_are_put_off_until_none_is_left(db: Db) -> None:
    for _ in range(5):
        db.enqueue()
    later = db.after(3600)
    counts = [db.value("reschedule_many", states=["queued"], run_at=later, max=2) for _ in range(4)]
    assert counts == [2, 2, 1, 0]
    assert {row.run_at for row in db.rows("jobs")} == {later}
    db.tick(1)
    counts = [db.value("reschedule_many", states=["queued"], max=2) for _ in range(4)]
    assert counts == [2, 2, 1, 0]
    assert {row.run_at for row in db.rows("jobs")} == {db.now}


def test_a_job_that_is_claimed_meanwhile_is_passed_over(db: Db) -> None:
    claimer, operator, epoch = db.session(), db.session(), db.node()
    jobs = [db.enqueue(run_at=db.after(-60)) for _ in range(3)]
    claimer.begin()
    claimer.claim(epoch, 1)
    waiting = operator.start("reschedule_many", states=["queued"], run_at=db.after(60)).blocked()
    claimer.commit()
    assert waiting.value() == 2
    assert db.states(*jobs) == ["running", "queued", "queued"]


def test_running_jobs_are_not_rescheduled_in_bulk_and_states_are_named(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    db.claim(epoch)
    with refused("WB008", "running jobs cannot be rescheduled"):
        db.value("reschedule_many", states=["dead", "running"])
    nothing: list[Any] = [None, []]
    for states in nothing:
        with refused("WB003", "of which states"):
            db.value("reschedule_many", states=states)
        with refused("WB003", "of which states"):
            db.value("purge", states=states)
    with refused("WB008", "only finished jobs can be purged"):
        db.value("purge", states=["dead", "queued"])
    with refused("WB003", "there is no such state"):
        db.value("reschedule_many", states=["dead", "failde"])
    assert db.states(job) == ["running"]


def test_purge_deletes_jobs_with_their_attempts_and_keys_a_batch_at_a_time(db: Db) -> None:
    epoch = db.node()
    for n in range(3):
        dead(db, epoch, idempotency_key=f"k{n}")
    kept = db.enqueue(idempotency_key="kept")
    db.run(epoch, "failed")
    assert [db.value("purge", states=["dead"], max=2) for _ in range(3)] == [2, 1, 0]
    assert [row.id for row in db.rows("job")] == [kept]
    assert [row.job_id for row in db.rows("attempts")] == [kept]
    assert [row.key for row in db.rows("idempotency")] == ["kept"]
    first, second = db.rows("audit")
    assert (first.action, first.subject, second.subject) == ("purge", "2 jobs", "1 jobs")
    assert first.detail == {"states": ["dead"], "type": None, "queue": None, "message": None}
    assert first.at == db.now


def test_purge_leaves_what_comes_back_to_life(db: Db) -> None:
    """Listed as dead, then rescheduled by somebody else: its attempts and its key must stay."""
    operator, epoch = db.session(), db.node()
    job = dead(db, epoch, idempotency_key="k")
    operator.begin()
    operator.value("reschedule", id=job)
    assert db.value("purge", states=["dead"]) == 0
    operator.commit()
    assert db.outcomes(job) == ["failed"]
    assert db.send(idempotency_key="k").id == job


# Counts.


def stats(db: Db, **more: Any) -> dict[tuple[str, str], tuple[int, Any, bool]]:
    rows = db.call("stats", **more)
    assert len({(row.queue, row.state) for row in rows}) == len(rows)
    return {(row.queue, row.state): (row.count, row.oldest, row.capped) for row in rows}


def test_jobs_are_counted_by_queue_and_state(db: Db) -> None:
    one_of_each(db)
    db.enqueue(queue="q", run_at=db.after(-100))
    db.enqueue(queue="q", run_at=db.after(-50))
    counted = stats(db)
    assert {state: counted["default", state][0] for state in STATES} == dict.fromkeys(STATES, 1)
    assert counted["q", "queued"] == (2, db.after(-100), False)


def test_finished_jobs_are_counted_for_as_long_as_asked(db: Db) -> None:
    epoch = db.node()
    for _ in range(2):
        db.enqueue()
        db.run(epoch, "succeeded")
        db.tick(1800)
    assert stats(db)["default", "succeeded"] == (1, db.after(-1800), False)
    assert stats(db, since="2 hours")["default", "succeeded"][0] == 2
    assert stats(db, since="1 second") == {}


def test_counts_above_the_cap_say_so(db: Db) -> None:
    epoch = db.node()
    for _ in range(5):
        db.enqueue()
    assert stats(db, cap=5)["default", "queued"][::2] == (5, False)
    assert stats(db, cap=4)["default", "queued"][2] is True
    for held in db.claim(epoch, 5):
        db.settle(epoch, End(held))
    assert stats(db, cap=5)["default", "succeeded"][::2] == (5, False)
    assert stats(db, cap=4)["default", "succeeded"][2] is True

"""Looking at jobs, and the verbs for all that match: views, lists, groups, counts, reschedule_many, purge."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.store.harness import Db, End, refused
from watchbill.model.states import STATES, WAITS


def dead(db: Db, epoch: int, message: str = "boom", **more: Any) -> UUID:
    job = db.enqueue(**more)
    db.settle(epoch, End(db.claim_one(epoch, queues=[more.get("queue", "default")]), "failed",
        error={"kind": "permanent", "message": message}))  # fmt: skip
    return job


def suspend(db: Db, epoch: int) -> UUID:
    """A job that sleeps for an hour in a step."""
    job = db.enqueue()
    row = db.claim_one(epoch)
    db.call(
        "save_steps", ids=[job], fences=[row.fence], names=["sleep"], kinds=["sleep"], states=["waiting"], seqs=[1],
        versions=[1], tries=[1], digests=[None], delays=[timedelta(hours=1)],
    )  # fmt: skip
    db.settle(epoch, End(row, "suspended"))
    return job


def one_of_each(db: Db) -> dict[str, UUID]:
    """A job in each visible state."""
    epoch = db.node("a")
    jobs = {"succeeded": db.enqueue()}
    db.run(epoch, "succeeded")
    jobs["failed"] = db.enqueue()
    db.run(epoch, "failed")
    jobs["dead"] = dead(db, epoch)
    jobs["suspended"] = suspend(db, epoch)
    jobs["running"] = db.enqueue()
    db.claim_one(epoch)
    jobs["canceled"], jobs["blocked"], jobs["queued"] = db.enqueue(), db.enqueue(), db.enqueue()
    db.value("cancel", id=jobs["canceled"])
    db.change("UPDATE {schema}.jobs SET wait = 'blocked' WHERE id = %s", jobs["blocked"])
    assert set(jobs) == set(STATES)
    return jobs


def test_job_view_shows_every_job_once_in_its_state(db: Db) -> None:
    jobs = one_of_each(db)
    assert {row.state: row.id for row in db.rows("job")} == jobs
    assert db.count("job") == len(jobs)


@pytest.mark.parametrize("wait", [None, "delayed", "parked", "paused", "unsupported"])
def test_job_with_any_other_wait_is_shown_as_queued_or_failed(db: Db, wait: str | None) -> None:
    job = db.enqueue()
    db.change("INSERT INTO {schema}.unsupported_types VALUES ('task', 1, now())")
    db.set_wait(job, wait)
    db.expect(job, state="queued", wait=wait)
    db.change("UPDATE {schema}.jobs SET failed = true")
    db.expect(job, state="failed", wait=wait)
    db.set_wait(job, "blocked")
    db.expect(job, state="blocked")


def test_every_waiting_job_has_one_word_for_what_it_waits_for(db: Db) -> None:
    """The column `waits`, which lists, counts and filters share."""
    epoch = db.node()
    failed = db.enqueue("failed")
    db.run(epoch, "failed")
    later, ready = db.enqueue("later", delay=timedelta(hours=1)), db.enqueue("ready")
    in_paused_queue, of_paused_type = db.enqueue("closed", queue="closed"), db.enqueue("paused")
    unknown, parked = db.enqueue("unknown"), db.enqueue("parked")
    unmatched = db.enqueue("unmatched", runs_on={"gpu": "a100"})
    db.call("pause", queue="closed")
    db.call("pause", type="paused")
    db.change("INSERT INTO {schema}.unsupported_types VALUES ('unknown', 1, now())")
    db.change("UPDATE {schema}.jobs SET wait = 'parked', wait_key = 'key:x' WHERE type = 'parked'")
    db.change("UPDATE {schema}.jobs SET wait = 'unsupported', wait_key = 'k' WHERE type = 'unknown'")
    words = {
        "retrying": [failed], "scheduled": [later], "ready": [ready], "paused": [of_paused_type, in_paused_queue],
        "unsupported": [unknown], "limited": [parked], "unmatched": [unmatched],
    }  # fmt: skip
    assert set(words) == set(WAITS)
    for word, jobs in words.items():
        assert {db.look(job).waits for job in jobs} == {word}
        assert [row.id for row in db.call("job_list", states=[word])] == sorted(jobs, reverse=True), word
    both = db.call("job_list", states=["retrying", "limited"])
    assert {row.id for row in both} == {failed, parked}


def test_blocked_running_and_finished_jobs_wait_for_nothing(db: Db) -> None:
    jobs = one_of_each(db)
    db.call("pause", queue="default")
    found = {state: db.look(job).waits for state, job in jobs.items() if state not in ("queued", "failed")}
    assert set(found.values()) == {None}


def test_stats_count_ready_jobs_of_a_paused_queue_as_paused(db: Db) -> None:
    epoch = db.node()
    db.enqueue(), db.enqueue(), db.enqueue(delay=timedelta(hours=1))
    db.claim_one(epoch)
    db.call("pause", queue="default")
    counts = {(row.state, row.wait): row.count for row in db.call("stats")}
    assert counts == {("queued", "paused"): 1, ("queued", "delayed"): 1, ("running", None): 1}
    estimates = {(row.state, row.wait): row.count for row in db.call("stats", cap=0)}
    assert estimates.items() >= {("queued", "paused"): 1, ("running", None): 1}.items()


def test_jobs_whose_labels_no_live_node_has_are_unmatched_everywhere(db: Db) -> None:
    gpu: dict[str, Any] = {"runs_on": {"gpu": "a100"}}
    job, other, _ = db.enqueue(**gpu), db.enqueue(queue="q", **gpu), db.enqueue()
    db.node(labels={"gpu": "t4"})
    elsewhere = db.node(labels={"gpu": "a100", "zone": "a"}, queues=["q"])

    def waits() -> list[str]:
        return [db.look(each).waits for each in (job, other)]

    def counts(**more: Any) -> dict[tuple[str, str | None], int]:
        return {(row.queue, row.wait): row.count for row in db.call("stats", **more)}

    assert waits() == ["unmatched", "ready"]
    assert counts() == counts(cap=0) == {("default", "unmatched"): 1, ("default", None): 1, ("q", None): 1}
    assert [row.id for row in db.call("job_list", states=["unmatched"])] == [job]
    db.lose(elsewhere)
    assert waits() == ["unmatched", "unmatched"]
    db.node(labels={"gpu": "a100"})
    assert waits() == ["ready", "ready"]
    assert counts() == {("default", None): 2, ("q", None): 1}


def test_job_by_id_finds_a_job_in_any_state(db: Db) -> None:
    for state, job in one_of_each(db).items():
        (found,) = db.call("job_by_id", id=job)
        assert found == db.look(job)
        assert found.state == state
        endings = db.call("_read_job_ending", id=job)
        assert [(row.state, row.error) for row in endings] == (
            [(state, found.error)] if state in ("succeeded", "dead", "canceled") else []
        )
    assert db.call("job_by_id", id=db.new_id()) == []


def test_job_by_id_finds_a_finished_job_with_a_uuid4(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue(id=uuid4())
    db.run(epoch, "succeeded")
    assert db.call("job_by_id", id=job)[0].state == "succeeded"
    assert db.value("cancel", id=job) == "succeeded"
    assert db.value("reschedule", id=job) == "succeeded"


def test_job_by_id_finds_a_job_finished_long_after_its_id(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    db.tick(86400 * 400)
    db.value("heartbeat", epoch=epoch)
    db.run(epoch, "succeeded")
    assert db.call("job_by_id", id=job)[0].state == "succeeded"


def test_job_by_id_finds_a_job_of_a_client_with_a_fast_clock(db: Db) -> None:
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


def test_job_list_pages_newest_first_without_gap_or_overlap(db: Db) -> None:
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


def test_job_list_pages_stay_correct_while_jobs_change(db: Db) -> None:
    epoch = db.node()
    jobs = [db.enqueue() for _ in range(6)]
    first = db.call("job_list", max=3)
    for held in db.claim(epoch, 6):
        db.settle(epoch, End(held))
    db.enqueue()
    second = db.call("job_list", after=first[-1].id, max=3)
    assert [row.id for row in (*first, *second)] == jobs[::-1]


def test_job_list_applies_every_filter(db: Db) -> None:
    jobs = one_of_each(db)
    for state, job in jobs.items():
        assert [row.id for row in db.call("job_list", states=[state])] == [job]
    assert len(db.call("job_list")) == len(db.call("job_list", states=[])) == len(STATES)
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
    assert [tuple(group)[:6] for group in groups] == [
        ("task", "a", 2, db.after(-10), db.now, last), ("u", "b", 1, db.now, db.now, other),
    ]  # fmt: skip
    assert [group.type for group in db.call("dead_groups", tenant="x")] == ["u"]
    assert [group.type for group in db.call("dead_groups", type="task")] == ["task"]


# All that match.


def test_reschedule_many_reschedules_matching_jobs_in_batches(db: Db) -> None:
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
def test_reschedule_many_and_purge_respect_their_filter(
    db: Db, verb: str, after: str | None, more: dict[str, str]
) -> None:
    epoch = db.node()
    matching, other = dead(db, epoch, **more), dead(db, epoch)
    assert db.value(verb, states=["dead"], **more) == 1
    found = {row.id: row.state for row in db.rows("job")}
    assert (found.get(matching), found[other]) == (after, "dead")


@pytest.mark.parametrize("verb", ["job_list", "reschedule_many", "purge"])
@pytest.mark.parametrize(
    ("condition", "chosen"),
    [
        ("created_after", [2, 3]),
        ("created_before", [0, 1]),
        ("finished_after", [2, 3]),
        ("finished_before", [0, 1]),
    ],
)
def test_lists_and_operations_take_bounds_of_time(db: Db, verb: str, condition: str, chosen: list[int]) -> None:
    epoch = db.node("a")
    jobs = []
    for hour in range(4):
        jobs.append(dead(db, epoch))
        if hour == 1:
            db.now += timedelta(hours=1)
            middle = db.now
    rows = db.call(verb, states=["dead"], **{condition: middle})
    if verb == "job_list":
        assert [row.id for row in reversed(rows)] == [jobs[n] for n in chosen]
    else:
        assert rows[0][0] == 2
        assert {row.id for row in db.rows("finished_jobs")} == {job for n, job in enumerate(jobs) if n not in chosen}


@pytest.mark.parametrize("verb", ["job_list", "reschedule_many", "purge"])
def test_lists_and_operations_take_ids(db: Db, verb: str) -> None:
    epoch = db.node("a")
    first, second, third = (dead(db, epoch) for _ in range(3))
    queued = db.enqueue()
    rows = db.call(verb, states=["dead"], ids=[first, third, queued])
    if verb == "job_list":
        assert {row.id for row in rows} == {first, third}
    else:
        assert rows[0][0] == 2
        assert [row.id for row in db.rows("finished_jobs")] == [second]


def test_an_unfinished_job_matches_no_bound_of_its_end(db: Db) -> None:
    job = db.enqueue()
    assert [row.id for row in db.call("job_list", created_after=db.now - timedelta(hours=1))] == [job]
    assert db.call("job_list", finished_after=db.now - timedelta(hours=1)) == []
    assert db.call("job_list", finished_before=db.now + timedelta(hours=1)) == []


def test_stats_without_since_count_all_of_history(db: Db) -> None:
    epoch = db.node("a")
    db.enqueue()
    db.run(epoch, "succeeded")
    db.now += timedelta(days=3)
    assert db.call("stats") == []
    assert [(row.state, row.count) for row in db.call("stats", since=None)] == [("succeeded", 1)]
    assert [(row.state, row.count) for row in db.call("stats", since=None, cap=0)] == [("succeeded", 1)]


def test_reschedule_many_delays_queued_jobs_in_batches(db: Db) -> None:
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


def test_reschedule_many_skips_a_job_claimed_meanwhile(db: Db) -> None:
    claimer, operator, epoch = db.session(), db.session(), db.node()
    jobs = [db.enqueue(run_at=db.after(-60)) for _ in range(3)]
    claimer.begin()
    claimer.claim(epoch, 1)
    waiting = operator.start("reschedule_many", states=["queued"], run_at=db.after(60)).blocked()
    claimer.commit()
    assert waiting.value() == 2
    assert db.states(*jobs) == ["running", "queued", "queued"]


def test_reschedule_many_and_purge_refuse_invalid_states(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    db.claim(epoch)
    with refused("WB008", "running jobs cannot be rescheduled"):
        db.value("reschedule_many", states=["dead", "running"])
    nothing: list[Any] = [None, []]
    for states in nothing:
        with refused("WB003", "states .* is invalid"):
            db.value("reschedule_many", states=states)
        with refused("WB003", "purge needs states"):
            db.value("purge", states=states)
    with refused("WB008", "only finished jobs can be purged"):
        db.value("purge", states=["dead", "queued"])
    with refused("WB003", "states .* is invalid"):
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


def test_purge_skips_a_job_that_is_being_rescheduled(db: Db) -> None:
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
    assert len({(row.queue, row.state, row.wait) for row in rows}) == len(rows)
    return {(row.queue, row.state): (row.count, row.oldest, row.estimated) for row in rows}


def test_jobs_are_counted_by_queue_and_state(db: Db) -> None:
    one_of_each(db)
    db.enqueue(queue="q", run_at=db.after(-100))
    db.enqueue(queue="q", run_at=db.after(-50))
    counted = stats(db)
    assert {state: counted["default", state][0] for state in STATES} == dict.fromkeys(STATES, 1)
    assert counted["q", "queued"] == (2, db.after(-100), False)


def test_queued_jobs_are_counted_by_what_they_wait_for(db: Db) -> None:
    db.enqueue(queue="q")
    db.enqueue(queue="q", delay="1 hour")
    db.enqueue(queue="q", delay="2 hours")
    rows = db.call("stats")
    assert {(row.state, row.wait): row.count for row in rows} == {("queued", None): 1, ("queued", "delayed"): 2}


def test_stats_count_finished_jobs_since_the_given_age(db: Db) -> None:
    epoch = db.node()
    for _ in range(2):
        db.enqueue()
        db.run(epoch, "succeeded")
        db.tick(1800)
    assert stats(db)["default", "succeeded"] == (1, db.after(-1800), False)
    assert stats(db, since="2 hours")["default", "succeeded"][0] == 2
    assert stats(db, since="1 second") == {}


def test_counts_above_the_cap_are_estimates_from_the_whole_table(db: Db) -> None:
    """Two queues of 60,000 jobs and one of five, as they were enqueued: the first rows are those of one queue."""
    epoch = db.node()
    for queue, count in (("first", 60_000), ("second", 60_000), ("small", 5)):
        db.call("enqueue_many", jobs=[{"type": "t", "queue": queue}] * count)
    db.enqueue(queue="running")
    db.claim(epoch, 1, queues=["running"])
    counted = stats(db)
    for queue in ("first", "second"):
        count, _, estimated = counted[queue, "queued"]
        assert estimated
        assert 48_000 < count < 72_000
    assert counted["small", "queued"][::2] == (5, False)
    assert counted["running", "running"][::2] == (1, False)


def test_finished_jobs_above_the_cap_are_estimates(db: Db) -> None:
    epoch = db.node()
    for _ in range(5):
        db.enqueue()
    for held in db.claim(epoch, 5):
        db.settle(epoch, End(held))
    assert stats(db, cap=5)["default", "succeeded"][::2] == (5, False)
    assert stats(db, cap=4)["default", "succeeded"][::2] == (5, True), "the sample is the whole table"

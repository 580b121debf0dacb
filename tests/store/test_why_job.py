"""Why a job does not run: each cause by itself, several at once, and the deciding one first."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.store.flow import declare_limit, declare_queue, enqueue
from tests.store.harness import Db, End

HOUR = timedelta(hours=1)


def why(db: Db, job: UUID) -> list[tuple[str, str]]:
    return [(row.cause, row.reason) for row in db.call("why_job", id=job)]


def causes(db: Db, job: UUID) -> list[str]:
    return [cause for cause, _ in why(db, job)]


def only(db: Db, job: UUID) -> tuple[str, str]:
    (found,) = why(db, job)
    return found


def test_a_job_that_does_not_exist_is_not_found_in_this_database(db: Db) -> None:
    missing = db.new_id()
    cause, reason = only(db, missing)
    assert cause == "not_found"
    assert reason.startswith(f"there is no job {missing} in schema watchbill of database ")
    assert reason.endswith("; a transaction that has not committed yet may have enqueued it")
    db.tick(86401)
    said = "; its id was made at 2031-03-14 09:26:53+00, so it may have ended and been removed since"
    assert only(db, missing)[1].endswith(said)


def test_a_ready_job_waits_for_a_free_handler_only(db: Db) -> None:
    db.node(types={"task": 1}, queues=["default"])
    assert only(db, db.enqueue())[0] == "ready"


def test_a_job_whose_node_was_lost_says_that_it_starts_alone(db: Db) -> None:
    epoch, job = db.node(), db.enqueue()
    db.claim_one(epoch)
    db.lose(epoch)
    db.make_ready()
    db.node()
    cause, reason = only(db, job)
    assert cause == "quarantined"
    assert reason.startswith("its last node was lost, so it starts on a node that runs nothing else")


def test_a_job_whose_labels_no_live_node_has_names_them(db: Db) -> None:
    job = db.enqueue(runs_on={"gpu": "a100"})
    assert causes(db, job) == ["no_node"]
    db.node(types={"task": 1}, labels={"gpu": "t4"})
    assert only(db, job) == ("unmatched", 'no live node that serves its queue has the labels {"gpu": "a100"}')
    db.node(types={"task": 1}, labels={"gpu": "a100"})
    assert only(db, job)[0] == "ready"


def test_a_job_that_is_pinned_to_a_node_names_it(db: Db) -> None:
    job, with_label = db.enqueue(runs_on={"node": "n 1"}), db.enqueue(runs_on={"node": "n 1", "gpu": "a100"})
    db.node("other", types={"task": 1})
    assert only(db, job) == ("unmatched", "no live node that serves its queue is named n 1")
    (cause, *_) = db.call("why_job", id=with_label)
    assert cause.reason == 'no live node that serves its queue is named n 1 and has the labels {"gpu": "a100"}'
    assert cause.way_out == ["watchbill worker --label gpu=a100 --name 'n 1'"]
    assert db.look(job).waits == "unmatched"
    db.node("n 1", types={"task": 1})
    assert only(db, job)[0] == db.look(job).waits == "ready"


def test_a_routed_job_whose_key_has_no_owner_says_why(db: Db) -> None:
    db.call("declare_group", name="g", total=4)
    db.call("route_queue", queue="default", token_group="g")
    job = db.enqueue(payload={"c": 7}, route_by="{c}")
    epoch = db.node("a", types={"task": 1})
    assert only(db, job) == ("unowned", "no live node of group g owns its key '7' yet")
    db.call("join_group", epoch=epoch, token_group="g")
    ((_, _, term, _, _),) = db.call("elect", epoch=epoch, groups=["g"])
    db.call("rebalance", token_group="g", term=term, epoch=epoch)
    assert only(db, job)[0] == "ready"
    db.call("pin", token_group="g", wanted=[{"key": "7", "pattern": "gpu-%"}])
    db.tick(31)
    db.call("heartbeat", epoch=epoch)
    db.call("rebalance", token_group="g", term=term, epoch=epoch)
    assert only(db, job) == ("unowned", "its key '7' moves from node a to another")
    db.call("pass_tokens", epoch=epoch, token_group="g")
    assert only(db, job) == ("unowned", "its key '7' is pinned, and no live node of group g matches the pin")


@pytest.mark.parametrize("outcome", ["succeeded", "dead", "canceled"])
def test_a_finished_job_says_how_and_when_it_ended(db: Db, outcome: str) -> None:
    epoch, job = db.node(), db.enqueue()
    if outcome == "canceled":
        db.call("cancel", id=job, reason="not needed")
    else:
        error = {"kind": "permanent", "message": "no such card"}
        end = ("succeeded", None) if outcome == "succeeded" else ("failed", error)
        db.settle(epoch, End(db.claim_one(epoch), end[0], error=end[1]))
    message = {"succeeded": "", "dead": ": no such card", "canceled": ", by postgres: not needed"}[outcome]
    assert only(db, job) == ("finished", f"it is {outcome}, since 2031-03-14 09:26:53+00{message}")


def test_a_running_job_says_where_and_since_when(db: Db) -> None:
    epoch, job = db.node("mule"), db.enqueue()
    claimed = db.claim_one(epoch)
    assert only(db, job) == (
        "running",
        "node mule claimed it at 2031-03-14 09:26:53+00, and has started it or starts it next",
    )
    db.tick(60)
    running = [{"id": str(claimed.id), "fence": claimed.fence, "age": 45}]
    db.value("heartbeat", epoch=epoch, running=running)
    assert only(db, job) == ("running", "it runs on node mule since 2031-03-14 09:27:08+00")
    db.call("cancel", id=job)
    assert only(db, job)[1].endswith("; postgres asked it to stop at 2031-03-14 09:27:53+00")


def test_a_blocked_job_names_the_jobs_that_it_waits_for(db: Db) -> None:
    db.node()
    parents = [db.enqueue(f"parent-{n}", delay=HOUR) for n in range(7)]
    (child,) = db.call("enqueue_many", jobs=[{"type": "child", "depends_on": [str(each) for each in parents]}])
    cause, reason = only(db, child.id)
    assert cause == "blocked"
    named = ", ".join(f"job {parents[n]} (parent-{n}, queued)" for n in range(5))
    first = "The first: it is due at 2031-03-14 10:26:53+00, in 01:00:00"
    assert reason == f"it waits for {named} and 2 more. {first}"


def test_a_delayed_job_says_when_it_is_due(db: Db) -> None:
    db.node()
    job = db.enqueue(delay=HOUR)
    (row,) = db.call("why_job", id=job)
    assert (row.cause, row.until) == ("delayed", db.after(3600))
    assert row.reason == "it is due at 2031-03-14 10:26:53+00, in 01:00:00"


def test_a_retrying_job_says_what_failed_and_when_the_next_attempt_is_due(db: Db) -> None:
    epoch, job = db.node(), db.enqueue(max_attempts=3)
    error = {"kind": "retryable", "message": "no route"}
    db.settle(epoch, End(db.claim_one(epoch), "failed", delay=HOUR, error=error))
    cause, reason = only(db, job)
    assert cause == "delayed"
    assert reason.startswith("attempt 1 of 3 failed (no route); the next one is due at 2031-03-14 10:26:53+00")


@pytest.mark.parametrize(
    ("paused", "said"),
    [
        ({"queue": "default"}, "queue default"),
        ({"type": "task"}, "type task"),
        ({"queue": "default", "type": "task"}, "type task in queue default"),
    ],
)
def test_a_paused_job_says_what_is_paused_by_whom_and_why(db: Db, paused: dict[str, Any], said: str) -> None:
    db.node()
    job = db.enqueue()
    db.call("pause", **paused, reason="rain")
    assert only(db, job) == ("paused", f"{said} is paused by postgres since 2031-03-14 09:26:53+00: rain")


def test_a_pause_of_another_queue_or_type_is_no_reason(db: Db) -> None:
    db.node()
    job = db.enqueue()
    db.call("pause", queue="mail")
    db.call("pause", type="other")
    db.call("pause", queue="default", type="other")
    assert causes(db, job) == ["ready"]


def test_without_a_live_node_nothing_runs(db: Db) -> None:
    db.call("leave", epoch=db.node("mule", types={"task": 1}))
    said = "no node is alive; the last one was mule, which left at 2031-03-14 09:26:53+00"
    assert only(db, db.enqueue()) == ("no_node", said)


def test_a_queue_that_no_live_node_serves_is_named(db: Db) -> None:
    db.node(types={"task": 1}, queues=["mail"])
    assert only(db, db.enqueue()) == ("unserved", "no live node serves its queue default; live nodes serve mail")
    db.node(types={"task": 1})  # it has not said which queues it serves
    assert causes(db, db.enqueue(queue="reports")) == ["ready"]


def test_a_type_that_no_live_node_handles_is_named(db: Db) -> None:
    db.node(types={"other": 1}, queues=["default"])
    job = db.enqueue()
    assert only(db, job) == ("unsupported", "no live node handles its type task")
    db.node(queues=["default"])  # it has not said which types it handles
    assert causes(db, job) == ["ready"]


def test_a_version_that_no_live_node_handles_is_named(db: Db) -> None:
    epoch = db.node(types={"task": 2}, queues=["default"])
    job = db.enqueue(version=3)
    db.settle(epoch, End(db.claim_one(epoch), "unsupported", age=None))
    assert only(db, job) == ("unsupported", "live nodes handle version 2 of its type task, and it has version 3")
    db.node(types={"task": 3}, queues=["default"])
    assert causes(db, job) == ["ready"]


def test_a_job_that_waits_for_a_limit_names_its_key(db: Db) -> None:
    db.node()
    job = db.enqueue()
    db.change("UPDATE {schema}.jobs SET wait = 'parked', wait_key = 'key:crm-api'")
    said = "it was set aside for the limit crm-api, which has room now; a node makes it ready within ten seconds"
    assert only(db, job) == ("limited", said)
    db.value("set_limit", name="crm-api", max=0)
    db.change("UPDATE {schema}.jobs SET wait = 'parked', wait_key = 'key:crm-api'")
    assert only(db, job) == ("limited", "it waits for the limit crm-api, which is 0, so that no job of it starts")


def test_a_job_that_waits_for_a_limit_names_the_job_that_holds_it(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "crm-api", 1)
    first, second = (enqueue(db, "key:crm-api") for _ in range(2))
    (held,) = db.claim(epoch)
    (waiting,) = {first, second} - {held.id}
    assert only(db, waiting) == ("limited", f"it waits for the limit crm-api, which job {held.id} (running) holds")


def test_a_job_behind_a_dead_one_says_who_keeps_its_key(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "order:task", when_dead="pause")
    first, second = (enqueue(db, order="7", max_attempts=1) for _ in range(2))
    db.settle(epoch, End(db.claim_one(epoch), "failed", error={"kind": "permanent", "message": "no"}))
    assert db.claim(epoch) == []
    kept = f"which the dead job {first} keeps; retry that job, or clear the limit"
    assert only(db, second) == ("ordered", f"it waits for the ordered key order:task:7, {kept}")


def test_a_job_under_a_rate_says_when_the_next_one_may_start(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "crm-api", rates=[(1, 60)])
    jobs = [enqueue(db, "key:crm-api", is_rated=True) for _ in range(2)]
    (held,) = db.claim(epoch)
    db.settle(epoch, End(held, "succeeded"))
    (waiting,) = {*jobs} - {held.id}
    (row,) = db.call("why_job", id=waiting)
    assert (row.cause, row.until) == ("rate", db.after(60))
    assert "the rate of the limit crm-api allows no start now; the next is at 2031-03-14" in row.reason


def test_all_causes_are_told_and_the_deciding_one_is_first(db: Db) -> None:
    db.node(types={"other": 1}, queues=["mail"])
    job = db.enqueue(delay=HOUR)
    db.call("pause", queue="default")
    db.call("pause", type="task")
    assert causes(db, job) == ["paused", "paused", "unserved", "unsupported", "delayed"]
    later = db.enqueue(delay=2 * HOUR)
    assert causes(db, later) == ["delayed", "paused", "paused", "unserved", "unsupported"]


# -- Answers that were wrong: in all of these it said that nothing keeps the job.


def test_one_node_must_meet_all_requirements(db: Db) -> None:
    db.node("a", types={"other": 1}, queues=["default"])
    db.node("b", types={"task": 1}, queues=["mail"])
    assert only(db, db.enqueue()) == (
        "unsupported",
        "no live node that serves its queue default handles its type task; node b does, and serves mail",
    )


def test_a_queue_that_has_reached_its_limit_keeps_its_jobs(db: Db) -> None:
    epoch = db.node(types={"task": 1})
    declare_queue(db, "default", max=1)
    first, second = db.enqueue(), db.enqueue()
    (held,) = db.claim(epoch)
    assert db.claim(epoch) == []  # no claim parks a job for the limit of its queue
    (waiting,) = {first, second} - {held.id}
    assert why(db, waiting)[0] == ("limited", f"queue default may run 1 job at once, and job {held.id} (running) does")


def test_an_earlier_job_of_an_ordered_key_keeps_a_job_that_no_claim_has_parked(db: Db) -> None:
    db.node(types={"task": 1})
    first = enqueue(db, order="7", delay=HOUR)
    second = enqueue(db, order="7")
    said = f"job {first} (queued) comes before it in the ordered key order:task:7, and is due at 2031-03-14 10:26:53+00"
    assert why(db, second)[0] == ("ordered", said)


def test_a_full_limit_keeps_a_job_that_no_claim_has_parked(db: Db) -> None:
    epoch = db.node(types={"task": 1})
    declare_limit(db, "crm-api", 1)
    enqueue(db, "key:crm-api")
    held = db.claim_one(epoch)
    late = enqueue(db, "key:crm-api")
    assert why(db, late)[0] == ("limited", f"it waits for the limit crm-api, which job {held.id} (running) holds")


def test_silent_nodes_are_not_alive_though_still_called_active(db: Db) -> None:
    db.node("mule", types={"task": 1})
    job = db.enqueue()
    db.tick(60)
    said = "no node is alive; the last one was mule, whose last beat was at 2031-03-14 09:26:53+00"
    assert why(db, job)[0] == ("no_node", said)


def test_a_job_that_a_silent_node_holds_is_not_called_running(db: Db) -> None:
    epoch, job = db.node("mule"), db.enqueue()
    db.claim_one(epoch)
    db.tick(60)
    cause, reason = only(db, job)
    assert cause == "silent"
    assert reason.startswith("node mule holds it, and has been silent since 2031-03-14 09:26:53+00")

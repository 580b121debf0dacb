"""At most one job per unique key: among the jobs that wait, until it has ended, or for a time."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.harness import Db, End, Session, refused

ACCOUNT: dict[str, Any] = {"unique_by": "{account}", "payload": {"account": 7}}


def sync(session: Session, account: int = 7, **more: Any) -> Any:
    payload = {"account": account} | more.pop("extra", {})
    return session.send("sync", unique_by="{account}", payload=payload, **more)


# -- which jobs are duplicates


def test_duplicate_of_a_waiting_job_returns_that_job(db: Db) -> None:
    first = sync(db)
    assert tuple(sync(db)) == (first.id, first.seq, False, False)
    assert sync(db, 8).created
    assert db.count("jobs") == 2


def test_key_belongs_to_a_tenant_and_a_type(db: Db) -> None:
    assert db.send("sync", **ACCOUNT).created
    assert db.send("sync", tenant="b", **ACCOUNT).created
    assert db.send("other", **ACCOUNT).created


def test_without_unique_by_all_arguments_are_the_key(db: Db) -> None:
    first = db.send("t", payload={"a": 1, "b": [None]}, unique_until="started")
    assert db.send("t", payload={"b": [None], "a": 1}, unique_until="started").id == first.id
    assert db.send("t", payload={"a": 1}, unique_until="started").created


@pytest.mark.parametrize("wait", ["delayed", "paused", "parked"])
def test_a_job_waits_for_whatever_reason(db: Db, wait: str) -> None:
    first = sync(db, delay="1 h")
    db.set_wait(first.id, wait)
    assert sync(db).id == first.id


def test_key_until_started_is_free_when_the_job_is_claimed(db: Db) -> None:
    epoch, first = db.node(), sync(db)
    db.claim_one(epoch)
    second = sync(db)
    assert second.created
    assert sync(db).id == second.id
    assert first.id != second.id


def test_released_job_does_not_take_its_key_from_another(db: Db) -> None:
    epoch, first = db.node(), sync(db)
    job = db.claim_one(epoch)
    second = sync(db)
    db.settle(epoch, End(job, "released"))
    assert sync(db).id == second.id
    db.claim(epoch, 1)  # the first, by its run_at
    assert db.look(first.id).state == "running"
    assert sync(db).id == second.id


def test_released_job_has_its_key_again_if_no_other_took_it(db: Db) -> None:
    epoch, first = db.node(), sync(db)
    db.settle(epoch, End(db.claim_one(epoch), "released"))
    assert sync(db).id == first.id


def test_job_that_waits_for_a_retry_has_its_key(db: Db) -> None:
    epoch, first = db.node(), sync(db)
    db.settle(epoch, End(db.claim_one(epoch), "failed"))
    assert sync(db).id == first.id


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "canceled"])
def test_key_until_finished_is_free_when_the_job_has_ended(db: Db, outcome: str) -> None:
    epoch = db.node()
    first = sync(db, unique_until="finished", max_attempts=1)
    if outcome == "canceled":
        assert sync(db, unique_until="finished").id == first.id
        db.value("cancel", id=first.id)
    else:
        job = db.claim_one(epoch)
        assert sync(db, unique_until="finished").id == first.id
        db.settle(epoch, End(job, outcome))
    assert sync(db, unique_until="finished").created


def test_key_with_a_time_holds_for_that_time_whatever_the_job_does(db: Db) -> None:
    first = sync(db, unique_until="10 minutes")
    db.run(db.node(), "succeeded")
    db.tick(599)
    assert tuple(sync(db, unique_until="10 minutes")) == (first.id, first.seq, False, False)
    db.tick(1)
    assert sync(db, unique_until="10 minutes").created


def test_job_says_how_long_it_has_its_key(db: Db) -> None:
    """Not the one that comes after it."""
    epoch = db.node()
    first = sync(db, unique_until="finished")
    db.claim_one(epoch)
    assert sync(db, unique_until="started").id == first.id


def test_rescheduled_job_has_its_key_again_unless_another_took_it(db: Db) -> None:
    epoch = db.node()
    first = sync(db, unique_until="finished")
    db.run(epoch, "succeeded")
    db.value("reschedule", id=first.id)
    assert sync(db, unique_until="finished").id == first.id
    db.run(epoch, "succeeded")
    second = sync(db, unique_until="finished")
    db.value("reschedule", id=first.id)
    assert sync(db, unique_until="finished").id == second.id


# -- what an enqueue does about a duplicate


def test_reject_raises_and_stores_nothing(db: Db) -> None:
    first = sync(db, on_duplicate="reject")
    with refused("WB014", f"job {first.id} has the unique key '7' of type 'sync'"):
        sync(db, on_duplicate="reject")
    with refused("WB014"):
        db.call("enqueue_many", jobs=[{"type": "other"}, {"type": "sync", "on_duplicate": "reject"} | ACCOUNT])
    assert db.count("jobs") == 1


@pytest.mark.parametrize(
    ("until", "words"),
    [
        ("started", "when that job has started"),
        ("finished", "when that job has ended"),
        ("10 min", "when the time of that job's key is over"),
    ],
)
def test_reject_says_when_the_key_will_be_free(db: Db, until: str, words: str) -> None:
    sync(db, unique_until=until)
    with refused("WB014", f"enqueue it {words}"):
        sync(db, on_duplicate="reject")


def test_reject_by_all_arguments_says_so(db: Db) -> None:
    first = db.send("sync", payload={"account": 7}, unique_until="started")
    with refused("WB014", f"job {first.id} has the same arguments, which are the unique key of type 'sync'"):
        db.send("sync", payload={"account": 7}, on_duplicate="reject")


def test_replace_gives_the_waiting_job_the_new_arguments_and_options(db: Db) -> None:
    first = sync(db, extra={"n": 1}, delay="1 h")
    again = sync(db, extra={"n": 2}, on_duplicate="replace", queue="quick", priority=5, version=2, timeout="9 s")
    assert tuple(again) == (first.id, first.seq, False, False)
    db.expect(first.id, payload={"account": 7, "n": 2}, queue="quick", priority=5, version=2, timeout=9.0, wait=None)
    sync(db, extra={"n": 3}, on_duplicate="replace", delay="1 h")
    db.expect(first.id, payload={"account": 7, "n": 3}, queue="default", wait="delayed", run_at=db.after(3600))
    db.assert_sound()


def test_replace_starts_the_attempts_of_a_failed_job_anew(db: Db) -> None:
    epoch, first = db.node(), sync(db)
    db.settle(epoch, End(db.claim_one(epoch), "failed"))
    sync(db, extra={"n": 2}, on_duplicate="replace")
    db.expect(first.id, state="queued", attempt=0, payload={"account": 7, "n": 2})


@pytest.mark.parametrize("until", ["finished", "1 h"])
@pytest.mark.parametrize("has_ended", [False, True])
def test_replace_is_refused_if_the_job_of_the_key_no_longer_waits(db: Db, until: str, has_ended: bool) -> None:
    """The code has changed: the earlier job was enqueued with a longer rule. Its new arguments must not be lost."""
    epoch, first = db.node(), sync(db, unique_until=until)
    held = db.claim_one(epoch)
    if has_ended:
        db.settle(epoch, End(held))
    if has_ended and until == "finished":
        assert sync(db, extra={"n": 2}, on_duplicate="replace").created
        return
    with refused("WB014", f"job {first.id} has the unique key '7'"):
        sync(db, extra={"n": 2}, on_duplicate="replace")


def test_replaced_job_stays_blocked(db: Db) -> None:
    parent = db.enqueue("parent")
    child = sync(db, depends_on=[parent])
    sync(db, extra={"n": 2}, on_duplicate="replace")
    db.expect(child.id, state="blocked", payload={"account": 7, "n": 2})


@pytest.mark.parametrize("bulk", [False, True])
def test_replaced_job_waits_for_the_jobs_that_the_new_one_depends_on(db: Db, bulk: bool) -> None:
    epoch, old, new = db.node(), db.enqueue("old"), db.enqueue("new")
    child = sync(db, depends_on=[old])
    if bulk:
        job = {"type": "sync", "payload": {"account": 7}, "unique_by": "{account}", "on_duplicate": "replace"}
        (answer,) = db.call("enqueue_many", jobs=[job | {"depends_on": [str(new)]}])
    else:
        answer = sync(db, on_duplicate="replace", depends_on=[new])
    assert (answer.id, answer.created) == (child.id, False)
    rows = {row.id: row for row in db.claim(epoch)}
    assert set(rows) == {old, new}
    for parent, state in ((old, "blocked"), (new, "queued")):
        db.settle(epoch, End(rows[parent]))
        db.call("unblock")
        db.expect(child.id, state=state)


def test_job_that_replaces_one_cannot_depend_on_a_job_that_waits_for_it(db: Db) -> None:
    first = sync(db)
    second = db.enqueue("between", depends_on=[first.id])
    with refused("WB003", "which waits for that one"):
        sync(db, on_duplicate="replace", depends_on=[second])
    with refused("WB003", "which waits for that one"):
        sync(db, on_duplicate="replace", depends_on=[first.id])
    db.expect(first.id, state="queued")


def test_debounced_job_runs_when_calls_have_stopped(db: Db) -> None:
    first = sync(db, extra={"n": 1}, debounce_wait="30 s", debounce_max="1 minute")
    db.expect(first.id, wait="delayed", run_at=db.after(30))
    latest = db.after(60)
    for seconds, due in ((20, db.after(50)), (25, latest), (10, latest)):
        db.tick(seconds)
        assert sync(db, extra={"n": seconds}, debounce_wait="30 s", debounce_max="1 minute").id == first.id
        db.expect(first.id, payload={"account": 7, "n": seconds}, run_at=due)


def test_debounced_job_that_is_overdue_becomes_ready_at_once(db: Db) -> None:
    first = sync(db, debounce_wait="30 s", debounce_max="1 minute")
    db.tick(90)
    sync(db, debounce_wait="30 s", debounce_max="1 minute")
    db.expect(first.id, wait=None, run_at=db.now)


def test_debounce_without_a_maximum_waits_as_long_as_calls_come(db: Db) -> None:
    first = sync(db, debounce_wait="30 s")
    for _ in range(3):
        db.tick(29)
        sync(db, debounce_wait="30 s")
    db.expect(first.id, run_at=db.after(30))


def test_idempotency_key_of_a_duplicate_leads_to_the_earlier_job(db: Db) -> None:
    first = sync(db)
    assert sync(db, idempotency_key="k").id == first.id
    db.run(db.node(), "succeeded")
    assert tuple(sync(db, idempotency_key="k")) == (first.id, first.seq, False, False)


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"on_duplicate": "drop"}, "on_duplicate must be keep, replace or reject, not 'drop'"),
    ({"on_duplicate": "replace", "unique_until": "finished"}, "on_duplicate=replace needs unique_until=started"),
    ({"unique_until": "soon"}, "unique_until must be started, finished or a duration, not 'soon'"),
    ({"unique_until": "-1 s"}, "unique_until must be"),
    ({"unique_by": "{nothing}"}, "unique_by='{nothing}' needs the parameter 'nothing', which the payload lacks"),
    ({"unique_by": "{"}, "unique_by='{' has a single brace"),
    ({"unique_by": "{x}", "payload": {"x": "y" * 1001}}, "unique_by makes a key of 1001 bytes, the limit is 1000"),
    ({"debounce_max": "1 s"}, "debounce_max needs debounce_wait"),
    ({"debounce_wait": "0 s"}, "debounce_wait must be more than 0"),
    ({"debounce_wait": "366 days"}, "debounce_wait must be more than 0 and at most 365 days"),
    ({"debounce_wait": "2 s", "debounce_max": "1 s"}, "debounce_max must be at least debounce_wait"),
    ({"debounce_wait": "2 s", "delay": "1 s"}, "debounce_wait excludes run_at, delay, unique_until and on_duplicate"),
    ({"debounce_wait": "2 s", "ordered_by": "x"}, "ordered_by and debounce_wait exclude each other"),
]


@pytest.mark.parametrize(("given", "words"), REFUSALS, ids=lambda value: str(value)[:40])
def test_invalid_options_are_refused_with_a_message(db: Db, given: dict[str, Any], words: str) -> None:
    with refused("WB003", words):
        db.send("t", **given)
    with refused("WB003", words):
        db.call("enqueue_many", jobs=[{"type": "t"}, {"type": "t"} | given])
    assert db.count("jobs") == 0


# -- many at once, chains, and jobs that are sent again


def test_bulk_stores_one_job_per_key_and_answers_for_each(db: Db) -> None:
    waiting = sync(db, 1)
    accounts = [2, 1, 3, 2, 1]
    jobs = [{"type": "sync", "unique_by": "{account}", "payload": {"account": each}} for each in accounts]
    rows = db.call("enqueue_many", jobs=jobs)
    assert [row.created for row in rows] == [True, False, True, False, False]
    assert rows[1].id == rows[4].id == waiting.id
    assert rows[3].id == rows[0].id
    assert db.count("jobs") == 3


def test_bulk_from_a_table_stores_one_job_per_key(db: Db) -> None:
    db.begin()
    db.change("CREATE TEMP TABLE incoming OF {schema}.new_job ON COMMIT DROP")
    db.change(
        "INSERT INTO incoming (type, payload, unique_by) SELECT 't', '{{\"a\": 1}}', '{{a}}' FROM generate_series(1, 3)"
    )
    rows = db.call("enqueue_from", source="incoming")
    db.commit()
    assert db.count("jobs") == 1
    assert {row.id for row in rows} == {db.rows("jobs")[0].id}


def test_child_of_a_duplicate_waits_for_the_earlier_job(db: Db) -> None:
    first = sync(db)
    jobs = [{"type": "sync"} | ACCOUNT, {"type": "after", "depends_on": [0]}]
    parent, child = db.call("enqueue_many", jobs=jobs)
    assert parent.id == first.id
    assert [(row.parent, row.child) for row in db.rows("dependencies")] == [(first.id, child.id)]


def test_job_that_is_sent_again_is_not_its_own_duplicate(db: Db) -> None:
    first = sync(db, id=db.new_id(), id_is_new=True)
    assert tuple(sync(db, id=first.id, resend=True)) == (first.id, first.seq, True, False)
    assert tuple(sync(db, id=first.id)) == (first.id, first.seq, False, False)
    assert db.count("jobs") == 1


@pytest.mark.parametrize("finished", [False, True])
def test_job_that_is_sent_again_after_another_took_its_key_makes_no_second_job(db: Db, finished: bool) -> None:
    epoch, first = db.node(), sync(db, id=db.new_id(), id_is_new=True)
    job = db.claim_one(epoch)
    if finished:
        db.settle(epoch, End(job))
    assert sync(db).created
    assert tuple(sync(db, id=first.id, resend=True)) == (first.id, first.seq, True, False)
    assert db.count("jobs") == (1 if finished else 2)


# -- open transactions


def test_claim_passes_over_a_job_until_its_duplicate_has_committed(db: Db) -> None:
    epoch, first = db.node(), sync(db)
    producer = db.session()
    producer.begin()
    assert sync(producer).id == first.id
    assert db.claim(epoch) == []
    producer.commit()
    assert db.claim_one(epoch).id == first.id


def test_claim_takes_the_job_at_once_if_the_duplicate_was_rolled_back(db: Db) -> None:
    epoch, first = db.node(), sync(db)
    producer = db.session()
    producer.begin()
    sync(producer)
    producer.rollback()
    assert db.claim_one(epoch).id == first.id


def test_savepoint_gives_back_the_key_of_a_job_that_was_rolled_back(db: Db) -> None:
    db.begin()
    db.execute("SAVEPOINT s")
    sync(db)
    db.execute("ROLLBACK TO s")
    second = sync(db)
    assert second.created
    db.commit()
    assert sync(db).id == second.id


def test_two_transactions_that_keep_the_same_job_do_not_wait_for_each_other(db: Db) -> None:
    epoch, first = db.node(), sync(db)
    one, other = db.session(), db.session()
    for session in (one, other):
        session.begin()
        assert sync(session).id == first.id
    one.commit()
    assert db.claim(epoch) == []
    other.commit()
    assert db.claim_one(epoch).id == first.id


def test_enqueue_waits_for_the_transaction_that_gives_the_key_to_a_new_job(db: Db) -> None:
    one, other = db.session(), db.session()
    one.begin()
    first = sync(one)
    waiting = other.start("enqueue", type="sync", id=db.new_id(), id_is_new=True, **ACCOUNT).blocked()
    one.commit()
    assert tuple(waiting.row()) == (first.id, first.seq, False, False)


def test_enqueue_gets_the_key_of_a_job_that_was_rolled_back(db: Db) -> None:
    one, other = db.session(), db.session()
    one.begin()
    sync(one)
    waiting = other.start("enqueue", type="sync", id=db.new_id(), id_is_new=True, **ACCOUNT).blocked()
    one.rollback()
    assert waiting.row().created
    assert db.count("jobs") == 1


def test_two_jobs_that_take_a_free_key_over_at_once_make_one_job(db: Db) -> None:
    sync(db)
    db.claim_one(db.node())
    one, other = db.session(), db.session()
    one.begin()
    second = sync(one)
    assert second.created
    waiting = other.start("enqueue", type="sync", id=db.new_id(), id_is_new=True, **ACCOUNT).blocked()
    one.commit()
    assert tuple(waiting.row()) == (second.id, second.seq, False, False)


def test_replacements_in_two_transactions_take_turns(db: Db) -> None:
    first = sync(db)
    one, other = db.session(), db.session()
    one.begin()
    sync(one, extra={"n": 1}, on_duplicate="replace")
    arguments = {"unique_by": "{account}", "payload": {"account": 7, "n": 2}, "on_duplicate": "replace"}
    waiting = other.start("enqueue", type="sync", id=db.new_id(), id_is_new=True, **arguments).blocked()
    one.commit()
    assert waiting.row().id == first.id
    db.expect(first.id, payload={"account": 7, "n": 2})


def test_duplicate_of_a_job_that_is_being_claimed_is_a_new_job(db: Db) -> None:
    epoch, first = db.node(), sync(db)
    claimer, producer = db.session(), db.session()
    claimer.begin()
    assert claimer.claim_one(epoch).id == first.id
    waiting = producer.start("enqueue", type="sync", id=db.new_id(), id_is_new=True, **ACCOUNT).blocked()
    claimer.commit()
    assert waiting.row().created


def test_bulks_with_the_same_keys_in_other_orders_do_not_deadlock(db: Db) -> None:
    one, other = db.session(), db.session()
    jobs = [{"type": "t", "unique_by": "{n}", "payload": {"n": n}} for n in range(20)]
    one.begin()
    first = one.call("enqueue_many", jobs=jobs)
    waiting = other.start("enqueue_many", jobs=jobs[::-1]).blocked()
    one.commit()
    assert [row.id for row in waiting.rows()] == [row.id for row in first[::-1]]


def test_bulk_takes_keys_in_sorted_order(db: Db) -> None:
    """The first that a bulk waits for is its smallest, so all bulks wait in one order."""

    def jobs(*keys: str) -> list[dict[str, Any]]:
        return [{"type": "t", "unique_by": key} for key in keys]

    one, other = db.session(), db.session()
    one.begin()
    one.send("t", unique_by="b")
    waiting = other.start("enqueue_many", jobs=jobs("d", "c", "b", "a")).blocked()
    one.call("enqueue_many", jobs=jobs("c", "d"))  # would deadlock
    one.commit()
    assert sorted(row.created for row in waiting.rows()) == [False, False, False, True]


def test_bulk_takes_unique_keys_in_one_order_whatever_the_idempotency_keys_are(db: Db) -> None:
    def job(idempotency_key: str, unique_by: str) -> dict[str, Any]:
        return {"type": "t", "idempotency_key": idempotency_key, "unique_by": unique_by}

    one, other = db.session(), db.session()
    one.begin()
    one.send("t", unique_by="a")
    waiting = other.start("enqueue_many", jobs=[job("1", "b"), job("2", "a")]).blocked()
    one.send("t", unique_by="b")  # would deadlock
    one.commit()
    assert [row.created for row in waiting.rows()] == [False, False]


def test_bulk_takes_idempotency_keys_in_one_order_whatever_the_unique_keys_are(db: Db) -> None:
    keys = [("2", "a"), ("1", "b")]
    jobs = [{"type": "t", "idempotency_key": key, "unique_by": unique} for key, unique in keys]
    one, other = db.session(), db.session()
    one.begin()
    one.send("t", idempotency_key="1")
    waiting = other.start("enqueue_many", jobs=jobs).blocked()
    one.send("t", idempotency_key="2")  # would deadlock
    one.commit()
    assert [row.created for row in waiting.rows()] == [False, False]


def test_bulk_with_both_keys_makes_the_first_job_of_an_idempotency_key(db: Db) -> None:
    keys = [("1", "z"), ("1", "a"), ("2", "z"), ("3", "b")]
    jobs = [{"type": "t", "idempotency_key": key, "unique_by": unique} for key, unique in keys]
    rows = db.call("enqueue_many", jobs=jobs)
    assert [row.created for row in rows] == [True, False, False, True]
    assert rows[0].id == rows[1].id == rows[2].id != rows[3].id
    assert all(row.seq is not None for row in rows)
    assert [row.created for row in db.call("enqueue_many", jobs=jobs)] == [False] * 4
    assert db.count("jobs") == 2


def test_job_that_is_sent_again_while_its_first_enqueue_is_open_is_not_rejected(db: Db) -> None:
    one, other = db.session(), db.session()
    one.begin()
    first = sync(one, on_duplicate="reject")
    more = {"id": first.id, "resend": True, "on_duplicate": "reject"}
    waiting = other.start("enqueue", type="sync", **more, **ACCOUNT).blocked()
    one.commit()
    assert tuple(waiting.row()) == (first.id, first.seq, True, False)


def test_snapshot_of_a_repeatable_read_transaction_makes_no_second_job(db: Db) -> None:
    reader = db.session()
    reader.begin("REPEATABLE READ")
    reader.execute("SELECT 1 AS one")
    sync(db)
    with refused("40001"):
        sync(reader)
    reader.rollback()
    assert db.count("jobs") == 1


# -- pruning


def test_prune_keys_removes_the_keys_that_no_job_has(db: Db) -> None:
    epoch = db.node()
    sync(db, 1)
    db.run(epoch, "succeeded")
    sync(db, 2)
    sync(db, 3, unique_until="1 minute")
    db.tick(60)
    assert db.value("prune_keys") == 2
    assert [row.key for row in db.rows("uniques")] == ["2"]
    assert db.value("prune_keys") == 0


def test_pruned_key_is_given_to_the_next_job(db: Db) -> None:
    """Also if the row goes while an enqueue waits for it."""
    sync(db)
    db.run(db.node(), "succeeded")
    pruner, producer = db.session(), db.session()
    pruner.begin()
    assert pruner.value("prune_keys") == 1
    waiting = producer.start("enqueue", type="sync", id=db.new_id(), id_is_new=True, **ACCOUNT).blocked()
    pruner.commit()
    assert waiting.row().created
    assert db.count("uniques") == 1


# -- against a plain model


class Model:
    """Which job has each key: what `until` of that job says."""

    def __init__(self) -> None:
        self.keys: dict[int, tuple[UUID, str]] = {}
        self.waiting: set[UUID] = set()
        self.running: set[UUID] = set()

    def holder(self, key: int) -> UUID | None:
        if key not in self.keys:
            return None
        job, until = self.keys[key]
        has_it = job in self.waiting or (until == "finished" and job in self.running)
        return job if has_it else None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("enqueue"), st.integers(0, 2), st.sampled_from(["started", "finished"])),
        st.tuples(st.just("claim"), st.none(), st.none()),
        st.tuples(
            st.just("settle"), st.integers(0, 5), st.sampled_from(["succeeded", "failed", "released", "canceled"])
        ),
        st.tuples(st.just("cancel"), st.integers(0, 5), st.none()),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_keys_follow_the_model(db: Db, steps: list[tuple[str, Any, Any]]) -> None:
    db.wipe()
    model, epoch, claimed = Model(), db.node(), dict[UUID, Any]()
    for verb, number, word in steps:
        if verb == "enqueue":
            holder = model.holder(number)
            answer = sync(db, number, unique_until=word)
            assert (answer.created, answer.id if holder else None) == (holder is None, holder)
            if answer.created:
                model.keys[number] = (answer.id, word)
                model.waiting.add(answer.id)
        elif verb == "claim":
            for job in db.claim(epoch, 1):
                claimed[job.id] = job
                model.waiting.discard(job.id)
                model.running.add(job.id)
        elif verb == "settle" and claimed:
            job = claimed.pop(sorted(claimed)[number % len(claimed)])
            state = db.settle(epoch, End(job, word)).get(job.id, "succeeded")
            model.running.discard(job.id)
            if state in ("failed", "queued"):
                model.waiting.add(job.id)
        elif verb == "cancel" and model.waiting:
            job_id = sorted(model.waiting)[number % len(model.waiting)]
            db.value("cancel", id=job_id)
            model.waiting.discard(job_id)
    db.assert_sound()

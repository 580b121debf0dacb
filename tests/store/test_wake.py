"""A statement that makes a job ready sends a notification if, and only if, a worker sleeps."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.store.flow import declare_limit, enqueue
from tests.store.harness import Db, End, Session
from tests.waiting import until


def failed(db: Db) -> None:
    db.run(db.node(), "failed", delay=timedelta(0))


def snoozed(db: Db) -> None:
    db.run(db.node(), "snoozed")


def released(db: Db) -> None:
    db.claim_one(db.node())
    db.value("release", id=db.rows("jobs")[0].id)


def left(db: Db) -> None:
    epoch = db.node()
    db.claim(epoch)
    db.value("leave", epoch=epoch)


def resumed(db: Db) -> None:
    db.value("pause", queue="default")
    db.value("resume", queue="default")


def promoted(db: Db) -> None:
    db.value("promote", now=db.after(3600))


VERBS: dict[str, Callable[[Db], Any]] = {
    "enqueue": lambda db: db.enqueue(queue="q"),
    "enqueue_many": lambda db: db.call("enqueue_many", jobs=[{"type": "t", "queue": "q"}]),
    "promote": promoted,
    "fail": failed,
    "snooze": snoozed,
    "release": released,
    "leave": left,
    "resume": resumed,
    "reschedule": lambda db: db.value("reschedule", id=db.rows("jobs")[0].id),
}


def sleeper(db: Db) -> Session:
    session = db.session(db.url)
    session.connection.execute(f'LISTEN "{db.value("_wake_channel")}"'.encode())
    return session


def heard(db: Db, listener: Session) -> list[str]:
    """What was said until now: everything before a last word of our own. Without the times of delayed jobs."""
    db.execute("SELECT pg_notify(%s, 'the last word')", (db.value("_wake_channel"),))
    words: list[str] = []
    for notice in listener.connection.notifies(timeout=60):
        if notice.payload == "the last word":
            break
        words.append(re.sub(r"(?<=later) \d+\.\d+$", "", notice.payload))
    return words


@pytest.mark.parametrize("verb", list(VERBS))
def test_each_verb_that_makes_a_job_ready_notifies_a_sleeping_worker(db: Db, verb: str) -> None:
    listener = sleeper(db)
    db.enqueue(delay=timedelta(hours=1)) if verb == "promote" else db.enqueue()
    key = db.value("_wake_lock_key")
    listener.execute("SELECT pg_advisory_lock(1466004579, %s)", (key,))
    VERBS[verb](db)
    assert [word for word in heard(db, listener) if word != "awake" and not word.startswith("stop ")] != []
    listener.execute("SELECT pg_advisory_unlock(1466004579, %s)", (key,))
    db.wipe()
    db.enqueue(delay=timedelta(hours=1)) if verb == "promote" else db.enqueue()
    VERBS[verb](db)
    assert [word for word in heard(db, listener) if word != "awake" and not word.startswith("stop ")] == []


def test_notification_names_the_queue(db: Db) -> None:
    listener = sleeper(db)
    listener.execute("SELECT pg_advisory_lock(1466004579, %s)", (db.value("_wake_lock_key"),))
    db.enqueue(queue="a")
    db.call("enqueue_many", jobs=[{"type": "t", "queue": queue} for queue in ("b", "c", "b")])
    assert sorted(heard(db, listener)) == ["ready a", "ready b", "ready c"]


def test_delayed_job_notifies_promoters_only_if_it_is_due_soon(db: Db) -> None:
    listener = sleeper(db)  # nobody sleeps; they are to know of it all the same
    db.enqueue(queue="later", delay=timedelta(seconds=1))
    db.call("enqueue_many", jobs=[{"type": "t", "delay": "30 s"}, {"type": "t", "delay": "14 s"}])
    assert heard(db, listener) == ["later", "later"]
    listener.execute("SELECT pg_advisory_lock(1466004579, %s)", (db.value("_wake_lock_key"),))
    db.enqueue(delay=timedelta(seconds=16))
    db.call("enqueue_many", jobs=[{"type": "t", "delay": "30 s"}, {"type": "t", "run_at": "2999-01-01T00:00:00Z"}])
    assert heard(db, listener) == []
    db.call("enqueue_many", jobs=[{"type": "t", "queue": "a"}, {"type": "t", "queue": "b", "delay": "30 s"}])
    assert heard(db, listener) == ["ready a"]


@pytest.mark.parametrize(("seconds", "rung"), [(14, ["later"]), (16, [])])
def test_fail_and_reschedule_notify_promoters_if_due_soon(db: Db, seconds: int, rung: list[str]) -> None:
    """Except where a worker settles: it promotes itself."""
    listener, epoch, later = sleeper(db), db.node(), timedelta(seconds=seconds)
    listener.execute("SELECT pg_advisory_lock(1466004579, %s)", (db.value("_wake_lock_key"),))
    db.enqueue(), db.enqueue()
    heard(db, listener)
    one, other = db.claim(epoch)
    db.settle(epoch, End(one, "failed", delay=later))
    assert heard(db, listener) == []
    db.value("fail", id=other.id, fence=other.fence, delay=later)
    assert heard(db, listener) == rung
    db.value("reschedule", id=one.id, run_at=db.now + later)
    assert heard(db, listener) == rung


def test_reclaim_notifies_promoters(db: Db) -> None:
    listener, epoch = sleeper(db), db.node()
    db.enqueue()
    db.claim(epoch)
    heard(db, listener)  # the session of an earlier test, which the server has yet to end, may count as a sleeper
    db.lose(epoch)
    assert heard(db, listener) == ["later"], "they come back within a second"


@pytest.mark.parametrize(("seconds", "rung"), [(0, ["ready "]), (14, ["later"]), (16, [])])
def test_unblock_notifies_promoters_of_a_delayed_child(db: Db, seconds: int, rung: list[str]) -> None:
    listener, epoch = sleeper(db), db.node()
    first = db.enqueue(run_at=db.now)
    db.enqueue(depends_on=[first], run_at=db.now + timedelta(seconds=seconds))
    db.call("unblock")
    db.settle(epoch, End(db.claim_one(epoch)))
    listener.execute("SELECT pg_advisory_lock(1466004579, %s)", (db.value("_wake_lock_key"),))
    db.call("unblock")
    assert heard(db, listener) == rung


def test_uncommitted_enqueue_prevents_the_sleep_lock(db: Db) -> None:
    """Else its job would be seen by nobody: it did not ring, and the sleeper's last look came too early."""
    producer, worker, key = db.session(), db.session(), db.value("_wake_lock_key")

    def fall_asleep() -> bool:
        (row,) = worker.execute("SELECT pg_try_advisory_lock(1466004579, %s) AS asleep", (key,))
        return bool(row.asleep)

    def wake_up() -> None:
        worker.execute("SELECT pg_advisory_unlock(1466004579, %s)", (key,))

    until(fall_asleep)  # the session of an earlier test, which the server has yet to end, may have the lock
    wake_up()
    producer.begin()
    producer.enqueue()
    assert not fall_asleep()
    producer.commit()
    assert fall_asleep()
    wake_up()


def test_duplicate_sends_no_notification(db: Db) -> None:
    listener = sleeper(db)
    db.enqueue("t", idempotency_key="k")
    listener.execute("SELECT pg_advisory_lock(1466004579, %s)", (db.value("_wake_lock_key"),))
    db.send("t", idempotency_key="k")
    assert heard(db, listener) == []


def test_finished_job_sends_no_notification(db: Db) -> None:
    listener, epoch = sleeper(db), db.node()
    db.enqueue(), db.enqueue(), db.enqueue()
    first, second, third = db.claim(epoch)
    listener.execute("SELECT pg_advisory_lock(1466004579, %s)", (db.value("_wake_lock_key"),))
    db.settle(epoch, End(first), End(second, "failed", error={"kind": "permanent"}))
    db.call("settle", epoch=epoch, ids=[third.id], fences=[third.fence])
    assert heard(db, listener) == []


def test_tick_notifies_promoters_of_a_job_with_jitter(db: Db) -> None:
    listener = sleeper(db)
    db.value("add_schedule", name="s", type="task", every=timedelta(hours=1), jitter=timedelta(seconds=12))
    db.tick(3600)
    heard(db, listener)
    assert db.row("tick").fired == 1
    (job,) = db.rows("jobs")
    assert job.wait == "delayed"
    assert heard(db, listener) == ["later"]


def test_a_parked_job_that_is_put_off_notifies_promoters(db: Db) -> None:
    epoch = db.node()
    declare_limit(db, "room", 1)
    first, second = (enqueue(db, "key:room") for _ in range(2))
    (held,) = db.claim(epoch, 10)
    assert held.id == first
    listener = sleeper(db)
    db.value("reschedule", id=second, run_at=db.after(9))
    assert heard(db, listener) == ["later"]
    db.settle(epoch, End(held))
    assert db.value("promote") == db.after(9)

"""`_list_ends`, which `jobs watch` asks each second, and `audit_list`."""

from __future__ import annotations

import json
from typing import Any

from tests.store.harness import Db, End
from watchbill.filters.condition import write_conditions
from watchbill.filters.parser import parse_filter


def look(db: Db, since: Any, where: str = "", max: int = 50) -> tuple[list[Any], Any]:
    conditions = json.loads(write_conditions(parse_filter(where, db.now)))
    *ends, last = db.call("_list_ends", conditions=conditions, since=since, max=max)
    return ends, last


def test_ends_and_failed_runs_are_listed_once_each_in_their_order(db: Db) -> None:
    node = db.node("web-1")
    ends, last = look(db, None)
    assert (ends, last.total, last.ended_at) == ([], 0, db.after(-2))
    jobs = [
        db.enqueue("mail.send", payload={"to": "a"}),
        db.enqueue("sms.send"),
        db.enqueue("mail.send", max_attempts=1),
        db.enqueue("mail.send"),
    ]
    good, bad, dead, _ = db.claim(node)
    error = {"type": "Oops", "message": "refused"}
    db.settle(node, End(good))
    db.tick(0.1)
    db.settle(node, End(bad, "failed", error=error))
    db.tick(0.1)
    db.settle(node, End(dead, "failed", error=error))
    db.tick(0.1)
    db.value("cancel", id=jobs[3], force=True)
    db.tick(1.8)  # now one has not settled for two seconds
    first, middle = look(db, last.ended_at)
    db.tick(1)
    rest, end = look(db, middle.ended_at)
    assert [row.id for row in [*first, *rest]] == jobs
    assert (len(first), middle.total, end.total) == (2, 2, 2)
    assert [(row.state, row.outcome) for row in [*first, *rest]] == [
        ("succeeded", "succeeded"), ("failed", "failed"), ("dead", "failed"), ("canceled", "canceled"),
    ]  # fmt: skip
    assert [row.error for row in [*first, *rest][:3]] == [None, "Oops: refused", "Oops: refused"]
    assert (first[1].attempt, first[1].max_attempts, first[1].node) == (1, 10, "web-1")
    assert first[1].run_at > db.now - (db.now - first[1].ended_at)  # when it is tried again
    assert look(db, end.ended_at)[1].total == 0


def test_ends_that_match_a_filter_and_how_many_more(db: Db) -> None:
    node = db.node()
    for number in range(5):
        db.enqueue("mail.send" if number % 2 else "sms.send", payload={"n": number})
    db.settle(node, *(End(each, "failed" if each.payload["n"] == 4 else "succeeded") for each in db.claim(node)))
    began = db.after(-1)
    db.tick(5)
    assert [look(db, began, where)[1].total for where in ("", "type:mail.*", "payload.n:3", "state:failed")] == [
        5, 2, 1, 1,
    ]  # fmt: skip
    ends, last = look(db, began, max=2)
    assert (len(ends), last.total) == (2, 5)
    db.tick(60)
    assert look(db, began)[1].total == 0, "it looks back a minute at most"


def test_audit_is_listed_by_subject_and_in_pages(db: Db) -> None:
    job = db.enqueue(queue="mail")
    for action in ("pause", "resume", "pause"):
        db.tick(1)
        db.value(action, queue="mail")
    db.value("cancel", id=job)
    found = db.call("audit_list")
    assert [row.action for row in found] == ["cancel", "pause", "resume", "pause"]
    assert [row.action for row in db.call("audit_list", subject=f"job {job}")] == ["cancel"]
    assert len(db.call("audit_list", subject="queue *")) == 3
    assert len(db.call("audit_list", action="pause", since=db.now)) == 1
    assert [row.id for row in db.call("audit_list", before=found[1].id)] == [found[2].id, found[3].id]
    assert db.call("audit_list", subject="queue mail*", actor="nobody") == []


def test_audit_of_a_subject_is_found_by_its_index(db: Db) -> None:
    db.begin()
    db.execute(
        """INSERT INTO watchbill.audit (at, actor, action, subject)
           SELECT watchbill._clock(), 'a', 'cancel', 'job ' || n FROM generate_series(1, 3000) n"""
    )
    db.execute("ANALYZE watchbill.audit")
    assert len(db.call("audit_list", subject="job 7")) == 1
    (scans,) = db.execute("SELECT pg_stat_get_xact_numscans('watchbill.audit_subject'::regclass)")
    db.rollback()
    assert scans[0] > 0

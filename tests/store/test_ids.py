"""Numbers that are never issued twice, and ids that know their time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from tests.store.harness import T0, Db, new_id


def test_epochs_and_fences_are_on_one_line_of_numbers_above_the_timeline(db: Db) -> None:
    epoch = db.node()
    db.enqueue()
    fence = db.claim_one(epoch).fence
    (row,) = db.rows("installation")
    assert epoch >> 40 == fence >> 40 == row.generation + db.value("server_timeline")
    assert epoch < fence


@pytest.mark.parametrize(
    ("timeline", "same_server"), [(7, True), (7, False), (1, False)], ids=["went back", "restored elsewhere", "dumped"]
)
def test_another_server_or_an_older_timeline_issues_nothing_twice(own_db: Db, timeline: int, same_server: bool) -> None:
    """A restored dump or pg_upgrade puts the timeline back; what was issued there must stay below what comes."""
    db = own_db
    db.node()
    change = "UPDATE {schema}.installation SET timeline = %s, system_identifier = system_identifier + %s"
    db.change(change, timeline, 0 if same_server else 1)
    issued_there = (db.rows("installation")[0].generation + timeline + 1 << 40) - 1
    first = db.node()
    assert first > issued_there
    second = db.node()
    assert first < second < first + (1 << 40)  # adopted once


def test_a_failover_of_the_same_server_raises_no_generation(own_db: Db) -> None:
    db = own_db
    db.node()
    db.change("UPDATE {schema}.installation SET timeline = 0")
    db.node()
    (row,) = db.rows("installation")
    assert (row.generation, row.timeline) == (0, db.value("server_timeline"))


def test_ids_made_in_sql_are_of_version_7_and_know_their_time(db: Db) -> None:
    for at in (T0, datetime(1999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)):
        made: UUID = db.value("uuid7", at=at)
        assert (made.version, made.variant) == (7, "specified in RFC 4122")
        assert db.value("uuid_time", id=made) == at.replace(microsecond=at.microsecond // 1000 * 1000)
    assert len({db.value("uuid7") for _ in range(50)}) == 50


def test_ids_of_later_microseconds_are_larger(db: Db) -> None:
    ids = [db.value("uuid7", at=T0 + timedelta(microseconds=n)) for n in (0, 1, 2, 499, 500, 998, 999, 1000, 1001)]
    assert ids == sorted(ids)


def test_the_history_of_a_job_begins_a_day_before_its_id(db: Db) -> None:
    assert db.value("history_from", id=new_id(T0)) == T0 - timedelta(days=1)
    (row,) = db.execute("SELECT watchbill.history_from(%s) = '-infinity' AS unknown", (uuid4(),))
    assert row.unknown is True

"""Numbers that are never issued twice, and ids that know their time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from tests.store.harness import T0, Db, new_id


def test_epochs_and_fences_share_one_growing_sequence(db: Db) -> None:
    epoch = db.node()
    db.enqueue()
    fence = db.claim_one(epoch).fence
    (row,) = db.rows("installation")
    assert epoch >> 40 == fence >> 40 == row.generation + db.value("_server_timeline")
    assert epoch < fence


@pytest.mark.parametrize("timeline", [1, 7], ids=["the same", "went back"])
def test_another_server_issues_no_number_twice(own_db: Db, timeline: int) -> None:
    """A restored dump or pg_upgrade puts the timeline back; what was issued there must stay below what comes."""
    db = own_db
    db.node()
    change = "UPDATE {schema}.installation SET timeline = %s, server_started_at = server_started_at - interval '1 day'"
    db.change(change, timeline)
    issued_there = (db.rows("installation")[0].generation + timeline + 1 << 40) - 1
    first = db.node()
    assert first > issued_there
    second = db.node()
    assert first < second < first + (1 << 40)  # adopted once


def test_two_copies_of_one_database_issue_different_numbers(own_db: Db) -> None:
    """After a failover that left two primaries both derive their generation from the same row."""
    started = "UPDATE {schema}.installation SET server_started_at = server_started_at - interval '1 day'"
    own_db.change(started)
    before = own_db.rows("installation")[0]
    generations = set()
    for _ in range(40):
        own_db.change(
            "UPDATE {schema}.installation SET generation = %s, timeline = %s", before.generation, before.timeline
        )
        own_db.change(started)
        generations.add(own_db.value("_adopt_database"))
    raised = {generation - before.generation - before.timeline for generation in generations}
    assert len(raised) > 1
    assert raised <= set(range(1, 17))


def test_sql_ids_are_uuid7_with_their_time(db: Db) -> None:
    for at in (T0, datetime(1999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)):
        made: UUID = db.value("uuid7", at=at)
        assert (made.version, made.variant) == (7, "specified in RFC 4122")
        assert db.value("_extract_uuid_time", id=made) == at.replace(microsecond=at.microsecond // 1000 * 1000)
    assert len({db.value("uuid7") for _ in range(50)}) == 50


def test_ids_of_later_microseconds_are_larger(db: Db) -> None:
    ids = [db.value("uuid7", at=T0 + timedelta(microseconds=n)) for n in (0, 1, 2, 499, 500, 998, 999, 1000, 1001)]
    assert ids == sorted(ids)


def test_history_search_starts_a_day_before_the_id_time(db: Db) -> None:
    assert db.value("_history_start", id=new_id(T0)) == T0 - timedelta(days=1)
    (row,) = db.execute("SELECT watchbill._history_start(%s) = '-infinity' AS unknown", (uuid4(),))
    assert row.unknown is True

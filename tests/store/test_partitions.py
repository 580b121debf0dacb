"""History by the day: partitions made ahead, the default ones as a net."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.store.harness import Db, End
from watchbill.postgres.migrate import Source, apply_functions

PARENTS = ("finished_succeeded", "finished_otherwise", "attempts", "job_logs")
BOUNDS = """
    SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) AS bounds FROM pg_class c
    WHERE c.relnamespace = 'watchbill'::regnamespace AND c.relispartition AND c.relkind = 'r' ORDER BY 1"""


def bounds(db: Db) -> dict[str, str]:
    session = db.session(db.url)
    session.configure(TimeZone="UTC")
    return {row.relname: row.bounds for row in session.execute(BOUNDS)}


def homes(db: Db) -> dict[str, str]:
    """The partition of each finished job, by its type."""
    rows = db.execute("SELECT type, tableoid::regclass::text AS home FROM watchbill.finished_jobs")
    return {row.type: row.home.removeprefix("watchbill.") for row in rows}


def finish(db: Db, type: str, outcome: str, at: datetime) -> None:
    db.now = at
    epoch = db.node()
    db.enqueue(type)
    db.run(epoch, outcome, error={"kind": "permanent"})


def test_a_migrated_schema_has_partitions_for_today_and_a_week(own_db: Db) -> None:
    names = set(bounds(own_db))
    for parent in PARENTS:
        assert f"{parent}_default" in names
        assert len([name for name in names if name.startswith(f"{parent}_20")]) == 8


def test_make_partitions_creates_each_partition_once(own_db: Db) -> None:
    assert own_db.value("make_partitions", days=2) == 12
    assert own_db.value("make_partitions", days=2) == 0
    assert own_db.value("make_partitions", days=3) == 4
    own_db.tick(86400)
    assert own_db.value("make_partitions", days=3) == 4
    assert (
        bounds(own_db)["attempts_20310314"]
        == "FOR VALUES FROM ('2031-03-14 00:00:00+00') TO ('2031-03-15 00:00:00+00')"
    )


@pytest.mark.parametrize(
    ("zone", "style"),
    [("Asia/Kolkata", "SQL, DMY"), ("America/Sao_Paulo", "Postgres, DMY"), ("Pacific/Kiritimati", "German")],
)
def test_partitions_follow_utc_days_in_any_session_time_zone(own_db: Db, zone: str, style: str) -> None:
    odd = own_db.session(own_db.url)
    odd.configure(TimeZone=zone, DateStyle=style)
    odd.value("make_partitions", days=1, now=datetime(2018, 11, 3, 23, 59, tzinfo=UTC))
    assert {name: bound for name, bound in bounds(own_db).items() if name.startswith("attempts_2018")} == {
        "attempts_20181103": "FOR VALUES FROM ('2018-11-03 00:00:00+00') TO ('2018-11-04 00:00:00+00')",
        "attempts_20181104": "FOR VALUES FROM ('2018-11-04 00:00:00+00') TO ('2018-11-05 00:00:00+00')",
    }


def test_finished_jobs_go_to_their_state_and_day(own_db: Db) -> None:
    own_db.value("make_partitions", days=2)
    finish(own_db, "a", "succeeded", datetime(2031, 3, 14, 23, 59, 59, tzinfo=UTC))
    finish(own_db, "b", "failed", datetime(2031, 3, 15, 0, 0, 0, tzinfo=UTC))
    finish(own_db, "c", "skipped", datetime(2031, 3, 15, 12, 0, 0, tzinfo=UTC))
    assert homes(own_db) == {
        "a": "finished_succeeded_20310314", "b": "finished_otherwise_20310315", "c": "finished_succeeded_20310315",
    }  # fmt: skip


def test_default_partition_stores_jobs_of_a_day_without_its_own(own_db: Db) -> None:
    finish(own_db, "a", "succeeded", own_db.now)
    finish(own_db, "b", "failed", own_db.now)
    assert homes(own_db) == {"a": "finished_succeeded_default", "b": "finished_otherwise_default"}
    assert own_db.call("job_by_id", id=own_db.rows("finished_jobs")[0].id) != []


def test_make_partitions_skips_a_day_with_rows_in_the_default(own_db: Db) -> None:
    """All nodes were down for a fortnight, and the first settles came before the first chore."""
    finish(own_db, "a", "succeeded", own_db.now)
    finish(own_db, "b", "failed", own_db.now)
    assert own_db.value("make_partitions", days=2) == 9
    names = set(bounds(own_db))
    assert "attempts_20310315" in names
    assert "attempts_20310314" not in names
    finish(own_db, "c", "succeeded", own_db.now + timedelta(days=1))
    assert homes(own_db)["c"] == "finished_succeeded_20310315"
    assert own_db.value("make_partitions", days=0, now=own_db.now - timedelta(days=1)) == 0


def test_concurrent_make_partitions_create_each_partition_once(own_db: Db) -> None:
    one, other = own_db.session(), own_db.session()
    one.begin()
    assert one.value("make_partitions", days=1) == 8
    waiting = other.start("make_partitions", days=1).blocked()
    one.commit()
    assert waiting.value() == 0


def test_settles_do_not_wait_while_partitions_are_made(own_db: Db) -> None:
    maker, epoch = own_db.session(), own_db.node()
    own_db.value("make_partitions", days=0)
    jobs = [own_db.enqueue() for _ in range(3)]
    held = own_db.claim(epoch)
    maker.begin()
    maker.value("make_partitions", days=3)
    own_db.execute("SET lock_timeout = '5s'")
    ends = [End(row, outcome) for row, outcome in zip(held, ("succeeded", "failed", "skipped"), strict=True)]
    own_db.settle(epoch, *ends)
    maker.commit()
    assert sorted(own_db.states(*jobs)) == ["failed", "succeeded", "succeeded"]


@pytest.mark.parametrize("parent", PARENTS)
def test_make_partitions_never_deadlocks_with_a_reader(own_db: Db, parent: str) -> None:
    """After midnight readers were its victims: the maker of all held one lock while it waited for the next."""
    reader, maker = own_db.session(), own_db.session()
    own_db.value("make_partitions", days=0)
    reader.begin()
    reader.execute(f"SELECT FROM watchbill.{parent}_default")
    making = maker.start("make_partitions", days=3, parents=[parent]).blocked()
    for other in PARENTS:
        reader.execute(f"SELECT FROM watchbill.{other}")
    reader.commit()
    assert making.value() == 3


@pytest.mark.parametrize("parent", [*PARENTS, "slots"])
def test_apply_functions_does_not_wait_for_history_readers(own_db: Db, parent: str) -> None:
    """Beside live work: the next day's partition may be missing, and making it would lock readers out."""
    newest = max(name for name in bounds(own_db) if name.startswith(f"{parent}_2"))
    own_db.execute(f"DROP TABLE watchbill.{newest}")
    reader = own_db.session()
    reader.begin()
    reader.execute(f"SELECT FROM watchbill.{parent}_default")
    own_db.execute("DROP FUNCTION watchbill._wake_channel")
    apply_functions(own_db.url, "watchbill", Source.of_package("watchbill.store"))
    assert own_db.value("_wake_channel"), "the functions are there"
    assert newest not in bounds(own_db)
    reader.commit()


def test_new_partition_has_the_same_indexes_and_constraints(own_db: Db) -> None:
    """Indexes come with the attachment, constraints and defaults with the copy."""
    own_db.value("make_partitions", days=0)
    counts = own_db.execute("""
        SELECT c.relname, (SELECT count(*) FROM pg_index i WHERE i.indrelid = c.oid) AS indexes,
          (SELECT count(*) FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'c') AS checks,
          (SELECT count(*) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnotnull AND a.attnum > 0) AS required
        FROM pg_class c
        WHERE c.relname ~ '^(finished_succeeded|finished_otherwise|attempts|job_logs)_(20310314|default)$'
    """)
    shapes = {row.relname: tuple(row)[1:] for row in counts}
    for parent in PARENTS:
        assert shapes[f"{parent}_20310314"] == shapes[f"{parent}_default"]

"""The functions work alike whatever surrounds them: search_path, temporary tables, settings, roles, neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.servers import Server
from tests.store.conftest import template
from tests.store.harness import T0, Db, End, Session, refused
from watchbill.postgres.migrate import Source, migrate

SOURCE = Source.of_package("watchbill.store")


def a_whole_life(db: Db, session: Session) -> list[tuple[Any, ...]]:
    """Uses every public function at least once through this session; what it left behind, without numbers and ids."""
    epoch = session.node("a", types={"t": 1})
    jobs = [session.enqueue("t", payload={"n": n}, max_attempts=5) for n in range(9)]
    session.enqueue(
        "t", idempotency_key="k", idempotency_window="1 hour", retry={"kind": "fixed", "base": 5, "jitter": 0}
    )
    session.send("t", idempotency_key="k", payload={"other": 1})
    many = [{"type": "t", "delay": "00:01:00"}, {"type": "t", "run_at": db.after(90).isoformat()}, {"type": "u"}]
    session.call("enqueue_many", jobs=many)
    session.execute("CREATE TEMP TABLE incoming OF watchbill.new_job")
    session.execute("INSERT INTO incoming (type, delay) VALUES ('t', '1 day 02:03:04')")
    session.call("enqueue_from", source="incoming")
    held = {row.id: row for row in session.claim(epoch, 8)}
    session.value("heartbeat", epoch=epoch, running=[{"id": str(jobs[0]), "fence": held[jobs[0]].fence, "age": 12.5}])
    session.value("guard", id=jobs[0], fence=held[jobs[0]].fence)
    session.value("complete", id=jobs[0], fence=held[jobs[0]].fence, result={"r": 1}, age=1.5)
    session.value("fail", id=jobs[1], fence=held[jobs[1]].fence, error={"message": "no"}, delay="00:00:07", age=0.25)
    outcomes = ["failed", "snoozed", "skipped", "unsupported", "released"]
    ends = [End(held[job], outcome) for job, outcome in zip(jobs[2:7], outcomes, strict=True)]
    ends[1] = ends[1]._replace(delay=timedelta(minutes=2))
    session.settle(epoch, *ends)
    session.value("cancel", id=jobs[7], reason="r")
    session.value("release", id=jobs[7])
    session.value("reschedule", id=jobs[8], run_at=db.after(3600))
    session.value("pause", type="u")
    session.claim(epoch, 100)
    session.value("resume", type="u")
    session.value("release_unknown", epoch=epoch, known=[])
    session.value("promote")
    session.value("expire_unsupported", grace="00:00:01")
    session.value("unpark_paused"), session.value("sweep_claims", older="00:00:01")
    session.call("reclaim", epochs=[epoch], beats_seen=[0])
    session.value("reschedule_many", states=["failed"], run_at=db.after(5))
    session.call("stats"), session.call("dead_groups"), session.call("job_list"), session.call("job_by_id", id=jobs[0])
    session.value("purge", states=["canceled"])
    session.value("make_partitions", days=1)
    session.value("drain", name="a")
    session.value("leave", epoch=epoch)
    columns = "type, payload, state, wait, attempt, run, lost, run_at, started_at, finished_at, error, result, timeout"
    query = sql.SQL("SELECT {} FROM watchbill.job ORDER BY seq").format(sql.SQL(columns))
    return [tuple(row) for row in db.execute(query)]


@pytest.fixture(scope="module")
def lives() -> Iterator[dict[str, tuple[Db, list[tuple[Any, ...]]]]]:
    """For each server a database, and what that life left behind there in plain surroundings."""
    kept: dict[str, tuple[Db, list[tuple[Any, ...]]]] = {}
    yield kept
    for db, _ in kept.values():
        db.close()


@pytest.fixture
def life(server: Server, lives: dict[str, tuple[Db, list[tuple[Any, ...]]]]) -> tuple[Db, list[tuple[Any, ...]]]:
    if server.url() not in lives:
        db = Db(server.url(server.create_database(template(server))))
        lives[server.url()] = (db, a_whole_life(db, db.session()))
    return lives[server.url()]


@pytest.fixture
def odd_db(life: tuple[Db, list[tuple[Any, ...]]]) -> Iterator[Db]:
    db, _ = life
    db.wipe()
    yield db
    db.rest()
    db.assert_sound()


@pytest.fixture
def expected(life: tuple[Db, list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    return life[1]


ODD: list[dict[str, str]] = [
    {"TimeZone": "Asia/Kolkata", "DateStyle": "SQL, DMY", "IntervalStyle": "sql_standard"},
    {"TimeZone": "America/Sao_Paulo", "DateStyle": "Postgres, MDY", "IntervalStyle": "iso_8601"},
    {"TimeZone": "Pacific/Kiritimati", "DateStyle": "German", "IntervalStyle": "postgres_verbose"},
    {"transform_null_equals": "on", "extra_float_digits": "-15", "bytea_output": "escape", "jit": "off"},
    {"enable_indexscan": "off", "enable_nestloop": "off", "plan_cache_mode": "force_custom_plan", "jit": "off"},
    {"enable_bitmapscan": "off", "enable_seqscan": "off", "enable_partition_pruning": "off", "jit": "off"},
    {"standard_conforming_strings": "off", "escape_string_warning": "off", "backslash_quote": "off"},
]


@pytest.mark.parametrize("settings", ODD, ids=lambda settings: " ".join(next(iter(settings.items()))))
def test_session_settings_do_not_change_results(odd_db: Db, expected: list[Any], settings: dict[str, str]) -> None:
    session = odd_db.session(odd_db.url)
    session.configure(**settings)
    assert a_whole_life(odd_db, session) == expected


def test_hostile_search_path_does_not_change_results(odd_db: Db, expected: list[Any]) -> None:
    """Tables, functions and operators of the same names stand in the way, in a schema and among the temporary ones."""
    session = odd_db.session(odd_db.url)
    session.execute("CREATE SCHEMA evil")
    for place in ("evil", "pg_temp"):
        for (name,) in session.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'watchbill'"):
            session.execute(sql.SQL("CREATE TABLE {} (gotcha int)").format(sql.Identifier(place, name)))
    functions = session.execute("""
        SELECT DISTINCT ON (p.oid) p.proname, pg_get_function_identity_arguments(p.oid) AS arguments FROM pg_proc p
        WHERE p.pronamespace = 'watchbill'::regnamespace AND p.proargmodes IS NULL""")
    for row in functions:
        session.execute(sql.SQL("CREATE FUNCTION {}({}) RETURNS int LANGUAGE sql AS 'SELECT 1/0'").format(
            sql.Identifier("evil", row.proname), sql.SQL(row.arguments)))  # fmt: skip
    session.execute("CREATE FUNCTION evil.never(uuid, uuid) RETURNS boolean LANGUAGE sql AS 'SELECT false'")
    session.execute("CREATE OPERATOR evil.= (LEFTARG = uuid, RIGHTARG = uuid, FUNCTION = evil.never)")
    session.configure(search_path="evil, pg_catalog, watchbill")
    try:
        assert a_whole_life(odd_db, session) == expected
    finally:
        odd_db.execute("DROP SCHEMA evil CASCADE")


def test_empty_search_path_does_not_change_results(odd_db: Db, expected: list[Any]) -> None:
    session = odd_db.session(odd_db.url)
    session.configure(search_path="pg_temp")
    assert a_whole_life(odd_db, session) == expected


def test_the_owner_need_not_be_a_superuser(server: Server, expected: list[Any]) -> None:
    name = server.create_database()
    role = f"owner_of_{name}"
    server.execute(sql.SQL("CREATE ROLE {} LOGIN NOSUPERUSER NOCREATEROLE NOCREATEDB").format(sql.Identifier(role)))
    server.execute(sql.SQL("ALTER DATABASE {} OWNER TO {}").format(sql.Identifier(name), sql.Identifier(role)))
    url = server.url(name, role)
    migrate(url, "watchbill", SOURCE)
    db = Db(url)
    try:
        (row,) = db.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        assert row.rolsuper is False
        assert a_whole_life(db, db.session()) == expected
        db.assert_sound()
    finally:
        db.close()
        server.drop_database(name)
        server.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def test_two_installations_in_one_database_do_not_see_each_other(schema_database: str) -> None:
    migrate(schema_database, "second One", SOURCE)
    one, other = Db(schema_database), Db(schema_database, "second One")
    try:
        mine, yours = one.node("a"), other.node("a")
        sent = one.send("t", idempotency_key="k")
        assert other.claim(yours) == []
        assert other.value("cancel", id=sent.id) is None
        assert other.send("t", idempotency_key="k", id=sent.id).created
        held = one.claim_one(mine)
        with refused("WB007"):
            other.value("guard", id=held.id, fence=held.fence)
        with refused("WB001"):
            other.value("heartbeat", epoch=mine + 1_000_000)
        other.value("pause", queue="default")
        one.enqueue("t")
        assert len(one.claim(mine)) == 1
        assert one.value("_wake_channel") != other.value("_wake_channel")
        assert one.value("_wake_lock_key") != other.value("_wake_lock_key")
        one.settle(mine, End(held))
        assert other.states(sent.id) == ["queued"]
        for db in (one, other):
            db.assert_sound()
    finally:
        one.close()
        other.close()


def test_notification_does_not_reach_another_installation(schema_database: str) -> None:
    """Whoever sleeps there holds another lock; a producer here shares its own and rings for nobody."""
    migrate(schema_database, "second", SOURCE)
    one, other = Db(schema_database), Db(schema_database, "second")
    try:
        sleeper = one.session()
        sleeper.execute("SELECT pg_advisory_lock(1466004579, %s)", (one.value("_wake_lock_key"),))
        for db in (one, other):
            listener = db.session()
            listener.connection.execute(f'LISTEN "{db.value("_wake_channel")}"'.encode())
            db.enqueue(queue="q")
            db.execute("SELECT pg_notify(%s, 'the end')", (db.value("_wake_channel"),))
            heard = next(listener.connection.notifies(timeout=30, stop_after=1)).payload
            assert heard == ("ready q" if db is one else "the end")
    finally:
        one.close()
        other.close()


# The clock.


def test_every_function_that_reads_the_clock_takes_now(db: Db) -> None:
    rows = db.execute("""
        SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'watchbill'::regnamespace
          AND coalesce(pg_get_function_sqlbody(p.oid), p.prosrc) ~ '\\m_?clock(_timestamp)?\\(\\)'
          AND NOT coalesce('now' = ANY (p.proargnames), false)""")
    # uuid7 takes the time under another name, and the trigger finds it in the row when a verb has put it there.
    # _execute_sql_job measures how long a command takes, the steps of operations and of _observe how long a step does.
    # The short ways of enqueue send jobs with a given time to it, that of save_steps is not used with one.
    short_ways = {"_enqueue_plain", "_enqueue_plain_many", "_save_result"}
    expected = {
        "_clock", "now", "uuid7", "_check_schedule", "_find_step_error", "_execute_sql_job", "_change_jobs",
        "_backfill_slots", "_enqueue_items", "_count_history", "_end_step", "_summarize_history", "_find_upkeep_alerts",
        "_measure_upkeep",
    }  # fmt: skip
    assert {row.proname for row in rows} - short_ways == expected
    rows = db.execute("""
        SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'watchbill'::regnamespace
          AND p.prosrc ~* '\\m(pg_catalog\\.now|(transaction|statement)_timestamp|localtime|current_(date|time))'""")
    assert rows == []


def test_verbs_with_a_given_clock_store_no_server_time(odd_db: Db) -> None:
    a_whole_life(odd_db, odd_db.session(odd_db.url))
    columns = odd_db.execute("""
        SELECT table_name, column_name FROM information_schema.columns
        WHERE table_schema = 'watchbill' AND data_type = 'timestamp with time zone'
          AND table_name NOT IN ('installation', 'schema_version', 'schema_functions')""")
    assert len(columns) > 20
    for table, column in columns:
        # A chore that was never done has been due since 2000.
        query = sql.SQL("SELECT {0} AS at FROM watchbill.{1} WHERE {0} < %s AND {0} <> '2000-01-01 00:00Z'").format(
            sql.Identifier(column), sql.Identifier(table)
        )
        assert odd_db.execute(query, (T0.replace(year=2030),)) == [], (table, column)


def test_time_that_is_not_given_costs_no_call(db: Db) -> None:
    plan = db.execute(
        "EXPLAIN (VERBOSE, COSTS OFF) SELECT watchbill._clock(x.now) FROM (VALUES (NULL::timestamptz)) x(now)"
    )
    assert "clock_timestamp()" in str(plan)
    assert "_clock(" not in str(plan)


def test_clock_offset_applies_only_to_a_test_schema(server: Server) -> None:
    name = server.create_database()
    migrate(server.url(name), "watchbill", SOURCE)
    with psycopg.connect(server.url(name), autocommit=True) as connection:
        connection.execute("UPDATE watchbill.installation SET clock_offset = '10 years'")
        (plain,) = connection.execute("SELECT watchbill.now() - clock_timestamp()").fetchone() or ()
        assert abs(plain.total_seconds()) < 3600
        connection.execute("UPDATE watchbill.installation SET test = true")
        connection.execute("DELETE FROM watchbill.schema_functions")  # as if they were of another version
    migrate(server.url(name), "watchbill", SOURCE)
    with psycopg.connect(server.url(name), autocommit=True) as connection:
        (ahead,) = connection.execute("SELECT watchbill.now() - clock_timestamp()").fetchone() or ()
        assert ahead.days > 3600
    server.drop_database(name)

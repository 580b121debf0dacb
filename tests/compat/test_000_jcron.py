"""The JCRON guide on Watchbill: each heading of the guide, by its own names, from psql alone."""

from __future__ import annotations

import sys
from contextlib import closing

import psycopg
import pytest
from psycopg import errors

from tests.compat.psql import Psql
from tests.compat.walk import Document, Statement, covers, find_seeds, shows
from tests.waiting import until
from watchbill import App

pytestmark = pytest.mark.every_server

GUIDE = Document.load("000")
ME = sys.modules[__name__]
LOG = "INSERT INTO log VALUES (1)"


@pytest.fixture
def psql(psql: Psql) -> Psql:
    psql("CREATE TABLE log (n int)")
    return psql


def add(psql: Psql, name: str, command: str | None = LOG, pattern: str = "0 0 9 * * *") -> int:
    return int(psql.one("SELECT add_job(%s, %s, p_command => %s)", name, pattern, command))


def move_to_the_middle_of_a_minute(psql: Psql) -> None:
    """For tests with a schedule of every minute, which expect no further slot."""
    second = psql.one("SELECT extract(second FROM watchbill.now())")
    psql.pass_time(f"{10 - second} seconds")


def make_due(psql: Psql, job: int) -> None:
    psql("UPDATE scheduled_jobs SET next_run = watchbill.now() - INTERVAL '1 second' WHERE id = %s", job)


def execute(psql: Psql, *jobs: int) -> None:
    for job in jobs:
        psql("SELECT execute_job(%s)", job)


def status_of(psql: Psql, job: int) -> str:
    return str(psql.one("SELECT status FROM get_job_status() WHERE job_id = %s", job))


# -- the walk


def test_the_guide_runs_as_it_stands_twice_without_doubling_anything(psql: Psql) -> None:
    ids = {"123": "2"}

    def run(statement: Statement) -> list[object]:
        text = statement.text
        for placeholder, job in ids.items():
            text = text.replace(f"id = {placeholder}", f"id = {job}")
        with psql.connection.transaction():
            return psql(text)

    def run_again(statement: Statement) -> list[object]:
        try:
            return run(statement)
        except psycopg.Error as error:
            if error.sqlstate == "WB009" and "exists already" in str(error):  # the name is unique, as in the guide
                return []
            raise

    GUIDE.walk(run)
    first = psql("SELECT id, name, next_run, enabled FROM scheduled_jobs ORDER BY id")
    assert [row.name for row in first] == ["Daily Backup", "Hourly Sync", "Weekly Report", "My Job"]
    assert {row.name for row in psql("SELECT name FROM watchbill.schedules")} == {row.name for row in first}

    GUIDE.walk(run_again)
    assert psql("SELECT id, name, next_run, enabled FROM scheduled_jobs ORDER BY id") == first
    assert psql.one("SELECT count(*) FROM watchbill.job") == 0
    assert psql.one("SHOW statement_timeout") == "5min"


def test_every_heading_is_covered() -> None:
    GUIDE.check_headings(ME)


def test_every_parameter_has_an_effect(psql: Psql) -> None:
    found = psql(
        "SELECT p.proname, a.name FROM pg_proc p CROSS JOIN LATERAL unnest(p.proargnames, p.proargmodes) a(name, mode) "
        "WHERE obj_description(p.oid, 'pg_proc') LIKE %s AND p.proname NOT LIKE %s "
        "AND coalesce(a.mode, 'i') = 'i'",
        "%facade jcron%",
        r"\_%",
    )
    column = "timeout_seconds, where psql runs the command"
    GUIDE.check_parameters({column, *(f"{row.proname}.{row.name}" for row in found)}, ME)


# -- Quick Start


@covers("Quick Start / 1. Create Job Table", "Database Schema / Complete Job Table")
def test_the_table_of_jobs_has_the_columns_of_the_guide(psql: Psql) -> None:
    columns = psql(
        "SELECT column_name, data_type FROM information_schema.columns "
        "WHERE table_name = 'scheduled_jobs' ORDER BY ordinal_position"
    )
    text, number, instant = "character varying", "integer", "timestamp with time zone"
    assert [tuple(column) for column in columns] == [
        ("id", number), ("name", text), ("description", "text"), ("category", text), ("cron_pattern", text),
        ("timezone", text), ("last_run", instant), ("next_run", instant), ("run_count", number),
        ("success_count", number), ("error_count", number), ("last_error", "text"), ("last_error_at", instant),
        ("retry_count", number), ("max_retries", number), ("timeout_seconds", number), ("enabled", "boolean"),
        ("created_by", text), ("created_at", instant), ("updated_at", instant), ("command", "text"),
    ]  # fmt: skip


@covers("Quick Start / 2. Add Jobs")
def test_a_job_can_be_inserted_with_the_defaults_of_the_guide(psql: Psql) -> None:
    [job] = psql(
        "INSERT INTO scheduled_jobs (name, cron_pattern, category) VALUES ('a', '0 0 9 * * 1', 'x') RETURNING *"
    )

    assert (job.timezone, job.max_retries, job.timeout_seconds, job.enabled) == ("UTC", 3, 300, True)
    assert (job.category, job.run_count, job.success_count, job.error_count) == ("x", 0, 0, 0)
    native = psql("SELECT id, next_run, max_attempts, queue, type, timeout FROM watchbill.schedule WHERE name = 'a'")[0]
    assert (native.id, native.next_run, native.max_attempts) == (job.id, job.next_run, 4)
    assert (native.queue, native.type, native.timeout.total_seconds()) == ("jcron", "jcron.job", 300)


def test_the_next_time_is_never_in_the_past_and_seconds_and_years_count(psql: Psql) -> None:
    """The original answers 28 October when it is asked on the 30th, and reads neither seconds nor the year."""
    patterns = {
        "0 0 9 * * *": "2025-10-31 09:00:00",
        "30 0 9 * * *": "2025-10-31 09:00:30",
        "15 30 10 1 1 * 2031": "2031-01-01 10:30:15",
    }
    for pattern, expected in patterns.items():
        found = psql.one("SELECT jcron.next_time(%s, '2025-10-30 10:00:00+00') AT TIME ZONE 'UTC'", pattern)
        assert str(found) == expected


@pytest.mark.parametrize("column", ["id", "run_count", "last_error"])
def test_what_comes_from_runs_cannot_be_inserted_or_changed(psql: Psql, column: str) -> None:
    value = "'x'" if column == "last_error" else "9"
    with pytest.raises(psycopg.Error, match="they come from its runs"):
        psql(f"INSERT INTO scheduled_jobs (name, cron_pattern, {column}) VALUES ('a', '0 0 9 * * *', {value})")
    add(psql, "b")
    with pytest.raises(psycopg.Error, match="they come from its runs"):
        psql(f"UPDATE scheduled_jobs SET {column} = {value}")


@covers("Quick Start / 3. Calculate Next Runs")
def test_recalculating_next_runs_keeps_the_time_zone_of_the_job(psql: Psql) -> None:
    """The guide computes without the zone, and so its jobs run at the wrong hour."""
    psql.one("SELECT add_job('a', '0 0 9 * * 1', p_timezone => 'America/New_York')")
    before = psql.one("SELECT next_run FROM scheduled_jobs")
    psql("UPDATE scheduled_jobs SET next_run = jcron.next_time(cron_pattern, COALESCE(last_run, NOW()))")

    assert psql.one("SELECT next_run FROM scheduled_jobs") == before
    assert psql.one("SELECT extract(hour FROM next_run AT TIME ZONE 'America/New_York') FROM scheduled_jobs") == 9


def test_any_other_next_run_becomes_the_next_slot(psql: Psql) -> None:
    job = add(psql, "a")
    psql("UPDATE scheduled_jobs SET next_run = NOW() - INTERVAL '1 minute'")
    given = psql.one("SELECT next_run FROM scheduled_jobs")
    assert status_of(psql, job) == "DUE"

    psql("SELECT * FROM execute_due_jobs()")
    assert psql.one("SELECT scheduled_time FROM job_execution_history") == given
    assert psql.one("SELECT next_run = jcron.next_time(cron_pattern) FROM scheduled_jobs") is True
    with pytest.raises(psycopg.Error, match="the last slot of the schedule was"):
        psql("UPDATE scheduled_jobs SET next_run = %s", given)
    psql("UPDATE scheduled_jobs SET next_run = NULL")
    assert status_of(psql, job) == "NOT_SCHEDULED"
    psql("UPDATE scheduled_jobs SET next_run = jcron.next_time(cron_pattern, NOW())")
    assert status_of(psql, job) == "OK"


# -- Database Schema


@covers("Database Schema / Execution History Table")
def test_history_has_a_row_for_each_run_and_each_failed_attempt(psql: Psql) -> None:
    good, bad = add(psql, "good"), add(psql, "bad", "SELECT 1 / 0")
    psql("UPDATE scheduled_jobs SET max_retries = 1, next_run = NOW() - INTERVAL '1 second'")
    psql("SELECT * FROM execute_due_jobs()")
    psql.pass_time("61 seconds")
    psql("SELECT * FROM execute_due_jobs()")

    rows = psql("SELECT * FROM job_execution_history ORDER BY job_id, attempt")
    assert [(row.job_id, row.status, row.error_message) for row in rows] == [
        (good, "SUCCESS", None),
        (bad, "FAILED", "division by zero"),
        (bad, "FAILED", "division by zero"),
    ]
    assert len({row.id for row in rows}) == 3
    assert rows[0].output == '{"rows": 1}'
    assert (rows[0].executed_by, rows[0].server_name) == ("postgres", "local")
    assert rows[0].execution_duration_ms > 0
    assert rows[0].actual_start_time <= rows[0].actual_end_time
    native = psql("SELECT * FROM watchbill.slot WHERE name = 'good'")[0]
    assert (rows[0].scheduled_time, rows[0].actual_end_time) == (native.slot, native.finished_at)


def test_history_has_the_four_words_of_the_guide(psql: Psql) -> None:
    """A worker stops a command at timeout_seconds, and a slot is skipped while the one before it is open."""
    slow, waiting = add(psql, "slow", "SELECT pg_sleep(600)"), add(psql, "waiting", None)
    psql("UPDATE scheduled_jobs SET timeout_seconds = 1, max_retries = 0 WHERE id = %s", slow)
    execute(psql, add(psql, "good"))
    make_due(psql, slow)
    make_due(psql, waiting)
    with closing(App(psql.url, name="runner")) as app, app.node(queues=["jcron"], lease=5):
        history = "SELECT job_id, status FROM job_execution_history WHERE job_id = %s"
        until(lambda: psql(history, slow) == [(slow, "TIMEOUT")])
    make_due(psql, waiting)
    psql("SELECT enqueue_due_jobs()")
    psql.pass_time("1 day")
    psql("SELECT enqueue_due_jobs()")
    [claimed] = psql("SELECT * FROM claim_next_job('w')")
    psql("SELECT fail_job(%s, 'w', 'no')", claimed.queue_id)
    words = {row.status for row in psql("SELECT status FROM job_execution_history")}
    assert words == {"SUCCESS", "FAILED", "TIMEOUT", "SKIPPED"}


def test_deleting_a_job_deletes_its_history(psql: Psql) -> None:
    job, other = add(psql, "a"), add(psql, "b")
    execute(psql, job, other)
    psql("DELETE FROM scheduled_jobs WHERE id = %s", job)

    assert [row.job_id for row in psql("SELECT job_id FROM job_execution_history")] == [other]
    assert psql.one("SELECT count(*) FROM watchbill.slots") == 1


# -- Job Management


@covers("Job Management / Add Job")
@shows(
    "add_job.p_name", "add_job.p_pattern", "add_job.p_description", "add_job.p_timezone", "add_job.p_command"
)  # fmt: skip
def test_add_job_returns_the_id_of_a_checked_job(psql: Psql) -> None:
    job = psql.one("SELECT add_job('a', '0 30 6 * * *', 'why', 'Europe/Paris', 'SELECT 2')")
    [row] = psql("SELECT * FROM scheduled_jobs")

    assert (row.id, row.name, row.cron_pattern, row.description) == (job, "a", "0 30 6 * * *", "why")
    assert (row.timezone, row.command) == ("Europe/Paris", "SELECT 2")
    assert psql.one("SELECT next_run AT TIME ZONE 'Europe/Paris' FROM scheduled_jobs").hour == 6
    with pytest.raises(psycopg.Error) as wrong:
        psql.one("SELECT add_job('b', '0 0 9 1#6 * *')")
    assert wrong.value.sqlstate == "WB010"
    with pytest.raises(psycopg.Error) as taken:
        psql.one("SELECT add_job('a', '0 0 9 * * *')")
    assert taken.value.sqlstate == "WB009"


@covers("Job Management / Update Job")
@shows("update_job_pattern.p_job_id", "update_job_pattern.p_new_pattern")
def test_update_job_pattern_moves_the_next_run(psql: Psql) -> None:
    job, other = add(psql, "a"), add(psql, "b")
    psql("SELECT update_job_pattern(%s, '0 0 17 * * *')", job)

    rows = psql("SELECT cron_pattern, extract(hour FROM next_run AT TIME ZONE 'UTC') FROM scheduled_jobs ORDER BY id")
    assert [tuple(row) for row in rows] == [("0 0 17 * * *", 17), ("0 0 9 * * *", 9)]
    with pytest.raises(psycopg.Error, match=f"Job {other + 1} not found"):
        psql("SELECT update_job_pattern(%s, '0 0 17 * * *')", other + 1)
    with pytest.raises(psycopg.Error) as wrong:
        psql("SELECT update_job_pattern(%s, 'never')", job)
    assert wrong.value.sqlstate == "WB010"


def test_every_column_that_is_not_counted_can_be_changed(psql: Psql) -> None:
    job = add(psql, "a")
    psql(
        "UPDATE scheduled_jobs SET name = 'b', description = 'd', category = 'c', timezone = 'Asia/Tokyo', "
        "max_retries = 0, timeout_seconds = 7, created_by = 'me', command = NULL"
    )
    [row] = psql("SELECT * FROM scheduled_jobs")
    assert (row.id, row.name, row.description, row.category, row.timezone) == (job, "b", "d", "c", "Asia/Tokyo")
    assert (row.max_retries, row.timeout_seconds, row.created_by, row.command) == (0, 7, "me", None)
    native = psql("SELECT max_attempts, type, timeout FROM watchbill.schedules")[0]
    assert (native.max_attempts, native.type, native.timeout.total_seconds()) == (1, "jcron.job", 7)


@covers("Job Management / Enable/Disable Job", "Execution Engine / Auto-Update Trigger")
def test_a_job_that_is_enabled_again_continues_from_now(psql: Psql) -> None:
    """The guide's trigger counts from the last run, so the job fires at once for a time that has passed."""
    move_to_the_middle_of_a_minute(psql)
    job = add(psql, "a", pattern="0 * * * * *")
    psql("SELECT execute_job(%s)", job)
    psql("UPDATE scheduled_jobs SET enabled = FALSE, updated_at = NOW() WHERE id = %s", job)
    assert psql("SELECT next_run, enabled FROM scheduled_jobs") == [(None, False)]
    assert status_of(psql, job) == "DISABLED"

    psql.pass_time("3 days")
    psql("UPDATE scheduled_jobs SET enabled = TRUE WHERE id = %s", job)
    assert psql.one("SELECT next_run > watchbill.now() FROM scheduled_jobs") is True
    before = psql.one("SELECT updated_at FROM scheduled_jobs")
    psql("UPDATE scheduled_jobs SET cron_pattern = '0 0 7 * * *'")
    assert psql.one("SELECT extract(hour FROM next_run AT TIME ZONE 'UTC') FROM scheduled_jobs") == 7
    assert psql.one("SELECT updated_at FROM scheduled_jobs") > before


@covers("Job Management / Get Due Jobs")
def test_get_due_jobs_locks_what_it_returns(psql: Psql) -> None:
    """The guide's own fails: next_run is ambiguous."""
    job = add(psql, "a")
    add(psql, "later")
    make_due(psql, job)
    with psql.begin() as other:
        [due] = other("SELECT * FROM get_due_jobs()")
        assert (due.job_id, due.job_name, due.pattern) == (job, "a", "0 0 9 * * *")
        assert psql("SELECT * FROM get_due_jobs()") == []
        assert psql("SELECT * FROM execute_due_jobs()") == []
    assert psql.one("SELECT job_id FROM get_due_jobs()") == job


# -- Execution Engine


@covers("Execution Engine / Simple Executor")
@shows("execute_job.p_job_id")
def test_execute_job_runs_the_due_slot_once_and_advances_it(psql: Psql) -> None:
    job, other = add(psql, "a"), add(psql, "b")
    make_due(psql, job)
    make_due(psql, other)
    psql("SELECT execute_job(%s)", job)

    assert psql.one("SELECT count(*) FROM log") == 1
    [row] = psql("SELECT * FROM scheduled_jobs WHERE id = %s", job)
    assert (row.run_count, row.success_count, row.error_count, row.last_error) == (1, 1, 0, None)
    assert row.last_run is not None
    assert psql("SELECT job_id, job_name, status FROM execute_due_jobs()") == [(other, "b", "SUCCESS")]
    psql("SELECT execute_job(%s)", job)
    assert psql.one("SELECT count(*) FROM log") == 3, "a run beside its slots"
    with pytest.raises(psycopg.Error, match="Job 99 not found"):
        psql("SELECT execute_job(99)")


@shows("execute_job.p_search_path", "execute_due_jobs.p_search_path", "try_execute_job.p_search_path")
def test_commands_run_with_the_search_path_of_the_caller(psql: Psql) -> None:
    psql("CREATE SCHEMA other; CREATE TABLE other.log (n int)")
    job = add(psql, "a")
    psql("SELECT execute_job(%s, 'other')", job)
    psql("SELECT try_execute_job(%s, 'other')", job)
    make_due(psql, job)
    psql("SELECT * FROM execute_due_jobs('other')")
    assert (psql.one("SELECT count(*) FROM other.log"), psql.one("SELECT count(*) FROM log")) == (3, 0)
    psql("SET search_path = other, public")
    psql("SELECT execute_job(%s)", job)
    assert psql.one("SELECT count(*) FROM other.log") == 4


def test_a_job_without_a_command_cannot_be_executed_here(psql: Psql) -> None:
    job = add(psql, "a", None)
    with pytest.raises(psycopg.Error, match="has no SQL command"):
        psql("SELECT execute_job(%s)", job)


def test_a_failed_job_is_tried_again_after_one_two_and_four_minutes(psql: Psql) -> None:
    job = add(psql, "a", "SELECT 1 / 0")
    make_due(psql, job)
    psql("SELECT execute_job(%s)", job)
    for attempt, minutes in enumerate((1, 2, 4), 1):
        [row] = psql("SELECT * FROM scheduled_jobs")
        assert (row.retry_count, row.error_count, row.last_error) == (attempt, attempt, "division by zero")
        waits = psql.one("SELECT extract(epoch FROM run_at - ended_at) FROM watchbill.jobs")
        assert waits == minutes * 60
        psql.pass_time(f"{minutes} minutes 1 second")
        assert psql("SELECT status FROM execute_due_jobs()") == [("ERROR: division by zero",)]
    assert psql.one("SELECT state FROM watchbill.job") == "dead"
    [row] = psql("SELECT * FROM scheduled_jobs")
    assert (row.retry_count, row.error_count, row.run_count, row.success_count) == (0, 4, 4, 0)
    assert psql("SELECT error_count FROM get_failed_jobs()") == [(4,)]


def show_counts(psql: Psql, job: int) -> tuple[int, ...]:
    """Runs, successes and errors, which are the same in the metrics, the status and the history."""
    [row] = psql("SELECT run_count, success_count, error_count FROM scheduled_jobs WHERE id = %s", job)
    metrics = {row.metric: row.value for row in psql("SELECT * FROM get_job_metrics(%s)", job)}
    rows = psql("SELECT status FROM job_execution_history WHERE job_id = %s AND status <> 'SKIPPED'", job)
    assert (metrics["total_runs"], row.run_count) == (len(rows), row.success_count + row.error_count)
    rate = psql.one("SELECT success_rate FROM get_job_status() WHERE job_id = %s", job)
    assert rate == (metrics["success_rate"] or 0)
    return tuple(row)


def test_each_attempt_is_a_run_in_all_counts_and_none_shrinks(psql: Psql) -> None:
    job = add(psql, "a", "SELECT 1 / 0")
    psql("UPDATE scheduled_jobs SET max_retries = 2")
    make_due(psql, job)
    seen = []
    for _ in range(3):
        execute(psql, job)
        seen.append(show_counts(psql, job))
    assert seen == [(1, 0, 1), (2, 0, 2), (3, 0, 3)]

    psql("SELECT watchbill.reschedule(id) FROM watchbill.job")
    assert show_counts(psql, job) == (3, 0, 3), "its last run is not the last any more"
    execute(psql, job)
    psql("UPDATE scheduled_jobs SET command = %s", LOG)
    execute(psql, job)
    assert show_counts(psql, job) == (5, 1, 4), "a success keeps the failures before it"

    execute(psql, job)
    assert show_counts(psql, job) == (6, 2, 4)
    psql("UPDATE scheduled_jobs SET command = NULL")
    make_due(psql, job)
    psql("SELECT enqueue_due_jobs()")
    psql.pass_time("1 day")
    psql("SELECT enqueue_due_jobs()")
    assert psql.one("SELECT count(*) FROM job_execution_history WHERE status = 'SKIPPED'") == 1
    [claimed] = psql("SELECT * FROM claim_next_job('w')")
    psql(
        "SELECT watchbill.settle(epoch, ARRAY[id], ARRAY[fence], '{skipped}', '{1}', errors => ARRAY[%s::jsonb]) "
        "FROM watchbill.running_job",
        '{"message": "nothing to do"}',
    )
    assert claimed.job_id == job
    assert show_counts(psql, job) == (6, 2, 4), "what was skipped is not a run"


def test_counts_outlast_the_history(psql: Psql) -> None:
    counts = "SELECT run_count, success_count, error_count FROM scheduled_jobs ORDER BY id"
    done, retrying = add(psql, "done", "SELECT 1 / 0"), add(psql, "retrying", "SELECT 1 / 0")
    for job in (done, retrying):
        make_due(psql, job)
        execute(psql, job, job)
    psql("UPDATE scheduled_jobs SET command = %s WHERE id = %s", LOG, done)
    execute(psql, done)
    before = psql(counts)
    assert before == [(3, 1, 2), (2, 0, 2)]
    psql("DELETE FROM job_execution_history WHERE status = 'FAILED'")
    assert psql(counts) == before
    psql("UPDATE scheduled_jobs SET command = %s WHERE id = %s", LOG, retrying)
    execute(psql, retrying)
    psql("DELETE FROM job_execution_history WHERE job_id = %s", done)
    after = [(3, 1, 2), (3, 1, 2)]
    assert psql(counts) == after
    psql.pass_time("200 days")
    psql("SELECT watchbill.prune_slots()")
    assert psql("SELECT * FROM job_execution_history") == []
    assert psql(counts) == after


def test_retries_use_a_repaired_command(psql: Psql) -> None:
    job, other = add(psql, "a", "SELECT 1 / 0"), add(psql, "b", "SELECT 1 / 0")
    make_due(psql, job)
    make_due(psql, other)
    psql("SELECT * FROM execute_due_jobs()")
    psql("UPDATE scheduled_jobs SET command = %s WHERE id = %s", LOG, job)
    psql.pass_time("61 seconds")
    answers = psql("SELECT job_id, status FROM execute_due_jobs() ORDER BY 1")
    assert answers == [(job, "SUCCESS"), (other, "ERROR: division by zero")]
    assert psql("SELECT attempt, status FROM job_execution_history WHERE job_id = %s ORDER BY 1", job) == [
        (1, "FAILED"),
        (2, "SUCCESS"),
    ]


def test_a_retry_uses_a_command_that_was_repaired_while_a_worker_ran_the_old_one(psql: Psql) -> None:
    job = add(psql, "a", "SELECT 1 / 0")
    make_due(psql, job)
    psql("SELECT enqueue_due_jobs()")
    [claimed] = psql("SELECT id, fence FROM watchbill.claim(watchbill.register('node'), '{jcron}')")
    psql("UPDATE scheduled_jobs SET command = %s", LOG)
    psql("SELECT watchbill.fail(%s, %s, '{}')", claimed.id, claimed.fence)
    execute(psql, job)
    assert psql.one("SELECT count(*) FROM log") == 1
    assert show_counts(psql, job) == (2, 1, 1)


def test_a_later_slot_gets_all_its_retries_again(psql: Psql) -> None:
    """The guide never resets retry_count, so later slots get no retry."""
    job = add(psql, "a", "SELECT 1 / 0")
    psql("UPDATE scheduled_jobs SET max_retries = 1")
    for _ in range(2):
        make_due(psql, job)
        execute(psql, job, job)
    assert [row.attempt for row in psql("SELECT attempt FROM job_execution_history")] in ([1, 2, 1, 2], [2, 2, 1, 1])


@covers("Execution Engine / Batch Executor")
def test_execute_due_jobs_answers_for_each_job_and_goes_on_after_an_error(psql: Psql) -> None:
    """The guide's own fails: next_run is ambiguous."""
    good, bad, later = add(psql, "good"), add(psql, "bad", "SELECT 1 / 0"), add(psql, "later")
    make_due(psql, good)
    make_due(psql, bad)
    rows = {row.job_id: row for row in psql("SELECT * FROM execute_due_jobs()")}

    assert {job: row.status for job, row in rows.items()} == {good: "SUCCESS", bad: "ERROR: division by zero"}
    assert rows[good].job_name == "good"
    assert rows[good].execution_time_ms > 0
    assert psql("SELECT * FROM execute_due_jobs()") == []
    assert status_of(psql, later) == "OK"


# -- Monitoring


@covers("Monitoring / Job Status Dashboard")
def test_get_job_status_says_how_each_job_is(psql: Psql) -> None:
    """The guide's own fails: job_id is ambiguous. Its success rate is always 100."""
    ok, bad, due, off = (
        add(psql, name, "SELECT 1 / 0" if name == "bad" else LOG) for name in ("ok", "bad", "due", "off")
    )
    execute(psql, ok, bad, bad)
    make_due(psql, due)
    psql("UPDATE scheduled_jobs SET enabled = false WHERE id = %s", off)

    rows = {row.job_id: row for row in psql("SELECT * FROM get_job_status()")}
    assert {job: row.status for job, row in rows.items()} == {ok: "OK", bad: "ERROR", due: "DUE", off: "DISABLED"}
    assert (rows[ok].success_rate, rows[bad].success_rate, rows[due].success_rate) == (100, 0, 0)
    assert rows[ok].avg_duration_ms > 0
    assert rows[bad].avg_duration_ms is None
    psql.pass_time("8 days")
    assert psql.one("SELECT avg_duration_ms FROM get_job_status() WHERE job_id = %s", ok) is None


@covers("Monitoring / Failed Jobs")
@shows("get_failed_jobs.days")
def test_get_failed_jobs_lists_errors_of_the_last_days(psql: Psql) -> None:
    """The guide's own fails: error_count is ambiguous."""
    job = add(psql, "bad", "SELECT 1 / 0")
    psql("SELECT execute_job(%s)", job)
    [row] = psql("SELECT * FROM get_failed_jobs()")
    assert (row.job_id, row.job_name, row.error_count, row.last_error) == (job, "bad", 1, "division by zero")

    psql.pass_time("2 days")
    assert psql("SELECT * FROM get_failed_jobs()") == []
    assert len(psql("SELECT * FROM get_failed_jobs(3)")) == 1
    psql("UPDATE scheduled_jobs SET enabled = false")
    assert psql("SELECT * FROM get_failed_jobs(3)") == []


@covers("Monitoring / Performance Metrics")
@shows("get_job_metrics.p_job_id")
def test_get_job_metrics_equals_the_metrics_of_the_schedule(psql: Psql) -> None:
    job, other = add(psql, "a", "INSERT INTO log SELECT 1 / n FROM generate_series(1, 1) n"), add(psql, "b")
    psql("UPDATE scheduled_jobs SET max_retries = 0")
    execute(psql, job, job)
    psql("UPDATE scheduled_jobs SET command = 'SELECT 1 / 0' WHERE id = %s", job)
    execute(psql, job, job)

    metrics = {row.metric: row.value for row in psql("SELECT * FROM get_job_metrics(%s)", job)}
    [native] = psql("SELECT * FROM watchbill.schedule_metrics('a')")
    assert list(metrics) == ["total_runs", "success_rate", "avg_duration_ms", "max_duration_ms", "min_duration_ms"]
    assert (metrics["total_runs"], metrics["success_rate"]) == (native.runs, native.success_rate) == (4, 50)
    assert 0 < metrics["min_duration_ms"] <= metrics["avg_duration_ms"] <= metrics["max_duration_ms"]
    nothing = {row.metric: row.value for row in psql("SELECT * FROM get_job_metrics(%s)", other)}
    assert (nothing["total_runs"], nothing["success_rate"], nothing["max_duration_ms"]) == (0, None, None)


# -- Best Practices


@covers("Best Practices / 1. Pattern Validation")
@shows("validate_pattern.pattern")
def test_patterns_are_checked_when_they_are_written(psql: Psql) -> None:
    """The original loops for ever on 1#6."""
    patterns = ("0 0 9 * * *", "1#6", "0 0 9 * * 1#6", "0 0 9 1,L * *", "@reboot", "@every 5m")
    assert [psql.one("SELECT validate_pattern(%s)", p) for p in patterns] == [True, False, False, True, True, True]
    psql("CREATE TABLE t (p text CHECK (validate_pattern(p)))")
    with pytest.raises(errors.CheckViolation):
        psql("INSERT INTO t VALUES ('nonsense')")
    with pytest.raises(psycopg.Error, match="cron_pattern of job 'a' is missing"):
        psql("INSERT INTO scheduled_jobs (name) VALUES ('a')")


@pytest.mark.parametrize("pattern", ["0 0 9 30 2 *", "0 0 9 31 4,6 *", "0 0 9 29 2 * 2025-2027", "0 0 9 30 2 * E0D"])
def test_a_pattern_that_never_comes_is_refused(psql: Psql, pattern: str) -> None:
    for function in ("validate_pattern", "jcron.validate_pattern", "jcron.is_valid_pattern", "watchbill.is_valid_cron"):
        assert psql.one(f"SELECT {function}(%s)", pattern) is False
    with pytest.raises(psycopg.Error, match="it names no day that the calendar has"):
        psql("SELECT jcron.check_pattern(%s)", pattern)
    job = add(psql, "a")
    for statement, values in {
        "INSERT INTO scheduled_jobs (name, cron_pattern) VALUES ('b', %s)": (pattern,),
        "SELECT add_job('b', %s)": (pattern,),
        "SELECT update_job_pattern(%s, %s)": (job, pattern),
        "UPDATE scheduled_jobs SET cron_pattern = %s": (pattern,),
    }.items():
        with pytest.raises(psycopg.Error, match="never comes") as refused:
            psql(statement, *values)
        assert refused.value.sqlstate == "WB010"
    assert psql("SELECT name, cron_pattern FROM scheduled_jobs") == [("a", "0 0 9 * * *")]


def test_a_pattern_of_years_that_have_passed_is_valid_but_never_comes_again(psql: Psql) -> None:
    assert psql.one("SELECT validate_pattern('0 0 9 1 1 * 2020')") is True
    with pytest.raises(psycopg.Error, match="never comes"):
        add(psql, "a", pattern="0 0 9 1 1 * 2020")
    assert add(psql, "on start", pattern="@reboot") > 0


@covers("Best Practices / 2. Prevent Concurrent Execution")
def test_locked_jobs_are_passed_by_selects_and_ticks(psql: Psql) -> None:
    due = "SELECT id FROM scheduled_jobs WHERE enabled = TRUE AND next_run <= NOW() FOR UPDATE SKIP LOCKED"
    for name in "abcde":
        make_due(psql, add(psql, name))
    with psql.begin() as other:
        assert len(other(due)) == 5
        assert psql(due) == []
        assert psql.one("SELECT fired FROM watchbill.tick()") == 0
    assert len(psql(due)) == 5
    assert psql.one("SELECT fired FROM watchbill.tick()") == 5


@covers("Best Practices / 3. Timeout Protection")
def test_a_statement_timeout_ends_a_command_and_undoes_its_transaction(psql: Psql) -> None:
    job = add(psql, "slow", "SELECT pg_sleep(60)")
    psql("SET statement_timeout = '100ms'")
    with pytest.raises(errors.QueryCanceled):
        psql("SELECT execute_job(%s)", job)
    psql("RESET statement_timeout")
    assert psql.one("SELECT count(*) FROM watchbill.job") == 0, "the whole transaction is undone"


def test_a_command_that_outlasts_its_timeout_in_psql_is_reported(psql: Psql) -> None:
    """A function cannot limit the time of a statement: only a worker, or statement_timeout, ends the command."""
    slow, fast = add(psql, "slow", "SELECT pg_sleep(0.01)"), add(psql, "fast")
    psql("UPDATE watchbill.schedules SET timeout = '1 millisecond' WHERE id = %s", slow)
    execute(psql, slow, fast)
    [warning] = psql.notices
    assert "longer than its timeout of 0.001 s, because no worker ran it" in warning
    assert [row.status for row in psql("SELECT status FROM job_execution_history")] == ["SUCCESS", "SUCCESS"]


@covers("Best Practices / 4. Cleanup Old History")
def test_old_history_can_be_deleted_and_the_counts_stay(psql: Psql) -> None:
    good, bad = add(psql, "good"), add(psql, "bad", "SELECT 1 / 0")
    psql("UPDATE scheduled_jobs SET max_retries = 1")
    psql("SELECT execute_job(%s)", good)
    execute(psql, bad, bad)
    before = psql("SELECT name, run_count, success_count, error_count FROM scheduled_jobs ORDER BY name")

    assert psql.one("SELECT count(*) FROM job_execution_history") == 3
    psql("DELETE FROM job_execution_history WHERE attempt = 1 AND status = 'FAILED'")
    assert [row.status for row in psql("SELECT status FROM job_execution_history ORDER BY 1")] == ["FAILED", "SUCCESS"]
    psql("DELETE FROM job_execution_history WHERE created_at < NOW() - INTERVAL '90 days'")
    assert psql.one("SELECT count(*) FROM job_execution_history") == 2
    psql("DELETE FROM job_execution_history WHERE created_at < NOW() + INTERVAL '1 day'")
    assert psql.one("SELECT count(*) FROM watchbill.slots") == 0
    assert psql("SELECT name, run_count, success_count, error_count FROM scheduled_jobs ORDER BY name") == before


@covers("Best Practices / 5. Monitoring Alerts")
def test_jobs_that_have_not_run_for_a_day_are_found(psql: Psql) -> None:
    [query] = [s.text for s in GUIDE.under("Best Practices / 5. Monitoring Alerts")] if find_seeds() else [OVERDUE]
    move_to_the_middle_of_a_minute(psql)
    late, often = add(psql, "late"), add(psql, "often", pattern="0 * * * * *")
    execute(psql, late, often)
    assert psql(query) == []

    psql("UPDATE watchbill.timers SET last_run = NOW() - INTERVAL '25 hours'")
    assert [row.name for row in psql(query)] == ["late"]


# -- Distributed Locking


@covers("Distributed Locking / Advisory Locks (Single Database)")
@shows("try_execute_job.job_id")
def test_try_execute_job_refuses_a_job_that_runs(psql: Psql) -> None:
    """The guide's own fails, and its advisory lock would stay on a pooled connection."""
    job, other = add(psql, "a"), add(psql, "b")
    with psql.begin() as running:
        assert running.one("SELECT try_execute_job(%s)", job) is True
        assert psql.one("SELECT try_execute_job(%s)", job) is False
        assert psql.notices == [f"Job {job} already running"]
        assert psql.one("SELECT try_execute_job(%s)", other) is True
    assert psql.one("SELECT try_execute_job(%s)", job) is True
    with pytest.raises(psycopg.Error, match="Job 99 not found"):
        psql("SELECT try_execute_job(99)")
    assert psql.one("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()") == 0


def test_try_execute_job_refuses_a_job_that_a_worker_runs(psql: Psql) -> None:
    job = add(psql, "a")
    make_due(psql, job)
    psql("SELECT enqueue_due_jobs()")
    psql("SELECT * FROM watchbill.claim(watchbill.register('node'), '{jcron}')")
    assert psql.one("SELECT try_execute_job(%s)", job) is False


@covers("Distributed Locking / Distributed Lock Table (Multi-Instance)")
@shows(
    "acquire_distributed_lock.p_job_id", "acquire_distributed_lock.p_worker_id",
    "acquire_distributed_lock.p_lock_duration", "release_distributed_lock.p_job_id",
    "release_distributed_lock.p_worker_id",
)  # fmt: skip
def test_a_lock_has_one_holder_until_it_is_released_or_expires(psql: Psql) -> None:
    acquire = "SELECT acquire_distributed_lock(%s, %s)"
    assert psql.one(acquire, 1, "w1") is True
    assert psql.one(acquire, 1, "w2") is False
    assert psql.one(acquire, 1, "w1") is False, "as in the guide"
    assert psql.one(acquire, 2, "w2") is True
    [lock] = psql("SELECT * FROM job_locks WHERE job_id = 1")
    assert (lock.worker_id, (lock.expires_at - lock.locked_at).total_seconds()) == ("w1", 300)

    psql("SELECT release_distributed_lock(1, 'w2')")
    assert psql.one(acquire, 1, "w2") is False, "only its holder releases it"
    psql("SELECT release_distributed_lock(1, 'w1')")
    assert psql.one("SELECT acquire_distributed_lock(1, 'w2', INTERVAL '1 hour')") is True
    psql.pass_time("6 minutes")
    assert (psql.one(acquire, 1, "w1"), psql.one(acquire, 2, "w1")) == (False, True), "the second has expired"


def test_locks_of_other_tenants_and_programs_do_not_disturb_the_view(psql: Psql) -> None:
    for tenant in ("a", "a/1"):
        psql("SELECT set_config('watchbill.tenant', %s, false)", tenant)
        psql("SELECT acquire_distributed_lock(j, 'w') FROM unnest(ARRAY[5, 0, -7, 2147483647]) j")
    for name in ("abc", "", "007", "9999999999", "2147483648", "1 "):
        psql("SELECT watchbill.lock_acquire('jcron/a/' || %s)", name)
    psql("SET watchbill.tenant = 'a'")
    shown = [row.job_id for row in psql("SELECT job_id FROM job_locks ORDER BY 1")]
    assert shown == [-7, 0, 5, 2147483647]
    assert psql("SELECT worker_id FROM job_locks WHERE job_id = 5") == [("w",)]
    psql("DELETE FROM job_locks WHERE job_id = 5")
    psql("SET watchbill.tenant = 'a/1'")
    assert psql.one("SELECT count(*) FROM job_locks") == 4


def test_the_usage_of_the_guide_runs_the_job_and_releases_the_lock(psql: Psql) -> None:
    """The guide's own block prints a notice and never runs the job."""
    job = add(psql, "a")
    psql(
        f"""
        DO $$
        DECLARE
          worker text := 'worker-' || pg_backend_pid();
        BEGIN
          IF acquire_distributed_lock({job}, worker) THEN
            PERFORM execute_job({job});
            PERFORM release_distributed_lock({job}, worker);
          END IF;
        END $$
        """
    )
    assert psql.one("SELECT count(*) FROM log") == 1
    assert psql("SELECT * FROM job_locks") == []


# -- Horizontal Scaling


@covers("Horizontal Scaling / Load Balancer Pattern")
@shows(
    "get_worker_for_job.p_job_id", "get_worker_for_job.p_worker_count", "get_jobs_for_worker.p_worker_id",
    "get_jobs_for_worker.p_worker_count",
)  # fmt: skip
def test_due_jobs_are_spread_over_workers_and_locked(psql: Psql) -> None:
    jobs = {add(psql, f"job {n}") for n in range(8)}
    psql("UPDATE scheduled_jobs SET next_run = NOW() - INTERVAL '1 second'")
    with psql.begin() as other:
        first = other("SELECT * FROM get_jobs_for_worker(0, 2)")
        assert psql("SELECT * FROM get_jobs_for_worker(0, 2)") == []
        second = psql("SELECT * FROM get_jobs_for_worker(1, 2)")
        assert {row.id for row in first} | {row.id for row in second} == jobs
        assert len(first) + len(second) == 8
    assert len(psql("SELECT * FROM get_jobs_for_worker(0, 1)")) == 8


def test_another_number_of_workers_moves_few_jobs_and_no_worker_is_negative(psql: Psql) -> None:
    """The guide's modulo moves nearly every job, and sends job -7 to worker -1."""
    moved = psql.one(
        "SELECT count(*) FROM generate_series(1, 1000) j WHERE get_worker_for_job(j, 10) <> get_worker_for_job(j, 11)"
    )
    assert moved < 150
    spread = psql("SELECT get_worker_for_job(j, 4) w, count(*) FROM generate_series(-500, 499) j GROUP BY 1 ORDER BY 1")
    assert [row.w for row in spread] == [0, 1, 2, 3]
    for count in (0, -1):
        with pytest.raises(psycopg.Error, match=f"p_worker_count {count} is invalid"):
            psql("SELECT get_worker_for_job(1, %s)", count)
    assert all(200 < row.count < 300 for row in spread)


@covers("Horizontal Scaling / Queue-Based Pattern")
@shows(
    "claim_next_job.p_worker_id", "complete_job.p_queue_id", "complete_job.p_worker_id", "complete_job.p_output",
    "fail_job.p_queue_id", "fail_job.p_worker_id", "fail_job.p_error",
)  # fmt: skip
def test_workers_claim_queued_jobs_and_end_them(psql: Psql) -> None:
    move_to_the_middle_of_a_minute(psql)
    rare, often = add(psql, "rare", None), add(psql, "often", None, "0 * * * * *")
    make_due(psql, rare)
    make_due(psql, often)
    assert psql.one("SELECT enqueue_due_jobs()") == 2
    assert psql.one("SELECT enqueue_due_jobs()") == 0
    queue = psql("SELECT job_id, priority, status, worker_id FROM job_queue ORDER BY priority DESC")
    assert [tuple(row) for row in queue] == [(often, 1, "pending", None), (rare, 0, "pending", None)]

    [first] = psql("SELECT * FROM claim_next_job('w1')")
    assert (first.job_id, first.job_name, first.cron_pattern) == (often, "often", "0 * * * * *")
    [second] = psql("SELECT * FROM claim_next_job('w2')")
    assert second.job_id == rare
    assert psql("SELECT * FROM claim_next_job('w3')") == []
    running = psql("SELECT id, worker_id, status FROM job_queue ORDER BY worker_id")
    assert [tuple(row) for row in running] == [(first.queue_id, "w1", "running"), (second.queue_id, "w2", "running")]

    assert psql.one("SELECT complete_job(%s, 'w2')", first.queue_id) is False, "it is the job of w1"
    assert psql.one("SELECT complete_job(%s, 'w1', 'all well')", first.queue_id) is True
    assert psql.one("SELECT complete_job(%s, 'w1')", first.queue_id) is False
    assert psql.one("SELECT fail_job(%s, 'w1', 'no')", second.queue_id) is False
    assert psql.one("SELECT fail_job(%s, 'w2', 'no disk')", second.queue_id) is True
    history = psql("SELECT job_id, status, error_message, output, executed_by FROM job_execution_history ORDER BY 1")
    assert [tuple(row) for row in history] == [
        (rare, "FAILED", "no disk", None, "w2"),
        (often, "SUCCESS", None, "all well", "w1"),
    ]
    assert psql("SELECT status, worker_id FROM job_queue") == [("pending", None)]


def test_a_slot_is_queued_once_by_any_number_of_sessions(psql: Psql) -> None:
    """The guide never advances next_run: the same slot again and again, and twice in a race."""
    job = add(psql, "a", None)
    make_due(psql, job)
    with psql.begin() as other:
        assert other.one("SELECT enqueue_due_jobs()") == 1
        assert psql.one("SELECT enqueue_due_jobs()") == 0
    assert psql.one("SELECT enqueue_due_jobs()") == 1
    [claimed] = psql("SELECT * FROM claim_next_job('w')")
    psql("SELECT complete_job(%s, 'w')", claimed.queue_id)
    assert psql.one("SELECT enqueue_due_jobs()") == 0


def test_workers_leave_commands_to_the_executor(psql: Psql) -> None:
    job = add(psql, "a")
    make_due(psql, job)
    psql("SELECT enqueue_due_jobs()")
    assert psql("SELECT * FROM claim_next_job('w')") == []
    assert psql("SELECT job_id FROM execute_due_jobs()") == [(job,)]


def test_locked_queue_rows_are_not_claimed(psql: Psql) -> None:
    make_due(psql, add(psql, "a", None))
    psql("SELECT enqueue_due_jobs()")
    with psql.begin() as other:
        assert len(other("SELECT * FROM job_queue WHERE status = 'pending' FOR UPDATE SKIP LOCKED")) == 1
        assert psql("SELECT * FROM claim_next_job('w')") == []
    assert len(psql("SELECT * FROM claim_next_job('w')")) == 1


def test_the_queue_and_the_locks_are_changed_by_their_functions(psql: Psql) -> None:
    make_due(psql, add(psql, "a", None))
    psql("SELECT enqueue_due_jobs()")
    for change in ("DELETE FROM job_queue", "UPDATE job_queue SET worker_id = 'w'", "INSERT INTO job_queue VALUES (1)"):
        with pytest.raises(psycopg.Error, match="job_queue cannot be changed"):
            psql(change)
    assert len(psql("SELECT * FROM claim_next_job('w')")) == 1
    psql("SELECT acquire_distributed_lock(1, 'w')")
    with pytest.raises(psycopg.Error, match="job_locks cannot be changed"):
        psql("UPDATE job_locks SET worker_id = 'other'")
    token = psql.one("SELECT fence_token FROM job_locks")
    psql("DELETE FROM job_locks")
    assert psql.one("SELECT validate_fence_token(1, 'w', %s)", token) is False
    assert psql.one("SELECT acquire_distributed_lock(1, 'other')") is True
    assert psql.one("SELECT fence_token FROM job_locks") > token


# -- High Availability


@covers("High Availability / Health Check")
@shows("update_heartbeat.p_worker_id")
def test_a_silent_worker_is_dead_after_five_minutes_and_lives_again_when_it_beats(psql: Psql) -> None:
    """In the guide a worker that was marked dead stays dead."""
    show = "SELECT worker_id, hostname, status, jobs_processed FROM worker_heartbeat ORDER BY 1"
    psql("SELECT update_heartbeat(w) FROM unnest('{w1,w2}'::text[]) w")
    assert [tuple(row) for row in psql(show)] == [("w1", "local", "active", 0), ("w2", "local", "active", 0)]
    psql("SELECT acquire_distributed_lock(1, 'w1', INTERVAL '1 hour')")
    psql.pass_time("4 minutes")
    psql("SELECT update_heartbeat('w2')")
    assert psql.one("SELECT cleanup_dead_workers()") == 0

    psql.pass_time("2 minutes")
    assert psql.one("SELECT cleanup_dead_workers()") == 1
    assert [(row.worker_id, row.status) for row in psql(show)] == [("w1", "dead"), ("w2", "active")]
    assert psql("SELECT * FROM job_locks") == [], "the locks of dead workers are released"
    assert psql.one("SELECT cleanup_dead_workers()") == 0
    psql("SELECT update_heartbeat('w1')")
    assert [(row.worker_id, row.status) for row in psql(show)] == [("w1", "active"), ("w2", "active")]


def test_a_worker_shows_how_many_jobs_it_has_processed(psql: Psql) -> None:
    for name in ("a", "b"):
        make_due(psql, add(psql, name, None))
    psql("SELECT enqueue_due_jobs()")
    for verb in ("complete_job(%s, 'w')", "fail_job(%s, 'w', 'no')"):
        [claimed] = psql("SELECT * FROM claim_next_job('w')")
        psql(f"SELECT {verb}", claimed.queue_id)
    assert psql.one("SELECT jobs_processed FROM worker_heartbeat") == 2


def test_other_nodes_are_not_declared_dead_by_the_facade(psql: Psql) -> None:
    psql("SELECT watchbill.register('native')")
    psql.pass_time("1 hour")
    assert psql.one("SELECT cleanup_dead_workers()") == 0
    psql("SELECT update_heartbeat('native')")
    native = "SELECT state, n FROM watchbill.nodes JOIN watchbill.beats USING (epoch) WHERE name = 'native'"
    assert psql(native) == [("active", 0)], "the worker of this id is another node"


@covers("High Availability / Failover Strategy")
def test_the_jobs_of_a_dead_worker_are_queued_again(psql: Psql) -> None:
    make_due(psql, add(psql, "a", None))
    psql("SELECT enqueue_due_jobs()")
    [claimed] = psql("SELECT * FROM claim_next_job('w1')")
    psql.pass_time("6 minutes")
    assert psql.one("SELECT reassign_orphaned_jobs()") == 0, "it is not dead yet"
    assert psql.one("SELECT cleanup_dead_workers()") == 1
    assert psql.one("SELECT reassign_orphaned_jobs()") == 1
    assert psql.one("SELECT reassign_orphaned_jobs()") == 0

    assert psql.one("SELECT complete_job(%s, 'w1')", claimed.queue_id) is False, "its lease ran out"
    assert psql.one("SELECT status FROM job_queue") == "pending"
    assert psql("SELECT status, error_message FROM job_execution_history") == [
        ("FAILED", "the node that ran it was lost")
    ]
    psql.pass_time("1 minute")
    [again] = psql("SELECT * FROM claim_next_job('w2')")
    assert again.queue_id == claimed.queue_id
    assert psql.one("SELECT complete_job(%s, 'w2')", again.queue_id) is True


@covers("High Availability / Split-Brain Prevention")
@shows(
    "validate_fence_token.p_job_id", "validate_fence_token.p_worker_id", "validate_fence_token.p_fence_token"
)  # fmt: skip
def test_a_fence_token_is_valid_until_another_worker_has_the_lock(psql: Psql) -> None:
    """The guide answers NULL for a lost lock, and uses up a token for each refusal."""
    validate = "SELECT validate_fence_token(%s, %s, %s)"
    psql("SELECT acquire_distributed_lock(1, 'w1')")
    token = psql.one("SELECT fence_token FROM job_locks")
    assert [psql.one("SELECT acquire_distributed_lock(1, 'w2')") for _ in range(3)] == [False] * 3
    assert psql.one("SELECT fence_token FROM job_locks") == token
    answers = [psql.one(validate, *given) for given in ((1, "w1", token), (2, "w1", token), (1, "w2", token))]
    assert (answers, psql.one(validate, 1, "w1", token + 1)) == ([True, False, False], False)

    psql.pass_time("6 minutes")
    with psql.begin() as writing:
        assert writing.one(validate, 1, "w1", token) is True
        assert psql.one("SELECT acquire_distributed_lock(1, 'w2')") is False, "not while the holder may write"
    assert psql.one("SELECT acquire_distributed_lock(1, 'w2')") is True
    assert psql.one(validate, 1, "w1", token) is False
    assert psql.one("SELECT fence_token FROM job_locks") > token


# -- Tenants


def test_a_session_sees_and_writes_the_jobs_of_its_tenant_only(psql: Psql) -> None:
    mine = add(psql, "a")
    psql("SELECT set_config('watchbill.tenant', 'acme', false)")
    theirs = add(psql, "a")
    assert psql("SELECT id FROM scheduled_jobs") == [(theirs,)]
    psql("UPDATE scheduled_jobs SET description = 'x', next_run = NOW() - INTERVAL '1 second'")
    psql("SELECT acquire_distributed_lock(1, 'w')")
    with pytest.raises(psycopg.Error, match=f"Job {mine} not found"):
        psql("SELECT execute_job(%s)", mine)
    psql("RESET watchbill.tenant")

    assert psql("SELECT id, description FROM scheduled_jobs") == [(mine, None)]
    assert psql("SELECT * FROM job_locks") == []
    assert psql("SELECT * FROM get_due_jobs()") == []
    assert psql("SELECT * FROM execute_due_jobs()") == []
    psql("DELETE FROM scheduled_jobs")
    assert psql("SELECT id FROM watchbill.schedules") == [(theirs,)]


OVERDUE = """
    SELECT name, NOW() - last_run AS time_since_last_run FROM scheduled_jobs
    WHERE enabled AND NOW() - last_run > INTERVAL '24 hours' AND cron_pattern NOT LIKE '%* * * *%'
"""

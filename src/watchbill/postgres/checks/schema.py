"""Checks of Watchbill's schema: its version, zone table, locks, claims, jobs and schedules."""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable

import psycopg
from psycopg import sql

from watchbill.errors import SchemaError
from watchbill.postgres.checks.target import Finding, Target
from watchbill.postgres.schema_status import read_status
from watchbill.postgres.zones import read_local_release, read_local_zones, read_stored_release, read_zone_digests

_MAX_NAMES = 5
_MAX_ZONES = 20
_MAX_COUNTED_JOBS = 1000
_JOBS_TIMEOUT = "5s"
_MAX_TABLE_BYTES = 512 * 2**20  # check_claims is skipped for larger tables, because it reads the whole table jobs
_NO_SCHEMA_YET = "Not checked: the schema does not have it yet; see schema."


def check_schema(target: Target) -> Finding:
    status = read_status(target.connection, target.settings.schema, target.source)
    try:
        status.ensure_usable()
    except SchemaError as error:
        return Finding("schema", "wrong", error.message, error.hint or "")
    says = f"{status.schema} is at version {status.version}: {status.verdict}."
    [(is_test, offset)] = target.query_schema("SELECT test, clock_offset FROM {schema}.installation")
    if is_test:
        moved = f" Its clock is {offset} ahead." if offset else ""
        says = f"{says} It was made by tests, which delete what is in it.{moved}"
        return Finding("schema", "note", says, "To use it for real jobs, run `watchbill db keep`.")
    return Finding("schema", "ok" if status.verdict == "ready" else "note", says)


def check_zone_table(target: Target) -> Finding:
    """Checks that the time zones of SQL and of Python are equal, because both cron engines must give the same
    instants."""
    schema = target.settings.schema
    if not target.query("SELECT FROM pg_tables WHERE schemaname = %s AND tablename = 'zones'", schema):
        return Finding("zone table", "skipped", _NO_SCHEMA_YET)
    if not zoneinfo.available_timezones():
        return Finding("zone table", "skipped", "Not checked: Python has no time zone data; see zones.")
    stored = read_zone_digests(target.connection, schema)
    if not stored:
        says = "The table zones is empty: schedules in SQL can use UTC and fixed offsets only."
        return Finding("zone table", "note", says, "Run `watchbill db migrate`.")
    local = {row.name: row.digest for row in read_local_zones()}
    differing = sorted(name for name in local.keys() | stored.keys() if local.get(name) != stored.get(name))
    if not differing:
        return Finding("zone table", "ok", f"Schedules in SQL and in Python use the same {len(local)} zones.")
    names = ", ".join(differing[:_MAX_ZONES] + ["..."] * (len(differing) > _MAX_ZONES))
    says = f"Schedules in SQL and in Python would differ in these zones ({len(differing)}): {names}."
    return Finding("zone table", "wrong", says, _make_zone_table_hint(target))


def _make_zone_table_hint(target: Target) -> str:
    stored, local = read_stored_release(target.connection, target.settings.schema), read_local_release()
    if stored is None or stored < local:
        versions = f"the schema has tzdata {stored and stored.tzdata}, this machine {local.tzdata}"
        return f"Run `watchbill db migrate`: {versions}."
    if stored > local:
        return f"Update tzdata on this machine from {local.tzdata or 'none'} to {stored.tzdata}, which the schema has."
    release = local.tzdata or "of an unknown release"
    return f"Both are tzdata {release}, built in different ways: use the same tzdata package on all machines."


def check_transactions(target: Target) -> Finding:
    """Finds transactions that have been open for long: they keep workers from sleeping and vacuum from cleaning."""
    found = target.query(
        """
        SELECT a.pid, a.usename, a.application_name, extract(epoch FROM clock_timestamp() - a.xact_start)::int
        FROM pg_stat_activity a
        WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
          AND a.xact_start < clock_timestamp() - make_interval(secs => %s)
          AND EXISTS (SELECT FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
                      WHERE l.pid = a.pid AND c.relnamespace = to_regnamespace(quote_ident(%s)))
        ORDER BY a.xact_start
        """,
        target.old_transaction_seconds,
        target.settings.schema,
    )
    if not found:
        return Finding("transactions", "ok", "No old transaction holds locks in the schema.")
    sessions = "; ".join(f"{pid} ({user}, {name or 'unnamed'}) for {age} s" for pid, user, name, age in found)
    hint = "Commit it, or end it: " + " ".join(f"SELECT pg_terminate_backend({pid});" for pid, *_ in found)
    return Finding("transactions", "wrong", f"Open transactions hold locks in the schema: {sessions}.", hint)


def check_claims(target: Target) -> Finding:
    """Finds jobs that are marked as claimed but have no row in `claims`. No node would ever reclaim such a job, because
    a lost node's jobs are found by its claims. Only a trigger or manual SQL can cause this."""
    if target.is_standby:
        return Finding("claims", "skipped", "Not checked on a standby; see server.")
    return _run_with_time_limit(target, "claims", _find_jobs_without_claim)


def _run_with_time_limit(target: Target, name: str, check: Callable[[Target], Finding]) -> Finding:
    """Runs a check that reads the table jobs, but gives it up after a time, because the table may be large or
    locked."""
    try:
        with target.connection.transaction():
            target.query("SELECT set_config('statement_timeout', %s, true)", _JOBS_TIMEOUT)
            return check(target)
    except psycopg.errors.QueryCanceled:
        return Finding(name, "skipped", f"Not checked: reading the table jobs takes longer than {_JOBS_TIMEOUT}.")


def _find_jobs_without_claim(target: Target) -> Finding:
    jobs_table = sql.Identifier(target.settings.schema, "jobs").as_string(None)
    size_query = "SELECT pg_relation_size(c), pg_size_pretty(pg_relation_size(c)) FROM to_regclass(%s) c"
    [(size, shown_size)] = target.query(size_query, jobs_table)
    if size is None:
        return Finding("claims", "skipped", _NO_SCHEMA_YET)
    if size > _MAX_TABLE_BYTES:
        return Finding("claims", "skipped", f"Not checked: it would read the whole table jobs ({shown_size}).")
    query = """
        SELECT j.id::text, count(*) OVER () FROM {schema}.jobs j WHERE j.fence <> 0 AND NOT EXISTS (
          SELECT FROM {schema}.claims c JOIN {schema}.nodes n USING (epoch) WHERE c.fence = j.fence) LIMIT %s
    """
    unclaimed = target.query_schema(query, _MAX_NAMES)
    if not unclaimed:
        return Finding("claims", "ok", "Every claimed job has a claim.")
    number = unclaimed[0][1]
    jobs = "1 job is" if number == 1 else f"{number:,} jobs are"
    commands = [f"  watchbill jobs release {job}" for job, _ in unclaimed]
    hint = "\n".join(["Release the jobs that no node runs any more:", *commands, *["  ..."] * (number > _MAX_NAMES)])
    return Finding("claims", "wrong", f"{jobs} marked as claimed without a claim, so nothing reclaims them.", hint)


_ACTIVE_NODES = "SELECT count(*), bool_or(n.queues IS NULL) FROM {schema}.nodes n WHERE n.state = 'active'"
_UNSERVED_QUEUES = """
    SELECT q.queue, (
        SELECT count(*) FROM (
            SELECT FROM {schema}.jobs j
            WHERE j.queue = q.queue AND j.wait IS NULL AND j.fence = 0
            LIMIT %s) x)
    FROM {schema}._list_ready_queues() q(queue)
    WHERE NOT EXISTS (SELECT FROM {schema}.nodes n WHERE n.state = 'active' AND q.queue = ANY (n.queues))
      AND NOT EXISTS (SELECT FROM {schema}.pauses p WHERE p.queue = q.queue AND p.type IS NULL)
    ORDER BY q.queue
"""
_LATE_JOBS = """
    SELECT count(*) FROM (
        SELECT FROM {schema}.jobs j WHERE j.wait = 'delayed' AND j.run_at < {schema}._clock() LIMIT %s) x
"""
_UNHANDLED_TYPES = """
    SELECT j.type, count(*)
    FROM (
        SELECT x.type, x.version FROM {schema}.jobs x
        WHERE x.wait = 'unsupported' AND x.wait_key IS NOT NULL
        LIMIT %s) j
    WHERE NOT EXISTS (SELECT FROM {schema}.node_types t WHERE t.type = j.type AND t.version >= j.version)
    GROUP BY j.type
    ORDER BY j.type
"""


_UNMATCHED_LABELS = """
    SELECT s.labels::text, sum(c.count)
    FROM {schema}.label_sets s
    CROSS JOIN {schema}._list_ready_queues() q(queue)
    CROSS JOIN LATERAL (
        SELECT count(*) FROM (
            SELECT FROM {schema}.jobs j
            WHERE j.queue = q.queue AND j.class IN (0, 1, 2) AND j.lane = s.lane AND j.wait IS NULL AND j.fence = 0
            LIMIT %s) x) c
    WHERE c.count > 0 AND {schema}._is_lane_unmatched(q.queue, s.lane)
      AND NOT EXISTS (SELECT FROM {schema}.pauses p WHERE p.queue = q.queue AND p.type IS NULL)
    GROUP BY s.labels
    ORDER BY 1
"""


def check_jobs(target: Target) -> Finding:
    """Finds due jobs that no live node can run, because none serves their queue, handles their type or has their
    labels."""
    if target.is_standby:
        return Finding("jobs", "skipped", "Not checked on a standby; see server.")
    return _run_with_time_limit(target, "jobs", _find_unserved_jobs)


def _find_unserved_jobs(target: Target) -> Finding:
    name = sql.SQL("{}._list_ready_queues()").format(sql.Identifier(target.settings.schema))
    if not target.query("SELECT WHERE to_regprocedure(%s) IS NOT NULL", name.as_string(None)):
        return Finding("jobs", "skipped", _NO_SCHEMA_YET)
    [(nodes, serves_any)] = target.query_schema(_ACTIVE_NODES)
    queues = [] if serves_any else target.query_schema(_UNSERVED_QUEUES, _MAX_COUNTED_JOBS)
    queues = [(queue, count) for queue, count in queues if count]
    types = target.query_schema(_UNHANDLED_TYPES, _MAX_COUNTED_JOBS)
    faults = [f"queue {queue} is served by no live node ({_format_job_count(count)})" for queue, count in queues]
    faults += [f"type {task} is handled by no live node ({_format_job_count(count)})" for task, count in types]
    labels = target.query_schema(_UNMATCHED_LABELS, _MAX_COUNTED_JOBS) if nodes else []
    faults += [f"no live node has the labels {wanted} ({_format_job_count(count)})" for wanted, count in labels]
    [(late,)] = target.query_schema(_LATE_JOBS, _MAX_COUNTED_JOBS)
    if late and not nodes:
        faults.append(f"the time of delayed jobs has come ({_format_job_count(late)})")
    if not faults:
        return Finding("jobs", "ok", "Every due job has a live node that can run it.")
    more = ["..."] * (len(faults) > _MAX_NAMES)
    says = f"Due jobs wait for a node: {'; '.join(faults[:_MAX_NAMES] + more)}."
    return Finding(
        "jobs", "wrong", says, _make_unserved_hint(nodes, [queue for queue, _ in queues], bool(types), bool(labels))
    )


def _make_unserved_hint(nodes: int, queues: list[str], has_unhandled_types: bool, has_unmatched_labels: bool) -> str:
    if not nodes:
        return "No node is alive: start `watchbill worker`."
    hints = []
    if queues:
        hints.append(f"Start a worker that serves them: watchbill worker --queues {','.join(queues[:_MAX_NAMES])}")
    if has_unhandled_types:
        hints.append("Deploy code that has these tasks, or cancel the jobs: watchbill jobs --type TYPE lists them.")
    if has_unmatched_labels:
        hints.append(
            "Start a worker that has these labels and serves the queue: watchbill worker --label NAME=VALUE, "
            "or --name NAME for the label node"
        )
    return "\n".join(hints)


def _format_job_count(count: int) -> str:
    more = "or more " if count >= _MAX_COUNTED_JOBS else ""
    return f"{count:,} {more}{'job' if count == 1 else 'jobs'}"


_LATE = """
    SELECT s.name::text FROM {schema}.timers t JOIN {schema}.schedules s ON s.id = t.schedule_id
    WHERE t.next_run < {schema}._clock() - interval '1 minute' ORDER BY t.next_run LIMIT %s
"""
_ORPHANED = """
    SELECT s.name::text FROM {schema}.schedules s WHERE s.id = ANY (
        {schema}._find_orphans(ARRAY(SELECT o.id FROM {schema}.schedules o WHERE o.owner IS NOT NULL AND o.enabled)))
    ORDER BY s.name LIMIT %s
"""
_INVALID = "SELECT i.error FROM {schema}._list_invalid_schedules(%s) i"
_OVERDUE = "SELECT o.name::text FROM {schema}.overdue o GROUP BY 1 ORDER BY min(o.due_by) LIMIT %s"


def check_schedules(target: Target) -> Finding:
    name = sql.SQL("{}.schedule_stats(int, timestamptz)").format(sql.Identifier(target.settings.schema))
    if not target.query("SELECT WHERE to_regprocedure(%s) IS NOT NULL", name.as_string(None)):
        return Finding("schedules", "skipped", _NO_SCHEMA_YET)
    query = "SELECT schedules, late, orphaned, overdue, next_run, capped FROM {schema}.schedule_stats()"
    [(number, late, orphaned, overdue, next_run, capped)] = target.query_schema(query)
    if not number:
        return Finding("schedules", "ok", "There are none.")
    total = f"{number:,}{'+' if capped else ''}"
    invalid = _list_invalid_schedules(target)
    if late or orphaned or overdue or invalid:
        pairs = [*_find_schedule_faults(target, late, orphaned, overdue), *_describe_invalid_schedules(invalid)]
        faults, hints = zip(*pairs, strict=True)
        says = f"Of {total}: {'; '.join(faults)}."
        return Finding("schedules", "wrong" if late or invalid else "note", says, "\n".join(hints))
    coming = "none is due any more" if next_run is None else f"the next is due at {next_run:%Y-%m-%d %H:%M:%S %Z}"
    return Finding("schedules", "ok", f"{total}; {coming}.")


def _find_schedule_faults(target: Target, late: int, orphaned: int, overdue: int) -> list[tuple[str, str]]:
    """Returns pairs: what is wrong with schedules, and a hint how to repair it."""
    faults = []
    if late:
        says = f"{late:,} due for more than a minute, and no node fires them ({_read_names(target, _LATE)})"
        faults.append((says, _make_late_hint(target)))
    if orphaned:
        says = f"{orphaned:,} orphaned: no live node declares them ({_read_names(target, _ORPHANED)})"
        hint = "Remove those you do not need (watchbill schedules remove NAME), or deploy code that declares them."
        faults.append((says, hint))
    if overdue:
        runs = "1 run" if overdue == 1 else f"{overdue:,} runs"
        says = f"{runs} past the deadline ({_read_names(target, _OVERDUE)})"
        faults.append((says, "See what happened: watchbill schedules history NAME."))
    return faults


def _list_invalid_schedules(target: Target) -> list[str]:
    """Returns errors of schedules that were stored before the checks that refuse them existed."""
    name = sql.SQL("{}._list_invalid_schedules(int)").format(sql.Identifier(target.settings.schema)).as_string(None)
    if target.is_standby or not target.query("SELECT WHERE to_regprocedure(%s) IS NOT NULL", name):
        return []
    return [error for (error,) in target.query_schema(_INVALID, _MAX_NAMES + 1)]


def _describe_invalid_schedules(errors: list[str]) -> list[tuple[str, str]]:
    """Returns a pair of what is wrong and a hint, as _find_schedule_faults(); none without errors."""
    if not errors:
        return []
    shown = "; ".join(errors[:_MAX_NAMES] + ["..."] * (len(errors) > _MAX_NAMES))
    hint = (
        "An earlier version accepted invalid schedules. Correct each one (watchbill schedules update NAME, or the code "
        "that declares it), or remove it (watchbill schedules remove NAME)."
    )
    return [(shown, hint)]


def _make_late_hint(target: Target) -> str:
    [(nodes,)] = target.query_schema("SELECT count(*) FROM {schema}.nodes WHERE state = 'active'")
    if not nodes:
        return "No node is alive: start `watchbill worker`, or call execute_due()."
    return "Nodes are alive: run one without --no-scheduler or WATCHBILL_SCHEDULER=false, and read its log."


def _read_names(target: Target, query: str) -> str:
    names = [name for (name,) in target.query_schema(query, _MAX_NAMES + 1)]
    return ", ".join(names[:_MAX_NAMES] + ["..."] * (len(names) > _MAX_NAMES))

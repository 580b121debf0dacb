"""Checks of the server: its version, our schema in it, its clock, its limits, what it does to our sessions."""

from __future__ import annotations

from psycopg import sql

from watchbill.errors import SchemaError
from watchbill.postgres.checks.finding import Finding, Patient
from watchbill.postgres.connect import SESSION_DEFAULTS
from watchbill.postgres.schema_status import read_status

_OLDEST_SERVER = 15
_SKEW = 5.0
_CONNECTIONS_OF_A_WORKER = 4  # to claim, to settle, to beat, and for chores; one more listens for all processes


def check_server(patient: Patient) -> Finding:
    number = patient.connection.info.server_version
    version = f"PostgreSQL {number // 10000}.{number % 10000}"
    if number // 10000 < _OLDEST_SERVER:
        return Finding("server", "wrong", f"{version} is too old.", "Watchbill needs PostgreSQL 15 or newer.")
    if patient.is_standby:
        hint = "Name the primary, or name all hosts: postgresql://a,b/database finds it."
        return Finding("server", "wrong", f"{version} is a standby, which only reads.", hint)
    return Finding("server", "ok", f"{version}.")


def check_schema(patient: Patient) -> Finding:
    status = read_status(patient.connection, patient.settings.schema, patient.source)
    try:
        status.ensure_usable()
    except SchemaError as error:
        return Finding("schema", "wrong", error.message, error.hint or "")
    says = f"{status.schema} is at version {status.version}: {status.verdict}."
    return Finding("schema", "ok" if status.verdict == "ready" else "note", says)


def check_clock(patient: Patient) -> Finding:
    """Watchbill goes by the database's clock; yours counts where you compute a run_at."""
    before = patient.clock()
    [(there,)] = patient.ask("SELECT clock_timestamp()")
    after = patient.clock()
    doubt = (after - before).total_seconds() / 2
    skew = (there - before).total_seconds() - doubt
    if abs(skew) - doubt > _SKEW:
        direction = "behind" if skew > 0 else "ahead of"
        says = f"This machine's clock is {abs(skew):.0f} s {direction} the server's."
        return Finding("clock", "wrong", says, "Let both follow NTP (timedatectl set-ntp true).")
    return Finding("clock", "ok", f"The clocks agree within {abs(skew) + doubt:.2f} s.")


def check_connections(patient: Patient) -> Finding:
    settings = patient.settings
    per_process = _CONNECTIONS_OF_A_WORKER + settings.pool_size
    need = per_process * settings.processes + 1
    plan = (
        f"A worker has up to {per_process} connections per process ({_CONNECTIONS_OF_A_WORKER} of its own and the "
        f"pool) x {settings.processes}, and one to listen: {need}"
    )
    if patient.is_pooled:
        return Finding("connections", "ok", f"{plan}; the pooler decides how many reach the server.")
    limit, used = _connection_limit(patient)
    if need > limit:
        hint = (
            "Lower pool_size or processes, raise max_connections (or the role's or database's limit), or use a pooler."
        )
        return Finding("connections", "wrong", f"{plan}, but only {limit} are allowed.", hint)
    return Finding("connections", "ok", f"{plan} of {limit} allowed; {used} in use now.")


def _connection_limit(patient: Patient) -> tuple[int, int]:
    """reserved_connections came with PostgreSQL 16; a limit of -1 is none."""
    [(server, role, database, used)] = patient.ask("""
        SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
                 - coalesce(current_setting('reserved_connections', true)::int, 0),
               (SELECT nullif(rolconnlimit, -1) FROM pg_roles WHERE rolname = current_user),
               (SELECT nullif(datconnlimit, -1) FROM pg_database WHERE datname = current_database()),
               (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')
    """)
    return min(limit for limit in (server, role, database) if limit is not None), used


def check_role_defaults(patient: Patient) -> Finding:
    """What a role or database imposes on our sessions and our connections do not override."""
    wanted = {name.lower(): value.replace("\\", "") for name, value in SESSION_DEFAULTS.items()} | {
        "transaction_timeout": "0"
    }
    found = patient.ask(
        "SELECT lower(name), setting FROM pg_settings WHERE lower(name) = ANY (%s) OR name = 'synchronous_commit'"
        " AND source IN ('user', 'database', 'database user') ORDER BY name",
        list(wanted),
    )
    better = wanted | {"synchronous_commit": "on"}
    biting = [(name, value) for name, value in found if not value.lower().startswith(better[name].lower())]
    if not biting:
        return Finding("role defaults", "ok", "Nothing set on the role or database gets in the way.")
    says = "In our sessions " + ", ".join(f"{name} is {value!r}" for name, value in biting) + "."
    return Finding("role defaults", "wrong", says, "\n".join(_reset(patient, name, better[name]) for name, _ in biting))


def _reset(patient: Patient, name: str, value: str) -> str:
    role, database = patient.ask("SELECT current_user, current_database()")[0]
    statement = sql.SQL("ALTER ROLE {} IN DATABASE {} SET {} = {};")
    return statement.format(sql.Identifier(role), sql.Identifier(database), sql.SQL(name), value).as_string(None)


def check_transactions(patient: Patient) -> Finding:
    """A producer that forgot to commit keeps workers from sleeping and vacuum from cleaning."""
    found = patient.ask(
        """
        SELECT a.pid, a.usename, a.application_name, extract(epoch FROM clock_timestamp() - a.xact_start)::int
        FROM pg_stat_activity a
        WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
          AND a.xact_start < clock_timestamp() - make_interval(secs => %s)
          AND EXISTS (SELECT FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
                      WHERE l.pid = a.pid AND c.relnamespace = to_regnamespace(quote_ident(%s)))
        ORDER BY a.xact_start
        """,
        patient.old_transaction,
        patient.settings.schema,
    )
    if not found:
        return Finding("transactions", "ok", "No old transaction holds locks in the schema.")
    says = "; ".join(f"{pid} ({user}, {name or 'unnamed'}) for {age} s" for pid, user, name, age in found)
    hint = "Commit it, or end it: " + " ".join(f"SELECT pg_terminate_backend({pid});" for pid, *_ in found)
    return Finding("transactions", "wrong", f"Open transactions hold locks in the schema: {says}.", hint)

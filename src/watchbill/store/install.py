"""Does the work of `watchbill db migrate`: migrates the schema, its time zones and the schema jcron, and brings the
facades that are installed up to date."""

from __future__ import annotations

from collections.abc import Callable

from psycopg import sql
from psycopg.errors import DependentObjectsStillExist

from watchbill.errors import SchemaError
from watchbill.postgres.connect import Connection
from watchbill.postgres.migrate import Source, Status, migrate, plan_sql, read_status
from watchbill.postgres.zones import has_current_zones, make_zones_script, refresh_zones
from watchbill.store.facades import refresh_facades, suspend_facades
from watchbill.store.jcron_schema import install_jcron, jcron_script

_RECOMPUTE_TIMERS = sql.SQL("SELECT {}._recompute_timers()")


def install(
    url: str, schema: str = "watchbill", jcron_schema: str = "jcron", report: Callable[[str], None] = lambda _: None
) -> Status:
    """Migrates the schema and returns its status. Does not change a schema of a newer release."""
    status = _migrate_schema(url, schema, report)
    if status.verdict == "ready":
        if refresh_zones(url, schema, report):  # new time zone rules change when schedules are due
            with Connection.connect(url, application_name="watchbill migrate") as connection:
                connection.execute(_RECOMPUTE_TIMERS.format(sql.Identifier(schema)))
        install_jcron(url, schema, jcron_schema, report)
        refresh_facades(url, schema, report)
    return status


def _migrate_schema(url: str, schema: str, report: Callable[[str], None]) -> Status:
    """Migrates the schema. If the migration drops a function that a view of a facade uses, drops the facades first, and
    migrates again."""
    source = Source.of_package("watchbill.store")
    try:
        return migrate(url, schema, source, report=report)
    except SchemaError as error:
        if not isinstance(error.__cause__, DependentObjectsStillExist) or not suspend_facades(url, schema):
            raise
    return migrate(url, schema, source, report=report)


def install_script(url: str | None, schema: str, jcron_schema: str) -> str:
    """Returns what `install` would do, as a script for psql. Without an address, the script is for an empty
    database."""
    source = Source.of_package("watchbill.store")
    if url is None:
        nothing = Status(schema, source, exists=False)
        return plan_sql(nothing, then=make_zones_script(schema) + jcron_script(None, schema, jcron_schema))
    with Connection.connect(url, application_name="watchbill status") as connection:
        status = read_status(connection, schema, source)
        if status.version > source.newest:
            return plan_sql(status)
        recompute = _RECOMPUTE_TIMERS.format(sql.Identifier(schema)).as_string(connection)
        zones = "" if has_current_zones(connection, schema) else f"{make_zones_script(schema)}{recompute};\n"
        return plan_sql(status, then=zones + jcron_script(connection, schema, jcron_schema))

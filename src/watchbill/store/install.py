"""All that `watchbill db migrate` brings about: the schema, the time zones in it, and the schema jcron beside it."""

from __future__ import annotations

from collections.abc import Callable

from psycopg import sql

from watchbill.postgres.connect import Connection
from watchbill.postgres.migrate import Source, Status, migrate, plan_sql, read_status
from watchbill.postgres.zones import has_zones, refresh_zones, zones_script
from watchbill.store.jcron_schema import install_jcron, jcron_script

_REARM = sql.SQL("SELECT {}.rearm_timers()")


def _silently(line: str) -> None:
    pass


def install(
    url: str, schema: str = "watchbill", jcron_schema: str = "jcron", report: Callable[[str], None] = _silently
) -> Status:
    """Says what is there afterwards. What a newer release has made is left to it."""
    status = migrate(url, schema, Source.of_package("watchbill.store"), report=report)
    if status.verdict == "ready":
        if refresh_zones(url, schema, report):
            _rearm(url, schema)
        install_jcron(url, schema, jcron_schema, report)
    return status


def _rearm(url: str, schema: str) -> None:
    """Schedules that are due at a time of the old rules are due at another now."""
    with Connection.connect(url, application_name="watchbill migrate") as connection:
        connection.execute(_REARM.format(sql.Identifier(schema)))


def install_script(url: str | None, schema: str, jcron_schema: str) -> str:
    """What `install` would do, as a script for psql; without an address, from an empty database."""
    source = Source.of_package("watchbill.store")
    if url is None:
        nothing = Status(schema, source, exists=False)
        return plan_sql(nothing, then=zones_script(schema) + jcron_script(None, schema, jcron_schema))
    with Connection.connect(url, application_name="watchbill status") as connection:
        status = read_status(connection, schema, source)
        if status.version > source.newest:
            return plan_sql(status)
        rearm = _REARM.format(sql.Identifier(schema)).as_string(connection)
        zones = "" if has_zones(connection, schema) else f"{zones_script(schema)}{rearm};\n"
        return plan_sql(status, then=zones + jcron_script(connection, schema, jcron_schema))

"""All that `foliot db migrate` brings about: the schema, the time zones in it, and the schema jcron beside it."""

from __future__ import annotations

from collections.abc import Callable

from foliot.postgres.connect import Connection
from foliot.postgres.migrate import Source, Status, migrate, plan_sql, read_status
from foliot.postgres.zones import has_zones, refresh_zones, zones_script
from foliot.store.jcron_schema import install_jcron, jcron_script


def _silently(line: str) -> None:
    pass


def install(
    url: str, schema: str = "foliot", jcron_schema: str = "jcron", report: Callable[[str], None] = _silently
) -> Status:
    """Says what is there afterwards. What a newer release has made is left to it."""
    status = migrate(url, schema, Source.of_package("foliot.store"), report=report)
    if status.verdict == "ready":
        refresh_zones(url, schema, report)
        install_jcron(url, schema, jcron_schema, report)
    return status


def install_script(url: str | None, schema: str, jcron_schema: str) -> str:
    """What `install` would do, as a script for psql; without an address, from an empty database."""
    source = Source.of_package("foliot.store")
    if url is None:
        nothing = Status(schema, source, exists=False)
        return plan_sql(nothing, then=zones_script(schema) + jcron_script(None, schema, jcron_schema))
    with Connection.connect(url, application_name="foliot status") as connection:
        status = read_status(connection, schema, source)
        if status.version > source.newest:
            return plan_sql(status)
        zones = "" if has_zones(connection, schema) else zones_script(schema)
        return plan_sql(status, then=zones + jcron_script(connection, schema, jcron_schema))

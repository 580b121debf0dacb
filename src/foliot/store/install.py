"""All that `foliot db migrate` brings about: the schema, the time zones in it, and the schema jcron beside it."""

from __future__ import annotations

from collections.abc import Callable

from foliot.postgres.migrate import Source, Status, migrate
from foliot.postgres.zones import refresh_zones
from foliot.store.jcron_schema import install_jcron


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

"""Writes the time zones of this machine into a schema, so that the cron engines in Python and SQL use the same numbers.

The table `zones` has them. Functions hold as constants what schedules ask most. `_list_zone_names()` and
`_find_zone_number()` hold the names, because a CHECK on a pattern must hold during a restore, when the table may still
be empty; `_find_near_zone_segment()` and `_find_near_wall_time_instant()` hold the offsets of the years 2020 to 2049. A
name never changes its number, because parsed schedules hold it.

Only newer data replaces older data. Machines of one cluster may have different data; `watchbill doctor` reports that.
"""

from __future__ import annotations

import hashlib
import re
import zoneinfo
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple

from psycopg import sql

from watchbill.cron.zones import END, listed_names, parse_tzif, stretches, zone_file
from watchbill.postgres.connect import Connection
from watchbill.postgres.migrate import run_locked
from watchbill.postgres.migration_plan import lock_or_stop, read_sql

_READER = 1  # raise it when the same tzdata must give other rows
_NEAR_FROM, _NEAR_TO = 1_577_836_800, 2_524_608_000  # the years 2020 to 2049, as in zone_write.sql
_CLEARANCE = 3 * 86_400  # no clock may change so near to the ends of these years, or a cut would hide it
_RELEASE = re.compile(r"(?:# version )?(?P<release>\d{4}[a-z]+)$", re.MULTILINE)


class Release(NamedTuple):
    """The release of tzdata that rows come from, and the version of the reader. An unknown release is the least."""

    tzdata: str
    reader: int

    def __str__(self) -> str:
        return f"{self.tzdata}.{self.reader}"


class ZoneRow(NamedTuple):
    """A row of the table without its number. All arrays but the offsets end with `END`."""

    name: str
    starts: list[int]
    offsets: list[int]
    highs: list[int]
    horizon: int

    @property
    def near(self) -> list[int]:
        """Start, stop, offset and high of each segment of the near years, cut at both ends."""
        if self._changes_near(_NEAR_FROM) or self._changes_near(_NEAR_TO):
            return []
        flat: list[int] = []
        for i in range(bisect_right(self.starts, _NEAR_FROM) - 1, bisect_left(self.starts, _NEAR_TO)):
            start, stop, offset, high = self.starts[i], self.starts[i + 1], self.offsets[i], self.highs[i]
            begin, mark = (_NEAR_FROM, _NEAR_FROM + offset) if start < _NEAR_FROM else (start, high)
            flat += [begin, min(stop, _NEAR_TO), offset, mark]
        return flat

    def _changes_near(self, end: int) -> bool:
        after = bisect_right(self.starts, end - _CLEARANCE)
        return after < len(self.starts) and self.starts[after] < end + _CLEARANCE

    @property
    def digest(self) -> str:
        """The digest that zone_digests.sql calculates from the row in the table."""
        text = "|".join(map(_format_for_sql, self[1:]))
        return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def local_release() -> Release:
    """The release of the data that the reader finds first."""
    places: list[Path | Traversable] = [Path(directory) for directory in zoneinfo.TZPATH]
    with suppress(ModuleNotFoundError):
        places.append(files("tzdata") / "zoneinfo")
    found = (_release_in(place / name) for place in places for name in ("tzdata.zi", "+VERSION", "version"))
    return Release(next(filter(None, found), ""), _READER)


def local_zones() -> list[ZoneRow]:
    """Every zone that a pattern may name, in the order in which names are suggested."""
    names = dict.fromkeys((*listed_names(), *sorted(zoneinfo.available_timezones())))
    known: dict[bytes, ZoneRow] = {}  # many names are other names of the same zone
    return [row for name in names if name != "UTC" and (row := _row(name, known)) is not None]


def zone_lines() -> list[str]:
    """The zones of this machine as lines for COPY."""
    release = local_release()
    return ["\t".join(map(_format_for_sql, (i, *row, row.near, release))) + "\n" for i, row in enumerate(local_zones())]


def stored_release(connection: Connection, schema: str) -> Release | None:
    query = sql.SQL("SELECT max(tzdata) FROM {}").format(sql.Identifier(schema, "zones"))
    [(text,)] = connection.execute(query)
    if text is None:
        return None
    tzdata, reader = text.split(".")
    return Release(tzdata, int(reader))


def zone_digests(connection: Connection, schema: str) -> dict[str, str]:
    """Name and digest of every zone in the table."""
    query = sql.SQL(read_sql("zone_digests.sql")).format(zones=sql.Identifier(schema, "zones"))
    return dict(connection.execute(query).fetchall())


def refresh_zones(
    url: str, schema: str, report: Callable[[str], None], read: Callable[[], list[str]] | None = None
) -> bool:
    """Writes the zones of this machine if they are newer than those of the schema. Returns whether it did.

    `read` replaces zone_lines for a caller that has begun to read before.
    """

    def write(connection: Connection) -> str | None:
        if has_current_zones(connection, schema):  # another process wrote them first
            return None
        lines = (read or zone_lines)()
        if not lines:
            return "no time zones found on this machine: schedules in SQL can use UTC and offsets only"
        connection.execute(_begin(schema))
        with connection.cursor().copy("COPY read_zones FROM STDIN") as copy:
            for line in lines:
                copy.write(line)
        connection.execute(read_sql("zone_write.sql").encode())
        return f"time zones of tzdata {local_release().tzdata or 'of an unknown release'}"

    with Connection.connect(url, application_name="watchbill migrate") as connection:
        if has_current_zones(connection, schema):
            return False
    message = run_locked(url, schema, write, report=report)
    if message:
        report(message)
    return message is not None


def zones_script(schema: str) -> str:
    """The zones of this machine as a script for psql."""
    lines = zone_lines()
    if not lines:
        return ""
    steps = [
        f"\n-- time zones of tzdata {local_release().tzdata}\nBEGIN;\n",
        lock_or_stop(schema),
        _begin(schema).as_string(None),
        "COPY read_zones FROM STDIN;\n",
        *lines,
        "\\.\n",
        read_sql("zone_write.sql"),
        "COMMIT;\n",
    ]
    return "".join(steps)


def has_current_zones(connection: Connection, schema: str) -> bool:
    """Whether the schema has zones as new as this machine's, or newer."""
    table = "SELECT true FROM pg_tables WHERE schemaname = %s AND tablename = 'zones'"
    theirs = stored_release(connection, schema) if connection.execute(table, (schema,)).fetchone() else None
    return theirs is not None and theirs >= local_release()


def _begin(schema: str) -> sql.Composed:
    return sql.SQL(read_sql("zone_begin.sql")).format(schema=sql.Identifier(schema))


def _format_for_sql(value: object) -> str:
    """Formats a number, a name or a list of them as PostgreSQL reads and writes it."""
    return f"{{{','.join(map(str, value))}}}" if isinstance(value, list) else str(value)


def _row(name: str, known: dict[bytes, ZoneRow]) -> ZoneRow | None:
    data = zone_file(name)
    if data is None:
        return None
    if data not in known:
        transitions = parse_tzif(data)
        starts, offsets, highs = stretches(transitions)
        known[data] = ZoneRow(name, [*starts, END], offsets, [*highs, END], transitions.horizon)
    return known[data]._replace(name=name)


def _release_in(file: Path | Traversable) -> str | None:
    try:
        with file.open(encoding="utf-8") as opened:
            found = _RELEASE.match(opened.readline().strip())
    except OSError:
        return None
    return found["release"] if found else None

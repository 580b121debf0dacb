"""Writes the time zones of this machine into a schema, so that the cron engines in Python and SQL use the same numbers.

The table `zones` has the time zones. SQL functions have the parts that schedules need most as constants.
`_list_zone_names()` and `_find_zone_number()` have the names, because the CHECK on a pattern must work during a
restore, when the table may still be empty. `_find_near_zone_segment()` and `_find_near_wall_time_instant()` have the
offsets of the years 2020 to 2049. The number of a zone never changes, because parsed schedules contain it.

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

from watchbill.cron.zones import END, listed_names, parse_tzif, split_into_segments, zone_file
from watchbill.postgres.connect import OWNER_SESSION, Connection
from watchbill.postgres.migrate import run_locked
from watchbill.postgres.migration_plan import make_lock_statement, read_sql

_READER = 1  # the version of this reader; raise it after a change that makes other rows from the same tzdata
_NEAR_FROM, _NEAR_TO = 1_577_836_800, 2_524_608_000  # the years 2020 to 2049, as in zone_write.sql
_CLEARANCE = 3 * 86_400  # seconds at both ends of these years in which no clock may change, or it would be cut off
_RELEASE = re.compile(r"(?:# version )?(?P<release>\d{4}[a-z]+)$", re.MULTILINE)


class Release(NamedTuple):
    """The release of tzdata, and the version of the reader that made rows of it. An unknown release is the lowest."""

    tzdata: str
    reader: int

    def __str__(self) -> str:
        return f"{self.tzdata}.{self.reader}"


class ZoneRow(NamedTuple):
    """A row of the table `zones`, without its number. All arrays but the offsets end with `END`."""

    name: str
    starts: list[int]
    offsets: list[int]
    highs: list[int]
    horizon: int

    @property
    def near(self) -> list[int]:
        """Start, stop, offset and high of each segment in the years 2020 to 2049. The first and the last segment are
        cut at the ends of these years."""
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
        """A digest of this row, equal to the one that zone_digests.sql calculates from the row in the table."""
        text = "|".join(map(_format_for_sql, self[1:]))
        return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def read_local_release() -> Release:
    """Returns the release of the time zone data that Python uses on this machine."""
    places: list[Path | Traversable] = [Path(directory) for directory in zoneinfo.TZPATH]
    with suppress(ModuleNotFoundError):
        places.append(files("tzdata") / "zoneinfo")
    found = (_find_release_in(place / name) for place in places for name in ("tzdata.zi", "+VERSION", "version"))
    return Release(next(filter(None, found), ""), _READER)


def read_local_zones() -> list[ZoneRow]:
    """Returns every zone that a pattern may name, in the order in which names are suggested."""
    names = dict.fromkeys((*listed_names(), *sorted(zoneinfo.available_timezones())))
    known: dict[bytes, ZoneRow] = {}  # by file content: rows that were made already, because many names share a zone
    return [row for name in names if name != "UTC" and (row := _make_row(name, known)) is not None]


def make_zone_lines() -> list[str]:
    """Returns the zones of this machine as lines for COPY."""
    release = read_local_release()
    return [
        "\t".join(map(_format_for_sql, (i, *row, row.near, release))) + "\n" for i, row in enumerate(read_local_zones())
    ]


def read_stored_release(connection: Connection, schema: str) -> Release | None:
    query = sql.SQL("SELECT max(tzdata) FROM {}").format(sql.Identifier(schema, "zones"))
    [(text,)] = connection.execute(query)
    if text is None:
        return None
    tzdata, reader = text.split(".")
    return Release(tzdata, int(reader))


def read_zone_digests(connection: Connection, schema: str) -> dict[str, str]:
    """Returns the digest of every zone in the table, by name."""
    query = sql.SQL(read_sql("zone_digests.sql")).format(zones=sql.Identifier(schema, "zones"))
    return dict(connection.execute(query).fetchall())


def refresh_zones(
    url: str, schema: str, report: Callable[[str], None], read: Callable[[], list[str]] | None = None
) -> bool:
    """Writes the zones of this machine to the schema if they are newer. Returns whether it did.

    `read` replaces make_zone_lines, for a caller that has begun to read the zones before.
    """

    def write_zones(connection: Connection) -> str | None:
        if has_current_zones(connection, schema):  # another process has written the zones first
            return None
        lines = (read or make_zone_lines)()
        if not lines:
            return "no time zones found on this machine: schedules in SQL can use UTC and offsets only"
        connection.execute(_make_begin(schema))
        with connection.cursor().copy("COPY read_zones FROM STDIN") as copy:
            for line in lines:
                copy.write(line)
        connection.execute(read_sql("zone_write.sql").encode())
        return f"time zones of tzdata {read_local_release().tzdata or 'of an unknown release'}"

    with Connection.connect(url, session=OWNER_SESSION, application_name="watchbill migrate") as connection:
        if has_current_zones(connection, schema):
            return False
    message = run_locked(url, schema, write_zones, report=report)
    if message:
        report(message)
    return message is not None


def make_zones_script(schema: str) -> str:
    """Returns a script for psql that writes the zones of this machine."""
    lines = make_zone_lines()
    if not lines:
        return ""
    steps = [
        f"\n-- time zones of tzdata {read_local_release().tzdata}\nBEGIN;\n",
        make_lock_statement(schema),
        _make_begin(schema).as_string(None),
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
    theirs = read_stored_release(connection, schema) if connection.execute(table, (schema,)).fetchone() else None
    return theirs is not None and theirs >= read_local_release()


def _make_begin(schema: str) -> sql.Composed:
    return sql.SQL(read_sql("zone_begin.sql")).format(schema=sql.Identifier(schema))


def _format_for_sql(value: object) -> str:
    """Formats a number, a name or a list of them as PostgreSQL reads and writes it."""
    return f"{{{','.join(map(str, value))}}}" if isinstance(value, list) else str(value)


def _make_row(name: str, known: dict[bytes, ZoneRow]) -> ZoneRow | None:
    data = zone_file(name)
    if data is None:
        return None
    if data not in known:
        transitions = parse_tzif(data)
        starts, offsets, highs = split_into_segments(transitions)
        known[data] = ZoneRow(name, [*starts, END], offsets, [*highs, END], transitions.horizon)
    return known[data]._replace(name=name)


def _find_release_in(file: Path | Traversable) -> str | None:
    try:
        with file.open(encoding="utf-8") as opened:
            found = _RELEASE.match(opened.readline().strip())
    except OSError:
        return None
    return found["release"] if found else None

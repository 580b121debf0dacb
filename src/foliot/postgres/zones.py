"""Writes the time zones of this machine into a schema: the cron engines in Python and SQL count on the same numbers.

The tables `zones` and `zone_segments` have the offsets. The functions zone_names() and zone_number() have the names, in
their own text: a CHECK on a pattern must hold during a restore, when the tables may still be empty. A name keeps its
number for ever, as parsed schedules hold it.

Only newer data replaces what is there. Machines of one cluster may differ; `foliot doctor` says so.
"""

from __future__ import annotations

import hashlib
import re
import zoneinfo
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple

from psycopg import sql

from foliot.cron.zones import UnknownZone, Zone, listed_names, load_zone
from foliot.postgres.connect import Connection
from foliot.postgres.migration_plan import read_sql

_READER = 1  # one more when the same tzdata is to give other rows
_NEAR = range(946_684_800, 2_524_608_000)  # the years 2000 to 2049
_RELEASE = re.compile(r"(?:# version )?(?P<release>\d{4}[a-z]+)$", re.MULTILINE)


class Release(NamedTuple):
    """Which data rows were read from, and by which reader; a newer one is greater, an unknown one least."""

    tzdata: str
    reader: int

    @classmethod
    def of_text(cls, text: str) -> Release:
        tzdata, reader = text.split(".")
        return cls(tzdata, int(reader))

    def __str__(self) -> str:
        return f"{self.tzdata}.{self.reader}"


class ZoneRow(NamedTuple):
    """A row of the table without its number. The arrays end with a mark, but for the offsets."""

    name: str
    starts: list[int]
    offsets: list[int]
    highs: list[int]
    horizon: int

    @classmethod
    def of_zone(cls, zone: Zone) -> ZoneRow:
        starts, ends, offsets, highs = zip(*zone.segments, strict=True)
        return cls(zone.name, [*starts, ends[-1]], [*offsets], [*highs, ends[-1]], zone.horizon)

    def near_segments(self) -> Iterator[tuple[int, int, int, int]]:
        """(start, stop, offset, high) of those that reach into the years that schedules ask about."""
        for start, stop, offset, high in zip(self.starts, self.starts[1:], self.offsets, self.highs, strict=False):
            if stop > _NEAR.start and start < _NEAR.stop:
                yield start, stop, offset, high

    @property
    def digest(self) -> str:
        """The same as zone_digests.sql makes of the row in the table."""
        text = "|".join(map(in_sql, self[1:]))
        return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def local_release() -> Release:
    """Of the data that the reader finds first."""
    places: list[Path | Traversable] = [Path(directory) for directory in zoneinfo.TZPATH]
    with suppress(ModuleNotFoundError):
        places.append(files("tzdata") / "zoneinfo")
    found = (_release_in(place / name) for place in places for name in ("tzdata.zi", "+VERSION", "version"))
    return Release(next(filter(None, found), ""), _READER)


def local_zones() -> list[ZoneRow]:
    """Every zone that a pattern may name, in the order in which names are suggested."""
    names = dict.fromkeys((*listed_names(), *sorted(zoneinfo.available_timezones())))
    return [row for name in names if name != "UTC" and (row := _row(name)) is not None]


def refresh_zones(url: str, schema: str, report: Callable[[str], None]) -> None:
    """Writes what this machine knows if it is newer than what the schema has."""
    ours = local_release()
    with Connection.connect(url, application_name="foliot migrate") as connection:
        if _is_current(connection, schema, ours):
            return
        connection.execute(sql.SQL("SET LOCAL search_path = {}, pg_temp").format(sql.Identifier(schema)))
        connection.execute("LOCK TABLE zones IN SHARE ROW EXCLUSIVE MODE")
        if _is_current(connection, schema, ours):  # another came first
            return
        _write(connection, local_zones(), ours)
    report(f"time zones of tzdata {ours.tzdata or 'of an unknown release'}")


def _is_current(connection: Connection, schema: str, ours: Release) -> bool:
    theirs = stored_release(connection, schema)
    return theirs is not None and theirs >= ours


def zone_digests(connection: Connection, schema: str) -> dict[str, str]:
    """Name and digest of every zone in the table."""
    query = sql.SQL(read_sql("zone_digests.sql")).format(zones=sql.Identifier(schema, "zones"))
    return dict(connection.execute(query).fetchall())


def stored_release(connection: Connection, schema: str) -> Release | None:
    query = sql.SQL("SELECT max(tzdata) FROM {}").format(sql.Identifier(schema, "zones"))
    [(text,)] = connection.execute(query)
    return None if text is None else Release.of_text(text)


def _write(connection: Connection, rows: Sequence[ZoneRow], release: Release) -> None:
    numbers: dict[str, int] = dict(connection.execute("SELECT name, number FROM zones").fetchall())
    for row in rows:
        numbers.setdefault(row.name, len(numbers) + 1)
    connection.execute("DELETE FROM zones WHERE name = ANY (%s)", ([row.name for row in rows],))
    connection.execute("DELETE FROM zone_segments")
    kept = [ZoneRow(*row) for row in connection.execute("SELECT name, starts, offsets, highs, horizon FROM zones")]
    connection.execute("UPDATE zones SET tzdata = %s", (str(release),))
    _copy(connection, "zones", [(numbers[row.name], *row, release) for row in rows])
    segments = [(numbers[row.name], *segment) for row in (*rows, *kept) for segment in row.near_segments()]
    _copy(connection, "zone_segments", segments)
    connection.execute("ANALYZE zones, zone_segments")
    connection.execute(_functions([row.name for row in rows], numbers))


def _copy(connection: Connection, table: str, rows: Sequence[tuple[object, ...]]) -> None:
    with connection.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(table))) as copy:
        for row in rows:
            copy.write("\t".join(map(in_sql, row)) + "\n")


def _functions(names: list[str], numbers: dict[str, int]) -> sql.Composed:
    """A name that tzdata no longer has stays: nobody's schedule is to fail for it."""
    known = [*names, *(name for name in numbers if name not in names)]
    in_order = sorted(known)
    return sql.SQL(read_sql("zone_functions.sql")).format(
        names=in_sql(known), sorted_names=in_sql(in_order), numbers=in_sql([numbers[name] for name in in_order])
    )


def in_sql(value: object) -> str:
    """A number, a name or a list of them as PostgreSQL reads it."""
    return f"{{{','.join(map(str, value))}}}" if isinstance(value, list) else str(value)


def _row(name: str) -> ZoneRow | None:
    try:
        return ZoneRow.of_zone(load_zone(name))
    except UnknownZone:
        return None


def _release_in(file: Path | Traversable) -> str | None:
    try:
        with file.open(encoding="utf-8") as opened:
            found = _RELEASE.match(opened.readline().strip())
    except OSError:
        return None
    return found["release"] if found else None

"""The zones in the schema are Python's, to the second; only newer ones replace them, and numbers stay."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.store.cron_sql import Connection, at, in_utc
from watchbill.cron import Cron
from watchbill.postgres import zones
from watchbill.postgres.migration_plan import make_advisory_key
from watchbill.postgres.zones import Release, ZoneRow, read_local_zones
from watchbill.store.install import install

NEWER, OLDER = Release("2999z", 1), Release("1999a", 1)
EDGES = [
    "2019-12-30 12:00:00",
    "2019-12-31 23:30:00",
    "2020-01-01 00:00:00",
    "2049-12-29 12:00:00",
    "2049-12-31 23:30:00",
]


@pytest.fixture
def sql(schema_database: str) -> Iterator[Connection]:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        yield connection


def tell(monkeypatch: pytest.MonkeyPatch, release: Release, rows: list[ZoneRow]) -> None:
    """As if this machine had other data."""
    monkeypatch.setattr(zones, "read_local_release", lambda: release)
    monkeypatch.setattr(zones, "read_local_zones", lambda: rows)


def moved(row: ZoneRow, seconds: int) -> ZoneRow:
    return row._replace(offsets=[offset + seconds for offset in row.offsets])


def numbers(sql: Connection) -> dict[str, int]:
    return dict(sql.execute("SELECT name, watchbill._find_zone_number(name) FROM watchbill.zones").fetchall())


def nine_in_kolkata(sql: Connection) -> object:
    [(found,)] = sql.execute("SELECT jcron.next_time('0 9 * * * TZ:Asia/Kolkata', '2025-01-01 00:00:00+00')")
    return found


def test_zone_rows_are_stored_uncompressed(sql: Connection) -> None:
    columns = "starts", "offsets", "highs"
    compressed = " OR ".join(f"pg_column_compression({column}) IS NOT NULL" for column in columns)
    assert sql.execute(f"SELECT name FROM watchbill.zones WHERE {compressed}".encode()).fetchall() == []


def test_zone_table_holds_every_python_zone_with_its_number(sql: Connection) -> None:
    names = [row.name for row in read_local_zones()]
    assert len(names) > 500
    [(known,)] = sql.execute("SELECT watchbill._list_zone_names()")
    assert known == names
    assert numbers(sql) == dict(sql.execute("SELECT name, number FROM watchbill.zones").fetchall())
    assert sorted(numbers(sql).values()) == list(range(1, len(names) + 1))


@pytest.mark.parametrize("pattern", ["0 0 * * *", "30 */2 * * *", "0 12 1 1,7 *"])
def test_sql_and_python_agree_at_the_limits_of_near_years(sql: Connection, pattern: str) -> None:
    query = (
        "SELECT jcron.next_time(%(p)s, t, z), jcron.prev_time(%(p)s, t, z) FROM unnest(%(z)s::text[], %(t)s) u(z, t)"
    )
    asked = [(row.name, at(moment)) for row in read_local_zones() for moment in EDGES]
    parameters = {"p": pattern, "z": [zone for zone, _ in asked], "t": [moment for _, moment in asked]}
    for (zone, moment), found in zip(asked, sql.execute(query, parameters), strict=True):
        cron = Cron(pattern, zone)
        assert found == (in_utc(cron.next(moment)), in_utc(cron.prev(moment))), (zone, moment)


def test_newer_zone_data_replaces_older_and_keeps_the_numbers(sql: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    before, kolkata = numbers(sql), nine_in_kolkata(sql)
    assert kolkata == at("2025-01-01 03:30:00")
    parsed = sql.execute("SELECT jcron.parse_cron('0 9 * * *', 'Asia/Kolkata')::bigint[]").fetchone()
    rows = [moved(row, 3600) if row.name == "Asia/Kolkata" else row for row in reversed(read_local_zones())]
    new = ZoneRow("Mars/Olympus", [zones._NEAR_FROM - 10**9, 1 << 62], [7200], [-(1 << 62), 1 << 62], 1 << 62)
    tell(monkeypatch, NEWER, [new, *(row for row in rows if row.name != "Europe/Kyiv")])
    said: list[str] = []
    install(sql.info.dsn, report=said.append)
    assert said == ["time zones of tzdata 2999z"]
    assert nine_in_kolkata(sql) == at("2025-01-01 02:30:00")
    after = numbers(sql)
    assert after == {**before, "Mars/Olympus": len(before) + 1}, "nobody's number has changed, and none is reused"
    assert sql.execute("SELECT jcron.next_run(%s::bigint[], '2025-01-01 00:00:00+00')", parsed).fetchone() == (
        at("2025-01-01 02:30:00"),
    )
    assert sql.execute("SELECT jcron.is_valid_pattern('0 9 * * * TZ:Europe/Kyiv')").fetchone() == (True,), (
        "gone from tzdata"
    )
    install(sql.info.dsn, report=said.append)
    assert len(said) == 1, "what is current is not written again"


def test_older_zone_data_is_not_written(sql: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(monkeypatch, OLDER, [moved(row, 3600) for row in read_local_zones()])
    said: list[str] = []
    install(sql.info.dsn, report=said.append)
    assert (said, nine_in_kolkata(sql)) == ([], at("2025-01-01 03:30:00"))


def test_machine_without_zones_writes_none_and_reports_it(sql: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(monkeypatch, NEWER, [])
    said: list[str] = []
    install(sql.info.dsn, report=said.append)
    assert said == ["no time zones found on this machine: schedules in SQL can use UTC and offsets only"]
    assert nine_in_kolkata(sql) == at("2025-01-01 03:30:00")


def test_refresh_zones_waits_for_a_running_migration(sql: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(monkeypatch, NEWER, read_local_zones())
    said: list[str] = []

    def heard(line: str) -> None:
        said.append(line)
        if line.startswith("waiting"):
            other.rollback()

    with psycopg.connect(sql.info.dsn) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s, %s)", make_advisory_key("watchbill"))
        zones.refresh_zones(sql.info.dsn, "watchbill", heard)
    assert said[0].startswith("waiting: the lock for migrations of this schema is held by server process")
    assert said[1:] == ["time zones of tzdata 2999z"]


def test_zone_change_near_the_limit_disables_the_near_years() -> None:
    cut, beside = zones._NEAR_TO, zones._NEAR_TO - 3600
    plain = ZoneRow("A", [0, cut + 10**7, 1 << 62], [0, 3600], [0, cut + 10**7, 1 << 62], 1 << 62)
    assert plain.near == [zones._NEAR_FROM, cut, 0, zones._NEAR_FROM]
    assert plain._replace(starts=[0, beside, 1 << 62]).near == []


def test_applying_functions_again_keeps_the_zones(sql: Connection) -> None:
    before = numbers(sql)
    sql.execute("UPDATE watchbill.schema_functions SET checksum = 'of another version'")
    install(sql.info.dsn)
    assert numbers(sql) == before
    assert nine_in_kolkata(sql) == at("2025-01-01 03:30:00")

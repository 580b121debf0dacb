"""The zone reader against zoneinfo, which reads the same files."""

from __future__ import annotations

import random
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

import pytest

from tests.unit.cron.zones import ZONE_KINDS
from watchbill.cron import zones
from watchbill.cron.footer import parse_footer
from watchbill.cron.instants import EARLIEST, LATEST
from watchbill.cron.zones import BEGINNING, END, UnknownZone, Zone, is_zone, load_zone, parse_tzif

DAY = 86_400
NAMES = sorted(name for name in available_timezones() if is_zone(name))
TESTED = sorted({name for names in ZONE_KINDS.values() for name in names if "/" in name})


def instants_to_try(zone: Zone, count: int) -> list[int]:
    """Around the changes of the clock, around where the zone begins to repeat itself, and anywhere."""
    draw = random.Random(zone.name)
    changes = [segment.start for segment in zone.segments if segment.start > EARLIEST + DAY]
    around = [draw.choice(changes) + draw.choice([-1, 0, 1, 1800, -1800]) for _ in range(count)] if changes else []
    anywhere = [draw.randint(EARLIEST + DAY, LATEST - DAY) for _ in range(count)]
    folded = [min(zone.horizon, LATEST) + draw.randint(-400 * DAY, 400 * DAY) for _ in range(count)]
    return around + anywhere + [instant for instant in folded if instant < LATEST - DAY]


@pytest.mark.parametrize("count", [4, pytest.param(400, marks=pytest.mark.long)])
def test_zone_offsets_equal_those_of_zoneinfo(count: int) -> None:
    for name in NAMES:
        zone, info = load_zone(name), ZoneInfo(name)
        for instant in instants_to_try(zone, count):
            expected = datetime.fromtimestamp(instant, info)
            offset = expected.utcoffset()
            assert offset is not None
            assert zone.segment(instant).offset == offset.total_seconds(), (name, expected)


@pytest.mark.parametrize("name", TESTED)
def test_first_instant_returns_the_first_instant_at_or_after_a_wall_time(name: str) -> None:
    zone = load_zone(name)
    for instant in instants_to_try(zone, 20):
        wall = zone.wall(instant)
        first = zone.first_instant(wall)
        assert first <= instant
        assert zone.wall(first) >= wall
        assert zone.wall(first - 1) < wall
        second = zone.second_instant(wall)
        assert instant in (first, second) or zone.wall(first) > wall


def test_segments_cover_all_time_without_a_gap() -> None:
    for name in TESTED:
        zone = load_zone(name)
        assert zone.segments[0].start == BEGINNING
        assert zone.segments[-1].end == END
        for earlier, later in zip(zone.segments, zone.segments[1:], strict=False):
            assert earlier.end == later.start
            assert earlier.offset != later.offset
            assert earlier.high <= later.high


def test_zone_rules_repeat_every_four_hundred_years() -> None:
    zone = load_zone("America/New_York")
    for year in (2200, 2600, 3000, 9800):
        shift = (year - 2200) * 365_2425 // 10_000 * DAY
        segment = zone.segment(int(datetime(2200, 7, 1, tzinfo=UTC).timestamp()) + shift)
        assert segment.offset == -4 * 3600
        assert datetime.fromtimestamp(segment.start, UTC).month == 3


def test_zones_are_searched_in_the_path_of_zoneinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Path(next(path for path in _candidates("Asia/Tokyo") if path.is_file())).read_bytes()
    (tmp_path / "Test").mkdir()
    (tmp_path / "Test" / "Here").write_bytes(data)
    (tmp_path / "Test" / "Broken").write_bytes(b"no zone")
    monkeypatch.setattr("zoneinfo.TZPATH", (str(tmp_path),))
    assert zones.read_transitions("Test/Here") == parse_tzif(data)
    assert zones.read_transitions("Europe/Paris").horizon < END  # from the package
    for name in ("Test/Broken", "Test", "Test/There"):
        with pytest.raises(UnknownZone):
            zones.read_transitions(name)


def _candidates(name: str) -> list[Path]:
    import importlib.resources
    import zoneinfo

    packaged = Path(str(importlib.resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))))
    return [*(Path(directory, name) for directory in zoneinfo.TZPATH), packaged]


def tzif(version: bytes, transitions: list[tuple[int, int]], offsets: list[int], footer: bytes) -> bytes:
    """A zone file with the given (instant, type) transitions and offsets of the types."""

    def block(code: str) -> bytes:
        header = b"TZif" + version + bytes(15) + struct.pack(">6l", 0, 0, 0, len(transitions), len(offsets), 4)
        instants = b"".join(struct.pack(f">{code}", instant) for instant, _ in transitions)
        types = b"".join(struct.pack(">lBB", offset, 0, 0) for offset in offsets)
        return header + instants + bytes(index for _, index in transitions) + types + b"XXX\0"

    return block("l") if version == b"\0" else block("l") + block("q") + b"\n" + footer + b"\n"


def test_tzif_version_1_file_is_read() -> None:
    found = parse_tzif(tzif(b"\0", [(100, 1)], [0, 3600], b""))
    assert found == (0, [100], [3600], END)


def test_rule_without_transitions_applies_to_all_years() -> None:
    zone = Zone("Rule", UTC, parse_tzif(tzif(b"2", [], [-18000], b"EST5EDT,M3.2.0,M11.1.0")))
    for year in (3, 1500, 2024, 9000):
        summer = int(datetime(year, 7, 1, tzinfo=UTC).timestamp())
        assert [zone.segment(summer).offset, zone.segment(summer + 180 * DAY).offset] == [-14400, -18000]


def test_fixed_rule_without_transitions_is_one_offset() -> None:
    assert parse_tzif(tzif(b"2", [], [0], b"<+05>-5")) == (18000, [], [], END)


def test_summer_time_all_year_is_one_offset() -> None:
    found = parse_tzif(tzif(b"2", [(0, 0)], [3600], b"XXX0YYY-1,0/0,J365/25"))
    zone = Zone("Permanent", UTC, found)
    assert zone.segment(10**9).offset == 3600
    assert zone.segment(10**9).end > 10**10


@pytest.mark.parametrize(
    ("footer", "year", "changes"),
    [
        ("EST5EDT,M3.2.0,M11.1.0", 2024, ["2024-03-10 07:00:00", "2024-11-03 06:00:00"]),
        ("IST-2IDT,M3.4.4/26,M10.5.0", 2024, ["2024-03-29 00:00:00", "2024-10-26 23:00:00"]),
        ("<-02>2<-01>,M3.5.0/-1,M10.5.0/0", 2024, ["2024-03-31 01:00:00", "2024-10-27 01:00:00"]),
        ("AAA0BBB,J60/0,300/0", 2023, ["2023-03-01 00:00:00", "2023-10-27 23:00:00"]),
        ("AAA0BBB,J60/0,300/0", 2024, ["2024-03-01 00:00:00", "2024-10-26 23:00:00"]),
        ("AAA-3:30:15BBB-4,59/0,J365/0", 2024, ["2024-02-28 20:29:45", "2024-12-30 20:00:00"]),
    ],
)
def test_footer_rules_give_the_transitions_of_a_year(footer: str, year: int, changes: list[str]) -> None:
    found = [instant for instant, _ in parse_footer(footer).transitions(year, year)]
    epoch = datetime(1970, 1, 1)  # noqa: DTZ001
    assert [str(epoch + timedelta(seconds=instant)) for instant in found] == changes


@pytest.mark.parametrize("footer", ["", "EST", "EST5EDT", "EST5EDT,M3.2.0", "EST5EDT,X,Y", "EST5EDT,M3.2.0,M13"])
def test_invalid_zone_rule_is_refused(footer: str) -> None:
    with pytest.raises(ValueError, match="zone rule"):
        parse_footer(footer).transitions(2024, 2024)

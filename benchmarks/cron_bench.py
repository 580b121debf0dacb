"""Microseconds per next run: watchbill.cron beside cronsim, croniter and APScheduler 3, in one process.

    make bench-cron    # installs the peers below .bench-env

Each library walks each schedule from 2026 on, so that no (pattern, instant) is asked for twice. They take turns, lap
by lap, and the best lap counts, in processor time: the machine may be busy. Reading a pattern is measured apart.
watchbill is also asked at random instants, where nothing that it keeps from one call to the next is of use.
"""

from __future__ import annotations

import importlib.metadata
import math
import random
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from watchbill.cron import Cron
from watchbill.cron.compiler import check_schedule, compile_schedule
from watchbill.cron.walls import walls_of

PATTERNS = [
    "* * * * *",
    "*/5 * * * *",
    "0 * * * *",
    "30 2 * * *",
    "0 9-17 * * 1-5",
    "15,45 8 * * *",
    "0 0 1 * *",
    "0 0 * * 0",
    "0 12 1 1 *",
    "0 0 31 */2 *",
    "0 0 29 2 *",
    "0 0 13 * 5",
]
ZONES: dict[str, tzinfo] = {"UTC": UTC, "America/New_York": ZoneInfo("America/New_York")}
LAPS, STEPS = 10, 150
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

Walk = Callable[[int], object]  # goes so many runs on
Factory = Callable[[str, str, datetime], Walk]


def watchbill(pattern: str, zone: str, start: datetime) -> Walk:
    cron = Cron(pattern, zone)
    at: datetime | None = start

    def walk(count: int) -> None:
        nonlocal at
        for _ in range(count):
            assert at is not None
            at = cron.next(at)

    return walk


def cronsim(pattern: str, zone: str, start: datetime) -> Walk:
    from cronsim import CronSim

    runs = CronSim(pattern, start)

    def walk(count: int) -> None:
        for _ in range(count):
            next(runs)

    return walk


def croniter(pattern: str, zone: str, start: datetime) -> Walk:
    from croniter import croniter as make

    runs = make(pattern, start)

    def walk(count: int) -> None:
        for _ in range(count):
            runs.get_next(datetime)

    return walk


def apscheduler(pattern: str, zone: str, start: datetime) -> Walk:
    """Counts weekdays from Monday, and wants both day fields to match where cron is content with one."""
    from apscheduler.triggers.cron import CronTrigger

    minute, hour, day, month, weekday = pattern.split()
    if weekday != "*":
        weekday = "-".join(WEEKDAYS[int(number)] for number in weekday.split("-"))
    fields = {"minute": minute, "hour": hour, "day": day, "month": month, "day_of_week": weekday}
    trigger = CronTrigger(**fields, timezone=start.tzinfo)
    at = start

    def walk(count: int) -> None:
        nonlocal at
        for _ in range(count):
            at = trigger.get_next_fire_time(at, at)

    return walk


PEERS: dict[str, Factory] = {"cronsim": cronsim, "croniter": croniter, "apscheduler": apscheduler}


def measure(factories: dict[str, Factory], pattern: str, zone: str) -> dict[str, float]:
    """Microseconds a run, in the best lap of one long walk. All take turns, so that a busy machine is so for all."""
    start = datetime(2026, 1, 15, 10, 7, tzinfo=ZONES[zone])
    walks = {name: make(pattern, zone, start) for name, make in factories.items()}
    best = dict.fromkeys(walks, math.inf)
    for _ in range(LAPS):
        for name, walk in walks.items():
            begin = time.process_time()
            walk(STEPS)
            best[name] = min(best[name], (time.process_time() - begin) / STEPS * 1e6)
    return best


def jump(pattern: str, zone: str) -> float:
    """Microseconds a call of watchbill at instants without order, none of them twice."""
    cron = Cron(pattern, zone)
    draw = random.Random(pattern + zone)
    first = datetime(2000, 1, 1, tzinfo=ZONES[zone])
    best = math.inf
    seconds = draw.sample(range(60 * 365 * 86_400), LAPS * STEPS)
    for lap in range(LAPS):
        moments = [first + timedelta(seconds=second) for second in seconds[lap * STEPS : (lap + 1) * STEPS]]
        begin = time.process_time()
        for moment in moments:
            cron.next(moment)
        best = min(best, (time.process_time() - begin) / STEPS * 1e6)
    return best


def parse(factory: Factory, pattern: str) -> float:
    """Microseconds to build a schedule from text, without caches, and to find its first run."""
    start = datetime(2026, 1, 15, 10, 7, tzinfo=UTC)
    times = []
    factory(pattern, "UTC", start)  # imports
    for _ in range(50):
        for cache in (check_schedule, compile_schedule, walls_of):
            cache.cache_clear()
        begin = time.process_time()
        factory(pattern, "UTC", start)(1)
        times.append((time.process_time() - begin) * 1e6)
    return min(times)


def installed() -> dict[str, Factory]:
    found = {}
    for name, factory in PEERS.items():
        try:
            print(f"{name} {importlib.metadata.version(name)}", end="  ")
            found[name] = factory
        except importlib.metadata.PackageNotFoundError:
            print(f"{name} is not installed", end="  ")
    print(f"Python {sys.version.split()[0]}")
    return found


Table = dict[str, dict[str, float]]  # by column and pattern


def transposed(rows: dict[str, dict[str, float]]) -> Table:
    columns = next(iter(rows.values()))
    return {name: {pattern: row[name] for pattern, row in rows.items()} for name in columns}


def show(title: str, columns: Table) -> None:
    print(f"\n{title}\n{'':18}" + "".join(f"{name:>18}" for name in columns))
    for pattern in PATTERNS:
        print(f"{pattern:18}" + "".join(f"{column[pattern]:>18.2f}" for column in columns.values()))
    means = [statistics.geometric_mean(column.values()) for column in columns.values()]
    print(f"{'geometric mean':18}" + "".join(f"{mean:>18.2f}" for mean in means))


def verdict(zone: str, ours: dict[str, float], peers: Table) -> bool:
    """Whether watchbill is 2.5 times as fast as the fastest peer on every pattern, and 10 times in the mean."""
    ratios = {pattern: min(peer[pattern] for peer in peers.values()) / ours[pattern] for pattern in PATTERNS}
    worst = min(ratios, key=ratios.__getitem__)
    fastest = min(statistics.geometric_mean(peer.values()) for peer in peers.values())
    mean = fastest / statistics.geometric_mean(ours.values())
    print(f"{zone}: {mean:.1f} times the fastest peer in the mean (10 wanted)", end=", ")
    print(f"{ratios[worst]:.1f} times at least, on {worst} (2.5 wanted)")
    return mean >= 10 and ratios[worst] >= 2.5


def main() -> int:
    factories = {"watchbill": watchbill, **installed()}
    verdicts = []
    for zone in ZONES:
        columns = transposed({pattern: measure(factories, pattern, zone) for pattern in PATTERNS})
        scattered = {pattern: jump(pattern, zone) for pattern in PATTERNS}
        show(f"microseconds per next run, {zone}", {**columns, "watchbill, random": scattered})
        ours = columns.pop("watchbill")
        if columns:
            verdicts.append(verdict(zone, ours, columns))
    reading = {name: {pattern: parse(make, pattern) for pattern in PATTERNS} for name, make in factories.items()}
    show("microseconds to read a pattern and find its first run", reading)
    if not verdicts:
        print("\nNothing to compare with. The head of this file says how to install the peers.")
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())

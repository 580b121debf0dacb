"""Microseconds per next run: foliot.cron beside cronsim, croniter and APScheduler 3, in one process.

    python -m venv /tmp/cronpeers && /tmp/cronpeers/bin/pip install cronsim croniter 'apscheduler<4' tzdata
    /tmp/cronpeers/bin/python benchmarks/cron_bench.py

Each library walks each schedule from 2026 on, so that no (pattern, instant) is asked for twice; the walk is cut into
laps and the best lap counts, for all alike. Reading the pattern is measured apart. foliot is also asked at random
instants, where nothing that it keeps from one call to the next is of use.
"""

from __future__ import annotations

import importlib.metadata
import random
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from foliot.cron import Cron
from foliot.cron.compiler import compile_schedule
from foliot.cron.walls import walls_of

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
LAPS, STEPS = 7, 150
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

Step = Callable[[], object]
Factory = Callable[[str, str, datetime], Step]


def foliot(pattern: str, zone: str, start: datetime) -> Step:
    cron = Cron(pattern, zone)
    at = start

    def step() -> object:
        nonlocal at
        found = cron.next(at)
        assert found is not None
        at = found
        return found

    return step


def cronsim(pattern: str, zone: str, start: datetime) -> Step:
    from cronsim import CronSim

    return CronSim(pattern, start).__next__


def croniter(pattern: str, zone: str, start: datetime) -> Step:
    from croniter import croniter as make

    iterator = make(pattern, start)
    return lambda: iterator.get_next(datetime)


def apscheduler(pattern: str, zone: str, start: datetime) -> Step:
    """Counts weekdays from Monday, and wants both day fields to match where cron is content with one."""
    from apscheduler.triggers.cron import CronTrigger

    minute, hour, day, month, weekday = pattern.split()
    if weekday != "*":
        weekday = "-".join(WEEKDAYS[int(number)] for number in weekday.split("-"))
    fields = {"minute": minute, "hour": hour, "day": day, "month": month, "day_of_week": weekday}
    trigger = CronTrigger(**fields, timezone=start.tzinfo)
    at = start

    def step() -> object:
        nonlocal at
        at = trigger.get_next_fire_time(at, at)
        return at

    return step


PEERS: dict[str, Factory] = {"cronsim": cronsim, "croniter": croniter, "apscheduler": apscheduler}


def walk(factory: Factory, pattern: str, zone: str) -> float:
    """Microseconds a step, in the best lap of one long walk."""
    step = factory(pattern, zone, datetime(2026, 1, 15, 10, 7, tzinfo=ZONES[zone]))
    step()
    laps = []
    for _ in range(LAPS):
        start = time.perf_counter()
        for _ in range(STEPS):
            step()
        laps.append((time.perf_counter() - start) / STEPS * 1e6)
    return min(laps)


def jump(pattern: str, zone: str) -> float:
    """Microseconds a call of foliot at instants without order, none of them twice."""
    cron = Cron(pattern, zone)
    draw = random.Random(pattern + zone)
    first = datetime(2000, 1, 1, tzinfo=ZONES[zone])
    moments = [first + timedelta(seconds=second) for second in draw.sample(range(60 * 365 * 86_400), LAPS * STEPS)]
    laps = []
    for lap in range(LAPS):
        start = time.perf_counter()
        for moment in moments[lap * STEPS : (lap + 1) * STEPS]:
            cron.next(moment)
        laps.append((time.perf_counter() - start) / STEPS * 1e6)
    return min(laps)


def parse(factory: Factory, pattern: str) -> float:
    """Microseconds to build a schedule from text, without caches."""
    start = datetime(2026, 1, 15, 10, 7, tzinfo=UTC)
    times = []
    for _ in range(50):
        compile_schedule.cache_clear()
        walls_of.cache_clear()
        begin = time.perf_counter()
        factory(pattern, "UTC", start)
        times.append((time.perf_counter() - begin) * 1e6)
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


def table(title: str, columns: dict[str, dict[str, float]]) -> None:
    print(f"\n{title}\n{'':18}" + "".join(f"{name:>18}" for name in columns))
    for pattern in PATTERNS:
        print(f"{pattern:18}" + "".join(f"{column[pattern]:>18.2f}" for column in columns.values()))
    means = [statistics.geometric_mean(column.values()) for column in columns.values()]
    print(f"{'geometric mean':18}" + "".join(f"{mean:>18.2f}" for mean in means))


def verdict(zone: str, ours: dict[str, float], peers: dict[str, dict[str, float]]) -> bool:
    """Whether foliot is 2.5 times as fast as the fastest peer on every pattern, and 10 times in the mean."""
    ratios = {pattern: min(peer[pattern] for peer in peers.values()) / ours[pattern] for pattern in PATTERNS}
    worst = min(ratios, key=ratios.__getitem__)
    fastest = min(statistics.geometric_mean(peer.values()) for peer in peers.values())
    mean = fastest / statistics.geometric_mean(ours.values())
    print(f"{zone}: {mean:.1f} times the fastest peer in the mean (10 wanted)", end=", ")
    print(f"{ratios[worst]:.1f} times at least, on {worst} (2.5 wanted)")
    return mean >= 10 and ratios[worst] >= 2.5


def main() -> int:
    factories = installed()
    verdicts = []
    for zone in ZONES:
        ours = {pattern: walk(foliot, pattern, zone) for pattern in PATTERNS}
        scattered = {pattern: jump(pattern, zone) for pattern in PATTERNS}
        peers = {name: {pattern: walk(make, pattern, zone) for pattern in PATTERNS} for name, make in factories.items()}
        table(f"microseconds per next run, {zone}", {"foliot": ours, "foliot, random": scattered, **peers})
        if peers:
            verdicts.append(verdict(zone, ours, peers))
    factories = {"foliot": foliot, **factories}
    columns = {name: {pattern: parse(make, pattern) for pattern in PATTERNS} for name, make in factories.items()}
    table("microseconds to read a pattern", columns)
    if not verdicts:
        print("\nNothing to compare with. The head of this file says how to install the peers.")
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())

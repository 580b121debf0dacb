"""A simulated stretch of time: schedules in 34 zones, two schedulers that race and die, times when nobody looks.

What must come out is computed beforehand by the Python engine, from the patterns and the outages alone. What came out
is read from the jobs. Nothing here knows how the tick does it.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import psycopg

from watchbill.cron import Cron

MISSED = ("skip", "once", "catch_up")
CATCH_UP = 20
GRACE_OF_SKIP = timedelta(minutes=1)
ZONES = [
    "UTC", "+03:00", "-09:30", "Asia/Tokyo", "Asia/Kathmandu", "Asia/Kolkata", "Asia/Tehran", "Asia/Beirut",
    "Asia/Gaza", "America/New_York", "America/St_Johns", "America/Los_Angeles", "America/Santiago",
    "America/Asuncion", "America/Havana", "America/Sao_Paulo", "America/Nuuk", "America/Anchorage",
    "Europe/London", "Europe/Dublin", "Europe/Berlin", "Europe/Lisbon", "Europe/Chisinau", "Africa/Cairo",
    "Africa/Casablanca", "Africa/Johannesburg", "Australia/Sydney", "Australia/Lord_Howe", "Australia/Adelaide",
    "Pacific/Auckland", "Pacific/Chatham", "Pacific/Easter", "Pacific/Apia", "Antarctica/Troll",
]  # fmt: skip
SHAPES = {  # how often each is drawn
    "{m} {h} * * *": 40, "{m} {h} * * MON-FRI": 12, "{m} {h} * * {w}": 10, "{m} {h} {d} * *": 8, "{m} {h} L * *": 3,
    "{m} {h} LW * *": 3, "{m} {h} * * {w}#2": 3, "{m} {h} * * {w}L": 2, "{m} {h} 1,15 * +{w}": 1, "@daily": 2,
    "@weekly": 2, "@monthly": 1, "{m} {h},{g} * * *": 5, "{m} * * * {w}": 2, "*/30 {h} * * *": 2, "{m} */6 * * *": 2,
    "{m} {h} * * * | 0 12 * * SUN": 2, "0 {m} {h} * * * WOY:*/2": 1, "{m} {h} * * {w} E0D": 2, "{m} {h} 3 * * S1M": 1,
    "every 7 hours": 2, "every 1 day": 1,
}  # fmt: skip


class Rule(NamedTuple):
    name: str
    pattern: str
    tz: str
    dst: str
    missed: str

    def slots(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """From the schedule's creation on, each from the one before."""
        if self.pattern.startswith("every"):
            step = timedelta(hours=7) if "hours" in self.pattern else timedelta(days=1)
            slot = start + step
            while slot <= end:
                yield slot
                slot += step
            return
        cron = Cron(self.pattern, self.tz, self.dst)  # type: ignore[arg-type]
        found = cron.next(start)
        while found is not None and found <= end:
            yield found.astimezone(UTC)  # instants of two passes through one hour compare by their clock otherwise
            found = cron.next(found)


class Outage(NamedTuple):
    """The last tick before it came at `start` or earlier, the first after it comes at `end`."""

    start: datetime
    end: datetime


def draw_rules(count: int, draw: random.Random) -> list[Rule]:
    """Each one three times, once per policy on missed slots; all zones come in turn."""
    rules = []
    for n in range(count):
        (shape,) = draw.choices(list(SHAPES), list(SHAPES.values()))
        hour = draw.choice([0, 1, 2, 2, 3, *range(24)])  # clocks change in the small hours
        pattern = shape.format(
            m=draw.choice([0, 15, 30, 45]), h=hour, g=(hour + 8) % 24, d=draw.randint(1, 28), w=draw.choice("1234567")
        )
        dst = draw.choice(["default", "default", "skip", "once", "both"])
        rules += [Rule(f"{n}-{missed}", pattern, ZONES[n % len(ZONES)], dst, missed) for missed in MISSED]
    return rules


def draw_outages(start: datetime, end: datetime, count: int, draw: random.Random) -> list[Outage]:
    edges = sorted(draw.sample(range(int((end - start).total_seconds())), 2 * count))
    return [
        Outage(start + timedelta(seconds=a), start + timedelta(seconds=b))
        for a, b in zip(edges[::2], edges[1::2], strict=True)
    ]


def expected(rule: Rule, slots: list[datetime], outages: list[Outage]) -> set[datetime]:
    """Those that run."""
    runs = set(slots)
    for outage in outages:
        late = slots[bisect_right(slots, outage.start) : bisect_right(slots, outage.end)]
        runs -= set(late)
        if rule.missed == "catch_up":
            runs |= set(late[-CATCH_UP:])
        elif late and (rule.missed == "once" or outage.end - late[-1] <= GRACE_OF_SKIP):
            runs.add(late[-1])
    return runs


@dataclass
class Simulation:
    """Two schedulers, driven from one `next_at` to the next."""

    url: str
    start: datetime
    end: datetime
    draw: random.Random
    restart_server: Callable[[], None] | None = None
    instants: int = 0
    deaths: int = 0
    server_restarts: int = 0
    _connections: list[psycopg.Connection[Any] | None] = field(default_factory=lambda: [None, None])

    def add(self, rules: list[Rule]) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.cursor().executemany(
                """
                INSERT INTO watchbill.schedules
                  (name, pattern, every, tz, dst, missed, catch_up, overlap, type, created_at)
                VALUES (%s, %s, %s, %s, %s, %s, %s, 'allow', 'task', %s)""",
                [
                    (r.name, *_when(r.pattern), r.tz, r.dst, r.missed, CATCH_UP, self.start)
                    for r in rules
                ],
            )  # fmt: skip

    def run(self, outages: list[Outage]) -> None:
        now, left = self._tick(0, self.start), list(outages)
        with ThreadPoolExecutor(2) as threads:
            while now is not None and now <= self.end:
                if left and now > left[0].start:
                    now = max(now, left.pop(0).end)
                    continue
                now = self._pass(now, threads)
        for n in range(2):
            self._die(n)

    def _pass(self, now: datetime, threads: ThreadPoolExecutor) -> datetime | None:
        """Both at once until nothing is due any more; each may die in the middle of it."""
        self.instants += 1
        fates = [self.draw.random() < 0.02 for _ in range(2)]
        sizes = [self.draw.choice([1, 3, 1000]) for _ in range(2)]
        list(threads.map(self._work, range(2), [now] * 2, sizes, fates))
        if self.restart_server is not None and self.draw.random() < 0.0005:
            self._restart_server(now)
        while (then := self._tick(0, now)) is not None and then <= now:
            pass  # what a dead one had in hand
        return then

    def _work(self, n: int, now: datetime, size: int, dies: bool) -> None:
        if dies:
            self._open_tick(n, now, size)
            self._die(n)
            self.deaths += 1
        done = None
        while done != (0,):
            connection = self._connection(n)
            done = connection.execute(
                "SELECT fired + missed FROM watchbill.tick(%s, now => %s)", (size, now)
            ).fetchone()

    def _restart_server(self, now: datetime) -> None:
        """With a tick under way."""
        assert self.restart_server is not None
        self._open_tick(1, now + timedelta(hours=1), 1000)
        self.restart_server()
        self.server_restarts += 1
        for n in range(2):
            self._die(n)

    def _open_tick(self, n: int, now: datetime, size: int) -> None:
        self._connection(n).execute("BEGIN")
        self._connection(n).execute("SELECT watchbill.tick(%s, now => %s)", (size, now))

    def _tick(self, n: int, now: datetime) -> datetime | None:
        row = self._connection(n).execute("SELECT next_at FROM watchbill.tick(now => %s)", (now,)).fetchone()
        assert row is not None
        answer: datetime | None = row[0]
        return answer

    def _connection(self, n: int) -> psycopg.Connection[Any]:
        connection = self._connections[n]
        if connection is None:
            connection = self._connections[n] = psycopg.connect(self.url, autocommit=True)
        return connection

    def _die(self, n: int) -> None:
        connection, self._connections[n] = self._connections[n], None
        with suppress(psycopg.Error):
            if connection is not None:
                connection.close()


def _when(pattern: str) -> tuple[str | None, str | None]:
    return (None, pattern.removeprefix("every ")) if pattern.startswith("every") else (pattern, None)


def found(url: str) -> tuple[dict[str, set[datetime]], dict[str, int]]:
    """The slots that became jobs, and how many slots are accounted for, by schedule; fails where one came twice."""
    ran: dict[str, set[datetime]] = {}
    with psycopg.connect(url) as connection:
        for name, slot, times in connection.execute("""
            SELECT s.name, j.slot, count(*) FROM watchbill.jobs j JOIN watchbill.schedules s ON s.id = j.schedule_id
            GROUP BY 1, 2"""):
            assert times == 1, (name, slot)
            ran.setdefault(name, set()).add(slot)
        counts = connection.execute("""
            SELECT s.name, sum(l.count) FROM watchbill.slots l JOIN watchbill.schedules s ON s.id = l.schedule_id
            GROUP BY 1
            """).fetchall()  # fmt: skip
    return ran, {name: int(count) for name, count in counts}

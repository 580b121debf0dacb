"""Microseconds per next run in SQL, over 100,000 stored schedules: from the parsed form, and from text.

    python benchmarks/cron_sql_bench.py            # on a server of its own
    python benchmarks/cron_sql_bench.py --url ...  # on this one, in a schema that it makes and drops

Counted is the processor time of the server's process where the machine tells (Linux, same machine), since others may
be busy as well; else the time that passed. What reading the rows costs without any schedule is taken off. No row has
another's instant.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

import psycopg

from watchbill.postgres.embedded import EmbeddedServer
from watchbill.store.install import install

SCHEMA, JCRON = "cron_bench", "cron_bench_jcron"
PATTERNS = [
    "* * * * *",
    "*/5 * * * *",
    "{m} * * * *",
    "{m} {h} * * *",
    "{m} 9-17 * * 1-5",
    "15,45 {h} * * *",
    "{m} {h} 1 * *",
    "{m} {h} * * 0",
    "0 12 {d} 1 *",
    "0 {h} 31 */2 *",
    "{m} 0 29 2 *",
    "{m} {h} 13 * 5",
]
MORE = [
    "{m} {h} L * *",
    "{m} {h} * * MON#2",
    "0 {m} {h} * * * WOY:*/13",
    "{m} {h} * * 1-5 E0D",
    "0 9 * * 1 | 0 {h} * * 6",
]
ZONES = ["UTC", "America/New_York", "Europe/Berlin", "Asia/Kolkata"]
ROWS, LAPS = 100_000, 3
FIRST, APART = datetime(2026, 1, 15, 10, 7, tzinfo=UTC), timedelta(seconds=433)
TABLE = f"CREATE TABLE {SCHEMA}.bench (kind int, pattern text, tz text, at timestamptz, parsed {SCHEMA}.cron)"
ASK = {
    "nothing": "SELECT count(at), count(length(pattern)), count(cardinality(parsed)) FROM {s}.bench WHERE {where}",
    "parsed": "SELECT count({j}.next_run(parsed, at)) FROM {s}.bench WHERE {where}",
    "text": "SELECT count({j}.next_time(pattern, at, tz)) FROM {s}.bench WHERE {where}",
    "text, UTC": "SELECT count({j}.next_time(pattern, at)) FROM {s}.bench WHERE {where}",
}
WANTED = {"parsed": 10.0, "text": 25.0, "text, UTC": 25.0}


class Clock:
    """Seconds that a server process has worked."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._file = Path(f"/proc/{connection.info.backend_pid}/schedstat")
        self.is_of_processor = self._file.exists()

    def read(self) -> float:
        return int(self._file.read_text().split()[0]) / 1e9 if self.is_of_processor else time.perf_counter()


@contextmanager
def address(url: str | None) -> Iterator[str]:
    if url:
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="watchbill-bench-") as directory:
        project = Path(directory)
        project.chmod(0o755)  # as root the server runs as another user, who must be able to come in
        with EmbeddedServer.acquire(project) as server:
            yield server.url


def fill(connection: psycopg.Connection, patterns: list[str], rows: int) -> None:
    connection.execute(f"DROP TABLE IF EXISTS {SCHEMA}.bench")
    connection.execute(TABLE)
    with connection.cursor().copy(f"COPY {SCHEMA}.bench (kind, pattern, tz, at) FROM STDIN") as copy:
        for i in range(rows):
            kind, zone = i % len(patterns), ZONES[i // len(patterns) % len(ZONES)]
            pattern = patterns[kind].format(m=i % 60, h=i % 24, d=1 + i % 31)
            copy.write_row((kind, pattern, zone, FIRST + i * APART))
    connection.execute(f"UPDATE {SCHEMA}.bench SET parsed = {SCHEMA}.parse_cron(pattern, tz)")
    connection.execute(f"VACUUM (FULL, ANALYZE) {SCHEMA}.bench")


def measure(connection: psycopg.Connection, clock: Clock, where: str) -> dict[str, float]:
    """Microseconds a row, in the best of some laps."""
    [(rows,)] = connection.execute(f"SELECT count(*) FROM {SCHEMA}.bench WHERE {where}")
    best = {}
    for name, query in ASK.items():
        laps = []
        for _ in range(LAPS):
            begin = clock.read()
            connection.execute(query.format(s=SCHEMA, j=JCRON, where=where))
            laps.append((clock.read() - begin) / rows * 1e6)
        best[name] = min(laps)
    nothing = best.pop("nothing")
    return {name: spent - nothing for name, spent in best.items()}


def show(connection: psycopg.Connection, clock: Clock, title: str, patterns: list[str], rows: int) -> dict[str, float]:
    fill(connection, patterns, rows)
    print(f"\n{title}\n{'':28}" + "".join(f"{name:>12}" for name in WANTED))
    for kind, pattern in enumerate(patterns):
        found = measure(connection, clock, f"kind = {kind}")
        print(f"{pattern:28}" + "".join(f"{spent:>12.2f}" for spent in found.values()))
    return measure(connection, clock, "true")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url")
    parser.add_argument("--rows", type=int, default=ROWS)
    arguments = parser.parse_args()
    with address(arguments.url) as url:
        install(url, SCHEMA, JCRON)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET max_parallel_workers_per_gather = 0")
            connection.execute("SET jit = off")
            clock = Clock(connection)
            version = connection.info.server_version // 10_000
            kind = "processor time" if clock.is_of_processor else "time that passed"
            try:
                title = f"PostgreSQL {version}, microseconds a call ({kind})"
                mean = show(connection, clock, title, PATTERNS, arguments.rows)
                print(f"{f'all {arguments.rows} rows':28}" + "".join(f"{spent:>12.2f}" for spent in mean.values()))
                print(f"{'wanted: below':28}" + "".join(f"{spent:>12.2f}" for spent in WANTED.values()))
                show(connection, clock, "what crontabs do not have", MORE, arguments.rows // 10)
            finally:
                connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA}, {JCRON} CASCADE")
    return 0 if all(mean[name] < wanted for name, wanted in WANTED.items()) else 1


if __name__ == "__main__":
    sys.exit(main())

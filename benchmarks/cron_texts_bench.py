"""Which texts take longest to read or to refuse, in SQL and in Python: begins with known bad ones and looks for worse.

    python -m benchmarks.cron_texts_bench                # on a server of its own
    python -m benchmarks.cron_texts_bench --seconds 300  # look for longer (--seed 2: elsewhere)

Any text at all is to be read or refused within a millisecond of work. Counted is processor time, in the best of some
laps; the first reading in a session, which compiles the functions, is not.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import psycopg

from benchmarks.cron_sql_bench import JCRON, SCHEMA, Clock, address
from watchbill.cron import InvalidPattern
from watchbill.cron.parser import MAX_LENGTH, parse
from watchbill.store.install import install

READ = f"""
    CREATE OR REPLACE FUNCTION pg_temp.read(pattern text, really boolean) RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
      IF NOT really THEN RETURN false; END IF;
      RETURN cardinality({SCHEMA}.parse_cron(pattern)) = 0;
    EXCEPTION WHEN SQLSTATE 'WB010' THEN
      RETURN true;
    END $$
"""
LAPS, ROUNDS, SHOWN, KEPT = 5, 40, 6, 12
PIECES = """* */2 1-5/2 9-3 1,2 007 L LW L-3W 1W MON mon-FRI/2 1#1 FRI#-2 5L 1W2 ? + 2027 */7 1970-3000/3 | @daily
    @every 1s2h TZ:UTC TZ:Asia/Tokyo TZ:+01:00 WOY:1-4 E0D S1Y0W EOD:E0M 0Y0S T0M x MONDAY 99 */0 , / - # é""".split()  # noqa: SIM905


class Read(Protocol):
    def __call__(self, text: str, laps: int = LAPS) -> tuple[float, bool]: ...


def repeated(make: Callable[[int], str], head: str = "", tail: str = "") -> str:
    """As many items as there is room for, no two alike."""
    items: list[str] = []
    room = MAX_LENGTH - len(head) - len(tail)
    while sum(map(len, items)) + len(items) + len(make(len(items))) <= room:
        items.append(make(len(items)))
    return head + ",".join(items) + tail


def same(item: str, head: str = "", tail: str = "") -> str:
    """An item as often as there is room for."""
    return head + ",".join([item] * ((MAX_LENGTH - len(head) - len(tail) + 1) // (len(item) + 1))) + tail


def parts(each: str, last: str | None = None) -> str:
    return "|".join([each] * 31 + [last or each])


def known() -> Iterator[str]:
    yield repeated(lambda i: f"{i % 60}-{i // 60 % 60}", tail=" * * * *")
    yield repeated(lambda i: f"{i % 10}/{i // 10 + 1}", tail=",x * * * *")
    yield repeated(lambda i: f"{1970 + i}", "0 0 0 1 1 * ")
    yield repeated(lambda i: f"*/{i + 1}", "0 0 0 1 1 * ")
    yield repeated(lambda i: f"{1970 + i}-{3000 - i}", "0 0 0 1 1 * ")
    yield repeated(lambda i: f"{'0' * (i // 35)}{i % 7}W{i // 7 % 5 + 1}", "0 0 * * ")
    yield repeated(lambda i: f"{'0' * (i // 40)}{i % 8}#{i // 8 % 5 + 1}", "0 0 * * ")
    yield repeated(lambda i: f"{'0' * (i // 31)}{i % 31 + 1}W", "0 0 ", " * *")
    yield repeated(lambda i: f"{i % 53 + 1}-{i // 53 + 1}", "WOY:")
    yield repeated(lambda i: f"{9 - i % 9}-{i % 3}/{i // 9 + 2}", tail=" * * * *")
    yield repeated(lambda i: f"{('MON', 'tue')[i % 2]}-{('fri', 'Sat')[i // 2 % 2]}/{i // 4 + 1}", "0 0 * * ")
    for item in ("*/2", "*/01", "1970/2", "01970", "2970"):
        yield same(item, "0 0 0 1 1 * ")
    for item in ("1", "0007", "1/10", "5-1/2", "10-1"):
        yield same(item, tail=" * * * *")
    for item in ("L", "001W", "L-01", "LW,1/10"):
        yield same(item, "0 0 ", " * *")
    for item in ("5L", "05L", "monL", "Mon", "1-mon", "mon/10", "5-mon/2", "5L,1/10"):
        yield same(item, "0 0 * * ")
    yield repeated(lambda i: f"*/{i + 100}", "0 0 0 1 1 * ")
    yield "E" + "0Y0S" * 249
    yield "@every " + "0s1h" * 248
    yield parts("*/2 */2 */2 LW */2 1#1 */2")
    yield parts("*/2 */2 */2 LW */2 1#1 */2", "*/2 */2 */2 LW */2 1#1 x")
    yield parts("1,2 1,2 1,2 1W,L 1,2 1L 1980")
    yield parts("1 1 1 L 1 1L 1970,1980-1990")
    yield parts("1-2 1-2 1-2 1W,2 1-2 5#1 1980")
    yield parts("007 007 007 1W,2 001 5#1 */2")
    yield parts("0/15 0/15 0/15 1/15 1/11 1/10")
    yield parts("10-30 10-30 10-30 2 1-2 1 2")
    yield parts("10,20 10,20 10,20 2 10,11 1,2")
    yield parts("00007 00007 00007 2 00003 1 2")
    yield parts("1 1 1 LW,1 1 1L,1 1970,1971")
    yield parts("1 1 1 L,1W 1 1#1,2L 2000,1970", "1 1 1 L 1 1L 1970,x")
    yield parts("@every 1d1s1d1s1d1s TZ:UTC E1D")
    yield parts("TZ:UTC E1D 1 1 1 1 1 WOY:1-2")
    yield parts("TZ:UTC E1D 1-2 1-2 1-2 1-2 1-2", "1-2 1-2 1-2 1-2 x")
    yield parts("TZ:Asia/Tokyo E1D @daily WOY:1")
    yield parts("E" + "0Y0S" * 7)
    yield parts("E10000Y1S100000Y1000000Y1000H")
    yield from ("|" * MAX_LENGTH, "," * MAX_LENGTH, "1 " * 500, "TZ:" + "A/" * 498, "\x01" * MAX_LENGTH)
    yield from ("0 0 9 * * * TZ:america/new_york", "é" * 1_000_000, "|" * 1_000_000)


def changed(text: str, draw: random.Random) -> str:
    """A piece put in, taken out, doubled or put in the place of another."""
    begin = draw.randrange(len(text) + 1)
    end = min(len(text), begin + draw.choice([0, 1, 4, 30]))
    piece = draw.choice([draw.choice(PIECES), text[begin:end] * 2, "", " " + draw.choice(PIECES)])
    return (text[:begin] + piece + text[end:])[:MAX_LENGTH]


class Reader:
    """Reads a text and tells the microseconds it took and whether it was refused."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self._clock = Clock(connection)
        connection.execute(READ)

    def in_sql(self, text: str, laps: int = LAPS) -> tuple[float, bool]:
        """In a statement of its own: after an error PL/pgSQL is slower for the rest of a transaction."""
        spent, refused = min(self._spent(text) for _ in range(laps))
        to_send, _ = min(self._spent(text, really=False) for _ in range(laps))
        return spent - to_send, refused

    def _spent(self, text: str, *, really: bool = True) -> tuple[float, bool]:
        begin = self._clock.read()
        [(refused,)] = self._connection.execute("SELECT pg_temp.read(%s, %s)", (text, really), prepare=True)
        return (self._clock.read() - begin) * 1e6, bool(refused)

    def in_python(self, text: str, laps: int = LAPS) -> tuple[float, bool]:
        return min(self._spent_in_python(text) for _ in range(laps))

    @staticmethod
    def _spent_in_python(text: str) -> tuple[float, bool]:
        refused, begin = False, time.thread_time_ns()
        try:
            parse(text)
        except InvalidPattern:
            refused = True
        return (time.thread_time_ns() - begin) / 1000, refused


def search(read: Read, seconds: float, draw: random.Random) -> dict[str, tuple[float, bool]]:
    for text in known():
        read(text)  # compiles
    found = {text: read(text) for text in known()}
    tried, stop = len(found), time.monotonic() + seconds
    while time.monotonic() < stop:
        kept = sorted(found, key=lambda text: -found[text][0])[:KEPT]
        text = changed(draw.choice(kept), draw)
        tried += 1
        if text not in found and (measured := read(text))[0] > found[kept[-1]][0]:
            found[text] = measured
    worst = sorted(found, key=lambda text: -found[text][0])[:KEPT]
    print(f"  {tried} texts tried")
    return {text: min(rounds) for text, rounds in measured_again(read, worst).items()}


def measured_again(read: Read, texts: list[str]) -> dict[str, list[tuple[float, bool]]]:
    """One after the other, time and again, since a disturbance may last longer than all the laps of one text."""
    found: dict[str, list[tuple[float, bool]]] = {text: [] for text in texts}
    for _ in range(ROUNDS):
        for text in texts:
            found[text].append(read(text))
    return found


def show(title: str, found: dict[str, tuple[float, bool]]) -> None:
    print(f"{title}, microseconds for the worst texts")
    for text, (spent, refused) in sorted(found.items(), key=lambda item: -item[1][0])[:SHOWN]:
        print(f"  {spent:8.0f}  {'refused' if refused else 'read':8}{len(text):5}  {text[:70]!r}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with address(arguments.url) as url:
        install(url, SCHEMA, JCRON)
        with psycopg.connect(url, autocommit=True) as connection:
            try:
                reader = Reader(connection)
                for name, read in (("SQL", reader.in_sql), ("Python", reader.in_python)):
                    show(name, search(read, arguments.seconds, random.Random(arguments.seed)))
            finally:
                connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA}, {JCRON} CASCADE")
    return 0


if __name__ == "__main__":
    sys.exit(main())

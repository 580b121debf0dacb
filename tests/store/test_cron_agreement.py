"""The cron engines in SQL and in Python give the same answers: patterns of the whole grammar, around clock changes."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.store.cron_sql import Connection, ask_python, ask_sql, compiled_by_python, compiled_by_sql, in_utc
from tests.unit.cron.strategies import PRODUCTIONS, Case, cases
from tests.unit.cron.tally import Tally
from watchbill.cron import Cron

BATCH = 20  # an example of Hypothesis is so many cases: a round trip for each would take most of the time
ROUND = 100  # of examples, after which Hypothesis begins anew: what it remembers of each would fill the memory
RELAXED = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    print_blob=True,
)


def compare(sql: Connection, batch: list[Case], tally: Tally) -> None:
    for case, answer in zip(batch, ask_sql(sql, batch), strict=True):
        tally.add(case.drawn)
        assert answer == ask_python(case), case


def run(database: str, batches: int, capsys: pytest.CaptureFixture[str]) -> Tally:
    tally = Tally("SQL against Python")
    with psycopg.connect(database, autocommit=True) as sql:
        sql.execute("SET timezone = 'UTC'")
        sql.execute("SET statement_timeout = '30s'")
        for done in range(0, batches, ROUND):

            @settings(RELAXED, max_examples=min(ROUND, batches - done))
            @given(st.lists(cases(), min_size=BATCH, max_size=BATCH))
            def check(batch: list[Case]) -> None:
                compare(sql, batch, tally)

            check()
    with capsys.disabled():
        print(tally.report())
    return tally


def test_sql_and_python_agree(schema_database: str, capsys: pytest.CaptureFixture[str]) -> None:
    tally = run(schema_database, 25, capsys)
    assert tally.cases >= 500
    assert len(PRODUCTIONS - set(tally.shares)) <= 3


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_sql_and_python_agree_on_a_hundred_thousand_cases(
    schema_database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = run(schema_database, 5_100, capsys)
    assert tally.cases >= 100_000
    assert set(tally.shares) >= PRODUCTIONS


YEARS = """
    SELECT jcron.next_time(p, at), jcron.prev_time(p, at), jcron.parse_cron(p)::bigint[]
    FROM unnest(%s::text[], %s::timestamptz[]) WITH ORDINALITY u(p, at, i) ORDER BY i
"""


def some_years(draw: random.Random) -> str:
    """Items of the year field, which is kept in three ways: as steps, as one mask, as many."""
    first = draw.choice([draw.randint(1970, 2033), draw.randint(1970, 3000)])
    last = draw.choice([first, min(first + draw.randint(0, 70), 3000), 3000])
    step = draw.choice([1, 2, 61, 62, 63, 400, 9999, 99999])
    return draw.choice(
        [f"{first}", f"0{first}", f"{first}-{last}", f"{first}-{last}/{step}", f"{first}/{step}", f"*/{step}"]
    )


def test_sql_and_python_agree_on_year_fields(schema_database: str) -> None:
    draw = random.Random(4)
    patterns = [
        f"0 0 0 1 1 * {','.join(some_years(draw) for _ in range(draw.choice([1, 1, 2, 3])))}" for _ in range(120)
    ]
    instants = [datetime(draw.randint(1950, 3020), 6, 1, tzinfo=UTC) for _ in patterns]
    with psycopg.connect(schema_database, autocommit=True) as sql:
        sql.execute("SET timezone = 'UTC'")
        answers = sql.execute(YEARS, (patterns, instants)).fetchall()
    for pattern, instant, (following, preceding, parsed) in zip(patterns, instants, answers, strict=True):
        cron = Cron(pattern)
        assert (following, preceding) == (cron.next(instant), cron.prev(instant)), (pattern, instant)
        assert compiled_by_sql(parsed) == compiled_by_python(pattern), pattern


WINDOWS = """
    SELECT w.trigger, w."end", ARRAY(SELECT watchbill.cron_upcoming(cron, 3, at)), watchbill.cron_matches(cron, w."end")
    FROM unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[]) WITH ORDINALITY
      u(pattern, tz, dst, anchor, at, i),
      LATERAL (SELECT watchbill.parse_cron(pattern, tz, dst, anchor) AS cron OFFSET 0) parsed,
      watchbill.cron_window(cron, at) w
    ORDER BY i
"""


@pytest.mark.parametrize("batches", [8, pytest.param(500, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_sql_and_python_agree_on_windows_and_anchors(schema_database: str, batches: int) -> None:
    anchors = st.datetimes(timezones=st.just(UTC))
    with psycopg.connect(schema_database, autocommit=True) as sql, sql.cursor(binary=True) as cursor:
        sql.execute("SET timezone = 'UTC'")

        @settings(RELAXED, max_examples=batches, phases=[Phase.generate])
        @given(st.lists(st.tuples(cases(), anchors), min_size=BATCH, max_size=BATCH))
        def check(batch: list[tuple[Case, datetime]]) -> None:
            columns = zip(*((c.pattern, c.zone, c.dst, anchor, c.instant) for c, anchor in batch), strict=True)
            answers = cursor.execute(WINDOWS, [list(column) for column in columns]).fetchall()
            for (case, anchor), answer in zip(batch, answers, strict=True):
                cron = Cron(case.pattern, case.zone, case.dst, anchor)
                window, runs = cron.window(case.instant), cron.upcoming(3, case.instant)
                ends = (None, None) if window is None else (in_utc(window.trigger), in_utc(window.end))
                matches = None if window is None else cron.matches(window.end)
                assert answer == (*ends, [in_utc(run) for run in runs], matches), (case, anchor)

        check()

"""The cron engines in SQL and in Python give the same answers: patterns of the whole grammar, around clock changes."""

from __future__ import annotations

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.store.cron_sql import Connection, ask_python, ask_sql
from tests.unit.cron.strategies import PRODUCTIONS, Case, cases
from tests.unit.cron.tally import Tally

BATCH = 20  # an example of Hypothesis is so many cases: a round trip for each would take most of the time
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

        @settings(RELAXED, max_examples=batches)
        @given(st.lists(cases(), min_size=BATCH, max_size=BATCH))
        def check(batch: list[Case]) -> None:
            compare(sql, batch, tally)

        check()
    with capsys.disabled():
        print(tally.report())
    return tally


def test_sql_and_python_agree(schema_database: str, capsys: pytest.CaptureFixture[str]) -> None:
    tally = run(schema_database, 30, capsys)
    assert tally.cases >= 600
    assert len(PRODUCTIONS - set(tally.shares)) <= 3


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_sql_and_python_agree_on_a_hundred_thousand_cases(
    schema_database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = run(schema_database, 5_100, capsys)
    assert tally.cases >= 100_000
    assert set(tally.shares) >= PRODUCTIONS

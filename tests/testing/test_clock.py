"""advance(): one clock for the test, for SQL and for other processes, and back at its place for the next test."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from watchbill import App
from watchbill.testing import Watchbill

app = App()
DAY = timedelta(days=1)


@app.task
def work() -> str:
    return "done"


def ahead(watchbill: Watchbill) -> timedelta:
    return watchbill.now() - datetime.now(UTC)


@pytest.mark.parametrize("n", [1, 2])
def test_every_test_starts_at_the_present_time(watchbill: Watchbill, n: int) -> None:
    assert abs(ahead(watchbill)) < DAY / 2
    watchbill.advance(days=1)
    assert ahead(watchbill) > DAY / 2


def test_advance_moves_the_clock_of_every_session(watchbill: Watchbill) -> None:
    shown = watchbill.advance(weeks=1, days=2, hours=3, minutes=4, seconds=5)
    with psycopg.connect(watchbill.database_url) as connection:
        row = connection.execute("SELECT watchbill.now()").fetchone()
    assert row is not None
    assert timedelta(0) <= row[0] - shown < DAY / 2


def test_the_clock_can_be_moved_to_a_time(watchbill: Watchbill) -> None:
    noon = datetime(2060, 1, 1, 12, tzinfo=UTC)
    assert watchbill.advance(to=noon) >= noon
    assert watchbill.now() - noon < DAY / 2


def test_the_clock_does_not_go_back(watchbill: Watchbill) -> None:
    with pytest.raises(ValueError, match="cannot be moved back"):
        watchbill.advance(hours=-1)
    with pytest.raises(ValueError, match="cannot be moved back"):
        watchbill.advance(to=watchbill.now() - DAY)
    with pytest.raises(ValueError, match="not both"):
        watchbill.advance(hours=1, to=watchbill.now() + DAY)


def test_jobs_work_after_advancing_a_year(watchbill: Watchbill) -> None:
    """Their ids carry the time of this machine, which has not moved."""
    watchbill.advance(days=400)
    job = work.using(idempotency_key="k").enqueue()
    assert not work.using(idempotency_key="k").enqueue().created
    work.using(delay=3600).enqueue()
    watchbill.drain(raising=True)
    assert job.result(timeout=0) == "done"
    assert job.get().finished_at is not None
    watchbill.advance(hours=1)
    assert len(watchbill.drain()) == 1


def test_running_node_follows_the_advanced_clock(watchbill: Watchbill) -> None:
    with app.node():
        job = work.using(delay=7200).enqueue()
        watchbill.advance(hours=2)
        assert job.result(timeout=30) == "done"


def test_subprocess_uses_the_clock_and_database_of_the_test(watchbill: Watchbill) -> None:
    watchbill.advance(days=30)
    program = "from watchbill import App; App('postgresql:///elsewhere', schema='other'); App().enqueue('from.outside')"
    subprocess.run([sys.executable, "-c", program], check=True)
    assert watchbill.assert_enqueued("from.outside").created_at > datetime.now(UTC) + 29 * DAY

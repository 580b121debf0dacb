"""What a node reports of its work, and who adds it up."""

from __future__ import annotations

import psycopg
import pytest

from tests.worker.conftest import Workbench
from watchbill.worker.tally import Report, Tally

ENDED = """
SELECT sum(succeeded)::int, sum(failed)::int, sum(dead)::int FROM (
  SELECT succeeded, failed, dead FROM watchbill.node_counts
  UNION ALL SELECT succeeded, failed, dead FROM watchbill.figure_list(grain => 'minute')) x
"""


@pytest.fixture
def work(bench: Workbench) -> None:
    """Three jobs that succeed and two that die."""

    @bench.app.task
    async def good() -> None: ...

    @bench.app.task(retry=1)
    async def bad() -> None:
        raise ValueError("no")

    for task in (good, good, good, bad, bad):
        task.enqueue()


async def test_heartbeats_report_what_has_ended_and_a_node_adds_it_up(bench: Workbench, work: None) -> None:
    query = "SELECT sum(succeeded)::int, sum(failed)::int, sum(dead)::int FROM watchbill.figure_list(grain => 'minute')"
    async with bench.working(lease=1.5):
        await bench.until(lambda: bench.sql(query) == [(3, 2, 2)])
        assert bench.sql("SELECT count(*) FROM watchbill.node_counts") == [(0,)]
        (seconds,) = bench.sql("SELECT run_seconds, wait_seconds FROM watchbill.figure_list('all', 'hour')")[:1]
        assert all(value > 0 for value in seconds)
        await bench.until(lambda: bench.sql("SELECT count(*) > 0 FROM watchbill.sample_list()") == [(True,)])


async def test_a_node_that_leaves_reports_the_rest(bench: Workbench, work: None) -> None:
    await bench.work_off()
    assert bench.sql(ENDED) == [(3, 2, 2)]


async def test_a_tally_whose_reply_is_lost_is_sent_again_and_counts_once(
    bench: Workbench, work: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first acknowledgement does not come: the next heartbeat repeats the tally under its number."""
    sent: list[int] = []
    acknowledge = Tally.acknowledge

    def lose_the_first(self: Tally, report: Report) -> None:
        sent.append(report.number)
        if len(sent) == 1:
            raise psycopg.OperationalError("the reply is lost")
        acknowledge(self, report)

    monkeypatch.setattr(Tally, "acknowledge", lose_the_first)
    async with bench.working(lease=1.5):
        await bench.until(lambda: len(sent) > 1)
        await bench.until(lambda: bench.sql(ENDED) == [(3, 2, 2)])
    assert sent[:2] == [1, 1]
    assert bench.sql(ENDED) == [(3, 2, 2)]

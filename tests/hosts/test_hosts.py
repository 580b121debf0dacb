"""Failover of a real Patroni cluster on several hosts: nothing is lost, and nothing happens twice."""

from __future__ import annotations

import pytest

from tests.hosts.__main__ import SMALL_FORM
from tests.hosts.harness import Hosts, find_missing

MOST_WARNINGS = 6  # of a process, for one fault


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_failovers_lose_nothing_and_repeat_nothing() -> None:
    if missing := find_missing():
        pytest.skip(f"needs {missing}: see `make hosts`")
    with Hosts() as hosts:
        for fault in SMALL_FORM:
            getattr(hosts, fault)()
        hosts.end()
        print(hosts.report())
        assert hosts.is_good
        assert max(count for row in hosts.rows for count in row.warnings.values()) <= MOST_WARNINGS

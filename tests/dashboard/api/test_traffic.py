"""How many requests a caller may send, and how many may wait."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.dashboard.api.test_jobs import API, open_api
from tests.dashboard.conftest import OpenBoard
from watchbill.dashboard.identity import Identity
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.traffic import MOST_WAITING, MOST_WAITING_PER_CALLER, Traffic

ANN = Identity("ann", "reader")


def test_a_burst_is_admitted_and_then_the_rate() -> None:
    now = [100.0]
    traffic = Traffic(clock=lambda: now[0])
    for _ in range(200):
        traffic.admit(ANN)
    with pytest.raises(Problem, match="100 requests a second") as refused:
        traffic.admit(ANN)
    assert (refused.value.status, refused.value.headers["Retry-After"]) == (429, "1")
    traffic.admit(Identity("bob", "reader"))
    now[0] += 0.05
    for _ in range(5):
        traffic.admit(ANN)
    with pytest.raises(Problem):
        traffic.admit(ANN)


def test_a_key_has_its_own_rate() -> None:
    traffic = Traffic(clock=lambda: 100.0)
    slow = Identity("ann", "reader", key="k", rate=0.5)
    traffic.admit(slow)
    with pytest.raises(Problem) as refused:
        traffic.admit(slow)
    assert refused.value.headers["Retry-After"] == "2"


def test_only_so_many_requests_wait() -> None:
    traffic = Traffic()
    with ExitStack() as stack:
        for _ in range(MOST_WAITING_PER_CALLER):
            stack.enter_context(traffic.waiting(ANN))
        with pytest.raises(Problem, match="wait already"):
            stack.enter_context(traffic.waiting(ANN))
        for n in range(MOST_WAITING - MOST_WAITING_PER_CALLER):
            stack.enter_context(traffic.waiting(Identity(str(n), "reader")))
        with pytest.raises(Problem):
            stack.enter_context(traffic.waiting(Identity("bob", "reader")))
    with traffic.waiting(ANN):
        pass


def test_a_caller_that_sends_too_much_is_refused(open_board: OpenBoard) -> None:
    client = open_api(open_board, lambda _: Identity("ann", "reader", rate=1.0))
    assert client.get(f"{API}/pauses").status_code == 200  # the second one, after that of open_api
    answer = client.get(f"{API}/pauses")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")

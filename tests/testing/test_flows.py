"""A drain works off chains and graphs, in the order of what waits for what."""

from __future__ import annotations

from watchbill import App, Retry, chain, group
from watchbill.testing import Watchbill

app = App()
ran: list[str] = []


@app.task(retry=Retry(max_attempts=1))
def step(name: str) -> None:
    ran.append(name)
    if name == "bad":
        raise ValueError(name)


def test_a_chain_is_drained_in_its_order(watchbill: Watchbill) -> None:
    ran.clear()
    chain(step.bind("a"), group(step.bind("b"), step.bind("c")), step.bind("d")).enqueue()
    assert [each.state for each in watchbill.drain()] == ["succeeded"] * 4
    assert (ran[0], sorted(ran[1:3]), ran[3]) == ("a", ["b", "c"], "d")


def test_a_job_that_waits_for_one_enqueued_before_is_drained(watchbill: Watchbill) -> None:
    ran.clear()
    first = step.enqueue("a")
    step.using(depends_on=first).enqueue("b")
    watchbill.drain()
    step.using(depends_on=first).enqueue("c")
    watchbill.drain()
    assert ran == ["a", "b", "c"]


def test_drain_runs_the_alternative_and_not_canceled_steps(watchbill: Watchbill) -> None:
    ran.clear()
    jobs = chain(step.bind("bad"), step.bind("never")).on_failure(step.bind("instead")).enqueue()
    watchbill.drain(raising=False)
    assert ran == ["bad", "instead"]
    assert [job.get().state for job in jobs] == ["dead", "canceled", "succeeded"]

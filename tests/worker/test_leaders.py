"""Leaders among real nodes: elections, leader tasks, and what ends a term."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.worker.conftest import Workbench
from tests.worker.test_idle_cost import StatementLog, idle_nodes, log
from watchbill import Leadership, LockLost
from watchbill.node import Node
from watchbill.postgres.connect import AsyncConnection

__all__ = ["log"]
GROUP = "production"


class Recorder:
    """A leader task that notes when it starts and stops, and the events of elections."""

    def __init__(self, bench: Workbench) -> None:
        self.notes: list[tuple[str, int]] = []
        self.names: dict[int, str] = {}
        self.reasons: list[str] = []
        self.running: set[int] = set()
        bench.app.on("leader_elected")(self._elected)
        bench.app.on("leader_deposed")(self._deposed)
        bench.app.leader_task(group=GROUP)(self.lead)

    def _elected(self, group: str, term: int, name: str, epoch: int) -> None:
        assert group == GROUP
        self.names[term] = name
        self.notes.append(("elected", term))

    def _deposed(self, group: str, term: int, name: str, reason: str) -> None:
        assert self.names[term] == name
        self.reasons.append(reason)
        self.notes.append(("deposed", term))

    async def lead(self, leadership: Leadership) -> None:
        self.running.add(leadership.term)
        try:
            await asyncio.Event().wait()
        finally:
            self.running.discard(leadership.term)

    @property
    def leader(self) -> str | None:
        """The node whose leader task runs."""
        return self.names[max(self.running)] if self.running else None


@pytest.fixture
def seen(bench: Workbench) -> Recorder:
    return Recorder(bench)


def beats_stop(node: Node) -> None:
    """As a cut connection: its heartbeats are not acknowledged any more, and the server does not hear of it."""
    heartbeat = node.worker._heartbeat
    assert heartbeat is not None
    heartbeat._send_heartbeat = lambda: (_ for _ in ()).throw(OSError("cut"))  # type: ignore[method-assign]


async def test_one_of_two_nodes_leads(bench: Workbench, seen: Recorder) -> None:
    async with bench.working(name="a") as a:
        await bench.until(lambda: seen.leader == "a")
        async with bench.working(name="b") as b:
            await b.wait_until_ready()
            await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.candidates") == [(2,)])
            leader = await bench.app.cluster.aleader(GROUP)
            assert leader is not None
            assert (leader.name, leader.epoch, leader.term) == ("a", a.worker.epoch, max(seen.running))
            assert seen.running == {leader.term}


async def test_a_leader_that_drains_hands_over_at_once(bench: Workbench, seen: Recorder) -> None:
    """With a lease that is longer than the patience of this test."""
    async with bench.working(name="a", lease=600) as a:
        await bench.until(lambda: seen.leader == "a")
        async with bench.working(name="b", lease=600):
            await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.candidates") == [(2,)])
            a.drain()
            await bench.until(lambda: seen.leader == "b")
    assert seen.reasons == ["the node drains", "the node drains"]


async def test_a_leader_that_drains_hands_over_while_its_jobs_still_run(bench: Workbench, seen: Recorder) -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    @bench.app.task(type="slow")
    async def slow() -> None:
        started.set()
        await may_end.wait()

    async with bench.working(name="a", lease=600, drain_timeout=600) as a:
        await bench.until(lambda: seen.leader == "a")
        await slow.aenqueue()
        await started.wait()
        async with bench.working(name="b", lease=600):
            await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.candidates") == [(2,)])
            a.drain()
            await bench.until(lambda: seen.leader == "b")
            assert bench.sql("SELECT state FROM watchbill.nodes WHERE name = 'a'") == [("active",)]
            may_end.set()


async def test_a_leader_task_stops_before_the_term_is_released(bench: Workbench) -> None:
    order: list[str] = []

    @bench.app.leader_task(group=GROUP)
    async def lead() -> None:
        order.append("started")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ((state,),) = bench.sql("SELECT state FROM watchbill.lock")
            order.append(f"stopped while the lock is {state}")

    async with bench.working():
        await bench.until(lambda: order)
    assert order == ["started", "stopped while the lock is held"]
    assert bench.sql("SELECT state FROM watchbill.lock") == [("free",)]


async def test_a_leader_without_acknowledged_heartbeats_stops_before_its_lease_ends(
    bench: Workbench, seen: Recorder
) -> None:
    async with bench.working(name="a", lease=1.0) as a:
        await bench.until(lambda: seen.leader == "a")
        beats_stop(a)
        await bench.until(lambda: not seen.running)
        assert seen.reasons == ["no heartbeat was acknowledged in time"]
        async with bench.working(name="b", lease=1.0):
            await bench.until(lambda: seen.leader == "b")
    terms = {node: [term for term, name in seen.names.items() if name == node] for node in ("a", "b")}
    assert max(terms["a"]) < min(terms["b"])


async def test_a_leader_that_was_declared_lost_stops_and_another_is_elected(bench: Workbench, seen: Recorder) -> None:
    async with bench.working(name="a") as a:
        await bench.until(lambda: seen.leader == "a")
        async with bench.working(name="b"):
            await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.candidates") == [(2,)])
            bench.sql("SELECT watchbill.expire_node(epoch, n) FROM watchbill.beats WHERE epoch = %s", a.worker.epoch)
            a.worker._wakeups.wants_beat = True
            a.worker._wakeups.heartbeat.set()
            await bench.until(lambda: seen.leader == "b")
            await bench.until(lambda: "the node was declared lost" in seen.reasons)
            await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.candidates") == [(2,)])
            assert seen.leader == "b", "the node that registers again does not take the leadership back"


async def test_an_operator_who_releases_the_lock_deposes_the_leader(bench: Workbench, seen: Recorder) -> None:
    async with bench.working(name="a", lease=1.0):
        first = await bench.until(lambda: max(seen.running, default=0))
        bench.sql("SELECT watchbill.lock_release('leader/production')")
        second = await bench.until(lambda: max(seen.running - {first}, default=0))
        assert second > first
        assert seen.running == {second}


async def test_what_an_old_leader_writes_is_refused(bench: Workbench) -> None:
    bench.sql("CREATE TABLE notes (term bigint)")
    terms: list[Leadership] = []

    @bench.app.leader_task(group=GROUP)
    async def lead(leadership: Leadership) -> None:
        terms.append(leadership)
        await asyncio.Event().wait()

    async def write(leadership: Leadership) -> None:
        async with await AsyncConnection.connect(bench.url) as connection:
            await leadership.acheck(connection)
            await connection.execute("INSERT INTO notes VALUES (%s)", (leadership.term,))

    async with bench.working(name="a", lease=1.0):
        await bench.until(lambda: terms)
        await write(terms[0])
        terms[0]._term.ended.clear()  # as if it had not noticed
        bench.sql("SELECT watchbill.lock_release('leader/production')")
        await bench.until(lambda: len(terms) == 2)
        terms[0]._term.ended.clear()
        with pytest.raises(LockLost, match="no longer held under fence"):
            await write(terms[0])
        terms[0]._term.ended.set()
        with pytest.raises(LockLost, match="has ended"):
            await write(terms[0])
    assert bench.sql("SELECT term FROM notes") == [(terms[0].term,)]


async def test_a_def_task_runs_in_a_thread_and_watches_its_term(bench: Workbench) -> None:
    threads: list[Any] = []

    @bench.app.leader_task(group=GROUP)
    def lead(leadership: Leadership) -> None:
        with psycopg.connect(bench.url) as connection:
            leadership.check(connection)
        threads.append(threading.current_thread())
        while leadership.wait(60):
            pass
        threads.append("stopped")

    async with bench.working():
        await bench.until(lambda: threads)
    assert threads[0] is not threading.main_thread()
    assert threads[1] == "stopped"


async def test_a_leader_task_that_fails_is_started_again(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("watchbill.cluster.elector.FIRST_RESTART_SECONDS", 0.01)
    runs: list[int] = []

    @bench.app.leader_task(group=GROUP)
    async def lead() -> None:
        runs.append(1)
        if len(runs) < 3:
            raise ZeroDivisionError

    async with bench.working():
        await bench.until(lambda: len(runs) == 3)
    assert "A leader task of group production failed" in caplog.text


async def exit_on_the_loop() -> None:
    sys.exit("enough")


def exit_in_a_thread() -> None:
    sys.exit("enough")


@pytest.mark.parametrize("leave", [exit_on_the_loop, exit_in_a_thread])
async def test_a_leader_task_that_exits_does_not_end_its_node(
    bench: Workbench, seen: Recorder, caplog: pytest.LogCaptureFixture, leave: Callable[[], Any]
) -> None:
    """Otherwise the next node is elected, and ends too, until none is left."""
    bench.app.leader_task(group=GROUP)(leave)
    async with bench.working(name="a"):
        await bench.until(lambda: "A leader task of group production failed" in caplog.text)
        assert seen.leader == "a"


async def test_a_leader_task_that_is_declared_later_runs_too(bench: Workbench, seen: Recorder) -> None:
    ran = asyncio.Event()
    async with bench.working():
        await bench.until(lambda: seen.leader)

        @bench.app.leader_task(group=GROUP)
        async def later() -> None:
            ran.set()

        await ran.wait()


def test_a_leader_task_takes_one_argument_at_most(bench: Workbench) -> None:
    def wrong(one: int, two: int) -> None: ...

    with pytest.raises(TypeError, match="takes 2 arguments; it gets one, a Leadership"):
        bench.app.leader_task(group=GROUP)(wrong)


@pytest.mark.parametrize("group", ["", 7, "g" * 194])
def test_a_leader_task_needs_the_name_of_a_group(bench: Workbench, group: Any) -> None:
    with pytest.raises(ValueError, match="give the name of a group"):
        bench.app.leader_task(group=group)


def test_a_leader_task_is_no_generator(bench: Workbench) -> None:
    def loop() -> Any:
        yield

    async def aloop() -> Any:
        yield

    for function in (loop, aloop):
        with pytest.raises(TypeError, match=r"loop\(\) is a generator"):
            bench.app.leader_task(function)


def test_an_unknown_event_is_refused_with_a_suggestion(bench: Workbench) -> None:
    with pytest.raises(ValueError, match=r"no event 'leader_elcted'\. Did you mean 'leader_elected'\?"):
        bench.app.on("leader_elcted")(print)


def test_the_group_of_a_leader_task_is_the_app_by_default(bench: Workbench) -> None:
    @bench.app.leader_task
    async def lead() -> None: ...

    assert [group for group, _ in bench.app._leader_tasks] == [bench.app.name]


async def test_leaders_and_candidates_that_are_idle_send_no_statement_for_it(
    bench: Workbench, seen: Recorder, log: StatementLog
) -> None:
    async with idle_nodes(bench, 2, lease=1.5):
        await bench.until(lambda: seen.leader)
        await bench.until(lambda: bench.sql("SELECT count(*) FROM watchbill.candidates") == [(2,)])
        log.start()
        await bench.until(lambda: log.count()["_survey"] >= 12)
        counts = log.count()
    assert counts["elect"] == 0

"""Tasks and schedules that are declared while a node runs: it learns them, without a restart."""

from __future__ import annotations

import threading
from typing import Literal

import pytest

from tests.worker.conftest import Workbench
from watchbill import Depends, Tasks
from watchbill.scheduler import declarer


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_running_node_runs_jobs_that_waited_for_their_task(
    bench: Workbench, kind: Literal["async", "thread"]
) -> None:
    @bench.app.task
    async def early() -> None: ...

    waiting = await bench.app.aenqueue("late", {"n": 7})
    async with bench.working():
        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.jobs WHERE wait = 'unsupported'"))
        if kind == "async":

            @bench.app.task(type="late", aliases=["late.alias"])
            async def late(n: int) -> int:
                return n

        else:

            @bench.app.task(type="late", aliases=["late.alias"])
            def late_in_thread(n: int) -> int:
                return n

        assert await waiting.aresult(timeout=60) == 7
        assert await (await bench.app.aenqueue("late.alias", {"n": 8})).aresult(timeout=60) == 8
        [node] = await bench.app.cluster.anodes()
        assert {"late", "late.alias"} <= set(node.types or ())


async def test_running_node_serves_the_queue_of_a_late_task(bench: Workbench) -> None:
    async with bench.working():

        @bench.app.task(queue="late")
        async def late() -> str:
            return "ran"

        assert await (await late.aenqueue()).aresult(timeout=60) == "ran"
        assert bench.sql("SELECT queues FROM watchbill.node WHERE state = 'active'") == [(["default", "late"],)]


async def test_node_with_chosen_queues_serves_no_others(bench: Workbench) -> None:
    node = bench.app.make_node(queues=("default",))

    @bench.app.task(queue="late")
    async def late() -> None: ...

    assert node.config.queues == ("default",)
    other = bench.app.make_node()
    assert set(other.config.queues) == {"default", "late"}

    @bench.app.task(queue="later")
    async def later() -> None: ...

    assert set(other.config.queues) == {"default", "late", "later"}


def test_task_declared_by_another_thread_is_learned(bench: Workbench) -> None:
    tasks = Tasks()
    bench.app.include(tasks)

    def get_word() -> str:
        return "word"

    with bench.app.node():
        declaring = threading.Thread(target=lambda: tasks.task(type="late")(takes_word))

        def takes_word(*, word: str = Depends(get_word)) -> str:
            return word

        declaring.start()
        declaring.join()
        assert bench.app.enqueue("late").result(timeout=60) == "word"


async def test_registration_after_a_loss_has_the_late_types(bench: Workbench) -> None:
    async with bench.working() as node:

        @bench.app.task(type="late")
        async def late() -> str:
            return "ran"

        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.node_types WHERE type = 'late'"))
        first = node.worker.epoch
        bench.sql("SELECT watchbill.expire_node(epoch, n) FROM watchbill.beats")
        await bench.until(lambda: node.worker.epoch != first)
        query = "SELECT 1 FROM watchbill.node_types WHERE type = 'late' AND epoch = %s"
        assert bench.sql(query, node.worker.epoch) == [(1,)]


async def test_running_node_writes_a_late_schedule(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declarer, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(declarer, "UNDECIDED_CHECK_SECONDS", 0.05)
    tasks = Tasks()
    bench.app.include(tasks)
    async with bench.working():

        @tasks.schedule("@daily", name="late")
        @tasks.task
        async def late() -> None: ...

        await bench.until(lambda: bench.sql("SELECT 1 FROM watchbill.schedules WHERE name = 'late'"))

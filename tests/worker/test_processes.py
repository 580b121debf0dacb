"""Child processes and their end."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import time
from typing import Any

from foliot.worker import processes
from foliot.worker.processes import Processes
from foliot.worker.run import Claimed, Run
from tests.worker.child_tasks import whoami

CLAIMED = Claimed(bytes(16), 1, whoami.type, b"\x01{}", "default", "default", 0, 0, 1, 0, 5, 1, None, None, 0)


def test_nothing_is_left_of_children_when_their_keeper_has_closed() -> None:
    """Neither a zombie nor a socket, of which the loop or the interpreter would complain later."""

    async def keep_two_and_close() -> list[Any]:
        keeper = Processes(lambda *_: None, {}, jobs_each=1)
        worn, idle = [await processes._start_child({}) for _ in range(2)]
        keeper._keep(worn, memory=0)
        keeper._idle.append(idle)
        await keeper.close()
        return [(child.process.returncode, child.writer.transport.is_closing()) for child in (worn, idle)]

    assert asyncio.run(keep_two_and_close()) == [(-9, True), (-9, True)]


def test_a_child_whose_death_was_not_yet_noticed_costs_the_next_job_nothing() -> None:
    """The loop may meet the job before it meets the end of the socket."""
    answers: asyncio.Queue[tuple[Any, BaseException | None]] = asyncio.Queue()

    async def answer(keeper: Processes) -> int:
        keeper.submit(Run(CLAIMED, whoami.handler(), time.monotonic()))
        result, error = await answers.get()
        assert error is None
        return int(result)

    async def run_two() -> tuple[int, int]:
        keeper = Processes(lambda _, *answer: answers.put_nowait(answer), {})
        first = await answer(keeper)
        dead = os.pidfd_open(first)
        os.kill(first, signal.SIGKILL)
        select.select([dead], [], [])  # the loop sees nothing of it
        os.close(dead)
        second = await answer(keeper)
        await keeper.close()
        return first, second

    first, second = asyncio.run(run_two())
    assert first != second

"""Child processes and their end."""

from __future__ import annotations

import asyncio
import os
import pickle
import select
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from watchbill.app.task import Task
from watchbill.worker.child import Child
from watchbill.worker.processes import HEADER, Processes
from watchbill.worker.run import Claimed, Run
from tests.worker import child_tasks as tasks

Answer = tuple[Any, BaseException | None]


def claimed(task: Task[..., Any], **payload: Any) -> Claimed:
    raw = b"\x01" + orjson.dumps(payload)
    return Claimed(bytes(16), 1, task.type, raw, "default", "default", 0, 0, 1, 0, 5, 1, None, None, 0)


def run_of(task: Task[..., Any], **payload: Any) -> Run:
    return Run(claimed(task, **payload), task.handler(), time.monotonic())


class Keeper:
    """Children, and their answers one by one."""

    def __init__(self) -> None:
        self._answers: asyncio.Queue[Answer] = asyncio.Queue()
        self.processes = Processes(lambda _, *answer: self._answers.put_nowait(answer), {})

    async def answer(self, task: Task[..., Any], **payload: Any) -> Answer:
        return await self.answer_to(run_of(task, **payload))

    async def answer_to(self, run: Run) -> Answer:
        self.processes.submit(run)
        async with asyncio.timeout(30):
            return await self._answers.get()

    async def result(self, task: Task[..., Any], **payload: Any) -> Any:
        result, error = await self.answer(task, **payload)
        assert error is None
        return None if result is None else orjson.loads(result)


@asynccontextmanager
async def keeping() -> AsyncIterator[Keeper]:
    keeper = Keeper()
    try:
        yield keeper
    finally:
        await keeper.processes.close()


def test_nothing_is_left_of_children_when_their_keeper_has_closed() -> None:
    """Neither a zombie nor a socket, of which the loop or the interpreter would complain later."""

    async def keep_two_and_close() -> list[Any]:
        keeper = Processes(lambda *_: None, {}, jobs_each=1)
        worn, idle = [await keeper.start_child() for _ in range(2)]
        worn.jobs = 1
        keeper._keep(worn, memory=0)
        keeper._keep(idle, memory=0)
        await keeper.close()
        return [(child.process.returncode, child.writer.transport.is_closing()) for child in (worn, idle)]

    assert asyncio.run(keep_two_and_close()) == [(-9, True), (-9, True)]


def test_nor_of_one_that_is_being_started_while_it_closes() -> None:
    async def stop_and_close() -> tuple[Answer, int]:
        keeper, run = Keeper(), run_of(tasks.whoami)
        keeper.processes.submit(run)
        await asyncio.sleep(0)
        run.stopping = "released"
        await keeper.processes.close()
        return keeper._answers.get_nowait(), len(keeper.processes._idle)

    (result, error), idle = asyncio.run(stop_and_close())
    assert (result, idle) == (None, 0)
    assert "before its child process was there" in str(error)


def test_a_child_whose_death_was_not_yet_noticed_costs_the_next_job_nothing() -> None:
    """The loop may meet the job before it meets the end of the socket."""

    async def run_two() -> tuple[int, int]:
        async with keeping() as keeper:
            first = await keeper.result(tasks.whoami)
            dead = os.pidfd_open(first)
            os.kill(first, signal.SIGKILL)
            select.select([dead], [], [])  # the loop sees nothing of it
            os.close(dead)
            return first, await keeper.result(tasks.whoami)

    first, second = asyncio.run(run_two())
    assert first != second


@pytest.mark.parametrize("number", [int(signal.SIGSEGV), 40])
def test_whatever_kills_a_child_is_told(number: int) -> None:
    """Signals for real time have no name."""

    async def run() -> Answer:
        async with keeping() as keeper:
            return await keeper.answer(tasks.die, number=number)

    _, error = asyncio.run(run())
    assert "killed by SIGSEGV" in str(error) or "killed by signal 40" in str(error)


@pytest.mark.parametrize("way", tasks.FORKS)
def test_a_child_is_dead_though_its_fork_lives(way: str) -> None:
    """The fork has the child's socket, and would keep it open."""

    async def run() -> Answer:
        async with keeping() as keeper:
            return await keeper.answer(tasks.fork_and_die, way=way)

    _, error = asyncio.run(run())
    assert "killed by SIGKILL" in str(error)


def test_a_fork_that_returns_answers_nobody() -> None:
    async def run() -> tuple[int, int, int]:
        async with keeping() as keeper:
            mine = await keeper.result(tasks.whoami)
            return mine, await keeper.result(tasks.fork_and_return), await keeper.result(tasks.whoami)

    assert len(set(asyncio.run(run()))) == 1


def test_what_a_job_leaves_behind_says_nothing_of_the_next() -> None:
    async def run() -> object:
        async with keeping() as keeper:
            await keeper.result(tasks.leave_a_thread)
            listener = run_of(tasks.listen_to_it)
            assert await keeper.answer_to(listener) == (None, None)
            return listener.last_progress

    assert asyncio.run(run()) is None


def test_progress_that_cannot_be_sent_is_shown() -> None:
    async def run() -> object:
        async with keeping() as keeper:
            shown = run_of(tasks.show_what_cannot_be_sent)
            assert await keeper.answer_to(shown) == (None, None)
            return shown.last_progress

    assert "lambda" in str(asyncio.run(run()))


def test_a_request_to_stop_that_comes_before_the_handler_is_heard() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        job = ("run", 1, tasks.is_canceled.handler().reference, tuple(claimed(tasks.is_canceled)))
        for message in (job, ("stop", 1)):
            data = pickle.dumps(message)
            ours.sendall(HEADER.pack(len(data)) + data)
        ours.shutdown(socket.SHUT_WR)
        child = Child(theirs)
        child._listen()
        first = child._jobs.get()
        assert first is not None
        assert child._work(*first) == ("done", b"true")


def test_what_a_handler_starts_obeys_signals() -> None:
    async def run() -> object:
        async with keeping() as keeper:
            return await keeper.result(tasks.terminate_what_it_starts)

    assert asyncio.run(run()) == [-signal.SIGTERM, -signal.SIGINT, -signal.SIGTERM]


def test_a_child_starts_where_the_worker_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    tasks.directory.handler()  # whose App has looked for its settings, as it has when a worker starts

    async def run() -> object:
        async with keeping() as keeper:
            monkeypatch.chdir(gone)
            gone.rmdir()
            return await keeper.result(tasks.directory)

    here = Path.cwd()
    assert asyncio.run(run()) == str(here)

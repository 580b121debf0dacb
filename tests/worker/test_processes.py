"""Child processes and their end."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.worker import child_tasks as tasks
from tests.worker.conftest import Workbench
from watchbill.app.task import Task
from watchbill.telemetry.job_lines import MAX_LINES
from watchbill.worker.child import Child
from watchbill.worker.processes import Processes, pack_message
from watchbill.worker.run import Claimed, Run
from watchbill.worker.slots import Slots

Answer = tuple[Any, str]


def claimed(task: Task[..., Any], **payload: Any) -> Claimed:
    raw = b"\x01" + orjson.dumps(payload)
    return Claimed(bytes(16), 1, task.type, raw, "default", "default", 0, 0, 1, 0, 5, 1, None, None, 0)


def run_of(task: Task[..., Any], **payload: Any) -> Run:
    return Run(claimed(task, **payload), task.handler(), time.monotonic())


class Keeper:
    """Children, and their answers one by one."""

    def __init__(self) -> None:
        self._answers: asyncio.Queue[Answer] = asyncio.Queue()
        self.processes = Processes(self._finish, {})

    def _finish(self, run: Run) -> None:
        """The result, and the message of the error."""
        error = run.outcome.error or {} if run.outcome else {}
        self._answers.put_nowait((run.result, error.get("message", "")))

    async def answer(self, task: Task[..., Any], **payload: Any) -> Answer:
        return await self.answer_to(run_of(task, **payload))

    async def answer_to(self, run: Run) -> Answer:
        self.processes.submit(run)
        return await self.next_answer()

    async def next_answer(self) -> Answer:
        async with asyncio.timeout(30):
            return await self._answers.get()

    async def result(self, task: Task[..., Any], **payload: Any) -> Any:
        result, error = await self.answer(task, **payload)
        assert not error
        return None if result is None else orjson.loads(result)


@asynccontextmanager
async def keeping() -> AsyncIterator[Keeper]:
    keeper = Keeper()
    try:
        yield keeper
    finally:
        await keeper.processes.close()


def test_the_time_of_a_job_starts_when_its_child_has_imported_the_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new child may import for longer than the job may take."""
    (tmp_path / "slow_to_import.py").write_text(
        "import pathlib, watchbill\n"
        "steps = pathlib.Path(__file__).with_name('steps')\n"
        "def note(step):\n"
        "    with steps.open('a') as file:\n"
        "        file.write(step + ' ')\n"
        "note('imported')\n"
        "app = watchbill.App()\n"
        "@app.task(executor='process')\n"
        "def work():\n"
        "    note('called')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = import_module("slow_to_import")
    module.steps.unlink()
    seen: list[str] = []

    async def work() -> None:
        ended = asyncio.Event()
        processes = Processes(lambda _: ended.set(), {}, note_start=lambda _: seen.append(module.steps.read_text()))
        processes.submit(run_of(module.work))
        async with asyncio.timeout(60):
            await ended.wait()
            await processes.close()

    asyncio.run(work())
    assert seen[0].startswith("imported")
    assert module.steps.read_text() == "imported called "


def test_a_job_that_was_killed_at_its_time_out_has_no_error_of_its_process() -> None:
    async def time_out() -> Run:
        async with keeping() as keeper:
            run = Run(claimed(tasks.sleep)._replace(timeout=1), tasks.sleep.handler(), time.monotonic())
            keeper.processes.submit(run)
            while run not in keeper.processes._busy:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            run.stopping = "timed_out"
            keeper.processes.stop(run)
            await keeper.next_answer()
            return run

    outcome = asyncio.run(time_out()).outcome
    assert outcome is not None
    assert outcome.error is not None
    assert outcome.error["message"] == "timed out after 1 s"
    assert outcome.error["traceback"] == "TimeoutError: its process was killed\n"


def test_child_process_sends_the_last_lines_that_it_logs() -> None:
    async def log() -> Run:
        async with keeping() as keeper:
            run = run_of(tasks.log, lines=1000)
            await keeper.answer_to(run)
            return run

    tail = asyncio.run(log()).log
    assert tail is not None
    messages = [line.rpartition(": ")[2] for line in tail.read()]
    assert messages == [f"line {number}" for number in range(1000 - MAX_LINES, 1000)]


def test_child_process_can_skip_with_a_result() -> None:
    async def skip() -> Run:
        async with keeping() as keeper:
            run = run_of(tasks.skip)
            assert await keeper.answer_to(run) == (None, "nothing to do")
            return run

    outcome = asyncio.run(skip()).outcome
    assert outcome is not None
    assert (outcome.name, outcome.result) == ("skipped", b"[0]")


def test_close_leaves_no_child_process_or_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a zombie nor a socket, of which the loop or the interpreter would complain later."""
    for limit in ("END_SECONDS", "KILL_AFTER_SECONDS"):  # a child that still starts ends when it has started
        monkeypatch.setattr(f"watchbill.worker.processes.{limit}", 60)

    async def keep_two_and_close() -> list[Any]:
        keeper = Processes(lambda *_: None, {}, jobs_each=1)
        worn, idle = [await keeper.start_child() for _ in range(2)]
        worn.jobs = 1
        keeper._keep_for_next_job(worn, memory=0)
        keeper._keep_for_next_job(idle, memory=0)
        await keeper.close()
        return [(child.process.returncode, child.writer.transport.is_closing()) for child in (worn, idle)]

    assert asyncio.run(keep_two_and_close()) == [(0, True), (0, True)]  # idle ones end by themselves


def test_a_child_that_is_being_started_ends_when_its_keeper_closes() -> None:
    async def stop_and_close() -> tuple[Answer, int]:
        keeper, run = Keeper(), run_of(tasks.whoami)
        keeper.processes.submit(run)
        await asyncio.sleep(0)
        run.stopping = "released"
        await keeper.processes.close()
        assert "before its child process had started" in str(run.raised)
        return keeper._answers.get_nowait(), len(keeper.processes._idle)

    (result, _), idle = asyncio.run(stop_and_close())
    assert (result, idle) == (None, 0)


def test_dead_child_process_does_not_fail_the_next_job() -> None:
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
def test_the_error_names_the_signal_that_killed_a_child(number: int) -> None:
    """Signals for real time have no name."""

    async def run() -> Answer:
        async with keeping() as keeper:
            return await keeper.answer(tasks.die, number=number)

    _, error = asyncio.run(run())
    assert "killed by SIGSEGV" in error or "killed by signal 40" in error


@pytest.mark.parametrize("way", tasks.FORKS)
def test_death_of_a_child_process_is_noticed_while_its_fork_lives(way: str) -> None:
    """The fork has the child's socket, and would keep it open."""

    async def run() -> Answer:
        async with keeping() as keeper:
            return await keeper.answer(tasks.fork_and_die, way=way)

    _, error = asyncio.run(run())
    assert "killed by SIGKILL" in error


def test_a_fork_that_returns_sends_no_answer() -> None:
    async def run() -> tuple[int, int, int]:
        async with keeping() as keeper:
            mine = await keeper.result(tasks.whoami)
            return mine, await keeper.result(tasks.fork_and_return), await keeper.result(tasks.whoami)

    assert len(set(asyncio.run(run()))) == 1


def test_thread_left_by_a_job_cannot_report_progress_for_the_next() -> None:
    async def run() -> object:
        async with keeping() as keeper:
            await keeper.result(tasks.leave_a_thread)
            listener = run_of(tasks.listen_to_it)
            assert await keeper.answer_to(listener) == (None, "")
            return listener.last_progress

    assert asyncio.run(run()) is None


@pytest.mark.parametrize("size", [3, 4, 20, 100_000])
def test_a_handler_that_writes_to_the_socket_of_its_process_fails_and_no_other(size: int) -> None:
    async def run() -> tuple[Answer, Any]:
        async with keeping() as keeper:
            before = await keeper.result(tasks.whoami)
            broken = await keeper.answer(tasks.write_to_every_socket, size=size)
            return broken, await keeper.result(tasks.whoami) != before

    (result, error), is_new_child = asyncio.run(run())
    assert result is None
    assert "cannot be read" in error
    assert is_new_child


def test_what_a_thread_writes_to_the_socket_does_not_fail_the_next_job() -> None:
    async def run() -> tuple[int, int]:
        async with keeping() as keeper:
            first = await keeper.result(tasks.write_to_every_socket_later)
            (child,) = keeper.processes._idle
            async with asyncio.timeout(30):
                while not child.reader._buffer:  # type: ignore[attr-defined]  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            return first, await keeper.result(tasks.whoami)

    first, second = asyncio.run(run())
    assert first != second


def test_unpicklable_progress_is_shown_as_text() -> None:
    async def run() -> object:
        async with keeping() as keeper:
            shown = run_of(tasks.show_what_cannot_be_sent)
            assert await keeper.answer_to(shown) == (None, "")
            return shown.last_progress

    assert "lambda" in str(asyncio.run(run()))


def test_stop_request_before_the_handler_starts_is_respected() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        job = ("run", 1, tasks.is_canceled.handler().reference, [tuple(claimed(tasks.is_canceled))])
        for message in (job, ("stop", 1)):
            ours.sendall(pack_message(*message))
        ours.shutdown(socket.SHUT_WR)
        child = Child(theirs)
        child._receive_requests()
        first = child._jobs.get()
        assert first is not None
        assert child._run_job(*first) == ("ended", [(b"true", None)])


def test_programs_started_by_a_handler_obey_signals() -> None:
    async def run() -> object:
        async with keeping() as keeper:
            return await keeper.result(tasks.terminate_what_it_starts)

    assert asyncio.run(run()) == [-signal.SIGTERM, -signal.SIGINT, -signal.SIGTERM]


def test_child_process_starts_in_the_directory_of_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_the_time_out_of_a_child_process_counts_from_its_handler(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers: list[tuple[float, float]] = []
    note_start = Slots.note_start

    def watch(slots: Slots, run: Run) -> None:
        assert run.timer is not None
        before = run.timer.when()
        note_start(slots, run)
        timers.append((before, run.timer.when()))

    monkeypatch.setattr(Slots, "note_start", watch)
    task = bench.app.task(type=tasks.whoami.type, executor="process")(tasks.whoami.function)
    job = await task.using(timeout=30).aenqueue()
    await bench.work_off()
    assert isinstance(await job.aresult(), int)
    ((while_starting, while_running),) = timers
    assert while_starting > while_running

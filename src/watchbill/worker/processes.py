"""Runs CPU-bound handlers in child processes, one job per child at a time.

A child that dies takes its own job with it and no other. One whose job timed out is killed, with whatever it has
started: each child leads a session of its own. Children are kept for the next job, and replaced after `jobs_each`
jobs or when one has grown beyond `memory_each` bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import signal
import socket
import struct
import sys
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from watchbill.errors import WatchbillError
from watchbill.model.signals import Skip, Snooze
from watchbill.worker.handlers import RemoteError
from watchbill.worker.run import Run
from watchbill.worker.threads import Report

logger = logging.getLogger("watchbill.worker")

MOMENT = 1.0  # for what a dead child has said last
GRACE = 5.0  # between a polite request to stop and a kill
HEADER = struct.Struct(">I")
Answer = tuple[Any, BaseException | None]  # the result, or why there is none


class ChildDied(WatchbillError):
    """The child process that ran the handler ended without an answer."""


@dataclass(eq=False)
class _Child:
    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    jobs: int = 0
    run: Run | None = field(default=None)
    began: bool = False  # it has taken this job up

    def send(self, *message: Any) -> None:
        data = pickle.dumps(message)
        self.writer.write(HEADER.pack(len(data)) + data)

    async def receive(self) -> Any:
        """What it says of the job that it has now; a thread that an earlier one left behind may still speak."""
        while True:
            (length,) = HEADER.unpack(await self.reader.readexactly(HEADER.size))
            number, *message = pickle.loads(await self.reader.readexactly(length))  # noqa: S301  (our own child)
            if number == self.jobs:
                return message

    def kill(self) -> None:
        if self.process.returncode is None:  # a number may be another's when it has been dead for long
            self._kill_group()
        self.writer.close()

    def _kill_group(self) -> None:
        """The session, so that what the handler started ends with it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    async def gone(self) -> None:
        """Until neither a zombie nor an open socket is left, nor what it has started; that may have our socket too, and
        then nobody would hear of its end. A moment for its last words."""
        await self.process.wait()
        self._kill_group()
        asyncio.get_running_loop().call_later(MOMENT, self.writer.close)
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


class Processes:
    """As many children as there are jobs for them, at most one per slot. `environment` is theirs beside our own."""

    def __init__(
        self,
        report: Report,
        environment: Mapping[str, str],
        jobs_each: int | None = None,
        memory_each: int | None = None,
    ) -> None:
        self._report, self._environment = report, environment
        self._jobs_each, self._memory_each = jobs_each, memory_each
        self._directory = _working_directory()  # a handler may change ours
        self._idle: list[_Child] = []
        self._busy: dict[Run, _Child] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def submit(self, run: Run) -> None:
        self._go_on_with(self._run(run))

    def _go_on_with(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self, run: Run) -> None:
        child = self._busy.get(run)
        if child is None:
            return  # still being started; `_offer` looks again
        if run.stopping == "canceled":
            child.send("stop", child.jobs)
            asyncio.get_running_loop().call_later(GRACE, self._kill_if_still, child, run)
        else:
            child.kill()

    def _kill_if_still(self, child: _Child, run: Run) -> None:
        if child.run is run:
            child.kill()

    async def _run(self, run: Run) -> None:
        try:
            while (answer := await self._offer(run)) is None:
                pass
        except Exception as error:  # noqa: BLE001  (whatever it is, this job must hear of it)
            answer = None, ChildDied(f"The child process of job {run.id} was not understood: {error!r}.")
        self._report(run, *answer)

    async def _offer(self, run: Run) -> Answer | None:
        """None: the child was dead before it could begin, and nobody had noticed; another one shall have the job."""
        kept = self._idle_child()
        try:
            child = kept or await self.start_child()
        except Exception as error:  # noqa: BLE001
            return None, ChildDied(f"No child process could be started: {error}")
        if run.stopping is not None:
            self._lay_by(child)
            return None, ChildDied(f"Job {run.id} was told to stop before its child process was there.")
        child.run, child.began, child.jobs = run, False, child.jobs + 1
        self._busy[run] = child
        try:
            answer = await self._converse(child, run)
        finally:
            del self._busy[run]
            child.run = None
        return answer if child.began or kept is None or run.stopping is not None else None

    def _idle_child(self) -> _Child | None:
        """One that has died while nobody needed it must not cost the next job an attempt."""
        while self._idle:
            child = self._idle.pop()
            if child.process.returncode is None and not child.reader.at_eof():
                return child
            child.kill()
        return None

    async def _converse(self, child: _Child, run: Run) -> Answer:
        try:
            child.send("run", child.jobs, run.handler.reference, tuple(run.claimed))
            while True:
                match await child.receive():
                    case ["began"]:
                        child.began = True
                    case ["progress", value]:
                        run.progress(orjson.loads(value))
                    case ["done", result, memory]:
                        self._keep(child, memory)
                        return result, None
                    case ["failed", description, memory]:
                        self._keep(child, memory)
                        return None, _revive(description)
        except (asyncio.IncompleteReadError, ConnectionError):
            child.kill()
            code = await child.process.wait()
            return None, ChildDied(f"The child process of job {run.id} ended without an answer ({_exit(code)}).")
        except BaseException:  # an answer that cannot be read, say
            child.kill()
            raise

    def _keep(self, child: _Child, memory: int) -> None:
        worn = (self._jobs_each and child.jobs >= self._jobs_each) or (self._memory_each and memory > self._memory_each)
        if worn:
            child.kill()
        else:
            self._lay_by(child)

    def _lay_by(self, child: _Child) -> None:
        if self._closed:
            child.kill()
        else:
            self._idle.append(child)

    async def start_child(self) -> _Child:
        child = await _start_child(self._environment, self._directory)
        self._go_on_with(child.gone())
        return child

    async def close(self) -> None:
        """Kills all of them, and waits until they are gone: moments, unless one of them hangs in the kernel."""
        self._closed = True
        for child in (*self._idle, *self._busy.values()):
            child.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                while self._tasks:  # one that is being started now has yet to begin its end
                    await asyncio.wait(self._tasks)


def _revive(description: dict[str, Any]) -> BaseException:
    """Skip, Snooze and the like mean the same here as there."""
    match description.pop("signal", None):
        case ("skip", reason):
            return Skip(reason)
        case ("snooze", delay):
            return Snooze(delay)
        case ("retry_after", delay):
            return RemoteError(description, delay)
    return RemoteError(description)


def _exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    known = -code in signal.Signals.__members__.values()  # most of those for real time have no name
    return f"killed by {signal.Signals(-code).name if known else f'signal {-code}'}"


def _working_directory() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109  (as text)
    except FileNotFoundError:  # deleted
        return None


async def _start_child(environment: Mapping[str, str], directory: str | None) -> _Child:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "watchbill.worker.child",
            str(theirs.fileno()),
            str(os.getpid()),
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL,
            cwd=directory,
            env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
    reader, writer = await asyncio.open_connection(sock=ours)
    return _Child(process, reader, writer)

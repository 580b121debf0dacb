"""Runs CPU-bound handlers in child processes, one job per child at a time.

A child that dies ends its own job and no other. A child whose job timed out is killed with all processes that it has
started, since each child leads a session of its own. Children are kept for the next job, and replaced after `jobs_each`
jobs or when they have used more than `memory_each` bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import re
import signal
import socket
import struct
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from watchbill.errors import WatchbillError
from watchbill.worker.attempt import fail
from watchbill.worker.outcomes import choose_stopped_outcome
from watchbill.worker.run import Outcome, Run
from watchbill.worker.threads import Finish

LAST_MESSAGES_SECONDS = 1.0  # how long we still read messages of a child after its death
KILL_AFTER_SECONDS = 5.0  # how long a handler may go on after it was asked to stop
END_SECONDS = 2.0  # how long an idle child may take to close its dependencies, before it is killed
_MARK = b"watchbill"
HEADER = struct.Struct(f">{len(_MARK)}sI")  # before each message: the mark, and the length of the message
_PEAK_MEMORY = re.compile(rb"VmHWM:\s*(\d+) kB")


class Unreadable(WatchbillError):
    """Bytes arrived that are not a message: a handler has written to the socket of its process."""


def pack_message(*message: Any) -> bytes:
    data = pickle.dumps(message)
    return HEADER.pack(_MARK, len(data)) + data


class ChildDied(WatchbillError):
    """The child process that ran the handler ended without an answer."""


@dataclass(eq=False)
class _Child:
    """A child process, and our end of the socket to it."""

    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    jobs: int = 0  # how many jobs the child was given, which is also the number of its current job
    run: Run | None = None
    has_begun: bool = False  # the child has received the current job

    def send_message(self, *message: Any) -> None:
        self.writer.write(pack_message(*message))

    async def receive_message(self) -> Any:
        """Returns the next message about the current job. Messages about earlier jobs, whose threads may still run, are
        dropped."""
        while True:
            mark, length = HEADER.unpack(await self.reader.readexactly(HEADER.size))
            if mark != _MARK:
                raise Unreadable(f"it starts with {mark!r}; its handler has perhaps written to this socket")
            number, *message = pickle.loads(await self.reader.readexactly(length))  # noqa: S301  (our own child)
            if number == self.jobs:
                return message

    def kill(self) -> None:
        if self.process.returncode is None:  # the process id of a dead child may be in use again
            self._kill_process_group()
        self.writer.close()

    def end(self) -> None:
        """Lets an idle child close its dependencies and end; kills it if it does not."""
        self.writer.close()
        asyncio.get_running_loop().call_later(END_SECONDS, self.kill)

    def _kill_process_group(self) -> None:
        """Kills the child together with the processes that its handler has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    async def clean_up(self) -> None:
        """Waits until the child has ended, then kills the processes that it has started, and closes the socket. One of
        these processes may have inherited the child's end of the socket, which would stay open otherwise."""
        await self.process.wait()
        self._kill_process_group()
        asyncio.get_running_loop().call_later(LAST_MESSAGES_SECONDS, self.writer.close)
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


class Processes:
    """At most one child per handler slot, started when there is a job for it. Children get our environment variables
    and those in `environment`. `note_start` is called when a child has imported the handler and is about to call it."""

    def __init__(
        self,
        finish: Finish,
        environment: Mapping[str, str],
        jobs_each: int | None = None,
        memory_each: int | None = None,
        *,
        note_start: Callable[[Run], None] | None = None,
    ) -> None:
        self._finish, self._environment, self._note_start = finish, environment, note_start
        self._jobs_each, self._memory_each = jobs_each, memory_each
        self._directory = _find_working_directory()  # read now, because a handler may change it later
        self._idle: list[_Child] = []
        self._busy: dict[Run, _Child] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def submit(self, run: Run) -> None:
        self._create_task(self._run_until_taken(run))

    def _create_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self, run: Run) -> None:
        child = self._busy.get(run)
        if child is None:
            return  # the child of this run is still being started; `_run_in_child` stops the run when it has started
        if run.stopping == "canceled":
            child.send_message("stop", child.jobs)
            asyncio.get_running_loop().call_later(KILL_AFTER_SECONDS, self._kill_if_still_running, child, run)
        else:
            child.kill()

    def stop_member(self, run: Run, place: int) -> None:
        """Tells the handler of a batch that one of its jobs was canceled."""
        if (child := self._busy.get(run)) is not None:
            child.send_message("stop_member", child.jobs, place)

    def _kill_if_still_running(self, child: _Child, run: Run) -> None:
        if child.run is run:
            child.kill()

    async def _run_until_taken(self, run: Run) -> None:
        try:
            while not await self._run_in_child(run):
                pass
        except Exception as error:  # noqa: BLE001  (no error may end more than this one job)
            fail(run, ChildDied(f"The child process of job {run.id} sent a message that cannot be read: {error!r}."))
        self._finish(run)

    async def _run_in_child(self, run: Run) -> bool:
        """Runs the job in an idle child or a new one. Returns False if the job has to be given to another child,
        because the idle child died or sent garbage before it received the job."""
        idle = self._take_idle_child()
        try:
            child = idle or await self.start_child()
        except Exception as error:  # noqa: BLE001
            fail(run, ChildDied(f"No child process could be started: {error}"))
            return True
        if run.stopping is not None:
            self._keep_for_next_job(child)
            fail(run, ChildDied(f"Job {run.id} was asked to stop before its child process had started."))
            return True
        child.run, child.has_begun, child.jobs = run, False, child.jobs + 1
        self._busy[run] = child
        try:
            await self._exchange_messages(child, run)
        except (asyncio.IncompleteReadError, ConnectionError, Unreadable) as error:
            child.kill()
            code = await child.process.wait()
            if idle is not None and not child.has_begun and run.stopping is None:
                return False
            if isinstance(error, Unreadable):
                raise
            fail(run, _explain_child_death(run, code))
        except BaseException:  # for example an answer that cannot be unpickled
            child.kill()
            raise
        finally:
            del self._busy[run]
            child.run = None
        return True

    def _take_idle_child(self) -> _Child | None:
        """Returns an idle child that is alive, if there is one. Children that died while they were idle are dropped, so
        that they cost no job an attempt."""
        while self._idle:
            child = self._idle.pop()
            if child.process.returncode is None and not child.reader.at_eof():
                return child
            child.kill()
        return None

    async def _exchange_messages(self, child: _Child, run: Run) -> None:
        child.send_message("run", child.jobs, run.handler.reference, [tuple(each.claimed) for each in run.batch])
        for place, each in enumerate(run.batch):
            if each.stopping is not None and run.stopping is None:  # this job was canceled while the child was started
                child.send_message("stop_member", child.jobs, place)
        while True:
            match await child.receive_message():
                case ["began"]:
                    child.has_begun = True
                case ["started"]:
                    if self._note_start is not None:
                        self._note_start(run)
                case ["progress", value]:
                    run.progress(orjson.loads(value))
                case ["lines", lines]:
                    run.add_lines(lines)
                case ["ended", answers, memory]:
                    for each, answer in zip(run.batch, answers, strict=True):
                        _end_run(each, *answer)
                    self._keep_for_next_job(child, memory)
                    return

    def _keep_for_next_job(self, child: _Child, memory: int = 0) -> None:
        """Keeps the child for the next job, or ends it if it has run enough jobs or used too much memory. `memory` is
        the most that the child has used so far."""
        has_run_enough = self._jobs_each is not None and child.jobs >= self._jobs_each
        is_too_large = self._memory_each is not None and memory > self._memory_each
        if self._is_closed or has_run_enough or is_too_large:
            child.end()
        else:
            self._idle.append(child)

    async def start_child(self) -> _Child:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            command = (sys.executable, "-m", "watchbill.worker.child", str(theirs.fileno()), str(os.getpid()))
            process = await asyncio.create_subprocess_exec(
                *command,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                stdin=asyncio.subprocess.DEVNULL,
                cwd=self._directory,
                env={**os.environ, **self._environment, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            )
        child = _Child(process, *await asyncio.open_connection(sock=ours))
        self._create_task(child.clean_up())
        return child

    async def close(self) -> None:
        """Ends idle children, kills busy ones, and waits until all have ended. Does not wait for ever, because a
        process may hang in the kernel."""
        self._is_closed = True
        for child in self._idle:
            child.end()
        for child in self._busy.values():
            child.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILL_AFTER_SECONDS):
                while self._tasks:  # repeated, because a child that is just being started adds a task
                    await asyncio.wait(self._tasks)


def _end_run(run: Run, result: bytes | None, outcome: tuple[Any, ...] | None) -> None:
    """Copies the result and the outcome that the child has sent into the run."""
    run.result = result
    if outcome is not None:
        run.outcome = Outcome(*outcome)
        if run.stopping is not None:  # the child may have sent its answer before it was asked to stop
            run.outcome = choose_stopped_outcome(run, run.outcome.error or {})


def _explain_child_death(run: Run, code: int) -> Exception:
    if run.stopping == "timed_out":
        return TimeoutError("its process was killed")
    return ChildDied(f"The child process of job {run.id} ended without an answer ({_describe_exit_code(code)}).")


def _describe_exit_code(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    known = -code in signal.Signals.__members__.values()  # most real-time signals have no name
    return f"killed by {signal.Signals(-code).name if known else f'signal {-code}'}"


def _find_working_directory() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109  (as text)
    except FileNotFoundError:  # the working directory was deleted
        return None


def measure_peak_memory() -> int:
    """Returns the most memory that this process has used, in bytes. On systems without /proc, this may be the figure of
    its parent."""
    try:
        found = _PEAK_MEMORY.search(Path("/proc/self/status").read_bytes())
    except OSError:
        found = None
    if found is not None:
        return int(found[1]) * 1024
    import resource  # which Windows lacks

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024

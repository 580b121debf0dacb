"""The child process of `processes.py`: reads a job from its socket, runs it in the main thread, and answers."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from importlib import import_module
from queue import SimpleQueue
from typing import Any

from watchbill.settings import keep_parent_settings
from watchbill.telemetry.context import current
from watchbill.telemetry.job_lines import LogTail, keep_lines_of_jobs
from watchbill.telemetry.logs import configure_like_parent
from watchbill.worker import forks
from watchbill.worker.attempt import attempt
from watchbill.worker.batch_run import BatchRun
from watchbill.worker.dependencies import close_all
from watchbill.worker.handlers import Handler
from watchbill.worker.outcomes import describe_error
from watchbill.worker.processes import HEADER, measure_peak_memory, pack_message
from watchbill.worker.run import Claimed, Outcome, Run, progress_as_json

LINES_PAUSE_SECONDS = 0.01
_PR_SET_PDEATHSIG = 1
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Child:
    """Runs jobs that the parent process sends. Each message carries the number of its job, because a thread that a
    handler has started may still send messages when the next job runs."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._jobs: SimpleQueue[tuple[int, str, list[Claimed]] | None] = SimpleQueue()
        self._run: ReportingRun | ReportingBatchRun | None = None
        self._stop_number = 0  # the number of the job that was last asked to stop
        self._stopped_members: set[tuple[int, int]] = set()  # number and place of jobs of a batch that were canceled
        self._sending = threading.Lock()

    def serve(self) -> None:
        threading.Thread(target=self._receive_requests, name="watchbill-parent", daemon=True).start()
        while (job := self._jobs.get()) is not None:
            with contextlib.suppress(BrokenPipeError):  # the parent has died; `_receive_requests` ends this loop
                self._send_message(job[0], "began")
                answer = self._run_job(*job)
                if forks.is_fork:
                    forks.end_fork()
                self._send_message(job[0], *answer, measure_peak_memory())

    def _receive_requests(self) -> None:
        """Receives jobs, and requests to stop a job, from the parent. A stop request may arrive before the handler has
        started."""
        file = self._channel.makefile("rb")
        while header := file.read(HEADER.size):
            _, length = HEADER.unpack(header)
            match pickle.loads(file.read(length)):  # noqa: S301  (from our own parent)
                case ("run", number, reference, rows):
                    self._jobs.put((number, reference, [Claimed._make(row) for row in rows]))
                case ("stop", number):
                    self._stop_number = number
                    self._stop_if_requested(self._run)
                case ("stop_member", number, place):
                    self._stopped_members.add((number, place))
                    self._stop_if_requested(self._run)
        self._jobs.put(None)

    def _run_job(self, number: int, reference: str, claimed: list[Claimed]) -> tuple[Any, ...]:
        """Runs a job, or the jobs of a batch. Returns the result and the outcome of each, as simple values, because a
        user's exception object may not survive pickling."""
        try:
            handler = find_handler(reference, claimed[0].type)
        except BaseException as error:  # noqa: BLE001  (the task's module may fail to import, for example)
            failed = ("failed", None, describe_error(error, "retryable"), None)
            return "ended", [(None, failed)] * len(claimed)
        run: ReportingRun | ReportingBatchRun
        if handler.batch is None:
            run = ReportingRun(claimed[0], handler, time.monotonic(), number, self._send_message)
        else:
            run = ReportingBatchRun(
                [Run(row, handler, time.monotonic()) for row in claimed], number, self._send_message
            )
        self._run = run
        self._stop_if_requested(run)
        self._send_message(number, "started")
        attempt(run)
        run.lines.flush()
        self._run = None
        current.set(None)
        self._stopped_members.clear()
        return "ended", [(each.result, _outcome_as_tuple(each.outcome)) for each in run.batch]

    def _stop_if_requested(self, run: ReportingRun | ReportingBatchRun | None) -> None:
        if run is None:
            return
        for place, each in enumerate(run.batch):
            if run.number == self._stop_number or (run.number, place) in self._stopped_members:
                each.stopping = "canceled"
        if run.number == self._stop_number:
            run.stopping = "canceled"

    def _send_message(self, *message: Any) -> None:
        data = pack_message(*message)
        with self._sending:  # threads that the handler has started may send progress at the same time
            if not forks.is_fork:
                self._channel.sendall(data)

    def detach(self) -> None:
        """Closes the socket in a process that a handler has forked. Otherwise the parent would not notice that this
        child has died."""
        self._sending = threading.Lock()  # another thread may have held the copy
        os.close(self._channel.detach())


class LineSender:
    """Sends log lines to the parent process at once, but no more often than the event loop there can bear."""

    def __init__(self, number: int, send: Any) -> None:
        self._number, self._send, self._unsent, self._sent_at = number, send, LogTail(), 0.0

    def add(self, lines: Sequence[str]) -> None:
        self._unsent.add(lines)
        if time.monotonic() - self._sent_at >= LINES_PAUSE_SECONDS:
            self.flush()

    def flush(self) -> None:
        if lines := self._unsent.take():
            self._sent_at = time.monotonic()
            self._send(self._number, "lines", lines)


class ReportingRun(Run):
    """A run that sends its progress and its log lines to the parent process, whose heartbeat stores it."""

    __slots__ = ("_send", "lines", "number")

    def __init__(self, claimed: Claimed, handler: Handler, started: float, number: int, send: Any) -> None:
        super().__init__(claimed, handler, started)
        self.number, self._send, self.lines = number, send, LineSender(number, send)

    def progress(self, value: Any) -> None:
        self._send(self.number, "progress", progress_as_json(value))

    def add_lines(self, lines: Sequence[str]) -> None:
        self.lines.add(lines)


class ReportingBatchRun(BatchRun):
    """A run of a batch that sends its progress and its log lines to the parent process, whose heartbeat stores it."""

    __slots__ = ("_send", "lines", "number")

    def __init__(self, members: list[Run], number: int, send: Any) -> None:
        super().__init__(members)
        self.number, self._send, self.lines = number, send, LineSender(number, send)

    def progress(self, value: Any) -> None:
        self._send(self.number, "progress", progress_as_json(value))

    def add_lines(self, lines: Sequence[str]) -> None:
        self.lines.add(lines)


def _outcome_as_tuple(outcome: Outcome | None) -> tuple[Any, ...] | None:
    return None if outcome is None else (outcome.name, outcome.delay, outcome.error, outcome.result)


def find_handler(reference: str, type: str) -> Handler:
    """Imports a task and returns its handler. `reference` is `module:name` of the task, or of an App that has a task of
    this type."""
    module, _, name = reference.partition(":")
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    handler: Handler = found.handlers()[type] if hasattr(found, "handlers") else found.handler()
    return handler


def main() -> None:
    _Signals().survive_stop_signals()
    _die_with_parent(int(sys.argv[2]))
    configure_like_parent()
    keep_lines_of_jobs()
    keep_parent_settings()
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  (text, as the command `watchbill` inserts it too)
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        channel.set_inheritable(False)
        child = Child(channel)
        with forks.guard_against_forks(child.detach):
            child.serve()
        close_all()


class _Signals:
    """Makes a child process survive SIGTERM and SIGINT, which a service manager sends to all processes of a service:
    the worker decides when its children end. The children have a signal handler that does nothing. They do not ignore
    the signals, because programs that a task starts would then ignore them too. A fork gets the default action back."""

    def __init__(self) -> None:
        self._mask: set[int] = set()

    def survive_stop_signals(self) -> None:
        for number in _STOP_SIGNALS:
            signal.signal(number, lambda *_: None)
        os.register_at_fork(
            before=self._block_signals, after_in_parent=self._unblock_signals, after_in_child=self._restore_defaults
        )

    def _block_signals(self) -> None:
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)

    def _unblock_signals(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def _restore_defaults(self) -> None:
        for number in _STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        self._unblock_signals()


def _die_with_parent(parent: int) -> None:
    """Ends this process when its parent has died: on Linux at once, elsewhere when the handler has returned."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the call above
        sys.exit()


if __name__ == "__main__":
    main()

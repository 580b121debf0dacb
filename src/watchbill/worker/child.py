"""The child process of `processes.py`: reads a job from its socket, runs it in the main thread, answers, and waits."""

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
from importlib import import_module
from queue import SimpleQueue
from typing import Any

from watchbill.model.signals import RetryAfter, Skip, Snooze
from watchbill.settings import take_over
from watchbill.telemetry.context import current
from watchbill.telemetry.logs import configure_as_parent_did
from watchbill.worker.failures import PERMANENT, describe
from watchbill.worker.handlers import Handler
from watchbill.worker.memory import peak_memory
from watchbill.worker.processes import HEADER
from watchbill.worker.progress import as_json
from watchbill.worker.run import Claimed, Run

_PR_SET_PDEATHSIG = 1
_OF_THE_WORKER = (signal.SIGINT, signal.SIGTERM)


class Child:
    """Each message bears the number of its job: what a thread that outlives its handler says is not the next one's."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._jobs: SimpleQueue[tuple[int, str, Claimed] | None] = SimpleQueue()
        self._run: ReportingRun | None = None
        self._stopped = 0  # the number of the job that was last told to stop
        self._sending = threading.Lock()
        self._is_fork = False

    def serve(self) -> None:
        threading.Thread(target=self._listen, name="watchbill-parent", daemon=True).start()
        while (job := self._jobs.get()) is not None:
            with contextlib.suppress(BrokenPipeError):  # nobody is there to hear it; `_listen` ends this loop
                self._send(job[0], "began")
                answer = self._work(*job)
                if self._is_fork:  # the handler has forked, and let its fork return as well
                    os._exit(1)
                self._send(job[0], *answer, peak_memory())

    def _listen(self) -> None:
        """Jobs, and requests to stop one, which may come before its handler has begun."""
        file = self._channel.makefile("rb")
        while header := file.read(HEADER.size):
            (length,) = HEADER.unpack(header)
            match pickle.loads(file.read(length)):  # noqa: S301  (from our own parent)
                case ("run", number, reference, row):
                    self._jobs.put((number, reference, Claimed._make(row)))
                case ("stop", number):
                    self._stopped = number
                    self._stop_if_told(self._run)
        self._jobs.put(None)

    def _work(self, number: int, reference: str, claimed: Claimed) -> tuple[Any, ...]:
        try:
            handler = find_handler(reference, claimed.type).for_payload(claimed.raw_payload)
            run = self._run = ReportingRun(claimed, handler, time.monotonic(), number, self._send)
            self._stop_if_told(run)
            current.set(run)
            value = handler.function(**handler.decode(claimed.raw_payload[1:], claimed.version))
            return "done", None if value is None else handler.encode_result(value)
        except BaseException as error:  # noqa: BLE001  (whatever a handler raises is the end of its attempt, not ours)
            return "failed", _description(error)
        finally:
            self._run = None
            current.set(None)

    def _stop_if_told(self, run: ReportingRun | None) -> None:
        if run is not None and run.number == self._stopped:
            run.stopping = "canceled"

    def _send(self, *message: Any) -> None:
        data = pickle.dumps(message)
        with self._sending:  # a handler may have threads that tell its progress
            if not self._is_fork:
                self._channel.sendall(HEADER.pack(len(data)) + data)

    def become_fork(self) -> None:
        """In what a handler forks: who answers is the child; and while anybody else has its socket, nobody would hear
        of its death."""
        if not self._is_fork:
            self._is_fork, self._sending = True, threading.Lock()
            os.close(self._channel.detach())


class ReportingRun(Run):
    """Progress goes to the parent, which tells the database."""

    __slots__ = ("_send", "number")

    def __init__(self, claimed: Claimed, handler: Handler, started: float, number: int, send: Any) -> None:
        super().__init__(claimed, handler, started)
        self.number, self._send = number, send

    def progress(self, value: Any) -> None:
        self._send(self.number, "progress", as_json(value))


def _description(error: BaseException) -> dict[str, Any]:
    """Plain values only: an exception of the user's own might not survive the way to the parent."""
    kind = "permanent" if isinstance(error, PERMANENT) else "retryable"
    return describe(error, kind) | {"signal": _signal(error)}


def _signal(error: BaseException) -> tuple[str, Any] | None:
    match error:
        case Skip():
            return "skip", error.reason
        case Snooze():
            return "snooze", error.delay
        case RetryAfter():
            return "retry_after", error.delay
    return None


def find_handler(reference: str, type: str) -> Handler:
    """The task that `module:name` names, or that an App of that name has; the module is imported here once."""
    module, _, name = reference.partition(":")
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    handler: Handler = found.handlers()[type] if hasattr(found, "handlers") else found.handler()
    return handler


def main() -> None:
    _Signals().leave_to_worker()
    _die_with_parent(int(sys.argv[2]))
    configure_as_parent_did()
    take_over()
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  (as the command line does for the application)
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        channel.set_inheritable(False)
        child = Child(channel)
        os.register_at_fork(after_in_child=child.become_fork)
        child.serve()


class _Signals:
    """Who stops a service signals all its processes; the worker drains, and decides what becomes of us. They are not
    ignored, or the programs that a handler starts would ignore them, too; what it forks obeys them from the start."""

    def __init__(self) -> None:
        self._mask: set[int] = set()

    def leave_to_worker(self) -> None:
        for number in _OF_THE_WORKER:
            signal.signal(number, lambda *_: None)
        os.register_at_fork(before=self._hold, after_in_parent=self._let_go, after_in_child=self._obey)

    def _hold(self) -> None:
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_THE_WORKER)

    def _let_go(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def _obey(self) -> None:
        for number in _OF_THE_WORKER:
            signal.signal(number, signal.SIG_DFL)
        self._let_go()


def _die_with_parent(parent: int) -> None:
    """On Linux even when the parent is killed while a handler is busy; elsewhere at the end of the handler."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # killed before we could ask for that
        sys.exit()


if __name__ == "__main__":
    main()

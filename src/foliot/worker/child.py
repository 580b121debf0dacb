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

from foliot.model.signals import RetryAfter, Skip, Snooze
from foliot.settings import take_over
from foliot.telemetry.context import current
from foliot.telemetry.logs import configure_as_parent_did
from foliot.worker.failures import PERMANENT, describe
from foliot.worker.handlers import Handler
from foliot.worker.memory import peak_memory
from foliot.worker.processes import HEADER
from foliot.worker.run import Claimed, Run

_PR_SET_PDEATHSIG = 1


class Child:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._jobs: SimpleQueue[tuple[str, Claimed] | None] = SimpleQueue()
        self._run: Run | None = None

    def serve(self) -> None:
        threading.Thread(target=self._listen, name="foliot-parent", daemon=True).start()
        while (job := self._jobs.get()) is not None:
            with contextlib.suppress(BrokenPipeError):  # nobody is there to hear it; `_listen` ends this loop
                self._send("began")
                self._send(*self._work(*job), peak_memory())

    def _listen(self) -> None:
        """Jobs, and requests to stop the one that runs."""
        file = self._channel.makefile("rb")
        while header := file.read(HEADER.size):
            (length,) = HEADER.unpack(header)
            match pickle.loads(file.read(length)):  # noqa: S301  (from our own parent)
                case ("run", reference, row):
                    self._jobs.put((reference, Claimed._make(row)))
                case ("stop",) if self._run is not None:
                    self._run.stopping = "canceled"
        self._jobs.put(None)

    def _work(self, reference: str, claimed: Claimed) -> tuple[Any, ...]:
        try:
            handler = find_handler(reference, claimed.type).for_payload(claimed.raw_payload)
            run = self._run = ReportingRun(claimed, handler, time.monotonic(), self._send)
            current.set(run)
            value = handler.function(**handler.decode(claimed.raw_payload[1:], claimed.version))
            return "done", None if value is None else handler.encode_result(value)
        except BaseException as error:  # noqa: BLE001  (whatever a handler raises is the end of its attempt, not ours)
            return "failed", _description(error)
        finally:
            self._run = None
            current.set(None)

    def _send(self, *message: Any) -> None:
        data = pickle.dumps(message)
        self._channel.sendall(HEADER.pack(len(data)) + data)


class ReportingRun(Run):
    """Progress goes to the parent, which tells the database."""

    __slots__ = ("_send",)

    def __init__(self, claimed: Claimed, handler: Handler, started: float, send: Any) -> None:
        super().__init__(claimed, handler, started)
        self._send = send

    def progress(self, value: Any) -> None:
        self._send("progress", value)


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
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_parent(int(sys.argv[2]))
    configure_as_parent_did()
    take_over()
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  (as the command line does for the application)
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        Child(channel).serve()


def _die_with_parent(parent: int) -> None:
    """On Linux even when the parent is killed while a handler is busy; elsewhere at the end of the handler."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # killed before we could ask for that
        sys.exit()


if __name__ == "__main__":
    main()

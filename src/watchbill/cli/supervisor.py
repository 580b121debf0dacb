"""Keeps child processes running: several workers, or one that is restarted when its code changes.

The supervisor passes signals on to its children: the first SIGTERM or Ctrl-C drains them (SIGTERM), the second stops
them at once (SIGINT). A child ignores repeated SIGTERMs, so a service manager that signals all processes does not stop
it at once. A child that dies is replaced, with growing delays if it keeps dying; one that ends normally (drained by an
operator, no job left) is not. Each child watches its parent, so none outlives the supervisor.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from watchbill.cli.screen import say

if TYPE_CHECKING:
    from watchbill.worker.listener_hub import ListenerHub

AT_ONCE = signal.SIGINT  # to a child: do not wait for running jobs
UP_COMMAND = "_WATCHBILL_UP_COMMAND"  # set by `watchbill up`: how to call the command from another terminal
PARENT = "_WATCHBILL_SUPERVISOR_PID"
_NUMBER = "_WATCHBILL_CHILD_NUMBER"  # which child this process is; set only if there are several children
_HUB_SOCKET = "_WATCHBILL_HUB_SOCKET"  # the descriptor of the child's socket to the listener hub
RECYCLED = 75  # the exit code of a worker that reached its limit of jobs or memory
_USAGE, _NO_DATABASE, _BROKEN_APP = 2, 3, 4  # exit codes of a worker that cannot start; another try would fail too
_IGNORED_DIRECTORIES = {"node_modules", "__pycache__", "venv"}


@dataclass
class _Slot:
    number: int
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    starts: int = 0
    failures: int = 0
    start_at: float = 0.0
    reloading: bool = False
    done: bool = False
    refused: int = 0  # its exit code, if it could not start


@dataclass
class Supervisor:
    """`run()` returns the exit code when all children have ended for good."""

    command: list[str]
    count: int = 1
    environment: dict[str, str] = field(default_factory=dict)
    watched: Path | None = None  # restart when a Python file below it changes
    listener_hub: ListenerHub | None = None  # listens for all children
    each_second: Callable[[], None] = lambda: None
    _signals: int = 0
    _code: int = 0

    def run(self) -> int:
        slots = [_Slot(number + 1) for number in range(self.count)]
        for number in stop_signals():
            signal.signal(number, lambda *_: self._forward_signal(slots))
        changes = CodeChanges(self.watched) if self.watched else None
        next_second = time.monotonic()
        while not self._is_over(slots):
            if time.monotonic() >= next_second:
                self.each_second()
                next_second = time.monotonic() + 1.0
            for slot in slots:
                self._check(slot)
            if changes is not None and not self._signals and changes.were_made():
                self._reload(slots)
            time.sleep(0.1)
        return self._code or max(slot.refused for slot in slots)

    def _check(self, slot: _Slot) -> None:
        if slot.process is None:
            if not self._signals and not slot.done and time.monotonic() >= slot.start_at:
                slot.process, slot.started, slot.starts = self._start(slot), time.monotonic(), slot.starts + 1
                slot.refused = 0
                if self._signals:  # arrived during the start, so _forward_signal could not reach this child
                    slot.process.terminate()
            return
        code = slot.process.poll()
        if code is not None:
            slot.process = None
            self._handle_exit(slot, code)

    def _start(self, slot: _Slot) -> subprocess.Popen[bytes]:
        """In a session of its own, so that Ctrl-C at the terminal reaches the child only through _forward_signal."""
        number = {_NUMBER: str(slot.number)} if self.count > 1 else {}
        environment = os.environ | self.environment | {PARENT: str(os.getpid())} | number
        if self.listener_hub is None:
            return subprocess.Popen(self.command, env=environment, start_new_session=True)
        with self.listener_hub.connect() as hub_socket:
            descriptor = hub_socket.fileno()
            environment[_HUB_SOCKET] = str(descriptor)
            return subprocess.Popen(self.command, env=environment, start_new_session=True, pass_fds=[descriptor])

    def _handle_exit(self, slot: _Slot, code: int) -> None:
        if self._signals:
            self._code = self._code or (max(code, 0) if code != RECYCLED else 0)
        elif slot.reloading or code == RECYCLED:
            slot.reloading, slot.failures = False, 0
        elif code == 0:
            slot.done = True
        elif code in (_USAGE, _NO_DATABASE, _BROKEN_APP) and not self._has_worked(slot):
            # This child starts again in a second. But if all children were refused, the supervisor ends: see _is_over.
            slot.refused, slot.start_at = code, time.monotonic() + 1.0
        elif code == _BROKEN_APP and self.watched is not None:
            slot.start_at = math.inf
            say("The worker restarts when the code changes.", err=True)
        else:
            lived = time.monotonic() - slot.started
            slot.failures = 1 if lived > 60 else slot.failures + 1
            slot.start_at = time.monotonic() + min(30.0, 0.5 * 2**slot.failures)
            say(f"A worker ended with code {code}; restarting it in {slot.start_at - time.monotonic():.1f} s", err=True)

    def _has_worked(self, slot: _Slot) -> bool:
        return slot.starts > 1 if self.listener_hub is None else self.listener_hub.has_listener

    def _is_over(self, slots: list[_Slot]) -> bool:
        return all(slot.process is None and (slot.done or slot.refused or self._signals) for slot in slots)

    def _forward_signal(self, slots: list[_Slot]) -> None:
        self._signals += 1
        for slot in slots:
            if slot.process is not None:
                slot.process.send_signal(signal.SIGTERM if self._signals == 1 else AT_ONCE)

    def _reload(self, slots: list[_Slot]) -> None:
        say("The code has changed: the worker finishes its running jobs and restarts.")
        for slot in slots:
            slot.start_at, slot.done = 0.0, False
            if slot.process is not None:
                slot.reloading = True
                slot.process.terminate()


class CodeChanges:
    """Whether a Python file below a directory was changed, added or removed since the last check."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen = dict(self._read_times())
        self._next = time.monotonic() + 0.5

    def were_made(self) -> bool:
        if time.monotonic() < self._next:
            return False
        now = dict(self._read_times())
        self._next = time.monotonic() + 0.5
        changed, self._seen = now != self._seen, now
        return changed

    def _read_times(self) -> Iterator[tuple[str, int]]:
        for directory, names, files in os.walk(self._root):
            names[:] = [name for name in names if not name.startswith(".") and name not in _IGNORED_DIRECTORIES]
            for file in files:
                if file.endswith(".py"):
                    path = os.path.join(directory, file)  # noqa: PTH118  (thousands of them, twice a second)
                    try:
                        yield path, os.stat(path).st_mtime_ns  # noqa: PTH116
                    except FileNotFoundError:
                        continue


def stop_signals() -> list[signal.Signals]:
    """Includes SIGHUP, which a closed terminal sends, unless nohup ignores it."""
    hangup = getattr(signal, "SIGHUP", None)
    also = [] if hangup is None or signal.getsignal(hangup) is signal.SIG_IGN else [hangup]
    return [signal.SIGINT, signal.SIGTERM, *also]


def add_child_number(name: str | None) -> str | None:
    """Adds the child's number if there are several, because a name belongs to one node."""
    number = os.environ.get(_NUMBER)
    return name if name is None or number is None else f"{name}/{number}"


def take_hub_socket() -> socket.socket | None:
    """A child's socket to its supervisor's listener hub; its own children do not inherit it."""
    descriptor = os.environ.pop(_HUB_SOCKET, None)
    if descriptor is None:
        return None
    hub_socket = socket.socket(fileno=int(descriptor))
    hub_socket.set_inheritable(False)
    return hub_socket


def is_child() -> bool:
    return PARENT in os.environ


def make_orphan_check() -> Callable[[], bool]:
    """Makes, in a child, a function that says whether its supervisor has died."""
    parent, _ = os.environ.pop(PARENT, None), os.environ.pop(_NUMBER, None)
    if parent is None:
        return lambda: False
    number = int(parent)
    return lambda: os.getppid() != number

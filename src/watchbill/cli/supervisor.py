"""Keeps child processes running: several workers, or one that is restarted when its code changes.

The supervisor passes signals on to its children: the first SIGTERM or Ctrl-C drains them (SIGTERM), the second stops
them at once (SIGINT). A child ignores repeated SIGTERMs, so a service manager that signals all processes does not stop
it at once. A child that dies is replaced, with growing delays if it keeps dying. A child that ends normally (drained by
an operator, no job left) is not replaced. Each child watches its parent, so none outlives the supervisor.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from watchbill.cli.screen import say

AT_ONCE = signal.SIGINT  # the signal that makes a child end without waiting for running jobs
UP_COMMAND = "_WATCHBILL_UP_COMMAND"  # `watchbill up` sets this: how to call `watchbill` from another terminal
PARENT = "_WATCHBILL_SUPERVISOR_PID"
_NUMBER = "_WATCHBILL_CHILD_NUMBER"  # the number of this child; set only if there are several children
RECYCLED = 75  # the exit code of a worker that reached its limit of jobs or memory
_USAGE, _NO_DATABASE, _BROKEN_APP = 2, 3, 4  # exit codes of a worker that cannot start, and should not be restarted
_IGNORED_DIRECTORIES = {"node_modules", "__pycache__", "venv"}


@dataclass
class _ChildSlot:
    number: int
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    has_worked: bool = False  # a child in this slot has ended for another reason than that it could not start
    failures: int = 0
    start_at: float = 0.0
    reloading: bool = False
    done: bool = False
    refused: int = 0  # the exit code of the child, if it could not start


@dataclass
class Supervisor:
    """Starts and restarts worker processes. `run()` returns the exit code when all have ended and none is restarted."""

    command: list[str]
    count: int = 1
    environment: dict[str, str] = field(default_factory=dict)
    environments: Sequence[dict[str, str]] = ()  # what each child gets in addition, in the order of the children
    watched: Path | None = None  # children are restarted when a Python file below this directory changes
    each_second: Callable[[], None] = lambda: None
    _signals: int = 0
    _code: int = 0

    def run(self) -> int:
        slots = [_ChildSlot(number + 1) for number in range(self.count)]
        for number in list_stop_signals():
            signal.signal(number, lambda *_: self._forward_signal(slots))
        changes = CodeChanges(self.watched) if self.watched else None
        next_second = time.monotonic()
        while not self._has_ended(slots):
            if time.monotonic() >= next_second:
                self.each_second()
                next_second = time.monotonic() + 1.0
            for slot in slots:
                self._check_child(slot)
            if changes is not None and not self._signals and changes.were_made():
                self._restart_after_change(slots)
            time.sleep(0.1)
        return self._code or max(slot.refused for slot in slots)

    def _check_child(self, slot: _ChildSlot) -> None:
        if slot.process is None:
            if not self._signals and not slot.done and time.monotonic() >= slot.start_at:
                slot.process, slot.started = self._start_child(slot), time.monotonic()
                slot.refused = 0
                if self._signals:  # a signal came while the child was started, so _forward_signal did not reach it
                    slot.process.terminate()
            return
        code = slot.process.poll()
        if code is not None:
            slot.process = None
            self._handle_exit(slot, code)

    def _start_child(self, slot: _ChildSlot) -> subprocess.Popen[bytes]:
        """Starts a child in a session of its own, so that Ctrl-C at the terminal reaches it only through
        _forward_signal."""
        number = {_NUMBER: str(slot.number)} if self.count > 1 else {}
        own = self.environments[slot.number - 1] if self.environments else {}
        environment = os.environ | self.environment | own | {PARENT: str(os.getpid())} | number
        return subprocess.Popen(self.command, env=environment, start_new_session=True)

    def _handle_exit(self, slot: _ChildSlot, code: int) -> None:
        could_not_start = code in (_USAGE, _NO_DATABASE, _BROKEN_APP) and not slot.has_worked
        slot.has_worked = not could_not_start
        if self._signals:
            self._code = self._code or (max(code, 0) if code != RECYCLED else 0)
        elif slot.reloading or code == RECYCLED:
            slot.reloading, slot.failures = False, 0
        elif code == 0:
            slot.done = True
        elif could_not_start:
            # This child starts again in a second. But if no child can start, the supervisor ends: see _has_ended.
            slot.refused, slot.start_at = code, time.monotonic() + 1.0
        elif code == _BROKEN_APP and self.watched is not None:
            slot.start_at = math.inf
            say("The worker restarts when the code changes.", err=True)
        else:
            lived = time.monotonic() - slot.started
            slot.failures = 1 if lived > 60 else slot.failures + 1
            slot.start_at = time.monotonic() + min(30.0, 0.5 * 2**slot.failures)
            say(f"A worker ended with code {code}; restarting it in {slot.start_at - time.monotonic():.1f} s", err=True)

    def _has_ended(self, slots: list[_ChildSlot]) -> bool:
        return all(slot.process is None and (slot.done or slot.refused or self._signals) for slot in slots)

    def _forward_signal(self, slots: list[_ChildSlot]) -> None:
        self._signals += 1
        for slot in slots:
            if slot.process is not None:
                slot.process.send_signal(signal.SIGTERM if self._signals == 1 else AT_ONCE)

    def _restart_after_change(self, slots: list[_ChildSlot]) -> None:
        say("The code has changed: the worker finishes its running jobs and restarts.")
        for slot in slots:
            slot.start_at, slot.done = 0.0, False
            if slot.process is not None:
                slot.reloading = True
                slot.process.terminate()


class CodeChanges:
    """Finds out whether a Python file below a directory was changed, added or removed since the last check."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen = dict(self._read_file_times())
        self._next = time.monotonic() + 0.5

    def were_made(self) -> bool:
        if time.monotonic() < self._next:
            return False
        now = dict(self._read_file_times())
        self._next = time.monotonic() + 0.5
        changed, self._seen = now != self._seen, now
        return changed

    def _read_file_times(self) -> Iterator[tuple[str, int]]:
        for directory, names, files in os.walk(self._root):
            names[:] = [name for name in names if not name.startswith(".") and name not in _IGNORED_DIRECTORIES]
            for file in files:
                if file.endswith(".py"):
                    path = os.path.join(directory, file)  # noqa: PTH118  (fast: for thousands of files, twice a second)
                    try:
                        yield path, os.stat(path).st_mtime_ns  # noqa: PTH116
                    except FileNotFoundError:
                        continue


def list_stop_signals() -> list[signal.Signals]:
    """Lists the signals that stop a worker. SIGHUP, which a closed terminal sends, is one of them unless nohup has made
    this process ignore it."""
    hangup = getattr(signal, "SIGHUP", None)
    also = [] if hangup is None or signal.getsignal(hangup) is signal.SIG_IGN else [hangup]
    return [signal.SIGINT, signal.SIGTERM, *also]


def add_child_number(name: str | None) -> str | None:
    """Adds the number of this child to the node's name if there are several children, because each needs its own
    name."""
    number = os.environ.get(_NUMBER)
    return name if name is None or number is None else f"{name}/{number}"


def add_child_port(port: int | None) -> int | None:
    """Returns the port of this child: one of those after the port of the settings, at which the supervisor answers."""
    number = os.environ.get(_NUMBER)
    return port if port is None or number is None else port + int(number)


def is_child() -> bool:
    return PARENT in os.environ


def make_orphan_check() -> Callable[[], bool]:
    """Makes, in a child, a function that says whether its supervisor has died."""
    parent, _ = os.environ.pop(PARENT, None), os.environ.pop(_NUMBER, None)
    if parent is None:
        return lambda: False
    number = int(parent)
    return lambda: os.getppid() != number

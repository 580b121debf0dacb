"""Keeps child processes running: several workers side by side, or one that is started anew when its code changes.

Signals reach the children through us: the first SIGTERM or Ctrl-C drains them (SIGTERM), the second stops them at once
(SIGINT), so that a service manager which signals all processes does not make two of one. A child that dies is replaced,
later and later if it keeps dying; one that ends in order (drained by an operator, nothing left to do) is not, and
leaves the others to us. No child outlives us: each watches its parent.
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

import typer

if TYPE_CHECKING:
    from watchbill.worker.switchboard import Switchboard

AT_ONCE = signal.SIGINT  # to a child: do not wait for what runs
PARENT = "_WATCHBILL_SUPERVISOR_PID"
_NUMBER = "_WATCHBILL_CHILD_NUMBER"  # of several
_PLUG = "_WATCHBILL_PLUG"  # the descriptor of its socket to the switchboard
RECYCLED = 75  # a worker that reached its limit of jobs or memory, and wants to be replaced
_USAGE, _NO_DATABASE, _BROKEN_APP = 2, 3, 4  # said before any has worked, these would be said again
_IGNORED = {"node_modules", "__pycache__", "venv"}


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
    refused: int = 0  # the code with which it could not begin


@dataclass
class Supervisor:
    """`run()` returns the exit code when all children have ended for good."""

    command: list[str]
    count: int = 1
    environment: dict[str, str] = field(default_factory=dict)
    watched: Path | None = None  # start anew when a Python file below it changes
    switchboard: Switchboard | None = None  # listens for all of them
    _signals: int = 0
    _code: int = 0

    def run(self) -> int:
        slots = [_Slot(number + 1) for number in range(self.count)]
        for number in stop_signals():
            signal.signal(number, lambda *_: self._pass_on(slots))
        files = Changes(self.watched) if self.watched else None
        while not self._over(slots):
            for slot in slots:
                self._tend(slot)
            if files is not None and not self._signals and files.happened():
                self._reload(slots)
            time.sleep(0.1)
        return self._code or max(slot.refused for slot in slots)

    def _tend(self, slot: _Slot) -> None:
        if slot.process is None:
            if not self._signals and not slot.done and time.monotonic() >= slot.start_at:
                slot.process, slot.started, slot.starts = self._start(slot), time.monotonic(), slot.starts + 1
                slot.refused = 0
                if self._signals:  # came while it was being started, when nobody could pass it on
                    slot.process.terminate()
            return
        code = slot.process.poll()
        if code is not None:
            slot.process = None
            self._ended(slot, code)

    def _start(self, slot: _Slot) -> subprocess.Popen[bytes]:
        """In a session of its own: Ctrl-C at the terminal comes to us, and from us to it."""
        number = {_NUMBER: str(slot.number)} if self.count > 1 else {}
        environment = os.environ | self.environment | {PARENT: str(os.getpid())} | number
        if self.switchboard is None:
            return subprocess.Popen(self.command, env=environment, start_new_session=True)
        with self.switchboard.plug() as plug:
            environment[_PLUG] = str(plug.fileno())
            return subprocess.Popen(self.command, env=environment, start_new_session=True, pass_fds=[plug.fileno()])

    def _ended(self, slot: _Slot, code: int) -> None:
        if self._signals:
            self._code = self._code or (max(code, 0) if code != RECYCLED else 0)
        elif slot.reloading or code == RECYCLED:
            slot.reloading, slot.failures = False, 0
        elif code == 0:
            slot.done = True
        elif code in (_USAGE, _NO_DATABASE, _BROKEN_APP) and not self._has_worked(slot):
            slot.refused, slot.start_at = code, time.monotonic() + 1.0  # if others can begin meanwhile, so may it
        elif code == _BROKEN_APP and self.watched is not None:
            slot.start_at = math.inf
            typer.echo("It starts again when the code changes.", err=True)
        else:
            lived = time.monotonic() - slot.started
            slot.failures = 1 if lived > 60 else slot.failures + 1
            slot.start_at = time.monotonic() + min(30.0, 0.5 * 2**slot.failures)
            typer.echo(
                f"A worker ended with code {code}; another starts in {slot.start_at - time.monotonic():.1f} s", err=True
            )

    def _has_worked(self, slot: _Slot) -> bool:
        return slot.starts > 1 if self.switchboard is None else self.switchboard.called

    def _over(self, slots: list[_Slot]) -> bool:
        return all(slot.process is None and (slot.done or slot.refused or self._signals) for slot in slots)

    def _pass_on(self, slots: list[_Slot]) -> None:
        self._signals += 1
        for slot in slots:
            if slot.process is not None:
                slot.process.send_signal(signal.SIGTERM if self._signals == 1 else AT_ONCE)

    def _reload(self, slots: list[_Slot]) -> None:
        typer.echo("The code has changed: running jobs may finish, then it starts anew.")
        for slot in slots:
            slot.start_at, slot.done = 0.0, False
            if slot.process is not None:
                slot.reloading = True
                slot.process.terminate()


class Changes:
    """Whether a Python file below a directory was changed, added or removed since the last look."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen = dict(self._look())
        self._next = time.monotonic() + 0.5

    def happened(self) -> bool:
        if time.monotonic() < self._next:
            return False
        now = dict(self._look())
        self._next = time.monotonic() + 0.5
        changed, self._seen = now != self._seen, now
        return changed

    def _look(self) -> Iterator[tuple[str, int]]:
        for directory, names, files in os.walk(self._root):
            names[:] = [name for name in names if not name.startswith(".") and name not in _IGNORED]
            for file in files:
                if file.endswith(".py"):
                    path = os.path.join(directory, file)  # noqa: PTH118  (thousands of them, twice a second)
                    try:
                        yield path, os.stat(path).st_mtime_ns  # noqa: PTH116
                    except FileNotFoundError:
                        continue


def stop_signals() -> list[signal.Signals]:
    """Also that of a terminal that was closed, unless nohup has told us to outlive it."""
    hangup = getattr(signal, "SIGHUP", None)
    heard = [] if hangup is None or signal.getsignal(hangup) is signal.SIG_IGN else [hangup]
    return [signal.SIGINT, signal.SIGTERM, *heard]


def own_name(name: str | None) -> str | None:
    """Of several children with one name each has its number in it: a name is one node's."""
    number = os.environ.get(_NUMBER)
    return name if name is None or number is None else f"{name}/{number}"


def take_plug() -> socket.socket | None:
    """A child's socket to its supervisor's switchboard; no grandchild inherits it."""
    descriptor = os.environ.pop(_PLUG, None)
    if descriptor is None:
        return None
    plug = socket.socket(fileno=int(descriptor))
    plug.set_inheritable(False)
    return plug


def is_child() -> bool:
    return PARENT in os.environ


def parent_gone() -> Callable[[], bool]:
    """Asked by a child: has its supervisor died?"""
    parent, _ = os.environ.pop(PARENT, None), os.environ.pop(_NUMBER, None)
    if parent is None:
        return lambda: False
    number = int(parent)
    return lambda: os.getppid() != number

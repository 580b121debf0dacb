"""The hold that a process has on the embedded server of its project."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from watchbill.errors import EmbeddedError
from watchbill.postgres.embedded import supervisor
from watchbill.postgres.embedded.home import DATABASE, PORT, Home, find_home
from watchbill.postgres.embedded.launch import Launch, start_watcher
from watchbill.postgres.embedded.leftovers import delete_temporary

_PATIENCE = 60.0


@dataclass
class EmbeddedServer:
    """One process's hold on a project's server, which runs as long as there is at least one."""

    url: str
    version: str
    directory: Path
    started: bool
    elapsed: float
    _home: Home = field(repr=False)
    _hold: int | None = field(repr=False)
    _holder: int = field(repr=False, default_factory=os.getpid)

    @classmethod
    def acquire(
        cls, project: Path, *, binaries: str = "auto", settings: Mapping[str, str] | None = None
    ) -> EmbeddedServer:
        """Join the project's server, and start it first if it does not run.

        `binaries` and `settings` (PostgreSQL's, by name) count for a start; a server that runs is taken as it is.
        """
        began = time.perf_counter()
        with _explained(project):
            home = find_home(project)
            home.refuse_if_foreign()
            launch = Launch(home, binaries, settings or {})
            if supervisor.running_pid(home.data) is None:
                launch.check()
            home.make()
            hold, started, version = _join(launch)
        return cls(home.url(), version, home.directory, started, time.perf_counter() - began, home, hold)

    def release(self) -> None:
        """Let go; the last one stops the server, and returns when it has stopped. A second call does nothing.

        A forked child has a hold of its own by inheritance: it may let go too, and takes nothing from its parent.
        """
        hold, self._hold = self._hold, None
        if hold is None:
            return
        os.close(hold)
        if os.getpid() != self._holder:
            return
        # The home may have been deleted meanwhile; a server that finds its data gone stops by itself.
        with _explained(self.directory.parent), suppress(FileNotFoundError):
            if not supervisor.stop_unless_held(self._home.root):
                raise EmbeddedError(f"The server did not stop.\n{_last_words(self._home)}")
        delete_temporary()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def running_url(project: Path) -> str | None:
    """The address of the project's server if it runs. Starts nothing and holds nothing."""
    try:
        home = find_home(project) if (project / ".watchbill").exists() else None
    except (EmbeddedError, OSError):
        return None
    if home is None or supervisor.running_pid(home.data) is None or not supervisor.says_ready(home.data):
        return None  # one that still starts up would refuse whoever comes
    if not _answers(home):
        return None
    return home.url()


def _answers(home: Home) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        try:
            client.connect(str(home.socket_directory / f".s.PGSQL.{PORT}"))
        except OSError:
            return False
    return True


def _join(launch: Launch) -> tuple[int, bool, str]:
    """Become a holder, then see to it that the server runs. If that fails, the watcher clears up."""
    with supervisor.change(launch.home.root):
        hold = supervisor.hold(launch.home.root)
        try:
            start_watcher(launch.home)
            started, version = _bring_up(launch)
        except BaseException:
            os.close(hold)
            raise
    return hold, started, version


def _bring_up(launch: Launch) -> tuple[bool, str]:
    """Whether it had to be started, and its version. Looks often: a warm server is ready within some 30 ms."""
    home, started, refusal = launch.home, False, "it is not ready"
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            # Asked earlier, it would fill its log with refusals.
            if supervisor.says_ready(home.data):
                return started, _greet(home)
        except psycopg.OperationalError as error:
            refusal = str(error)
        if not started and supervisor.running_pid(home.data) is None:
            launch.run()
            started = True
        elif started and supervisor.is_quiet(home.root):
            raise EmbeddedError(f"The server ended as soon as it was started.\n{_last_words(home)}")
        if time.monotonic() > deadline:
            raise EmbeddedError(f"The server does not answer: {refusal}\n{_last_words(home)}")
        time.sleep(supervisor.PAUSE)


def _greet(home: Home) -> str:
    """Ask for the version, and make our database if it is not there (under `change`, so nobody else is making it)."""
    with psycopg.connect(home.url("postgres"), autocommit=True, connect_timeout=5) as connection:
        if not connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).rowcount:
            connection.execute(f"CREATE DATABASE {DATABASE}")
        return (connection.info.parameter_status("server_version") or "").split(" ")[0]


def _last_words(home: Home, lines: int = 10) -> str:
    try:
        tail = home.log.read_text(errors="replace").splitlines()[-lines:]
    except OSError:
        tail = []
    return "\n".join([f"The end of {home.log}:", *tail])


@contextmanager
def _explained(project: Path) -> Iterator[None]:
    if sys.platform == "win32":
        raise EmbeddedError(
            "The embedded server does not run on Windows.", hint="Name a database in WATCHBILL_DATABASE_URL."
        )
    try:
        yield
    except TimeoutError as error:
        raise EmbeddedError(
            f"The embedded server of {project} is not to be had: {error}",
            hint="Another process starts or stops it without an end, or sessions of a killed server are still at work.",
        ) from error
    except OSError as error:
        raise EmbeddedError(
            f"The embedded server of {project} cannot be used: {error}",
            hint="Watchbill must be able to write there, or needs a database of your own in WATCHBILL_DATABASE_URL.",
        ) from error

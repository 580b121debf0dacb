"""Lets a process use the embedded server of its project. The server runs while at least one process uses it."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psycopg

from watchbill.errors import EmbeddedError
from watchbill.postgres.embedded import supervisor
from watchbill.postgres.embedded.home import DATABASE, PORT, Home, delete_leftovers_of_temporary_projects, find_home
from watchbill.postgres.embedded.launch import Launch, start_watcher

_START_TIMEOUT_SECONDS = 60.0
_LOG_LINES_IN_ERRORS = 10


@dataclass
class EmbeddedServer:
    """The right of one process to use a project's server. The server runs as long as at least one process has it."""

    url: str
    version: str
    directory: Path
    started: bool
    elapsed: float
    _launch: Launch = field(repr=False)
    _hold: int | None = field(repr=False)
    _holder: int = field(repr=False, default_factory=os.getpid)

    @classmethod
    def acquire(
        cls, project: Path, *, binaries: str = "auto", settings: Mapping[str, str] | None = None
    ) -> EmbeddedServer:
        """Makes this process a user of the project's server, and starts the server if it does not run.

        `binaries` and `settings` (PostgreSQL's, by name) apply only if this call starts the server.
        """
        began = time.perf_counter()
        with _explain_errors(project):
            home = find_home(project)
            home.ensure_own()
            launch = Launch(home, binaries, settings or {})
            if supervisor.find_running_pid(home.data) is None:
                launch.check()
            home.make()
            hold, started, version = _acquire_server(launch)
        return cls(home.url(), version, home.directory, started, time.perf_counter() - began, launch, hold)

    @property
    def log(self) -> Path:
        return self._launch.home.log

    @property
    def is_running(self) -> bool:
        return supervisor.find_running_pid(self._launch.home.data) is not None

    def start_again(self) -> None:
        """Starts the server if it has ended; its address stays the same."""
        home = self._launch.home
        with _explain_errors(self.directory.parent), supervisor.lock_for_change(home.root):
            _ensure_running(self._launch)

    def release(self) -> None:
        """Ends the use of the server by this process. The last process that uses the server stops it, and waits until
        it has stopped. A second call does nothing.

        A forked child uses the server by itself: it may call this without affecting its parent.
        """
        hold, self._hold = self._hold, None
        if hold is None:
            return
        os.close(hold)
        if os.getpid() != self._holder:
            return
        # If the home was deleted meanwhile, the server notices that its data is gone and stops by itself.
        with _explain_errors(self.directory.parent), suppress(FileNotFoundError):
            if not supervisor.stop_unless_held(self._launch.home.root):
                raise EmbeddedError(f"The server did not stop.\n{_read_log_end(self._launch.home)}")
        delete_leftovers_of_temporary_projects()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def find_running_url(project: Path) -> str | None:
    """Returns the address of the project's server if it runs. Does not start the server, and does not keep it
    running."""
    try:
        home = find_home(project) if (project / ".watchbill").exists() else None
    except (EmbeddedError, OSError):
        return None
    # Also asks whether the server is ready, because a server that is still starting would refuse connections.
    if home is None or supervisor.find_running_pid(home.data) is None or not supervisor.is_marked_ready(home.data):
        return None
    return home.url() if _accepts_connections(home) else None


def has_data(project: Path) -> bool:
    """Whether the project has an embedded server, running or not."""
    try:
        return (project / ".watchbill").exists() and find_home(project).data.exists()
    except (EmbeddedError, OSError):
        return False


def _accepts_connections(home: Home) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        try:
            client.connect(str(home.socket_directory / f".s.PGSQL.{PORT}"))
        except OSError:
            return False
    return True


def _acquire_server(launch: Launch) -> tuple[int, bool, str]:
    """Makes this process a user of the server, then makes sure that the server runs. If that fails, the watcher cleans
    up."""
    with supervisor.lock_for_change(launch.home.root):
        hold = supervisor.add_holder(launch.home.root)
        try:
            start_watcher(launch.home)
            started, version = _ensure_running(launch)
        except BaseException:
            os.close(hold)
            raise
    return hold, started, version


def _ensure_running(launch: Launch) -> tuple[bool, str]:
    """Starts the server unless it runs. Returns whether it was started, and its version. Polls often, because a server
    whose files are in memory is ready within about 30 ms."""
    home, started, refusal = launch.home, False, "it is not ready"
    deadline = time.monotonic() + _START_TIMEOUT_SECONDS
    while True:
        try:
            # Connects only to a server that is ready: before that, each try would add a refusal to the server's log.
            if supervisor.is_marked_ready(home.data):
                return started, _prepare_database(home)
        except psycopg.OperationalError as error:
            refusal = str(error)
        if not started and supervisor.find_running_pid(home.data) is None:
            launch.run()
            started = True
        elif started and supervisor.has_ended(home.root):
            raise EmbeddedError(f"The server ended as soon as it was started.\n{_read_log_end(home)}")
        if time.monotonic() > deadline:
            raise EmbeddedError(f"The server does not answer: {refusal}\n{_read_log_end(home)}")
        time.sleep(supervisor.POLL_SECONDS)


def _prepare_database(home: Home) -> str:
    """Creates Watchbill's database if it is missing. Returns the version of the server. The caller holds
    change.lock."""
    with psycopg.connect(home.url("postgres"), autocommit=True, connect_timeout=5) as connection:
        if not connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).rowcount:
            connection.execute(f"CREATE DATABASE {DATABASE}")
        return (connection.info.parameter_status("server_version") or "").split(" ")[0]


def _read_log_end(home: Home) -> str:
    try:
        lines = home.log.read_text(errors="replace").splitlines()[-_LOG_LINES_IN_ERRORS:]
    except OSError:
        lines = []
    return "\n".join([f"The end of {home.log}:", *lines])


@contextmanager
def _explain_errors(project: Path) -> Iterator[None]:
    own_database = "set WATCHBILL_DATABASE_URL to a database of your own."
    if sys.platform == "win32":
        raise EmbeddedError("The embedded server does not run on Windows.", hint=own_database.capitalize())
    try:
        yield
    except TimeoutError as error:
        raise EmbeddedError(
            f"The embedded server of {project} is busy: {error}",
            hint="Another process keeps starting or stopping it, or sessions of a killed server are still running.",
        ) from error
    except OSError as error:
        raise EmbeddedError(
            f"The embedded server of {project} cannot be used: {error}",
            hint=f"Let Watchbill write there, or {own_database}",
        ) from error

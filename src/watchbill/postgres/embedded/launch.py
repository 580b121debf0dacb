"""Starts the embedded server, and the watcher that stops it when its holders were killed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from watchbill.errors import EmbeddedError
from watchbill.postgres.embedded import supervisor
from watchbill.postgres.embedded.account import own_account, server_account
from watchbill.postgres.embedded.binaries_copy import programs_for
from watchbill.postgres.embedded.data_directory import choose_binaries, make_data
from watchbill.postgres.embedded.home import PORT, Home
from watchbill.postgres.embedded.sockets import make_socket_directory

_FOR_DEVELOPMENT = {
    "max_connections": "200",
    "shared_buffers": "64MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    "cluster_name": "watchbill",
}
_GUARD = {"listen_addresses": "", "unix_socket_permissions": "0700", "port": PORT}
_LARGEST_LOG = 10_000_000


@dataclass(frozen=True)
class Launch:
    """How to start the server of a home. Settings are PostgreSQL's, by name; they reach a server only at its start."""

    home: Home
    choice: str
    settings: Mapping[str, str]

    def check(self) -> None:
        """Raise what can be known before anything is made or changed."""
        reserved = self.settings.keys() & {*_GUARD, "unix_socket_directories"}
        if reserved:
            raise EmbeddedError(
                f"{', '.join(sorted(reserved))} cannot be set: the embedded server's guard is its socket."
            )
        server_account(self.home.data)
        choose_binaries(self.home.data, self.choice)

    def run(self) -> None:
        """Start the server, and its data directory first if need be (under `change`). It is not ready on return."""
        home = self.home
        lock = supervisor.open_lock(home.root / "server.lock")
        try:
            # Sessions of a server that was killed may still be at work.
            supervisor.wait_for_lock(lock, supervisor.PATIENCE)
            account = server_account(home.data)
            programs = programs_for(choose_binaries(home.data, self.choice), account)
            make_data(home.data, programs, account, sync=self.settings.get("fsync") != "off", lock=lock)
            _forget_dead_server(home.data)
            sockets = make_socket_directory(home, account)
            command = [str(programs / "postgres"), "-D", str(home.data), *self._options(sockets)]
            with _log(home) as log:
                account.start(command, output=log, keep=lock)
        finally:
            os.close(lock)

    def _options(self, sockets: Path) -> Iterator[str]:
        directories = '"{}"'.format(str(sockets).replace('"', '""'))
        fixed = {**_GUARD, "unix_socket_directories": directories}
        for name, value in {**_FOR_DEVELOPMENT, **self.settings, **fixed}.items():
            yield from ("-c", f"{name}={value}")


def _forget_dead_server(data: Path) -> None:
    """PostgreSQL does not start while the number in postmaster.pid is in use, be it by a stranger; we know better.

    With a free number the file stays: then PostgreSQL makes its own checks, which know of more than the number.
    """
    pid = supervisor.recorded_pid(data)
    if pid is not None and _is_in_use(pid) and not supervisor.is_server(pid, data):
        (data / "postmaster.pid").unlink()


def _is_in_use(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # by somebody else
    return True


def start_watcher(home: Home) -> None:
    """Unless there is one (under `change`). It has its lock from birth, so there is never a second."""
    lock = supervisor.open_lock(home.root / "watcher.lock")
    try:
        if supervisor.try_lock(lock):
            # Isolated, and without the site packages: it needs the standard library only.
            command = [sys.executable or "python3", "-I", "-S", supervisor.__file__, str(home.root), str(lock)]
            with _log(home) as log:
                own_account().start(command, output=log, keep=lock)
    finally:
        os.close(lock)


@contextmanager
def _log(home: Home) -> Iterator[int]:
    if home.log.exists() and home.log.stat().st_size > _LARGEST_LOG:
        home.log.replace(home.log.with_suffix(".log.1"))
    descriptor = os.open(home.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)

"""Starts the embedded server, and the watcher process that stops it when the processes that use it were killed.

Who may connect. The server listens on a socket in a directory that only its user, and root, can enter: the kernel
checks the mode of the directory (0700) and of the socket (0700 too). So the server accepts everyone who can open the
socket, as any role (`trust`). The alternative, `peer`, would not keep out any other user. It would also need a map from
root to each role, so that neither root nor a test could use a role that was just created.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from watchbill.errors import EmbeddedError
from watchbill.postgres.embedded import supervisor
from watchbill.postgres.embedded.account import Account, find_own_account, find_server_account
from watchbill.postgres.embedded.binaries import Binaries, find_binaries, find_programs, search_binaries
from watchbill.postgres.embedded.home import PORT, Home, write_path

_SERVER_DEFAULTS = {
    "max_connections": "200",
    "shared_buffers": "64MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    "cluster_name": "watchbill",
}
_FIXED_SETTINGS = {"listen_addresses": "", "unix_socket_permissions": "0700", "port": PORT}
# The locale C sorts by bytes, so no update of a library can silently change the order of an index.
_INITDB_OPTIONS = ("--username=postgres", "--encoding=UTF8", "--locale=C", "--no-instructions")
_INITDB_ACCESS = ("--auth-local=trust", "--auth-host=reject")
_UNFINISHED_DATA = "data.new-"
_MAX_LOG_BYTES = 10_000_000
# The kernel's limit for the path of a socket, without the byte that ends it.
_MAX_SOCKET_PATH_BYTES = 107 if sys.platform == "linux" else 103


@dataclass(frozen=True)
class Launch:
    """How to start the server of a project. `settings` are PostgreSQL's own, by name; they apply at the start only."""

    home: Home
    choice: str
    settings: Mapping[str, str]

    def check(self) -> None:
        """Raises if the server cannot be started, as far as this is known before any file is created or changed."""
        reserved = self.settings.keys() & {*_FIXED_SETTINGS, "unix_socket_directories"}
        if reserved:
            names = ", ".join(sorted(reserved))
            raise EmbeddedError(f"{names} cannot be set: the embedded server is protected by its socket.")
        find_server_account(self.home.data)
        choose_binaries(self.home.data, self.choice)

    def run(self) -> None:
        """Starts the server, and creates its data directory first if it is missing. Returns before the server is ready.

        The caller holds change.lock.
        """
        home = self.home
        with supervisor.open_lock_for_block(home.root / "server.lock") as lock:
            # Waits for processes of an earlier server: if it was killed, some of its sessions may still run.
            supervisor.wait_for_lock(lock, supervisor.LOCK_TIMEOUT_SECONDS)
            account = find_server_account(home.data)
            programs = find_programs(choose_binaries(home.data, self.choice), account)
            _make_data(home.data, programs, account, sync=self.settings.get("fsync") != "off", lock=lock)
            _remove_stale_pid(home.data)
            sockets = _make_socket_directory(home, account)
            command = [str(programs / "postgres"), "-D", str(home.data), *self._make_options(sockets)]
            with _open_log(home) as log:
                account.start(command, output=log, keep=lock)

    def _make_options(self, sockets: Path) -> Iterator[str]:
        directories = '"{}"'.format(str(sockets).replace('"', '""'))
        fixed = {**_FIXED_SETTINGS, "unix_socket_directories": directories}
        for name, value in {**_SERVER_DEFAULTS, **self.settings, **fixed}.items():
            yield from ("-c", f"{name}={value}")


def start_watcher(home: Home) -> None:
    """Starts the watcher unless one runs. The watcher inherits watcher.lock, so there is never a second one. The caller
    holds change.lock."""
    with supervisor.open_lock_for_block(home.root / "watcher.lock") as lock:
        if supervisor.try_lock(lock):
            # -I and -S: the watcher uses only the standard library, and the environment must not change what it runs.
            command = [sys.executable or "python3", "-I", "-S", supervisor.__file__, str(home.root), str(lock)]
            with _open_log(home) as log:
                find_own_account().start(command, output=log, keep=lock)


@contextmanager
def _open_log(home: Home) -> Iterator[int]:
    if home.log.exists() and home.log.stat().st_size > _MAX_LOG_BYTES:
        home.log.replace(home.log.with_suffix(".log.1"))
    descriptor = os.open(home.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def choose_binaries(data: Path, choice: str) -> Binaries:
    """Returns the PostgreSQL for this data directory: one of the same major version, or for a new directory the first
    that is found."""
    major = _read_major(data)
    if major is None:
        return find_binaries(choice)
    found, _ = search_binaries(choice)
    for binaries in found:
        if binaries.major == major:
            return binaries
    others = ", ".join(map(str, found)) or "none"
    raise EmbeddedError(
        f"{data} was made by PostgreSQL {major}. Found: {others}.",
        hint=f"Install PostgreSQL {major}, or set embedded_binaries to the directory of its programs. To upgrade, dump "
        f"the databases with it (pg_dumpall), move {data} away, and restore them. Nothing was changed.",
    )


def _read_major(data: Path) -> int | None:
    """Reads the major version of the data directory; None if there is no such directory yet."""
    try:
        return int((data / "PG_VERSION").read_text())
    except (FileNotFoundError, ValueError) as error:
        if isinstance(error, ValueError) or (data.exists() and any(data.iterdir())):
            message = f"{data} is not a data directory of PostgreSQL."
            raise EmbeddedError(message, hint="Move it away. Nothing was changed.") from None
        return None


def _make_data(data: Path, programs: Path, account: Account, *, sync: bool, lock: int) -> None:
    """Creates the data directory unless it exists. The caller holds server.lock, so that no other initdb runs.

    initdb writes to a temporary directory, which is renamed at the end, so that `data` is always complete.
    """
    for unfinished in data.parent.glob(f"{_UNFINISHED_DATA}*"):
        shutil.rmtree(unfinished)
    if (data / "PG_VERSION").exists():
        return
    draft = Path(tempfile.mkdtemp(prefix=_UNFINISHED_DATA, dir=data.parent))
    try:
        account.take_ownership(draft)
        command = [str(programs / "initdb"), f"--pgdata={draft}", *_INITDB_OPTIONS, *_INITDB_ACCESS]
        done = account.run(command if sync else [*command, "--no-sync"], keep=[lock])
        if done.returncode != 0:
            raise EmbeddedError(f"initdb failed as user {account.name}:\n{done.stdout.strip()[-2000:]}")
        draft.rename(data)
        # Writes the parent directory to the disk, because the new name survives a power cut only then.
        descriptor = os.open(data.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _remove_stale_pid(data: Path) -> None:
    """Deletes postmaster.pid if another program has got the process number in it: PostgreSQL would not start then.

    If no process has that number the file stays, because PostgreSQL makes its own checks, which cover more.
    """
    pid = supervisor.read_recorded_pid(data)
    if pid is not None and _is_process_number_used(pid) and not supervisor.is_server(pid, data):
        (data / "postmaster.pid").unlink()


def _is_process_number_used(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # PermissionError: the process exists, and runs as another user
    return True


def _make_socket_directory(home: Home, account: Account) -> Path:
    """Creates a new directory for the socket at each start, so that the lock file of a killed server is not in the way.
    The caller holds change.lock."""
    record, directory = home.root / "socket-directory", home.root / "socket"
    if record.exists():
        if _is_private(home.socket_directory, account):  # in /tmp, another user may have made this directory since
            shutil.rmtree(home.socket_directory)
        record.unlink()
    if directory.exists():
        shutil.rmtree(directory)
    if _can_hold_socket(directory):
        directory.mkdir(mode=0o700)
    else:
        directory = Path(tempfile.mkdtemp(prefix="watchbill-", dir=_find_short_place(account)))
        write_path(record, directory)
    account.take_ownership(directory)
    return directory


def _can_hold_socket(directory: Path) -> bool:
    """Whether a socket in this directory works: the path must be short enough, and have no comma, which libpq takes for
    the start of the next host."""
    path = str(directory / f".s.PGSQL.{PORT}")
    return len(os.fsencode(path)) <= _MAX_SOCKET_PATH_BYTES and path.isprintable() and "," not in path


def _find_short_place(account: Account) -> Path:
    """Finds a directory with a short path. Does not look in $TMPDIR, whose path may be long."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or "/nonexistent")
    if not account.is_other and _is_private(runtime, account) and _can_hold_socket(runtime / "watchbill-12345678"):
        return runtime
    return Path("/tmp")  # noqa: S108 - mkdtemp makes a directory of its own there


def _is_private(directory: Path, account: Account) -> bool:
    try:
        status = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == account.uid and stat.S_IMODE(status.st_mode) == 0o700

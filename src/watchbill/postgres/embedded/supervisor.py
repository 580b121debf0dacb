"""Knows which processes use ("hold") an embedded server, finds the server's process, and stops it after the last
holder.

Four files in the server's home carry locks (flock). The kernel releases a lock when its process ends, however it ends:

    change.lock    held by the one process that starts or stops the server
    holders.lock   shared by all holders; a process that can lock it exclusively knows that there are none
    server.lock    inherited by initdb and by every process of the server; free means that all of them have ended
    watcher.lock   inherited by the watcher, of which a home has one

holders.lock is taken only under change.lock, so no process joins while another decides to stop the server. The one
exception is the watcher: it waits for holders.lock without change.lock, and unlocks it at once, before it asks for
change.lock. The watcher is there for holders that are killed; one that ends normally stops the server itself.

A process number in a file is never enough to signal a process: it must be the server of this very data directory.

This file uses the standard library only, and nothing of Watchbill, because the watcher runs it as a script: that
process lives as long as the server, so it should start fast and stay small.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl

LOCKS = ("change.lock", "holders.lock", "server.lock", "watcher.lock")
POLL_SECONDS = 0.005
# A process holds a lock for up to a minute while the server starts, and for 40 seconds while it stops.
LOCK_TIMEOUT_SECONDS = 90.0
# Signals to send one after the other, each with the seconds to wait for the end of the server. SIGINT ends all sessions
# and loses nothing; after SIGQUIT the next start needs recovery.
_STOP_SIGNALS = ((signal.SIGINT, 30.0), (getattr(signal, "SIGQUIT", signal.SIGTERM), 10.0))


@contextmanager
def lock_for_change(home: Path, timeout: float | None = LOCK_TIMEOUT_SECONDS) -> Iterator[None]:
    """Holds change.lock, the right to start or stop the server. A timeout of None waits for ever."""
    with open_lock_for_block(home / "change.lock") as descriptor:
        try:
            wait_for_lock(descriptor, timeout)
            yield
        finally:
            # Unlocks before the close: a child that was forked meanwhile has a copy of the descriptor, and keeps the
            # lock.
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def add_holder(home: Path) -> int:
    """Makes this process a holder until the returned descriptor is closed or the process ends. The caller holds
    change.lock."""
    descriptor = open_lock(home / "holders.lock")
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def stop_unless_held(home: Path) -> bool:
    """Stops the server if it has no holder. Returns False if the server did not stop."""
    with lock_for_change(home):
        return is_held(home) or stop_server(home)


def stop_server(home: Path) -> bool:
    """Stops the server. Returns whether all of its processes have ended. The caller holds change.lock.

    Waits for server.lock, which all processes of the server hold: a server that has just started has no postmaster.pid.
    """
    for signal_number, seconds in _STOP_SIGNALS:
        deadline = time.monotonic() + seconds
        is_signalled = False
        while time.monotonic() < deadline:
            if has_ended(home):
                _remove_socket_directory(home)
                return True
            is_signalled = is_signalled or signal_server(home / "data", signal_number)
            time.sleep(POLL_SECONDS)
    return False


def signal_server(data: Path, signal_number: int) -> bool:
    """Sends a signal to the server of this data directory. Returns False if the server does not run.

    Opens a descriptor of the process before checking it, so that no other process can get its number in between.
    """
    pid = read_recorded_pid(data)
    if pid is None:
        return False
    descriptor = _open_process(pid)
    try:
        if not is_server(pid, data):
            return False
        if descriptor is not None and sys.platform == "linux":
            signal.pidfd_send_signal(descriptor, signal_number)
        else:
            os.kill(pid, signal_number)
    except ProcessLookupError:
        return False
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return True


def find_running_pid(data: Path) -> int | None:
    """Returns the process number of this data directory's server, or None if the server does not run."""
    pid = read_recorded_pid(data)
    return pid if pid is not None and is_server(pid, data) else None


def read_recorded_pid(data: Path) -> int | None:
    """Returns the process number in postmaster.pid, which may be outdated."""
    try:
        pid = int((data / "postmaster.pid").read_bytes().split(b"\n", 1)[0])
    except (OSError, ValueError):
        return None
    return pid if pid > 0 else None


def is_marked_ready(data: Path) -> bool:
    """Whether the last line of postmaster.pid says `ready`. The file of a killed server still says so."""
    try:
        return (data / "postmaster.pid").read_bytes().split()[-1:] == [b"ready"]
    except OSError:
        return False


def is_server(pid: int, data: Path) -> bool:
    """Whether the process is the server of this data directory, judged by its program and its working directory."""
    process = Path("/proc", str(pid))
    if not Path("/proc/self").exists():
        return _is_server_by_ps(pid, data)
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        if not _is_postmaster(words[0]):
            return False
        try:
            return _is_postmaster(os.fsencode((process / "exe").readlink())) and (process / "cwd").samefile(data)
        except PermissionError:
            # In a container, root may not inspect processes of other users. But everyone may read their command lines.
            return words[1:3] == [b"-D", os.fsencode(data)]
    except OSError:
        return False


def _is_postmaster(program: bytes) -> bool:
    """Whether this first word of a command line is the server's main process: a session has `postgres: ...` there. The
    word may end with ` (deleted)`, because an upgrade may have deleted the program."""
    return os.path.basename(program.removesuffix(b" (deleted)")) == b"postgres"  # noqa: PTH119


def _is_server_by_ps(pid: int, data: Path) -> bool:
    listing = subprocess.run(["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False)
    program, _, rest = listing.stdout.partition(b" -D ")
    return _is_postmaster(program) and f"{rest.decode(errors='surrogateescape')} ".startswith(f"{data} ")


def _open_process(pid: int) -> int | None:
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def has_ended(home: Path) -> bool:
    """Whether no process of the server or of initdb is left. The caller holds change.lock.

    Also checks the process itself, because a server that was restarted by hand (pg_ctl) holds no lock.
    """
    with open_lock_for_block(home / "server.lock") as descriptor:
        return try_lock(descriptor) and find_running_pid(home / "data") is None


def is_held(home: Path) -> bool:
    """Whether the server has a holder. The caller holds change.lock."""
    with open_lock_for_block(home / "holders.lock") as descriptor:
        if try_lock(descriptor):
            return False
        # When the wait of the watcher ends, it has the lock for a moment. To lock it shared waits until that has
        # passed.
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        return not try_lock(descriptor)


def _remove_socket_directory(home: Path) -> None:
    """Deletes the directory of the socket, if launch.py has made one elsewhere because the path of the home was too
    long for a socket."""
    record = home / "socket-directory"
    with suppress(OSError):
        os.rmdir(record.read_bytes())  # noqa: PTH106
        record.unlink()


def make_lock(path: Path) -> None:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))


def open_lock(path: Path) -> int:
    """Opens the file of a lock. Does not create it: the watcher must not put files into a home that is being deleted.

    Programs that this process starts do not inherit the descriptor, because Python passes none on by default.
    """
    return os.open(path, os.O_RDWR | os.O_NOFOLLOW)


@contextmanager
def open_lock_for_block(path: Path) -> Iterator[int]:
    descriptor = open_lock(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(descriptor: int, timeout: float | None) -> None:
    if timeout is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return
    deadline = time.monotonic() + timeout
    while not try_lock(descriptor):
        if time.monotonic() > deadline:
            raise TimeoutError(f"another process has kept a lock for {timeout:.0f} seconds")
        time.sleep(POLL_SECONDS)


def watch(home: Path, own_lock: int) -> None:
    """Waits until the server has no holder, stops it, and ends."""
    while True:
        with open_lock_for_block(home / "holders.lock") as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with lock_for_change(home, timeout=None):
            if not is_held(home):
                if not stop_server(home):
                    print(f"watchbill: the server in {home} did not stop", file=sys.stderr)
                # Gives up this watcher's lock before change.lock is released: the next process that starts the server
                # must see that it has no watcher.
                os.close(own_lock)
                return


if __name__ == "__main__":
    # The server's directory may be deleted while the server runs. Then the watcher just ends.
    with suppress(FileNotFoundError):
        watch(Path(sys.argv[1]), int(sys.argv[2]))

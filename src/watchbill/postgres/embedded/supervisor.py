"""Who holds an embedded server, which process the server is, and how it stops when the last holder has gone.

Four files in the server's home carry locks (flock). The kernel drops a lock with the process, however that one dies:

    change.lock    one process at a time starts or stops the server
    holders.lock   shared by all holders; whoever can have it alone knows that there are none
    server.lock    inherited by initdb and by every process of the server; free means that none of them is left
    watcher.lock   inherited by the watcher, of which a home has one

holders.lock is taken only under change.lock, so nobody joins while somebody decides to stop. The one exception is the
watcher: it waits for holders.lock without change.lock, and lets go as soon as it has it, before it asks for
change.lock. It is there for holders that are killed; one that leaves in order stops the server itself.

No process is signalled because a file names its number: it must be the server of this very data directory.

This file needs the standard library only, and nothing of Watchbill, because the watcher is this file, run as a script:
that process lives as long as the server, so it should start fast and stay small.
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
PAUSE = 0.005
# A starter may wait a minute for the server to answer, and a stopper 40 seconds for its end.
PATIENCE = 90.0
# Fast shutdown ends the sessions and loses nothing; immediate shutdown loses nothing either, but needs recovery.
_WAYS_TO_STOP = ((signal.SIGINT, 30.0), (getattr(signal, "SIGQUIT", signal.SIGTERM), 10.0))


@contextmanager
def change(home: Path, patience: float | None = PATIENCE) -> Iterator[None]:
    """The right to start or stop the server. `None` waits for ever."""
    descriptor = open_lock(home / "change.lock")
    try:
        wait_for_lock(descriptor, patience)
        yield
    finally:
        # Closing alone would not do: a child that was forked meanwhile has a copy of the descriptor.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def hold(home: Path) -> int:
    """Become a holder (under `change`), by the descriptor that is returned, until it is closed or the process ends."""
    descriptor = open_lock(home / "holders.lock")
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def stop_unless_held(home: Path) -> bool:
    """Stop the server if nobody holds it. False when it would not stop."""
    with change(home):
        return not _nobody_holds(home) or stop_server(home)


def stop_server(home: Path) -> bool:
    """Stop the server (under `change`). True when none of its processes is left.

    Judged by server.lock, since a server that is only just starting has no postmaster.pid yet.
    """
    for way, patience in _WAYS_TO_STOP:
        deadline = time.monotonic() + patience
        told = False
        while time.monotonic() < deadline:
            if is_quiet(home):
                _forget_socket_directory(home)
                return True
            told = told or signal_server(home / "data", way)
            time.sleep(PAUSE)
    return False


def signal_server(data: Path, signal_number: int) -> bool:
    """Signal the server of this data directory. False when there is none.

    The process is pinned before it is looked at, so that no other can get its number between the look and the signal.
    """
    pid = recorded_pid(data)
    if pid is None:
        return False
    pin = _pin(pid)
    try:
        if not is_server(pid, data):
            return False
        if pin is not None and sys.platform == "linux":
            signal.pidfd_send_signal(pin, signal_number)
        else:
            os.kill(pid, signal_number)
    except ProcessLookupError:
        return False
    finally:
        if pin is not None:
            os.close(pin)
    return True


def running_pid(data: Path) -> int | None:
    """The number of the first process of this data directory's server, if it runs."""
    pid = recorded_pid(data)
    return pid if pid is not None and is_server(pid, data) else None


def recorded_pid(data: Path) -> int | None:
    """What postmaster.pid says, which may be long out of date."""
    try:
        pid = int((data / "postmaster.pid").read_bytes().split(b"\n", 1)[0])
    except (OSError, ValueError):
        return None
    return pid if pid > 0 else None


def says_ready(data: Path) -> bool:
    """What postmaster.pid says in its last line; a killed server leaves it so."""
    try:
        return (data / "postmaster.pid").read_bytes().split()[-1:] == [b"ready"]
    except OSError:
        return False


def is_server(pid: int, data: Path) -> bool:
    """Whether the process is the server of this data directory: its program, and the directory in which it works."""
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
            # In a container root may not look into processes of others; how they were started is open to all.
            return words[1:3] == [b"-D", os.fsencode(data)]
    except OSError:
        return False


def _is_postmaster(program: bytes) -> bool:
    """Not so a session of the server: it changes the first word to `postgres: ...`. An upgrade may delete the file."""
    return os.path.basename(program.removesuffix(b" (deleted)")) == b"postgres"  # noqa: PTH119


def _is_server_by_ps(pid: int, data: Path) -> bool:
    listing = subprocess.run(["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False)
    program, _, rest = listing.stdout.partition(b" -D ")
    return _is_postmaster(program) and f"{rest.decode(errors='surrogateescape')} ".startswith(f"{data} ")


def _pin(pid: int) -> int | None:
    """A descriptor of the process, where the system has such a thing and allows it."""
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def is_quiet(home: Path) -> bool:
    """Whether no process of a server or of initdb is left (under `change`).

    A server that somebody restarted by hand (pg_ctl) has no lock, and is known by its process alone.
    """
    descriptor = open_lock(home / "server.lock")
    try:
        return try_lock(descriptor) and running_pid(home / "data") is None
    finally:
        os.close(descriptor)


def is_forsaken(home: Path) -> bool:
    """Whether nobody holds the server and none of its processes is left (under `change`)."""
    return _nobody_holds(home) and is_quiet(home)


def _nobody_holds(home: Path) -> bool:
    descriptor = open_lock(home / "holders.lock")
    try:
        if try_lock(descriptor):
            return True
        # Perhaps it was the watcher, which has the lock for a moment when its wait ends: sharing waits for that.
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        return try_lock(descriptor)
    finally:
        os.close(descriptor)


def _forget_socket_directory(home: Path) -> None:
    """Where the home's path is too long for a socket, a short directory was made for it; it has no use any more."""
    record = home / "socket-directory"
    with suppress(OSError):
        os.rmdir(record.read_bytes())  # noqa: PTH106
        record.unlink()


def make_lock(path: Path) -> None:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))


def open_lock(path: Path) -> int:
    """Makes none: the watcher of a home that is being deleted must put nothing back into it.

    Python's descriptors do not pass to other programs unless told to, which the locks rely on.
    """
    return os.open(path, os.O_RDWR | os.O_NOFOLLOW)


def try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(descriptor: int, patience: float | None) -> None:
    if patience is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return
    deadline = time.monotonic() + patience
    while not try_lock(descriptor):
        if time.monotonic() > deadline:
            raise TimeoutError(f"others kept a lock for {patience:.0f} seconds")
        time.sleep(PAUSE)


def watch(home: Path, own_lock: int) -> None:
    """Wait until nobody holds the server, stop it, and end."""
    while True:
        wait_for_last_holder(home)
        with change(home, patience=None):
            if _nobody_holds(home):
                if not stop_server(home):
                    print(f"watchbill: the server in {home} did not stop", file=sys.stderr)
                # Before change.lock is free: the next starter must see that this watcher is no more.
                os.close(own_lock)
                return


def wait_for_last_holder(home: Path) -> None:
    descriptor = open_lock(home / "holders.lock")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    # The home may be deleted while its server runs; then there is nothing left to watch.
    with suppress(FileNotFoundError):
        watch(Path(sys.argv[1]), int(sys.argv[2]))

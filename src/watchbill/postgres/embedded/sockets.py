"""The private directory in which the server listens.

Only the server's user can reach a socket in it, and root, who can reach everything: the kernel asks for the right to
pass the directory (0700) and for the right to write to the socket (0700 as well). With these two guards the server lets
whoever arrives be any role (`trust`). The alternative, `peer`, would add a third guard against nobody new, and would
need a map from root to each role by name, so that neither root nor a test could try out a role it has just created.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path

from watchbill.postgres.embedded.account import Account
from watchbill.postgres.embedded.home import PORT, Home, write_path

_SOCKET = f".s.PGSQL.{PORT}"
# The kernel's limit for the path of a socket, less the byte that ends it.
_LONGEST = 107 if sys.platform == "linux" else 103


def make_socket_directory(home: Home, account: Account) -> Path:
    """A new directory each time, so that no lock file of a killed server is in the way (under `change`)."""
    record, directory = home.root / "socket-directory", home.root / "socket"
    if record.exists():
        _remove_short(home.socket_directory, account)
        record.unlink()
    if directory.exists():
        shutil.rmtree(directory)
    if _is_fit(directory):
        directory.mkdir(mode=0o700)
    else:
        directory = Path(tempfile.mkdtemp(prefix="watchbill-", dir=_short_place(account)))
        write_path(record, directory)
    account.own(directory)
    return directory


def _is_fit(directory: Path) -> bool:
    """libpq takes a comma in a host for the start of the next host."""
    path = str(directory / _SOCKET)
    return len(os.fsencode(path)) <= _LONGEST and path.isprintable() and "," not in path


def _short_place(account: Account) -> Path:
    """Not $TMPDIR, which may be long itself."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or "/nonexistent")
    if not account.is_lent and _is_private(runtime, account) and _is_fit(runtime / "watchbill-12345678"):
        return runtime
    return Path("/tmp")  # noqa: S108 - mkdtemp makes a directory of its own there


def _remove_short(directory: Path, account: Account) -> None:
    """If it is still ours: a name in /tmp may have gone to somebody else since."""
    if _is_private(directory, account):
        shutil.rmtree(directory)


def _is_private(directory: Path, account: Account) -> bool:
    try:
        status = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == account.uid and stat.S_IMODE(status.st_mode) == 0o700

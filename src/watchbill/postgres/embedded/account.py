"""The user that the embedded server runs as. PostgreSQL refuses to run as root, so root uses another account."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from watchbill.errors import EmbeddedError

if sys.platform != "win32":
    import pwd

# PostgreSQL refuses to run as root, so root runs it as the first of these users that /etc/passwd has.
_ACCOUNTS_FOR_ROOT = ("postgres", "nobody")
_INHERITED_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


@dataclass(frozen=True)
class Account:
    """A user of this machine, and how to run programs as that user."""

    name: str
    uid: int
    gid: int

    @property
    def is_other(self) -> bool:
        """Whether this account is not the user of this process. If so, this process runs as root."""
        return self.uid != os.geteuid()

    def run(
        self, command: Sequence[str], *, output: int = subprocess.PIPE, keep: Sequence[int] = (), apart: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program and waits for its end. The program inherits the file descriptors in `keep` and few environment
        variables.

        With `apart` the program gets a session of its own, so that Ctrl-C in our terminal does not reach it.
        """
        # Others are left out: a PG* variable would change the server, and some contain secrets of this process.
        inherited = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
        return subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            cwd="/",  # the server's user may not be able to enter our current directory
            env={**inherited, "LC_ALL": "C", "TZ": "UTC"},
            pass_fds=tuple(keep),
            start_new_session=apart,
            user=self.uid if self.is_other else None,
            group=self.gid if self.is_other else None,
            extra_groups=[] if self.is_other else None,
        )

    def start(self, command: Sequence[str], *, output: int, keep: int) -> None:
        """Starts a program in the background. A shell starts it and ends at once, so that no zombie process remains."""
        self.run(["/bin/sh", "-c", '"$@" &', "sh", *command], output=output, keep=[keep], apart=True)

    def can_enter(self, directory: Path) -> bool:
        return self.run(["/bin/sh", "-c", 'test -x "$1"', "sh", str(directory)]).returncode == 0

    def take_ownership(self, path: Path) -> None:
        """Makes this account the owner of a directory that this process has just created."""
        if self.is_other:
            os.chown(path, self.uid, self.gid)


def find_own_account() -> Account:
    return _find_account(os.geteuid())


def find_server_account(data: Path) -> Account:
    """Returns the account that runs the server: the user of this process. If this is root, the owner of the data, or
    another account if there is no data yet."""
    owner = _find_account(data.stat().st_uid) if data.exists() else None
    account = find_own_account() if os.geteuid() != 0 else owner or _find_account_for_root()
    if account.uid == 0 or owner not in (None, account):
        raise EmbeddedError(
            f"{data} belongs to {owner.name if owner else 'root'}, so no server can be started on it.",
            hint="Change its owner (chown -R), or move it away to start with an empty database.",
        )
    return account


def _find_account_for_root() -> Account:
    for name in _ACCOUNTS_FOR_ROOT:
        try:
            return _find_account(pwd.getpwnam(name).pw_uid)
        except KeyError:
            continue
    raise EmbeddedError(
        f"PostgreSQL refuses to run as root, and there is no user {' or '.join(_ACCOUNTS_FOR_ROOT)} to run it as.",
        hint="Add one of these users, or run Watchbill as an ordinary user.",
    )


def _find_account(uid: int) -> Account:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        raise EmbeddedError(
            f"User number {uid} has no name on this machine, and PostgreSQL needs one.",
            hint="Add it to /etc/passwd, or set WATCHBILL_DATABASE_URL to a database of your own.",
        ) from None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)

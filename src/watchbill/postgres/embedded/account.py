"""The user that the embedded server runs as. PostgreSQL refuses to run as root, so root lends it another one."""

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

# Either has an entry in the user database, which initdb insists on.
_LENT_BY_ROOT = ("postgres", "nobody")
_KEPT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


@dataclass(frozen=True)
class Account:
    """A user of this machine, and how to run programs as that user."""

    name: str
    uid: int
    gid: int

    @property
    def is_lent(self) -> bool:
        return self.uid != os.geteuid()

    def run(
        self, command: Sequence[str], *, output: int = subprocess.PIPE, keep: Sequence[int] = (), apart: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run a program and wait for its end; it inherits the descriptors in `keep`, and little of our environment.

        `apart`: in a session of its own, where Ctrl-C in our terminal does not reach it.
        """
        return subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            cwd="/",  # the user may not be able to enter ours
            env=_environment(),
            pass_fds=tuple(keep),
            start_new_session=apart,
            user=self.uid if self.is_lent else None,
            group=self.gid if self.is_lent else None,
            extra_groups=[] if self.is_lent else None,
        )

    def start(self, command: Sequence[str], *, output: int, keep: int) -> None:
        """Leave a program running, as nobody's child: the shell that starts it ends at once, so no zombie is left."""
        self.run(["/bin/sh", "-c", '"$@" &', "sh", *command], output=output, keep=[keep], apart=True)

    def can_enter(self, directory: Path) -> bool:
        return self.run(["/bin/sh", "-c", 'test -x "$1"', "sh", str(directory)]).returncode == 0

    def own(self, path: Path) -> None:
        """Hand over a directory that we have just made."""
        if self.is_lent:
            os.chown(path, self.uid, self.gid)


def _environment() -> dict[str, str]:
    """No PG* variable may change the server, and no secret of ours needs to be in its environment."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}


def own_account() -> Account:
    return _account(os.geteuid())


def server_account(data: Path) -> Account:
    """Ourselves; for root the owner of the data, and while there is none, whom root can lend."""
    owner = _account(data.stat().st_uid) if data.exists() else None
    account = own_account() if os.geteuid() != 0 else owner or _lent_account()
    if account.uid == 0 or owner not in (None, account):
        raise EmbeddedError(
            f"{data} belongs to {owner.name if owner else 'root'}, so no server can be started on it.",
            hint="Give it to a user that can (chown -R), or move it away to begin with an empty database.",
        )
    return account


def _lent_account() -> Account:
    for name in _LENT_BY_ROOT:
        try:
            return _account(pwd.getpwnam(name).pw_uid)
        except KeyError:
            continue
    raise EmbeddedError(
        f"PostgreSQL refuses to run as root, and there is no user {' or '.join(_LENT_BY_ROOT)} to run it as.",
        hint="Add one of these users, or run Watchbill as an ordinary user.",
    )


def _account(number: int) -> Account:
    try:
        entry = pwd.getpwuid(number)
    except KeyError:
        raise EmbeddedError(
            f"User number {number} has no name on this machine, and PostgreSQL needs one.",
            hint="Give it a line in /etc/passwd, or name a database of your own in WATCHBILL_DATABASE_URL.",
        ) from None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)

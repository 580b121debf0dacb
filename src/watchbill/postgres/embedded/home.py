"""Where the embedded server of a project lives: in `.watchbill/` at its root.

    .watchbill/
      .gitignore         keeps all of it out of git
      data/              the databases, for the server's user only
      socket/            the server's socket, for the server's user only
      socket-directory   names another directory for the socket, when that path cannot be used
      server.log         the server's log
      *.lock             see supervisor.py
      state-directory    names the directory that has all the rest, when it is not this one

state-directory is needed if root starts the server: it runs as another user, who may not be able to enter the project
(a clone in /root). Then everything else is below /var/lib/watchbill. A file `project` there names the project, so that
one can tell whether the data is still needed. A missing project may be on a disk that is not mounted: its data stays,
and `watchbill doctor` lists it. Only data of projects in temporary directories is deleted."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote as quote_for_shell
from urllib.parse import quote

from watchbill.errors import EmbeddedError
from watchbill.postgres.embedded import supervisor
from watchbill.postgres.embedded.account import find_server_account

STATE = Path("/var/lib/watchbill")
PORT = "5432"
DATABASE = "watchbill"
_MAX_DELETED_AT_ONCE = 10  # directories of deleted projects; more would make release() slow


@dataclass(frozen=True)
class Home:
    """The directories of one embedded server: `directory` is the project's `.watchbill`, and `root` has the data. They
    are mostly the same."""

    directory: Path
    root: Path

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def log(self) -> Path:
        return self.root / "server.log"

    @property
    def socket_directory(self) -> Path:
        try:
            return read_path(self.root / "socket-directory")
        except FileNotFoundError:
            return self.root / "socket"

    def url(self, database: str = DATABASE) -> str:
        """Returns the address of a database on this server. It includes the port, or else libpq would read PGPORT."""
        return f"postgresql://postgres@/{database}?host={quote(os.fsencode(self.socket_directory))}&port={PORT}"

    def make(self) -> None:
        """Creates directories and files that are missing. All users may enter the directory, because data and socket
        have modes of their own."""
        for directory in dict.fromkeys((self.directory, self.root)):
            make_directory(directory)
        for lock in supervisor.LOCKS:
            supervisor.make_lock(self.root / lock)
        ignore = self.directory / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
        if self.root != self.directory:
            write_path(self.directory / "state-directory", self.root)
            write_path(self.root / "project", self.directory.parent)

    def ensure_own(self) -> None:
        """Raises if the directory belongs to another user, whose locks and data this user could not open."""
        if self.directory.exists() and self.directory.stat().st_uid != os.geteuid():
            raise EmbeddedError(
                f"{self.directory} belongs to another user.",
                hint="Run as that user, or remove it to start with an empty database.",
            )


def find_home(project: Path) -> Home:
    """Returns the directories of a project's server. Creates nothing."""
    project = project.resolve()
    if not project.is_dir():
        raise EmbeddedError(f"There is no directory {project}.")
    directory = project / ".watchbill"
    state = STATE / hashlib.sha256(os.fsencode(project)).hexdigest()[:16]
    pointer = directory / "state-directory"
    if pointer.exists():
        _ensure_not_moved(pointer, state)
        return Home(directory, state)
    return Home(directory, directory if _can_live_in(directory) else state)


def _can_live_in(directory: Path) -> bool:
    if os.geteuid() != 0 or (directory / "data").exists():
        return True
    # Watchbill creates the directory with a mode that lets all users enter. But it may be a link to another place.
    return find_server_account(directory / "data").can_enter(directory if directory.is_symlink() else directory.parent)


def _ensure_not_moved(pointer: Path, state: Path) -> None:
    """Raises if the project was copied or moved: a project and its copy must not share one database."""
    recorded = read_path(pointer)
    if recorded != state:
        forget = f"rm {quote_for_shell(str(pointer))}"
        raise EmbeddedError(
            f"{pointer} names {recorded}, but a project at this path has its data in {state}.",
            hint=f"If the project was moved: mv {recorded} {state} && {forget}. If this is a copy: {forget}.",
        )


def make_directory(directory: Path) -> None:
    """Creates a directory and its missing parents. All users may enter them, whatever the umask says."""
    if directory.exists():
        return
    if not directory.parent.exists():
        make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    directory.chmod(0o755)


def read_path(record: Path) -> Path:
    return Path(os.fsdecode(record.read_bytes()))


def write_path(record: Path, path: Path) -> None:
    """Writes a path to a file: to a temporary file first, because several processes may write, and a reader must not
    see half a path."""
    descriptor, draft = tempfile.mkstemp(prefix=record.name, dir=record.parent)
    with os.fdopen(descriptor, "wb") as file:
        file.write(os.fsencode(path))
    Path(draft).replace(record)


def find_leftovers() -> Iterator[tuple[Path, Path]]:
    """Yields (data directory, missing project) for each project of root that no longer exists."""
    if os.geteuid() != 0 or not STATE.is_dir():
        return
    for directory in sorted(STATE.iterdir()):
        with suppress(OSError):
            project = read_path(directory / "project")
            if not project.exists():
                yield directory, project


def delete_leftovers_of_temporary_projects() -> None:
    """Deletes data of projects in temporary directories, unless a process holds a server there."""
    places = {Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp"), Path("/dev/shm")}  # noqa: S108
    leftovers = [data for data, project in find_leftovers() if any(project.is_relative_to(place) for place in places)]
    for directory in leftovers[:_MAX_DELETED_AT_ONCE]:
        with suppress(OSError, TimeoutError), supervisor.lock_for_change(directory, timeout=0):
            if not supervisor.is_held(directory) and supervisor.has_ended(directory):
                shutil.rmtree(directory)

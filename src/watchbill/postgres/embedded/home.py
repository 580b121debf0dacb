"""Where the embedded server of a project lives: in `.watchbill/` at its root.

    .watchbill/
      .gitignore         keeps all of it out of git
      data/              the databases, for the server's user only
      socket/            the server's socket, for the server's user only
      socket-directory   names another directory for the socket, when the path of that one does not suit
      server.log         what the server says
      *.lock             see supervisor.py
      state-directory    names the directory that has all the rest, when it is not this one

The last is for root: the server runs as another user, who may not be able to enter the project (a clone in /root).
The state directory has a file `project` that leads back, for whoever wonders what may be deleted.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from shlex import quote as quote_for_shell
from urllib.parse import quote

from watchbill.errors import EmbeddedError
from watchbill.postgres.embedded import supervisor
from watchbill.postgres.embedded.account import server_account

STATE = Path("/var/lib/watchbill")
PORT = "5432"
DATABASE = "watchbill"


@dataclass(frozen=True)
class Home:
    """`directory` is the project's `.watchbill`; `root` is where things are, mostly the same."""

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
        """Names the port, since libpq would take it from PGPORT otherwise."""
        return f"postgresql://postgres@/{database}?host={quote(os.fsencode(self.socket_directory))}&port={PORT}"

    def make(self) -> None:
        """Make what is missing, open to all: data and socket have their own guard, and the server's user must pass."""
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

    def refuse_if_foreign(self) -> None:
        """Locks and data of two users do not mix: what one makes, the other cannot open."""
        if self.directory.exists() and self.directory.stat().st_uid != os.geteuid():
            raise EmbeddedError(
                f"{self.directory} belongs to another user.",
                hint="Run as that user, or remove it to begin with an empty database.",
            )


def find_home(project: Path) -> Home:
    """The home of a project's server. Makes nothing."""
    project = project.resolve()
    if not project.is_dir():
        raise EmbeddedError(f"There is no directory {project}.")
    directory = project / ".watchbill"
    state = STATE / hashlib.sha256(os.fsencode(project)).hexdigest()[:16]
    pointer = directory / "state-directory"
    if pointer.exists():
        _refuse_if_moved(pointer, state)
        return Home(directory, state)
    return Home(directory, directory if _can_live_in(directory) else state)


def _can_live_in(directory: Path) -> bool:
    if os.geteuid() != 0 or (directory / "data").exists():
        return True
    # Made by us it is open to all; it may also be somebody's link to a place that is not.
    return server_account(directory / "data").can_enter(directory if directory.is_symlink() else directory.parent)


def _refuse_if_moved(pointer: Path, state: Path) -> None:
    """Following the pointer blindly would let a project and its copy share one database."""
    recorded = read_path(pointer)
    if recorded != state:
        forget = f"rm {quote_for_shell(str(pointer))}"
        raise EmbeddedError(
            f"{pointer} names {recorded}, but a project at this path has its data in {state}.",
            hint=f"If the project was moved: mv {recorded} {state} && {forget}. If this is a copy: {forget}.",
        )


def make_directory(directory: Path) -> None:
    """With an open mode whatever the umask says; parents too, but only those that are missing."""
    if directory.exists():
        return
    if not directory.parent.exists():
        make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    directory.chmod(0o755)


def read_path(record: Path) -> Path:
    return Path(os.fsdecode(record.read_bytes()))


def write_path(record: Path, path: Path) -> None:
    """Under another name first: nobody may read half a path, and several may write at once."""
    descriptor, draft = tempfile.mkstemp(prefix=record.name, dir=record.parent)
    with os.fdopen(descriptor, "wb") as file:
        file.write(os.fsencode(path))
    Path(draft).replace(record)

"""Payloads in a directory that every process of the application can reach."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

TRIES = 100


class FileStore:
    """One directory per day, one file per payload."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __repr__(self) -> str:
        return f"FileStore({str(self.root)!r})"

    def put(self, key: str, data: bytes) -> None:
        """Under another name first: who finds the file finds all of it. On disk before the job is in the database.
        Who may read it, the umask says: a worker may be another user."""
        path = self.root / key
        partial = path.with_name(f".{uuid4()}")
        try:
            with _new_file(partial) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        _sync(path.parent)
        _sync(self.root)

    def get(self, key: str) -> bytes:
        if not self.root.is_dir():  # not mounted, perhaps: of no object can be said that it is gone
            raise NotADirectoryError(f"{self.root} is not a directory here")
        return (self.root / key).read_bytes()

    def delete(self, key: str) -> None:
        path = self.root / key
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # others of that day are still there
            path.parent.rmdir()

    def days(self) -> list[str]:
        if not self.root.is_dir():
            return []
        return [entry.name for entry in self.root.iterdir() if entry.is_dir()]

    def keys(self, day: str) -> Iterator[str]:
        with contextlib.suppress(FileNotFoundError), os.scandir(self.root / day) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    _drop_if_old(Path(entry))
                else:
                    yield f"{day}/{entry.name}"


def _new_file(path: Path) -> BinaryIO:
    """With its directory, which goes with the last object of a day: perhaps this moment."""
    for _ in range(TRIES):
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            path.parent.mkdir(parents=True, exist_ok=True)
            return path.open("xb")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("xb")


def _drop_if_old(partial: Path) -> None:
    """What a process has left that died while it wrote."""
    with contextlib.suppress(OSError):
        if time.time() - partial.stat().st_mtime > 86_400:
            partial.unlink()


def _sync(directory: Path) -> None:
    """A new name in it is durable when the directory is."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

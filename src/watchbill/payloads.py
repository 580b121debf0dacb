"""Payload stores: where payloads go that are too large for the database.

A store holds objects by key, written once and never changed. A key starts with the day on which it was made, so that
the sweeper can list a store day by day and delete what no job refers to any more (the transaction was rolled back, the
history dropped). A key also names its installation: several may share a store, and each deletes only its own objects.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Protocol, runtime_checkable
from uuid import UUID, uuid4

from watchbill._version import install_command
from watchbill.errors import SettingsError, WatchbillError

_KEY = re.compile(r"\d{4}-\d\d-\d\d/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-([0-9a-f]{8})-[0-9a-f]{16}")
_PARTIAL_FILE_MAX_AGE_SECONDS = 86_400
_CREATE_TRIES = 100


class NoPayloadStore(WatchbillError):
    """A job's payload is in a store, and this process has no store configured."""


class PayloadGone(WatchbillError):
    """The store has no object under this key, or one with other content."""


class StoreFailed(WatchbillError):
    """The store does not answer, or refuses."""


@runtime_checkable
class PayloadStore(Protocol):
    """What Watchbill needs from a store. Calls may block, come from any thread, and raise any exception."""

    def put(self, key: str, data: bytes) -> None:
        """Stores an object; it must be durable on return. One key always has the same content."""

    def get(self, key: str) -> bytes:
        """Reads an object. Raises FileNotFoundError if it does not exist."""
        ...

    def delete(self, key: str) -> None:
        """Deletes an object; does nothing if it does not exist."""

    def days(self) -> list[str]:
        """Lists the first parts of all keys, in any order."""
        ...

    def keys(self, day: str) -> Iterator[str]:
        """Lists all keys of a day, in any order."""
        ...


def open_store(location: str) -> PayloadStore:
    """Opens a directory, or any URL that fsspec supports: s3://bucket/prefix, gs://..., memory://..."""
    scheme, _, rest = location.partition("://")
    if rest and scheme != "file":
        return RemoteStore(location)
    return FileStore(Path(rest or location))


def new_key(job_id: UUID, installation: str, digest: str) -> str:
    """Contains job and digest, so that a second payload under the same job id never overwrites the first."""
    return f"{datetime.now(UTC):%Y-%m-%d}/{job_id}-{installation[:8]}-{digest[:16]}"


def read_job_id(key: str, installation: str | None = None) -> UUID | None:
    """The job's id in a key. None if it is not a key, or belongs to another installation."""
    found = _KEY.fullmatch(key)
    if found is None or (installation is not None and found[2] != installation[:8]):
        return None
    return UUID(found[1])


class FileStore:
    """Payloads in a directory that every process of the application can reach: a directory per day, a file each."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __repr__(self) -> str:
        return f"FileStore({str(self.root)!r})"

    def put(self, key: str, data: bytes) -> None:
        """Writes under a temporary name first, so that readers never see half a file. The umask decides who may read
        it, because a worker may run as another user."""
        path = self.root / key
        partial = path.with_name(f".{uuid4()}")
        try:
            with _create_file(partial) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        _sync_directory(path.parent)
        _sync_directory(self.root)

    def get(self, key: str) -> bytes:
        if not self.root.is_dir():  # perhaps not mounted, so a missing file does not mean that the payload is gone
            raise NotADirectoryError(f"{self.root} is not a directory here")
        return (self.root / key).read_bytes()

    def delete(self, key: str) -> None:
        path = self.root / key
        path.unlink(missing_ok=True)
        with suppress(OSError):  # rmdir fails while the directory of that day has other objects
            path.parent.rmdir()

    def days(self) -> list[str]:
        if not self.root.is_dir():
            return []
        return [entry.name for entry in self.root.iterdir() if entry.is_dir()]

    def keys(self, day: str) -> Iterator[str]:
        with suppress(FileNotFoundError), os.scandir(self.root / day) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    _delete_abandoned(Path(entry))
                else:
                    yield f"{day}/{entry.name}"


def _create_file(path: Path) -> BinaryIO:
    """Creates the directory too. Tries again, because deleting the day's last object removes it at any moment."""
    for _ in range(_CREATE_TRIES):
        with suppress(FileNotFoundError, FileExistsError):
            path.parent.mkdir(parents=True, exist_ok=True)
            return path.open("xb")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("xb")


def _delete_abandoned(partial: Path) -> None:
    """A process that died while it wrote leaves a partial file."""
    with suppress(OSError):
        if time.time() - partial.stat().st_mtime > _PARTIAL_FILE_MAX_AGE_SECONDS:
            partial.unlink()


def _sync_directory(directory: Path) -> None:
    """A new file name survives a power cut only when its directory is on disk."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class RemoteStore:
    """Payloads anywhere that fsspec reaches (extra `fsspec`); fsspec's implementation finds the credentials."""

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise SettingsError(
                f"The payload store {url} needs fsspec, which is not installed.",
                hint=f"Run {install_command('fsspec')}, and install what fsspec needs for that URL, such as s3fs.",
            ) from None
        try:
            self._files, self._root = url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise SettingsError(f"The payload store {url} cannot be opened: {error}.") from None
        self._url = url

    def __repr__(self) -> str:
        return f"RemoteStore({self._url!r})"

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(path, data)

    def get(self, key: str) -> bytes:
        found: bytes = self._files.cat_file(self._path(key))
        return found

    def delete(self, key: str) -> None:
        if self._files.exists(self._path(key)):
            with suppress(FileNotFoundError):  # another process deleted it first
                self._files.rm_file(self._path(key))

    def days(self) -> list[str]:
        return [name for name, kind in self._list("") if kind == "directory"]

    def keys(self, day: str) -> Iterator[str]:
        return (f"{day}/{name}" for name, _ in self._list(day))

    def _path(self, key: str) -> str:
        return f"{self._root.rstrip('/')}/{key}"

    def _list(self, below: str) -> list[tuple[str, str]]:
        """Names and kinds. Clears fsspec's cache first: other processes may have changed the listing."""
        self._files.invalidate_cache()
        try:
            entries: list[dict[str, Any]] = self._files.ls(self._path(below), detail=True)
        except FileNotFoundError:
            return []
        return [(entry["name"].rstrip("/").rpartition("/")[2], entry["type"]) for entry in entries]

"""Payload stores: where payloads go that are too large for the database.

A store holds payloads by key, which are written once and never changed. A key starts with the day on which it was made,
so that the sweeper can list a store day by day and delete payloads that no job refers to any more (the transaction was
rolled back, or the history was dropped). A key also names its installation: several installations may share a store,
and each deletes only its own payloads."""

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
    """A job's payload is in a payload store, but this process has no payload store configured."""


class PayloadGone(WatchbillError):
    """The payload store has no payload under this key, or one with other content than the job's."""


class StoreFailed(WatchbillError):
    """The payload store does not answer, or refuses a request."""


@runtime_checkable
class PayloadStore(Protocol):
    """The methods that a payload store must have. They may block and raise any exception. Any thread may call them."""

    def put(self, key: str, data: bytes) -> None:
        """Stores a payload, which must be durable when this method returns. One key always has the same content."""

    def get(self, key: str) -> bytes:
        """Returns a payload. Raises FileNotFoundError if the key does not exist."""
        ...

    def delete(self, key: str) -> None:
        """Deletes a payload. Does nothing if the key does not exist."""

    def days(self) -> list[str]:
        """Lists the days of all keys, in any order. The day is the first part of a key."""
        ...

    def keys(self, day: str) -> Iterator[str]:
        """Lists all keys of a day, in any order."""
        ...


def open_store(location: str) -> PayloadStore:
    """Opens a payload store: a directory, or any URL that fsspec supports, such as s3://bucket/prefix or gs://..."""
    scheme, _, rest = location.partition("://")
    if rest and scheme != "file":
        return RemoteStore(location)
    return FileStore(Path(rest or location))


def new_key(job_id: UUID, installation: str, digest: str) -> str:
    """Makes a key for a payload. The key contains the job id and the digest, so that a second payload under the same
    job id never overwrites the first."""
    return f"{datetime.now(UTC):%Y-%m-%d}/{job_id}-{installation[:8]}-{digest[:16]}"


def read_job_id(key: str, installation: str | None = None) -> UUID | None:
    """Returns the job id in a key. None if the text is not a key, or the key belongs to another installation."""
    found = _KEY.fullmatch(key)
    if found is None or (installation is not None and found[2] != installation[:8]):
        return None
    return UUID(found[1])


class FileStore:
    """Keeps payloads as files in a directory that every process of the application can reach, one subdirectory per
    day."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __repr__(self) -> str:
        return f"FileStore({str(self.root)!r})"

    def put(self, key: str, data: bytes) -> None:
        """Writes the payload to a temporary file and renames it, so that readers never see half a file. The umask
        decides who may read the file, because a worker may run as another user than the producer."""
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
        if not self.root.is_dir():  # the directory may just not be mounted, so the payload need not be gone
            raise NotADirectoryError(f"{self.root} is not a directory here")
        return (self.root / key).read_bytes()

    def delete(self, key: str) -> None:
        path = self.root / key
        path.unlink(missing_ok=True)
        with suppress(OSError):  # rmdir fails while the directory of that day has other files
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
    """Creates a file, and its directory. Tries again if the directory vanishes: another process removes the directory
    of a day with the last file in it."""
    for _ in range(_CREATE_TRIES):
        with suppress(FileNotFoundError, FileExistsError):
            path.parent.mkdir(parents=True, exist_ok=True)
            return path.open("xb")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("xb")


def _delete_abandoned(partial: Path) -> None:
    """Deletes the temporary file of a process that died while it wrote a payload."""
    with suppress(OSError):
        if time.time() - partial.stat().st_mtime > _PARTIAL_FILE_MAX_AGE_SECONDS:
            partial.unlink()


def _sync_directory(directory: Path) -> None:
    """Writes the directory to the disk: a new file name survives a power cut only then."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class RemoteStore:
    """Keeps payloads at any URL that fsspec supports (extra `fsspec`). fsspec finds the credentials by itself."""

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
        path = self._make_path(key)
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(path, data)

    def get(self, key: str) -> bytes:
        found: bytes = self._files.cat_file(self._make_path(key))
        return found

    def delete(self, key: str) -> None:
        if self._files.exists(self._make_path(key)):
            with suppress(FileNotFoundError):  # another process deleted the payload first
                self._files.rm_file(self._make_path(key))

    def days(self) -> list[str]:
        return [name for name, kind in self._list_below("") if kind == "directory"]

    def keys(self, day: str) -> Iterator[str]:
        return (f"{day}/{name}" for name, _ in self._list_below(day))

    def _make_path(self, key: str) -> str:
        return f"{self._root.rstrip('/')}/{key}"

    def _list_below(self, below: str) -> list[tuple[str, str]]:
        """Returns the names and kinds of what is below this path. Clears fsspec's cache first, because other processes
        may have added or deleted payloads."""
        self._files.invalidate_cache()
        try:
            entries: list[dict[str, Any]] = self._files.ls(self._make_path(below), detail=True)
        except FileNotFoundError:
            return []
        return [(entry["name"].rstrip("/").rpartition("/")[2], entry["type"]) for entry in entries]

"""Writes days of history to files before they are dropped, and reads such files.

Retention detaches a day from the history, under the same short lock under which it would drop it. Then the day's table
is read some pages at a time, written as lines of JSON to a compressed file, and recorded in `archives`. Only then it is
dropped, in the same transaction. A node that dies before leaves a table that any node finds by its name and archives
anew. The name of a file contains a part of its digest, so that no file ever replaces another.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson

from watchbill._version import install_command
from watchbill.errors import SettingsError
from watchbill.redaction import Redaction
from watchbill.store.node_connection import NodeConnection, Refused

logger = logging.getLogger("watchbill.maintenance")

PAGES_PER_STATEMENT = 8  # a page has up to a hundred rows, and each may have a large payload beside it
COPY_BYTES = 1_000_000
_ROOTS = ("payload", "meta", "result")


class ArchivePlace(Protocol):
    """Where archives are kept."""

    def keep(self, name: str, written: Path) -> str:
        """Moves a file there, durably. Returns its place."""
        ...

    def open(self, place: str) -> Any:
        """Opens a file for reading bytes. Raises FileNotFoundError if it is gone."""
        ...


class Directory:
    """A directory that every worker can reach."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def keep(self, name: str, written: Path) -> str:
        self._root.mkdir(parents=True, exist_ok=True)
        partial, place = self._root / f".{name}.{os.getpid()}", self._root / name
        try:
            with partial.open("wb") as copy, written.open("rb") as source:
                while part := source.read(COPY_BYTES):
                    copy.write(part)
                copy.flush()
                os.fsync(copy.fileno())
            partial.replace(place)
        finally:
            partial.unlink(missing_ok=True)
        handle = os.open(self._root, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        return str(place)

    def open(self, place: str) -> Any:
        return Path(place).open("rb")


class Remote:
    """A URL that fsspec supports (extra `fsspec`), such as s3://bucket/prefix."""

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise SettingsError(
                f"The archive {url} needs fsspec, which is not installed.",
                hint=f"Run {install_command('fsspec')}, and install what fsspec needs for that URL, such as s3fs.",
            ) from None
        try:
            self._files, self._root = url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise SettingsError(f"The archive {url} cannot be opened: {error}.") from None

    def keep(self, name: str, written: Path) -> str:
        path = f"{self._root.rstrip('/')}/{name}"
        self._files.makedirs(self._root, exist_ok=True)
        self._files.put_file(str(written), path)
        return str(self._files.unstrip_protocol(path))

    def open(self, place: str) -> Any:
        return self._files.open(place, "rb")


def open_place(location: str) -> ArchivePlace:
    scheme, _, rest = location.partition("://")
    return Remote(location) if rest and scheme != "file" else Directory(Path(rest or location))


@dataclass(frozen=True)
class Written:
    """What is known of an archive that was written."""

    path: Path
    row_count: int
    size: int
    sha256: bytes


class Archiver:
    """Archives the days that were detached from the history."""

    def __init__(
        self,
        connection: NodeConnection,
        location: str,
        redaction: Redaction,
        report: Callable[..., None] = logger.info,
    ) -> None:
        self._connection, self._location, self._redaction, self._report = connection, location, redaction, report

    async def run(self) -> bool:
        """Archives all detached days. Returns whether all of them could be archived: if not, they stay as they are."""
        for name, parent, pages in await self._connection.execute("list_detached_days"):
            try:
                place = await asyncio.to_thread(open_place, self._location)
                await self._archive(place, name, parent, pages)
            except (OSError, ValueError, SettingsError) as error:
                logger.error("Could not archive %s to %s; it is kept until that works: %s", name, self._location, error)
                return False
            except Refused as error:  # another node was faster
                logger.info("Did not archive %s: %s", name, error)
        return True

    async def _archive(self, place: ArchivePlace, name: str, parent: str, pages: int) -> None:
        with tempfile.TemporaryDirectory(prefix="watchbill-archive-") as directory:
            written = await self._write(Path(directory) / "rows", name, parent, pages)
            file_name = f"{name}-{written.sha256.hex()[:8]}.jsonl.gz"
            kept = await asyncio.to_thread(place.keep, file_name, written.path)
            params = (name, kept, written.row_count, written.size, written.sha256)
            ((is_done,),) = await self._connection.execute("end_archive", params)
        if is_done:
            self._report("Retention has archived %d rows of %s in %s", written.row_count, name, kept)

    async def _write(self, path: Path, name: str, parent: str, pages: int) -> Written:
        row_count = 0
        with path.open("wb") as file, gzip.GzipFile("", "wb", mtime=0, fileobj=file) as lines:
            for first in range(0, pages, PAGES_PER_STATEMENT):
                rows = await self._connection.execute("read_detached_day", (name, first, PAGES_PER_STATEMENT))
                row_count += len(rows)
                await asyncio.to_thread(self._write_rows, lines, parent, [row[0] for row in rows])
        digest, size = await asyncio.to_thread(_measure_file, path)
        return Written(path, row_count, size, digest)

    def _write_rows(self, lines: gzip.GzipFile, parent: str, rows: list[bytes]) -> None:
        for raw in rows:
            row = orjson.loads(raw[1:] if raw[:1] == b"\x01" else raw)  # binary jsonb begins with its version
            lines.write(orjson.dumps(self._hide(parent, row)) + b"\n")

    def _hide(self, parent: str, row: dict[str, Any]) -> dict[str, Any]:
        if not self._redaction.paths and not self._redaction.patterns:
            return row
        type_ = row.get("type")
        for root in _ROOTS:
            if row.get(root) is not None:
                row[root] = self._redaction.hide(root, row[root], type=type_)
        if row.get("error") is not None:
            row["error"] = self._redaction.hide_error(row["error"], type=type_)
        if parent == "job_logs":
            row["lines"] = [self._redaction.hide_text(line) for line in row["lines"]]
        return row


def _measure_file(path: Path) -> tuple[bytes, int]:
    return compute_digest(path.open("rb")), path.stat().st_size


def compute_digest(file: Any) -> bytes:
    """Reads a file to its end, and closes it."""
    digest = hashlib.sha256()
    with file:
        while part := file.read(COPY_BYTES):
            digest.update(part)
    return digest.digest()


def read_rows(file: Any) -> Iterator[dict[str, Any]]:
    """Yields the rows of an archive."""
    with file, gzip.GzipFile(fileobj=file) as lines:
        for line in lines:
            yield orjson.loads(line)

"""Operations that read what is known of archived days."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from watchbill.client.operations import Operation, Statement


@dataclass(frozen=True, slots=True)
class ArchiveRecord:
    """A day of history that is in a file."""

    name: str
    place: str
    row_count: int
    size: int  # of the file, in bytes
    sha256: bytes
    at: datetime


def archives(name: str | None = None) -> Operation[list[ArchiveRecord]]:
    return [ArchiveRecord(*row) for row in (yield Statement("archives", (name,)))]

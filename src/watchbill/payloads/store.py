"""PayloadStore: objects by key, written once and never changed.

A key begins with the day on which it was made, so that a store can be looked through day by day: what no job refers to
any more (its transaction was rolled back, its history dropped) is found there and nowhere else. It also names the
installation: several may share a store, and none deletes what it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, runtime_checkable
from uuid import UUID

from watchbill.errors import WatchbillError

_KEY = re.compile(r"\d{4}-\d\d-\d\d/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-([0-9a-f]{8})-[0-9a-f]{16}")


class NoPayloadStore(WatchbillError):
    """A job's payload is in a store, and this process does not know which."""


class PayloadGone(WatchbillError):
    """The store has no such object, or another one in its place."""


class StoreFailed(WatchbillError):
    """The store does not answer, or refuses."""


@runtime_checkable
class PayloadStore(Protocol):
    """What Watchbill asks of a store. Its calls may block, come from any thread, and raise what they like."""

    def put(self, key: str, data: bytes) -> None:
        """Durable when it returns. Of one key there is only ever one content."""

    def get(self, key: str) -> bytes:
        """Raises FileNotFoundError when there is no such object."""
        ...

    def delete(self, key: str) -> None:
        """One that is not there is no error."""

    def days(self) -> list[str]:
        """The first parts of all keys, in any order."""
        ...

    def keys(self, day: str) -> Iterator[str]:
        """All keys of a day, in any order."""
        ...


def open_store(place: str) -> PayloadStore:
    """A directory, or a URL of whatever fsspec knows: s3://bucket/prefix, gs://..., memory://..."""
    scheme, _, rest = place.partition("://")
    if not rest:
        from watchbill.payloads.files import FileStore

        return FileStore(Path(place))
    if scheme == "file":
        from watchbill.payloads.files import FileStore

        return FileStore(Path(rest))
    from watchbill.payloads.remote import RemoteStore

    return RemoteStore(place)


def new_key(job_id: UUID, installation: str, digest: str) -> str:
    """Job and content are in it: a job's id that is used again for another payload overwrites nothing."""
    return f"{datetime.now(UTC):%Y-%m-%d}/{job_id}-{installation[:8]}-{digest[:16]}"


def job_of(key: str, installation: str | None = None) -> UUID | None:
    """None: no key, or not one of this installation, so hands off."""
    found = _KEY.fullmatch(key)
    if found is None or (installation is not None and found[2] != installation[:8]):
        return None
    return UUID(found[1])

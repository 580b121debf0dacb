"""API keys, saved filters and marks of charts: operations, as in `operations.py`.

A key is `wb_<8 characters>_<43 characters>`. The first part is its id, which may be shown; the database has the
SHA-256 of the whole key. Its last part has 32 random bytes, so a slow hash would protect nothing more.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from watchbill.client.operations import Operation, Statement
from watchbill.errors import WatchbillError
from watchbill.model.api_key import ApiKey

_ID_CHARACTERS = string.ascii_letters + string.digits
_KEY = re.compile(r"wb_([0-9A-Za-z]{8})_[0-9A-Za-z_-]{43}")


class NoSuchKey(WatchbillError):
    """There is no valid API key with this id or name."""

    def __init__(self, key: str) -> None:
        super().__init__(f"There is no valid API key {key!r}.", hint="`watchbill keys list` shows them.")


@dataclass(frozen=True)
class NewKey:
    """A key that was just made. It cannot be shown again."""

    id: str
    key: str


@dataclass(frozen=True, slots=True)
class UsedKey:
    """What a valid key may do."""

    name: str
    role: str
    tenant: str | None
    queues: list[str]
    types: list[str]
    rate: float | None


@dataclass(frozen=True, slots=True)
class SavedFilter:
    id: int
    page: str
    name: str
    query: str
    created_by: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ChartMark:
    id: int
    at: datetime
    text: str
    created_by: str


def hash_key(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def find_key_id(key: str) -> str | None:
    """The public part of a key; None if the text is not a key."""
    found = _KEY.fullmatch(key)
    return None if found is None else found[1]


def add_key(
    name: str,
    role: str,
    *,
    tenant: str | None = None,
    queues: Sequence[str] = (),
    types: Sequence[str] = (),
    rate: float | None = None,
    expires_at: datetime | None = None,
) -> Operation[NewKey]:
    """Makes an API key. Whatever it does is recorded under its name."""
    key_id = "".join(secrets.choice(_ID_CHARACTERS) for _ in range(8))
    secret = base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()
    key = f"wb_{key_id}_{secret}"
    yield Statement(
        "add_api_key", (key_id, hash_key(key), name, role, tenant, list(queues), list(types), rate, expires_at), (str,)
    )
    return NewKey(key_id, key)


def revoke_key(key: str) -> Operation[str]:
    """Revokes the key with this id or name, and returns its id. Dashboards notice it within ten seconds."""
    ((revoked,),) = yield Statement("revoke_api_key", (key,), (str | None,))
    if revoked is None:
        raise NoSuchKey(key)
    return str(revoked)


def keys() -> Operation[list[ApiKey]]:
    """All API keys, the newest first, also those that have expired or were revoked."""
    return [ApiKey(*row) for row in (yield Statement("api_keys", (), ApiKey))]


def use_key(key_id: str, hashed: bytes | None) -> Operation[UsedKey | None]:
    rows = yield Statement("use_api_key", (key_id, hashed), UsedKey)
    return UsedKey(*rows[0]) if rows else None


def save_filter(page: str, name: str, query: str, tenant: str | None) -> Operation[int]:
    """Keeps a filter of a page for those who see this tenant; None: who see all tenants."""
    ((stored,),) = yield Statement("save_filter", (page, name, query, tenant), (int,))
    return int(stored)


def saved_filters(page: str | None, tenant: str | None) -> Operation[list[SavedFilter]]:
    return [SavedFilter(*row) for row in (yield Statement("saved_filters", (page, tenant), SavedFilter))]


def remove_filter(filter_id: int, tenant: str | None) -> Operation[bool]:
    ((is_removed,),) = yield Statement("remove_filter", (filter_id, tenant), (bool,))
    return bool(is_removed)


def add_chart_mark(text: str, at: datetime | None = None) -> Operation[int]:
    """Notes something that charts show as a line, such as a deploy."""
    ((mark,),) = yield Statement("add_chart_mark", (text, at), (int,))
    return int(mark)


def chart_marks(since: datetime | None = None, until: datetime | None = None) -> Operation[list[ChartMark]]:
    return [ChartMark(*row) for row in (yield Statement("chart_marks", (since, until), ChartMark))]


def remove_chart_mark(mark: int) -> Operation[bool]:
    ((is_removed,),) = yield Statement("remove_chart_mark", (mark,), (bool,))
    return bool(is_removed)

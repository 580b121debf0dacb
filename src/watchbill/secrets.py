"""Secrets: from references to values, and out of everything that others may see.

A worker says with the setting `connector_secrets` which references it resolves, so that who may write an endpoint
or a route of alerts cannot fetch other variables and files of the worker, such as the password of its database.
"""

from __future__ import annotations

import asyncio
import base64
import html
import inspect
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from watchbill.errors import WatchbillError
from watchbill.model.endpoint import SecretResolver

KEPT_SECONDS = 60.0
RESOLVER_SECONDS = 30.0  # how long a resolver may take; a vault that hangs must not keep a slot
SHORTEST_SECRET = 8  # characters; to remove a shorter one from texts would destroy them
HIDDEN = "[secret]"


class NoSecret(WatchbillError):
    """A reference cannot be resolved here."""


class Secrets:
    """Resolves references for one worker process, each once a minute at most."""

    def __init__(self, allowed: Iterable[str], resolvers: Mapping[str, SecretResolver]) -> None:
        self._allowed, self._resolvers = list(allowed), resolvers
        self._known: dict[tuple[str, str], tuple[str, float]] = {}
        self._reading: dict[tuple[str, str], asyncio.Lock] = {}  # many jobs that start together read a secret once

    async def resolve(self, reference: str, tenant: str) -> str:
        key = (tenant, reference)
        if (known := self._find_known(key)) is not None:
            return known
        async with self._reading.setdefault(key, asyncio.Lock()):
            if (known := self._find_known(key)) is not None:
                return known
            value = (await self._read(reference, tenant)).removesuffix("\n")
            _check_secret(reference, value)
            self._known[key] = value, time.monotonic() + KEPT_SECONDS
            return value

    def _find_known(self, key: tuple[str, str]) -> str | None:
        value, until = self._known.get(key, ("", 0.0))
        return value if time.monotonic() < until else None

    async def _read(self, reference: str, tenant: str) -> str:
        kind, _, name = reference.partition(":")
        if kind == "resolver":
            return await self._ask_resolver(reference, name, tenant)
        if kind not in ("env", "file") or not any(_matches(pattern, reference, tenant) for pattern in self._allowed):
            raise NoSecret(
                f"{reference} is not among the references that this worker resolves: {', '.join(self._allowed)}",
                hint="The setting connector_secrets lists them.",
            )
        if kind == "env":
            if (value := os.environ.get(name)) is None:
                raise NoSecret(f"{reference}: this worker has no such variable")
            return value
        try:
            return await asyncio.to_thread(Path(name).read_text, "utf-8")
        except (OSError, UnicodeError) as error:
            raise NoSecret(f"{reference} cannot be read: {type(error).__name__}") from None

    async def _ask_resolver(self, reference: str, name: str, tenant: str) -> str:
        function, _, key = name.partition("/")
        resolver = self._resolvers.get(function)
        if resolver is None:
            raise NoSecret(
                f"{reference}: the app has no secret resolver {function!r}", hint="Register it: @app.secret_resolver"
            )
        try:
            async with asyncio.timeout(RESOLVER_SECONDS):
                if inspect.iscoroutinefunction(resolver):
                    value: Any = await resolver(key, tenant)
                else:
                    value = await asyncio.to_thread(resolver, key, tenant)
        except Exception as error:  # noqa: BLE001  (the message may have the secret)
            raise NoSecret(f"{reference}: the resolver raised {type(error).__name__}") from None
        if not isinstance(value, str):
            raise NoSecret(f"{reference}: the resolver returned {type(value).__name__}, not str")
        return value


def _matches(pattern: str, reference: str, tenant: str) -> bool:
    """A `*` stands for part of one name, and does not cross `/`; `..` matches nothing. `{tenant}` is the tenant."""
    words = [re.escape(each.replace("{tenant}", tenant)) for each in pattern.split("*")]
    return ".." not in reference.split("/") and re.fullmatch("[^/]*".join(words), reference) is not None


def _check_secret(reference: str, value: str) -> None:
    if len(value) < SHORTEST_SECRET:
        raise NoSecret(f"{reference}: the secret has fewer than {SHORTEST_SECRET} characters")
    if not value.isprintable() or not value.isascii() or value != value.strip():
        raise NoSecret(f"{reference}: the secret has a character that a header cannot have")


class Redaction:
    """Removes secrets from texts and bytes: as they are, and in the forms in which servers repeat them."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets for form in _list_forms(secret)}
        self._forms = sorted(forms, key=len, reverse=True)
        self._bytes = [form.encode() for form in self._forms]

    def text(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, HIDDEN)
        return text

    def data(self, data: bytes, *, is_cut: bool = False) -> bytes:
        """`is_cut`: the data was longer, and may end in the middle of a secret."""
        for form in self._bytes:
            data = data.replace(form, HIDDEN.encode())
        if not is_cut:
            return data
        cut = max((_overlap(data, form) for form in self._bytes), default=0)
        return data[: len(data) - cut]


def _overlap(data: bytes, form: bytes) -> int:
    """How many bytes at the end of `data` are the beginning of `form`."""
    return next((length for length in range(len(form) - 1, 0, -1) if data.endswith(form[:length])), 0)


def _list_forms(secret: str) -> Iterator[str]:
    escaped = json.dumps(secret)[1:-1]
    yield from (secret, escaped, escaped.replace("/", "\\/"))
    # As Go and PHP write them in JSON, so that no browser takes them for HTML.
    yield re.sub("[&<>]", lambda found: f"\\u{ord(found[0]):04x}", escaped)
    yield re.sub("[&<>]", lambda found: f"\\u{ord(found[0]):04X}", escaped)
    yield from (html.escape(secret), html.escape(secret).replace("&#x27;", "&#39;"))
    percent = quote(secret, safe="")
    yield from (percent, quote_plus(secret), re.sub("%..", lambda found: found[0].lower(), percent))
    # A longer text that contains the secret has one of three base64 forms of it, and others at both ends.
    for skipped in range(3):
        raw = base64.b64encode(b"\0" * skipped + secret.encode()).decode()
        start, end = -(-skipped * 8 // 6), (skipped + len(secret)) * 8 // 6
        yield from (raw[start:end], raw[start:end].replace("+", "-").replace("/", "_"))

"""Outgoing: what the connectors of one worker process share, and the steps that both of them take.

find_place      from a payload's endpoint and path, or its free address, to a checked target with its secrets
send            one exchange
report          notes on the endpoint how it ended
"""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

import httpcore2

from watchbill._version import __version__
from watchbill.client import endpoint_operations
from watchbill.client.endpoint_operations import EndpointForJob
from watchbill.connectors.exchange import Answer, Headers, NoAnswer, Request, Sender, TooLarge
from watchbill.connectors.guard import Refused, Resolve, Rules, Target, read_target, resolve
from watchbill.model.decisions import Permanent
from watchbill.secrets import NoSecret, Redaction, Secrets
from watchbill.worker.run import Run

if TYPE_CHECKING:
    from watchbill.app.application import App

ENDPOINT_KEPT_SECONDS = 2.0  # how long a change of an endpoint may take to arrive
MOST_ENDPOINTS_KEPT = 10_000
DEFAULT_TIMEOUT_SECONDS = 30.0
_OUR_HEADERS = frozenset(
    {
        "host", "content-length", "connection", "transfer-encoding", "upgrade", "te", "trailer", "keep-alive", "expect",
        "accept-encoding", "proxy-authorization", "proxy-connection",
    }
)  # fmt: skip
_HEADER_VALUE = re.compile(r"(?:[!-~](?:[ -~\t]*[!-~])?)?")
_INVALID_UTF8 = re.compile(rb"[\xc0\xc1]")  # a longer spelling of an ASCII character, which some servers accept
_TOKEN = frozenset("!#$%&'*+.^_`|~-0123456789abcdefghijklmnopqrstuvwxyz")


class RequestFailed(Exception):
    """The request has failed, and may succeed when it is tried again."""


@dataclass(frozen=True)
class Place:
    """Where a request goes. `signing` are the secrets that sign webhooks."""

    target: Target
    endpoint: EndpointForJob | None
    headers: Headers = ()
    secrets: Headers = field(default=(), repr=False)
    secret_hosts: frozenset[str] = frozenset()
    signing: tuple[str, ...] = field(default=(), repr=False)
    redaction: Redaction = field(default_factory=lambda: Redaction(()), repr=False)
    timeout: float = DEFAULT_TIMEOUT_SECONDS


@dataclass(frozen=True)
class Choices:
    """What `add_connectors` was called with."""

    app: App[Any]
    allows_free_addresses: bool
    allow_http: bool
    tls: ssl.SSLContext | None
    resolve: Resolve = resolve


class Outgoing:
    """Made once per worker process."""

    def __init__(self, choices: Choices, tls: ssl.SSLContext) -> None:
        settings = choices.app.settings
        self._choices = choices
        self.max_result = settings.max_result
        self.most_bytes = max(settings.max_result * 3 // 4 - 4_096, 0)  # base64 makes four bytes of three
        self._sender = Sender(
            Rules.read(settings.connector_allow, settings.connector_deny),
            allow_http=choices.allow_http,
            tls=tls,
            proxy=settings.connector_proxy,
            most_wire_bytes=4 * settings.max_result,
            resolve=choices.resolve,
        )
        self._secrets = Secrets(settings.connector_secrets, choices.app.secret_resolvers)
        self._endpoints: dict[tuple[str, str], tuple[EndpointForJob | None, float]] = {}

    @classmethod
    async def open(cls, choices: Choices) -> Outgoing:
        tls = choices.tls
        if tls is None:  # in a thread, because it reads some hundred certificates
            tls = await asyncio.to_thread(lambda: httpcore2.default_ssl_context(_trust_env=False))
        return cls(choices, tls)

    async def aclose(self) -> None:
        await self._sender.aclose()

    async def find_place(
        self, tenant: str, *, kind: str, endpoint: str | None, path: str, query: str, url: str | None
    ) -> Place:
        """Returns where a request goes. Raises Permanent if the payload names no such place."""
        if (endpoint is None) == (url is None):
            raise Permanent("give endpoint, with a path, or url, and not both")
        if url is not None:
            if not self._choices.allows_free_addresses:
                raise Permanent("this worker allows endpoints only: add_connectors(app, urls='endpoints')")
            if path:
                raise Permanent("path belongs to an endpoint; write it into url")
            return Place(_read_target(_add_query(url, query), allow_http=self._choices.allow_http), None)
        assert endpoint is not None
        found = await self._find_endpoint(tenant, endpoint)
        if found is None:
            raise Permanent(
                f"endpoint {endpoint!r} of tenant {tenant!r} is unknown; an operator adds it: watchbill endpoints add"
            )
        if found.disabled_reason is not None:
            raise Permanent(f"endpoint {endpoint!r} is disabled: {found.disabled_reason}")
        if found.kind != kind:
            raise Permanent(f"endpoint {endpoint!r} is of kind {found.kind}, and this connector needs kind {kind}")
        address = _add_query(_join_path(found.base_url, path), query)
        target = _read_target(address, allow_http=self._choices.allow_http)
        try:
            return await self._add_secrets(target, found, tenant)
        except NoSecret as error:  # another worker may have it
            raise RequestFailed(f"endpoint {endpoint!r}: {error.message}") from None

    async def _add_secrets(self, target: Target, found: EndpointForJob, tenant: str) -> Place:
        auth, secrets, hidden, signing = found.auth or {}, list[tuple[str, str]](), list[str](), list[str]()
        references = auth["secrets"] if auth.get("kind") == "signature" else [auth["secret"]] if auth else []
        values = [await self._secrets.resolve(each, tenant) for each in references]
        hidden += values
        match auth.get("kind"):
            case "bearer":
                secrets.append(("Authorization", f"Bearer {values[0]}"))
            case "basic":
                pair = base64.b64encode(f"{auth['user']}:{values[0]}".encode()).decode()
                secrets.append(("Authorization", f"Basic {pair}"))
                hidden.append(pair)
            case "header":
                secrets.append((auth["name"], values[0]))
            case "signature":
                signing += values
                hidden += [each.removeprefix("whsec_") for each in values]
        return Place(
            target,
            found,
            headers=tuple(found.headers.items()),
            secrets=tuple(secrets),
            secret_hosts=frozenset(found.hosts or [target.host]),
            signing=tuple(signing),
            redaction=Redaction(hidden),
            timeout=found.timeout or DEFAULT_TIMEOUT_SECONDS,
        )

    async def send(self, run: Run, place: Place, request: Request, endpoint: str | None) -> Answer:
        """Sends a request. Raises Permanent for what another try cannot change, and NoAnswer. Its messages have no
        secret."""
        try:
            return await self._sender.send(request, tenant=run.tenant, endpoint=endpoint or "")
        except (Refused, TooLarge) as error:
            raise Permanent(place.redaction.text(str(error))) from None
        except NoAnswer as error:
            raise NoAnswer(place.redaction.text(str(error)), was_sent=error.was_sent) from None
        except Exception as error:  # noqa: BLE001  (an error of a library may have a secret in its message)
            message = place.redaction.text(f"{type(error).__name__}: {error}")
            raise NoAnswer(f"{place.target.origin}: {message}", was_sent=True) from None

    async def _find_endpoint(self, tenant: str, name: str) -> EndpointForJob | None:
        found, until = self._endpoints.get((tenant, name), (None, 0.0))
        if time.monotonic() >= until:
            operation = endpoint_operations.read_endpoint(tenant, name)
            found = await self._choices.app.producer.arun_apart(operation)
            if len(self._endpoints) >= MOST_ENDPOINTS_KEPT:
                self._endpoints.clear()
            self._endpoints[tenant, name] = found, time.monotonic() + ENDPOINT_KEPT_SECONDS
        return found

    async def report(self, tenant: str, name: str, place: Place, outcome: str) -> bool:
        """Notes how a delivery to an endpoint ended. Returns whether this disabled the endpoint."""
        assert place.endpoint is not None
        if outcome == "succeeded" and not place.endpoint.is_failing:
            return False
        operation = endpoint_operations.report_endpoint(tenant, name, outcome)
        is_disabled = await self._choices.app.producer.arun_apart(operation)
        self._endpoints.pop((tenant, name), None)
        return is_disabled


def check_headers(headers: Mapping[str, Any]) -> Headers:
    """Refuses headers that a payload cannot set, or that would end the line."""
    for name, value in headers.items():
        if not name.isascii() or not name or not set(name.lower()) <= _TOKEN or name.lower() in _OUR_HEADERS:
            raise Permanent(f"the header {name[:100]!r} cannot be set")
        if not isinstance(value, str) or _HEADER_VALUE.fullmatch(value) is None:
            raise Permanent(
                f"the value of the header {name[:100]!r} must be a text of ASCII without line breaks, and without "
                "spaces at its ends"
            )
    return tuple(headers.items())


def merge_headers(*groups: Headers) -> Headers:
    """Later groups replace headers of earlier ones."""
    merged = {name.lower(): (name, value) for group in groups for name, value in group}
    return tuple(merged.values())


OWN_HEADERS: Headers = (("User-Agent", f"Watchbill/{__version__}"), ("Accept", "*/*"))


def limit_timeout(run: Run, place: Place, wanted: float | None) -> float:
    """The time-out of the exchange: less than that of the attempt, so that the error says what was slow."""
    timeout = place.timeout if wanted is None else wanted
    return timeout if run.timeout is None else min(timeout, run.timeout * 0.95)


def _read_target(url: str, *, allow_http: bool) -> Target:
    try:
        return read_target(url, allow_http=allow_http)
    except Refused as error:
        raise Permanent(str(error)) from None


def _add_query(url: str, query: str) -> str:
    if not query:
        return url
    before, hash_sign, fragment = url.partition("#")
    return before + ("&" if "?" in before else "?") + query + hash_sign + fragment


def _join_path(base_url: str, path: str) -> str:
    """Joins a path below the address of an endpoint, and refuses one that could leave it, on any server."""
    if not path:
        return base_url
    raw = unquote_to_bytes(unquote_to_bytes(path))
    decoded = raw.decode("utf-8", "replace").replace("\\", "/")
    segments = [each.partition(";")[0].strip() for each in decoded.split("/")]
    is_odd = _INVALID_UTF8.search(raw) is not None or any(byte < 32 for byte in raw)
    if {".", ".."} & set(segments) or decoded.startswith("//") or is_odd or any(each in path for each in "?#\\"):
        raise Permanent(
            "path must stay below the address of the endpoint: no '..' in any spelling, no '//' at its beginning, no "
            "'?', and no control characters"
        )
    return base_url.rstrip("/") + "/" + path.removeprefix("/")

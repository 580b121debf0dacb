"""One exchange: sends a request, follows redirects, and reads an answer that may be hostile.

The whole exchange has a deadline, and the answer has bounds: on the wire, in headers, and after decompression. Every
host gets only what it may have: secrets go to the hosts of their endpoint, and to no other host after a redirect.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import httpcore2

from watchbill.connectors.guard import (
    CountingBackend,
    GuardedBackend,
    Refused,
    Resolve,
    Rules,
    Target,
    read_redirect,
    resolve,
)
from watchbill.telemetry.context import may_log_secrets

Headers: TypeAlias = tuple[tuple[str, str], ...]

CONNECT_SECONDS = 5.0
MOST_HEADERS, MOST_HEADER_BYTES = 200, 65_536
MOST_CONNECTIONS = 250  # of a process, before idle ones are closed: a process may often open 1,024 files in all
MOST_IDLE_OF_POOL = 5
IDLE_SECONDS = 30.0
OPTIONAL_BODY_SECONDS = 2.0
MOST_WIRE_BYTES = 4_194_304  # of one answer, with its headers, as they arrive
_PRIVATE = frozenset({"authorization", "cookie", "proxy-authorization"})  # never sent on to another origin
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_KEEPS_METHOD = frozenset({307, 308})
_MORE_BODY = {"content-length", "content-type", "content-encoding"}


class NoAnswer(Exception):
    """There is no answer. `was_sent`: the server may have received the request and acted on it."""

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent


class TooLarge(Exception):
    """The answer is larger than the request allows."""


@dataclass(frozen=True)
class Request:
    """`secrets` are headers that only the hosts in `secret_hosts` get. Without `needs_body` an answer of 200 to 299 is
    complete with its headers: a body that is too large, broken or slow is not read."""

    method: str
    target: Target
    headers: Headers = ()
    body: bytes = b""
    secrets: Headers = field(default=(), repr=False)
    secret_hosts: frozenset[str] = frozenset()
    needs_body: bool = True
    timeout: float = 30.0
    most_bytes: int = 1_048_576
    truncate: bool = False
    redirects: int = 0


class Answer(NamedTuple):
    """`body` has at most `most_bytes` of the request. `has_more`: the rest was not read."""

    status: int
    headers: Headers
    body: bytes
    has_more: bool
    url: str
    seconds: float

    def find(self, name: str) -> str | None:
        """The value of a header, by its name in lower case."""
        return next((value for each, value in self.headers if each == name), None)


class _Pool:
    """The connections of one tenant to one endpoint."""

    def __init__(self, connections: httpcore2.AsyncConnectionPool) -> None:
        self.connections = connections
        self.users = 0  # requests under way
        self.held = 0  # connections when the last request ended
        self.last_used = time.monotonic()


class Sender:
    """Sends requests on one event loop. Every pair of tenant and endpoint has connections of its own, so that no tenant
    uses a connection that another has opened. Connections that are idle are closed after half a minute, or as soon as
    there are many."""

    def __init__(
        self,
        rules: Rules,
        *,
        allow_http: bool = False,
        tls: ssl.SSLContext | None = None,
        proxy: str | None = None,
        most_wire_bytes: int = MOST_WIRE_BYTES,
        resolve: Resolve = resolve,
    ) -> None:
        self.allow_http = allow_http
        self._rules, self._proxy, self._resolve = rules, proxy, resolve
        self._tls = httpcore2.default_ssl_context(_trust_env=False) if tls is None else tls
        self._most_wire_bytes = most_wire_bytes
        self._pools: OrderedDict[tuple[str, str], _Pool] = OrderedDict()  # the one used last is the last
        self._held = 0  # connections of all pools
        self._sweep: asyncio.Task[None] | None = None
        _silence_debug_logs()

    async def send(self, request: Request, *, tenant: str, endpoint: str = "") -> Answer:
        """Returns the answer, whatever its status. Raises Refused, NoAnswer or TooLarge. Without an endpoint the
        request never goes inward."""
        began, progress = time.monotonic(), _Progress()
        try:
            with _sending():
                async with asyncio.timeout(request.timeout):
                    return await self._follow(request, tenant, endpoint, began, progress)
        except TimeoutError:
            message = f"no complete answer from {request.target.origin} within {request.timeout:g} s"
            raise NoAnswer(message, was_sent=progress.was_sent) from None
        except (
            httpcore2.NetworkError,
            httpcore2.TimeoutException,
            httpcore2.ProtocolError,
            httpcore2.ProxyError,
        ) as error:
            message = f"{request.target.origin}: {str(error) or type(error).__name__}"
            raise NoAnswer(message, was_sent=progress.was_sent) from None

    async def aclose(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        pools, self._pools = list(self._pools.values()), OrderedDict()
        for pool in pools:
            await pool.connections.aclose()

    async def _follow(self, request: Request, tenant: str, endpoint: str, began: float, progress: _Progress) -> Answer:
        own_hosts = request.secret_hosts | {request.target.host}
        for _ in range(request.redirects + 1):
            # A host to which an endpoint redirects is not the endpoint: it gets what a free address gets, and may not
            # lead inward.
            belongs = request.target.host in own_hosts
            answer = await self._exchange_pooled(request, tenant, endpoint if belongs else "", began, progress)
            location = answer.find("location")
            if answer.status not in _REDIRECTS or location is None or request.redirects == 0:
                return answer
            request = self._redirect(request, answer.status, location)
        raise TooLarge(
            f"the answer is more than {request.redirects} redirects; the last leads to {request.target.origin}"
        )

    def _redirect(self, request: Request, status: int, location: str) -> Request:
        target = read_redirect(request.target, location, allow_http=self.allow_http)
        headers = request.headers
        if target.origin != request.target.origin:
            headers = tuple(each for each in headers if each[0].lower() not in _PRIVATE)
        if status in _KEEPS_METHOD or request.method in ("GET", "HEAD"):
            return replace(request, target=target, headers=headers)
        headers = tuple(each for each in headers if each[0].lower() not in _MORE_BODY)
        return replace(request, method="GET", body=b"", target=target, headers=headers)

    async def _exchange_pooled(
        self, request: Request, tenant: str, endpoint: str, began: float, progress: _Progress
    ) -> Answer:
        await self._close_idle()
        key = (tenant, endpoint)
        if (pool := self._pools.get(key)) is None:
            pool = self._pools[key] = _Pool(self._make_pool(may_go_inward=bool(endpoint)))
        if self._sweep is None or self._sweep.done():
            self._sweep = asyncio.create_task(self._sweep_pools())
        pool.users += 1
        try:
            return await self._exchange(pool.connections, request, began, progress)
        finally:
            pool.users -= 1
            pool.last_used = time.monotonic()
            self._held += len(pool.connections.connections) - pool.held
            pool.held = len(pool.connections.connections)
            if key in self._pools:
                self._pools.move_to_end(key)

    async def _sweep_pools(self) -> None:
        while self._pools:
            await asyncio.sleep(IDLE_SECONDS)
            await self._close_idle()

    async def _close_idle(self) -> None:
        """Closes the connections of pools that have no request under way, from the one that was used longest ago."""
        oldest = time.monotonic() - IDLE_SECONDS
        for key, pool in list(self._pools.items()):
            if self._held <= MOST_CONNECTIONS and pool.last_used > oldest:
                return
            if pool.users == 0 and self._pools.get(key) is pool:
                del self._pools[key]
                self._held -= pool.held
                await pool.connections.aclose()

    def _make_pool(self, *, may_go_inward: bool) -> httpcore2.AsyncConnectionPool:
        options: dict[str, Any] = {
            "ssl_context": self._tls, "max_connections": None, "max_keepalive_connections": MOST_IDLE_OF_POOL,
            "keepalive_expiry": IDLE_SECONDS,
        }  # fmt: skip
        if self._proxy is not None:  # the proxy resolves names, so the guard cannot judge addresses
            backend: httpcore2.AsyncNetworkBackend = CountingBackend(self._most_wire_bytes)
            return httpcore2.AsyncHTTPProxy(self._proxy, network_backend=backend, **options)
        backend = GuardedBackend(
            self._rules, may_go_inward=may_go_inward, most_bytes=self._most_wire_bytes, resolve=self._resolve
        )
        return httpcore2.AsyncConnectionPool(network_backend=backend, **options)

    async def _exchange(
        self, pool: httpcore2.AsyncConnectionPool, request: Request, began: float, progress: _Progress
    ) -> Answer:
        target = request.target
        if self._proxy is not None:
            self._refuse_before_proxy(target)
        may_have_secrets = target.host in request.secret_hosts
        secret_names = {name.lower() for name, _ in request.secrets}
        headers = [("host", target.origin.partition("://")[2]), ("accept-encoding", "gzip, deflate")]
        headers += [each for each in request.headers if each[0].lower() not in secret_names]
        headers += request.secrets if may_have_secrets else ()
        if request.body or request.method in ("POST", "PUT", "PATCH"):
            headers.append(("content-length", str(len(request.body))))
        timeouts = {"connect": CONNECT_SECONDS, "read": None, "write": None, "pool": None}
        async with pool.stream(
            request.method.encode("ascii"),
            httpcore2.URL(
                scheme=target.scheme.encode(), host=target.host.encode(), port=target.port, target=target.path.encode()
            ),
            headers=[(name.encode("ascii"), value.encode("latin-1")) for name, value in headers],
            content=request.body or None,
            extensions={"timeout": timeouts, "trace": progress.note},
        ) as response:
            received = _read_headers(response.headers)
            if request.needs_body or not 200 <= response.status < 300:
                body, has_more = await _read_body(response, received, request)
            else:
                body, has_more = await _try_to_read_body(response, received, request)
        return Answer(response.status, received, body, has_more, target.url, time.monotonic() - began)

    def _refuse_before_proxy(self, target: Target) -> None:
        """With a proxy only the hosts of `connector_deny`, and addresses that are written as numbers, can be judged."""
        if (why := self._rules.judge_text(target.host, target.port)) is not None:
            raise Refused(why)


class _Progress:
    """Notes whether a request has been sent, at least in part."""

    def __init__(self) -> None:
        self.was_sent = False

    async def note(self, event: str, info: object) -> None:
        if event.endswith("send_request_headers.started"):
            self.was_sent = True


def _read_headers(raw: list[tuple[bytes, bytes]]) -> Headers:
    if len(raw) > MOST_HEADERS or sum(len(name) + len(value) for name, value in raw) > MOST_HEADER_BYTES:
        raise TooLarge(f"the answer has more than {MOST_HEADERS} headers, or {MOST_HEADER_BYTES:,} bytes of headers")
    return tuple((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in raw)


async def _read_body(response: httpcore2.Response, headers: Headers, request: Request) -> tuple[bytes, bool]:
    most, body = request.most_bytes, bytearray()
    decoder = _make_decoder(dict(headers).get("content-encoding", "identity"))
    async for chunk in response.aiter_stream():
        await asyncio.sleep(0)  # an answer in a million small chunks must not hold the event loop
        body += decoder.decode(chunk, most - len(body) + 1)
        if len(body) > most:
            if request.truncate:
                return bytes(body[:most]), True
            raise TooLarge(f"the answer has more than {most:,} bytes (max_response)")
    decoder.finish()
    return bytes(body), False


async def _try_to_read_body(response: httpcore2.Response, headers: Headers, request: Request) -> tuple[bytes, bool]:
    """Reads a body that does not decide anything. A short one is read so that the connection can be used again."""
    try:
        async with asyncio.timeout(OPTIONAL_BODY_SECONDS):
            return await _read_body(response, headers, request)
    except (TimeoutError, TooLarge, httpcore2.NetworkError, httpcore2.ProtocolError):
        return b"", True


class _Plain:
    """Takes an answer as it is."""

    def decode(self, chunk: bytes, most: int) -> bytes:
        return chunk[:most]

    def finish(self) -> None:
        pass


class _Compressed:
    """Decompresses an answer, and refuses one that ends too early. What follows its end is dropped."""

    def __init__(self, wbits: int) -> None:
        self._decompressor = zlib.decompressobj(wbits=wbits)
        self._has_begun = False

    def decode(self, chunk: bytes, most: int) -> bytes:
        """Decodes the next chunk into at most so many bytes."""
        if self._decompressor.eof:
            return b""
        self._has_begun = True
        try:
            return self._decompressor.decompress(self._decompressor.unconsumed_tail + chunk, most)
        except zlib.error as error:
            raise httpcore2.RemoteProtocolError(f"the answer cannot be decompressed: {error}") from None

    def finish(self) -> None:
        if self._has_begun and not self._decompressor.eof:
            raise httpcore2.RemoteProtocolError("the answer cannot be decompressed: it is not complete")


def _make_decoder(encoding: str) -> _Plain | _Compressed:
    match encoding.strip().lower():
        case "identity" | "":
            return _Plain()
        case "gzip" | "x-gzip":
            return _Compressed(wbits=31)
        case "deflate":
            return _Compressed(wbits=15)
        case other:
            raise TooLarge(f"the answer is encoded as {other[:50]!r}; gzip and deflate are understood")


@contextmanager
def _sending() -> Iterator[None]:
    token = may_log_secrets.set(True)
    try:
        yield
    finally:
        may_log_secrets.reset(token)


def _silence_debug_logs() -> None:
    """Keeps httpcore2 from logging our exchanges: the headers of an answer may repeat a secret."""
    for name in ("connection", "http11", "http2", "proxy"):
        logger = logging.getLogger(f"httpcore2.{name}")
        if _is_foreign not in logger.filters:
            logger.addFilter(_is_foreign)


def _is_foreign(record: logging.LogRecord) -> bool:
    return not may_log_secrets.get()

"""The guard: keeps requests of connectors out of the network that the worker stands in.

    read_target         checks the text of an address: scheme, host, port, nothing hidden
    Rules.judge         whether a connection to one IP address and port is allowed
    GuardedBackend      resolves a name, judges every address, and connects to one that it has judged

A name is resolved once for a connection, and the connection goes to the addresses that were judged then. So it does
not help to let a name resolve to something else the next time. Redirects are new targets, and pass all of this again.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

import httpcore2
import idna

from watchbill.connectors.addresses import Address, Network, describe_inward, find_wrapped, is_metadata
from watchbill.errors import WatchbillError

LONGEST_URL = 2_048
PORTS = {"https": 443, "http": 80}
READ_BYTES = 4_096  # small, so that parsing what one read brings never holds the event loop for long
CONNECTIONS_TRIED = 4  # addresses of one name
_HOST = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_HIDDEN = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029]")  # what parsers drop, or take for something else
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)")
_QUAD = re.compile(r"[0-9.]+")
_KEPT_IN_PATH = "/:@!$&'()*+,;=-._~%?[]|"

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class Refused(WatchbillError):
    """The guard does not allow this address."""


class Target(NamedTuple):
    """A checked address: `host` is a name in ASCII, or an IP address without brackets."""

    scheme: str
    host: str
    port: int
    path: str  # with the query

    @property
    def origin(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{shown}" + ("" if PORTS[self.scheme] == self.port else f":{self.port}")

    @property
    def url(self) -> str:
        return self.origin + self.path


def read_target(url: str, *, allow_http: bool = False) -> Target:
    """Checks the text of an address and takes it apart. Raises Refused with what would be right."""
    if len(url) > LONGEST_URL:
        raise Refused(f"the address has {len(url):,} characters, the limit is {LONGEST_URL:,}")
    if _HIDDEN.search(url):
        raise Refused(
            "the address has a space, a control character or a backslash",
            hint="Write such characters percent-encoded, as %20.",
        )
    scheme, colon, rest = url.partition(":")
    scheme = scheme.lower()
    if not colon or not rest.startswith("//") or scheme not in PORTS:
        raise Refused("the address must begin with https://")
    if scheme == "http" and not allow_http:
        raise Refused(
            "the address begins with http://, and this worker sends https only",
            hint="add_connectors(app, allow_http=True) allows http.",
        )
    try:
        parts = urlsplit(f"{scheme}:{rest}")
        port = parts.port
    except ValueError as error:
        raise Refused(f"the address cannot be read: {error}") from None
    if "@" in parts.netloc:
        raise Refused(
            "the address has a user or a password in it", hint="Configure an endpoint, whose auth has the secret."
        )
    host = _read_host(parts.netloc)
    if port == 0 or (port is None and parts.netloc.endswith(":")):
        raise Refused("the port of the address is invalid")
    path = quote(parts.path or "/", safe=_KEPT_IN_PATH)
    query = f"?{quote(parts.query, safe=_KEPT_IN_PATH)}" if parts.query else ""
    return Target(scheme, host, port or PORTS[scheme], path + query)


def read_redirect(before: Target, location: str, *, allow_http: bool = False) -> Target:
    """Checks where a redirect leads. From https it does not lead to http."""
    if _HIDDEN.search(location):
        raise Refused("the redirect has a space, a control character or a backslash")
    try:
        joined = urljoin(before.url, location)
    except ValueError as error:
        raise Refused(f"the redirect cannot be read: {error}") from None
    after = read_target(joined, allow_http=allow_http)
    if before.scheme == "https" and after.scheme == "http":
        raise Refused("the redirect leads from https to http")
    return after


def _read_host(netloc: str) -> str:
    if netloc.startswith("["):
        literal, _, rest = netloc[1:].partition("]")
        if rest and not rest.startswith(":"):
            raise Refused(f"the address cannot be read: {rest!r} follows an IPv6 address")
        try:
            address = ip_address(literal)
        except ValueError:
            address = IPv4Address(0)
        if address.version != 6 or getattr(address, "scope_id", None) is not None:
            raise Refused(f"the address cannot be read: [{literal}] is not an IPv6 address")
        return str(address)
    name = netloc.partition(":")[0]
    if "%" in name:
        raise Refused("the host is percent-encoded; write it as it is")
    host = _encode_host(name)
    if _NUMBER.fullmatch(host.rpartition(".")[2]) is not None:  # such a name is an address, in one of many spellings
        try:
            return str(IPv4Address(host if _QUAD.fullmatch(host) else ""))
        except ValueError:
            raise Refused(f"the host {host} is an address in an odd form; write four numbers, as 192.0.2.1") from None
    return host


def _encode_host(name: str) -> str:
    try:
        encoded = name.lower() if name.isascii() else idna.encode(name, uts46=True).decode("ascii")
    except UnicodeError as error:  # also what the package idna raises
        raise Refused(f"the host {name!r} is not a valid name: {error}") from None
    host = encoded.removesuffix(".")
    if len(host) > 253 or _HOST.fullmatch(host) is None:
        raise Refused(f"the host {name!r} is not a valid name")
    return host


@dataclass(frozen=True)
class Allowance:
    """An entry of `connector_allow`: a network with a port or the two common ones. Without a network (`*:8443`): this
    port at every address that leads outward."""

    network: Network | None
    port: int | None

    @classmethod
    def read(cls, text: str) -> Allowance:
        found = re.fullmatch(
            r"\[(?P<v6>[^\]]+)\](?::(?P<p6>\d+))?|(?P<v4>\*|[\d./]+)(?::(?P<p4>\d+))?|(?P<bare>\S+)", text
        )
        if found is None:
            raise ValueError(f"{text!r} is not a network")
        name, port = found["v6"] or found["v4"] or found["bare"], found["p6"] or found["p4"]
        number = None if port is None else int(port)
        if number is not None and not 0 < number < 65_536:
            raise ValueError(f"{text!r} has an invalid port")
        if name == "*":
            if number is None:
                raise ValueError("* needs a port, as in *:8443")
            return cls(None, number)
        return cls(ip_network(name), number)

    def has(self, address: Address, port: int) -> bool:
        return (
            self.network is not None
            and address in self.network
            and (port in PORTS.values() if self.port is None else port == self.port)
        )

    def names_exactly(self, address: Address) -> bool:
        return self.network is not None and self.network.num_addresses == 1 and address in self.network


@dataclass(frozen=True)
class Denial:
    """An entry of `connector_deny`: a network, or a host with all names below it."""

    network: Network | None
    host: str

    @classmethod
    def read(cls, text: str) -> Denial:
        try:
            return cls(ip_network(text), "")
        except ValueError:
            return cls(None, _encode_host(text.lstrip(".")))

    def has(self, host: str, address: Address) -> bool:
        if self.network is not None:
            return address in self.network or any(each in self.network for each in find_wrapped(address))
        return host == self.host or host.endswith(f".{self.host}")


@dataclass(frozen=True)
class Rules:
    """What a worker allows: the settings `connector_allow` and `connector_deny`."""

    allow: tuple[Allowance, ...] = ()
    deny: tuple[Denial, ...] = ()

    @classmethod
    def read(cls, allow: Iterable[str] = (), deny: Iterable[str] = ()) -> Rules:
        return cls(tuple(map(Allowance.read, allow)), tuple(map(Denial.read, deny)))

    def judge(self, host: str, address: Address, port: int, *, may_go_inward: bool) -> str | None:
        """Says why a connection for `host` to this address is refused; None if it is allowed. `may_go_inward`: the
        request goes to a configured endpoint."""
        if any(each.has(host, address) for each in self.deny):
            return f"connector_deny forbids {_name(host, address)}"
        why = describe_inward(address)
        if why is None and not is_metadata(address):
            is_listed = any(
                (each.port == port and each.network is None) or each.has(address, port) for each in self.allow
            )
            if port in PORTS.values() or is_listed:
                return None
            return f"port {port} is refused: only 443 and 80 are allowed, and those in connector_allow, as *:{port}"
        why = why or f"{address} is the metadata service of a cloud"
        if not may_go_inward:
            return why
        allowed = [each for each in self.allow if each.has(address, port)]
        if is_metadata(address):
            allowed = [each for each in allowed if each.names_exactly(address)]
        return None if allowed else f"{why}, and connector_allow does not list it with port {port}"

    def judge_text(self, host: str, port: int) -> str | None:
        """Does the same where only the text of a host is known, because a proxy resolves names."""
        try:
            return self.judge(host, ip_address(host), port, may_go_inward=False)
        except ValueError:
            is_denied = any(each.network is None and each.has(host, IPv4Address(0)) for each in self.deny)
            return f"connector_deny forbids {host}" if is_denied else None


def _name(host: str, address: Address) -> str:
    return host if host == str(address) else f"{host} ({address})"


_resolvers = ThreadPoolExecutor(16, thread_name_prefix="watchbill-dns")


async def resolve(host: str, port: int) -> list[str]:
    """Asks the machine's resolver in a thread. These threads are apart from the event loop's own, so that a name server
    that does not answer keeps no handler waiting."""
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(_resolvers, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class CountingBackend(httpcore2.AsyncNetworkBackend):
    """Connects without a judgement, to the proxy that a setting names, and bounds what one answer may bring."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._backend = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        return CountedStream(await self._backend.connect_tcp(host, port, timeout), self._most_bytes)


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Makes the connections of one pool. `most_bytes`: how much one answer may bring over the wire, in all."""

    def __init__(
        self, rules: Rules, *, may_go_inward: bool = False, most_bytes: int, resolve: Resolve = resolve
    ) -> None:
        self._rules, self._may_go_inward, self._most_bytes = rules, may_go_inward, most_bytes
        self._resolve = resolve
        self._backend = httpcore2.AnyIOBackend()

    async def find_addresses(self, host: str, port: int) -> list[Address]:
        """Returns the addresses of a host. Raises Refused if one of them is not allowed: a name with both kinds of
        answers is how an attacker would get past the guard by chance."""
        try:
            literal: Address | None = ip_address(host)
        except ValueError:
            literal = None
        if literal is not None:
            addresses = [literal]
        else:
            try:
                addresses = [ip_address(each) for each in await self._resolve(host, port)]
            except (OSError, UnicodeError) as error:
                raise httpcore2.ConnectError(f"the name {host} cannot be resolved: {error}") from None
        if not addresses:
            raise httpcore2.ConnectError(f"the name {host} has no address")
        for address in addresses:
            why = self._rules.judge(host, address, port, may_go_inward=self._may_go_inward)
            if why is not None:
                raise Refused(why if literal is not None or host in why else f"{host} is refused: {why}")
        return addresses

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                addresses = await self.find_addresses(host, port)
                stream = await self._connect_to_first(addresses[:CONNECTIONS_TRIED], port, timeout)
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"no connection to {host} port {port} within {timeout:g} s") from None
        return CountedStream(stream, self._most_bytes)

    async def _connect_to_first(
        self, addresses: list[Address], port: int, timeout: float | None
    ) -> httpcore2.AsyncNetworkStream:
        share = None if timeout is None else timeout / len(addresses)
        for address in addresses[:-1]:
            try:
                return await self._backend.connect_tcp(str(address), port, share)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await self._backend.connect_tcp(str(addresses[-1]), port, share)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore2.AsyncNetworkStream:
        raise Refused("sockets in the file system are refused")


class CountedStream(httpcore2.AsyncNetworkStream):
    """Counts what an answer brings, with its headers and interim answers, and refuses too much. Every write begins a
    new answer."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream, most_bytes: int) -> None:
        self._stream, self._most_bytes = stream, most_bytes
        self._received = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = await self._stream.read(min(max_bytes, READ_BYTES), timeout)
        self._received += len(data)
        if self._received > self._most_bytes:
            raise httpcore2.RemoteProtocolError(f"the answer has more than {self._most_bytes:,} bytes")
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._received = 0
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        try:
            secured = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        except BaseException:  # the deadline of the exchange cancels it, and httpcore closes nothing then
            await self._stream.aclose()
            raise
        return CountedStream(secured, self._most_bytes)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

"""Servers that answer slowly, endlessly, or wrongly. Each ends in one of the errors that a connector expects."""

from __future__ import annotations

import asyncio
import gzip
import logging
import ssl
import zlib

import pytest
import trustme

from tests.connectors.servers import LocalServer, Received, Respond, answer, serve
from watchbill.connectors.addresses import Address
from watchbill.connectors.exchange import Answer, NoAnswer, Request, Sender, TooLarge
from watchbill.connectors.guard import Rules, read_target

ENOUGH_SECONDS = 60.0  # for what ends by itself


async def _ask(server: LocalServer, **fields: object) -> Answer:
    sender = Sender(Rules.read([f"127.0.0.1:{server.port}"]), allow_http=True, most_wire_bytes=500_000)
    target = read_target(f"http://127.0.0.1:{server.port}/", allow_http=True)
    chosen = {"method": "GET", "timeout": ENOUGH_SECONDS} | fields
    try:
        return await sender.send(Request(target=target, **chosen), tenant="t", endpoint="crm")  # type: ignore[arg-type]
    finally:
        await sender.aclose()


def _exchange(respond: Respond, **fields: object) -> Answer:
    async def run() -> Answer:
        async with serve(respond) as server:
            return await _ask(server, **fields)

    return asyncio.run(run())


def _sending(*parts: bytes, then_hang: bool = False, then_close: bool = False, repeat: bytes = b"") -> Respond:
    async def respond(received: Received, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
        await writer.drain()
        while repeat:
            writer.write(repeat)
            await writer.drain()
        if then_hang:
            await asyncio.Event().wait()
        if then_close:
            writer.close()

    return respond


HEAD = b"HTTP/1.1 200 OK\r\n"
LONG = b"Content-Length: 1000000000\r\n\r\n"


@pytest.mark.parametrize(
    "respond",
    [
        _sending(then_hang=True),
        _sending(b"HTTP/1.1 20", then_hang=True),
        _sending(HEAD + b"X-Slow: ", then_hang=True),
        _sending(HEAD + LONG, then_hang=True),
        _sending(HEAD + LONG + b"part", then_hang=True),
        _sending(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab", then_hang=True),
    ],
)
def test_a_server_that_stops_answering_meets_the_deadline(respond: Respond) -> None:
    with pytest.raises(NoAnswer, match=r"no complete answer from http://127\.0\.0\.1:\d+ within 0\.3 s"):
        _exchange(respond, timeout=0.3)


@pytest.mark.parametrize(
    "respond",
    [
        _sending(HEAD + LONG, repeat=b"x" * 65_536),
        _sending(HEAD + b"\r\n", repeat=b"x" * 65_536),
        _sending(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", repeat=b"2\r\nab\r\n" * 5_000),
        _sending(HEAD + b"Content-Encoding: gzip\r\n" + LONG, gzip.compress(bytes(50_000_000))),
        _sending(HEAD + b"Content-Encoding: deflate\r\n" + LONG, zlib.compress(bytes(50_000_000))),
        _sending(HEAD + b"Content-Encoding: br\r\n" + LONG),
        _sending(HEAD + b"".join(b"X-%d: a\r\n" % number for number in range(300)) + b"\r\n"),
        _sending(HEAD + b"X: " + b"a" * 70_000 + b"\r\n\r\n"),
    ],
)
def test_too_much_is_refused(respond: Respond) -> None:
    with pytest.raises(TooLarge):
        _exchange(respond, most_bytes=100_000)


@pytest.mark.parametrize(
    "respond",
    [
        _sending(b"HTTP/1.1 100 Continue\r\n\r\n" * 4, repeat=b"HTTP/1.1 102 Processing\r\n\r\n" * 2_000),
        _sending(HEAD, repeat=b"X: " + b"a" * 8_000 + b"\r\n"),
        _sending(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", repeat=b"1;" + b"a" * 8_000 + b"\r\nx\r\n"),
        _sending(HEAD + b"Content-Length: 10\r\n\r\nabc", then_close=True),
        _sending(HEAD + b"Content-Length: -1\r\n\r\n", then_close=True),
        _sending(HEAD + b"Content-Length: 3\r\nContent-Length: 5\r\n\r\nabc", then_close=True),
        _sending(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", then_close=True),
        _sending(HEAD + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"),
        _sending(answer(200, gzip.compress(b"plain" * 100)[:-9], Content_Encoding="gzip")),
        _sending(answer(200, zlib.compress(b"plain" * 100)[:-1], Content_Encoding="deflate")),
        _sending(b"<html>as in HTTP/0.9</html>", then_close=True),
        _sending(b"\x16\x03\x01\x02\x00\x01", then_close=True),
        _sending(b"", then_close=True),
        _sending(HEAD + b"Bad header\r\n\r\n", then_close=True),
        _sending(HEAD + b"A: b\x00c\r\n\r\n", then_close=True),
    ],
)
def test_what_is_not_http_is_no_answer(respond: Respond) -> None:
    with pytest.raises(NoAnswer) as error:
        _exchange(respond)
    assert error.value.was_sent


def test_the_beginning_of_a_large_answer_can_be_kept() -> None:
    received = _exchange(_sending(HEAD + LONG, repeat=b"x" * 65_536), most_bytes=10, truncate=True)
    assert (received.body, received.has_more) == (b"x" * 10, True)


def test_compressed_answers_are_decompressed() -> None:
    for name, compress in (("gzip", gzip.compress), ("deflate", zlib.compress)):
        packed = compress(b"plain" * 100)
        for body in (packed, packed + b"x" * 10_000):  # what follows the end is dropped
            assert _exchange(_sending(answer(200, body, Content_Encoding=name))).body == b"plain" * 100
    assert _exchange(_sending(answer(200, b"", Content_Encoding="gzip")), method="HEAD").body == b""


@pytest.mark.parametrize(
    "respond",
    [
        _sending(HEAD + LONG, repeat=b"x" * 65_536),
        _sending(HEAD + b"Content-Encoding: br\r\n" + LONG),
        _sending(HEAD + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"),
        _sending(HEAD + b"Content-Length: 10\r\n\r\nabc", then_close=True),
        _sending(HEAD + b"Content-Length: 10\r\n\r\nabc", then_hang=True),
    ],
)
def test_a_body_that_decides_nothing_cannot_spoil_a_success(respond: Respond, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watchbill.connectors.exchange.OPTIONAL_BODY_SECONDS", 0.2)
    received = _exchange(respond, needs_body=False, most_bytes=100)
    assert (received.status, received.body, received.has_more) == (200, b"", True)


def test_a_refused_connection_was_not_sent() -> None:
    async def run() -> None:
        async with serve() as server:
            pass
        with pytest.raises(NoAnswer) as error:
            await _ask(server)
        assert not error.value.was_sent

    asyncio.run(run())


def _make_contexts(authority: trustme.CA, *names: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.issue_cert(*names).configure_cert(server)
    authority.configure_trust(client)
    return server, client


def test_a_server_that_never_ends_the_handshake_meets_the_deadline() -> None:
    async def run() -> None:
        async with serve() as server:  # without TLS: it waits for the end of a request
            sender = Sender(Rules.read([f"127.0.0.1:{server.port}"]))
            request = Request("GET", read_target(f"https://127.0.0.1:{server.port}/"), timeout=0.3)
            with pytest.raises(NoAnswer, match=r"within 0\.3 s") as error:
                await sender.send(request, tenant="t", endpoint="crm")
            assert not error.value.was_sent
            assert server.connections == 1
            await sender.aclose()

    asyncio.run(run())


@pytest.mark.parametrize(
    "respond",
    [
        _sending(HEAD, repeat=b"X: " + b"a" * 8_000 + b"\r\n"),
        _sending(repeat=b"HTTP/1.1 102 Processing\r\n\r\n" * 100),
    ],
)
def test_an_endless_answer_through_a_proxy_is_refused(respond: Respond) -> None:
    async def run() -> None:
        async with serve(respond) as proxy:
            sender = Sender(Rules(), allow_http=True, proxy=f"http://127.0.0.1:{proxy.port}", most_wire_bytes=50_000)
            request = Request("GET", read_target("http://example.com/", allow_http=True), timeout=ENOUGH_SECONDS)
            with pytest.raises(NoAnswer, match="more than 50,000 bytes"):
                await sender.send(request, tenant="t")
            await sender.aclose()

    asyncio.run(run())


def test_idle_connections_are_few_and_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may often open 1,024 files in all, those of its database connections included."""
    monkeypatch.setattr("watchbill.connectors.exchange.MOST_CONNECTIONS", 10)

    async def run() -> None:
        async with serve() as server:
            sender = Sender(Rules.read([f"127.0.0.1:{server.port}"]), allow_http=True)
            target = read_target(f"http://127.0.0.1:{server.port}/", allow_http=True)

            async def send(number: int) -> None:
                await sender.send(Request("GET", target, timeout=ENOUGH_SECONDS), tenant="t", endpoint=f"e{number}")

            async def wait_for(most: int) -> None:
                async with asyncio.timeout(ENOUGH_SECONDS):
                    while server.open_now > most:  # noqa: ASYNC110  (the server hears of it from its sockets)
                        await asyncio.sleep(0)

            await asyncio.gather(*(send(number) for number in range(40)))
            await send(0)
            await wait_for(11)
            assert server.open_now > 1
            monkeypatch.setattr("watchbill.connectors.exchange.IDLE_SECONDS", 0.0)
            await send(0)
            await wait_for(1)
            await sender.aclose()

    asyncio.run(run())


def test_the_certificate_must_be_of_the_name() -> None:
    """The connection goes to an address, and TLS still checks the name that the request has."""
    authority = trustme.CA()
    server_side, client_side = _make_contexts(authority, "good.test")
    stranger, _ = _make_contexts(trustme.CA(), "good.test")

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async def ask(server: LocalServer, host: str) -> bytes:
        rules = Rules.read([f"127.0.0.1:{server.port}"])
        sender = Sender(rules, tls=client_side, resolve=resolve)
        try:
            request = Request("GET", read_target(f"https://{host}:{server.port}/"), timeout=ENOUGH_SECONDS)
            return (await sender.send(request, tenant="t", endpoint="crm")).body
        finally:
            await sender.aclose()

    async def run() -> None:
        async with serve(tls=server_side) as server:
            assert await ask(server, "good.test") == b"reached"
            with pytest.raises(NoAnswer, match="certificate") as error:
                await ask(server, "other.test")
            assert not error.value.was_sent
        async with serve(tls=stranger) as server:
            with pytest.raises(NoAnswer, match="certificate"):
                await ask(server, "good.test")

    asyncio.run(run())


class _RulesOfTest(Rules):
    """Takes other.test for a server outside."""

    def judge(self, host: str, address: Address, port: int, *, may_go_inward: bool) -> str | None:
        return None if host == "other.test" else super().judge(host, address, port, may_go_inward=may_go_inward)


def test_secrets_and_cookies_stay_with_their_hosts() -> None:
    async def run() -> None:
        async def resolve(host: str, port: int) -> list[str]:
            return ["127.0.0.1"]

        async with serve() as other:

            async def redirect(received: Received, writer: asyncio.StreamWriter) -> None:
                writer.write(answer(307, b"", Location=f"http://other.test:{other.port}/"))

            async with serve(redirect) as first:
                sender = Sender(_RulesOfTest.read([f"127.0.0.1:{first.port}"]), allow_http=True, resolve=resolve)
                request = Request(
                    "POST",
                    read_target(f"http://first.test:{first.port}/", allow_http=True),
                    headers=(("Cookie", "a=b"), ("X-Plain", "kept")),
                    secrets=(("Authorization", "Bearer secret"),),
                    secret_hosts=frozenset({"first.test"}),
                    body=b"body",
                    redirects=1,
                )
                assert (await sender.send(request, tenant="t", endpoint="crm")).body == b"reached"
                await sender.aclose()
            assert first.requests[0].headers["authorization"] == "Bearer secret"
            assert first.requests[0].headers["cookie"] == "a=b"
            seen = other.requests[0]
            assert (seen.body, seen.headers["x-plain"]) == (b"body", "kept")
            assert not {"authorization", "cookie"} & set(seen.headers)

    asyncio.run(run())


def test_tenants_share_no_connection() -> None:
    async def run() -> None:
        async with serve() as server:
            sender = Sender(Rules.read([f"127.0.0.1:{server.port}"]), allow_http=True)
            target = read_target(f"http://127.0.0.1:{server.port}/", allow_http=True)
            for tenant in ("a", "a", "b"):
                await sender.send(Request("GET", target), tenant=tenant, endpoint="crm")
            await sender.aclose()
            ports = [each.peer[1] for each in server.requests]
            assert ports[0] == ports[1] != ports[2]

    asyncio.run(run())


def test_the_debug_log_of_the_http_library_shows_no_exchange(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        _exchange(_sending(answer(200, b"", X_Echo="the-secret")), secrets=(("Authorization", "the-secret"),))
    assert "the-secret" not in caplog.text

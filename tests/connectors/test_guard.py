"""The guard: more than 200 ways inward, all refused, and 50 addresses that are allowed. A server on loopback counts
connections: it must see none."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address

import pytest

from tests.connectors.servers import LocalServer, Received, answer, name_server, serve
from watchbill.connectors.addresses import describe_inward
from watchbill.connectors.exchange import Answer, Request, Sender
from watchbill.connectors.guard import GuardedBackend, Refused, Rules, read_redirect, read_target

PUBLIC = "93.184.215.14"
PUBLIC_V6 = "2606:2800:21f:cb07:6820:80da:af6b:8b2c"

# Texts that lead to this machine, and a part of the sentence with which they are refused. PORT is the server's.
LOOPBACK_TEXTS = {
    "127.0.0.1": "is a loopback address",
    "127.0.0.2": "is a loopback address",
    "127.255.255.254": "is a loopback address",
    "0.0.0.0": "is an address of this machine",
    "0.1.2.3": "is an address of this machine",
    "127.1": "in an odd form",
    "127.0.1": "in an odd form",
    "0": "in an odd form",
    "0x0": "in an odd form",
    "2130706433": "in an odd form",
    "017700000001": "in an odd form",
    "0x7f000001": "in an odd form",
    "0x7F000001": "in an odd form",
    "0x7f.1": "in an odd form",
    "0x7f.0x0.0x0.0x1": "in an odd form",
    "0177.0.0.1": "in an odd form",
    "0177.0.0.01": "in an odd form",
    "00000177.0.0.1": "in an odd form",
    "127.0.0.0x1": "in an odd form",
    "127.0x1": "in an odd form",
    "127.0.0.1.": "is a loopback address",
    "127.0.0.01": "in an odd form",
    "256.0.0.1": "in an odd form",
    "127.0.0.1.0": "in an odd form",
    "4294967296": "in an odd form",
    "127。0。0。1": "is a loopback address",
    "127．0．0．1": "is a loopback address",
    "①②⑦.⓪.⓪.①": "is a loopback address",
    "１２７.0.0.1": "is a loopback address",
    "𝟙𝟚𝟟.𝟘.𝟘.𝟙": "is a loopback address",
    "%31%32%37.0.0.1": "percent-encoded",
    "127.0.0.1%2f": "percent-encoded",
    "127%2e0.0.1": "percent-encoded",
    "[::1]": "is a loopback address",
    "[0:0:0:0:0:0:0:1]": "is a loopback address",
    "[::0001]": "is a loopback address",
    "[0000:0000:0000:0000:0000:0000:0000:0001]": "is a loopback address",
    "[::]": "is an address of this machine",
    "[::127.0.0.1]": "leads to 127.0.0.1",
    "[::7f00:1]": "leads to 127.0.0.1",
    "[::ffff:127.0.0.1]": "leads to 127.0.0.1",
    "[::ffff:7f00:1]": "leads to 127.0.0.1",
    "[::FFFF:7F00:0001]": "leads to 127.0.0.1",
    "[0:0:0:0:0:ffff:127.0.0.1]": "leads to 127.0.0.1",
    "[::ffff:0:127.0.0.1]": "leads to 127.0.0.1",
    "[::ffff:0.0.0.0]": "leads to 0.0.0.0",
    "[64:ff9b::127.0.0.1]": "leads to 127.0.0.1",
    "[64:ff9b::7f00:1]": "leads to 127.0.0.1",
    "[2002:7f00:1::]": "leads to 127.0.0.1",
    "[2002:7f00:1::1]": "leads to 127.0.0.1",
    "[2001:0:7f00:1::]": "leads to 127.0.0.1",
    "[2001:0:4136:e378:8000:63bf:80ff:fffe]": "leads to 127.0.0.1",
    "[2606:4700::5efe:7f00:1]": "leads to 127.0.0.1",
    "[2606:4700::200:5efe:7f00:1]": "leads to 127.0.0.1",
    "[::1%25lo]": "cannot be read",
    "[::1%lo]": "cannot be read",
    "[fe80::1%251]": "cannot be read",
    "[v1.127]": "cannot be read",
    "[127.0.0.1]": "cannot be read",
    "[::1": "cannot be read",
    "[]": "cannot be read",
    "[::ffff:127.1]": "cannot be read",
    "[2606:4700::1111]127.0.0.1": "cannot be read",
    "[2606:4700::1111]@127.0.0.1": "a user or a password",
    "": "is not a valid name",
    ".": "is not a valid name",
    "..": "is not a valid name",
    "-": "is not a valid name",
    "a..b": "is not a valid name",
    "user@127.0.0.1": "a user or a password",
    "user:password@127.0.0.1": "a user or a password",
    "example.com@127.0.0.1": "a user or a password",
    "127.0.0.1@example.com": "a user or a password",
    ":@127.0.0.1": "a user or a password",
    "@127.0.0.1": "a user or a password",
    "example.com:80@127.0.0.1": "a user or a password",
    "example.com%40127.0.0.1": "percent-encoded",
    "127.0.0.1\\@example.com": "backslash",
    "example.com\\@127.0.0.1": "backslash",
    "127.0.0.1 ": "a space",
    " 127.0.0.1": "a space",
    "127.0.0.1\t": "control character",
    "127.0.\n0.1": "control character",
    "127.0.\r0.1": "control character",
    "127.0.0.1\0": "control character",
    "127.0.0.1\x7f": "control character",
    "127.0.0.1\xa0": "a space",
    "example.com\r\nHost:127.0.0.1": "control character",
    "127.0.0.1\u2028": "a space",
    "localhost": "localhost is refused",
    "LOCALHOST": "localhost is refused",
    "localhost.": "localhost is refused",
    "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ": "localhost is refused",
    "ｌｏｃａｌｈｏｓｔ": "localhost is refused",
}

# Addresses of others that are not for us, one for each range, and its ends.
OTHER_INWARD = [
    "10.0.0.0", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "100.100.100.200", "169.254.0.1",
    "169.254.169.253", "169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.255.255", "172.16.0.1",
    "172.17.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1",
    "192.168.255.255", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.9", "224.0.0.1", "224.0.0.251",
    "239.255.255.250", "239.255.255.255", "240.0.0.1", "255.255.255.255", "168.63.129.16", "fc00::1", "fd00::1",
    "fd00:ec2::254", "fd00:ec2::253", "fd00:ec2::23", "fd20:ce::254", "fdff:ffff::1", "fe80::1", "fe80::a9fe:a9fe",
    "febf::1", "fec0::1", "feff::1", "ff00::1", "ff01::1", "ff02::1", "ff02::2", "ff05::1:3", "ff0e::1", "100::1",
    "64:ff9b:1::1", "64:ff9b:1:ffff::a00:1", "2001:db8::1", "2001:2::1", "2001:10::1", "2001:20::1", "3fff::1",
    "169.254.0.23", "169.254.42.42", "fd00:42::42",
    "5f00::1", "4000::1", "8000::1", "1::1", "e000::1", "200::1", "::2", "::ffff:0:0", "2001::1",
]  # fmt: skip

# The same behind each form that carries an IPv4 address.
WRAPPED_IPV4 = ["10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
                "168.63.129.16", "255.255.255.255"]  # fmt: skip


def _wrap(address: str) -> dict[str, str]:
    high, low = divmod(int(ip_address(address)), 65_536)
    inverted_high, inverted_low = 0xFFFF - high, 0xFFFF - low
    return {
        "mapped": f"::ffff:{high:x}:{low:x}",
        "translated": f"::ffff:0:{high:x}:{low:x}",
        "NAT64": f"64:ff9b::{high:x}:{low:x}",
        "6to4": f"2002:{high:x}:{low:x}::1",
        "Teredo": f"2001:0:808:808:8000:0:{inverted_high:x}:{inverted_low:x}",
        "ISATAP": f"2606:4700::5efe:{high:x}:{low:x}",
    }


WRAPPED = [form for address in WRAPPED_IPV4 for form in _wrap(address).values()]

OTHER_TEXTS = {
    "ftp://127.0.0.1/": "must begin with https://",
    "file:///etc/passwd": "must begin with https://",
    "gopher://127.0.0.1:6379/_FLUSHALL": "must begin with https://",
    "dict://127.0.0.1:11211/stats": "must begin with https://",
    "unix:///var/run/docker.sock": "must begin with https://",
    "http+unix://%2Fvar%2Frun%2Fdocker.sock/": "must begin with https://",
    "jar:http://127.0.0.1!/": "must begin with https://",
    "data:text/plain,a": "must begin with https://",
    "javascript:alert(1)": "must begin with https://",
    "//127.0.0.1/": "must begin with https://",
    "/latest/meta-data": "must begin with https://",
    "127.0.0.1": "must begin with https://",
    "http:127.0.0.1": "must begin with https://",
    "http:/127.0.0.1": "must begin with https://",
    "http:///127.0.0.1": "is not a valid name",
    "http:////127.0.0.1": "is not a valid name",
    "ws://127.0.0.1/": "must begin with https://",
    "": "must begin with https://",
    "http://example.com:0/": "port of the address",
    "http://example.com:/": "port of the address",
    "http://example.com:65536/": "cannot be read",
    "http://example.com:-1/": "cannot be read",
    "http://example.com:8O/": "cannot be read",
    f"http://{PUBLIC}:22/": "port 22 is refused",
    f"http://{PUBLIC}:5432/": "port 5432 is refused",
    f"http://{PUBLIC}:6379/": "port 6379 is refused",
    f"http://{PUBLIC}:25/": "port 25 is refused",
    f"http://{PUBLIC}:8080/": "port 8080 is refused",
    "https://example.com/" + "a" * 2_048: "2,068 characters",
}

# Answers of a name server. Each name has an inward address in one of its answers.
LYING_NAMES = {
    "private.test": [["10.0.0.1"]],
    "loopback.test": [["127.0.0.1"]],
    "mixed.test": [[PUBLIC, "127.0.0.1"]],
    "mixed-last.test": [[PUBLIC, "8.8.8.8", "1.1.1.1", "9.9.9.9", "4.4.4.4", "127.0.0.1"]],
    "mixed-first.test": [["127.0.0.1", PUBLIC]],
    "both-kinds.test": [[PUBLIC, "::1"]],
    "v6.test": [["::1"]],
    "mapped.test": [["::ffff:127.0.0.1"]],
    "nat64.test": [["64:ff9b::7f00:1"]],
    "sixtofour.test": [["2002:7f00:1::"]],
    "metadata.test": [["169.254.169.254"]],
    "azure.test": [["168.63.129.16"]],
    "zero.test": [["0.0.0.0"]],
    "multicast.test": [[PUBLIC, "224.0.0.1"]],
}

REDIRECTS = {
    "http://127.0.0.1:PORT/": "is a loopback address",
    "//127.0.0.1:PORT/": "is a loopback address",
    "http://[::1]:PORT/": "is a loopback address",
    "http://[::ffff:7f00:1]:PORT/": "leads to 127.0.0.1",
    "http://0x7f.1:PORT/": "in an odd form",
    "HTTP://127.0.0.1:PORT/": "is a loopback address",
    "http://a@127.0.0.1:PORT/": "a user or a password",
    "\\\\127.0.0.1:PORT\\": "backslash",
    "/\\127.0.0.1:PORT/": "backslash",
    "http:\\\\127.0.0.1/": "backslash",
    "file:///etc/passwd": "must begin with https://",
    "gopher://127.0.0.1:PORT/": "must begin with https://",
    "http://169.254.169.254/latest/meta-data/": "metadata service",
    "http://inward.test/": "is a loopback address",
    "http://user:pass@example.com/": "a user or a password",
    "http://localhost:PORT/": "localhost is refused",
    "\t//127.0.0.1/": "must begin with https://",  # a server's parser drops the tab
}


def test_there_are_at_least_200_ways() -> None:
    ways = [LOOPBACK_TEXTS, OTHER_INWARD, WRAPPED, OTHER_TEXTS, LYING_NAMES, REDIRECTS]
    assert sum(map(len, ways)) >= 200


async def _send(sender: Sender, url: str, *, endpoint: str = "", **fields: object) -> Answer:
    target = read_target(url, allow_http=True)
    request = Request("GET", target, **fields)  # type: ignore[arg-type]
    return await sender.send(request, tenant="t", endpoint=endpoint)


async def _refuse(sender: Sender, url: str) -> str:
    """Returns why an address is refused. Anything else fails the test."""
    try:
        received = await _send(sender, url)
    except Refused as error:
        return error.message
    pytest.fail(f"{url!r} was answered: {received}")


def _check_all_refused(urls: dict[str, str]) -> None:
    """Refuses each of them, for the reason that is named. The server, which listens where they lead, sees none."""

    async def check() -> LocalServer:
        async with serve() as server:
            sender = Sender(Rules(), allow_http=True)
            for url, wanted in urls.items():
                why = await _refuse(sender, url.replace("PORT", str(server.port)))
                assert wanted in why, f"{url!r}: {why}"
            await sender.aclose()
            return server

    assert asyncio.run(check()).connections == 0


def test_spellings_of_loopback_are_refused() -> None:
    _check_all_refused({f"http://{text}:PORT/": why for text, why in LOOPBACK_TEXTS.items()})


def test_other_inward_addresses_are_refused() -> None:
    hosts = [f"[{text}]" if ":" in text else text for text in [*OTHER_INWARD, *WRAPPED]]
    _check_all_refused({f"{scheme}://{host}/": "" for scheme in ("http", "https") for host in hosts})


def test_wrapped_addresses_name_the_address_to_which_they_lead() -> None:
    for address in WRAPPED_IPV4:
        for name, form in _wrap(address).items():
            assert f"leads to {address}, " in (describe_inward(ip_address(form)) or ""), name


def test_other_tricks_are_refused() -> None:
    _check_all_refused(OTHER_TEXTS)


def test_plain_http_is_refused_unless_allowed() -> None:
    with pytest.raises(Refused, match="https only"):
        read_target("http://example.com/")


def test_names_that_resolve_inward_are_refused() -> None:
    async def check() -> None:
        with name_server(**LYING_NAMES) as names:
            sender = Sender(Rules(), allow_http=True, resolve=names.resolve)
            for name in LYING_NAMES:
                assert name in await _refuse(sender, f"http://{name}/")
            await sender.aclose()

    asyncio.run(check())


def test_a_name_is_resolved_once_for_a_connection_and_judged_again_for_the_next() -> None:
    async def check() -> None:
        with name_server(**{"rebinding.test": [[PUBLIC], ["127.0.0.1"]]}) as names:
            backend = GuardedBackend(Rules(), most_bytes=1, resolve=names.resolve)
            assert [str(each) for each in await backend.find_addresses("rebinding.test", 443)] == [PUBLIC]
            assert names.questions == ["rebinding.test"]  # the connection goes to what this answer said
            with pytest.raises(Refused, match=r"rebinding\.test is refused: 127\.0\.0\.1 is a loopback address"):
                await backend.find_addresses("rebinding.test", 443)

    asyncio.run(check())


def test_a_connection_goes_to_the_address_that_was_judged() -> None:
    """The name leads elsewhere when it is asked again; a second look-up would connect there."""

    async def check() -> None:
        with name_server(**{"rebinding.test": [["127.0.0.1"], ["127.0.0.2"]]}) as names:
            async with serve() as server, serve(host="127.0.0.2") as other:
                rules = Rules.read([f"127.0.0.1:{server.port}", f"127.0.0.2:{server.port}"])
                sender = Sender(rules, allow_http=True, resolve=names.resolve)
                received = await _send(sender, f"http://rebinding.test:{server.port}/", endpoint="crm")
                assert received.body == b"reached"
                assert server.requests[0].headers["host"] == f"rebinding.test:{server.port}"
                assert (server.connections, other.connections, len(names.questions)) == (1, 0, 1)
                await sender.aclose()

    asyncio.run(check())


@pytest.mark.parametrize("hops", [1, 3])
def test_redirects_inward_are_refused(hops: int) -> None:
    """A server that may be reached sends the request on, also over several hops."""

    async def check() -> None:
        async with serve() as inner:

            async def redirect(received: Received, writer: asyncio.StreamWriter) -> None:
                number, _, location = received.headers["x-location"].partition(" ")
                hop = int(received.path.strip("/") or 0)
                where = location if hop + 1 == int(number) else f"/{hop + 1}"
                writer.write(answer(302, b"", Location=where.replace("PORT", str(inner.port))))

            with name_server(**{"inward.test": [["127.0.0.1"]], "localhost": [["127.0.0.1"]]}) as names:
                async with serve(redirect) as outer:
                    rules = Rules.read([f"127.0.0.1:{outer.port}"])
                    sender = Sender(rules, allow_http=True, resolve=names.resolve)
                    for location, wanted in REDIRECTS.items():
                        headers = (("x-location", f"{hops} {location}"),)
                        with pytest.raises(Refused) as refused:
                            await _send(
                                sender, f"http://127.0.0.1:{outer.port}/0", endpoint="crm", headers=headers, redirects=5
                            )
                        assert wanted in refused.value.message or "connector_allow" in refused.value.message, location
                    await sender.aclose()
            assert inner.connections == 0

    asyncio.run(check())


def test_an_endpoint_cannot_redirect_into_a_network_that_is_allowed_for_endpoints() -> None:
    """The server of one endpoint may be a stranger's. What `connector_allow` lists is for other endpoints."""

    async def check() -> None:
        async with serve(host="127.0.0.2") as inner:

            async def redirect(received: Received, writer: asyncio.StreamWriter) -> None:
                writer.write(answer(307, b"", Location=f"http://127.0.0.2:{inner.port}/admin"))

            async with serve(redirect) as outer:
                sender = Sender(Rules.read([f"127.0.0.1:{outer.port}", f"127.0.0.2:{inner.port}"]), allow_http=True)
                url = f"http://127.0.0.1:{outer.port}/"
                with pytest.raises(Refused, match=r"127\.0\.0\.2 is a loopback address"):
                    await _send(sender, url, endpoint="crm", redirects=1)
                assert inner.connections == 0
                hosts = frozenset({"127.0.0.1", "127.0.0.2"})
                assert (await _send(sender, url, endpoint="crm", redirects=1, secret_hosts=hosts)).body == b"reached"
                await sender.aclose()

    asyncio.run(check())


def test_a_redirect_does_not_lead_from_https_to_http() -> None:
    before = read_target("https://example.com/a")
    with pytest.raises(Refused, match="from https to http"):
        read_redirect(before, "http://example.com/", allow_http=True)
    assert read_redirect(before, "../b?c#d").url == "https://example.com/b?c"


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        async with serve() as server, serve() as proxy:
            for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
                monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            sender = Sender(Rules.read([f"127.0.0.1:{server.port}"]), allow_http=True)
            await _send(sender, f"http://127.0.0.1:{server.port}/", endpoint="crm")
            assert (server.connections, proxy.connections) == (1, 0)
            await sender.aclose()

    asyncio.run(check())


def test_sockets_in_the_file_system_are_refused() -> None:
    with pytest.raises(Refused, match="file system"):
        asyncio.run(GuardedBackend(Rules(), most_bytes=1).connect_unix_socket("/var/run/docker.sock"))


def test_inward_services_are_reached_only_by_endpoints_and_only_where_listed() -> None:
    address = ip_address("10.1.2.3")
    rules = Rules.read(["10.1.0.0/16:8080"])
    assert rules.judge("10.1.2.3", address, 8080, may_go_inward=True) is None
    assert "is a private address" in (rules.judge("10.1.2.3", address, 8080, may_go_inward=False) or "")
    assert "with port 8081" in (rules.judge("10.1.2.3", address, 8081, may_go_inward=True) or "")
    assert "with port 443" in (rules.judge("10.1.2.3", address, 443, may_go_inward=True) or "")


def test_metadata_addresses_must_be_named_exactly() -> None:
    address = ip_address("169.254.169.254")
    for allowed in ("169.254.0.0/16", "169.254.0.0/16:80", "0.0.0.0/0"):
        assert Rules.read([allowed]).judge("x", address, 80, may_go_inward=True) is not None
    assert Rules.read(["169.254.169.254"]).judge("x", address, 80, may_go_inward=True) is None
    for text in ("fe80::a9fe:a9fe", "fe80::a9fe:a9fe%2", "fd00:ec2::254", "64:ff9b::a9fe:a9fe"):
        judged = Rules.read(["::/0"]).judge("x", ip_address(text), 80, may_go_inward=True)
        assert judged is not None, text


def test_denied_hosts_and_networks_win() -> None:
    rules = Rules.read(["10.0.0.0/8"], ["10.0.0.0/8", "evil.example", "93.184.0.0/16"])
    public = ip_address("8.8.8.8")
    assert "connector_deny" in (rules.judge("a", ip_address("10.0.0.1"), 443, may_go_inward=True) or "")
    assert "connector_deny" in (rules.judge("a.evil.example", public, 443, may_go_inward=False) or "")
    assert "connector_deny" in (rules.judge("a", ip_address("64:ff9b::5db8:1"), 443, may_go_inward=False) or "")
    assert rules.judge("notevil.example", public, 443, may_go_inward=False) is None


@pytest.mark.parametrize("entry", ["*", "10.0.0.1/8", "example.com", "10.0.0.0/8:0", "10.0.0.0/8:70000", "[::1"])
def test_invalid_entries_of_connector_allow_are_refused(entry: str) -> None:
    with pytest.raises(ValueError):
        Rules.read([entry])


# -- What is allowed.

CONTROLS = [
    "https://example.com", "https://example.com/", "https://EXAMPLE.com/", "https://example.com.", "https://a.b.c.d.e/",
    "https://example.com:443/", "https://example.com:80/", "http://example.com/", "http://example.com:443/",
    "https://xn--mnchen-3ya.de/", "https://münchen.de/", "https://例え.テスト/", "https://straße.de/",
    "https://example.com/a/b/c", "https://example.com/?q=1", "https://example.com/?u=http://127.0.0.1/",
    "https://example.com/a@b", "https://example.com/#@127.0.0.1", "https://example.com/%2e%2e/a",
    "https://example.com/ä", "https://example.com/?q=ä", "https://example.com/;a=b", "https://under_score.example/",
    "https://localhost.example.com/", "https://127.0.0.1.example.com/", "https://10.example/", "https://1.example.org",
    "https://0x7f.example/", "https://a-b.example/", "https://1and1.example/", f"https://{PUBLIC}/",
    "https://8.8.8.8/", "https://1.1.1.1/", "https://9.255.255.255/", "https://11.0.0.0/", "https://100.63.255.255/",
    "https://100.128.0.0/", "https://126.255.255.255/", "https://128.0.0.1/", "https://169.253.255.255/",
    "https://169.255.0.0/", "https://172.15.255.255/", "https://172.32.0.0/", "https://192.167.255.255/",
    "https://192.169.0.0/", "https://198.17.255.255/", "https://198.20.0.0/", "https://223.255.255.255/",
    f"https://[{PUBLIC_V6}]/", "https://[2a00:1450:4001:81b::200e]/", "https://[64:ff9b::808:808]/",
    "https://[2002:808:808::1]/", "https://[::ffff:8.8.8.8]/", "https://[2001:4860:4860::8888]:443/",
    "https://[2620:fe::fe]/",
]  # fmt: skip


def test_addresses_that_lead_outward_are_allowed() -> None:
    assert len(CONTROLS) >= 50

    async def check() -> None:
        async def resolve_outward(host: str, port: int) -> list[str]:
            return [PUBLIC, PUBLIC_V6]

        backend = GuardedBackend(Rules(), most_bytes=1, resolve=resolve_outward)
        for url in CONTROLS:
            target = read_target(url, allow_http=True)
            assert await backend.find_addresses(target.host, target.port), url

    asyncio.run(check())


def test_a_listed_port_is_allowed_at_outward_addresses_only() -> None:
    rules = Rules.read(["*:8443"])
    assert rules.judge("a", ip_address(PUBLIC), 8443, may_go_inward=False) is None
    assert rules.judge("a", ip_address("10.0.0.1"), 8443, may_go_inward=True) is not None

"""Which addresses lead inward: to this machine, to a private network, or to the metadata service of a cloud.

The list is ours, because the versions of Python differ: 3.11 calls `64:ff9b::7f00:1`, `2002:7f00:1::` and `224.0.0.1`
global. Of IPv6 only global unicast (2000::/3) counts as outward, so that a range that is assigned later stays refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

_INWARD: list[tuple[Network, str]] = [
    (ip_network(network), meaning)
    for network, meaning in {
        "0.0.0.0/8": "an address of this machine",
        "10.0.0.0/8": "a private address",
        "100.64.0.0/10": "an address inside a provider's network",
        "127.0.0.0/8": "a loopback address",
        "169.254.0.0/16": "a link-local address",
        "172.16.0.0/12": "a private address",
        "192.0.0.0/24": "an address for protocols",
        "192.0.2.0/24": "an address for documentation",
        "192.88.99.0/24": "an address of the 6to4 relays",
        "192.168.0.0/16": "a private address",
        "198.18.0.0/15": "an address for benchmarks",
        "198.51.100.0/24": "an address for documentation",
        "203.0.113.0/24": "an address for documentation",
        "224.0.0.0/4": "a multicast address",
        "240.0.0.0/4": "a reserved address",
        "::/128": "an address of this machine",
        "::1/128": "a loopback address",
        "64:ff9b:1::/48": "an address inside a NAT64 network",
        "100::/64": "an address that discards",
        "2001::/23": "an address for protocols",
        "2001:db8::/32": "an address for documentation",
        "3fff::/20": "an address for documentation",
        "fc00::/7": "a private address",
        "fe80::/10": "a link-local address",
        "fec0::/10": "a site-local address",
        "ff00::/8": "a multicast address",
    }.items()
]
_GLOBAL_UNICAST = IPv6Network("2000::/3")

# Where clouds give credentials to every caller. 168.63.129.16 is outward by its number, and Azure's own.
_METADATA = frozenset(
    IPv4Address(each) if "." in each else IPv6Address(each)
    for each in (
        "169.254.169.254", "169.254.169.253", "169.254.170.2", "169.254.170.23", "169.254.0.23", "169.254.42.42",
        "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254", "fd00:ec2::253", "fd00:ec2::23",
        "fd00:42::42", "fd20:ce::254", "fe80::a9fe:a9fe",
    )
)  # fmt: skip

# IPv6 networks whose addresses contain an IPv4 address, and the number of bits to the right of it.
_WRAPPERS = [
    (IPv6Network("::ffff:0:0/96"), 0),  # IPv4-mapped
    (IPv6Network("::ffff:0:0:0/96"), 0),  # IPv4-translated
    (IPv6Network("::/96"), 0),  # IPv4-compatible
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (IPv6Network("2002::/16"), 80),  # 6to4
]
_TEREDO = IPv6Network("2001::/32")
_ISATAP = (0x00005EFE, 0x02005EFE)  # bits 64 to 95 of an address that ends in an IPv4 address
_LOWEST_32_BITS = 0xFFFF_FFFF


def find_wrapped(address: Address) -> list[IPv4Address]:
    """Returns the IPv4 addresses to which a packet for this IPv6 address may be sent on. A packet for NAT64, 6to4 or
    Teredo leaves this machine as IPv6, and arrives at the IPv4 address."""
    if isinstance(address, IPv4Address) or int(address) <= 1:  # `::` and `::1` mean this machine
        return []
    number = int(address)
    if address in _TEREDO:  # its server, and its client with all bits inverted
        return [IPv4Address(number >> 64 & _LOWEST_32_BITS), IPv4Address(~number & _LOWEST_32_BITS)]
    found = [IPv4Address(number >> bits & _LOWEST_32_BITS) for network, bits in _WRAPPERS if address in network]
    if number >> 32 & _LOWEST_32_BITS in _ISATAP:
        found.append(IPv4Address(number & _LOWEST_32_BITS))
    return found


def describe_inward(address: Address) -> str | None:
    """Says why an address leads inward; None for one that leads outward."""
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return f"{address} names a network interface"
    wrapped = find_wrapped(address)
    for each in wrapped:
        if (meaning := _find_meaning(each)) is not None:
            return f"{_show(address)} leads to {each}, {meaning}"
    meaning = None if _is_only_a_wrapper(address, wrapped) else _find_meaning(address)
    return None if meaning is None else f"{_show(address)} is {meaning}"


def _show(address: Address) -> str:
    """As Python 3.13 does; older versions write an IPv4-mapped address without dots."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(address) if mapped is None else f"::ffff:{mapped}"


def is_metadata(address: Address) -> bool:
    """Whether this is the metadata service of a cloud, also in a wrapped form."""
    if isinstance(address, IPv6Address):  # without the network interface that a link-local one names
        address = IPv6Address(int(address))
    return address in _METADATA or any(each in _METADATA for each in find_wrapped(address))


def _is_only_a_wrapper(address: Address, wrapped: list[IPv4Address]) -> bool:
    """Whether the wrapped address alone decides. Teredo is refused in any case, and ISATAP lies in other networks."""
    return bool(wrapped) and any(address in network for network, _ in _WRAPPERS)


def _find_meaning(address: Address) -> str | None:
    if address in _METADATA:
        return "the metadata service of a cloud"
    for meaning in _find_meanings(address):
        return meaning
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return "not a global unicast address"
    return None if address.is_global else "not a global address"


def _find_meanings(address: Address) -> Iterator[str]:
    return (meaning for network, meaning in _INWARD if address in network)

"""Which host of an address with several hosts this process tries first, and for how long.

Only the primary takes changes. A process remembers which host that was and tries it first. A host that gave no answer
in time is left out for a while as long as others are left, because each try of a machine that is cut off costs seconds
in which another host may have become the primary.

When a connection finds the primary on another host than before, all connections of this process to the other hosts are
shut down. Those that wait for an answer would otherwise wait until their time is up. The same happens to all when a
server refuses a change because it is a standby, as one behind a proxy may be.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg

SHORT_TRY_SECONDS = 2
# In a long outage a host may be slow rather than dead, so each try may take this share of the outage.
PATIENT_SHARE = 0.1
SILENCE_SECONDS = 5.0  # for so long a host that gave no answer is left out while others are left
READ_ONLY = "25006"  # the SQLSTATE of a statement that writes on a standby
_WRITABLE = ("primary", "read-write")


@dataclass
class Hosts:
    """What this process knows about the hosts of one address."""

    primary: str = ""  # where the last connection was opened; empty before the first
    failing_since: float | None = None  # when the first try since then failed
    silent_until: dict[str, float] = field(default_factory=dict)
    connections: weakref.WeakSet[psycopg.BaseConnection[Any]] = field(default_factory=weakref.WeakSet)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def choose(self, tries: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yields the parameters for one try after the other, with the time that each may take."""
        now = time.monotonic()
        answering = [each for each in tries if self.silent_until.get(_name(each), 0.0) <= now]
        ordered = sorted(answering or tries, key=lambda each: _name(each) != self.primary)
        outage = 0.0 if self.failing_since is None else now - self.failing_since
        short = max(SHORT_TRY_SECONDS, int(outage * PATIENT_SHARE))
        for number, each in enumerate(ordered, 1):
            longest = int(each["connect_timeout"]) or short  # for libpq 0 means for ever
            may_be_slow = number == len(ordered) and not self.primary
            yield {**each, "connect_timeout": longest if may_be_slow else min(longest, short)}

    def note_failure(self, tried: Mapping[str, Any], error: psycopg.OperationalError) -> None:
        now = time.monotonic()
        with self.lock:
            if self.failing_since is None:
                self.failing_since = now
            if isinstance(error, psycopg.errors.ConnectionTimeout) or "timeout expired" in str(error):
                self.silent_until[_name(tried)] = now + SILENCE_SECONDS

    def note_success(self, tried: Mapping[str, Any], connection: psycopg.BaseConnection[Any]) -> None:
        host = _name(tried)
        with self.lock:
            has_moved = self.primary not in ("", host)
            self.primary, self.failing_since = host, None
            self.silent_until.pop(host, None)
            others = [each for each in self.connections if _host_of[each] != host] if has_moved else []
            for each in others:
                self.connections.discard(each)
            self.connections.add(connection)
            _host_of[connection] = host
        for each in others:
            shut_down(each)

    def shut_down_all(self) -> None:
        with self.lock:
            found = list(self.connections)
            self.connections.clear()
        for each in found:
            shut_down(each)


_known: dict[tuple[str, ...], Hosts] = {}
_host_of: weakref.WeakKeyDictionary[psycopg.BaseConnection[Any], str] = weakref.WeakKeyDictionary()

if hasattr(os, "register_at_fork"):  # a child must neither shut down its parent's sockets nor wait for a lock of it
    os.register_at_fork(after_in_child=_known.clear)


def hosts_of(parameters: Mapping[str, Any]) -> Hosts:
    """Returns what this process knows about the hosts in these parameters of a connection."""
    names = ("host", "hostaddr", "port", "target_session_attrs")
    return _known.setdefault(tuple(str(parameters.get(name, "")) for name in names), Hosts())


def split_hosts(parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the parameters for each host, if there are several and one of them is the primary. Otherwise returns them
    as they are; libpq then tries the hosts in its own way."""
    lists = {name: str(parameters[name]).split(",") for name in ("host", "hostaddr", "port") if parameters.get(name)}
    count = max(len(lists.get("host", "")), len(lists.get("hostaddr", "")))
    ports = lists.get("port", [])
    if len(ports) == 1:
        lists["port"] = ports * count
    is_regular = all(len(each) == count and (name == "port" or all(each)) for name, each in lists.items())
    if count < 2 or not is_regular or parameters.get("target_session_attrs") not in _WRITABLE:
        return [dict(parameters)]
    return [{**parameters, **{name: each[n] for name, each in lists.items()}} for n in range(count)]


def is_standby_refusal(error: psycopg.Error) -> bool:
    """Whether the server refused a statement because it is a standby."""
    return error.sqlstate == READ_ONLY or "during recovery" in (error.diag.message_primary or "")


def leave_standby(error: psycopg.Error, connection: psycopg.BaseConnection[Any]) -> None:
    """Closes this connection, and shuts down the others of this process to the same address, if the error says that the
    server is a standby. Each then connects again, to the primary if there is one by then."""
    if is_standby_refusal(error):
        for hosts in list(_known.values()):
            if connection in hosts.connections:
                hosts.shut_down_all()
        connection.pgconn.finish()


def _name(parameters: Mapping[str, Any]) -> str:
    return f"{parameters.get('host') or parameters.get('hostaddr')}:{parameters.get('port', '')}"


def shut_down(connection: psycopg.BaseConnection[Any]) -> None:
    """Shuts down the socket of the connection, from any thread. The code that uses the connection must still close
    it."""
    with contextlib.suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)

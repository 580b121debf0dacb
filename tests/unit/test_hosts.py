"""Addresses with several hosts: which host a process tries first, for how long, and what it closes."""

from __future__ import annotations

import logging
import os
import socket
import warnings
from typing import Any, cast

import psycopg
import pytest

from watchbill.errors import NoDatabase
from watchbill.postgres.address import describe, explain_failures
from watchbill.postgres.connect import Connection, startup_parameters
from watchbill.postgres.hosts import Hosts, hosts_of, split_hosts

URL = "postgresql://me@a:5432,b,c:5434/x"


def tries(hosts: Hosts, url: str = URL) -> list[tuple[str, int]]:
    chosen = hosts.choose(split_hosts(startup_parameters(url)))
    return [(each["host"], int(each["connect_timeout"])) for each in chosen]


class Opened:
    """A connection as far as its socket."""

    def __init__(self) -> None:
        self.ours, self.peer = socket.socketpair()

    def __del__(self) -> None:
        self.ours.close()
        self.peer.close()

    def fileno(self) -> int:
        return self.ours.fileno()

    @property
    def is_shut(self) -> bool:
        self.peer.setblocking(False)
        try:
            return self.peer.recv(1) == b""
        except BlockingIOError:
            return False


def parameters(host: str) -> dict[str, Any]:
    return next(each for each in split_hosts(startup_parameters(URL)) if each["host"] == host)


def test_each_host_gets_two_seconds_and_the_last_one_of_a_new_process_all() -> None:
    hosts = Hosts()
    assert tries(hosts) == [("a", 2), ("b", 2), ("c", 10)]
    hosts.note_success(parameters("b"), cast("Any", Opened()))
    assert tries(hosts) == [("b", 2), ("a", 2), ("c", 2)]
    assert tries(Hosts(), f"{URL}?connect_timeout=1") == [("a", 1), ("b", 1), ("c", 1)]


def test_a_host_that_was_silent_is_left_out_while_others_are_left() -> None:
    hosts = Hosts()
    hosts.note_success(parameters("a"), cast("Any", Opened()))
    hosts.note_failure(parameters("a"), psycopg.errors.ConnectionTimeout("connection timeout expired"))
    hosts.note_failure(parameters("b"), psycopg.OperationalError("server is in hot standby mode"))
    assert [host for host, _ in tries(hosts)] == ["b", "c"]
    for host in "bc":
        hosts.note_failure(parameters(host), psycopg.errors.ConnectionTimeout("connection timeout expired"))
    assert [host for host, _ in tries(hosts)] == ["a", "b", "c"]


def test_in_a_long_outage_each_host_gets_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts(primary="a:5432")
    hosts.note_failure(parameters("b"), psycopg.OperationalError("refused"))
    assert hosts.failing_since is not None
    hosts.failing_since -= 60
    assert tries(hosts) == [("a", 6), ("b", 6), ("c", 6)]
    hosts.failing_since -= 600
    assert tries(hosts) == [("a", 10), ("b", 10), ("c", 10)]


def test_connections_to_other_hosts_are_shut_down_when_the_primary_is_elsewhere() -> None:
    hosts, old, older, new = Hosts(), Opened(), Opened(), Opened()
    hosts.note_success(parameters("a"), cast("Any", old))
    hosts.note_success(parameters("a"), cast("Any", older))
    assert not old.is_shut
    hosts.note_success(parameters("c"), cast("Any", new))
    assert [each.is_shut for each in (old, older, new)] == [True, True, False]
    hosts.shut_down_all()
    assert new.is_shut


def test_a_forked_child_knows_none_of_the_connections_of_its_parent() -> None:
    kept = hosts_of(startup_parameters(URL))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other tests have left threads
        pid = os.fork()
    if pid == 0:
        os._exit(1 if hosts_of(startup_parameters(URL)) is kept else 0)
    assert os.waitpid(pid, 0)[1] == 0
    assert hosts_of(startup_parameters(URL)) is kept


def test_only_addresses_with_one_primary_are_split() -> None:
    def hosts(url: str) -> list[object]:
        return [each.get("host") for each in split_hosts(startup_parameters(url))]

    assert hosts("postgresql://a,b/x") == ["a", "b"]
    assert hosts("postgresql:///x?host=/run/a,/run/b&port=5432&target_session_attrs=read-write") == ["/run/a", "/run/b"]
    assert hosts("postgresql://a/x") == ["a"]
    assert hosts("postgresql://a,b/x?target_session_attrs=any") == ["a,b"]
    assert hosts("postgresql:///x?host=a,b,c&port=1,2") == ["a,b,c"]  # libpq explains what is wrong


def test_several_hosts_are_named_with_their_ports() -> None:
    named = [
        describe(startup_parameters(f"postgresql://me@{hosts}/shop"))
        for hosts in ("10.0.0.1,10.0.0.2,10.0.0.3", "10.0.0.1:5432,10.0.0.2,10.0.0.3:5432", "a:1,b:2", "a:6432")
    ]
    assert named == [
        'database "shop" at 10.0.0.1, 10.0.0.2, 10.0.0.3 (port 5432) as user "me"',
        'database "shop" at 10.0.0.1, 10.0.0.2, 10.0.0.3 (port 5432) as user "me"',
        'database "shop" at a:1, b:2 as user "me"',
        'database "shop" at a:6432 as user "me"',
    ]


def test_error_names_what_each_host_says() -> None:
    errors = ["connection timeout expired", "server is in hot standby mode", "FATAL: password authentication failed"]
    failed = [(parameters(host), psycopg.OperationalError(error)) for host, error in zip("abc", errors, strict=True)]
    error = explain_failures(failed[:2], startup_parameters(URL))
    assert error.message.endswith('as user "me": a: no answer in time; b: it is a standby.')
    assert error.may_pass
    assert not explain_failures(failed, startup_parameters(URL)).may_pass


def test_a_refused_host_is_followed_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(NoDatabase, match=r"127\.0\.0\.1, 127\.0\.0\.1 \(port \d+\).*: nothing listens there"):
        Connection.connect(f"postgresql://me@127.0.0.1:{port},127.0.0.1:{port}/x")


def test_lines_of_psycopg_about_our_pools_are_debug(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("psycopg.pool")
    with caplog.at_level(logging.INFO, "psycopg.pool"):
        logger.warning("error connecting in %r: %s", "watchbill handlers", "refused")
        logger.warning("error connecting in %r: %s", "a pool of the program", "refused")
    assert [record.args for record in caplog.records] == [("a pool of the program", "refused")]
    with caplog.at_level(logging.DEBUG, "psycopg.pool"):
        logger.warning("error connecting in %r: %s", "watchbill", "refused")
    assert caplog.records[-1].levelname == "DEBUG"

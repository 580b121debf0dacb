"""Who holds the server, and when it stops."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.embedded.holders import Holder, is_quiet, server_pid, wait_until_free
from watchbill.errors import EmbeddedError
from watchbill.postgres.embedded import EmbeddedServer, find_running_url, supervisor

FAST = {"fsync": "off"}


def ask(url: str, question: str = "SELECT current_database()") -> object:
    with psycopg.connect(url) as connection:
        row = connection.execute(question).fetchone()
    return row and row[0]


def test_second_start_finds_the_data_of_the_first(bare_project: Path) -> None:
    with EmbeddedServer.acquire(bare_project) as server:
        assert server.started
        assert server.directory == bare_project / ".watchbill"
        assert server.elapsed > 0
        assert str(ask(server.url, "SHOW server_version")).startswith(server.version)
        assert ask(server.url) == "watchbill"
        assert ask(server.url, "SHOW fsync") == "on"
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    assert find_running_url(bare_project) is None
    with EmbeddedServer.acquire(bare_project) as server:
        assert server.started
        assert ask(server.url, "SELECT answer FROM kept") == 42


def test_server_has_development_settings(project: Path) -> None:
    with EmbeddedServer.acquire(project, settings={"fsync": "off", "max_connections": "50"}) as server:
        for name, value in {
            "fsync": "off",
            "max_connections": "50",
            "TimeZone": "UTC",
            "listen_addresses": "",
            "server_encoding": "UTF8",
            "lc_messages": "C",
        }.items():
            assert ask(server.url, f"SHOW {name}") == value
    assert (project / ".watchbill" / ".gitignore").read_text() == "*\n"
    assert "ready to accept connections" in (project / ".watchbill" / "server.log").read_text()


def test_last_release_stops_the_server(project: Path) -> None:
    first = EmbeddedServer.acquire(project, settings=FAST)
    second = EmbeddedServer.acquire(project, settings=FAST)
    assert (first.started, second.started) == (True, False)
    assert first.url == second.url == find_running_url(project)
    first.release()
    first.release()
    assert ask(second.url) == "watchbill"
    second.release()
    assert find_running_url(project) is None
    assert is_quiet(project / ".watchbill")


def test_last_process_stops_the_shared_server(hold: Callable[..., Holder], project: Path) -> None:
    first = hold()
    assert first.started
    second = hold()
    assert not second.started
    first.let_go()
    assert ask(second.url) == "watchbill"
    second.let_go()
    assert is_quiet(project / ".watchbill")


def test_the_server_stops_when_its_only_holder_is_killed(hold: Callable[..., Holder], project: Path) -> None:
    holder = hold()
    assert holder.started
    holder.kill()
    wait_until_free(project / ".watchbill" / "server.lock")
    wait_until_free(project / ".watchbill" / "watcher.lock")
    assert find_running_url(project) is None


def test_killed_holder_does_not_stop_the_server_of_another(hold: Callable[..., Holder], project: Path) -> None:
    first = hold()
    assert first.started
    second = hold()
    assert not second.started
    pid = server_pid(project)
    first.kill()
    assert ask(second.url) == "watchbill"
    assert server_pid(project) == pid
    second.let_go()
    assert is_quiet(project / ".watchbill")


def test_next_release_stops_a_server_that_lost_its_watcher(hold: Callable[..., Holder], project: Path) -> None:
    holder = hold()
    assert holder.started
    os.kill(watcher_pid(project), signal.SIGKILL)
    wait_until_free(project / ".watchbill" / "watcher.lock")
    holder.kill()
    assert find_running_url(project) is not None
    with EmbeddedServer.acquire(project) as server:
        assert not server.started
        assert watcher_pid(project)
    assert is_quiet(project / ".watchbill")


def watcher_pid(project: Path) -> int:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(supervisor.__file__) in words and os.fsencode(project / ".watchbill") in words:
            return int(process.name)
    raise AssertionError("no watcher")


def test_release_in_a_forked_child_keeps_the_server_running(hold: Callable[..., Holder], project: Path) -> None:
    holder = hold(habit="forks")
    assert ask(holder.url) == "watchbill"
    holder.let_go()
    assert is_quiet(project / ".watchbill")


def test_program_started_by_a_holder_does_not_hold_the_server(hold: Callable[..., Holder], project: Path) -> None:
    holder = hold(habit="spawns")
    child = os.pidfd_open(int(holder.report["child"]))
    try:
        holder.kill()
        wait_until_free(project / ".watchbill" / "server.lock")
    finally:
        signal.pidfd_send_signal(child, signal.SIGKILL)
        os.close(child)


def test_ctrl_c_does_not_stop_the_server(hold: Callable[..., Holder], project: Path) -> None:
    first = hold()
    assert first.started
    second = hold()
    assert not second.started
    pid = server_pid(project)
    first.interrupt()
    assert ask(second.url) == "watchbill"
    assert server_pid(project) == pid
    second.let_go()


def test_release_works_after_the_directory_was_deleted(project: Path) -> None:
    server = EmbeddedServer.acquire(project, settings=FAST)
    with supervisor.lock_for_change(server.directory):
        assert supervisor.stop_server(server.directory)
    shutil.rmtree(server.directory)
    server.release()
    assert not server.directory.exists()


def test_acquire_creates_a_dropped_database_again(project: Path) -> None:
    with EmbeddedServer.acquire(project, settings=FAST) as server:
        with psycopg.connect(server.url.replace("/watchbill?", "/postgres?"), autocommit=True) as connection:
            connection.execute("DROP DATABASE watchbill")
        with EmbeddedServer.acquire(project) as again:
            assert ask(again.url) == "watchbill"


@pytest.mark.parametrize("name", ["listen_addresses", "port", "unix_socket_directories"])
def test_settings_that_open_network_access_are_refused(bare_project: Path, name: str) -> None:
    with pytest.raises(EmbeddedError, match=f"{name} cannot be set"):
        EmbeddedServer.acquire(bare_project, settings={name: "*"})
    assert not (bare_project / ".watchbill").exists()

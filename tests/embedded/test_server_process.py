"""Which process is the server: never a matter of a number in a file."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.embedded.holders import Holder, is_quiet, server_pid, wait_until_free
from tests.waiting import until
from watchbill.postgres.embedded import EmbeddedServer, find_running_url, supervisor
from watchbill.postgres.embedded.account import find_server_account

FAST = {"fsync": "off"}


@pytest.fixture
def stranger(project: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the server's user, which PostgreSQL itself would take for the server that the file names."""
    account = find_server_account(project / ".watchbill" / "data")
    process = subprocess.Popen(["sleep", "600"], user=account.uid if account.is_other else None)
    yield process
    process.kill()
    process.wait()


def kill_server(project: Path) -> None:
    os.kill(server_pid(project), signal.SIGKILL)
    wait_until_free(project / ".watchbill" / "server.lock")


def restart(data: Path) -> None:
    """As `pg_ctl restart` does, which the server's user may not be able to reach."""
    command, note = shlex.split((data / "postmaster.opts").read_text()), data / "postmaster.pid"
    os.kill(int(note.read_text().split()[0]), signal.SIGINT)
    until(lambda: not note.exists())
    find_server_account(data).run(["/bin/sh", "-c", '"$@" > /dev/null 2>&1 &', "sh", *command], apart=True)
    until(lambda: note.exists() and "ready" in note.read_text())


def test_data_survives_a_kill_of_the_server(project: Path) -> None:
    with EmbeddedServer.acquire(project) as server:
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE TABLE survivors AS SELECT generate_series(1, 1000)")
        kill_server(project)
        assert find_running_url(project) is None
        with EmbeddedServer.acquire(project) as again, psycopg.connect(again.url) as connection:
            assert again.started
            assert connection.execute("SELECT count(*) FROM survivors").fetchone() == (1000,)


def test_release_works_after_the_server_was_killed(project: Path) -> None:
    with EmbeddedServer.acquire(project, settings=FAST):
        kill_server(project)
    assert is_quiet(project / ".watchbill")


def test_manually_restarted_server_is_recognized(project: Path) -> None:
    with EmbeddedServer.acquire(project, settings=FAST) as server:
        data = server.directory / "data"
        restart(data)
        with EmbeddedServer.acquire(project, settings=FAST) as again:
            assert not again.started
    assert supervisor.find_running_pid(data) is None


def test_reused_pid_is_not_taken_for_the_server(project: Path, stranger: subprocess.Popen[bytes]) -> None:
    """Both files in which PostgreSQL keeps its number name a stranger after a crash; it is left alone."""
    home = project / ".watchbill"
    with EmbeddedServer.acquire(project, settings=FAST):
        stale = (home / "data" / "postmaster.pid").read_text().replace(str(server_pid(project)), str(stranger.pid), 1)
        kill_server(project)
        (home / "data" / "postmaster.pid").write_text(stale)
        (home / "socket" / ".s.PGSQL.5432.lock").write_text(stale)
        assert find_running_url(project) is None
        assert not supervisor.signal_server(home / "data", signal.SIGKILL)
        with EmbeddedServer.acquire(project, settings=FAST) as again:
            assert again.started
    assert is_quiet(home)
    assert stranger.poll() is None


def test_release_does_not_signal_a_process_with_a_reused_pid(project: Path, stranger: subprocess.Popen[bytes]) -> None:
    with EmbeddedServer.acquire(project, settings=FAST):
        record = project / ".watchbill" / "data" / "postmaster.pid"
        stale = record.read_text().replace(str(server_pid(project)), str(stranger.pid), 1)
        kill_server(project)
        record.write_text(stale)
    assert stranger.poll() is None


def test_copied_pid_file_does_not_match_the_other_server(project: Path, open_directory: Path) -> None:
    other = open_directory / "other"
    other.mkdir()
    data = other / ".watchbill" / "data"
    data.mkdir(parents=True)
    with EmbeddedServer.acquire(project, settings=FAST):
        shutil.copy(project / ".watchbill" / "data" / "postmaster.pid", data)
        assert supervisor.read_recorded_pid(data) == server_pid(project)
        assert supervisor.find_running_pid(data) is None
        assert not supervisor.signal_server(data, signal.SIGINT)
        assert find_running_url(other) is None


def test_a_session_of_the_server_is_not_the_server(project: Path) -> None:
    with EmbeddedServer.acquire(project, settings=FAST) as server, psycopg.connect(server.url) as connection:
        assert supervisor.is_server(server_pid(project), server.directory / "data")
        assert not supervisor.is_server(connection.info.backend_pid, server.directory / "data")


@pytest.mark.parametrize("content", ["", "x\n", "-7\n", "0\n"])
def test_invalid_pid_file_yields_no_pid(tmp_path: Path, content: str) -> None:
    (tmp_path / "postmaster.pid").write_text(content)
    assert supervisor.read_recorded_pid(tmp_path) is None
    assert not supervisor.signal_server(tmp_path, signal.SIGKILL)


def test_root_without_ptrace_capability_finds_the_server(hold: Callable[..., Holder], project: Path) -> None:
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0 or setpriv is None:
        pytest.skip("needs root, and setpriv to take a capability from it")
    holder = hold(prefix=(setpriv, "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"))
    assert holder.started
    holder.let_go()
    assert is_quiet(project / ".watchbill")

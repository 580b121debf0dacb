"""Root lends the server another user; other users are kept out; ordinary users need nothing of all this."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.embedded.holders import TESTS, Holder, is_quiet, python_path, server_pid
from watchbill.errors import EmbeddedError
from watchbill.postgres.embedded import EmbeddedServer, find_binaries, find_running_url, supervisor

FAST = {"fsync": "off"}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def python_for(user: str) -> str:
    """A Python of this version that the user can run; ours may be in somebody's home."""
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        try:
            done = subprocess.run(
                [python, "-c", "import psycopg, watchbill, tests.embedded.holder"],
                cwd=TESTS,
                env={"PYTHONPATH": python_path()},
                user=user,
                capture_output=True,
            )
        except OSError:
            continue
        if done.returncode == 0:
            return python
    pytest.skip(f"the user {user} can run no Python that has psycopg and Watchbill")


def test_server_files_and_sockets_are_private(project: Path) -> None:
    with EmbeddedServer.acquire(project, settings=FAST) as server:
        home = server.directory
        assert mode(home / "data") == mode(home / "socket") == mode(home / "socket" / ".s.PGSQL.5432") == 0o700
        for path in (*home.glob("*.lock"), home / "server.log"):
            assert mode(path) == 0o600
        with psycopg.connect(server.url) as connection:
            methods = connection.execute("SELECT type, auth_method FROM pg_hba_file_rules").fetchall()
        assert {method for kind, method in methods if kind != "local"} <= {"reject"}


@needs_root
def test_other_users_cannot_connect_to_the_socket(project: Path) -> None:
    with EmbeddedServer.acquire(project, settings=FAST) as server:
        others = [entry for entry in map(pwd.getpwnam, ("nobody", "daemon")) if entry.pw_uid != owner(project)]
        for other in others:
            assert not can_connect(server.directory / "socket" / ".s.PGSQL.5432", other.pw_uid)
        assert can_connect(server.directory / "socket" / ".s.PGSQL.5432", owner(project))


def owner(project: Path) -> int:
    return (project / ".watchbill" / "data").stat().st_uid


def can_connect(address: Path, user: int) -> bool:
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setuid(user)
        with socket.socket(socket.AF_UNIX) as client:
            os._exit(0 if client.connect_ex(str(address)) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0


@needs_root
def test_root_runs_the_server_as_another_user(project: Path) -> None:
    before = (project.stat().st_uid, mode(project), project.parent.stat().st_uid, mode(project.parent))
    with EmbeddedServer.acquire(project, settings=FAST):
        assert Path("/proc", str(server_pid(project))).stat().st_uid == owner(project) != 0
    assert (project.stat().st_uid, mode(project), project.parent.stat().st_uid, mode(project.parent)) == before
    assert project.joinpath(".watchbill").stat().st_uid == 0


@needs_root
def test_private_project_of_root_uses_the_state_directory(bare_project: Path, state: Path) -> None:
    """With programs that the server's user cannot reach either, as in a clone of root's with its environment."""
    bare_project.chmod(0o700)
    programs = closed_wheel(bare_project)
    for _ in range(2):
        with EmbeddedServer.acquire(bare_project, binaries=str(programs), settings=FAST) as server:
            home = Path((bare_project / ".watchbill" / "state-directory").read_text())
            assert home.parent == state
            assert (home / "project").read_text() == str(bare_project)
            assert find_running_url(bare_project) == server.url
            assert sorted(path.name for path in server.directory.iterdir()) == [".gitignore", "state-directory"]
            pid = supervisor.find_running_pid(home / "data")
            assert Path("/proc", str(pid), "exe").readlink().is_relative_to(state / "binaries")
        assert is_quiet(home)
    assert mode(bare_project) == 0o700
    assert len(list((state / "binaries").glob("*-*"))) == 1


def closed_wheel(project: Path) -> Path:
    installed = find_binaries("wheel").directory.parent
    libraries = f"{installed.parent.name}.libs"
    copy = project / "site-packages"
    shutil.copytree(installed, copy / installed.parent.name / installed.name)
    shutil.copytree(installed.parent.with_name(libraries), copy / libraries)
    return copy / installed.parent.name / installed.name / "bin"


@needs_root
def test_binaries_that_the_server_user_cannot_run_are_an_error(bare_project: Path) -> None:
    closed = bare_project / "closed"
    closed.mkdir(mode=0o700)
    system = find_binaries().directory
    for program in ("postgres", "initdb"):
        shutil.copy(system / program, closed / program)
    with pytest.raises(EmbeddedError, match="cannot run"):
        EmbeddedServer.acquire(bare_project, binaries=str(closed))


@needs_root
def test_ordinary_user_runs_the_server_under_their_own_account(hold: Callable[..., Holder], bare_project: Path) -> None:
    os.chown(bare_project, pwd.getpwnam("nobody").pw_uid, -1)
    holder = hold(user="nobody", python=python_for("nobody"))
    assert holder.started
    assert owner(bare_project) == pwd.getpwnam("nobody").pw_uid
    holder.let_go()
    assert is_quiet(bare_project / ".watchbill")


@needs_root
def test_the_home_of_another_user_is_refused(bare_project: Path) -> None:
    (bare_project / ".watchbill").mkdir()
    os.chown(bare_project / ".watchbill", 65534, -1)
    with pytest.raises(EmbeddedError, match="belongs to another user"):
        EmbeddedServer.acquire(bare_project)


@needs_root
def test_data_that_belongs_to_root_is_refused(bare_project: Path) -> None:
    (bare_project / ".watchbill" / "data").mkdir(parents=True)
    (bare_project / ".watchbill" / "data" / "PG_VERSION").write_text(f"{find_binaries().major}\n")
    with pytest.raises(EmbeddedError, match="belongs to root"):
        EmbeddedServer.acquire(bare_project)

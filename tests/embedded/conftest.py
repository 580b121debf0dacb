from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.embedded.holders import Holder, wait_until_free
from watchbill.postgres.embedded import EmbeddedServer, find_binaries, home, supervisor


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """Not `tmp_path`: that is closed to all other users, so a server of root's would have to live elsewhere."""
    directory = Path(tempfile.mkdtemp(prefix="watchbill-embedded-"))
    directory.chmod(0o755)
    yield directory
    stop_servers(directory)
    for lock in directory.rglob("watcher.lock"):
        wait_until_free(lock)
    shutil.rmtree(directory)


def stop_servers(directory: Path) -> None:
    for lock in directory.rglob("server.lock"):
        with supervisor.lock_for_change(lock.parent):
            assert supervisor.stop_server(lock.parent)


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, open_directory: Path) -> Path:
    """In place of /var/lib/watchbill."""
    directory = open_directory / "state"
    monkeypatch.setattr(home, "STATE", directory)
    return directory


@pytest.fixture
def bare_project(open_directory: Path) -> Path:
    """A project that has never had a server."""
    directory = open_directory / "project"
    directory.mkdir()
    directory.chmod(0o755)
    return directory


@pytest.fixture
def project(bare_project: Path, furnish: Callable[[Path], None]) -> Path:
    """A project that has had a server before."""
    furnish(bare_project)
    return bare_project


@pytest.fixture(scope="session")
def shelf() -> Iterator[Path]:
    """Keeps a data directory between the tests that borrow it."""
    directory = Path(tempfile.mkdtemp(prefix="watchbill-embedded-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def furnish(shelf: Path, open_directory: Path) -> Iterator[Callable[[Path], None]]:
    """Gives a project the data of a server that has run before. Lent, since initdb and copies take most of a second."""
    kept, borrowed = shelf / ".watchbill" / "data", open_directory / "nowhere"

    def lend(project: Path) -> None:
        nonlocal borrowed
        if not kept.exists():
            EmbeddedServer.acquire(shelf, settings={"fsync": "off"}).release()
        (project / ".watchbill").mkdir()
        borrowed = kept.rename(project / ".watchbill" / "data")

    yield lend
    stop_servers(open_directory)
    if borrowed.exists():
        borrowed.rename(kept)


@pytest.fixture
def hold(bare_project: Path) -> Iterator[Callable[..., Holder]]:
    """Starts a process that holds the project's server."""
    started: list[Holder] = []

    def start(where: Path = bare_project, **how: Any) -> Holder:
        started.append(Holder(where, **how))
        return started[-1]

    yield start
    for holder in started:
        if holder.process.poll() is None:
            holder.kill()


@pytest.fixture
def fake_initdb(open_directory: Path) -> Callable[[str], Path]:
    """A directory of programs: a postgres that can say its version, and an initdb that does this with $data. Scripts
    both, since the server's user may not reach what a virtual environment has."""

    def make(script: str) -> Path:
        programs = open_directory / "programs"
        programs.mkdir()
        programs.chmod(0o755)
        scripts = {
            "postgres": f'echo "postgres (PostgreSQL) {find_binaries().version}"',
            "initdb": f'data="${{1#--pgdata=}}"\n{script}',
        }
        for name, text in scripts.items():
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
        return programs

    return make

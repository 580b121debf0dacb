"""Where things are: paths that are long, odd, linked, read-only, moved or somebody else's."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from tests.embedded.holders import Holder, server_pid, wait_until_free
from watchbill.errors import EmbeddedError
from watchbill.postgres.embedded import EmbeddedServer, find_running_url, supervisor

FAST = {"fsync": "off"}


def socket_directory(url: str) -> Path:
    return Path(parse_qs(urlsplit(url).query)["host"][0])


@pytest.fixture
def deep(bare_project: Path, furnish: Callable[[Path], None]) -> Path:
    """A project whose path is too long for a socket."""
    directory = bare_project / ("long" * 20) / ("longer" * 20)
    directory.mkdir(parents=True)
    furnish(directory)
    return directory


def test_long_path_gets_a_short_private_socket_directory(deep: Path) -> None:
    with EmbeddedServer.acquire(deep, settings=FAST) as server:
        sockets = socket_directory(server.url)
        assert not sockets.is_relative_to(deep)
        assert sockets.stat().st_mode & 0o777 == 0o700
        assert find_running_url(deep) == server.url
        with psycopg.connect(server.url) as connection:
            connection.execute("SELECT 1")
    assert not sockets.exists()
    assert not (deep / ".watchbill" / "socket-directory").exists()


def test_next_start_removes_a_socket_directory_left_by_a_crash(hold: Callable[..., Holder], deep: Path) -> None:
    holder = hold(deep)
    left = socket_directory(holder.url)
    os.kill(server_pid(deep), signal.SIGKILL)
    wait_until_free(deep / ".watchbill" / "server.lock")
    assert list(left.iterdir())
    with EmbeddedServer.acquire(deep, settings=FAST) as server:
        assert socket_directory(server.url) != left
        assert not left.exists()


@pytest.mark.parametrize("name", ['it\'s a "100%41" $HOME \\ ü', "a,b", "new\nline", os.fsdecode(b"not text: \xfc")])
def test_project_path_may_contain_odd_characters(
    bare_project: Path, furnish: Callable[[Path], None], name: str
) -> None:
    odd = bare_project / name
    odd.mkdir()
    furnish(odd)
    with EmbeddedServer.acquire(odd, settings=FAST) as server, psycopg.connect(server.url) as connection:
        connection.execute("SELECT 1")
        assert supervisor.find_running_pid(odd / ".watchbill" / "data")
        assert find_running_url(odd) == server.url


def test_symlink_and_relative_path_find_the_same_server(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = project.parent / "link"
    link.symlink_to(project)
    monkeypatch.chdir(project)
    with EmbeddedServer.acquire(Path(), settings=FAST) as server, EmbeddedServer.acquire(link) as same:
        assert not same.started
        assert same.url == server.url == find_running_url(link)


def test_server_ignores_pgport_and_pgdata(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", "6543")
    monkeypatch.setenv("PGDATA", "/nonexistent")
    with EmbeddedServer.acquire(project, settings=FAST) as server, psycopg.connect(server.url) as connection:
        assert connection.execute("SHOW port").fetchone() == ("5432",)


def test_running_url_creates_no_files(bare_project: Path) -> None:
    assert find_running_url(bare_project) is None
    assert find_running_url(bare_project / "nowhere") is None
    assert list(bare_project.iterdir()) == []


def test_missing_project_directory_is_an_error(bare_project: Path) -> None:
    with pytest.raises(EmbeddedError, match="There is no directory"):
        EmbeddedServer.acquire(bare_project / "nowhere")


def test_unusable_home_directory_is_an_error(bare_project: Path) -> None:
    (bare_project / ".watchbill").touch()
    with pytest.raises(EmbeddedError, match="cannot be used") as caught:
        EmbeddedServer.acquire(bare_project)
    assert "set WATCHBILL_DATABASE_URL" in str(caught.value)


def test_copied_project_error_tells_how_to_move_its_data(bare_project: Path, state: Path) -> None:
    directory = bare_project / ".watchbill"
    directory.mkdir()
    (directory / "state-directory").write_text(str(state / "0123456789abcdef"))
    with pytest.raises(EmbeddedError, match="If the project was moved: mv"):
        EmbeddedServer.acquire(bare_project)
    shutil.rmtree(directory)

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

from watchbill.errors import EmbeddedError
from watchbill.postgres.embedded import EmbeddedServer, running_url, supervisor
from tests.embedded.holders import Holder, server_pid, wait_until_free

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


def test_a_path_too_long_for_a_socket_gets_a_short_private_one(deep: Path) -> None:
    with EmbeddedServer.acquire(deep, settings=FAST) as server:
        sockets = socket_directory(server.url)
        assert not sockets.is_relative_to(deep)
        assert sockets.stat().st_mode & 0o777 == 0o700
        assert running_url(deep) == server.url
        with psycopg.connect(server.url) as connection:
            connection.execute("SELECT 1")
    assert not sockets.exists()
    assert not (deep / ".watchbill" / "socket-directory").exists()


def test_a_short_directory_that_a_crash_left_is_removed_at_the_next_start(
    hold: Callable[..., Holder], deep: Path
) -> None:
    holder = hold(deep)
    left = socket_directory(holder.url)
    os.kill(server_pid(deep), signal.SIGKILL)
    wait_until_free(deep / ".watchbill" / "server.lock")
    assert list(left.iterdir())
    with EmbeddedServer.acquire(deep, settings=FAST) as server:
        assert socket_directory(server.url) != left
        assert not left.exists()


@pytest.mark.parametrize("name", ['it\'s a "100%41" $HOME \\ ü', "a,b", "new\nline", os.fsdecode(b"not text: \xfc")])
def test_odd_names_are_just_names(bare_project: Path, furnish: Callable[[Path], None], name: str) -> None:
    odd = bare_project / name
    odd.mkdir()
    furnish(odd)
    with EmbeddedServer.acquire(odd, settings=FAST) as server, psycopg.connect(server.url) as connection:
        connection.execute("SELECT 1")
        assert supervisor.running_pid(odd / ".watchbill" / "data")
        assert running_url(odd) == server.url


def test_a_link_and_a_relative_path_lead_to_the_same_server(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = project.parent / "link"
    link.symlink_to(project)
    monkeypatch.chdir(project)
    with EmbeddedServer.acquire(Path(), settings=FAST) as server, EmbeddedServer.acquire(link) as same:
        assert not same.started
        assert same.url == server.url == running_url(link)


def test_the_port_of_the_environment_does_not_count(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", "6543")
    monkeypatch.setenv("PGDATA", "/nonexistent")
    with EmbeddedServer.acquire(project, settings=FAST) as server, psycopg.connect(server.url) as connection:
        assert connection.execute("SHOW port").fetchone() == ("5432",)


def test_looking_for_a_running_server_makes_nothing(bare_project: Path) -> None:
    assert running_url(bare_project) is None
    assert running_url(bare_project / "nowhere") is None
    assert list(bare_project.iterdir()) == []


def test_a_project_that_is_not_there_is_an_error(bare_project: Path) -> None:
    with pytest.raises(EmbeddedError, match="There is no directory"):
        EmbeddedServer.acquire(bare_project / "nowhere")


def test_a_place_that_cannot_be_written_is_an_error(bare_project: Path) -> None:
    (bare_project / ".watchbill").touch()
    with pytest.raises(EmbeddedError, match="cannot be used") as caught:
        EmbeddedServer.acquire(bare_project)
    assert "in WATCHBILL_DATABASE_URL" in str(caught.value)


def test_a_copied_project_is_told_that_its_data_is_elsewhere(bare_project: Path, state: Path) -> None:
    directory = bare_project / ".watchbill"
    directory.mkdir()
    (directory / "state-directory").write_text(str(state / "0123456789abcdef"))
    with pytest.raises(EmbeddedError, match="If the project was moved: mv"):
        EmbeddedServer.acquire(bare_project)
    shutil.rmtree(directory)

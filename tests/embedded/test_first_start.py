"""The first start of a project: whole or not at all, once, and never on data that it cannot serve."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.embedded.holders import Holder, is_quiet, server_pid
from watchbill.errors import EmbeddedError
from watchbill.postgres.embedded import EmbeddedServer, find_binaries
from watchbill.postgres.embedded.binaries import search_binaries

FAST = {"fsync": "off"}


def picture(directory: Path) -> dict[str, object]:
    """All that is in a directory, to see whether anything was touched."""
    return {
        str(path.relative_to(directory)): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path in (directory, *directory.rglob("*"))
    }


def test_four_simultaneous_first_starts_make_one_server(hold: Callable[..., Holder], bare_project: Path) -> None:
    holders = [hold() for _ in range(4)]
    assert sorted(holder.started for holder in holders) == [False, False, False, True]
    pid = server_pid(bare_project)
    for holder in holders:
        with psycopg.connect(holder.url) as connection:
            connection.execute("SELECT 1")
    for holder in holders[1:]:
        holder.let_go()
    assert server_pid(bare_project) == pid
    holders[0].let_go()
    assert is_quiet(bare_project / ".watchbill")


def test_start_killed_during_initdb_leaves_no_data_directory(
    hold: Callable[..., Holder], bare_project: Path, open_directory: Path, fake_initdb: Callable[[str], Path]
) -> None:
    begun, go_on = open_directory / "begun", open_directory / "go-on"
    for pipe in (begun, go_on):
        os.mkfifo(pipe)
        pipe.chmod(0o666)
    programs = fake_initdb(f'echo 15 > "$data/PG_VERSION"; echo > {begun}; read line < {go_on}')
    holder = hold(binaries=str(programs))
    begun.read_text()
    holder.kill()
    home = bare_project / ".watchbill"
    assert not (home / "data").exists()
    assert [path.name.startswith("data.new-") for path in home.glob("data*")] == [True]
    go_on.write_text("\n")
    with EmbeddedServer.acquire(bare_project, settings=FAST) as server:
        assert server.started
        assert [path.name for path in home.glob("data*")] == ["data"]


def test_failed_initdb_leaves_no_data_and_shows_the_reason(
    bare_project: Path, fake_initdb: Callable[[str], Path]
) -> None:
    programs = fake_initdb('echo 15 > "$data/PG_VERSION"; echo "no space left" >&2; exit 1')
    with pytest.raises(EmbeddedError, match=r"(?s)initdb failed.*no space left"):
        EmbeddedServer.acquire(bare_project, binaries=str(programs))
    assert not list((bare_project / ".watchbill").glob("data*"))


def test_start_error_quotes_the_server_log(project: Path) -> None:
    with pytest.raises(EmbeddedError, match=r"(?s)ended as soon as.*unrecognized configuration parameter"):
        EmbeddedServer.acquire(project, settings={"fsync": "off", "no_such_setting": "1"})
    with EmbeddedServer.acquire(project, settings=FAST) as server:
        assert server.started


def test_data_of_an_uninstalled_major_is_refused_and_unchanged(bare_project: Path) -> None:
    data = bare_project / ".watchbill" / "data"
    data.mkdir(parents=True, mode=0o700)
    (data / "PG_VERSION").write_text("12\n")
    if os.geteuid() == 0:
        os.chown(data, 65534, -1)
    before = picture(bare_project)
    with pytest.raises(EmbeddedError) as caught:
        EmbeddedServer.acquire(bare_project)
    assert "was made by PostgreSQL 12" in str(caught.value)
    assert find_binaries().version in str(caught.value)
    assert "pg_dumpall" in str(caught.value)
    assert picture(bare_project) == before


def test_start_uses_the_server_version_that_made_the_data(bare_project: Path) -> None:
    """As after an upgrade of the wheel: the newest is not what made the data."""
    for oldest in sorted(search_binaries()[0], key=lambda each: each.major)[:1]:
        with EmbeddedServer.acquire(bare_project, binaries=str(oldest.directory), settings=FAST):
            pass
        with EmbeddedServer.acquire(bare_project, settings=FAST) as server:
            assert server.version == oldest.version


@pytest.mark.parametrize("stranger", ["README", "PG_VERSION"])
def test_start_refuses_a_directory_without_postgres_data(bare_project: Path, stranger: str) -> None:
    data = bare_project / ".watchbill" / "data"
    data.mkdir(parents=True)
    (data / stranger).write_text("mine")
    if os.geteuid() == 0:
        os.chown(data, 65534, -1)
    before = picture(bare_project)
    with pytest.raises(EmbeddedError, match="not a data directory"):
        EmbeddedServer.acquire(bare_project)
    assert picture(bare_project) == before

"""A copy of a database issues no number that the original has issued after the copy was made.

A node that lived on knows fences of the original. If the copy issued them again, the node could end another's job.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

import psycopg
import pytest
from psycopg import sql

from tests.servers import Server
from tests.store.harness import Db, End
from tests.store.test_plan_sql import psql

Original = Callable[[], None]


@contextmanager
def opened(url: str) -> Iterator[Db]:
    db = Db(url)
    try:
        yield db
    finally:
        db.close()


def name_of(url: str) -> str:
    return unquote(urlsplit(url).path.removeprefix("/"))


def dump(server: Server, url: str) -> str:
    command = [str(server.binaries.directory / "pg_dump"), "--schema", "watchbill", url]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def restore(server: Server, url: str, script: str) -> None:
    answer = psql(server, url, script)
    assert answer.returncode == 0, answer.stderr


@pytest.fixture
def original(schema_database: str) -> str:
    return schema_database


def copy_files(server: Server, url: str, work_on: Original) -> str:
    copy = server.url(server.create_database(name_of(url)))
    work_on()
    return copy


def dump_elsewhere(server: Server, url: str, work_on: Original) -> str:
    script, copy = dump(server, url), server.url(server.create_database())
    work_on()
    restore(server, copy, script)
    return copy


def dump_in_place(server: Server, url: str, work_on: Original) -> str:
    script = dump(server, url)
    work_on()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA watchbill CASCADE")
    restore(server, url, script)
    return url


@pytest.mark.parametrize("make_copy", [copy_files, dump_elsewhere, dump_in_place])
def test_a_copy_issues_no_fence_of_the_original_again(
    server: Server, original: str, make_copy: Callable[[Server, str, Original], str]
) -> None:
    with opened(original) as db:
        one, two = db.node("one"), db.node("two")
        job = db.enqueue()
    claimed = []

    def work_on() -> None:
        with opened(original) as db:
            claimed.append(db.claim_one(one))

    copy = make_copy(server, original, work_on)
    try:
        with opened(copy) as db:
            late, held = claimed[0], db.claim_one(two)
            assert late.id == held.id == job
            db.settle(one, End(late))
            assert db.states(job) == ["running"], "the node that lived on ended a job of another"
            assert late.fence < held.fence < db.node("three")
            (row,) = db.rows("installation")
            db.node("four")
            assert db.rows("installation") == [row], "it is a copy only once"
    finally:
        if copy != original:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name_of(copy))))


def test_a_server_that_was_started_again_issues_greater_fences(own_db: Db) -> None:
    """It may run on an older copy of its files: a snapshot of the disk, for example."""
    db = own_db
    epoch = db.node()
    db.enqueue(), db.enqueue()
    before = db.claim_one(epoch).fence
    db.change("UPDATE {schema}.installation SET server_started_at = server_started_at - interval '1 day'")
    assert db.claim_one(epoch).fence >> 40 > before >> 40

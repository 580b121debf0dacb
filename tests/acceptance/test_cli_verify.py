"""`watchbill verify`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.command import Watchbill


@pytest.fixture
def watchbill(tmp_path: Path, schema_database: str) -> Watchbill:
    (tmp_path / "watchbill.toml").write_text(f'database_url = "{schema_database}"\n')
    return Watchbill(tmp_path)


@pytest.fixture
def connection(schema_database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        yield connection


def test_verify_says_what_is_wrong(watchbill: Watchbill, connection: psycopg.Connection) -> None:
    """These are the commands of docs/reference/verify.md."""
    for words in ((), ("--full", "--gentle")):
        sound = watchbill.here("verify", *words)
        assert (sound.returncode, sound.stdout, sound.stderr) == (0, "no damage was found\n", "")
    row = connection.execute("SELECT id FROM watchbill.enqueue('send')").fetchone()
    assert row is not None
    connection.execute("UPDATE watchbill.jobs SET policy = 99")
    broken = watchbill.here("verify")
    assert broken.returncode == 1
    assert broken.stdout.splitlines() == [
        f"damage  known_policy  job {row[0]}: there is no policy 99",
        "1 finding: something has written the tables that is not Watchbill, or has a bug",
    ]
    for options in (["--job", str(row[0])[:18]], ["--full", "--from", "jobs:0"], []):
        (found,) = json.loads(watchbill.here("verify", *options, "--json").stdout)
        assert (found["invariant"], found["state"], found["held_by"]) == ("known_policy", "damage", None)


def test_verify_refuses_what_makes_no_sense(watchbill: Watchbill) -> None:
    for options in (["--from", "jobs:0"], ["--full", "--job", "01"], ["--full", "--from", "somewhere"]):
        assert watchbill.here("verify", *options).returncode == 2

"""`watchbill locks` and `watchbill cluster leader`: as a person uses them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.command import Watchbill
from watchbill import App, Lock, LockLost


@pytest.fixture
def watchbill(tmp_path: Path, schema_database: str) -> Watchbill:
    return Watchbill(tmp_path, {"WATCHBILL_DATABASE_URL": schema_database})


@pytest.fixture
def app(schema_database: str) -> Iterator[App]:
    app = App(schema_database)
    yield app
    app.close()


@pytest.fixture
def lock(app: App) -> Lock:
    return app.lock("nightly close").acquire()


def test_list_shows_who_holds_a_lock(watchbill: Watchbill, lock: Lock) -> None:
    shown = watchbill.here("locks").stdout
    assert "nightly close" in shown
    assert str(lock.fence) in shown
    (data,) = json.loads(watchbill.here("locks", "list", "--json").stdout)
    assert (data["name"], data["state"], data["fence"]) == ("nightly close", "held", lock.fence)
    assert data["released_at"] is None


def test_a_lock_that_is_held_again_was_not_released(watchbill: Watchbill, lock: Lock) -> None:
    lock.release()
    (free,) = json.loads(watchbill.here("locks", "list", "--all", "--json").stdout)
    assert free["released_at"] is not None
    lock.acquire()
    (held,) = json.loads(watchbill.here("locks", "list", "--json").stdout)
    assert (held["state"], held["released_at"]) == ("held", None)


def test_list_shows_free_locks_only_when_asked(watchbill: Watchbill, lock: Lock) -> None:
    lock.release()
    empty = watchbill.here("locks")
    assert (empty.stdout, empty.stderr) == ("", "No lock is held.\n")
    assert "free" in watchbill.here("locks", "--all").stdout


def test_release_takes_the_lock_from_its_holder(watchbill: Watchbill, lock: Lock, app: App) -> None:
    done = watchbill.here("locks", "release", "nightly close", "--yes")
    assert (done.returncode, done.stdout) == (0, "lock nightly close released\n")
    with psycopg.connect(app.database_url) as connection, pytest.raises(LockLost):
        lock.check(connection)
    with psycopg.connect(app.database_url) as connection:
        rows = connection.execute("SELECT action, subject FROM watchbill.audit").fetchall()
    assert rows == [("lock_release", "lock nightly close")]


def test_release_asks_first(watchbill: Watchbill, lock: Lock) -> None:
    done = watchbill("locks", "release", "nightly close")
    assert done.returncode == 1
    assert "Release lock nightly close" in done.stdout
    assert lock.is_held
    assert json.loads(watchbill.here("locks", "--json").stdout)[0]["state"] == "held"


def test_dry_run_releases_nothing(watchbill: Watchbill, lock: Lock) -> None:
    done = watchbill.here("locks", "release", "nightly close", "--dry-run")
    assert f"under fence {lock.fence}" in done.stdout
    assert (
        json.loads(watchbill.here("locks", "release", "nightly close", "--dry-run", "--json").stdout)["state"] == "held"
    )
    assert json.loads(watchbill.here("locks", "--json").stdout)[0]["state"] == "held"


def test_release_of_a_free_lock_exits_with_1(watchbill: Watchbill, app: App) -> None:
    done = watchbill.here("locks", "release", "nothing", "--yes")
    assert (done.returncode, done.stderr) == (1, "lock nothing is not held\n")


def test_leader_shows_the_leader_and_its_term(watchbill: Watchbill, app: App) -> None:
    with psycopg.connect(app.database_url) as connection:
        connection.execute("SELECT watchbill.elect(watchbill.register('n1', '1 hour'), '{production,staging}')")
    assert "n1" in watchbill.here("cluster", "leader", "production").stdout
    leader = app.cluster.leader("production")
    assert leader is not None
    (data,) = json.loads(watchbill.here("cluster", "leader", "production", "--json").stdout)
    assert (data["name"], data["term"], data["epoch"]) == ("n1", leader.term, leader.epoch)
    assert len(json.loads(watchbill.here("cluster", "leader", "--json").stdout)) == 2


def test_leader_of_a_group_without_one_exits_with_1(watchbill: Watchbill, app: App) -> None:
    done = watchbill.here("cluster", "leader", "production")
    assert (done.returncode, done.stderr) == (1, "group production has no leader\n")
    assert app.cluster.leader("production") is None

"""lock.check() in the caller's own transaction: every driver, the same promises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from sqlalchemy import create_engine

from tests.integrations.callers import Caller
from tests.integrations.observer import Observer, surprised
from watchbill import App, Lock, LockLost, WrongDatabase
from watchbill.store.refusals import Invalid

NAME = "100%s %% $1 :name ? \\ ' \" é 🎈"


@pytest.fixture
def own(home: str, other: Observer) -> Iterator[App]:
    other.connection.execute("DELETE FROM watchbill.locks")
    app = App(home)
    yield app
    app.close()


@pytest.fixture
def lock(own: App) -> Iterator[Lock]:
    lock = own.lock(NAME).acquire()
    yield lock
    with suppress(LockLost):
        lock.release()


def test_a_check_passes_and_keeps_the_next_grant_away_until_the_commit(
    caller: Caller, other: Observer, own: App, lock: Lock
) -> None:
    with caller.transaction():
        caller.call(lock.check)
        lock_is_expired(other)
        assert own.lock(NAME).try_acquire() is False
    second = own.lock(NAME)
    assert second.try_acquire() is True
    assert second.fence > lock.fence


def test_a_check_under_an_old_fence_is_refused_and_nothing_was_written(
    caller: Caller, other: Observer, own: App, lock: Lock
) -> None:
    lock_is_expired(other)
    second = own.lock(NAME).acquire()

    def write() -> None:
        with caller.transaction():
            caller.execute("INSERT INTO notes VALUES (1)")
            caller.call(lock.check)

    with pytest.raises(LockLost, match="no longer held under fence"):
        write()
    assert other.connection.execute("SELECT count(*) FROM notes").fetchone() == (0,)
    second.release()


def test_a_check_in_a_transaction_that_rolls_back_leaves_the_lock_as_it_was(caller: Caller, lock: Lock) -> None:
    with surprised(caller.transaction()):
        caller.call(lock.check)
    with caller.transaction():
        caller.call(lock.check)


def test_a_check_on_another_installation_is_refused(kind: type[Caller], second_installation: str, lock: Lock) -> None:
    caller = kind(second_installation)
    try:
        with pytest.raises(WrongDatabase), caller.transaction():
            caller.call(lock.check)
    finally:
        caller.close()


def test_a_check_without_a_transaction_is_refused(caller: Caller, lock: Lock) -> None:
    """It would be committed at once, and protect nothing that follows."""
    with caller.autocommit(), pytest.raises(Invalid, match=r"check\(\) would protect nothing"):
        caller.call(lock.check)


def test_a_check_on_an_engine_in_autocommit_mode_is_refused(home: str, lock: Lock) -> None:
    url = home.replace("postgresql:", "postgresql+psycopg:", 1)
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.begin() as connection, pytest.raises(Invalid, match="would protect nothing"):
        lock.check(connection)
    engine.dispose()


def test_a_check_without_a_connection_is_refused(lock: Lock) -> None:
    with pytest.raises(TypeError, match="takes a connection or session, not builtins"):
        lock.check(None)


def lock_is_expired(other: Observer) -> None:
    other.connection.execute("UPDATE watchbill.locks SET expires_at = expires_at - interval '1 hour'")

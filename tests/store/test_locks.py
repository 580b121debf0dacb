"""Named locks: grants, renewals, releases and checks, with several sessions and a given clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.store.harness import Db, Session, refused

TTL = timedelta(seconds=30)


def acquire(session: Session, name: str = "close", **more: Any) -> int | None:
    fence: int | None = session.value("lock_acquire", name=name, **({"ttl": TTL, "holder": "someone"} | more))
    return fence


def state(db: Db, name: str = "close") -> str:
    """By the given clock, which the view does not read."""
    (row,) = db.execute("SELECT * FROM watchbill.locks WHERE name = %s", (name,))
    if row.holder is None:
        return "free"
    return "held" if row.expires_at > db.now else "expired"


def assert_grew(first: int | None, second: int | None) -> None:
    assert first is not None
    assert second is not None
    assert second > first


@contextmanager
def transaction(session: Session, isolation: Any = "READ COMMITTED") -> Iterator[Session]:
    session.begin(isolation)
    yield session
    session.commit()


# -- grants


def test_a_free_lock_is_granted(db: Db) -> None:
    assert acquire(db)
    assert state(db) == "held"


def test_a_held_lock_is_refused(db: Db) -> None:
    acquire(db)
    assert acquire(db) is None


def test_two_names_are_two_locks(db: Db) -> None:
    assert acquire(db, "one")
    assert acquire(db, "two")


def test_a_released_lock_is_granted_again_with_a_greater_fence(db: Db) -> None:
    first = acquire(db)
    assert db.value("lock_release", name="close", fence=first)
    second = acquire(db)
    assert_grew(first, second)


def test_an_expired_lock_gives_way_and_its_new_fence_is_greater(db: Db) -> None:
    first = acquire(db)
    db.tick(30)
    second = acquire(db)
    assert_grew(first, second)


def test_a_lock_does_not_give_way_before_its_ttl_has_passed(db: Db) -> None:
    acquire(db)
    db.tick(29.999)
    assert acquire(db) is None


def test_a_request_that_is_sent_again_gets_the_same_grant(db: Db) -> None:
    request = uuid4()
    first = acquire(db, request=request)
    db.tick(10)
    assert acquire(db, request=request) == first
    db.tick(29)
    assert state(db) == "held", "it lasts from the second call on"
    assert acquire(db, request=uuid4()) is None


def test_a_request_from_before_a_release_is_a_new_grant(db: Db) -> None:
    request = uuid4()
    first = acquire(db, request=request)
    db.value("lock_release", name="close", fence=first)
    second = acquire(db, request=request)
    assert_grew(first, second)


def test_a_try_on_a_held_lock_locks_nothing(db: Db) -> None:
    """A session that tries in a transaction and leaves it open must not hold up the holder."""
    fence = acquire(db)
    other = db.session()
    with transaction(other):
        assert acquire(other) is None
        assert db.value("lock_renew", name="close", fence=fence, ttl=TTL)
        db.call("lock_check", name="close", fence=fence)


def test_a_try_does_not_wait_for_an_uncommitted_grant(db: Db) -> None:
    fence = acquire(db)
    db.value("lock_release", name="close", fence=fence)
    other = db.session()
    with transaction(other):
        assert acquire(other)
        assert acquire(db) is None


def test_a_fence_is_drawn_after_the_wait_for_another_grant(db: Db) -> None:
    """The first caller of a new name waits for an uncommitted grant of it; its own fence must be later."""
    other = db.session()
    other.begin()
    first = acquire(other)
    waiting = db.session().start("lock_acquire", name="close", ttl=TTL, holder="waiting")
    waiting.blocked()
    other.value("lock_release", name="close", fence=first)
    other.commit()
    second = waiting.value()
    assert_grew(first, second)


def test_a_pruned_lock_that_comes_back_has_a_greater_fence(db: Db) -> None:
    first = acquire(db)
    db.value("lock_release", name="close", fence=first)
    db.tick(2 * 86400)
    assert db.value("prune_locks") == 1
    second = acquire(db)
    assert_grew(first, second)


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_snapshot_from_before_a_grant_does_not_grant_twice(db: Db, isolation: Any) -> None:
    db.value("lock_release", name="close", fence=acquire(db))
    old = db.session()
    old.begin(isolation)
    old.execute("SELECT count(*) FROM watchbill.locks")
    assert acquire(db)
    with pytest.raises(psycopg.errors.SerializationFailure):
        acquire(old)
    old.rollback()


@pytest.mark.parametrize("name", [None, "", "x" * 201, "leader/new"])
def test_an_invalid_name_is_refused(db: Db, name: str | None) -> None:
    with refused("WB003", "lock name"):
        acquire(db, name)  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [None, 0, -1, 0.999, 86401])
def test_an_invalid_ttl_is_refused(db: Db, seconds: float | None) -> None:
    ttl = None if seconds is None else timedelta(seconds=seconds)
    with refused("WB003", "ttl"):
        acquire(db, ttl=ttl)
    fence = acquire(db)
    with refused("WB003", "ttl"):
        db.value("lock_renew", name="close", fence=fence, ttl=ttl)


# -- renewals


def test_a_renewal_extends_the_lock(db: Db) -> None:
    fence = acquire(db)
    db.tick(20)
    assert db.value("lock_renew", name="close", fence=fence, ttl=TTL)
    db.tick(29)
    assert acquire(db) is None
    db.tick(1)
    assert acquire(db)


def test_a_late_renewal_succeeds_while_there_is_no_later_grant(db: Db) -> None:
    fence = acquire(db)
    db.tick(100)
    assert db.value("lock_renew", name="close", fence=fence, ttl=TTL)
    assert acquire(db) is None


def test_a_renewal_under_an_old_fence_is_refused_and_extends_nothing(db: Db) -> None:
    first = acquire(db)
    db.tick(30)
    second = acquire(db)
    db.tick(20)
    assert not db.value("lock_renew", name="close", fence=first, ttl=TTL)
    db.tick(10)
    assert acquire(db), "the second grant has expired, because the first holder did not renew it"
    assert second


def test_a_renewal_after_a_release_is_refused(db: Db) -> None:
    fence = acquire(db)
    db.value("lock_release", name="close", fence=fence)
    assert not db.value("lock_renew", name="close", fence=fence, ttl=TTL)
    assert state(db) == "free"


def test_a_renewal_that_waited_for_a_grant_is_refused(db: Db) -> None:
    first = acquire(db)
    db.tick(30)
    other = db.session()
    other.begin()
    assert acquire(other)
    renewal = db.session().start("lock_renew", name="close", fence=first, ttl=TTL)
    renewal.blocked()
    other.commit()
    assert renewal.value() is False


# -- releases


def test_a_release_under_an_old_fence_frees_nothing(db: Db) -> None:
    first = acquire(db)
    db.tick(30)
    acquire(db)
    assert not db.value("lock_release", name="close", fence=first)
    assert state(db) == "held"


def test_a_second_release_is_refused(db: Db) -> None:
    fence = acquire(db)
    assert db.value("lock_release", name="close", fence=fence)
    assert not db.value("lock_release", name="close", fence=fence)


def test_an_operator_releases_the_lock_of_any_holder_and_leaves_a_record(db: Db) -> None:
    fence = acquire(db)
    assert db.value("lock_release", name="close")
    (row,) = db.rows("audit")
    assert (row.action, row.subject) == ("lock_release", "lock close")
    assert row.detail == {"holder": "someone", "fence": fence}
    with refused("WB012"):
        db.call("lock_check", name="close", fence=fence)


def test_a_holder_that_releases_leaves_no_record(db: Db) -> None:
    db.value("lock_release", name="close", fence=acquire(db))
    assert db.count("audit") == 0


def test_a_release_notifies_only_if_somebody_waits(db: Db) -> None:
    listener = db.session()
    (channel,) = listener.execute("SELECT watchbill._name_lock_channel()")[0]
    listener.connection.execute(f'LISTEN "{channel}"'.encode())

    def heard() -> list[str]:
        listener.execute("SELECT 1")
        return [note.payload for note in listener.connection.notifies(timeout=0)]

    db.value("lock_release", name="close", fence=acquire(db))
    assert heard() == []
    fence = acquire(db)
    (missed,) = db.execute(
        "SELECT * FROM watchbill._acquire_lock('close', '30s', 'waiting', NULL, NULL, true, %s)", (db.now,)
    )
    assert (missed.fence, missed.held_by, missed.expires_in) == (None, "someone", 30)
    db.value("lock_release", name="close", fence=fence)
    assert heard() == ["close"]
    db.value("lock_release", name="close", fence=acquire(db))
    assert heard() == [], "the one that waited has been told once"


# -- checks


def test_a_check_passes_for_the_holder(db: Db) -> None:
    db.call("lock_check", name="close", fence=acquire(db))


def test_a_check_passes_after_the_expiry_while_there_is_no_later_grant(db: Db) -> None:
    fence = acquire(db)
    db.tick(1000)
    db.call("lock_check", name="close", fence=fence)


def test_a_check_under_an_old_fence_is_refused(db: Db) -> None:
    first = acquire(db)
    db.tick(30)
    acquire(db)
    with refused("WB012", "lock 'close' is no longer held under fence"):
        db.call("lock_check", name="close", fence=first)


@pytest.mark.parametrize("fence", [0, None, 1])
def test_a_check_of_a_lock_that_was_never_granted_is_refused(db: Db, fence: int | None) -> None:
    with refused("WB012"):
        db.call("lock_check", name="close", fence=fence)


def test_a_check_after_the_release_is_refused(db: Db) -> None:
    fence = acquire(db)
    db.value("lock_release", name="close", fence=fence)
    with refused("WB012"):
        db.call("lock_check", name="close", fence=fence)


def test_nothing_is_granted_until_the_transaction_of_a_check_has_ended(db: Db) -> None:
    fence = acquire(db)
    holder = db.session()
    with transaction(holder):
        holder.call("lock_check", name="close", fence=fence)
        db.tick(1000)
        assert acquire(db) is None, "it has expired, but its holder is about to commit"
    assert acquire(db)


def test_nothing_is_granted_after_a_release_until_the_transaction_of_a_check_has_ended(db: Db) -> None:
    fence = acquire(db)
    holder = db.session()
    with transaction(holder):
        holder.call("lock_check", name="close", fence=fence)
        assert db.value("lock_release", name="close", fence=fence), "the release does not wait"
        assert acquire(db) is None
    assert acquire(db)


def test_a_check_does_not_hold_up_renewals(db: Db) -> None:
    fence = acquire(db)
    holder = db.session()
    with transaction(holder):
        holder.call("lock_check", name="close", fence=fence)
        db.tick(20)
        assert db.value("lock_renew", name="close", fence=fence, ttl=TTL)


def test_a_check_that_waited_for_a_grant_is_refused(db: Db) -> None:
    first = acquire(db)
    db.tick(30)
    other = db.session()
    other.begin()
    assert acquire(other)
    check = db.session().start("lock_check", name="close", fence=first)
    check.blocked()
    other.commit()
    with refused("WB012"):
        check.rows()


def test_two_checks_at_once_do_not_wait_for_each_other(db: Db) -> None:
    fence = acquire(db)
    one, two = db.session(), db.session()
    with transaction(one), transaction(two):
        one.call("lock_check", name="close", fence=fence)
        two.call("lock_check", name="close", fence=fence)


# -- pruning, looking


def test_locks_that_no_caller_has_held_for_a_day_are_pruned(db: Db) -> None:
    db.value("lock_release", name="released", fence=acquire(db, "released"))
    acquire(db, "expired")
    db.tick(86400)
    db.value("lock_release", name="fresh", fence=acquire(db, "fresh"))
    acquire(db, "held", ttl=timedelta(days=1))
    db.tick(31)
    assert db.value("prune_locks") == 2
    assert [row.name for row in db.rows("locks")] == ["fresh", "held"]


def test_a_lock_that_has_been_held_for_days_is_not_pruned(db: Db) -> None:
    fence = acquire(db)
    db.tick(3 * 86400)
    assert db.value("lock_renew", name="close", fence=fence, ttl=TTL)
    assert db.value("prune_locks") == 0
    assert state(db) == "held"


def test_a_lock_that_is_being_checked_is_not_pruned(db: Db) -> None:
    fence = acquire(db)
    holder = db.session()
    with transaction(holder):
        holder.call("lock_check", name="close", fence=fence)
        db.tick(10 * 86400)
        assert db.value("prune_locks") == 0
    assert db.value("prune_locks") == 1


def test_the_view_shows_who_holds_what(db: Db) -> None:
    acquire(db, "held", now=None)
    acquire(db, "expired", now=db.now - timedelta(days=20 * 365))
    db.value("lock_release", name="free", fence=acquire(db, "free"))
    shown = {row.name: (row.state, row.holder) for row in db.rows("lock")}
    assert shown == {"held": ("held", "someone"), "expired": ("expired", "someone"), "free": ("free", None)}

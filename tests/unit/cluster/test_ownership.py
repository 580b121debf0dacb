"""What a member owns in memory, on a given clock."""

from __future__ import annotations

import pytest

from watchbill.cluster.hashing import token_of
from watchbill.cluster.lease import Lease
from watchbill.cluster.ownership import Ownership

TOTAL = 10
EPOCH = 7
KEY = "customer-7"
TOKEN = token_of(KEY, TOTAL)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make(clock: Clock, lease: Lease, tokens: set[int], pins: dict[str, int] | None = None) -> Ownership:
    ownership = Ownership("g", lease, clock)
    update(ownership, clock, tokens, 1, pins or {})
    return ownership


def update(
    ownership: Ownership, clock: Clock, tokens: set[int] | None, version: int, pins: dict[str, int] | None = None
) -> object:
    return ownership.update(
        epoch=EPOCH,
        asked=clock.now,
        handover_timeout=30,
        total=TOTAL,
        hash="md5",
        version=version,
        tokens=tokens,
        pins_version=version,
        pins=pins,
    )


def held(clock: Clock, seconds: float = 100) -> Lease:
    lease = Lease()
    lease.begin(EPOCH, clock.now, seconds)
    return lease


def test_a_member_owns_the_keys_of_its_tokens(clock: Clock) -> None:
    assert make(clock, held(clock), {TOKEN}).owns(KEY)
    assert not make(clock, held(clock), set(range(TOTAL)) - {TOKEN}).owns(KEY)


def test_a_pin_counts_instead_of_the_token(clock: Clock) -> None:
    assert make(clock, held(clock), {12}, {KEY: 12}).owns(KEY)
    assert not make(clock, held(clock), {TOKEN}, {KEY: 12}).owns(KEY)


def test_nothing_is_owned_before_the_first_heartbeat_and_after_a_loss(clock: Clock) -> None:
    lease = Lease()
    ownership = make(clock, lease, {TOKEN})
    assert not ownership.owns(KEY)
    lease.begin(EPOCH, clock.now, 30)
    assert ownership.owns(KEY)
    lease.end()
    assert not ownership.owns(KEY)


def test_what_was_read_under_a_lost_epoch_does_not_count_under_the_next(clock: Clock) -> None:
    lease = held(clock)
    ownership = make(clock, lease, {TOKEN})
    lease.end()
    lease.begin(EPOCH + 1, clock.now, 100)
    assert not ownership.owns(KEY)
    update(ownership, clock, {TOKEN}, 2)  # the late reply to a question of the old epoch
    assert not ownership.owns(KEY)
    lease.renew(EPOCH, clock.now, 100)  # the late reply to its heartbeat
    assert lease.epoch == EPOCH + 1


def test_ownership_ends_before_the_lease_can(clock: Clock) -> None:
    """Also after a freeze: the first look at the clock is enough."""
    ownership = make(clock, held(clock, 20), {TOKEN})
    clock.now += 15.9
    assert ownership.owns(KEY)
    clock.now += 0.2
    assert not ownership.owns(KEY)
    assert ownership.tokens == frozenset()


def test_ownership_ends_before_a_hand_over_can_be_forced(clock: Clock) -> None:
    ownership = make(clock, held(clock, 1000), {TOKEN})
    clock.now += 23.9
    assert ownership.owns(KEY)
    clock.now += 0.2
    assert not ownership.owns(KEY)
    update(ownership, clock, None, 1)
    assert ownership.owns(KEY)


def test_a_change_says_what_was_gained_and_lost(clock: Clock) -> None:
    ownership = make(clock, held(clock), {1, 2})
    change = update(ownership, clock, {2, 3}, 2)
    assert change is not None
    assert (change.gained, change.lost, change.version) == ({3}, {1}, 2)  # type: ignore[attr-defined]
    assert update(ownership, clock, {2, 3}, 3) is None
    lost = ownership.clear()
    assert lost is not None
    assert lost.lost == {2, 3}
    assert ownership.clear() is None


def test_those_that_wait_for_the_first_tokens_are_called_once(clock: Clock) -> None:
    ownership, calls = make(clock, held(clock), {1}), []
    ownership.when_assigned(lambda: calls.append("early"))
    assert calls == []
    ownership.note_assigned()
    ownership.note_assigned()
    assert calls == ["early"]
    ownership.when_assigned(lambda: calls.append("late"))
    assert calls == ["early", "late"]

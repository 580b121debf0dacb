"""A lock against a model: several processes with clocks of their own, freezes, late renewals, open transactions.

The database's clock and the clocks of the processes run at slightly different speeds. A frozen process does nothing,
but its clock goes on. Two promises are checked after every step: a process that trusts its own clock holds the last
grant, and what was committed under a check never goes back to an older fence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.store.harness import T0, Db, Session, refused
from watchbill.client import lock_renewal
from watchbill.client.lock_renewal import Hold

TTL = 30.0
PROCESSES = 3
who = st.integers(0, PROCESSES - 1)
delays = st.sampled_from([0.0, 0.0, 0.5, 5.0, 40.0])  # between the sending of a statement and its execution

# How often each is drawn, and its arguments. One rule draws them all: Hypothesis switches whole rules off at random,
# and most sequences would then never grant the lock twice.
ACTIONS: dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]] = {
    "time_passes": (4, {"seconds": st.sampled_from([0.1, 1.0, 9.0, 15.0, 26.0, 29.0, 31.0, 31.0])}),
    "freeze_or_thaw": (1, {"index": who}),
    "acquire": (6, {"index": who, "delay": delays}),
    "renew": (3, {"index": who, "delay": delays}),
    "release": (1, {"index": who}),
    "begin_to_write": (4, {"index": who}),
    "commit": (3, {"index": who}),
    "prune": (1, {}),
}
actions = st.sampled_from([name for name, (weight, _) in ACTIONS.items() for _ in range(weight)]).flatmap(
    lambda name: st.tuples(st.just(name), st.fixed_dictionaries(ACTIONS[name][1]))
)


@dataclass
class Process:
    """A caller: it renews and releases on one connection, and writes in transactions on another."""

    calls: Session
    writes: Session
    speed: float
    clock: float = 1000.0
    hold: Hold | None = None
    is_frozen: bool = False
    checked: int | None = None  # the fence that its open transaction has checked

    def trusts_its_lock(self) -> bool:
        with patch.object(lock_renewal, "boot_seconds", lambda: self.clock):
            return self.hold is not None and self.hold.is_safe


@dataclass
class Model:
    """The lock as it should be."""

    fence: int = 0
    is_held: bool = False
    expires_at: datetime = T0
    history: list[int] = field(default_factory=list)  # fences of committed writes

    def is_free_at(self, now: datetime) -> bool:
        return not self.is_held or self.expires_at <= now


class LockMachine(RuleBasedStateMachine):
    db: ClassVar[Db]

    @initialize(speeds=st.lists(st.sampled_from([0.95, 1.0, 1.05]), min_size=PROCESSES, max_size=PROCESSES))
    def start(self, speeds: list[float]) -> None:
        self.db.wipe()
        self.db.now = T0
        self.model = Model()
        self.processes = [Process(self.db.session(), self.db.session(), speed) for speed in speeds]

    def teardown(self) -> None:
        for process in getattr(self, "processes", []):
            if process.checked is not None:
                process.writes.rollback()
        self.db.rest()

    @rule(chosen=actions)
    def act(self, chosen: tuple[str, dict[str, Any]]) -> None:
        name, arguments = chosen
        getattr(self, name)(**arguments)

    def pass_time(self, seconds: float) -> None:
        self.db.now += timedelta(seconds=seconds)
        for process in self.processes:
            process.clock += seconds * process.speed

    def active(self, index: int) -> Process | None:
        process = self.processes[index]
        return None if process.is_frozen else process

    def is_checked(self) -> bool:
        return any(process.checked is not None for process in self.processes)

    def time_passes(self, seconds: float) -> None:
        self.pass_time(seconds)

    def freeze_or_thaw(self, index: int) -> None:
        self.processes[index].is_frozen = not self.processes[index].is_frozen

    def acquire(self, index: int, delay: float) -> None:
        process = self.active(index)
        if process is None or process.hold is not None:
            return
        sent = process.clock
        self.pass_time(delay)
        fence = process.calls.value("lock_acquire", name="x", ttl=timedelta(seconds=TTL), holder=str(index))
        is_granted = self.model.is_free_at(self.db.now) and not self.is_checked()
        assert (fence is not None) == is_granted
        if fence is not None:
            assert fence > self.model.fence
            process.hold = Hold("x", fence, TTL, sent)
            self.model.fence, self.model.is_held = fence, True
            self.model.expires_at = self.db.now + timedelta(seconds=TTL)

    def renew(self, index: int, delay: float) -> None:
        process = self.active(index)
        if process is None or process.hold is None:
            return
        sent = process.clock
        self.pass_time(delay)
        is_ours = self.model.is_held and process.hold.fence == self.model.fence
        arguments: dict[str, Any] = {"name": "x", "fence": process.hold.fence, "ttl": timedelta(seconds=TTL)}
        assert process.calls.value("lock_renew", **arguments) is is_ours
        if is_ours:
            process.hold.note_renewal(sent)
            self.model.expires_at = self.db.now + timedelta(seconds=TTL)
        else:
            process.hold.is_lost = True

    def release(self, index: int) -> None:
        process = self.active(index)
        if process is None or process.hold is None:
            return
        is_ours = self.model.is_held and process.hold.fence == self.model.fence
        assert process.calls.value("lock_release", name="x", fence=process.hold.fence) is is_ours
        process.hold = None
        if is_ours:
            self.model.is_held = False

    def begin_to_write(self, index: int) -> None:
        """Whatever its own clock says: the fence alone has to hold."""
        process = self.active(index)
        if process is None or process.hold is None or process.checked is not None:
            return
        is_ours = self.model.is_held and process.hold.fence == self.model.fence
        process.writes.begin()
        if is_ours:
            process.writes.call("lock_check", name="x", fence=process.hold.fence)
            process.checked = process.hold.fence
        else:
            with refused("WB012"):
                process.writes.call("lock_check", name="x", fence=process.hold.fence)
            process.writes.rollback()

    def commit(self, index: int) -> None:
        process = self.processes[index]
        if process.checked is not None:
            process.writes.commit()
            self.model.history.append(process.checked)
            process.checked = None

    def prune(self) -> None:
        oldest = self.db.now - timedelta(hours=1)
        is_old = self.model.fence and self.model.expires_at < oldest and self.model.is_held and not self.is_checked()
        deleted = self.db.value("prune_locks", keep=timedelta(hours=1))
        if is_old:
            assert deleted == 1
        if deleted:
            self.model.is_held = False

    @invariant()
    def who_trusts_its_own_clock_holds_the_last_grant(self) -> None:
        for process in getattr(self, "processes", []):
            if process.trusts_its_lock():
                assert process.hold is not None
                assert process.hold.fence == self.model.fence

    @invariant()
    def committed_writes_never_go_back_to_an_older_fence(self) -> None:
        history = self.model.history if hasattr(self, "model") else []
        assert history == sorted(history)


def run(db: Db, examples: int) -> None:
    LockMachine.db = db
    run_state_machine_as_test(
        LockMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            phases=(Phase.explicit, Phase.generate, Phase.target),
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_lock_does_what_its_model_says(db: Db) -> None:
    run(db, 15)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_lock_does_what_its_model_says_in_many_more_orders(db: Db) -> None:
    run(db, 1000)


@pytest.mark.long
def test_the_model_notices_a_process_that_trusts_its_clock_for_too_long(
    db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_renewal, "SAFE_SHARE", 1.15)
    with pytest.raises(AssertionError):
        run(db, 100)

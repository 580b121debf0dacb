"""Which nodes the reclaimer takes for dead: those whose heartbeat it has seen for a whole lease on its own clock."""

from __future__ import annotations

import pytest

from watchbill.maintenance.reclaimer import Reclaimer
from watchbill.telemetry.events import Events

LEASE = 30.0


class FakeConnection:
    connections = 1


class Observer:
    """A reclaimer that looks at one node, on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self._seen = 0.0, FakeConnection()
        monkeypatch.setattr("watchbill.maintenance.reclaimer.time.monotonic", lambda: self.now)
        self._reclaimer = Reclaimer(self._seen, Events())  # type: ignore[arg-type]

    def reconnect(self) -> None:
        self._seen.connections += 1

    def finds_dead(self, seconds: float, beat: int, age: float) -> bool:
        """Looks so many seconds later; the age of the heartbeat is on the clock of the database."""
        self.now += seconds
        self._reclaimer.wakeup.clear()
        self._reclaimer.note_beats([(7, beat, LEASE, age)], asked=self.now, has_leftover_claim=False)
        return self._reclaimer.wakeup.is_set()


@pytest.mark.parametrize("jump", [86_400.0, -86_400.0], ids=["forward", "back"])
def test_a_clock_that_is_set_kills_no_living_node(monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    """The node sends its next heartbeat within a third of a lease, on its own clock."""
    observer = Observer(monkeypatch)
    looks = [observer.finds_dead(10, beat=1, age=5)]
    looks.append(observer.finds_dead(10, beat=1, age=15 + jump))  # the clock has just been set
    looks += [observer.finds_dead(10, beat=beat, age=5) for beat in range(2, 8)]
    looks += [observer.finds_dead(10, beat=beat, age=5 + jump) for beat in range(8, 14)]  # set again and again
    assert not any(looks)


@pytest.mark.parametrize("jump", [0.0, 86_400.0, -86_400.0], ids=["none", "forward", "back"])
def test_a_dead_node_is_found_after_a_lease_whatever_the_clock(monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    observer = Observer(monkeypatch)
    looks = [observer.finds_dead(10, beat=1, age=10 * look + jump) for look in range(1, 5)]
    assert looks == [False, False, False, True]


def test_a_heartbeat_that_was_seen_before_the_connection_broke_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    observer = Observer(monkeypatch)
    observer.finds_dead(10, beat=1, age=-86_400)
    observer.reconnect()
    assert not observer.finds_dead(LEASE, beat=1, age=-86_400)
    assert observer.finds_dead(LEASE, beat=1, age=-86_400)

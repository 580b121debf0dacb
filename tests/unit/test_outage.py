"""An outage is a warning when it begins, one every half minute, and one when it is over, whatever fails meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from watchbill.telemetry.outage import SETTLE_SECONDS, Outage, outage_of


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Later:
    """What was asked to be called later."""

    waiting: Callable[[], None] | None = None

    def __call__(self, seconds: float, function: Callable[[], None]) -> Callable[[], None]:
        assert seconds == SETTLE_SECONDS
        self.waiting = function
        return self.cancel

    def cancel(self) -> None:
        self.waiting = None

    def come(self) -> None:
        assert self.waiting is not None
        self.waiting()


def test_an_outage_is_logged_at_its_ends_and_every_half_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    later = Later()
    outage = Outage("The database", "retrying", clock, later)
    outage.note_answer()
    for _ in range(140):  # four loops, twice a second, for 70 s
        for loop in range(4):
            outage.note_failure(f"refused to loop {loop}")
        clock.now += 0.5
    assert outage.is_on
    outage.note_answer()
    outage.note_answer()
    later.come()
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "The database does not answer (refused to loop 0); meanwhile retrying",
        "The database has not answered for 30 s; still retrying: refused to loop 0",
        "The database has not answered for 60 s; still retrying: refused to loop 0",
        "The database answers again, after an outage of 70.0 s",
    ]
    assert not outage.is_on


def test_a_database_that_answers_and_fails_in_turn_is_one_outage(caplog: pytest.LogCaptureFixture) -> None:
    """Behind a proxy, a database that fails over answers some connections and not others."""
    clock, later = Clock(), Later()
    outage = Outage("The database", "retrying", clock, later)
    for _ in range(3):
        outage.note_failure("refused")
        clock.now += 1
        outage.note_answer()
    clock.now += 1
    later.come()
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "The database does not answer (refused); meanwhile retrying",
        "The database answers again, after an outage of 3.0 s",
    ]


def test_all_loops_of_a_process_share_the_outage_of_a_database() -> None:
    assert outage_of("postgresql://one") is outage_of("postgresql://one")
    assert outage_of("postgresql://one") is not outage_of("postgresql://two")

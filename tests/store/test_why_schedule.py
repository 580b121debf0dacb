"""Why a schedule does not fire: each cause by itself, each pair of them, and the decisive one first."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any, NamedTuple

import pytest

from tests.store.harness import Db, End
from tests.store.test_tick import add, at, tick_at


class Cause(NamedTuple):
    """How it comes about, in the order of the answer."""

    said: str
    rule: dict[str, Any]
    before: Callable[[Db], object] = lambda db: None  # while it can still fire
    after: Callable[[Db], object] = lambda db: None


def run_one(db: Db) -> None:
    """At ten, to its end, by a node that leaves."""
    epoch = db.node()
    tick_at(db, at(10))
    for job in db.claim(epoch):
        db.settle(epoch, End(job))
    db.call("leave", epoch=epoch)


def hang(db: Db) -> None:
    """Ten and eleven come, and nobody runs anything."""
    tick_at(db, at(10))
    tick_at(db, at(11))


def orphan(db: Db) -> None:
    db.change("UPDATE {schema}.schedules SET owner = 'shop'")
    db.call("declare_schedules", epoch=db.node(app="shop", types={"task": 1}), schedules=[])


CAUSES = {
    "disabled": Cause("it is disabled, since", {}, after=lambda db: db.call("disable_schedule", name="s")),
    "orphaned": Cause("it is orphaned: nodes of app shop are alive", {}, after=orphan),
    "on demand": Cause("it is on demand", {"pattern": None}),
    "max_runs": Cause("it has made its one run", {"max_runs": 1}, before=run_one),
    "ended": Cause("it ended at 2031-03-14 11:30:00 UTC", {"end": at(11, 30)}),
    "past": Cause("its only time was 2031-03-14 10:00:00 UTC", {"at": at(10)}, before=run_one),
    "last slot": Cause("no slot is left before its end", {"pattern": "0 0 1 1 *", "end": at(23)}),
    "no instant": Cause("its pattern has no later slot", {"pattern": "0 0 30 2 *"}),
    "on start": Cause("it runs when the cluster starts, and at no other time", {"pattern": "@reboot"}),
    "no node": Cause("no node is alive that could fire it", {}),
    "in the way": Cause("the run of 2031-03-14 10:00:00 UTC has not ended: job", {}, before=hang),
    "paused": Cause("is paused: its jobs wait", {}, after=lambda db: db.call("pause", queue="default")),
}
NEVER_FIRES = {"on demand", "last slot", "no instant", "on start"}
NOT_TOGETHER = {
    frozenset(pair)
    for pair in [
        *combinations(NEVER_FIRES | {"past"}, 2),  # each is another kind of time
        *((never, fires) for never in NEVER_FIRES for fires in ("max_runs", "in the way")),
        ("past", "in the way"),
        ("max_runs", "in the way"),
        ("ended", "last slot"),
        ("orphaned", "no node"),
    ]
}
PAIRS = [pair for pair in combinations(CAUSES, 2) if frozenset(pair) not in NOT_TOGETHER]


def why(db: Db, *names: str) -> list[Any]:
    rule: dict[str, Any] = {}
    for name in names:
        rule |= CAUSES[name].rule
    add(db, **rule)
    for stage in ("before", "after"):
        for name in names:
            getattr(CAUSES[name], stage)(db)
    db.now = at(12)
    if "no node" not in names:
        db.node(types={"task": 1})
    return db.call("why_schedule", name="s")


@pytest.mark.parametrize("name", CAUSES)
def test_why_schedule_names_each_single_cause(db: Db, name: str) -> None:
    rows = why(db, name)
    said = [row for row in rows if CAUSES[name].said in row.reason]
    others = [row.reason for row in rows if row not in said]
    assert len(said) == 1
    if name == "paused":
        assert [row.fires for row in rows] == [True, True]
    elif name == "no node":
        assert (rows[0], others) == (said[0], ["no live node handles its task task: its jobs wait"])
    else:
        assert ([row.fires for row in rows], rows[0].next_run, others) == ([False], None, [])


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=[" and ".join(pair) for pair in PAIRS])
def test_why_schedule_lists_the_decisive_cause_first(db: Db, first: str, second: str) -> None:
    reasons = [row.reason for row in why(db, first, second)]
    places = [next(i for i, said in enumerate(reasons) if CAUSES[name].said in said) for name in (first, second)]
    assert places == sorted(places)
    assert places[0] == 0 or {first, second} == {"no node", "in the way"}
    assert not any("it is due" in reason for reason in reasons)


def test_why_schedule_says_when_it_fires_next(db: Db) -> None:
    add(db)
    node = db.node(types={"task": 1})
    [row] = db.call("why_schedule", name="s")
    assert (row.fires, row.reason, row.next_run) == (True, "it is due at 2031-03-14 10:00:00 UTC, in 00:33:07", at(10))
    db.now = at(10)
    db.call("heartbeat", epoch=node)
    [row] = db.call("why_schedule", name="s")
    assert (row.reason, row.next_run) == ("it is due since 2031-03-14 10:00:00 UTC", at(10))
    db.now = at(10, 2)
    db.call("heartbeat", epoch=node)
    [row] = db.call("why_schedule", name="s")
    assert row.reason.endswith(", but no scheduler fired it: is a node running?")
    assert db.call("why_schedule", name="other") == []


def test_why_schedule_takes_a_node_without_beats_for_dead(db: Db) -> None:
    """All nodes were killed, and none is left that declares the others lost."""
    add(db)
    node = db.node(types={"task": 1})
    db.tick(3600)
    assert [row.reason for row in db.call("why_schedule", name="s")] == ["no node is alive that could fire it"]
    db.call("heartbeat", epoch=node)
    assert [row.fires for row in db.call("why_schedule", name="s")] == [True]


def test_why_schedule_shows_instants_in_the_zone_of_the_schedule(db: Db) -> None:
    add(db, tz="America/New_York")
    db.node(types={"task": 1})
    [row] = db.call("why_schedule", name="s")
    assert row.reason == "it is due at 2031-03-14 06:00:00 America/New_York, in 00:33:07"


@pytest.mark.parametrize(
    ("overlap", "said"),
    [
        ("skip", "slots until then are skipped"),
        ("queue", "the next one waits for it"),
        ("cancel_previous", "the next one cancels it"),
        ("allow", None),
    ],
)
def test_why_schedule_mentions_an_unfinished_run(db: Db, overlap: str, said: str | None) -> None:
    add(db, overlap=overlap)
    tick_at(db, at(10))
    db.node(types={"task": 1})
    due, *others = db.call("why_schedule", name="s")
    assert (due.fires, due.next_run) == (True, at(11))
    assert [row.reason.rsplit(": ")[-1] for row in others] == ([said] if said else [])


def test_why_schedule_counts_skipped_slots(db: Db) -> None:
    add(db)
    node = db.node(types={"task": 1})
    for hour in (10, 11):
        tick_at(db, at(hour))
    db.call("heartbeat", epoch=node)
    assert db.call("why_schedule", name="s")[0].reason.endswith(" is queued, and 1 slot was skipped since")
    tick_at(db, at(12))
    db.call("heartbeat", epoch=node)
    assert db.call("why_schedule", name="s")[0].reason.endswith(" is queued, and 2 slots were skipped since")


def test_why_schedule_mentions_a_change_since_the_declaration(db: Db) -> None:
    epoch = db.node(app="shop", types={"task": 1})
    rule = {"name": "s", "pattern": "0 * * * *", "type": "task", "hash": "1"}
    db.call("declare_schedules", epoch=epoch, schedules=[rule])
    db.call("update_schedule", name="s", changes={"priority": 3})
    assert [row.reason for row in db.call("why_schedule", name="s")][1:] == [
        "it was changed after the code declared it"
    ]


def test_why_schedule_explains_on_demand_and_on_start(db: Db) -> None:
    add(db, pattern=None, run_on_start=True)
    (reason, *_) = db.call("why_schedule", name="s")
    assert (reason.fires, reason.reason.split(":")[0]) == (False, "it runs when the cluster starts, and on demand")

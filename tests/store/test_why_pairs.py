"""Each cause why a job waits, alone and in every pair that can hold together: both are named, in the right order.

A builder makes its cause hold for the job of a `Site`, which nothing keeps before. Builders are applied in the order in
which they stand here, because some need what others take away, such as a live node.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import combinations
from typing import Any, LiteralString, NamedTuple
from uuid import UUID

import pytest

from tests.store.flow import declare_limit, enqueue
from tests.store.harness import Db, End, Session

LONG = timedelta(hours=2)


class Site:
    """One live node that could take the job at once, and an earlier job of another queue, which is not due."""

    def __init__(self, db: Db) -> None:
        self.db = db
        self.epoch = db.node("able", types={"task": 1}, queues=["default"])
        self.earlier = db.enqueue(queue="elsewhere", delay=LONG)
        self.job: UUID = db.enqueue()

    def set(self, columns: LiteralString, *values: Any) -> None:
        self.db.change("UPDATE {schema}.jobs SET " + columns + " WHERE id = %s", *values, self.job)

    def add_key(self, key: str) -> None:
        self.set("limit_keys = limit_keys || %s::text", key)

    def hold(self, key: str) -> None:
        self.db.change("INSERT INTO {schema}.limit_states (key, name) VALUES (%s, %s) ON CONFLICT DO NOTHING", key, key)
        self.db.change("INSERT INTO {schema}.holds (key, job_id) VALUES (%s, gen_random_uuid())", key)

    def set_node(self, columns: LiteralString, *values: Any) -> None:
        self.db.change("UPDATE {schema}.nodes SET " + columns + " WHERE epoch = %s", *values, self.epoch)


def use_up_rate(site: Site) -> None:
    declare_limit(site.db, "slow", rates=[(1, 3600)])
    enqueue(site.db, "key:slow", is_rated=True, queue="fast")
    helper = site.db.node()
    site.db.settle(helper, End(site.db.claim_one(helper, queues=["fast"])))
    site.db.call("leave", epoch=helper)
    site.add_key("key:slow")
    site.set("class = greatest(class, 1)")


def fill_node(site: Site) -> None:
    site.db.enqueue(queue="busy")
    site.db.claim_one(site.epoch, queues=["busy"])
    site.set_node("capacity = 1")


def fill_limit(site: Site) -> None:
    declare_limit(site.db, "crm-api", 1)
    site.add_key("key:crm-api")
    site.hold("key:crm-api")


def fill_queue(site: Site) -> None:
    site.db.value("set_limit", name="queue:default", max=1)
    site.hold("queue:default")


def put_behind_earlier(site: Site) -> None:
    site.add_key("order:task:7")
    site.set("order_key = 'order:task:7'")
    site.db.change("UPDATE {schema}.jobs SET order_key = 'order:task:7' WHERE id = %s", site.earlier)


def ask_for_labels(site: Site) -> None:
    site.db.change("""INSERT INTO {schema}.label_sets (lane, labels) VALUES (-5, '{{"gpu": "a100"}}')""")
    site.set("lane = -5")


def route_to_none(site: Site) -> None:
    site.db.call("declare_group", name="g", total=4)
    site.db.call("route_queue", queue="default", token_group="g")
    site.set("lane = 3, route_key = '7'")


def ask_for_two_nodes(site: Site) -> None:
    ask_for_labels(site)
    site.db.node("labeled", types={"other": 1}, queues=["default"], labels={"gpu": "a100"})


def put_into_share(site: Site) -> None:
    site.db.change(
        """INSERT INTO {schema}.queues (name, lanes, fair_by) VALUES ('default', 'share', '{{tenant}}')
           ON CONFLICT (name) DO UPDATE SET lanes = 'share', fair_by = '{{tenant}}'"""
    )
    site.set("lane = 9")
    put_behind_another(site)


def put_behind_another(site: Site) -> None:
    first = site.db.enqueue(priority=5)
    site.db.change(
        "UPDATE {schema}.jobs SET lane = (SELECT lane FROM {schema}.jobs WHERE id = %s) WHERE id = %s", site.job, first
    )


def block(site: Site) -> None:
    site.set("wait = 'blocked'")
    site.db.change(
        """INSERT INTO {schema}.dependencies (child, parent, place, run_if, tenant)
           VALUES (%s, %s, 1, 'all_succeeded', 'default')""",
        site.job, site.earlier,
    )  # fmt: skip


def delay(site: Site, seconds: float) -> None:
    site.set("run_at = %s, wait = coalesce(wait, 'delayed')", site.db.after(seconds))


def be_handled_by_none(site: Site) -> None:
    site.db.change("UPDATE {schema}.node_types SET type = 'other' WHERE epoch = %s", site.epoch)


def erase(site: Site) -> None:
    site.db.change("INSERT INTO {schema}.erasures (tenant, started_at) VALUES ('default', %s)", site.db.now)


def lock(site: Site) -> None:
    other: Session = site.db.session()
    other.begin()
    other.execute("SELECT FROM watchbill.jobs WHERE id = %s FOR UPDATE", (site.job,))


class Cause(NamedTuple):
    word: str
    rank: int
    build: Callable[[Site], object]
    needs_action: bool = False
    excludes: frozenset[str] = frozenset()  # the names of causes that cannot hold beside it


LANES = frozenset({"unmatched", "unowned", "no_match", "wrong_lane", "turn"})  # a job has one lane
NODES = frozenset({"unserved", "unsupported", "unmatched", "unowned", "no_match", "full"})  # a live node is too little
CAUSES: dict[str, Cause] = {
    "rate": Cause("rate", 9, use_up_rate),
    "full": Cause("full", 12, fill_node, excludes=NODES | {"no_node"}),
    "limited": Cause("limited", 9, fill_limit),
    "queue_limited": Cause("limited", 9, fill_queue),
    "ordered": Cause("ordered", 9, put_behind_earlier),
    "quarantined": Cause("quarantined", 11, lambda site: site.set("class = 2")),
    "unmatched": Cause("unmatched", 7, ask_for_labels, True, LANES | {"no_node", "full"}),
    "unowned": Cause("unowned", 7, route_to_none, True, LANES | {"no_node", "full", "turn"}),
    "no_match": Cause("no_match", 7, ask_for_two_nodes, True, LANES | NODES | {"no_node"}),
    "wrong_lane": Cause("wrong_lane", 7, lambda site: site.set("lane = 8"), excludes=LANES),
    "turn": Cause("turn", 13, put_into_share, excludes=LANES | {"behind"}),
    "blocked": Cause("blocked", 3, block, excludes=frozenset({"full", "turn", "behind", "locked", "late"})),
    "delayed": Cause("delayed", 8, lambda site: delay(site, 600), excludes=frozenset({"delayed_long", "late"})),
    "delayed_long": Cause("delayed", 4, lambda site: delay(site, 7200), excludes=frozenset({"late"})),
    "late": Cause("late", 8, lambda site: delay(site, -60), True),
    "behind": Cause("behind", 13, put_behind_another),
    "paused": Cause("paused", 5, lambda site: site.db.call("pause", queue="default"), True),
    "unserved": Cause("unserved", 7, lambda site: site.set_node("queues = '{{mail}}'"), True, frozenset({"no_node"})),
    "unsupported": Cause("unsupported", 7, be_handled_by_none, True, frozenset({"no_node"})),
    "no_node": Cause(
        "no_node", 6, lambda site: site.db.change("UPDATE {schema}.beats SET at = at - interval '1 hour'"), True
    ),
    "erased": Cause("erased", 2, erase),
    "locked": Cause("locked", 10, lock, True),  # last: the other changes of the row would wait
}


def list_pairs() -> Iterator[tuple[str, str]]:
    for first, second in combinations(CAUSES, 2):
        if second not in CAUSES[first].excludes and first not in CAUSES[second].excludes:
            yield first, second


def assert_told(db: Db, site: Site, *names: str) -> None:
    told = [(row.rank, row.cause, row.needs_action) for row in db.call("why_job", id=site.job)]
    expected = sorted((CAUSES[name].rank, CAUSES[name].word, CAUSES[name].needs_action) for name in names)
    assert sorted(told) == expected
    assert [rank for rank, _, _ in told] == sorted(rank for rank, _, _ in told)


@pytest.mark.parametrize("name", CAUSES)
def test_each_cause_is_told_alone(db: Db, name: str) -> None:
    site = Site(db)
    assert [row.cause for row in db.call("why_job", id=site.job)] == ["ready"]
    CAUSES[name].build(site)
    assert_told(db, site, name)


@pytest.mark.parametrize(("first", "second"), list(list_pairs()))
def test_both_causes_of_a_pair_are_told_and_the_lower_rank_decides(db: Db, first: str, second: str) -> None:
    site = Site(db)
    CAUSES[first].build(site)
    CAUSES[second].build(site)
    assert_told(db, site, first, second)


def test_a_job_whose_claim_is_gone_is_damaged_and_release_mends_it(db: Db) -> None:
    job = Site(db).job
    db.change("UPDATE {schema}.jobs SET fence = 77 WHERE id = %s", job)
    (row,) = db.call("why_job", id=job)
    assert (row.cause, row.needs_action, row.way_out) == ("unclaimed", True, [f"watchbill jobs release {job}"])
    assert db.value("release", id=job)
    assert [row.cause for row in db.call("why_job", id=job)] == ["ready"]


def test_a_held_job_of_a_tenant_that_is_being_erased_says_both(db: Db) -> None:
    site = Site(db)
    db.claim_one(site.epoch)
    erase(site)
    assert [row.cause for row in db.call("why_job", id=site.job)] == ["running", "erased"]


def test_a_job_behind_others_says_about_when_at_the_pace_of_its_queue(db: Db) -> None:
    site = Site(db)
    for _ in range(3):
        put_behind_another(site)
    minute = db.now.replace(second=0)
    for age, runs in ((1, 4), (10, 2), (11, 1000), (0, 1000)):
        db.change(
            """INSERT INTO {schema}.rollups (
                 grain, dimension, at, name, succeeded, skipped, failed, timed_out, lost, snoozed, dead, canceled,
                 run_seconds, wait_seconds)
               VALUES ('minute', 'queue', %s, 'default', %s, 0, 0, 0, 0, 0, 0, 0, 0, 0)""",
            minute - timedelta(minutes=age), runs,
        )  # fmt: skip
    (behind,) = db.call("why_job", id=site.job)
    assert behind.reason == "3 jobs come before it in queue default, about 00:05:00 at the pace of the last ten minutes"
    assert behind.until == db.after(300)
    assert behind.detail == {"before": 3, "is_exact": True, "seconds": 300.0}


def test_a_job_that_is_due_for_long_and_that_nothing_keeps_is_unexplained(db: Db) -> None:
    site = Site(db)
    db.tick(16)
    (row,) = db.call("why_job", id=site.job)
    assert (row.rank, row.cause, row.needs_action) == (99, "unexplained", True)


def test_commands_that_help_quote_names_for_the_shell(db: Db) -> None:
    Site(db)
    job = db.enqueue(queue="a; rm -rf 'x'")
    (row,) = db.call("why_job", id=job)
    assert row.way_out == ["watchbill worker --queues " + shlex.quote("a; rm -rf 'x'").replace("'\"'\"'", "'\\''")]


# -- How much is read: the blocks that why_job touches, however many jobs there are.


def count_blocks(db: Db, job: UUID) -> int:
    """How many blocks the second call in a session reads; the first one reads the catalog too."""
    for _ in range(2):
        ((plan,),) = db.execute(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT json) SELECT * FROM watchbill.why_job(%s, %s)", (job, db.now)
        )
    top = plan[0]["Plan"]
    return int(top["Shared Hit Blocks"]) + int(top["Shared Read Blocks"])


def test_why_reads_a_bounded_number_of_blocks(db: Db) -> None:
    site = Site(db)
    db.change(
        """INSERT INTO {schema}.jobs (id, run_at, created_at, queue, type, payload)
           SELECT gen_random_uuid(), %s::timestamptz + n * interval '1 second', %s, 'default', 'task', '{{}}'
           FROM generate_series(1, 30000) n""",
        db.now, db.now,
    )  # fmt: skip
    last = db.enqueue(priority=-1)
    assert count_blocks(db, site.job) < 400
    (behind,) = [row for row in db.call("why_job", id=last) if row.cause == "behind"]
    assert behind.reason == "more than 10,000 jobs come before it in queue default"
    assert count_blocks(db, last) < 12_000  # it counts 10,000 jobs

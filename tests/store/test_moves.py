"""A tenant moves to another cell: its rows are in one place at each instant, and mean the same in the other one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import watchbill
from tests.servers import Server
from tests.store.conftest import template
from tests.store.harness import T0, Db, End, refused
from tests.waiting import until

TABLES = Path(watchbill.__file__).parent / "store" / "moved_tables.txt"


@pytest.fixture
def cells(server: Server) -> Iterator[tuple[Db, Db]]:
    names = [server.create_database(template(server)) for _ in range(2)]
    made = [Db(server.url(name)) for name in names]
    for db in made:
        db.now = T0
    yield made[0], made[1]
    for db in made:
        db.close()
    for name in names:
        server.drop_database(name)


def move(old: Db, new: Db, tenant: str = "acme") -> None:
    move = leave(old, new, tenant)
    carry(old, new, move, tenant)
    old.call("_finish_leaving", tenant=tenant, move=move)
    new.call("_end_arrival", tenant=tenant, move=move)


def leave(old: Db, new: Db, tenant: str = "acme") -> Any:
    move = old.row("_start_leaving", tenant=tenant, cell="b").move
    new.call("_expect_tenant", tenant=tenant, cell="a", move=move)
    until(lambda: old.value("_read_leaving", tenant=tenant) is None)
    old.call("_depart_tenant", tenant=tenant)
    return move


def carry(old: Db, new: Db, move: Any, tenant: str = "acme") -> None:
    rows = old.row("_read_moved_rows", tenant=tenant, move=move, after=0, max=10_000)
    if rows.rows is not None:
        new.call("_receive_rows", tenant=tenant, move=move, rows=rows.rows)
    new.call("_arrive_tenant", tenant=tenant, move=move, count=rows.last or 0)


def test_every_table_with_a_tenant_is_moved_rebuilt_or_left(db: Db) -> None:
    stated = dict(
        line.split("|")[0].split() for line in TABLES.read_text().splitlines() if line and not line.startswith("#")
    )
    parents = db.execute(
        """SELECT t.relation::text AS name FROM watchbill._list_tenant_tables() t
           JOIN pg_class c ON c.oid = t.relation WHERE NOT c.relispartition"""
    )
    names = {row.name.removeprefix("watchbill.") for row in parents} | {"tenant_roles"}
    assert set(stated) == names
    assert set(stated.values()) == {"move", "rebuild", "leave"}


def test_unfinished_jobs_move_with_all_that_belongs_to_them(cells: tuple[Db, Db]) -> None:
    old, new = cells
    new.enqueue(), new.enqueue()  # other numbers of jobs, schedules and policies than in the old cell
    new.call("add_schedule", name="other", pattern="@daily", type="task")
    node = old.node()
    parent = old.enqueue(tenant="acme")
    old.run(node, "succeeded", result={"sum": 3})
    child = old.enqueue(tenant="acme", depends_on=[parent, old.enqueue(tenant="acme", run_at=old.after(60))])
    retried = old.enqueue(tenant="acme", retry={"kind": "fixed", "base": 7}, ordered_by="k", payload={})
    old.run(node, "failed", delay=timedelta(hours=1))
    key = {"idempotency_key": "k", "unique_by": "x"}
    keyed = old.enqueue(tenant="acme", run_at=old.after(60), **key)
    labelled = old.enqueue(tenant="acme", runs_on={"gpu": "a100"})
    other = old.enqueue(tenant="other")
    old.call("set_tenant", tenant="acme", quotas={"running": 5, "unfinished": 100})
    old.call("add_schedule", name="s", pattern="@daily", type="task", tenant="acme")
    timer = old.rows("timers")[0]
    before = [row.id for row in old.rows("jobs", "seq") if row.tenant == "acme"]
    move(old, new)
    assert [row.id for row in old.rows("jobs")] == [other]
    jobs = {row.id: row for row in new.rows("jobs", "seq") if row.tenant == "acme"}
    assert list(jobs) == before
    assert [(row.id, row.tenant, row.state) for row in old.call("job_list")] != []
    assert jobs[child].wait == "blocked"
    assert jobs[retried].order_key == "order:task:k"
    assert [(h.key, h.job_id) for h in new.rows("holds")] == [("order:task:k", retried)]
    assert new.execute("SELECT definition FROM watchbill.policies WHERE id = %s", (jobs[retried].policy,))[0][0] == {
        "kind": "fixed", "base": 7,
    }  # fmt: skip
    assert jobs[labelled].lane in {row.lane for row in new.rows("label_sets")}
    assert new.send(tenant="acme", **key).id == keyed
    assert {(d.parent, d.outcome) for d in new.rows("dependencies")} >= {(parent, "succeeded")}
    assert [(r.max_unfinished, r.limits_running) for r in new.rows("tenants")] == [(100, True)]
    moved = next(row for row in new.call("schedule_list") if row.name == "s")
    assert (moved.enabled, moved.next_run) == (True, timer.next_run)
    with refused("WB016", "tenant 'acme' has moved to cell b"):
        old.enqueue(tenant="acme")
    with refused("WB016"):
        old.call("enqueue_many", jobs=[{"type": "task", "tenant": "acme"}])
    assert old.rows("moved_rows") == new.rows("moved_rows") == new.rows("tenant_moves") == []
    worker = new.node(labels={"gpu": "a100"})
    new.tick(61)
    new.call("promote")
    until(lambda: not new.call("unblock"))
    ran = [job.id for job in new.claim(worker)]
    assert labelled in ran


def test_no_job_starts_and_none_is_enqueued_while_its_tenant_moves(cells: tuple[Db, Db]) -> None:
    old, new = cells
    node = old.node()
    old.enqueue(tenant="acme")
    running = old.claim_one(node)
    waiting = old.enqueue(tenant="acme")
    started = old.row("_start_leaving", tenant="acme", cell="b")
    new.call("_expect_tenant", tenant="acme", cell="a", move=started.move)
    for db in cells:
        with refused("WB016", "on its way"):
            db.enqueue(tenant="acme")
    until(lambda: old.value("_read_leaving", tenant="acme") == "1 running jobs")
    assert old.claim(node) == []
    with refused("WB008", "run"):
        old.call("_depart_tenant", tenant="acme")
    old.settle(node, End(running))
    until(lambda: old.value("_read_leaving", tenant="acme") is None)
    assert old.claim(node) == []
    move(old, new)
    assert [job.id for job in new.claim(new.node())] == [waiting]
    new.enqueue(tenant="acme")


def test_a_move_that_was_killed_after_any_step_continues(cells: tuple[Db, Db]) -> None:
    """Each step is called twice, and the whole move again after each of them."""
    old, new = cells
    jobs = [old.enqueue(tenant="acme") for _ in range(3)]
    steps = 0
    while True:
        steps += 1
        if walk(old, new, steps):
            break
        assert sorted([row.id for db in cells for row in db.rows("jobs")] + travelling(cells)) == sorted(jobs)
    assert steps == 8
    move(old, new)
    assert [row.id for row in new.rows("jobs", "seq")] == jobs
    assert old.rows("jobs") == []


def walk(old: Db, new: Db, most: int) -> bool:
    """Does so many steps of a move, each twice; False if that was not all."""
    started = old.row("_start_leaving", tenant="acme", cell="b")
    known = {"tenant": "acme", "move": started.move}

    def receive() -> None:
        rows = old.row("_read_moved_rows", after=0, max=100, **known)
        if rows.rows is not None:
            new.call("_receive_rows", rows=rows.rows, **known)

    def arrive() -> None:
        if new.value("_expect_tenant", cell="a", **known):
            rows = old.row("_read_moved_rows", after=0, max=100, **known)
            new.call("_arrive_tenant", count=rows.last, **known)

    steps: list[Callable[[], Any]] = [
        lambda: new.call("_expect_tenant", cell="a", **known),
        lambda: until(lambda: old.value("_read_leaving", tenant="acme") is None),
        lambda: old.call("_depart_tenant", tenant="acme"),
        receive,
        arrive,
        lambda: old.call("_finish_leaving", **known),
        lambda: new.call("_end_arrival", **known),
    ]
    for step in steps[: most - 1]:
        step()
        step()
    return most > len(steps)


def travelling(cells: tuple[Db, Db]) -> list[Any]:
    """The jobs that are in no table of a cell: rows in the new cell do not count until they have arrived."""
    old, new = cells
    arrived = {row.id for row in new.rows("jobs")}
    found = [UUID(row.content["id"]) for row in old.rows("moved_rows") if row.what == "jobs"]
    return [job for job in found if job not in arrived]


def test_a_tenant_comes_back(cells: tuple[Db, Db]) -> None:
    old, new = cells
    job = old.enqueue(tenant="acme")
    move(old, new)
    back = new.row("_start_leaving", tenant="acme", cell="a")
    old.call("_expect_tenant", tenant="acme", cell="b", move=back.move)
    until(lambda: new.value("_read_leaving", tenant="acme") is None)
    new.call("_depart_tenant", tenant="acme")
    carry(new, old, back.move)
    assert [row.id for row in old.rows("jobs")] == [job]
    old.enqueue(tenant="acme")
    for tenant in ("default", ""):
        with refused("WB003"):
            old.call("_start_leaving", tenant=tenant, cell="b")

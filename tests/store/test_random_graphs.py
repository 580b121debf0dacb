"""Random graphs of jobs, worked off by several sessions at once: each job ends as follows from the outcomes alone.

What each job does if it runs is drawn beforehand. Some graphs are enqueued in one call, of others each job in a
transaction of its own while its parents may be running or have ended. Some of those who settle never look at what
waits, as if they had died in between. The order of all that is left to chance; the end must not be.
"""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from tests.store.harness import Db, End, Session, settlement
from tests.waiting import until

RULES = ("all_succeeded", "all_succeeded", "all_finished", "any_failed")


@dataclass
class Node:
    id: UUID
    does: str  # if it runs: succeeded, skipped or failed
    rule: str
    parents: list[Node] = field(default_factory=list)

    def told(self) -> str:
        """What its children hear, from the drawn outcomes and nothing else."""
        heard = [parent.told() for parent in self.parents]
        failed, skipped = "failed" in heard, "skipped" in heard
        if heard and self.rule == "all_succeeded" and (failed or skipped):
            return "failed" if failed else "skipped"
        if heard and self.rule == "any_failed" and not failed:
            return "skipped"
        return "failed" if self.does == "failed" else "succeeded"

    def runs(self) -> bool:
        heard = [parent.told() for parent in self.parents]
        if not heard or self.rule == "all_finished":
            return True
        return "failed" in heard if self.rule == "any_failed" else set(heard) == {"succeeded"}

    @property
    def state(self) -> str:
        return "canceled" if not self.runs() else "dead" if self.does == "failed" else "succeeded"


def graph(db: Db, chance: random.Random) -> list[Node]:
    nodes: list[Node] = []
    for _ in range(chance.randint(2, 14)):
        parents = chance.sample(nodes, min(len(nodes), chance.choice((0, 1, 1, 2, 3, 5))))
        does = chance.choices(("succeeded", "skipped", "failed"), (6, 1, 3))[0]
        nodes.append(Node(db.new_id(), does, chance.choice(RULES), parents))
    return nodes


def send(session: Session, nodes: list[Node], chance: random.Random) -> None:
    """In one call and any order, or one by one."""
    if chance.random() < 0.5:
        jobs = [
            {"type": "task", "id": str(node.id)}
            | ({"depends_on": [str(p.id) for p in node.parents], "run_if": node.rule} if node.parents else {})
            for node in chance.sample(nodes, len(nodes))
        ]
        session.call("enqueue_many", jobs=jobs, resend=chance.random() < 0.2)
        return
    for node in nodes:
        which: dict[str, Any] = (
            {"depends_on": [p.id for p in node.parents], "run_if": node.rule} if node.parents else {}
        )
        if chance.random() < 0.3:  # its transaction takes longer than that of others
            session.begin(chance.choice(("READ COMMITTED", "REPEATABLE READ")))
            session.enqueue(id=node.id, id_is_new=True, **which)
            session.execute("SELECT count(*) FROM watchbill.job")
            session.commit()
        else:
            session.enqueue(id=node.id, **which)


def produce(session: Session, graphs: list[list[Node]], chance: random.Random) -> None:
    for nodes in graphs:
        send(session, nodes, chance)


def work(session: Session, epoch: int, plan: dict[UUID, Node], chance: random.Random, left: set[UUID]) -> None:
    """Claims, settles, and mostly looks at what waits for it, until all jobs have ended."""
    while left:
        rows, told = session.claim(epoch, chance.randint(1, 6)), list[Any]()
        if rows and all(plan[row.id].does == "succeeded" for row in rows) and chance.random() < 0.7:
            told = session.call("settle", epoch=epoch, ids=[row.id for row in rows], fences=[row.fence for row in rows])
        elif rows:
            how = [plan[row.id].does if chance.random() < 0.9 else "released" for row in rows]
            ends = [End(row, word, error={"kind": "permanent"}) for row, word in zip(rows, how, strict=True)]
            told = session.call("settle", **settlement(epoch, *ends))
        if chance.random() < 0.6:
            session.call("unblock", ids=[row.id for row in told if row.state == "blocked"])
        elif chance.random() < 0.5:
            session.call("unblock", max=chance.choice((1, 3, 1000)))
        left -= {row.id for row in session.execute("SELECT id FROM watchbill.finished_jobs")}


def drive(db: Db, seed: int, graphs: int, workers: int = 4) -> Counter[str]:
    chance = random.Random(seed)
    drawn = [graph(db, chance) for _ in range(graphs)]
    plan = {node.id: node for nodes in drawn for node in nodes}
    left, sessions = set(plan), [db.session() for _ in range(workers + 2)]
    epochs = [db.node() for _ in range(workers)]
    with ThreadPoolExecutor(workers + 2) as pool:
        producers = [
            pool.submit(produce, sessions[workers + n], drawn[n::2], random.Random(seed + n)) for n in range(2)
        ]
        others = [
            pool.submit(work, sessions[n], epochs[n], plan, random.Random(seed * 100 + n), left) for n in range(workers)
        ]
        for each in producers:
            each.result()
        until(lambda: not left or any(other.done() and other.exception() for other in others))
        left.clear()
        for each in others:
            each.result()
    found = {row.id: row.state for row in db.execute("SELECT id, state FROM watchbill.job")}
    assert found == {node.id: node.state for node in plan.values()}
    while db.call("unblock"):
        pass
    assert db.count("dependency_checks") == 0
    return Counter(node.state if node.runs() else f"{node.told()} without a run" for node in plan.values())


def test_jobs_of_random_graphs_end_as_their_outcomes_determine(db: Db) -> None:
    seen = Counter[str]()
    for seed in range(2):
        seen += drive(db, seed, graphs=20)
        db.wipe()
    assert min(seen.values()) > 5, seen
    assert len(seen) == 4


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_jobs_of_many_random_graphs_end_as_their_outcomes_determine(db: Db) -> None:
    for seed in range(100, 140):
        print(seed, drive(db, seed, graphs=60, workers=6))
        db.wipe()

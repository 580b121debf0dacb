"""JobSync's guide on a site of three real processes, one of them killed. Their journal is the judge."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.compat.jobsync_program import TASKS
from tests.compat.psql import Psql
from tests.waiting import until

ROOT = Path(__file__).parents[2]


class Entry(NamedTuple):
    node: str
    task: int
    event: str


def find_overlaps(journal: Iterable[Entry], dead: frozenset[str] = frozenset()) -> list[str]:
    """Tasks on which two nodes worked at once, by the order of the journal. The work of a node that was killed ends
    with its last entry; that of a node that was stopped has ended."""
    entries = list(journal)
    last = {entry.node: place for place, entry in enumerate(entries)}
    working: dict[int, str] = {}
    faults = []
    for place, entry in enumerate(entries):
        holder = working.get(entry.task)
        if holder in dead and last[holder] < place:
            holder = None
        if entry.event == "begin":
            if holder is not None:
                faults.append(f"{entry.node} began task {entry.task}, on which {holder} worked")
            working[entry.task] = entry.node
        elif holder == entry.node:
            del working[entry.task]
        else:
            faults.append(f"{entry.node} ended task {entry.task}, which {holder} had")
    return faults + [f"{node} never ended task {task}" for task, node in working.items() if node not in dead]


class Site:
    def __init__(self, psql: Psql) -> None:
        self.psql = psql
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        command = [sys.executable, "-m", "tests.compat.jobsync_program", self.psql.url, name]
        self.processes[name] = subprocess.Popen(command, cwd=ROOT)

    def send(self, name: str, number: signal.Signals) -> int:
        self.processes[name].send_signal(number)
        return self.processes[name].wait()

    def journal(self, after: int = 0) -> list[Entry]:
        return [
            Entry(*row) for row in self.psql("SELECT node, task, event FROM journal WHERE id > %s ORDER BY id", after)
        ]

    def wait_until_all_is_done_by(self, *names: str) -> None:
        """Until these nodes together have ended every task, and each of them some, from now on."""
        last = self.psql.one("SELECT coalesce(max(id), 0) FROM journal")

        def is_done() -> bool:
            ended = [entry for entry in self.journal(last) if entry.event == "end" and entry.node in names]
            return {entry.task for entry in ended} == set(TASKS) and {entry.node for entry in ended} == set(names)

        until(is_done, patience=150)

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


@pytest.fixture
def site(psql: Psql) -> Iterator[Site]:
    psql("CREATE TABLE journal (id bigserial PRIMARY KEY, node text, task int, event text)")
    made = Site(psql)
    yield made
    made.stop()


@pytest.mark.long
@pytest.mark.timeout(500)
def test_no_task_is_worked_on_by_two_and_none_is_stranded_when_a_node_is_killed(site: Site) -> None:
    for name in ("a", "b", "c"):
        site.start(name)
    site.wait_until_all_is_done_by("a", "b", "c")
    leader = site.psql.one("SELECT leader FROM watchbill.group_list()")
    site.send(leader, signal.SIGKILL)
    left = [name for name in ("a", "b", "c") if name != leader]
    site.wait_until_all_is_done_by(*left)
    site.start("d")
    site.wait_until_all_is_done_by(*left, "d")
    assert site.send(left[0], signal.SIGTERM) == 0
    site.wait_until_all_is_done_by(left[1], "d")
    assert [site.send(name, signal.SIGTERM) for name in (left[1], "d")] == [0, 0]
    assert find_overlaps(site.journal(), frozenset({leader, *left, "d"})) == []
    audited = site.psql("SELECT DISTINCT item FROM sync_audit UNION SELECT item FROM sync_claim")
    assert {row.item for row in audited} == {str(task) for task in TASKS}
    assert site.psql("SELECT name FROM sync_node WHERE name <> %s", leader) == []


def test_the_judge_finds_two_nodes_at_one_task() -> None:
    begin = [Entry("a", 1, "begin"), Entry("b", 1, "begin"), Entry("a", 1, "end"), Entry("b", 1, "end")]
    assert len(find_overlaps(begin)) == 2
    assert len(find_overlaps(begin, frozenset({"a"}))) == 2
    assert find_overlaps([begin[0], begin[2], begin[1], begin[3]]) == []
    assert find_overlaps([begin[0], begin[1], begin[3]], frozenset({"a"})) == []
    assert find_overlaps([begin[0]]) == ["a never ended task 1"]

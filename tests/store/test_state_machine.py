"""Any sequence of verbs leaves every job as the model says: visible state, attempt, lost, run, run_at and outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.store.harness import LEASE, T0, Db, refused
from tests.store.model import RETRY, Job, Model, Node
from watchbill.model.states import FINISHED, TRANSITIONS

T = TypeVar("T")
Change: TypeAlias = tuple[str | None, str]

QUEUES = ["one", "two"]
OUTCOMES = ["succeeded", "skipped", "failed", "failed", "timed_out", "snoozed", "released", "unsupported", "canceled"]
VISIBLE = """
    SELECT
      id, state, wait, attempt, lost, run, run_at, quarantined, canceling, coalesce(fence, 0) AS fence, expires_at
    FROM watchbill.job"""

any_of = st.integers(min_value=0, max_value=999)
"""An index into whatever there is."""
yes_or_no = st.booleans()
mostly, rarely = st.sampled_from([True, True, True, False]), st.sampled_from([False, False, False, True])
delays = st.sampled_from([None, timedelta(0), timedelta(seconds=3), timedelta(seconds=60)])


class Ending(NamedTuple):
    of: int
    outcome: str
    age: float | None
    delay: timedelta | None
    permanent: bool


endings = st.builds(
    Ending,
    any_of,
    st.sampled_from(OUTCOMES),
    st.sampled_from([None, 1.0]),
    delays,
    st.sampled_from([False, False, True]),
)

# How often each is drawn, and its arguments. One rule draws them all: Hypothesis switches whole rules off at random,
# and most sequences would then never claim a job.
ACTIONS: dict[str, tuple[int, dict[str, st.SearchStrategy[Any]]]] = {
    "time_passes": (3, {"seconds": st.sampled_from([1, 5, 30, 31, 120])}),
    "register": (2, {"types": st.sampled_from([frozenset[str](), frozenset("b"), frozenset("ab")])}),
    "heartbeat": (2, {"index": any_of}),
    "reclaim": (4, {"index": any_of, "right_beat": mostly}),
    "lose": (3, {"index": any_of}),
    "leave": (1, {"index": any_of}),
    "abandon": (1, {"index": any_of, "forgotten": any_of}),
    "enqueue": (5, {"type": st.sampled_from("ab"), "queue": st.sampled_from(QUEUES), "priority": st.integers(-1, 1),
        "max_attempts": st.sampled_from([1, 2, 5, 5]), "delay": st.sampled_from([0, 10]), "many": st.integers(1, 3),
        "expires_in": st.sampled_from([None, None, None, 10, 40])}),
    "claim": (14, {"index": any_of, "queues": st.permutations(QUEUES), "only": st.sampled_from([2, 2, 1]),
        "max": st.sampled_from([10, 3, 2, 1]), "free": st.sampled_from([10, 10, 2, 1, 0]), "alone": rarely}),
    "settle": (12, {"ends": st.lists(endings, min_size=1, max_size=4), "latest": mostly}),
    "succeed": (2, {"index": any_of, "latest": yes_or_no, "quick": yes_or_no}),
    "fail": (2, {"index": any_of, "latest": yes_or_no, "retryable": yes_or_no, "delay": delays}),
    "guard": (1, {"index": any_of}),
    "cancel": (4, {"index": any_of, "running": mostly, "force": rarely}),
    "reschedule": (3, {"index": any_of, "after": st.sampled_from([None, -10, 0, 10])}),
    "release": (2, {"index": any_of}),
    "pause": (1, {"queue": st.sampled_from([None, "one"]), "type": st.sampled_from([None, "a"]), "resume": mostly}),
    "promote": (4, {}),
    "expire_unsupported": (1, {"grace": st.sampled_from([0, 60, 3600])}),
    "block_or_unblock": (1, {"index": any_of}),
}  # fmt: skip


class Machine(RuleBasedStateMachine):
    """Several nodes and operators take turns. Every grant ever made may be settled, also one that is long stale."""

    db: ClassVar[Db]
    changes: ClassVar[Counter[Change]] = Counter()
    outcomes: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.db.wipe()
        self.db.now = T0
        self.model = Model(T0)
        self.past: list[tuple[UUID, int]] = []
        self.before: dict[UUID, str] = {}

    @initialize()
    def start(self) -> None:
        self.register(frozenset())
        self.register(frozenset("b"))
        self.enqueue("a", "one", 0, 5, 0, many=3)
        self.enqueue("b", "two", 0, 1, 0, many=2)

    @rule(
        data=st.data(), action=st.sampled_from([name for name, (weight, _) in ACTIONS.items() for _ in range(weight)])
    )
    def act(self, data: st.DataObject, action: str) -> None:
        getattr(self, action)(**{name: data.draw(strategy, name) for name, strategy in ACTIONS[action][1].items()})

    # Choosing.

    def job(self, index: int) -> Job:
        return list(self.model.jobs.values())[index % len(self.model.jobs)]

    def node(self, index: int) -> Node:
        """Mostly one that is alive."""
        nodes = list(self.model.nodes.values())
        alive = [node for node in nodes if node.state == "active"]
        chosen = alive if alive and index % 5 else nodes
        return chosen[index % len(chosen)]

    def grant(self, index: int, latest: bool) -> tuple[UUID, int] | None:
        """A job and a fence: of those held now, or of all that ever were."""
        held = [(job.id, job.fence) for job in self.model.jobs.values() if job.fence]
        grants = held if latest else self.past
        return grants[index % len(grants)] if grants else None

    # Time and nodes.

    def time_passes(self, seconds: float) -> None:
        self.db.tick(seconds)
        self.model.now = self.db.now

    def register(self, types: frozenset[str]) -> None:
        epoch = self.db.node(types=dict.fromkeys(types, 1))
        self.model.nodes[epoch] = Node(epoch, types, self.model.now, self.model.now)

    def heartbeat(self, index: int) -> None:
        node = self.node(index)
        if node.state != "active":
            with refused("WB001"):
                self.db.value("heartbeat", epoch=node.epoch)
            return
        asked = self.db.value("heartbeat", epoch=node.epoch)
        node.beat_at, node.beats = self.model.now, node.beats + 1
        assert set(asked) == {
            job.id for job in self.model.jobs.values() if job.canceling and self.model.grants[job.fence] == node.epoch
        }

    def reclaim(self, index: int, right_beat: bool) -> None:
        node = self.node(index)
        seen = node.beats if right_beat else node.beats + 1
        rows = self.db.call("reclaim", epochs=[node.epoch], beats_seen=[seen])
        lost = node.state == "active" and right_beat and self.model.now - node.beat_at > LEASE
        assert {row.id: row.state for row in rows} == (self.model.lose(node) if lost else {})

    def lose(self, index: int) -> None:
        self.time_passes(31)
        self.reclaim(index, True)
        self.register(frozenset("b"))

    def leave(self, index: int) -> None:
        node = self.node(index)
        given = 0
        if node.state == "active":
            node.state, node.ended_at = "left", self.model.now
            given = self.model.give_back({f for f, epoch in self.model.grants.items() if epoch == node.epoch})
        assert self.db.value("leave", epoch=node.epoch) == given

    def abandon(self, index: int, forgotten: int) -> None:
        node = self.node(index)
        held = sorted(f for f, epoch in self.model.grants.items() if epoch == node.epoch)
        known = [fence for n, fence in enumerate(held) if not forgotten & (1 << n % 8)]
        given = self.model.give_back(set(held) - set(known))
        assert self.db.value("release_unknown", epoch=node.epoch, known=known) == given

    # The life of a job.

    def enqueue(
        self,
        type: str,
        queue: str,
        priority: int,
        max_attempts: int,
        delay: int,
        many: int,
        expires_in: int | None = None,
    ) -> None:
        retry = {"kind": "fixed", "base": RETRY.total_seconds(), "jitter": 0}
        given: dict[str, Any] = {"queue": queue, "priority": priority, "max_attempts": max_attempts}
        for _ in range(many):
            expiry = {} if expires_in is None else {"expires_in": timedelta(seconds=expires_in)}
            sent = self.db.send(type, delay=timedelta(seconds=delay), retry=retry, **given, **expiry)
            job = Job(sent.id, type, run_at=self.model.now, wait=None, **given)
            job.once = max_attempts == 1 or expires_in is not None
            job.expires_at = None if expires_in is None else self.db.after(expires_in)
            job.put_off(self.model.now + timedelta(seconds=delay), self.model.now)
            self.model.jobs[job.id] = job

    def claim(self, index: int, queues: list[str], only: int, max: int, free: int, alone: bool) -> None:
        node, asked = self.node(index), queues[:only]
        if node.state != "active":
            with refused("WB001", f"is {node.state}"):
                self.db.claim(node.epoch, max, free=free, queues=asked, alone=alone)
            return
        expected = self.model.claim(node, asked, max, free, alone)
        rows = self.db.claim(node.epoch, max, free=free, queues=asked, alone=alone)
        assert {row.id: (row.run, row.attempt) for row in rows} == {
            job.id: (job.run + 1, job.attempt) for job in expected
        }
        for row in rows:
            assert row.fence > largest(fence for job, fence in self.past if job == row.id)
            self.model.granted(self.model.jobs[row.id], node, row.fence)
            self.past.append((row.id, row.fence))

    def settle(self, ends: list[Ending], latest: bool) -> None:
        """One batch, which names each job once."""
        chosen: dict[UUID, tuple[int, Ending]] = {}
        for end in ends:
            if grant := self.grant(end.of, latest):
                chosen[grant[0]] = (grant[1], end)
        expected = {}
        for job, (fence, end) in chosen.items():
            state = self.model.settle(self.model.jobs[job], fence, end.outcome, end.age, end.delay, end.permanent)
            if state != "succeeded":
                expected[job] = state
        rows = self.db.call(
            "settle",
            epoch=self.node(1).epoch,
            ids=list(chosen),
            fences=[fence for fence, _ in chosen.values()],
            outcomes=[end.outcome for _, end in chosen.values()],
            ages=[end.age for _, end in chosen.values()],
            delays=[end.delay for _, end in chosen.values()],
            errors=[{"kind": "permanent"} if end.permanent else None for _, end in chosen.values()],
        )
        assert {row.id: row.state for row in rows} == expected

    def succeed(self, index: int, latest: bool, quick: bool) -> None:
        """The two other ways to say so: a batch without outcomes, and `complete`."""
        if not (grant := self.grant(index, latest)):
            return
        job, fence = grant
        state = self.model.settle(self.model.jobs[job], fence, "succeeded", None, None, False)
        if quick:
            rows = self.db.call("settle", epoch=self.model.grants[fence], ids=[job], fences=[fence])
            assert [row.state for row in rows] == ([] if state else [None])
        else:
            self._or_stale(state, lambda: self.db.value("complete", id=job, fence=fence))

    def fail(self, index: int, latest: bool, retryable: bool, delay: timedelta | None) -> None:
        if not (grant := self.grant(index, latest)):
            return
        job, fence = grant
        state = self.model.settle(self.model.jobs[job], fence, "failed", None, delay, not retryable)
        told = self._or_stale(
            state, lambda: self.db.value("fail", id=job, fence=fence, retryable=retryable, delay=delay)
        )
        assert told == state

    def guard(self, index: int) -> None:
        if grant := self.grant(index, latest=False):
            job, fence = grant
            held = "held" if self.model.jobs[job].fence == fence else None
            self._or_stale(held, lambda: self.db.value("guard", id=job, fence=fence))

    def _or_stale(self, state: str | None, call: Callable[[], T]) -> T | None:
        if state is not None:
            return call()
        with refused("WB007"):
            call()
        return None

    # Operators and chores.

    def cancel(self, index: int, running: bool, force: bool) -> None:
        grant = self.grant(index, latest=True) if running else None
        job = self.model.jobs[grant[0]] if grant else self.job(index)
        assert self.db.value("cancel", id=job.id, force=force) == self.model.cancel(job, force=force)

    def reschedule(self, index: int, after: int | None) -> None:
        job = self.job(index)
        run_at = None if after is None else self.db.after(after)
        if job.fence:
            with refused("WB008", "is running"):
                self.db.value("reschedule", id=job.id, run_at=run_at)
        elif job.expires_at is not None and (run_at or self.model.now) > job.expires_at:
            with refused("WB003", "it would expire"):
                self.db.value("reschedule", id=job.id, run_at=run_at)
        else:
            assert self.db.value("reschedule", id=job.id, run_at=run_at) == self.model.reschedule(job, run_at)

    def release(self, index: int) -> None:
        job = self.job(index)
        assert self.db.value("release", id=job.id) == self.model.release(job)

    def pause(self, queue: str | None, type: str | None, resume: bool) -> None:
        if queue is None and type is None:
            with refused("WB003"):
                self.db.value("pause")
        elif resume:
            assert self.db.value("resume", queue=queue, type=type) == self.model.resume(queue, type)
        else:
            assert self.db.value("pause", queue=queue, type=type) == ((queue, type) not in self.model.pauses)
            self.model.pauses.add((queue, type))

    def promote(self) -> None:
        self.model.promote()
        due = [job.due for job in self.model.jobs.values() if job.wait == "delayed"]
        due += [job.expires_at for job in self.model.jobs.values() if job.expires_at and not job.fence]
        assert self.db.value("promote") == min(due, default=None)

    def expire_unsupported(self, grace: int) -> None:
        expected = self.model.expire(timedelta(seconds=grace))
        assert self.db.value("expire_unsupported", grace=timedelta(seconds=grace)) == expected

    def block_or_unblock(self, index: int) -> None:
        """No verb does this yet."""
        job = self.job(index)
        if job.is_free("blocked") or job.is_free(None):
            job.wait = None if job.wait else "blocked"
            self.db.set_wait(job.id, job.wait)

    # What must be true after each step.

    @invariant()
    def every_job_is_as_the_model_says(self) -> None:
        rows = {row.id: row for row in self.db.execute(VISIBLE)}
        for job in self.model.jobs.values():
            self._take_over_chance(job, rows[job.id].run_at)
        assert {key: _told(row) for key, row in rows.items()} == {
            key: _meant(job) for key, job in self.model.jobs.items()
        }
        for key, row in rows.items():
            if self.before.get(key) != row.state:
                self.changes[self.before.get(key), row.state] += 1
        self.before = {key: row.state for key, row in rows.items()}

    @invariant()
    def every_attempt_is_recorded(self) -> None:
        query = "SELECT job_id, array_agg(outcome ORDER BY run) AS outcomes FROM watchbill.attempt GROUP BY 1"
        found = {row.job_id: row.outcomes for row in self.db.execute(query)}
        assert found == {job.id: job.outcomes for job in self.model.jobs.values() if job.outcomes}

    def _take_over_chance(self, job: Job, drawn: datetime) -> None:
        if isinstance(job.run_at, tuple):
            least, most = job.run_at
            assert least <= drawn <= most
            job.run_at = drawn

    def teardown(self) -> None:
        self.db.assert_sound(is_planted=True)
        for job in self.model.jobs.values():
            self.outcomes.update(job.outcomes)


def largest(numbers: Iterable[int]) -> int:
    return max(numbers, default=0)


def _told(row: Any) -> tuple[Any, ...]:
    """What the view says; of a finished job only that which still means something."""
    if row.state in FINISHED:
        return (row.state, row.attempt, row.lost, row.run)
    first = (row.state, row.attempt, row.lost, row.run, row.wait, row.run_at, row.quarantined, row.canceling, row.fence)
    return (*first, row.expires_at)


def _meant(job: Job) -> tuple[Any, ...]:
    if job.finished:
        return (job.state, job.attempt, job.lost, job.run)
    first = (job.state, job.attempt, job.lost, job.run, job.wait, job.run_at, job.alone, job.canceling, job.fence)
    return (*first, job.expires_at)


BY_HAND: set[Change] = {("queued", "blocked"), ("failed", "blocked"), ("blocked", "failed")}
"""What `block_or_unblock` does in the place of the verbs to come."""


def allowed() -> set[Change]:
    """Every change of state that the table of transitions knows, and the end of jobs that nobody can run."""
    steps = {(before, after) for step in TRANSITIONS for before in (step.before or {None}) for after in step.after}
    return {(before, after) for before, after in steps if before != after} | {("queued", "dead")}


def drive(db: Db, examples: int, steps: int) -> None:
    Machine.db = db
    Machine.changes.clear()
    Machine.outcomes.clear()
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
            phases=[Phase.generate],
        ),
    )
    assert set(Machine.changes) - BY_HAND <= allowed()


@pytest.mark.timeout(600)  # a thousand steps take three seconds, and a minute beside forty busy processes
def test_any_sequence_of_verbs_does_what_the_model_says(db: Db) -> None:
    drive(db, examples=20, steps=50)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_great_many_sequences_of_verbs_do_what_the_model_says(db: Db) -> None:
    """So many that each change of state and each outcome has been seen, and none of them rarely."""
    drive(db, examples=400, steps=100)
    print(Machine.changes, Machine.outcomes)
    seen = set(Machine.changes)
    assert allowed() - seen == {(None, "blocked"), ("canceled", "blocked")}  # test_dependencies.py
    assert {outcome: n for outcome, n in Machine.outcomes.items() if n < 20} == {}
    assert len(Machine.outcomes) == 8

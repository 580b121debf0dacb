"""The state machine of jobs in plain Python, written from the specification: what each verb does and answers.

It knows nothing of SQL. Chance (the wait after a loss) is left open: `run_at` is then a pair of bounds, which the test
replaces by what the database drew.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

LEASE = timedelta(seconds=30)
FINISHED = ("succeeded", "dead", "canceled")
RETRY = timedelta(seconds=7)
"""Every job of the test has this fixed policy, without jitter."""
ROUNDS, PICKED_LATER = 10, 1000
"""How often a claim picks if it meets only jobs of paused types, and how many jobs it looks at from the second time."""


@dataclass
class Job:
    id: UUID
    type: str
    queue: str
    priority: int
    max_attempts: int
    run_at: datetime | tuple[datetime, datetime]
    wait: str | None
    fence: int = 0
    run: int = 0
    attempt: int = 0
    lost: int = 0
    alone: bool = False
    failed: bool = False
    canceling: bool = False
    expires_at: datetime | None = None
    once: bool = False  # it is not claimed ahead
    finished: str | None = None
    outcomes: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        if self.finished:
            return self.finished
        if self.fence:
            return "running"
        if self.wait == "blocked":
            return "blocked"
        return "failed" if self.failed else "queued"

    @property
    def due(self) -> datetime:
        assert isinstance(self.run_at, datetime)
        return self.run_at

    @property
    def order(self) -> tuple[int, datetime, UUID]:
        return (-self.priority, self.due, self.id)

    def is_free(self, wait: str | None) -> bool:
        return not self.finished and not self.fence and self.wait == wait

    def end(self, state: str) -> None:
        self.finished, self.fence, self.canceling, self.wait = state, 0, False, None
        self.alone = self.failed = False
        self.expires_at, self.once = None, self.max_attempts == 1

    def has_expired(self, now: datetime) -> bool:
        return not self.finished and not self.fence and self.expires_at is not None and self.expires_at <= now

    def put_off(self, until: datetime, now: datetime) -> None:
        self.run_at, self.wait = until, "delayed" if until > now else None

    def clear_losses(self) -> None:
        if self.alone:
            self.once = self.max_attempts == 1
        self.lost, self.alone = 0, False


@dataclass
class Node:
    epoch: int
    types: frozenset[str]
    beat_at: datetime
    started_at: datetime
    beats: int = 0
    state: str = "active"
    ended_at: datetime | None = None


@dataclass
class Model:
    now: datetime
    jobs: dict[UUID, Job] = field(default_factory=dict)
    nodes: dict[int, Node] = field(default_factory=dict)
    grants: dict[int, int] = field(default_factory=dict)
    """The node of each fence."""
    unsupported_since: dict[str, datetime] = field(default_factory=dict)
    pauses: set[tuple[str | None, str | None]] = field(default_factory=set)

    # Claiming.

    def claim(self, node: Node, queues: list[str], max: int, free: int, alone: bool) -> list[Job]:
        """Which jobs a claim takes; ends those that have expired, and sets those of paused types aside that it meets.
        If it meets no others, it picks again, and more than before."""
        self.end_expired_jobs()
        open_queues = [queue for queue in queues if (queue, None) not in self.pauses]
        for number in range(ROUNDS):
            picked = (
                self._pick_quarantined_job(node, open_queues)
                if alone
                else self._pick(node, open_queues, max, free, ahead=PICKED_LATER if number else max)
            )
            paused = [job for job in picked if self._is_paused(job)]
            for job in paused:
                job.wait = "paused"
            rest = [job for job in picked if job not in paused]
            if rest or not picked or not free:  # without a free slot no other round
                return rest[:max]
        return []

    def granted(self, job: Job, node: Node, fence: int) -> None:
        job.fence, job.run = fence, job.run + 1
        self.grants[fence] = node.epoch

    def _pick(self, node: Node, queues: list[str], max: int, free: int, *, ahead: int) -> list[Job]:
        ready = [job for queue in queues for job in self._in_order(queue, None, alone=False)]
        starting = min(free, max)
        prefetched = itertools.takewhile(lambda job: not job.once, ready[starting:ahead])
        picked = [*ready[:starting], *prefetched]
        known = self._known_to(node, queues, alone=False)
        places = starting - len(picked)
        if places <= 0:  # all slots are taken, so these are claimed ahead
            known = [job for job in known if not job.once]
            places = min(starting, max - len(picked))
        return picked + known[: places if places > 0 else 0]

    def _pick_quarantined_job(self, node: Node, queues: list[str]) -> list[Job]:
        ready = [job for queue in queues for job in self._in_order(queue, None, alone=True)]
        return (ready or self._known_to(node, queues, alone=True))[:1]

    def _known_to(self, node: Node, queues: list[str], *, alone: bool) -> list[Job]:
        waiting = [job for queue in queues for job in self._in_order(queue, "unsupported", alone=alone)]
        return [job for job in waiting if job.type in node.types]

    def _in_order(self, queue: str, wait: str | None, *, alone: bool) -> list[Job]:
        found = [job for job in self.jobs.values() if job.queue == queue and job.is_free(wait) and job.alone == alone]
        return sorted(found, key=lambda job: job.order)

    def _is_paused(self, job: Job) -> bool:
        return (None, job.type) in self.pauses or (job.queue, job.type) in self.pauses

    # The end of a run.

    def settle(
        self, job: Job, fence: int, outcome: str, age: float | None, delay: timedelta | None, permanent: bool
    ) -> str | None:
        """The state it leads to; None when the caller does not hold the job."""
        if not fence or job.fence != fence:
            return None
        if outcome == "canceled" and not job.canceling:
            outcome = "failed"
        spent = outcome in ("succeeded", "skipped", "failed", "timed_out")
        if spent or (age is not None and outcome != "unsupported"):
            job.outcomes.append(outcome)
        if spent or outcome == "snoozed" or age is not None:
            job.clear_losses()
            job.expires_at = None
        job.attempt += spent
        if outcome in ("succeeded", "skipped"):
            job.end("succeeded")
        elif job.canceling:
            job.end("canceled")
        elif spent and (permanent or job.attempt >= job.max_attempts):
            job.end("dead")
        else:
            self._put_back(job, outcome, delay)
        return job.state

    def _put_back(self, job: Job, outcome: str, delay: timedelta | None) -> None:
        job.fence, job.failed, job.wait = 0, outcome in ("failed", "timed_out"), None
        if outcome == "unsupported":
            job.wait = "unsupported"
            self.unsupported_since.setdefault(job.type, self.now)
        elif outcome != "released":
            usual = RETRY if job.failed else timedelta(0)
            job.put_off(self.now + (usual if delay is None else delay), self.now)

    def give_back(self, fences: set[int]) -> int:
        """Leave and abandon: unspent, in its place."""
        given = 0
        for job in self.jobs.values():
            if job.fence and job.fence in fences:
                if job.canceling:
                    job.end("canceled")
                else:
                    job.fence, job.failed = 0, False
                    given += 1
        return given

    def lose(self, node: Node) -> dict[UUID, str]:
        """Every job of a lost node: alone next time, dead at the third loss in a row, or at once if it has one try."""
        node.state, node.ended_at, states = "lost", node.beat_at, {}
        for job in self.jobs.values():
            if job.fence and self.grants[job.fence] == node.epoch:
                job.outcomes.append("lost")
                job.lost += 1
                if job.canceling:
                    job.end("canceled")
                elif job.max_attempts == 1 or job.lost >= 3:
                    job.end("dead")
                else:
                    job.fence, job.failed, job.alone, job.wait, job.expires_at = 0, True, True, "delayed", None
                    job.run_at = (self.now, self.now + timedelta(seconds=2 ** (job.lost - 1)))
                states[job.id] = job.state
        return states

    # What operators do.

    def cancel(self, job: Job, *, force: bool) -> str:
        if job.fence and not force:
            job.canceling = True
        elif not job.finished:
            job.end("canceled")
        return job.state

    def reschedule(self, job: Job, run_at: datetime | None) -> str:
        """The state it was in. Running jobs are refused by the caller of this."""
        was, due = job.state, run_at or self.now
        if job.finished or job.failed:
            job.attempt = 0
            job.clear_losses()
        if job.finished:
            job.finished = None
        if job.wait in ("blocked", "parked", "paused") or (job.wait == "unsupported" and due <= self.now):
            job.run_at = due
        else:
            job.put_off(due, self.now)
        job.failed = False
        return was

    def release(self, job: Job) -> bool:
        if not job.fence:
            return False
        job.outcomes.append("released")
        if job.canceling:
            job.end("canceled")
        else:
            job.fence, job.failed, job.run_at, job.wait = 0, False, self.now, None
        return True

    # Chores.

    def end_expired_jobs(self) -> None:
        for job in self.jobs.values():
            if job.has_expired(self.now):
                job.end("canceled")

    def promote(self) -> None:
        self.end_expired_jobs()
        for job in self.jobs.values():
            if job.wait == "delayed" and not job.fence and job.due <= self.now:
                job.wait = None

    def resume(self, queue: str | None, type: str | None) -> bool:
        if (queue, type) not in self.pauses:
            return False
        self.pauses.remove((queue, type))
        for job in self.jobs.values():
            if job.wait == "paused" and not self._is_paused(job):
                job.wait = "delayed" if job.due > self.now else None
        return True

    def expire(self, grace: timedelta) -> int:
        waiting = [job for job in self.jobs.values() if job.wait == "unsupported"]
        kept = {job.type for job in waiting}
        self.unsupported_since = {name: since for name, since in self.unsupported_since.items() if name in kept}
        start = self._find_grace_start(grace)
        expired = [] if start is None else [job for job in waiting if not job.fence and self._waits_since(job) <= start]
        for job in expired:
            job.end("dead")
        return len(expired)

    def _waits_since(self, job: Job) -> datetime:
        """When the last node ended that handled the job's type; for ever in the future while one lives."""
        ends = [node.ended_at for node in self.nodes.values() if job.type in node.types]
        if None in ends:
            return datetime.max.replace(tzinfo=UTC)
        return max((end for end in ends if end), default=max(job.due, self.unsupported_since[job.type]))

    def _find_grace_start(self, grace: timedelta) -> datetime | None:
        """Goes back in time until nodes have lived for `grace`."""
        nodes = self.nodes.values()
        lives = [(node.started_at, node.ended_at or min(node.beat_at + LEASE, self.now)) for node in nodes]
        at, left = datetime.max.replace(tzinfo=UTC), grace
        while lives := [(began, min(ended, at)) for began, ended in lives if began < min(ended, at)]:
            ended = max(ended for _, ended in lives)
            at = min(began for began, other in lives if other == ended)
            if left <= ended - at:
                return ended - left
            left -= ended - at
        return None

"""A node's part in elections: stands for the leadership of groups, runs what a leader runs, and stops it in time.

The leader of a group is the node that holds the lock `leader/GROUP`; its term is the fence of that lock. The lock lasts
as long as the node's lease, so heartbeats renew it. The survey says who leads each group and when that leader's lease
ends, so candidates send a statement only when there is something to win: a lease has ended, or a notification says that
a leader has left.

A leader stops leading when the survey shows another one, when its node was declared lost, when no heartbeat was
acknowledged for 80 % of a lease, or when the node drains. A term that it has given up is released, so a new one begins
with a new fence. All of this is best effort; what a leader writes checks its term in the same transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from watchbill.store.node_connection import Disconnected, NodeConnection, NodeLost, Refused
from watchbill.telemetry.events import Events

logger = logging.getLogger("watchbill.cluster")

PAUSE_SECONDS = 3600.0  # long, because the survey, a timer or a notification wakes the elector
MARGIN_SECONDS = 0.01  # after the end of a lease
RETRY_SECONDS = 1.0  # between two attempts, if it is this node's turn and another transaction has the lock
FIRST_RESTART_SECONDS, LONGEST_RESTART_SECONDS = 1.0, 60.0  # of a task that failed
LEAST_LEASE_SHARE = 0.25  # of a lease: a node whose heartbeats fail does not begin to lead
STOP_SECONDS = 5.0  # for leader tasks that were asked to stop
RELEASE_SECONDS = 5.0  # for the release of terms when the node leaves


class Term:
    """One leadership of this node, from its election to its end."""

    def __init__(self, group: str, number: int) -> None:
        self.group, self.number = group, number
        self.ended = threading.Event()  # set from the loop, read from any thread
        self.tasks: list[asyncio.Task[None]] = []

    @property
    def is_current(self) -> bool:
        return not self.ended.is_set()


LeaderTask = Callable[[Term], Awaitable[None]]


class Standing(NamedTuple):
    """What the database says of a group: a row of the SQL function `_list_leaders`."""

    group: str
    leader: int | None  # its epoch
    term: int | None
    expires_in: float | None
    turn_in: float | None


class Elector:
    """The elections of one node. All methods are called on the event loop; `run` is a chore."""

    def __init__(
        self, connection: NodeConnection, events: Events, name: str, lease: float, wakeup: asyncio.Event
    ) -> None:
        self._connection, self._events, self._name, self.wakeup = connection, events, name, wakeup
        self._least_lease = lease * LEAST_LEASE_SHARE
        self._tasks: dict[str, list[LeaderTask]] = {}
        self._known: set[str] = set()  # groups for which this node is a candidate by other means
        self._epoch = 0
        self._is_closed = False
        self._terms: dict[str, Term] = {}
        self._given_up: dict[str, int] = {}  # terms that are not released yet, by group
        self._timer: asyncio.TimerHandle | None = None
        self._last_election_at = -math.inf  # on the monotonic clock

    @property
    def groups(self) -> list[str]:
        return sorted({*self._tasks, *self._known})

    def find_term(self, group: str) -> int | None:
        """The number of this node's term, if it leads the group now."""
        term = self._terms.get(group)
        return None if term is None else term.number

    def add_task(self, group: str, task: LeaderTask) -> None:
        """Runs the task while this node leads the group, for which it becomes a candidate."""
        self._tasks.setdefault(group, []).append(task)
        if (term := self._terms.get(group)) is not None:
            self._start(term, task)
        self.wakeup.set()

    def begin_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        self.wakeup.set()

    def lose_epoch(self) -> None:
        """The node was declared lost: its terms have ended, and there is nothing to release."""
        self._epoch = 0
        self._known.clear()
        for group in list(self._terms):
            self._end(group, "the node was declared lost")
        self._given_up.clear()

    def give_up(self, reason: str) -> None:
        """Stops leading before the lease can end, and releases the terms when the database answers."""
        for group in list(self._terms):
            self._end(group, reason)
        self.wakeup.set()

    async def close(self) -> None:
        """Stops leading, waits until the leader tasks have stopped, and releases the terms. Takes part in no more
        elections."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        stopping = [task for term in self._terms.values() for task in term.tasks]
        for group in list(self._terms):
            self._end(group, "the node drains")
        if stopping:
            _, late = await asyncio.wait(stopping, timeout=STOP_SECONDS)
            if late:
                logger.warning("%d leader tasks do not stop; another node may lead beside them", len(late))
        if not self._epoch or not self.groups:
            return
        with contextlib.suppress(Disconnected, Refused, NodeLost, TimeoutError):  # then the lock ends with the node
            # The other chores share the connection, and each may wait for an answer that does not come.
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._connection.execute("withdraw", (self._epoch,))
                await self._release()  # what a transaction had locked

    # -- the chore

    async def run(self) -> float:
        """Stands for election in the groups that this node may lead; returns the seconds until the next time."""
        self.wakeup.clear()
        if not self._epoch or self._is_closed or not self.groups:
            return PAUSE_SECONDS
        with contextlib.suppress(NodeLost):  # the heartbeat or the claimer registers the node again
            await self._stand(self.groups)
        return PAUSE_SECONDS

    async def win_term(self, group: str, epoch: int) -> int | None:
        """Stands for the leadership of one group, for which this node becomes a candidate. Returns the number of its
        term if it leads. A node that drains does not lead."""
        if epoch != self._epoch or self._is_closed:
            return None
        (standing,) = await self._stand([group])
        return standing.term if standing.leader == epoch else None

    async def _stand(self, groups: list[str]) -> list[Standing]:
        self._last_election_at = time.monotonic()
        await self._release()
        rows = await self._connection.execute("elect", (self._epoch, groups))
        standings = [Standing._make(row) for row in rows]
        self.note_standings(standings)
        return standings

    async def _release(self) -> None:
        for group, number in list(self._given_up.items()):
            await self._connection.execute("resign", (group, number))
            self._given_up.pop(group, None)

    def note_standings(self, standings: Iterable[Standing]) -> None:
        """Takes what `elect` or the survey has found."""
        if not self._epoch or self._is_closed:
            return
        pauses = []
        for one in standings:
            self._known.add(one.group)
            self._note_leader(one)
            if (pause := self._find_pause(one)) is not None:
                pauses.append(pause)
        if pauses:
            self._wake_in(min(pauses))

    def _note_leader(self, one: Standing) -> None:
        term = self._terms.get(one.group)
        is_ours = one.leader == self._epoch and one.term is not None and one.term > self._given_up.get(one.group, 0)
        is_safe = one.expires_in is not None and one.expires_in >= self._least_lease
        if term is not None and (not is_ours or one.term != term.number):
            self._end(one.group, "another node leads" if one.leader else "the lock was released")
            self._given_up.pop(one.group, None)  # it is not ours to release
        if is_ours and is_safe and one.term is not None and one.group not in self._terms:
            self._begin(one.group, one.term)

    def _find_pause(self, one: Standing) -> float | None:
        """Seconds until this node may win the group."""
        # Counted from the last attempt: surveys come more often, and each of them sets the timer anew.
        retry_in = max(MARGIN_SECONDS, self._last_election_at + RETRY_SECONDS - time.monotonic())
        if one.leader == self._epoch:
            return retry_in if one.group in self._given_up else None
        if one.leader is not None:
            return None if one.expires_in is None else one.expires_in + MARGIN_SECONDS
        return one.turn_in + MARGIN_SECONDS if one.turn_in else retry_in

    def _wake_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.wakeup.set)

    # -- terms

    def _begin(self, group: str, number: int) -> None:
        term = self._terms[group] = Term(group, number)
        logger.info("Node %s leads group %s in term %d", self._name, group, number)
        self._events.emit("leader_elected", group=group, term=number, name=self._name, epoch=self._epoch)
        for task in self._tasks.get(group, ()):
            self._start(term, task)

    def _end(self, group: str, reason: str) -> None:
        term = self._terms.pop(group)
        term.ended.set()
        for task in term.tasks:
            task.cancel()
        self._given_up[group] = term.number
        logger.info("Node %s no longer leads group %s (term %d): %s", self._name, group, term.number, reason)
        self._events.emit("leader_deposed", group=group, term=term.number, name=self._name, reason=reason)

    def _start(self, term: Term, task: LeaderTask) -> None:
        term.tasks.append(asyncio.create_task(_run_during(term, task), name=f"leader task of {term.group}"))


async def _run_during(term: Term, task: LeaderTask) -> None:
    """Runs a leader task until it returns or the term ends. A task that fails is started again, later each time."""
    pause = FIRST_RESTART_SECONDS
    while term.is_current:
        try:
            await task(term)
        except (Exception, SystemExit):  # sys.exit() must not end this node, and then the next one that leads
            logger.exception("A leader task of group %s failed; starting it again in %g s", term.group, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_RESTART_SECONDS)
        else:
            return

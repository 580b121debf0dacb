"""A node's part in its token groups: reads what it owns, passes tokens on, and leads when it is elected.

One look per group asks `member_state`. If the leader has something to do, the node stands for election, and if it is
the leader it calls `rebalance`. If it has to pass tokens on, it first forgets them, so that `owns` is false for their
keys; then it tells the program, and then it calls `pass_tokens`. Tokens in which it holds a job or an item stay until
that has ended, or until the leader takes them.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable
from dataclasses import InitVar, dataclass, field, replace
from datetime import timedelta
from typing import NamedTuple, Protocol

from watchbill.cluster.callbacks import call_in_thread
from watchbill.cluster.options import Membership
from watchbill.cluster.ownership import Rebalance
from watchbill.model.clock import boot_seconds
from watchbill.store.node_connection import Busy, NodeConnection, NodeLost, Refused
from watchbill.telemetry.events import Events

logger = logging.getLogger("watchbill.cluster")

LONGEST_PAUSE_SECONDS = 10.0
IDLE_PAUSE_SECONDS = 3600.0  # without a group; `add` wakes it
PASS_AGAIN_SECONDS = 0.2  # while a job or an item keeps a token
LEAD_AGAIN_SECONDS = 0.1  # while the leader has something to do; more after each look
MOST_LEAD_AGAIN_SECONDS = 3.0


class MemberNode(Protocol):
    """The node, as its memberships use it."""

    @property
    def epoch(self) -> int: ...


class Leadership(Protocol):
    """The node's elections, as its memberships use them."""

    async def win_term(self, group: str, epoch: int) -> int | None:
        """The number of the node's term, if it leads the group or can win it now."""

    def find_term(self, group: str) -> int | None:
        """The number of the node's term, if it leads the group now."""


class _State(NamedTuple):
    """A row of the SQL function `member_state`, which explains the columns."""

    total: int
    hash: str
    handover_timeout: timedelta
    version: int
    pins_version: int
    is_member: bool
    is_assigned: bool
    tokens: list[int] | None
    moving: int
    pin_keys: list[str] | None
    pin_tokens: list[int] | None
    needs_leader: str | None


@dataclass
class Memberships:
    """The token groups of one node; `run` is a chore. All methods are called on the event loop."""

    connection: NodeConnection
    node: MemberNode
    leadership: Leadership
    events: Events
    groups: InitVar[Iterable[Membership]]
    wakeup: asyncio.Event
    lease: float
    draining: asyncio.Event
    clock: Callable[[], float] = boot_seconds
    _groups: dict[str, Membership] = field(default_factory=dict)
    _routed: set[str] = field(default_factory=set)  # queues
    _joined: dict[str, int] = field(default_factory=dict)  # the epoch under which it has joined each group
    _joined_at: dict[str, float] = field(default_factory=dict)
    _left: set[str] = field(default_factory=set)
    _looks: dict[str, tuple[int, int]] = field(default_factory=dict)  # at one version, while the leader has work

    def __post_init__(self, groups: Iterable[Membership]) -> None:
        for membership in groups:
            self.add(membership)

    def add(self, membership: Membership) -> None:
        """Joins a group, or routes more queues by a group that the node has joined: a task was declared late."""
        known = self._groups.get(membership.group)
        if known is not None:
            membership = replace(known, queues=tuple(sorted({*known.queues, *membership.queues})))
        self._groups[membership.group] = membership
        self.wakeup.set()

    async def run(self) -> float:
        """Looks at each group once; returns the seconds until the next look."""
        self.wakeup.clear()
        if not self._groups:
            return IDLE_PAUSE_SECONDS
        pauses = [await self._look(membership) for membership in list(self._groups.values())]
        return min([LONGEST_PAUSE_SECONDS, self.lease / 3, *pauses])

    async def _look(self, membership: Membership) -> float:
        epoch = self.node.epoch
        if not epoch:
            return LONGEST_PAUSE_SECONDS
        try:
            if self._joined.get(membership.group) != epoch:
                await self._forget(membership)
                await self._join(membership, epoch)
            await self._route_queues(membership, epoch)
            if self.draining.is_set() and membership.group not in self._left:
                await self.connection.execute("leave_group", (epoch, membership.group))
                self._left.add(membership.group)
            return await self._follow(membership, epoch)
        except NodeLost:
            await self._forget(membership)
            self._joined.pop(membership.group, None)
            return PASS_AGAIN_SECONDS
        except Busy:
            raise
        except Refused as error:  # the other groups of this node go on
            logger.error("Group %s refuses this node, which tries again: %s", membership.group, error)
            return LONGEST_PAUSE_SECONDS

    async def _join(self, membership: Membership, epoch: int) -> None:
        group, options = membership.group, membership.options
        if options is None:
            await self.connection.execute("ensure_group", (group, group))
        else:
            values = (group, options.tokens, options.hash, options.min_nodes, options.handover_timeout)
            await self.connection.execute("declare_group", values)
        self._routed -= set(membership.queues)
        await self._route_queues(membership, epoch)
        await self.connection.execute("join_group", (epoch, group))
        self._joined[group] = epoch
        self._joined_at.setdefault(group, self.clock())

    async def _route_queues(self, membership: Membership, epoch: int) -> None:
        """The node says first that it serves them: members that do not serve all queues of a group get no tokens."""
        queues = [queue for queue in membership.queues if queue not in self._routed]
        if queues:
            await self.connection.execute("extend_node", (epoch, "{}", queues))
        for queue in queues:
            await self.connection.execute("route_queue", (queue, membership.group))
            self._routed.add(queue)

    async def _follow(self, membership: Membership, epoch: int) -> float:
        state = await self._read(membership, epoch)
        if state.needs_leader is not None and await self._lead(membership.group, epoch):
            state = await self._read(membership, epoch)
        pause = self._wait_for_leader(membership.group, state)
        if state.moving:
            params = (epoch, membership.group, state.version)
            ((waiting,),) = await self.connection.execute("pass_tokens", params)
            pause = min(pause, PASS_AGAIN_SECONDS)
            if waiting < state.moving:
                self.wakeup.set()  # what it has passed on has changed the group
        if state.is_assigned:
            membership.ownership.note_assigned()
        age = self.clock() - self._joined_at[membership.group]
        is_leader = self.leadership.find_term(membership.group) is not None
        interval = membership.intervals.between_looks(age, is_leader=is_leader)
        return min(pause, interval, state.handover_timeout.total_seconds() / 3)

    def _wait_for_leader(self, group: str, state: _State) -> float:
        """Seconds until the next look. Some of the leader's work has to wait, for example for a transaction that is
        open; then the looks become rarer."""
        seen_version, looks = self._looks.get(group, (-1, 0))
        if state.needs_leader is None:
            self._looks.pop(group, None)
            return LONGEST_PAUSE_SECONDS
        looks = looks + 1 if seen_version == state.version else 0
        self._looks[group] = (state.version, looks)
        return min(MOST_LEAD_AGAIN_SECONDS, LEAD_AGAIN_SECONDS * 2.0 ** min(looks, 10))

    async def _read(self, membership: Membership, epoch: int) -> _State:
        ownership, asked = membership.ownership, self.clock()
        params = (epoch, membership.group, ownership.version, ownership.pins_version)
        ((*row,),) = await self.connection.execute("member_state", params)
        state = _State._make(row)
        if not state.is_member:
            raise NodeLost(f"the node with epoch {epoch} is not a member of {membership.group}")
        change = ownership.update(
            epoch=epoch,
            asked=asked,
            handover_timeout=state.handover_timeout.total_seconds(),
            total=state.total,
            hash=state.hash,
            version=state.version,
            tokens=state.tokens,
            pins_version=state.pins_version,
            pins=None if state.pin_keys is None else dict(zip(state.pin_keys, state.pin_tokens or (), strict=True)),
        )
        if change is not None:
            await self._report(membership, change, state.handover_timeout.total_seconds() / 2)
        return state

    async def _lead(self, group: str, epoch: int) -> bool:
        """Does the leader's work if this node leads; whether it has."""
        term = await self.leadership.win_term(group, epoch)
        if term is None:
            return False
        try:
            await self.connection.execute("rebalance", (group, term, epoch))
        except Refused as error:
            if not str(error).startswith("lock"):
                raise
            logger.info("Another node leads group %s now: %s", group, error)
            return False
        return True

    async def _forget(self, membership: Membership) -> None:
        change = membership.ownership.clear()
        if change is not None:
            await self._report(membership, change, self.lease / 3)

    async def _report(self, membership: Membership, change: Rebalance, longest: float) -> None:
        """Tells the program. Tokens are passed on when its callback has returned, or the time is up."""
        self.events.emit(
            "rebalance", group=change.group, gained=change.gained, lost=change.lost, version=change.version
        )
        if membership.on_rebalance is None:
            return
        try:
            async with asyncio.timeout(longest):
                result = await call_in_thread(membership.on_rebalance, change)
                if inspect.isawaitable(result):
                    await result
        except TimeoutError:
            logger.warning("on_rebalance of group %s runs for more than %g s; going on", change.group, longest)
        except (Exception, SystemExit):  # sys.exit() there must not end this node
            logger.exception("on_rebalance of group %s failed; its error is ignored", change.group)

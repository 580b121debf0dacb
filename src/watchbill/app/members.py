"""Members of a token group in a program, `with group.join() as member:`, and the items that they claim.

A member is a node of its own without queues, in this process: it registers, sends heartbeats and takes part in the
group, and leaves at the end of the block.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Protocol, Self

from watchbill.app.in_process_node import InProcessNode
from watchbill.app.producer import JobProducer, refuse_on_loop
from watchbill.client import cluster_operations
from watchbill.cluster.options import GroupOptions
from watchbill.cluster.ownership import Ownership
from watchbill.errors import WatchbillError
from watchbill.store.refusals import Invalid, NodeLost, StaleFence

if TYPE_CHECKING:
    from watchbill.client.operations import Operation

logger = logging.getLogger("watchbill.cluster")

Scope = str | date | None
MAX_KEY_BYTES = 1000


class JoinedGroup(Protocol):
    """The group, as its members use it."""

    @property
    def name(self) -> str: ...
    @property
    def options(self) -> GroupOptions: ...
    @property
    def producer(self) -> JobProducer: ...
    def declare(self) -> None: ...
    async def adeclare(self) -> None: ...


class ItemRefused(WatchbillError):
    """The item cannot be claimed: `not owned` by this member, `taken`, or `finished` in this scope."""

    def __init__(self, key: str, reason: str, node: str | None) -> None:
        holder = f", by {node}" if node and reason != "not owned" else ""
        super().__init__(f"Item {key!r} is {reason}{holder}.")
        self.key, self.reason, self.node = key, reason, node


@dataclass(repr=False)
class Item:
    """A claimed item. `with member.claim(key) as item:` finishes it, or releases it if the block raises."""

    key: str
    scope: str
    _member: Member
    again: bool = False
    fence: int = 0
    _ended: bool = False

    def __repr__(self) -> str:
        scope = f" of scope {self.scope!r}" if self.scope else ""
        state = "ended" if self._ended else f"held under fence {self.fence}" if self.fence else "not claimed"
        return f"<Item {self.key!r}{scope} of group {self._member.group.name!r}, {state}>"

    def check(self, connection: Any) -> None:
        """Keeps the item with this member until your transaction ends. Raises StaleFence if it was taken away, or if
        this node's lease may have ended."""
        self._member.group.producer.run_check(self._make_check(), connection)

    async def acheck(self, connection: Any) -> None:
        await self._member.group.producer.arun_check(self._make_check(), connection)

    def finish(self) -> None:
        """Records that the item is done. Raises StaleFence if it was taken away before."""
        self._end(self._member.group.producer.run_apart(self._make_end(released=False)))

    async def afinish(self) -> None:
        self._end(await self._member.group.producer.arun_apart(self._make_end(released=False)))

    def release(self) -> None:
        """Gives the item up, unfinished."""
        self._member.group.producer.run_apart(self._make_end(released=True))
        self._ended = True

    async def arelease(self) -> None:
        await self._member.group.producer.arun_apart(self._make_end(released=True))
        self._ended = True

    def __enter__(self) -> Self:
        with self._refuse_if_lost():
            self._begin(self._member.group.producer.run_apart(self._make_claim()))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._ended:
            (self.finish if kind is None else self.release)()

    async def __aenter__(self) -> Self:
        with self._refuse_if_lost():
            self._begin(await self._member.group.producer.arun_apart(self._make_claim()))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._ended:
            await (self.afinish if kind is None else self.arelease)()

    def _make_claim(self) -> Operation[list[cluster_operations.ItemClaimed]]:
        if not self._member.owns(self.key):
            raise ItemRefused(self.key, "not owned", None)
        member = self._member
        return cluster_operations.claim_items(member.epoch, member.group.name, [self.key], self.scope, again=self.again)

    @contextmanager
    def _refuse_if_lost(self) -> Iterator[None]:
        """The node may have been declared lost since it looked at its clock."""
        try:
            yield
        except NodeLost:
            raise ItemRefused(self.key, "not owned", None) from None

    def _begin(self, rows: list[cluster_operations.ItemClaimed]) -> None:
        (row,) = rows
        if row.fence is None:
            raise ItemRefused(self.key, row.refused or "taken", row.node)
        self.fence, self._ended = row.fence, False

    def _make_check(self) -> Operation[None]:
        if not self._member.is_healthy:
            raise StaleFence(f"Item {self.key!r} may not be held any more: the lease of this node may have ended.")
        return cluster_operations.check_item(self._member.group.name, self.key, self.fence, self.scope)

    def _make_end(self, *, released: bool) -> Operation[list[str]]:
        name = self._member.group.name
        return cluster_operations.finish_items(name, [self.key], [self.fence], self.scope, released=released)

    def _end(self, stale: list[str]) -> None:
        self._ended = True
        if stale:
            raise StaleFence(f"Item {self.key!r} is not held under fence {self.fence} any more.")


class Member:
    """This process in a token group. Use it inside `with group.join() as member:`, or `async with`."""

    def __init__(self, group: JoinedGroup, ownership: Ownership, node: InProcessNode, wait: float) -> None:
        self.group, self._ownership, self._running, self._wait = group, ownership, node, wait

    def __repr__(self) -> str:
        return f"<Member {self.name!r} of group {self.group.name!r} with {len(self.tokens):,} tokens>"

    def owns(self, key: object) -> bool:
        """Whether this node owns the key now. From memory; false as soon as its lease may have ended."""
        return self._ownership.owns(key if type(key) is str else _as_text(key))

    def claim(self, key: object, scope: Scope = None, *, again: bool = False) -> Item:
        """An exclusive, recorded claim of an item: `with member.claim(key, scope=today) as item:`. With a scope the
        item is finished once, unless you say `again`. Raises ItemRefused when the block is entered."""
        return Item(_check_size("key", _as_text(key)), _check_size("scope", scope_name(scope)), self, again)

    @property
    def tokens(self) -> frozenset[int]:
        """The tokens that this member owns now, pins included."""
        return self._ownership.tokens

    @property
    def version(self) -> int:
        """The version of the group that was read last."""
        return self._ownership.version

    @property
    def is_ready(self) -> bool:
        """Whether its first tokens have arrived."""
        return self._ownership.assigned.is_set()

    @property
    def is_healthy(self) -> bool:
        """Whether its lease lasts, and its tokens were read lately."""
        return self._ownership.is_current

    @property
    def is_leader(self) -> bool:
        """Whether this node leads the group, as far as it knows."""
        return self.is_healthy and self._running.node.find_term(self.group.name) is not None

    @property
    def heartbeat_age(self) -> float | None:
        """Seconds since the last heartbeat that the database has confirmed."""
        return self._ownership.heartbeat_age

    @property
    def name(self) -> str:
        """The name of its node."""
        return self._running.node.config.name

    @property
    def epoch(self) -> int:
        return self._running.node.worker.epoch

    def __enter__(self) -> Self:
        refuse_on_loop("with group.join():", "`async with group.join():`")
        self.group.declare()  # the node would only log a refusal, such as one of another number of tokens
        self._running.__enter__()
        if not self._ownership.assigned.wait(self._wait):
            self._warn_not_ready()
        return self

    def __exit__(self, kind: object, raised: BaseException | None, trace: object) -> None:
        self._running.__exit__(kind, raised, trace)

    async def __aenter__(self) -> Self:
        await self.group.adeclare()
        await self._running.__aenter__()
        assigned, loop = asyncio.Event(), asyncio.get_running_loop()
        self._ownership.when_assigned(lambda: _call_soon(loop, assigned.set))
        try:
            async with asyncio.timeout(self._wait):
                await assigned.wait()
        except TimeoutError:
            self._warn_not_ready()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._running.__aexit__(*error)

    def _warn_not_ready(self) -> None:
        logger.warning(
            "%s has joined group %s, but has no tokens after %g s. `watchbill groups` says what the group waits for",
            self.name, self.group.name, self._wait,
        )  # fmt: skip


class LocalMember(Member):
    """A member without coordination: this process owns everything, and its claims exclude only itself."""

    def __init__(self, group: JoinedGroup) -> None:
        self.group = group
        self.held: set[tuple[str, str]] = set()
        self.finished: set[tuple[str, str]] = set()

    def owns(self, key: object) -> bool:
        _as_text(key)
        return True

    def claim(self, key: object, scope: Scope = None, *, again: bool = False) -> Item:
        return LocalItem(_check_size("key", _as_text(key)), _check_size("scope", scope_name(scope)), self, again)

    @property
    def tokens(self) -> frozenset[int]:
        return frozenset(range(self.group.options.tokens))

    @property
    def version(self) -> int:
        return 0

    @property
    def is_ready(self) -> bool:
        return True

    @property
    def is_healthy(self) -> bool:
        return True

    @property
    def is_leader(self) -> bool:
        return True

    @property
    def heartbeat_age(self) -> None:
        return None

    @property
    def name(self) -> str:
        return "local"

    @property
    def epoch(self) -> int:
        return 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


class LocalItem(Item):
    """An item of a LocalMember. It is not recorded."""

    _member: LocalMember

    @property
    def _place(self) -> tuple[str, str]:
        return self.scope, self.key

    def check(self, connection: Any) -> None:
        if self._place not in self._member.held:
            raise StaleFence(f"Item {self.key!r} is not held any more.")

    async def acheck(self, connection: Any) -> None:
        self.check(connection)

    def finish(self) -> None:
        self.release()
        if self.scope:
            self._member.finished.add(self._place)

    async def afinish(self) -> None:
        self.finish()

    def release(self) -> None:
        self._member.held.discard(self._place)
        self._ended = True

    async def arelease(self) -> None:
        self.release()

    def __enter__(self) -> Self:
        is_held = self._place in self._member.held
        if is_held or (self._place in self._member.finished and not self.again):
            raise ItemRefused(self.key, "taken" if is_held else "finished", self._member.name)
        self._member.held.add(self._place)
        return self

    async def __aenter__(self) -> Self:
        return self.__enter__()


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function)


def _as_text(key: object) -> str:
    if key is None:
        raise TypeError("the key None is invalid: give a text, or a value whose text is the key")
    return str(key)


def _check_size(name: str, text: str) -> str:
    """Refuses what the database would refuse, also where no database is asked."""
    size = len(text.encode())
    if size > MAX_KEY_BYTES:
        raise Invalid(
            f"A {name} of {size} bytes is invalid: the limit is {MAX_KEY_BYTES}.",
            hint="Give a shorter text, such as a hash of it.",
        )
    return text


def scope_name(scope: Scope) -> str:
    """A scope as the database stores it."""
    return "" if scope is None else scope.isoformat() if isinstance(scope, date) else scope

"""Token groups for programs: `app.cluster.group(...)`, what it says of its tokens and items, and its pins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from watchbill.app.in_process_node import InProcessNode
from watchbill.app.json_round_trip import shorten
from watchbill.app.members import LocalMember, Member, Scope, scope_name
from watchbill.app.producer import JobProducer
from watchbill.client import cluster_operations
from watchbill.cluster.lease import Lease
from watchbill.cluster.options import GroupOptions, Intervals, Membership, OnRebalance
from watchbill.cluster.ownership import Ownership
from watchbill.model.cluster import GroupRecord, IncompleteItem, ItemRecord, PinRecord, RebalanceRecord, TokenOwner
from watchbill.model.durations import Duration, seconds

if TYPE_CHECKING:
    from watchbill.client.operations import Operation

MakeMember = Callable[[Lease, Membership, str | None], InProcessNode]
MakeMemberOfCell = Callable[[str | None, Lease, Membership, str | None], InProcessNode]  # the cell comes first


@dataclass(frozen=True)
class Group:
    """A token group. Nothing is sent to the database before the first call that needs it."""

    name: str
    options: GroupOptions
    producer: JobProducer
    _make_member: MakeMember = field(repr=False)
    coordination: bool = True

    def join(
        self,
        name: str | None = None,
        *,
        on_rebalance: OnRebalance | None = None,
        wait: Duration = 60.0,
        intervals: Intervals = Intervals(),  # noqa: B008  (it is frozen)
    ) -> Member:
        """This process as a member, for a block: `with group.join() as member:` or `async with`.

        The block starts as soon as the first tokens have arrived, or after `wait`. `name` is that of the node.
        `on_rebalance` is called with the tokens gained and lost; tokens go to their next owner when it has returned.
        `intervals` matter if notifications do not arrive.
        """
        if not self.coordination:
            return LocalMember(self)
        lease = Lease()
        ownership = Ownership(self.name, lease)
        membership = Membership(ownership, self.options, on_rebalance=on_rebalance, intervals=intervals)
        node = self._make_member(lease, membership, name)
        return Member(self, ownership, node, seconds(wait))

    def declare(self) -> None:
        """Makes the group in the database, or changes its options; a member does so when it joins."""
        self.producer.run_apart(cluster_operations.declare_group(self.name, self.options))

    async def adeclare(self) -> None:
        await self.producer.arun_apart(cluster_operations.declare_group(self.name, self.options))

    # -- These methods read the state of the group.

    def status(self) -> GroupRecord:
        """Members, leader, tokens and pins in numbers, and what the group waits for."""
        return self.producer.run_apart(cluster_operations.group(self.name))

    async def astatus(self) -> GroupRecord:
        return await self.producer.arun_apart(cluster_operations.group(self.name))

    def owners(self) -> list[TokenOwner]:
        """How many tokens each member owns."""
        return self.producer.run_apart(cluster_operations.token_owners(self.name))

    async def aowners(self) -> list[TokenOwner]:
        return await self.producer.arun_apart(cluster_operations.token_owners(self.name))

    def rebalances(self, limit: int = 100) -> list[RebalanceRecord]:
        """What moved when and why, the latest first."""
        return self.producer.run_apart(cluster_operations.rebalances(self.name, limit))

    async def arebalances(self, limit: int = 100) -> list[RebalanceRecord]:
        return await self.producer.arun_apart(cluster_operations.rebalances(self.name, limit))

    def audit(self, scope: Scope = None) -> list[ItemRecord]:
        """The items that were claimed in a scope, by key."""
        return self.producer.run_apart(cluster_operations.audit(self.name, scope_name(scope)))

    async def aaudit(self, scope: Scope = None) -> list[ItemRecord]:
        return await self.producer.arun_apart(cluster_operations.audit(self.name, scope_name(scope)))

    def incomplete(self, scope: Scope = None, *, older_than: Duration = 0) -> list[IncompleteItem]:
        """The items that were claimed in a scope at least so long ago, and are not finished."""
        operation = cluster_operations.incomplete(self.name, scope_name(scope), seconds(older_than))
        return self.producer.run_apart(operation)

    async def aincomplete(self, scope: Scope = None, *, older_than: Duration = 0) -> list[IncompleteItem]:
        operation = cluster_operations.incomplete(self.name, scope_name(scope), seconds(older_than))
        return await self.producer.arun_apart(operation)

    # -- These methods change the group.

    def rebalance(self) -> None:
        """Asks the leader to divide the tokens again."""
        self.producer.run_apart(cluster_operations.request_rebalance(self.name))

    async def arebalance(self) -> None:
        await self.producer.arun_apart(cluster_operations.request_rebalance(self.name))

    def pin(
        self,
        key: object,
        *places: str | Mapping[str, Any],
        reason: str | None = None,
        expires: Duration | None = None,
        created_by: str | None = None,
        append: bool = False,
    ) -> None:
        """Pins a key to nodes: each place is a LIKE pattern of node names, or labels. The first place that matches a
        member counts. Replaces the pin that the key has, or with `append` adds alternatives to it."""
        wanted = make_pins([(key, places, reason)])
        self.pin_many(wanted, expires=expires, created_by=created_by, append=append)

    async def apin(
        self,
        key: object,
        *places: str | Mapping[str, Any],
        reason: str | None = None,
        expires: Duration | None = None,
        created_by: str | None = None,
        append: bool = False,
    ) -> None:
        wanted = make_pins([(key, places, reason)])
        await self.apin_many(wanted, expires=expires, created_by=created_by, append=append)

    def pin_many(
        self,
        wanted: Iterable[Mapping[str, Any]],
        *,
        expires: Duration | None = None,
        created_by: str | None = None,
        append: bool = False,
    ) -> int:
        """Pins many keys in one statement; each element has key, pattern or labels, and optionally reason. Returns
        the number of keys."""
        return self.producer.run_apart(self._pin_many(wanted, expires, created_by, append))

    async def apin_many(
        self,
        wanted: Iterable[Mapping[str, Any]],
        *,
        expires: Duration | None = None,
        created_by: str | None = None,
        append: bool = False,
    ) -> int:
        return await self.producer.arun_apart(self._pin_many(wanted, expires, created_by, append))

    def _pin_many(
        self, wanted: Iterable[Mapping[str, Any]], expires: Duration | None, created_by: str | None, append: bool
    ) -> Operation[int]:
        length = None if expires is None else seconds(expires)
        if length is not None and not length > 0:
            raise ValueError(f"expires={expires!r} is invalid: give how long the pin lasts from now on, such as '30d'")
        return cluster_operations.pin(self.name, wanted, created_by=created_by, expires=length, append=append)

    def pins(self, key: object = None, *, created_by: str | None = None) -> list[PinRecord]:
        """The pins, by key; those without a matching node have `has_match` false."""
        return self.producer.run_apart(
            cluster_operations.pins(self.name, key=None if key is None else str(key), created_by=created_by)
        )

    async def apins(self, key: object = None, *, created_by: str | None = None) -> list[PinRecord]:
        return await self.producer.arun_apart(
            cluster_operations.pins(self.name, key=None if key is None else str(key), created_by=created_by)
        )

    def clear_pins(self, key: object = None, *, created_by: str | None = None) -> int:
        """Clears the pins of one key, of one creator, or all; returns how many keys."""
        return self.producer.run_apart(
            cluster_operations.clear_pins(self.name, key=None if key is None else str(key), created_by=created_by)
        )

    async def aclear_pins(self, key: object = None, *, created_by: str | None = None) -> int:
        return await self.producer.arun_apart(
            cluster_operations.clear_pins(self.name, key=None if key is None else str(key), created_by=created_by)
        )


def make_pins(pins: Iterable[tuple[object, Iterable[str | Mapping[str, Any]], str | None]]) -> list[dict[str, Any]]:
    """Pins as `pin_many` takes them, from keys, their places and reasons."""
    made = []
    for key, places, reason in pins:
        alternatives = list(places)
        if not alternatives or not all(place and isinstance(place, str | Mapping) for place in alternatives):
            raise ValueError(
                f"pin {shorten(key)} to {shorten(alternatives)} is invalid: each place is a pattern of node names such "
                "as 'gpu-%', or a dictionary of labels such as {'gpu': 'a100'}; give at least one"
            )
        made += [
            {"key": str(key), "reason": reason}
            | ({"pattern": place} if isinstance(place, str) else {"labels": dict(place)})
            for place in alternatives
        ]
    return made

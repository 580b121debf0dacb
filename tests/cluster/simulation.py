"""A seeded simulation of token groups: real SQL functions, real members, a given clock, and random interleavings.

Several members run as coroutines. Each of their statements is two turns: it is carried out, and its reply arrives. A
seed decides which coroutine has the next turn, when time passes, and which member joins, leaves, freezes or dies. So a
plan, a loss and a hand-over meet in every order that transactions allow, and a failure is repeated by its seed.

After every turn no key may have two owners, by what the members themselves would answer. All writes of an item are
recorded with their fences, as a user's transaction would write them; `check_journal` judges these records alone. In
the end, when the faults stop, every token must have a living owner, and the shares must be even.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any, NamedTuple

import psycopg

from tests.store.harness import T0, Db
from watchbill.cluster.hashing import token_of
from watchbill.cluster.lease import Lease
from watchbill.cluster.membership import Memberships
from watchbill.cluster.options import GroupOptions, Membership
from watchbill.cluster.ownership import Ownership
from watchbill.store.node_connection import classify_error
from watchbill.telemetry.events import Events

GROUP = "g"
LEASE_SECONDS = 10.0
HANDOVER_SECONDS = 8.0
TOTAL = 5
KEYS = [str(number) for number in range(12)]
OPTIONS = GroupOptions(TOTAL, handover_timeout=HANDOVER_SECONDS)
# The statements of a member, as calls of the functions behind them, by name and arguments.
STATEMENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "route_queue": ("route_queue", ("queue", "token_group")),
    "join_group": ("join_group", ("epoch", "token_group")),
    "leave_group": ("leave_group", ("epoch", "token_group")),
    "member_state": ("member_state", ("epoch", "token_group", "seen_version", "seen_pins")),
    "pass_tokens": ("pass_tokens", ("epoch", "token_group", "version")),
    "elect": ("elect", ("epoch", "groups")),
    "rebalance": ("rebalance", ("token_group", "term", "epoch")),
}


class Turn:
    """Gives the turn to another coroutine."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Write(NamedTuple):
    """A fenced write of an item: what a user's transaction has stored, in the order of commits."""

    key: str
    fence: int
    epoch: int


def check_journal(journal: Iterable[Write]) -> list[str]:
    """What is wrong with the recorded writes: a fence that two epochs used, or one that came after a later one."""
    faults, last = [], dict[str, Write]()
    for write in journal:
        before = last.get(write.key)
        if before is not None and write.fence < before.fence:
            faults.append(f"{write} came after {before}")
        if before is not None and write.fence == before.fence and write.epoch != before.epoch:
            faults.append(f"{write} has the fence of {before}")
        last[write.key] = write
    return faults


class Failure(AssertionError):
    """What the simulation has found."""


@dataclass
class SimulatedConnection:
    """Carries out the statements of a member on the given clock."""

    simulation: Simulation

    async def execute(self, query: str, params: Any = ()) -> list[tuple[Any, ...]]:
        await Turn()
        rows = self.simulation.run_statement(query, params)
        await Turn()
        return rows


@dataclass
class SimulatedNode:
    """One process."""

    simulation: Simulation
    name: str
    epoch: int = 0
    lease: Lease = field(default_factory=Lease)
    frozen_until: float = -1.0
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    running: dict[str, Coroutine[Any, Any, Any]] = field(default_factory=dict)
    items: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        clock = self.simulation.clock
        self.ownership = Ownership(GROUP, self.lease, clock)
        connection: Any = SimulatedConnection(self.simulation)
        self.memberships = Memberships(
            connection, self, self, Events(), [Membership(self.ownership, OPTIONS)], asyncio.Event(), LEASE_SECONDS,
            self.draining, clock,
        )  # fmt: skip

    async def beat(self) -> None:
        sent = self.simulation.clock()
        if not self.epoch:
            await Turn()
            try:
                epoch = self.simulation.call("register", name=self.name, lease=timedelta(seconds=LEASE_SECONDS))[0][0]
            except psycopg.Error:  # its own name is taken until the old epoch is declared lost
                return
            await Turn()
            self.epoch = epoch
            self.lease.begin(epoch, sent, LEASE_SECONDS)
            return
        epoch = self.epoch
        await Turn()
        try:
            self.simulation.call("heartbeat", epoch=epoch)
        except psycopg.Error:
            await Turn()
            if self.epoch == epoch:
                self.lease.end()
                self.epoch = 0
                self.items.clear()
            return
        await Turn()
        self.lease.renew(epoch, sent, LEASE_SECONDS)

    async def work(self) -> None:
        """Claims an item, writes it under its fence, and sometimes finishes it; a freeze may come anywhere."""
        key, random = self.simulation.random.choice(KEYS), self.simulation.random
        if not self.ownership.owns(key):
            return
        await Turn()
        if key not in self.items:
            try:
                ((_, fence, _, _),) = self.simulation.call(
                    "claim_items", epoch=self.epoch, token_group=GROUP, keys=[key]
                )
            except psycopg.Error:
                return
            await Turn()
            if fence is None:
                return
            self.items[key] = fence
        fence, epoch = self.items[key], self.epoch
        await Turn()
        try:
            self.simulation.call("check_item", token_group=GROUP, key=key, fence=fence)
        except psycopg.Error:
            self.items.pop(key, None)
        else:
            self.simulation.journal.append(Write(key, fence, epoch))
            if random.random() < 0.7:
                await Turn()
                self.simulation.call("finish_items", token_group=GROUP, keys=[key], fences=[fence])
                self.items.pop(key, None)

    async def win_term(self, group: str, epoch: int) -> int | None:
        """As an Elector does."""
        await Turn()
        ((_, leader, term, _, _),) = self.simulation.run_statement("elect", (epoch, [group]))
        await Turn()
        return term if leader == epoch else None

    def find_term(self, group: str) -> int | None:
        """Only the length of pauses depends on it, and here steps take none."""
        return None

    def step(self, what: str) -> None:
        """One turn of one of its coroutines."""
        if what not in self.running:
            starts: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
                "look": self.memberships.run, "beat": self.beat, "work": self.work,
            }  # fmt: skip
            self.running[what] = starts[what]()
        try:
            self.running[what].send(None)
        except StopIteration:
            del self.running[what]

    def finish_look(self) -> None:
        """Whole looks, until one is done."""
        self.step("look")
        while "look" in self.running:
            self.step("look")

    def close(self) -> None:
        for coroutine in self.running.values():
            coroutine.close()
        self.running.clear()


class Simulation:
    """`run()` raises Failure, with the seed, if a promise is broken."""

    def __init__(self, db: Db, seed: int) -> None:
        self.db, self.seed, self.random = db, seed, Random(seed)
        self.seconds = 0.0
        self.nodes: list[SimulatedNode] = []
        self.journal: list[Write] = []
        self.events: list[str] = []
        self._names = iter(range(10_000))

    def clock(self) -> float:
        return self.seconds

    def call(self, function: str, **arguments: Any) -> list[Any]:
        self.db.now = T0 + timedelta(seconds=self.seconds)
        return self.db.call(function, **arguments)

    def run_statement(self, query: str, params: Any) -> list[tuple[Any, ...]]:
        self.events.append(f"{self.seconds:.1f} {query} {params}")
        try:
            if query == "declare_group":
                return []
            function, names = STATEMENTS[query]
            return [tuple(row) for row in self.call(function, **dict(zip(names, params, strict=True)))]
        except psycopg.Error as error:
            raise classify_error(error) from error

    def run(self, steps: int = 120) -> None:
        self.db.wipe()
        self.call("declare_group", name=GROUP, total=TOTAL, handover_timeout=timedelta(seconds=HANDOVER_SECONDS))
        try:
            for _ in range(self.random.randint(1, 3)):
                self._add_node()
            for _ in range(steps):
                self._act()
                self._check_owners()
            self._settle()
            faults = check_journal(self.journal)
            self._require(not faults, "; ".join(faults))
        finally:
            for node in self.nodes:
                node.close()

    def _act(self) -> None:
        choices: list[tuple[int, Callable[[], None]]] = [
            (60, self._step_node),
            (14, self._pass_time),
            (3, self._add_node),
            (2, self._leave),
            (2, self._kill),
            (3, self._freeze),
            (6, self._reclaim),
            (2, self._pin),
            (1, self._clear_pins),
        ]
        self.random.choices([act for _, act in choices], [weight for weight, _ in choices])[0]()

    def _awake(self) -> list[SimulatedNode]:
        return [node for node in self.nodes if node.frozen_until <= self.seconds]

    def _step_node(self) -> None:
        if awake := self._awake():
            node = self.random.choice(awake)
            for _ in range(self.random.choice((1, 1, 2, 8))):
                node.step(self.random.choice(("look", "look", "beat", "work")) if node.epoch else "beat")
                self._check_owners()

    def _pass_time(self) -> None:
        self.seconds += self.random.choice((0.1, 1.0, 3.0, 6.0))

    def _add_node(self) -> None:
        if len(self.nodes) < 5:
            node = SimulatedNode(self, f"node-{next(self._names)}")
            self.nodes.append(node)

    def _leave(self) -> None:
        if awake := [node for node in self._awake() if node.epoch]:
            node = self.random.choice(awake)
            self.events.append(f"{self.seconds:.1f} {node.name} leaves")
            node.close()
            node.lease.end()
            self.call("leave", epoch=node.epoch)
            self.nodes.remove(node)

    def _kill(self) -> None:
        if self.nodes:
            node = self.random.choice(self.nodes)
            self.events.append(f"{self.seconds:.1f} {node.name} dies")
            node.close()
            self.nodes.remove(node)

    def _freeze(self) -> None:
        if awake := self._awake():
            node = self.random.choice(awake)
            node.frozen_until = self.seconds + self.random.choice((2.0, 9.0, 15.0, 40.0))
            self.events.append(f"{self.seconds:.1f} {node.name} freezes until {node.frozen_until:.1f}")

    def _reclaim(self) -> None:
        beats = {row.epoch: row.n for row in self.db.rows("beats")}
        self.call("reclaim", epochs=list(beats), beats_seen=list(beats.values()))

    def _pin(self) -> None:
        pattern = f"node-{self.random.randrange(6)}"
        wanted = [{"key": self.random.choice(KEYS), "pattern": pattern}, {"key": KEYS[0], "pattern": "node-%"}]
        self.call("pin", token_group=GROUP, wanted=wanted)

    def _clear_pins(self) -> None:
        self.call("clear_pins", token_group=GROUP)

    def _check_owners(self) -> None:
        for key in KEYS:
            owners = [node.name for node in self.nodes if node.ownership.owns(key)]
            self._require(len(owners) <= 1, f"key {key} has the owners {owners}")

    def _settle(self) -> None:
        """No more faults: within lease, hand-over and a few looks everything has to be in order."""
        for node in self.nodes:
            node.frozen_until = -1.0
        if not self.nodes:
            self._add_node()
        self.call("clear_pins", token_group=GROUP)
        last_fault = self.seconds
        for _ in range(40):
            self.seconds += 2.0
            self._reclaim()
            for node in self.nodes:
                self._settle_node(node)
            self._check_owners()
            if self.seconds > last_fault + LEASE_SECONDS and self._is_settled():
                break
        living = {node.epoch for node in self.nodes}
        tokens = self.db.rows("tokens", "token")
        self._require({row.epoch for row in tokens} <= living, f"tokens are stranded: {tokens}")
        self._require(not [row for row in tokens if row.next is not None], f"tokens still move: {tokens}")
        counts = Counter(row.epoch for row in tokens)
        self._require(sum(counts.values()) == TOTAL, f"{counts} are not all tokens")
        self._require(max(counts.values()) - min(counts[epoch] for epoch in living) <= 1, f"{counts} is uneven")
        for key in KEYS:
            owner = next(row.epoch for row in tokens if row.token == token_of(key, TOTAL))
            names = [node.epoch for node in self.nodes if node.ownership.owns(key)]
            self._require(names == [owner], f"key {key} is owned by {names}, not by {owner}")

    def _is_settled(self) -> bool:
        """Whether every member has read a state of the group in which nothing is left to do."""
        if not all(node.epoch for node in self.nodes):
            return False
        states = [self.call("member_state", epoch=node.epoch, token_group=GROUP)[0] for node in self.nodes]
        return not any(state.needs_leader or state.moving for state in states) and all(
            (node.ownership.version, node.ownership.pins_version) == (state.version, state.pins_version)
            and state.is_assigned
            for node, state in zip(self.nodes, states, strict=True)
        )

    def _settle_node(self, node: SimulatedNode) -> None:
        node.step("beat")
        while "beat" in node.running:
            node.step("beat")
        if node.epoch:
            node.finish_look()
        for key, fence in list(node.items.items()):
            self.call("finish_items", token_group=GROUP, keys=[key], fences=[fence])
            del node.items[key]

    def _require(self, condition: bool, what: str) -> None:
        if not condition:
            last = "\n  ".join(self.events[-40:])
            raise Failure(f"seed {self.seed}, after {self.seconds:.1f} s: {what}\n  {last}")

"""Kinds of slots that are few and held for long, so that others need not wait for them.

A claim takes jobs in their order. If the first of them are for threads, and all threads are busy, they would be claimed
and given back again and again, and whatever stands behind them would wait, though it could run on the loop this moment.
So a kind whose jobs have waited here in vain is scarce: nothing is claimed ahead any more, and while it has no slot its
types are left in the queue. It is scarce no longer when a claim finds nothing of it, or its slots change hands quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from watchbill.worker.handlers import Handlers, Kind
from watchbill.worker.run import Claimed, Run

QUICK = 1.0  # seconds


class Scarcity:
    """`free_of` tells how many more of a kind could start."""

    def __init__(self, handlers: Handlers, free_of: Callable[[Kind], int]) -> None:
        self._free_of = free_of
        self._types: Mapping[Kind, list[str]] = {
            kind: [name for name, handler in handlers.items() if handler.kind == kind]
            for kind in ("async", "thread", "process")
        }
        self._kind_of: Mapping[str, Kind] = {name: handler.kind for name, handler in handlers.items()}
        self.kinds: set[Kind] = set()
        self.on_slot: Callable[[], None] = lambda: None  # one of these is free again

    def limit(self, wanted: int, free: int) -> int:
        """Not more of all kinds than one of the scarce ones could take."""
        return min([wanted, free, *(places for kind in self.kinds if (places := self._free_of(kind)) > 0)])

    def without(self) -> list[str]:
        """Types to leave in the queue."""
        return [name for kind in self.kinds if self._free_of(kind) <= 0 for name in self._types[kind]]

    def saw(self, rows: list[Claimed], wanted: int) -> None:
        """What a claim of all types has found."""
        if self.kinds:
            self.kinds &= {self._kind_of.get(row.type, "async") for row in rows} if len(rows) == wanted else set()

    def ended(self, run: Run) -> None:
        if run.age < QUICK:
            self.kinds.discard(run.handler.kind)
        self.on_slot()

"""Which types a worker leaves in the queue, because it cannot run more of them now.

If the first jobs of a queue need threads and all threads are busy, they would be claimed and released again and again,
while jobs behind them could run on the loop. So a kind of handler slots whose jobs have waited on this node too long is
short: the node claims no job ahead, and while no handler slot of that kind is free it leaves the types of that kind in
the queue. The shortage ends when a claim finds no job of that kind, or when handler slots of that kind are freed
quickly.

A task with `max_per_node` is short in the same way once more of its jobs were claimed than it may run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from watchbill.worker.handlers import Handlers, SlotKind
from watchbill.worker.run import Claimed

QUICK_RUN_SECONDS = 1.0  # a run that takes less time ends the shortage of its kind of handler slots


class SlotShortage:
    """Knows the kinds of handler slots, and the types with `max_per_node`, for which jobs have waited too long."""

    def __init__(self) -> None:
        self.kinds: set[SlotKind] = set()  # kinds of handler slots for which jobs have waited here too long
        self.types: set[str] = set()  # tasks with max_per_node of which more jobs were claimed than may run
        self._handlers: dict[str, tuple[SlotKind, str]] = {}  # by type or alias: kind, and the type of the task

    def add_handlers(self, handlers: Handlers) -> None:
        self._handlers |= {name: (handler.slot_kind, handler.type) for name, handler in handlers.items()}

    def limit(self, wanted: int, free_by_kind: Mapping[SlotKind, int], room_by_type: Mapping[str, int]) -> int:
        """Returns how many of the wanted jobs to claim: all of them may be of one kind or type that is short."""
        room = [free_by_kind[kind] for kind in self.kinds] + [room_by_type.get(name, 0) for name in self.types]
        return min([wanted, *(count for count in room if count > 0)])

    def find_excluded_types(self, free_by_kind: Mapping[SlotKind, int], room_by_type: Mapping[str, int]) -> list[str]:
        kinds = {kind for kind in self.kinds if free_by_kind[kind] <= 0}
        types = {name for name in self.types if room_by_type.get(name, 0) <= 0}
        if not kinds and not types:
            return []
        return [name for name, (kind, task) in self._handlers.items() if kind in kinds or task in types]

    def note_answer(self, rows: Sequence[Claimed], *, is_full: bool) -> None:
        """Ends the shortage of each kind of which a claim that excluded no type found no job. If `is_full`, the claim
        brought all jobs that it asked for, so that more of any kind may be in the queue."""
        found = [self._handlers.get(row.type, ("async", "")) for row in rows] if is_full else []
        self.kinds &= {kind for kind, _ in found}
        self.types &= {task for _, task in found}

    def note_freed_slot(self, kind: SlotKind, seconds: float) -> None:
        """Ends the shortage of this kind of handler slots if the run that freed one took only a few `seconds`."""
        if seconds < QUICK_RUN_SECONDS:
            self.kinds.discard(kind)

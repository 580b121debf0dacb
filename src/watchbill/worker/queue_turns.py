"""Queues with weights (`--queues mail:3,default:1`): in which order a claim reads them.

A claim reads queues in the order given, and goes on to the next only when it has not found enough jobs. So a worker
puts the queue first that got the fewest jobs so far for its weight. A queue that was empty does not catch up later."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from watchbill.errors import SettingsError
from watchbill.worker.run import Claimed

LARGEST_WEIGHT = 1000
_WEIGHTED = re.compile(r"(.+):(\d+)")
_MEANT_AS_WEIGHT = re.compile(r".*:[-+.\d]*")  # also of mail:-1, mail:1.5 and :3


def split_weights(queues: Sequence[str]) -> tuple[tuple[str, ...], dict[str, int]]:
    """Splits texts such as `mail:3`. Returns the names of the queues, and their weights; none if no text has one."""
    found: dict[str, int] = {}
    for queue in queues:
        match = _WEIGHTED.fullmatch(queue)
        if match and 1 <= int(match[2]) <= LARGEST_WEIGHT:
            found[match[1]] = int(match[2])
        elif _MEANT_AS_WEIGHT.fullmatch(queue):
            raise SettingsError(
                f"Queue {queue} is invalid: a weight is a whole number from 1 to {LARGEST_WEIGHT}.",
                hint="Leave the queue out if this worker should not serve it.",
            )
    names = tuple(match[1] if (match := _WEIGHTED.fullmatch(queue)) else queue for queue in queues)
    for name in names:
        if names.count(name) > 1:
            raise SettingsError(f"Queue {name} is named twice.", hint="Name each queue once, with one weight.")
    return names, {name: found.get(name, 1) for name in names} if found else {}


class QueueTurns:
    """Chooses the order of the queues for each claim."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = dict(weights)
        self._given = dict.fromkeys(weights, 0.0)  # by queue: jobs claimed so far, divided by the weight
        self._order = list(weights)

    def choose_order(self, queues: Iterable[str]) -> list[str]:
        """Returns the queues in the order in which the next claim reads them. A queue that was declared after the start
        has the weight 1."""
        for queue in queues:
            if queue not in self._weights:
                self._weights[queue], self._given[queue] = 1, min(self._given.values(), default=0.0)
        self._order = sorted(self._given, key=lambda queue: self._given[queue])
        return list(self._order)

    def note_answer(self, rows: Sequence[Claimed], wanted: int) -> None:
        """Counts the jobs that the last claim brought, by queue. All queues before the last one with a job are empty
        now, and all queues are empty if the claim found less than it wanted."""
        for row in rows:
            self._given[row.queue] = self._given.get(row.queue, 0.0) + 1 / self._weights.get(row.queue, 1)
        is_full = bool(rows) and len(rows) >= wanted
        last = max((self._order.index(row.queue) for row in rows if row.queue in self._order), default=0)
        waiting = self._order[last:] if is_full else []
        least = min((self._given[queue] for queue in waiting), default=0.0)
        for queue in self._order:
            if not waiting:
                self._given[queue] = 0.0
            elif queue not in waiting:
                self._given[queue] = max(self._given[queue], least)

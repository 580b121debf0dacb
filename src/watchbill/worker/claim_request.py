"""The request for one claim: `Claiming` makes it, and `Claimer` sends it to the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from watchbill.postgres.arrays import int2s, texts, times, uuids

Key = tuple[str, int]  # queue and priority, for each of which a claim has its own position
Position = tuple[int, bytes]  # the last job that a claim has read: its run_at in microseconds since 2000, and its id


class Request(NamedTuple):
    """The parameters of one claim."""

    wanted: int
    free: int  # how many of the jobs could start at once; a job with one attempt is claimed only if it can start
    is_quarantine: bool = False
    positions: dict[Key, Position] | None = None  # where the claim starts to read; None means at the top
    excluded_types: Sequence[str] = ()  # types whose jobs the claim leaves in the queue
    needs_server_time: bool = False  # whether to ask for the server's time and the number of nodes before the claim


def encode_positions(positions: dict[Key, Position]) -> tuple[object, ...]:
    """Encodes positions as four arrays, high priorities first: the statement reads the index in this order."""
    ordered = sorted(positions.items(), key=lambda item: -item[0][1])
    return (
        texts([queue for (queue, _), _ in ordered]),
        int2s([priority for (_, priority), _ in ordered]),
        times([at for _, (at, _) in ordered]),
        uuids([job_id for _, (_, job_id) in ordered]),
    )

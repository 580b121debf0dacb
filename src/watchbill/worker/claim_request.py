"""The request for one claim: `Claiming` makes it, and `Claimer` sends it to the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Key = tuple[str, int]  # queue and priority
Position = tuple[int, bytes]  # run_at in microseconds since 2000, and id


class Request(NamedTuple):
    """The parameters of one claim."""

    wanted: int
    free: int  # how many of the jobs could start at once; a job with one attempt is claimed only if it can start
    is_quarantine: bool = False
    positions: dict[Key, Position] | None = None  # where the claim starts to read; None means at the top
    excluded_types: Sequence[str] = ()  # types whose jobs the claim leaves in the queue
    needs_server_time: bool = False  # whether to ask for the server's time and the number of nodes before the claim

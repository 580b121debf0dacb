"""What `Claiming` decides, and `Claimer` sends: one claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Key = tuple[str, int]  # queue and priority
Position = tuple[int, bytes]  # run_at in microseconds since 2000, and id


class Request(NamedTuple):
    """One claim to send."""

    wanted: int
    free: int  # how many of them could start now; jobs with one attempt are not claimed ahead
    is_quarantine: bool = False
    positions: dict[Key, Position] | None = None  # where to start; None: at the top
    excluded_types: Sequence[str] = ()  # left in the queue
    needs_server_time: bool = False  # ask for the server's time and the number of nodes first

"""How many jobs with limit keys a worker claims ahead.

A claimed job holds its keys until its ending is stored. A worker that claims ahead would meet the keys of its own jobs.
The server sets each such job aside, and makes it ready again later, which costs more than to run it. So while most of
the jobs that a worker gets have limit keys, a window says how many jobs may be claimed and not yet stored. A claim that
finds fewer jobs than it asked for shows how many keys there are. Each claim that finds all lets the window grow a
little, in case there are more.

A claim asks for a part of the window, so that the jobs of one part are claimed while those of another run, and those of
a third are stored.
"""

from __future__ import annotations

PARTS = 4  # a claim asks for one of so many equal parts of the window
GROWTH = 1 / 16  # of the window, with each claim that finds all


class KeyWindow:
    """The number of jobs that a worker may have claimed; see the head of this file."""

    def __init__(self) -> None:
        self.is_needed = False  # most of the last jobs had limit keys
        self.size: int | None = None  # None: no claim was too large so far

    def limit(self, wanted: int, startable: int, claimed: int, being_stored: int) -> int:
        """Returns how many of the wanted jobs to claim. Jobs that are being stored will free their keys in a moment, so
        it is worth to wait for them; otherwise free handler slots are filled."""
        if self.size is None:
            return wanted
        room, part = self.size - claimed, 1 + self.size // PARTS
        if being_stored:
            return min(wanted, part) if room >= part else 0
        return min(wanted, max(startable, min(room, part)))

    def note_answer(self, wanted: int, found: int, limited: int, claimed: int) -> None:
        """Learns from a claim that found so many jobs, `limited` of them with limit keys, while so many others were
        claimed and not stored."""
        if found:
            self.is_needed = 2 * limited >= found
        if not self.is_needed or (not found and not claimed):
            self.size = None
        elif found < wanted:
            self.size = claimed + found
        elif self.size is not None:
            self.size += 1 + int(self.size * GROWTH)

"""Runs the agenda: what is compared takes turns, so that what changes on the machine changes for all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import psycopg

from benchmarks.agenda import Measure
from benchmarks.contestant import Contestant, Failed
from benchmarks.machine import wait_until_quiet
from benchmarks.measures.sizes import Run, Sizes
from benchmarks.peers import PEERS, Peer

MORE = 3  # runs that may be repeated because others disturbed them
FAILURES = 2  # after which a peer is given up
WHOLE = 0.4  # of the jobs must have been timed; less, and one worker did it all before the other had begun
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Care:
    """How often each is run, how many seconds a quiet machine is waited for, how many cores others may use."""

    repeat: int = 3
    patience: float = 60.0
    tolerance: float = 0.3


class Turn(NamedTuple):
    """One peer in one measure."""

    measure: Measure
    peer: str

    def wanted(self, care: Care) -> int:
        return min(care.repeat, self.measure.repeat)


def is_disturbed(run: Run) -> bool:
    return bool(run.get("disturbed"))


def take_rounds(turns: Sequence[Turn], sizes: Sizes, care: Care, tell: Tell) -> dict[Turn, list[Run]]:
    """The runs of each, those that count: undisturbed ones as far as there are enough."""
    runs: dict[Turn, list[Run]] = {turn: [] for turn in turns}
    failures = dict.fromkeys(turns, 0)
    for _ in range(care.repeat + MORE):
        for turn in turns:
            if failures[turn] < FAILURES and sum(not is_disturbed(run) for run in runs[turn]) < turn.wanted(care):
                run = _one(turn.measure, PEERS[turn.peer], sizes, care, tell)
                runs[turn] += [run] if run else []
                failures[turn] += run is None
    return {turn: sorted(done, key=is_disturbed)[: turn.wanted(care)] for turn, done in runs.items() if done}


def _one(measure: Measure, peer: Peer, sizes: Sizes, care: Care, tell: Tell) -> Run | None:
    wait_until_quiet(care.patience)
    try:
        with Contestant(peer) as contestant:
            run = measure.run(contestant, sizes)
    except (Failed, psycopg.Error, OSError) as error:
        tell(f"{measure.name:10} {peer.name:16} failed: {error}")
        return None
    run["disturbed"] = run.get("other_cpu", 0) > care.tolerance or run.get("timed_share", 1) < WHOLE
    mark = "  disturbed" if is_disturbed(run) else ""
    tell(f"{measure.name:10} {peer.name:16} {measure.figure} {run[measure.figure]:,.2f}{mark}")
    return run


def middle(runs: Sequence[Run]) -> Run:
    """The median of each figure."""
    return {key: median(run[key] for run in runs if key in run) for key in runs[0] if key != "disturbed"}

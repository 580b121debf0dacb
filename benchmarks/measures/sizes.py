"""How much of everything; the command line can ask for less, to try the harness out."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.peers import Peer

Run = dict[str, float]


@dataclass(frozen=True)
class Sizes:
    """None: as much as the peer is given in peers.py."""

    jobs: int | None = None
    singles: int | None = None
    samples: int | None = None
    gap: int = 20  # milliseconds between two samples of the idle pick-up
    churn: int = 200_000
    window: float = 15.0  # seconds of a drain after churn
    depth: int = 10_000_000
    shallow: int = 10_000

    def jobs_of(self, peer: Peer) -> int:
        return self.jobs or peer.jobs

    def singles_of(self, peer: Peer) -> int:
        return self.singles or peer.singles

    def samples_of(self, peer: Peer) -> int:
        return self.samples or peer.samples

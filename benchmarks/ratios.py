"""Ours to each peer, and each queue under an old snapshot to itself without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.agenda import MEASURES
from benchmarks.goals import Medians
from benchmarks.peers import OURS, PEERS


class Ratio(NamedTuple):
    """Of rates more is better, of milliseconds less."""

    text: str
    value: float
    less_is_better: bool = False

    def __str__(self) -> str:
        return f"{self.text} = {self.value:.2f}" + ("  (less is better)" if self.less_is_better else "")


def ratios(medians: Medians) -> Iterator[Ratio]:
    for name, peers in medians.items():
        figure, ours = MEASURES[name].figure, MEASURES[name].peers[0]
        for peer, run in peers.items():
            if ours in peers and PEERS[peer].adapter != OURS and run[figure]:
                yield Ratio(f"{name}: {ours} / {peer}", peers[ours][figure] / run[figure], figure != "rate")
    clean = medians.get("clean", {})
    for peer, run in medians.get("held", {}).items():
        if clean.get(peer, {}).get("rate"):
            yield Ratio(f"held / clean: {peer}", run["rate"] / clean[peer]["rate"])

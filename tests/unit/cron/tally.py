"""Counts what a strategy drew, so that a run can show what it covered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from textwrap import fill


class Tally:
    def __init__(self, name: str) -> None:
        self.name = name
        self.cases = 0
        self.undecided = 0
        self._counts: Counter[str] = Counter()

    def add(self, drawn: Iterable[str]) -> None:
        self.cases += 1
        self._counts.update(drawn)

    @property
    def shares(self) -> dict[str, float]:
        """In how many of 100 cases each thing was drawn, the rarest first."""
        return {name: 100 * count / self.cases for name, count in reversed(self._counts.most_common())}

    def report(self) -> str:
        shares = ", ".join(f"{name} {share:.1f}" for name, share in self.shares.items())
        head = f"{self.name}: {self.cases} cases, {self.undecided} too long for the oracle; drawn in % of them:"
        return f"\n{head}\n{fill(shares, 118, initial_indent='  ', subsequent_indent='  ')}"

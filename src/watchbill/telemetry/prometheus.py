"""Writes metrics in the text format of Prometheus. The format is a few rules, so it needs no library."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Histogram:
    """Counts values by size. One thread adds, others may read: what they read may be one value behind."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def list_series(self, labels: Mapping[str, str]) -> Iterator[tuple[str, Mapping[str, str], float]]:
        """Yields the end of a name, labels and a value."""
        sums = list(accumulate(self._counts))
        for bound, number in zip((*(f"{bound:g}" for bound in self._bounds), "+Inf"), sums, strict=True):
            yield "_bucket", {**labels, "le": bound}, number
        yield "_sum", labels, self._sum
        yield "_count", labels, sums[-1]


class Summary(NamedTuple):
    """How many values there were, and their sum."""

    number: int = 0
    total: float = 0.0

    def plus(self, value: float) -> Summary:
        return Summary(self.number + 1, self.total + value)

    def list_series(self, labels: Mapping[str, str]) -> Iterator[tuple[str, Mapping[str, str], float]]:
        yield "_sum", labels, self.total
        yield "_count", labels, self.number


class Family(NamedTuple):
    """A metric and its series: pairs of labels and value. The text of a counter's name ends in `_total`."""

    name: str
    kind: Literal["counter", "gauge", "histogram", "summary"]
    meaning: str
    series: Iterable[tuple[Mapping[str, str], float | Histogram | Summary]]


def write_metrics(families: Iterable[Family]) -> str:
    return "".join(_write_family(family) for family in families)


def merge_metrics(texts: Mapping[str, str], label: str) -> str:
    """Joins what several processes have written with `write_metrics`, each text by the value of a further label."""
    heads: dict[str, list[str]] = {}
    series: dict[str, list[str]] = {}
    for value, text in texts.items():
        name = ""
        for line in text.splitlines():
            if line.startswith("# HELP "):
                name = line.split(" ", 3)[2]
                heads.setdefault(name, [])
            if line.startswith("#"):
                heads[name] += [line] if line not in heads[name] else []
            else:
                series.setdefault(name, []).append(_add_label(line, f'{label}="{value.translate(_ESCAPES)}"'))
    return "".join(f"{line}\n" for name, head in heads.items() for line in (*head, *series.get(name, ())))


def _add_label(line: str, pair: str) -> str:
    name, brace, rest = line.partition("{")
    if brace and " " not in name:
        return f"{name}{{{pair},{rest}"
    name, _, value = line.partition(" ")
    return f"{name}{{{pair}}} {value}"


def _write_family(family: Family) -> str:
    lines = [f"# HELP {family.name} {family.meaning}", f"# TYPE {family.name} {family.kind}"]
    for labels, value in family.series:
        parts = value.list_series(labels) if isinstance(value, Histogram | Summary) else [("", labels, value)]
        lines += [f"{family.name}{end}{_write_labels(named)} {_write_number(number)}" for end, named, number in parts]
    return "\n".join(lines) + "\n"


def _write_labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _write_number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)

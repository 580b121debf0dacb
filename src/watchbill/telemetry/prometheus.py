"""Writes metrics in the text format of Prometheus. The format is a few rules, so it needs no library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Family(NamedTuple):
    """A metric and its series: pairs of labels and value. The text of a counter's name ends in `_total`."""

    name: str
    kind: Literal["counter", "gauge"]
    meaning: str
    series: Iterable[tuple[Mapping[str, str], float]]


def write_metrics(families: Iterable[Family]) -> str:
    return "".join(_write_family(family) for family in families)


def _write_family(family: Family) -> str:
    lines = [f"# HELP {family.name} {family.meaning}", f"# TYPE {family.name} {family.kind}"]
    lines += [f"{family.name}{_write_labels(labels)} {_write_number(value)}" for labels, value in family.series]
    return "\n".join(lines) + "\n"


def _write_labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _write_number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)

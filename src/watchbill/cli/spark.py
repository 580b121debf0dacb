"""Draws numbers as small charts of one line, for terminals: `▁▁▃▆█` and `████░░░░`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

_LEVELS = "▁▂▃▄▅▆▇█"  # the lowest one is 0 only, so that a single job is seen


def draw_spark(numbers: Sequence[float], width: int, *, most: float | None = None) -> str:
    """Draws numbers side by side. If there are more than columns, a column shows the largest of its numbers. The
    highest level is `most`, or else the largest number."""
    if not numbers or width < 1:
        return ""
    columns = min(width, len(numbers))
    bounds = [len(numbers) * place // columns for place in range(columns + 1)]
    shown = [max(numbers[first:end]) for first, end in pairwise(bounds)]
    top = max(shown) if most is None else most
    return "".join(_LEVELS[_find_level(number, top)] for number in shown)


def _find_level(number: float, top: float) -> int:
    if number <= 0 or top <= 0:
        return 0
    return min(1 + int(number / top * (len(_LEVELS) - 1)), len(_LEVELS) - 1)


def draw_bar(part: float, whole: float, width: int) -> str:
    """Draws how much of the whole a part is. A part above 0 has at least one block."""
    full = 0 if whole <= 0 or part <= 0 else min(max(1, round(part / whole * width)), width)
    return "█" * full + "░" * (width - full)

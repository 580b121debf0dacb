"""Formats small pieces of English: lists, ordinals, spans of numbers and of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
NTH = ("first", "second", "third", "fourth", "fifth")

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def join_words(items: Sequence[str], word: str = "and") -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {word} {items[-1]}"


def format_ordinal(number: int) -> str:
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def pluralize(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"


def format_count(count: int, noun: str) -> str:
    return f"{count} {pluralize(count, noun)}"


def format_duration(seconds: int) -> str:
    """Returns a duration as a text such as `1 hour`, `90 seconds` or `1 day 12 hours`."""
    for size, noun in _UNITS:
        if seconds % size == 0 and (seconds // size < 100 or size == 86_400):
            return format_count(seconds // size, noun)
    parts = []
    for size, noun in _UNITS:
        count, seconds = divmod(seconds, size)
        parts += [format_count(count, noun)] if count else []
    return " ".join(parts)


def format_interval(seconds: int) -> str:
    """Returns a text such as `every hour` or `every 90 seconds`."""
    text = format_duration(seconds)
    return f"every {text.removeprefix('1 ') if ' ' not in text.removeprefix('1 ') else text}"


def find_even_step(values: Sequence[int]) -> int | None:
    """Returns the distance between neighbouring values, if it is always the same and there are at least three values;
    otherwise None."""
    if len(values) < 3:
        return None
    step = values[1] - values[0]
    return step if all(later - earlier == step for earlier, later in pairwise(values)) else None


def shorten_runs(values: Sequence[int], name: Callable[[int], str] = str) -> list[str]:
    """Writes three or more values in a row as one text: 1, 2, 5, 6, 7 become `1`, `2`, `5 to 7`."""
    found: list[list[int]] = []
    for value in values:
        if found and value == found[-1][-1] + 1:
            found[-1].append(value)
        else:
            found.append([value])
    texts = []
    for run in found:
        texts += [f"{name(run[0])} to {name(run[-1])}"] if len(run) > 2 else [name(value) for value in run]
    return texts


def add_preposition(items: Sequence[str]) -> str:
    """Returns a text such as `in March` or `in March and May`, but `from March to May`."""
    return f"from {items[0]}" if len(items) == 1 and " to " in items[0] else f"in {join_words(items)}"

"""Parses lists, ranges and steps of numbers and names, which all fields have in common. A field becomes a bit mask."""

from __future__ import annotations

import re
from typing import NamedTuple

from watchbill.cron.errors import InvalidPattern, shorten_for_message
from watchbill.cron.tokens import Group, Token

_ITEM = re.compile(r"(?:\*|([0-9A-Za-z]+)(?:-([0-9A-Za-z]+))?)(?:/([0-9]+))?")
_FIRST, _LAST, _STEP = 1, 2, 3  # numbers of groups in the regular expression _ITEM

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


class Field(NamedTuple):
    """Which values a field may have. With a cycle, a range may wrap around, as in FRI-MON; without, it may not."""

    name: str
    low: int
    high: int
    cycle: int | None
    names: tuple[str, ...]  # the names of the values, from `low` on
    values: dict[str, int]  # the value of each text: 5, 05, 005, MON

    @classmethod
    def of(cls, name: str, low: int, high: int, cycle: int | None = None, names: tuple[str, ...] = ()) -> Field:
        values = {str(value): value for value in range(low, high + 1)}
        values |= {f"{value:0{width}}": value for value in range(low, min(high, 99) + 1) for width in (2, 3)}
        values |= {known: value for value, known in enumerate(names, low)}
        return cls(name, low, high, cycle, names, values)


SECOND = Field.of("second", 0, 59, 60)
MINUTE = Field.of("minute", 0, 59, 60)
HOUR = Field.of("hour", 0, 23, 24)
DAY_OF_MONTH = Field.of("day of month", 1, 31)
MONTH = Field.of("month", 1, 12, 12, _MONTHS)
DAY_OF_WEEK = Field.of("day of week", 0, 7, 7, _WEEKDAYS)  # both 0 and 7 are Sunday
YEAR = Field.of("year", 1970, 3000)
WEEK = Field.of("week of year", 1, 53, 53)


def parse_list(token: Token, field: Field) -> int:
    """Parses a whole field, whose items are separated by commas. Returns a mask with bit n set for the value n."""
    if "," not in token.text:
        return parse_item(token, field)
    mask, position = 0, token.position
    for text in token.text.split(","):
        value = field.values.get(text)  # looked up first, which is fast: most items are single values
        if value is None or field is DAY_OF_WEEK:
            mask |= parse_item(Token(text, position, token.pattern), field)
        else:
            mask |= 1 << value
        position += len(text) + 1
    return mask


def parse_item(token: Token, field: Field) -> int:
    """Parses one item of a list: `*`, a value or a range, each with or without a step."""
    value = field.values.get(token.text)
    if value is not None:
        return 1 << value if value < 7 or field is not DAY_OF_WEEK else 1  # 7 means Sunday, as 0 does
    match = _ITEM.fullmatch(token.text)
    if match is None:
        raise _make_syntax_error(token, field)
    first_text, last_text, step_text = match.groups()
    step = int(step_text) if step_text else 1
    if step == 0:
        raise token.error(field.name, "a step is at least 1", f"{token.text[: match.start(_STEP)]}1")
    if first_text is None:
        return _make_mask(field, field.low, field.high, step)
    first = parse_value(token, match, _FIRST, field)
    if last_text is None:
        return _make_mask(field, first, field.high if step_text else first, step)
    last = parse_value(token, match, _LAST, field)
    if first > last and field.cycle is None:
        raise _make_backwards_error(token, field, first, last)
    return _make_mask(field, first, last, step)


def parse_value(token: Token, match: re.Match[str], group: Group, field: Field) -> int:
    """Parses the number or name that a group of the match has caught. Leading zeros and small letters are allowed."""
    text = match[group]
    value = field.values.get(text)
    if value is None:
        value = field.values.get((text.lstrip("0") or "0") if text.isdigit() else text.upper())
    if value is None:
        raise _make_value_error(token.part(match, group), field)
    return value


def _make_mask(field: Field, first: int, last: int, step: int) -> int:
    """Returns a mask with the bits from first to last in steps, wrapped around the cycle. Computes it without a loop,
    because a long list must be fast."""
    cycle = field.cycle or field.high
    if first > last:
        last += cycle
    count = (last - first) // step + 1
    row = ((1 << step * count) - 1) // ((1 << step) - 1) if count > 1 else 1  # sums 1 << step * i as a geometric series
    row <<= first - field.low
    return (row & ((1 << cycle) - 1) | row >> cycle) << field.low


def _make_syntax_error(token: Token, field: Field) -> InvalidPattern:
    if not token.text:
        return token.error(field.name, "an item of the list is empty")
    allowed = f"{field.low} to {field.high}" + (f" or {field.names[0]} to {field.names[-1]}" if field.names else "")
    return token.error(field.name, f"{shorten_for_message(token.text)} is not a value, range or step of {allowed}")


def _make_value_error(token: Token, field: Field) -> InvalidPattern:
    if token.text.isdigit():
        suggestion = "0" if token.text.lstrip("0") == str(field.high + 1) in ("24", "60") else None
        return token.error(
            field.name, f"{shorten_for_message(token.text)} is not in {field.low} to {field.high}", suggestion
        )
    if not field.names:
        return token.error(
            field.name, f"{shorten_for_message(token.text)} is not a number of {field.low} to {field.high}"
        )
    short = token.text[:3].upper()
    reason = f"{shorten_for_message(token.text)} is not one of {', '.join(field.names)} or {field.low} to {field.high}"
    return token.error(field.name, reason, short if short in field.names else None)


def _make_backwards_error(token: Token, field: Field, first: int, last: int) -> InvalidPattern:
    suggestion = None if "/" in token.text else f"{field.low}-{last},{first}-{field.high}"
    return token.error(field.name, f"the range {shorten_for_message(token.text)} runs backwards", suggestion)

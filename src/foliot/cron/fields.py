"""Lists, ranges and steps of numbers and names: what all fields have in common. A field becomes a bit mask."""

from __future__ import annotations

import re
from typing import NamedTuple

from foliot.cron.errors import InvalidPattern, shown
from foliot.cron.tokens import Token

_ITEM = re.compile(r"(?:\*|(?P<first>[0-9A-Za-z]+)(?:-(?P<last>[0-9A-Za-z]+))?)(?:/(?P<step>[0-9]+))?")


_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


class Field(NamedTuple):
    """What may stand in a field. A range wraps around a cycle of values; without a cycle it may not run backwards."""

    name: str
    low: int
    high: int
    cycle: int | None
    names: tuple[str, ...] = ()  # of the values from `low` on


SECOND = Field("second", 0, 59, 60)
MINUTE = Field("minute", 0, 59, 60)
HOUR = Field("hour", 0, 23, 24)
DAY_OF_MONTH = Field("day of month", 1, 31, None)
MONTH = Field("month", 1, 12, 12, _MONTHS)
DAY_OF_WEEK = Field("day of week", 0, 7, 7, _WEEKDAYS)  # 7 is Sunday again
YEAR = Field("year", 1970, 3000, None)
WEEK = Field("week of year", 1, 53, 53)


def parse_list(token: Token, field: Field) -> int:
    """A whole comma-separated field, as a mask with bit n set for the value n."""
    mask = 0
    for item in token.split(","):
        mask |= parse_item(item, field)
    return mask


def parse_item(token: Token, field: Field) -> int:
    """One item of a list: `*`, a value or a range, each with or without a step."""
    if token.text.isdigit() and token.text.isascii():
        number = parse_number(token, field.name, field.low, field.high)
        return 1 << number if number < 7 or field is not DAY_OF_WEEK else 1  # the other Sunday
    match = _ITEM.fullmatch(token.text)
    if match is None:
        raise _malformed(token, field)
    step = int(match["step"] or 1)
    if step == 0:
        raise token.error(field.name, "a step is at least 1", f"{token.text[: match.start('step')]}1")
    if match["first"] is None:
        return _mask(field, field.low, field.high, step)
    first = parse_value(token.part(match, "first"), field)
    if match["last"] is None:
        return _mask(field, first, field.high if match["step"] else first, step)
    last = parse_value(token.part(match, "last"), field)
    if first > last and field.cycle is None:
        raise _backwards(token, field, first, last)
    return _mask(field, first, last, step)


def parse_value(token: Token, field: Field) -> int:
    """A number or a name."""
    if token.text.isdigit():
        return parse_number(token, field.name, field.low, field.high)
    name = token.text.upper()
    if name not in field.names:
        raise _unknown(token, field)
    return field.low + field.names.index(name)


def parse_number(token: Token, field_name: str, low: int, high: int) -> int:
    """An unsigned number within bounds; leading zeros do no harm."""
    digits = token.text
    if len(digits) <= 4 and low <= (number := int(digits)) <= high:
        return number
    digits = digits.lstrip("0") or "0"
    if len(digits) > 4 or not low <= int(digits) <= high:
        suggestion = "0" if digits == str(high + 1) in ("24", "60") else None
        raise token.error(field_name, f"{shown(token.text)} is not in {low} to {high}", suggestion)
    return int(digits)


def _mask(field: Field, first: int, last: int, step: int) -> int:
    """Bits from first to last in steps, wrapped around the cycle; without a loop, so that a long list costs no time."""
    cycle = field.cycle or field.high
    if first > last:
        last += cycle
    count = (last - first) // step + 1
    row = ((1 << step * count) - 1) // ((1 << step) - 1) if count > 1 else 1  # a geometric series
    row <<= first - field.low
    return (row & ((1 << cycle) - 1) | row >> cycle) << field.low


def _malformed(token: Token, field: Field) -> InvalidPattern:
    if not token.text:
        return token.error(field.name, "an item of the list is empty")
    allowed = f"{field.low} to {field.high}" + (f" or {field.names[0]} to {field.names[-1]}" if field.names else "")
    return token.error(field.name, f"{shown(token.text)} is no value, range or step of {allowed}")


def _unknown(token: Token, field: Field) -> InvalidPattern:
    if not field.names:
        return token.error(field.name, f"{shown(token.text)} is not a number of {field.low} to {field.high}")
    short = token.text[:3].upper()
    reason = f"{shown(token.text)} is not one of {', '.join(field.names)} or {field.low} to {field.high}"
    return token.error(field.name, reason, short if short in field.names else None)


def _backwards(token: Token, field: Field, first: int, last: int) -> InvalidPattern:
    suggestion = None if "/" in token.text else f"{field.low}-{last},{first}-{field.high}"
    return token.error(field.name, f"the range {shown(token.text)} runs backwards", suggestion)

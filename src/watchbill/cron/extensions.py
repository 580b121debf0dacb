"""Reads the extensions of a pattern, which stand before or behind its fields: a zone, weeks of the year, a modifier."""

from __future__ import annotations

import re
from typing import cast

from watchbill.cron.errors import shorten_for_message
from watchbill.cron.fields import WEEK, parse_list
from watchbill.cron.pattern import Modifier, Unit
from watchbill.cron.tokens import Token
from watchbill.cron.zones import LONGEST_NAME, is_zone, listed_names

ZONE, WEEKS, MODIFIER = "zone", WEEK.name, "modifier"

_ZONE_PREFIXES = ("TZ:", "TZ=", "CRON_TZ=")
_WEEKS_PREFIX = "WOY:"
_MODIFIER = re.compile(r"(?:[ES]OD:)?(?P<kind>[ES])(?P<steps>[0-9]+[YQMWDHmS](?:T?[0-9]+[YQMWDHmS])*)")
_STEP = re.compile(r"(T?)([0-9]+)([YQMWDHmS])")
_LIKE_MODIFIER = re.compile(r"[ES]OD:.*|[ES][0-9].*", re.DOTALL)
# A name with a slash and a letter behind it, such as Europe/Paris. In a step such as MON/2, a digit follows the slash.
_LIKE_ZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*/[A-Za-z].*", re.DOTALL)


def find_extension_kind(token: Token, *, trailing: bool) -> str | None:
    """Returns which extension a word is, or None. Behind the fields, a zone with a slash needs no prefix `TZ:`."""
    if token.text < "A":  # a word that begins with a digit, `*` or `@` is not an extension
        return None
    if token.text.startswith(_ZONE_PREFIXES) or (trailing and _LIKE_ZONE.fullmatch(token.text)):
        return ZONE
    if token.text.startswith(_WEEKS_PREFIX):
        return WEEKS
    return MODIFIER if _LIKE_MODIFIER.fullmatch(token.text) else None


def parse_zone(token: Token) -> str:
    """Returns the name of the zone in `TZ:Europe/Paris`, `CRON_TZ=+01:00` or the bare name. Raises if it is unknown."""
    for prefix in _ZONE_PREFIXES:
        if token.text.startswith(prefix):
            token = token.after(prefix)
            break
    check_zone(token)
    return token.text


def check_zone(name: Token) -> None:
    if not is_zone(name.text):
        reason = f"{shorten_for_message(name.text)} is neither an IANA zone like Europe/Paris nor an offset like +05:30"
        raise name.error(ZONE, reason, _find_similar_zone(name.text))


def parse_weeks(token: Token) -> int:
    return parse_list(token.after(_WEEKS_PREFIX), WEEK)


def parse_modifier(token: Token) -> Modifier:
    match = _MODIFIER.fullmatch(token.text)
    if match is None:
        expected = "E or S, then numbers with a unit of Y Q M W D H m S, as in E1M2D"
        raise token.error(MODIFIER, f"{shorten_for_message(token.text)} is not a modifier: {expected}")
    steps: list[tuple[Unit, int]] = []
    in_time = False
    for separator, number, unit in _STEP.findall(match["steps"]):
        in_time = in_time or separator == "T"
        steps.append((cast("Unit", "m" if in_time and unit == "M" else unit), int(number)))
        in_time = in_time or unit == "H"
    return Modifier(match["kind"] == "E", tuple(steps))


def _find_similar_zone(name: str) -> str | None:
    """Returns the zone whose name differs in case only, or whose city this name is; None if there is none."""
    if len(name) > LONGEST_NAME:
        return None
    wanted = name.lower()
    same = [known for known in listed_names() if known.lower() == wanted]
    city = [known for known in listed_names() if known.lower().endswith(f"/{wanted}")]
    return next(iter(same + city), None)

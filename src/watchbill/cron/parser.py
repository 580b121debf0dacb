"""Parses the text of a schedule into a `Pattern`. Raises `InvalidPattern`."""

from __future__ import annotations

import re

from watchbill.cron.dayfields import parse_days
from watchbill.cron.errors import InvalidPattern, shorten_for_message
from watchbill.cron.extensions import (
    MODIFIER,
    WEEKS,
    ZONE,
    find_extension_kind,
    parse_modifier,
    parse_weeks,
    parse_zone,
)
from watchbill.cron.fields import HOUR, MINUTE, MONTH, SECOND, YEAR, parse_list
from watchbill.cron.pattern import AtStart, Every, Fields, Part, Pattern
from watchbill.cron.tokens import Token

MAX_LENGTH = 1_000
MAX_PARTS = 32

_PRESETS = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
_MACROS = (*_PRESETS, "@reboot", "@every")
_EVERY_DAY = "0 0 0 * * *"
_DURATION = re.compile(r"(?:[0-9]+[dhms])+")
_DURATION_PART = re.compile(r"([0-9]+)([dhms])")
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


def parse(text: str) -> Pattern:
    if len(text) > MAX_LENGTH:
        raise InvalidPattern(f"has more than the {MAX_LENGTH} characters that are allowed", text, MAX_LENGTH)
    parts = Token(text, 0, text).split("|")
    if len(parts) > MAX_PARTS:
        raise parts[MAX_PARTS].error("pattern", f"has {len(parts)} parts, {MAX_PARTS} are allowed")
    return Pattern(tuple(_parse_part(part) for part in parts))


def _parse_part(token: Token) -> Part:
    words = token.words()
    if not words:
        raise token.error("pattern", "there is nothing here; a schedule has 5, 6 or 7 fields")
    body, extensions = _split_off_extensions(words)
    zone = parse_zone(extensions[ZONE]) if ZONE in extensions else None
    weeks = parse_weeks(extensions[WEEKS]) if WEEKS in extensions else None
    modifier = parse_modifier(extensions[MODIFIER]) if MODIFIER in extensions else None
    if body:
        return Part(_parse_body(body), modifier, weeks, zone)
    if weeks is not None:
        return Part(_parse_fields(Token(_EVERY_DAY, 0, _EVERY_DAY).words()), modifier, weeks, zone)
    if modifier is None:
        raise token.error("pattern", "a zone alone is not a schedule; it needs 5, 6 or 7 fields")
    return Part(None, modifier, None, zone)


def _split_off_extensions(words: list[Token]) -> tuple[list[Token], dict[str, Token]]:
    """Splits the words of a part into its body and the extensions at both ends, such as a zone or a modifier."""
    extensions: dict[str, Token] = {}
    start, end = 0, len(words)
    while start < end and (kind := find_extension_kind(words[start], trailing=False)):
        _add_extension(extensions, kind, words[start])
        start += 1
    while end > start and (kind := find_extension_kind(words[end - 1], trailing=True)):
        end -= 1
        _add_extension(extensions, kind, words[end])
    return words[start:end], extensions


def _add_extension(extensions: dict[str, Token], kind: str, token: Token) -> None:
    if kind in extensions:
        raise token.error(kind, f"{shorten_for_message(token.text)} is the second one; a part has at most one {kind}")
    extensions[kind] = token


def _parse_body(words: list[Token]) -> Fields | Every | AtStart:
    if words[0].text.startswith("@"):
        return _parse_macro(words)
    return _parse_fields(words)


def _parse_macro(words: list[Token]) -> Fields | Every | AtStart:
    name = words[0]
    if name.text == "@every":
        return _parse_every(words)
    if len(words) > 1:
        raise words[1].error(
            "pattern", f"nothing may follow {shorten_for_message(name.text)} but a zone, weeks or a modifier"
        )
    if name.text == "@reboot":
        return AtStart()
    if name.text in _PRESETS:
        preset = _PRESETS[name.text]
        return _parse_fields(Token(preset, 0, preset).words())
    from difflib import get_close_matches  # imported here, because only this error message needs it

    close = get_close_matches(name.text[:20].lower(), _MACROS, n=1)
    raise name.error(
        "pattern", f"{shorten_for_message(name.text)} is not one of {', '.join(_MACROS)}", close[0] if close else None
    )


def _parse_every(words: list[Token]) -> Every:
    if len(words) != 2 or not _DURATION.fullmatch(words[1].text):
        wrong = words[min(1, len(words) - 1)] if len(words) <= 2 else words[2]
        raise wrong.error("duration", "@every takes one duration like 90s or 1h30m, of d, h, m and s")
    seconds = sum(int(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(words[1].text))
    if seconds == 0:
        raise words[1].error("duration", "@every needs at least 1 second", "1s")
    return Every(seconds)


def _parse_fields(words: list[Token]) -> Fields:
    if not 5 <= len(words) <= 7:
        raise _make_count_error(words)
    second = None if len(words) == 5 else words[0]
    minute, hour, of_month, month, of_week, *year = words[1:] if second else words
    return Fields(
        seconds=parse_list(second, SECOND) if second else 1,
        minutes=parse_list(minute, MINUTE),
        hours=parse_list(hour, HOUR),
        days=parse_days(of_month, of_week),
        months=parse_list(month, MONTH),
        years=_parse_years(year[0]) if year else None,
        by_interval="*" in (minute.text[0], hour.text[0], second.text[0] if second else ""),
    )


def _parse_years(token: Token) -> int | None:
    return None if token.text == "*" else parse_list(token, YEAR) >> YEAR.low


def _make_count_error(words: list[Token]) -> InvalidPattern:
    first, last = words[0], words[-1]
    whole = Token(first.pattern[first.position : last.position + len(last.text)], first.position, first.pattern)
    count = "1 field" if len(words) == 1 else f"{len(words)} fields"
    reason = f"{count}; a schedule has 5 (minute hour day month weekday), 6 (second first) or 7 (year last)"
    return whole.error("pattern", reason)

"""Describes a whole schedule in English: its parts with their modifiers, the zone, and the policy for clock changes."""

from __future__ import annotations

from datetime import UTC, datetime

from watchbill.cron.explain.days import describe_days, describe_weeks, describe_years
from watchbill.cron.explain.english import format_count, format_interval
from watchbill.cron.explain.times import describe_times
from watchbill.cron.pattern import AtStart, Every, Fields, Modifier, Part, Pattern, Unit
from watchbill.cron.zones import load_zone

_UNITS: dict[Unit, str] = {
    "Y": "year",
    "Q": "quarter",
    "M": "month",
    "W": "week",
    "D": "day",
    "H": "hour",
    "m": "minute",
    "S": "second",
}
_POLICIES = {
    "skip": "skipped times are left out and repeated ones run once",
    "once": "skipped times run at the change and repeated ones run once",
    "both": "skipped times run at the change and repeated ones run twice",
}
_CONTINENTS = {
    "Africa",
    "America",
    "Antarctica",
    "Arctic",
    "Asia",
    "Atlantic",
    "Australia",
    "Europe",
    "Indian",
    "Pacific",
}


def explain(pattern: Pattern, zone: str, policy: str, anchor: datetime) -> str:
    text = "; also ".join(_describe_part(part, zone, anchor) for part in pattern.parts)
    changes_clocks = any(_is_affected_by_clock_changes(part, zone) for part in pattern.parts)
    return f"{text}; when clocks change, {_POLICIES[policy]}" if policy in _POLICIES and changes_clocks else text


def _is_affected_by_clock_changes(part: Part, zone: str) -> bool:
    return isinstance(part.body, Fields) and not load_zone(part.zone or zone).is_fixed


def _describe_part(part: Part, zone: str, anchor: datetime) -> str:
    if isinstance(part.body, AtStart):
        return "once when the cluster starts"
    if part.body is None:
        assert part.modifier is not None
        return _describe_bare_modifier(part.modifier) + _describe_zone(part.zone, zone)
    if isinstance(part.body, Every) and part.weeks is None and part.modifier is None:
        return _describe_every(part.body, anchor)
    body = _describe_fields(part.body) if isinstance(part.body, Fields) else _describe_every(part.body, anchor)
    moved = f", moved {_describe_moves(part.modifier)}" if part.modifier else ""
    return _join_clauses(body, describe_weeks(part.weeks)) + moved + _describe_zone(part.zone, zone)


def _describe_fields(fields: Fields) -> str:
    return _join_clauses(describe_times(fields) + describe_days(fields), describe_years(fields.years))


def _join_clauses(*clauses: str) -> str:
    return " ".join(clause for clause in clauses if clause)


def _describe_every(part: Every, anchor: datetime) -> str:
    start = anchor.astimezone(UTC).replace(microsecond=0, tzinfo=None)
    return f"{format_interval(part.seconds)}, counted from {start} UTC"


def _describe_bare_modifier(modifier: Modifier) -> str:
    (unit, count), *rest = modifier.steps
    # Modifiers such as E0M, S0M and S1M have a short text.
    if not rest and (count == 0 or (count == 1 and not modifier.to_end)):
        return f"at the {_name_edge(modifier)} of every {_UNITS[unit]}"
    return f"from run to run, {_describe_moves(modifier)}"


def _describe_moves(modifier: Modifier) -> str:
    """Returns a text such as `to the end of the month, then to the end of the day 3 days later`."""
    return ", then ".join(
        f"to the {_name_edge(modifier)} of {_describe_period(unit, count)}" for unit, count in modifier.steps
    )


def _describe_period(unit: Unit, count: int) -> str:
    noun = _UNITS[unit]
    if count == 0:
        return f"the {noun}"
    return f"the next {noun}" if count == 1 else f"the {noun} {format_count(count, noun)} later"


def _name_edge(modifier: Modifier) -> str:
    return "end" if modifier.to_end else "start"


def _describe_zone(named: str | None, own: str) -> str:
    """Returns the time zone as a text; empty for UTC, unless the pattern itself names UTC."""
    name = named or own
    if name == "UTC":
        return ", UTC" if named else ""
    if name[0] in "+-":
        return f", at UTC{name}"
    continent, *places = name.split("/")
    if continent not in _CONTINENTS or not places:
        return f", {name} time"
    return f", {', '.join(place.replace('_', ' ') for place in reversed(places))} time"

"""Describes the times of day of a schedule in English.

Only a schedule that follows elapsed time is described with the word *every*, or with *by elapsed time* where *every*
does not fit. So its text never looks like that of a schedule that follows the wall clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from watchbill.cron.bits import bits
from watchbill.cron.calendar import DAY
from watchbill.cron.explain.english import (
    find_even_step,
    format_count,
    format_duration,
    format_interval,
    format_ordinal,
    join_words,
    pluralize,
    shorten_runs,
)
from watchbill.cron.pattern import Fields

_MAX_LISTED_TIMES = 5
_HOUR = 3_600


def describe_times(fields: Fields) -> str:
    hours, minutes, seconds = bits(fields.hours), bits(fields.minutes), bits(fields.seconds)
    if not fields.by_interval:
        return _describe_by_clock(hours, minutes, seconds)
    text = _describe_by_elapsed_time(hours, minutes, seconds)
    return text if "every" in text else f"{text} by elapsed time"


def _describe_by_clock(hours: Sequence[int], minutes: Sequence[int], seconds: Sequence[int]) -> str:
    if len(hours) * len(minutes) * len(seconds) <= _MAX_LISTED_TIMES:
        return f"at {join_words(_format_all_times(hours, minutes, seconds))}"
    pace = _find_even_spacing(hours, minutes, seconds)
    if pace is None and len(minutes) * len(seconds) == 1:
        return _describe_hours(hours, minutes[0] * 60 + seconds[0])
    if pace is None:
        return _nest_fields(
            [_list_values(hours, "hour"), _list_values(minutes, "minute"), _list_values(seconds, "second")], seconds
        )
    first, step, last = pace
    if step == _HOUR:
        return f"hourly {_format_range(first, last)}"
    return f"{_format_range(first, last)} in steps of {format_duration(step)}"


def _describe_hours(hours: Sequence[int], past: int) -> str:
    items = shorten_runs(hours, lambda hour: _format_time(hour * _HOUR + past))
    return f"{'at' if len(items) == len(hours) else 'hourly at'} {join_words(items)}"


def _describe_by_elapsed_time(hours: Sequence[int], minutes: Sequence[int], seconds: Sequence[int]) -> str:
    if len(hours) * len(minutes) * len(seconds) == 1:
        return f"at {_format_time(hours[0] * _HOUR + minutes[0] * 60 + seconds[0])}"
    pace = _find_even_spacing(hours, minutes, seconds)
    if pace is not None:
        return _describe_even_times(*pace)
    within_hour = _find_even_spacing([0], minutes, seconds)
    if within_hour and within_hour[0] == 0 and within_hour[1] + within_hour[2] == _HOUR:
        return f"{format_interval(within_hour[1])} of {_describe_values(hours, 'hour', 24)}"
    pieces = [
        _describe_values(hours, "hour", 24),
        _describe_values(minutes, "minute", 60),
        _describe_values(seconds, "second", 60),
    ]
    return _nest_fields(pieces, seconds)


def _describe_even_times(first: int, step: int, last: int) -> str:
    if first + DAY - last != step:
        return f"{format_interval(step)} {_format_range(first, last)}"
    if first == 0:
        return format_interval(step)
    if step in (60, _HOUR):
        return f"at {_format_minutes_and_seconds(first)} past {format_interval(step)}"
    return f"{format_interval(step)} from {_format_time(first)}"


def _format_minutes_and_seconds(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    parts = [format_count(count, noun) for count, noun in ((minutes, "minute"), (seconds, "second")) if count]
    return " ".join(parts)


def _nest_fields(pieces: list[str], seconds: Sequence[int]) -> str:
    """Returns a text such as `at seconds 0 and 30 of minute 5 of hours 9 to 17`. Leaves out second 0, and the hours if
    all are named."""
    hour, minute, second = pieces
    if list(seconds) == [0]:
        return f"at {minute} of {hour}"
    if minute == "every minute" and hour == "every hour":
        return f"at {second} of {minute}"
    return f"at {second} of {minute} of {hour}"


def _list_values(values: Sequence[int], noun: str) -> str:
    return f"{pluralize(len(values), noun)} {join_words(shorten_runs(values))}"


def _describe_values(values: Sequence[int], noun: str, size: int) -> str:
    if len(values) == size:
        return f"every {noun}"
    step = find_even_step(values)
    if step is not None and step > 1:
        return f"every {format_ordinal(step)} {noun} from {values[0]} to {values[-1]}"
    return _list_values(values, noun)


def _find_even_spacing(
    hours: Sequence[int], minutes: Sequence[int], seconds: Sequence[int]
) -> tuple[int, int, int] | None:
    """Returns first time, step and last time, if neighbouring times have always the same distance; otherwise None."""
    all_times = [hour * _HOUR + minute * 60 + second for hour in hours for minute in minutes for second in seconds]
    if len(all_times) == 2:
        return all_times[0], all_times[1] - all_times[0], all_times[1]
    step = find_even_step(all_times)
    return None if step is None else (all_times[0], step, all_times[-1])


def _format_all_times(hours: Sequence[int], minutes: Sequence[int], seconds: Sequence[int]) -> list[str]:
    return [
        _format_time(hour * _HOUR + minute * 60 + second) for hour in hours for minute in minutes for second in seconds
    ]


def _format_range(first: int, last: int) -> str:
    precise = first % 60 > 0 or last % 60 > 0
    return f"from {_format_time(first, precise=precise)} to {_format_time(last, precise=precise)}"


def _format_time(seconds: int, *, precise: bool = False) -> str:
    minutes, second = divmod(seconds, 60)
    text = f"{minutes // 60:02}:{minutes % 60:02}"
    return f"{text}:{second:02}" if second or precise else text
